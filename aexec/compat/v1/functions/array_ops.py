"""TensorFlow's functions that make, cut, join and reorder tensors, over `aexec.ops`.

Next to read: `math_ops.py`.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, overload

import numpy as np

from aexec import ops
from aexec.client.building import constant, name_scope
from aexec.compat.v1.namespace import chosen, refuse, renamed
from aexec.compat.v1.values.shapes import TensorShape
from aexec.compat.v1.values.sparse import SparseTensor
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import as_dtype
from aexec.framework.shape import UNKNOWN_RANK
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor as _convert
from aexec.graph.tensor_proxy import TensorProxy

__all__ = [
    "batch_gather",
    "boolean_mask",
    "broadcast_static_shape",
    "cast",
    "concat",
    "convert_to_tensor",
    "expand_dims",
    "eye",
    "gather",
    "meshgrid",
    "one_hot",
    "ones_like",
    "pad",
    "placeholder_with_default",
    "range",
    "rank",
    "rank_of",
    "repeat",
    "reverse_sequence",
    "sequence_mask",
    "setdiff1d",
    "shape",
    "size",
    "split",
    "squeeze",
    "stack",
    "strided_slice",
    "to_dtype",
    "transpose",
    "unique",
    "unique_with_counts",
    "unstack",
    "where",
    "zeros_like",
]


def convert_to_tensor(
    value: Any, dtype: Any = None, name: str | None = None, preferred_dtype: Any = None, dtype_hint: Any = None
) -> Tensor:
    """`tf.convert_to_tensor`; a preferred type is used if it can represent the value."""
    wanted = None if dtype is None else as_dtype(dtype)
    hint = chosen(preferred_dtype=preferred_dtype, dtype_hint=dtype_hint)
    if wanted is None and hint is not None and not isinstance(value, Tensor | TensorProxy):
        try:
            return _convert(value, as_dtype(hint), name or "Const")
        except errors.InvalidArgumentError:
            pass
    return _convert(value, wanted, name or "Const")


def placeholder_with_default(input: Any, shape: Any, name: str | None = None) -> Tensor:
    """`tf.placeholder_with_default`."""
    return ops.placeholder_with_default(input, shape=UNKNOWN_RANK if shape is None else shape, name=name)


@overload
def cast(x: SparseTensor, dtype: Any, name: str | None = None) -> SparseTensor: ...
@overload
def cast(x: Any, dtype: Any, name: str | None = None) -> Tensor: ...
def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """`tf.cast`; of a sparse tensor, its values are cast."""
    wanted = as_dtype(dtype)
    if isinstance(x, SparseTensor):
        return x.with_values(cast(x.values, wanted, name))
    value = _convert(x)
    return value if value.dtype.base is wanted else ops.cast(value, DstT=wanted, name=name)


def to_dtype(dtype: dtypes.DType) -> Any:
    """`tf.to_float` and similar functions: a cast to that type."""

    def to(x: Any, name: str | None = None) -> Any:
        return cast(x, dtype, name)

    return to


to_bfloat16, to_double, to_float = to_dtype(dtypes.bfloat16), to_dtype(dtypes.float64), to_dtype(dtypes.float32)
to_complex64, to_complex128 = to_dtype(dtypes.complex64), to_dtype(dtypes.complex128)
to_int32, to_int64 = to_dtype(dtypes.int32), to_dtype(dtypes.int64)


def shape(input: Any, name: str | None = None, out_type: Any = dtypes.int32) -> Tensor:
    """`tf.shape`, of sparse tensors, too."""
    if isinstance(input, SparseTensor):
        return cast(input.dense_shape, out_type, name)
    return ops.shape(input, out_type=out_type, name=name)


def size(input: Any, name: str | None = None, out_type: Any = dtypes.int32) -> Tensor:
    """`tf.size`: the number of elements; of a sparse tensor, zeros count, too."""
    if isinstance(input, SparseTensor):
        return ops.prod(cast(input.dense_shape, out_type), [0], name=name)
    return ops.size(input, out_type=out_type, name=name)


def rank(input: Any, name: str | None = None) -> Tensor:
    """`tf.rank`, of sparse tensors, too."""
    if isinstance(input, SparseTensor):
        return ops.size(input.dense_shape, name=name)
    return ops.rank(input, name=name)


shape_n = renamed(ops.shape_n, "input out_type name", "shape_n")
slice = renamed(ops.slice, "input_=input begin size name", "slice")
reverse = renamed(ops.reverse_v2, "tensor axis name", "reverse")


def batch_gather(params: Any, indices: Any, name: str | None = None) -> Tensor:
    """`tf.batch_gather`: gathers rows for each tensor of a batch."""
    places = _convert(indices)
    return ops.gather_v2(params, places, rank_of(places) - 1, batch_dims=rank_of(places) - 1, name=name)


def rank_of(value: Tensor) -> int:
    """The rank of a tensor.  Raises InvalidArgumentError if it is unknown."""
    if value.static_shape.rank is None:
        raise errors.InvalidValueError(f"the rank of '{value.name}' must be known")
    return value.static_shape.rank


def zeros_like(tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True) -> Tensor:
    """`tf.zeros_like`; the session decides whether to compute it before the run."""
    return ops.zeros_like(_convert(tensor) if dtype is None else cast(tensor, dtype), name=name)


def ones_like(tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True) -> Tensor:
    """`tf.ones_like`; the session decides whether to compute it before the run."""
    return ops.ones_like(_convert(tensor) if dtype is None else cast(tensor, dtype), name=name)


def eye(
    num_rows: int, num_columns: int | None = None, batch_shape: Any = None, dtype: Any = "float32", name: str = "eye"
) -> Tensor:
    """`tf.eye`, for known sizes."""
    one = np.eye(num_rows, num_columns, dtype=as_dtype(dtype).np)
    return constant(np.broadcast_to(one, [*(batch_shape or ()), *one.shape]), dtype, name=name)


def range(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str = "range") -> Tensor:
    """`tf.range`: the bounds are converted to one type."""
    first, last = (0, start) if limit is None else (start, limit)
    bounds = [first, last, delta]
    if dtype is None:
        known = [bound.dtype.base for bound in bounds if isinstance(bound, Tensor | TensorProxy)]
        floats = any(np.asarray(bound).dtype.kind == "f" for bound in bounds if isinstance(bound, int | float))
        dtype = known[0] if known else dtypes.float32 if floats else dtypes.int32
    with name_scope(name) as scope:
        wanted = as_dtype(dtype)
        first, last, step = [
            cast(bound, wanted) if isinstance(bound, Tensor | TensorProxy) else _convert(bound, wanted, what)
            for bound, what in zip(bounds, ("start", "limit", "delta"), strict=True)
        ]
        return ops.range(first, last, step, name=scope)


def expand_dims(input: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """`tf.expand_dims`."""
    return ops.expand_dims(input, chosen(..., axis=axis, dim=dim), name=name)


def squeeze(input: Any, axis: Any = None, name: str | None = None, squeeze_dims: Any = None) -> Tensor:
    """`tf.squeeze`."""
    axes = chosen(axis=axis, squeeze_dims=squeeze_dims)
    return ops.squeeze(input, [axes] if isinstance(axes, int) else axes, name=name)


def concat(values: Any, axis: Any, name: str = "concat") -> Tensor:
    """`tf.concat`.

    Raises:
        ValueError: the axis is not a scalar, as with the argument order from before TensorFlow 1.
    """
    values = list(values) if isinstance(values, list | tuple) else [values]
    if len(values) > 1:
        return ops.concat_v2(values, axis, name=name)
    shape = TensorShape(axis.static_shape if isinstance(axis, Tensor | TensorProxy) else np.shape(axis))
    shape.assert_has_rank(0)
    return ops.identity(values[0], name=name)


def stack(values: Any, axis: int = 0, name: str = "stack") -> Tensor:
    """`tf.stack`; a value that is not a list is returned unchanged."""
    if not isinstance(values, list | tuple | np.ndarray):
        return ops.identity(values, name=name)
    return ops.pack(list(values), axis=axis, name=name)


def unstack(value: Any, num: int | None = None, axis: int = 0, name: str = "unstack") -> list[Tensor]:
    """`tf.unstack`."""
    tensor = _convert(value)
    if num is None:
        if tensor.static_shape.rank is not None and not -tensor.static_shape.rank <= axis < tensor.static_shape.rank:
            rank = tensor.static_shape.rank
            raise errors.InvalidValueError(f"Argument `axis` = {axis} not in range [{-rank}, {rank})")
        num = tensor.static_shape[axis]
        if num is None:
            raise errors.InvalidValueError(f"Cannot infer argument `num` from shape {tensor.static_shape}")
    return ops.unpack(tensor, num, axis=axis, name=name)


def strided_slice(
    input_: Any,
    begin: Any,
    end: Any,
    strides: Any = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    var: Any = None,
    name: str | None = None,
) -> Tensor:
    """`tf.strided_slice`."""
    refuse("strided_slice", var=var)
    first = _convert(begin)
    return ops.strided_slice(
        input_,
        first,
        end,
        ops.ones_like(first) if strides is None else strides,
        begin_mask=begin_mask,
        end_mask=end_mask,
        ellipsis_mask=ellipsis_mask,
        new_axis_mask=new_axis_mask,
        shrink_axis_mask=shrink_axis_mask,
        name=name,
    )


def split(
    value: Any, num_or_size_splits: Any, axis: Any = 0, num: int | None = None, name: str = "split"
) -> list[Tensor]:
    """`tf.split`: into that many equal parts, or parts of these sizes."""
    if isinstance(num_or_size_splits, int):
        return ops.split(axis, value, num_or_size_splits, name=name)
    sizes = _convert(num_or_size_splits)
    count = num if num is not None else sizes.static_shape[0]
    if count is None:
        raise errors.InvalidValueError("Cannot infer argument `num` of split: the number of sizes is not known")
    return ops.split_v(value, sizes, axis, count, name=name)


def transpose(a: Any, perm: Any = None, name: str = "transpose", conjugate: bool = False) -> Tensor:
    """`tf.transpose`; without `perm` the axes in reverse order."""
    value = _convert(a)
    turn = ops.conjugate_transpose if conjugate and value.dtype.is_complex else ops.transpose
    if perm is None:
        rank = value.static_shape.rank
        perm = list(reversed(np.arange(rank))) if rank is not None else ops.range(ops.rank(value) - 1, -1, -1)
        perm = perm if isinstance(perm, Tensor) else [int(axis) for axis in perm]
    return turn(value, _convert(perm, dtypes.int32) if isinstance(perm, list) and not perm else perm, name=name)


def pad(
    tensor: Any, paddings: Any, mode: str = "CONSTANT", name: str | None = None, constant_values: Any = 0
) -> Tensor:
    """`tf.pad`."""
    mode = mode.upper()
    if mode == "CONSTANT":
        if isinstance(constant_values, int | float) and constant_values == 0:
            return ops.pad(tensor, paddings, name=name)
        return ops.pad_v2(tensor, paddings, constant_values, name=name)
    if mode not in ("REFLECT", "SYMMETRIC"):
        raise errors.InvalidValueError(f"Unknown padding mode: {mode}")
    return ops.mirror_pad(tensor, paddings, mode, name=name)


def gather(
    params: Any,
    indices: Any,
    validate_indices: bool | None = None,
    name: str | None = None,
    axis: Any = None,
    batch_dims: int = 0,
) -> Tensor:
    """`tf.gather`; for a variable only the rows are read.  Indices are always checked."""
    from aexec.variables.variable import Variable

    if axis is None:
        axis = batch_dims
    if isinstance(params, Variable) and axis == 0 and batch_dims == 0:
        return params.sparse_read(indices, name)
    return ops.gather_v2(params, indices, axis, batch_dims=batch_dims, name=name)


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """`tf.where`: indices of true elements, or elements of `x` and `y`."""
    if x is None and y is None:
        return ops.where(condition, name=name)
    if x is None or y is None:
        raise errors.InvalidValueError("x and y must both be non-None or both be None.")
    return ops.select(condition, x, y, name=name)


def one_hot(
    indices: Any,
    depth: Any,
    on_value: Any = None,
    off_value: Any = None,
    axis: int | None = None,
    dtype: Any = None,
    name: str | None = None,
) -> Tensor:
    """`tf.one_hot`."""
    given = next((v for v in (on_value, off_value) if v is not None), None)
    if dtype is None:
        dtype = dtypes.float32 if given is None else _convert(given).dtype.base
    wanted = as_dtype(dtype)
    with name_scope(name or "one_hot") as scope:
        on = _convert(1 if on_value is None else on_value, wanted, "on_value")
        off = _convert(0 if off_value is None else off_value, wanted, "off_value")
        return ops.one_hot(indices, depth, on, off, axis=-1 if axis is None else axis, name=scope)


def boolean_mask(tensor: Any, mask: Any, name: str = "boolean_mask", axis: int | None = None) -> Tensor:
    """`tf.boolean_mask`: the elements for which the mask is true."""
    with name_scope(name):
        value, keep = _convert(tensor, name="tensor"), _convert(mask, dtypes.bool_, "mask")
        first, width = axis or 0, rank_of(keep)
        if width == 0:
            raise errors.InvalidValueError("mask cannot be scalar.")
        TensorShape(value.static_shape)[first : first + width].assert_is_compatible_with(keep.static_shape)
        sizes = ops.shape(value)
        flat = ops.reshape(value, ops.concat_v2([sizes[:first], [-1], sizes[first + width :]], 0))
        rows = ops.reshape(ops.where(ops.reshape(keep, [-1])), [-1])
        return ops.gather_v2(flat, rows, first)


def sequence_mask(lengths: Any, maxlen: Any = None, dtype: Any = dtypes.bool_, name: str | None = None) -> Tensor:
    """`tf.sequence_mask`."""
    with name_scope(name or "SequenceMask"):
        sizes = _convert(lengths)
        if maxlen is None:
            maxlen = ops.maximum(ops.max(ops.reshape(sizes, [-1]), [0]), _convert(0, sizes.dtype.base))
        columns = range(cast(maxlen, sizes.dtype.base), dtype=sizes.dtype.base)
        return cast(ops.less(columns, ops.expand_dims(sizes, -1)), dtype)


def repeat(input: Any, repeats: Any, axis: int | None = None, name: str | None = None) -> Tensor:
    """`tf.repeat`: repeats each element, or slice along an axis, a number of times, or each as often as a vector
    says.
    """
    with name_scope(name or "Repeat"):
        value = _convert(input)
        if axis is None:
            value, axis = ops.reshape(value, [-1]), 0
        rank = rank_of(value)
        axis %= rank
        if not isinstance(repeats, int):
            return ops.gather_v2(value, _repeated(ops.shape(value)[axis], _convert(repeats)), axis)
        many = ops.tile(ops.expand_dims(value, axis + 1), [1] * (axis + 1) + [repeats] + [1] * (rank - axis - 1))
        sizes = ops.shape(value)
        return ops.reshape(many, ops.concat_v2([sizes[:axis], [-1], sizes[axis + 1 :]], 0))


def _repeated(size: Tensor, repeats: Tensor) -> Tensor:
    """Numbers below `size`, each repeated as often as `repeats`, a vector of that size or a scalar, says."""
    many = ops.broadcast_to(repeats, ops.reshape(size, [1]))
    columns = ops.range(cast(0, many.dtype.base), ops.max(many, [0]), cast(1, many.dtype.base))
    return ops.where(ops.less(columns, ops.expand_dims(many, 1)))[:, 0]


def reverse_sequence(
    input: Any,
    seq_lengths: Any,
    seq_axis: int | None = None,
    batch_axis: int | None = None,
    name: str | None = None,
    seq_dim: int | None = None,
    batch_dim: int | None = None,
) -> Tensor:
    """`tf.reverse_sequence`."""
    along = chosen(..., seq_axis=seq_axis, seq_dim=seq_dim)
    return ops.reverse_sequence(
        input, seq_lengths, along, batch_dim=chosen(0, batch_axis=batch_axis, batch_dim=batch_dim), name=name
    )


def unique(x: Any, out_idx: Any = dtypes.int32, name: str | None = None) -> tuple[Tensor, Tensor]:
    """`tf.unique`."""
    return ops.unique(x, out_idx=out_idx, name=name)


def unique_with_counts(x: Any, out_idx: Any = dtypes.int32, name: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """`tf.unique_with_counts`."""
    return ops.unique_with_counts(x, out_idx=out_idx, name=name)


def meshgrid(*args: Any, indexing: str = "xy", name: str = "meshgrid") -> list[Tensor]:
    """`tf.meshgrid`, of vectors."""
    with name_scope(name):
        vectors = [_convert(arg) for arg in args]
        count = len(vectors)
        order = [int(place) for place in np.arange(count)]
        if indexing == "xy" and count > 1:
            order[:2] = [1, 0]
        sizes: list[Any] = [0] * count
        for vector, place in zip(vectors, order, strict=True):
            sizes[place] = ops.size(vector)
        shape = ops.pack(sizes)
        grids = []
        for vector, place in zip(vectors, order, strict=True):
            one = [1] * count
            one[place] = -1
            grids.append(ops.broadcast_to(ops.reshape(vector, one), shape))
        return grids


def broadcast_static_shape(shape_x: Any, shape_y: Any) -> TensorShape:
    """`tf.broadcast_static_shape`.  Raises ValueError for shapes that cannot be broadcast."""
    first, second = TensorShape(shape_x).partial.dims, TensorShape(shape_y).partial.dims
    if first is None or second is None:
        return TensorShape(None)
    pairs = list(zip_longest(reversed(first), reversed(second), fillvalue=1))
    if any(None not in pair and 1 not in pair and pair[0] != pair[1] for pair in pairs):
        raise errors.InvalidValueError(
            f"Incompatible shapes for broadcasting: {TensorShape(shape_x)} and {TensorShape(shape_y)}. "
            "Of each pair of sizes both have to be equal, or one has to be 1."
        )
    return TensorShape([_broadcast(*pair) for pair in reversed(pairs)])


def _broadcast(a: int | None, b: int | None) -> int | None:
    """The size to which two sizes broadcast."""
    if 1 in (a, b):
        return b if a == 1 else a
    return b if a is None else a


def setdiff1d(x: Any, y: Any, index_dtype: Any = "int32", name: str | None = None) -> tuple[Tensor, Tensor]:
    """`tf.setdiff1d`: the elements that only `x` has, and their indices."""
    return ops.list_diff(x, y, out_idx=as_dtype(index_dtype), name=name)
