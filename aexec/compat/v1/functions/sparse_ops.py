"""Functions of sparse tensors with TensorFlow's arguments, over ops that take indices, values and shape separately.

Next to read: `sparse.py`, which has the class, and is their namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec import ops
from aexec.client.building import control_dependencies, identity, name_scope
from aexec.compat.v1.namespace import chosen, refuse
from aexec.compat.v1.values.sparse import SparseTensor, sparse_to_dense
from aexec.compat.v1.values.static_values import get_static_value
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import as_dtype
from aexec.framework.indexed_slices import IndexedSlices
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = [
    "deserialize_many_sparse",
    "serialize_many_sparse",
    "serialize_sparse",
    "sparse_add",
    "sparse_concat",
    "sparse_expand_dims",
    "sparse_eye",
    "sparse_fill_empty_rows",
    "sparse_from_dense",
    "sparse_mask",
    "sparse_maximum",
    "sparse_merge",
    "sparse_minimum",
    "sparse_reduce_max",
    "sparse_reduce_max_sparse",
    "sparse_reduce_sum",
    "sparse_reduce_sum_sparse",
    "sparse_reorder",
    "sparse_reset_shape",
    "sparse_reshape",
    "sparse_retain",
    "sparse_segment_mean",
    "sparse_segment_sqrt_n",
    "sparse_segment_sum",
    "sparse_slice",
    "sparse_softmax",
    "sparse_split",
    "sparse_to_indicator",
    "sparse_transpose",
]


def sparse_add(a: Any, b: Any, threshold: Any = None, thresh: Any = None) -> Any:
    """`tf.sparse_add`: sparse if both are, else dense."""
    threshold = chosen(0, threshold=threshold, thresh=thresh)
    if isinstance(a, SparseTensor) and isinstance(b, SparseTensor):
        real = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}.get(a.dtype, a.dtype)
        return SparseTensor(*ops.sparse_add(*a, *b, convert_to_tensor(threshold, real)))
    if isinstance(b, SparseTensor):
        a, b = b, a
    if not isinstance(a, SparseTensor):
        raise errors.InvalidValueError("At least one input should be SparseTensor; do you mean to use tf.add()?")
    return ops.sparse_tensor_dense_add(*a, b)


def sparse_concat(
    axis: Any,
    sp_inputs: Sequence[SparseTensor],
    name: str | None = None,
    expand_nonconcat_dim: bool = False,
    concat_dim: int | None = None,
    expand_nonconcat_dims: bool | None = None,
) -> SparseTensor:
    """`tf.sparse_concat`."""
    axis = chosen(..., axis=axis, concat_dim=concat_dim)
    if len(sp_inputs) == 1:
        return sp_inputs[0]
    indices, values, shapes = (list(parts) for parts in zip(*sp_inputs, strict=True))
    if expand_nonconcat_dim or expand_nonconcat_dims:
        largest = ops.max(ops.pack(shapes), [0])
        at = ops.one_hot(axis, ops.size(largest), True, False)
        shapes = [ops.select_v2(at, shape, largest) for shape in shapes]
    return SparseTensor(*ops.sparse_concat(indices, values, shapes, concat_dim=axis, name=name))


def sparse_fill_empty_rows(
    sp_input: SparseTensor, default_value: Any, name: str | None = None
) -> tuple[SparseTensor, Tensor]:
    """`tf.sparse_fill_empty_rows`: insert a value into each empty row; also return which rows were empty, bool."""
    default = convert_to_tensor(default_value, sp_input.dtype)
    indices, values, empty, _ = ops.sparse_fill_empty_rows(*sp_input, default, name=name)
    return SparseTensor(indices, values, sp_input.dense_shape), empty


def sparse_mask(a: IndexedSlices[Any], mask_indices: Any, name: str | None = None) -> IndexedSlices[Tensor]:
    """`tf.sparse_mask`: slices without these rows."""
    with name_scope(name or "sparse_mask"):
        kept, positions = ops.list_diff(a.indices, mask_indices)
        return IndexedSlices(ops.gather_v2(a.values, positions, 0), kept, a.dense_shape)


def sparse_maximum(sp_a: SparseTensor, sp_b: SparseTensor, name: str | None = None) -> SparseTensor:
    """`tf.sparse_maximum`."""
    return SparseTensor(*ops.sparse_sparse_maximum(*sp_a, *sp_b, name=name), sp_a.dense_shape)


def sparse_minimum(sp_a: SparseTensor, sp_b: SparseTensor, name: str | None = None) -> SparseTensor:
    """`tf.sparse_minimum`."""
    return SparseTensor(*ops.sparse_sparse_minimum(*sp_a, *sp_b, name=name), sp_a.dense_shape)


def _reduction(op: Callable[..., Any], name: str, made: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(
        sp_input: SparseTensor,
        axis: Any = None,
        keepdims: bool | None = None,
        reduction_axes: Any = None,
        keep_dims: bool | None = None,
    ) -> Any:
        axes = chosen(axis=axis, reduction_axes=reduction_axes)
        if axes is None:
            axes = ops.range(0, ops.size(sp_input.dense_shape), 1)
        return made(op(*sp_input, axes, keep_dims=bool(chosen(keepdims=keepdims, keep_dims=keep_dims))))

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"`tf.{name}`: over all axes if none are given."
    return reduce


sparse_reduce_sum = _reduction(ops.sparse_reduce_sum, "sparse_reduce_sum", lambda dense: dense)
sparse_reduce_max = _reduction(ops.sparse_reduce_max, "sparse_reduce_max", lambda dense: dense)
sparse_reduce_sum_sparse = _reduction(
    ops.sparse_reduce_sum_sparse, "sparse_reduce_sum_sparse", lambda parts: SparseTensor(*parts)
)
sparse_reduce_max_sparse = _reduction(
    ops.sparse_reduce_max_sparse, "sparse_reduce_max_sparse", lambda parts: SparseTensor(*parts)
)


def sparse_reorder(sp_input: SparseTensor, name: str | None = None) -> SparseTensor:
    """`tf.sparse_reorder`: in row-major order."""
    return SparseTensor(*ops.sparse_reorder(*sp_input, name=name), sp_input.dense_shape)


def sparse_reset_shape(sp_input: SparseTensor, new_shape: Any = None) -> SparseTensor:
    """`tf.sparse_reset_shape`: set the dense shape, by default to the smallest that holds all elements."""
    indices, values, shape = (identity(part) for part in sp_input)
    if new_shape is None:
        least = ops.maximum(ops.max(indices, [0]) + ops.ones_like(shape), ops.zeros_like(shape))
        return SparseTensor(indices, values, least)
    wanted = convert_to_tensor(new_shape, None if isinstance(new_shape, Tensor) else dtypes.int64)
    wanted = wanted if wanted.dtype.base is dtypes.int64 else ops.cast(wanted, DstT=dtypes.int64)
    known = sp_input.shape, get_static_value(wanted)
    if known[0].is_fully_defined() and known[1] is not None and not (known[0].as_list() <= known[1]).all():
        raise errors.InvalidValueError(
            "Requested new_shape should have dimension sizes >= sp_input.shape."
            f"  Found new_shape ({known[1]}), sp_input.shape ({known[0]})."
        )
    fits = ops.all(ops.less_equal(shape, wanted), [0])
    with control_dependencies([ops.assert_(fits, [shape, wanted])]):  # noqa: PT009
        return SparseTensor(indices, values, identity(wanted))


def sparse_reshape(sp_input: SparseTensor, shape: Any, name: str | None = None) -> SparseTensor:
    """`tf.sparse_reshape`: one size may be -1."""
    sizes = convert_to_tensor(shape, None if isinstance(shape, Tensor) else dtypes.int64)
    sizes = sizes if sizes.dtype.base is dtypes.int64 else ops.cast(sizes, DstT=dtypes.int64)
    indices, made = ops.sparse_reshape(sp_input.indices, sp_input.dense_shape, sizes, name=name)
    return SparseTensor(indices, sp_input.values, made)


def sparse_retain(sp_input: SparseTensor, to_retain: Any) -> SparseTensor:
    """`tf.sparse_retain`: the elements for which a vector is True."""
    at = ops.reshape(ops.where(convert_to_tensor(to_retain)), [-1])
    indices, values = ops.gather_v2(sp_input.indices, at, 0), ops.gather_v2(sp_input.values, at, 0)
    return SparseTensor(indices, values, identity(sp_input.dense_shape))


def _segments(op: Callable[..., Tensor], counted: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    def reduce(
        data: Any,
        indices: Any,
        segment_ids: Any,
        name: str | None = None,
        num_segments: Any = None,
        sparse_gradient: bool = False,
    ) -> Tensor:
        settings: dict[str, Any] = {"sparse_gradient": sparse_gradient, "name": name}
        if num_segments is None:
            return op(data, indices, segment_ids, **settings)
        return counted(data, indices, segment_ids, num_segments, **settings)

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"`tf.{name}`."
    return reduce


sparse_segment_sum = _segments(ops.sparse_segment_sum, ops.sparse_segment_sum_with_num_segments, "sparse_segment_sum")
sparse_segment_mean = _segments(
    ops.sparse_segment_mean, ops.sparse_segment_mean_with_num_segments, "sparse_segment_mean"
)
sparse_segment_sqrt_n = _segments(
    ops.sparse_segment_sqrt_n, ops.sparse_segment_sqrt_n_with_num_segments, "sparse_segment_sqrt_n"
)


def sparse_slice(sp_input: SparseTensor, start: Any, size: Any, name: str | None = None) -> SparseTensor:
    """`tf.sparse_slice`."""
    return SparseTensor(*ops.sparse_slice(*sp_input, start, size, name=name))


def sparse_softmax(sp_input: SparseTensor, name: str | None = None) -> SparseTensor:
    """`tf.sparse_softmax`: over the elements of each row."""
    return sp_input.with_values(ops.sparse_softmax(*sp_input, name=name))


def sparse_split(
    keyword_required: Any = None,
    sp_input: Any = None,
    num_split: int | None = None,
    axis: Any = None,
    name: str | None = None,
    split_dim: Any = None,
) -> list[SparseTensor]:
    """`tf.sparse_split`; all arguments are keywords."""
    if keyword_required is not None or sp_input is None or num_split is None:
        raise ValueError("Keyword arguments are required: sp_input, num_split and axis")
    along = convert_to_tensor(chosen(..., axis=axis, split_dim=split_dim), dtypes.int64)
    indices, values, shape = sp_input
    parts = ops.sparse_split(along, indices, values, shape, num_split=num_split, name=name)
    return [SparseTensor(*part) for part in zip(*parts, strict=True)]


def sparse_transpose(sp_input: SparseTensor, perm: Any = None, name: str | None = None) -> SparseTensor:
    """`tf.sparse_transpose`: permutes the axes, by default reverses them."""
    with name_scope(name or "SparseTranspose"):
        if perm is None:
            perm = ops.range(ops.size(sp_input.dense_shape) - 1, -1, -1)
        indices = ops.gather_v2(sp_input.indices, perm, 1)
        return sparse_reorder(SparseTensor(indices, sp_input.values, ops.gather_v2(sp_input.dense_shape, perm, 0)))


def sparse_merge(
    sp_ids: Any, sp_values: SparseTensor, vocab_size: Any, name: str | None = None, already_sorted: bool = False
) -> SparseTensor:
    """`tf.sparse_merge`: values of `sp_values` at the indices that `sp_ids` gives for the last axis."""
    several = isinstance(sp_ids, list)
    ids, sizes = (sp_ids, list(vocab_size)) if several else ([sp_ids], [vocab_size])
    with name_scope(name or "SparseMerge"):
        columns = [ops.expand_dims(_wide(one.values), 1) for one in ids]
        indices = ops.concat_v2([ids[0].indices[:, :-1], *columns], 1)
        wide = ops.pack([_wide(convert_to_tensor(size)) for size in sizes])
        made = SparseTensor(indices, sp_values.values, ops.concat_v2([ids[0].dense_shape[:-1], wide], 0))
        return made if already_sorted else sparse_reorder(made)


def _wide(value: Tensor) -> Tensor:
    return value if value.dtype.base is dtypes.int64 else ops.cast(value, DstT=dtypes.int64)


def sparse_to_indicator(sp_input: SparseTensor, vocab_size: Any, name: str | None = None) -> Tensor:
    """`tf.sparse_to_indicator`: element [..., i] of the result is True if the row contains i; dense, bool."""
    with name_scope(name or "SparseToIndicator"):
        named = sp_input.with_values(ops.fill(ops.shape(sp_input.values), True))
        indices, values, shape = sparse_merge(sp_input, named, vocab_size)
        return sparse_to_dense(indices, shape, values, False, validate_indices=False)


def sparse_from_dense(tensor: Any, name: str | None = None) -> SparseTensor:
    """`tf.sparse.from_dense`: the elements that are not zero."""
    with name_scope(name or "dense_to_sparse"):
        value = convert_to_tensor(tensor)
        indices = ops.where(ops.not_equal(value, ops.zeros_like(value)))
        return SparseTensor(indices, ops.gather_nd(value, indices), ops.shape(value, out_type=dtypes.int64))


def sparse_eye(
    num_rows: Any, num_columns: Any = None, dtype: Any = dtypes.float32, name: str | None = None
) -> SparseTensor:
    """`tf.sparse.eye`: ones along the diagonal."""
    with name_scope(name or "eye"):
        rows = convert_to_tensor(num_rows, dtypes.int64)
        columns = rows if num_columns is None else convert_to_tensor(num_columns, dtypes.int64)
        zero, one = convert_to_tensor(0, dtypes.int64), convert_to_tensor(1, dtypes.int64)
        along = ops.range(zero, ops.minimum(rows, columns), one)
        ones = ops.fill(ops.shape(along), convert_to_tensor(1, as_dtype(dtype)))
        return SparseTensor(ops.pack([along, along], axis=1), ones, ops.pack([rows, columns]))


def sparse_expand_dims(sp_input: SparseTensor, axis: Any = None, name: str | None = None) -> SparseTensor:
    """`tf.sparse.expand_dims`: with another axis of size 1, by default the last one."""
    rank = sp_input.shape.rank
    if rank is None:
        raise errors.InvalidValueError(f"the rank of {sp_input!r} must be known")
    at = (-1 if axis is None else int(axis)) % (rank + 1)
    with name_scope(name or "expand_dims"):
        column = ops.zeros_like(sp_input.indices[:, :1])
        indices = ops.concat_v2([sp_input.indices[:, :at], column, sp_input.indices[:, at:]], 1)
        one = convert_to_tensor([1], dtypes.int64)
        sizes = ops.concat_v2([sp_input.dense_shape[:at], one, sp_input.dense_shape[at:]], 0)
        return SparseTensor(indices, sp_input.values, sizes)


def serialize_sparse(sp_input: SparseTensor, name: str | None = None, out_type: Any = dtypes.string) -> Tensor:
    """`tf.serialize_sparse`: a vector of three strings."""
    return ops.serialize_sparse(*sp_input, out_type=out_type, name=name)


def serialize_many_sparse(sp_input: SparseTensor, name: str | None = None, out_type: Any = dtypes.string) -> Tensor:
    """`tf.serialize_many_sparse`: three strings for each row."""
    return ops.serialize_many_sparse(*sp_input, out_type=out_type, name=name)


def deserialize_many_sparse(
    serialized_sparse: Any, dtype: Any, rank: int | None = None, name: str | None = None
) -> SparseTensor:
    """`tf.deserialize_many_sparse`."""
    refuse("deserialize_many_sparse", rank=rank)
    return SparseTensor(*ops.deserialize_many_sparse(serialized_sparse, dtype=as_dtype(dtype), name=name))
