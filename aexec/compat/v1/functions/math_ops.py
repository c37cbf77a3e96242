"""TensorFlow's functions of arithmetic and reduction, over `aexec.ops`.

Next to read: `nn.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from aexec import ops
from aexec.client.building import constant, name_scope
from aexec.compat.v1.functions.array_ops import cast, rank_of
from aexec.compat.v1.namespace import chosen, refuse
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor
from aexec.graph.shape_refiner import set_shape

__all__ = [
    "TopKV2",
    "accumulate_n",
    "add_n",
    "argmax",
    "argmin",
    "argsort",
    "bincount",
    "confusion_matrix",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "div",
    "divide",
    "einsum",
    "equal",
    "histogram_fixed_width",
    "histogram_fixed_width_bins",
    "matmul",
    "norm",
    "not_equal",
    "reduce_all",
    "reduce_any",
    "reduce_logsumexp",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_std",
    "reduce_sum",
    "reduce_variance",
    "scalar_mul",
    "searchsorted",
    "sort",
    "tensordot",
    "top_k",
    "unsorted_segment_mean",
]


def _axes(value: Tensor, axis: Any) -> Any:
    """The axes to reduce: all if none are given."""
    if axis is not None:
        return axis
    if value.static_shape.rank is None:
        return ops.range(0, ops.rank(value), 1)
    return constant(np.arange(value.static_shape.rank, dtype=np.int32))


def _reduction(op: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    def reduce(
        input_tensor: Any,
        axis: Any = None,
        keepdims: bool | None = None,
        name: str | None = None,
        reduction_indices: Any = None,
        keep_dims: bool | None = None,
    ) -> Tensor:
        value = convert_to_tensor(input_tensor)
        axes = _axes(value, chosen(axis=axis, reduction_indices=reduction_indices))
        keep = bool(chosen(keepdims=keepdims, keep_dims=keep_dims))
        made = op(value, axes, keep_dims=keep, name=name)
        if not keep and axis is None and reduction_indices is None:
            set_shape(
                made.node, made.index, PartialTensorShape([])
            )  # inference does not know it if the rank is unknown
        return made

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"`tf.{name}`: over all axes if none are given."
    return reduce


reduce_sum = _reduction(ops.sum, "reduce_sum")
reduce_mean = _reduction(ops.mean, "reduce_mean")
reduce_max = _reduction(ops.max, "reduce_max")
reduce_min = _reduction(ops.min, "reduce_min")
reduce_prod = _reduction(ops.prod, "reduce_prod")
reduce_all = _reduction(ops.all, "reduce_all")
reduce_any = _reduction(ops.any, "reduce_any")


def reduce_logsumexp(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """`tf.reduce_logsumexp`, computed without overflow."""
    axis = chosen(axis=axis, reduction_indices=reduction_indices)
    with name_scope(name or "ReduceLogSumExp"):
        value = convert_to_tensor(input_tensor)
        largest = reduce_max(value, axis, keepdims=True)
        largest = ops.stop_gradient(ops.select_v2(ops.is_finite(largest), largest, ops.zeros_like(largest)))
        found = ops.log(reduce_sum(ops.exp(value - largest), axis, keepdims=True)) + largest
        if chosen(keepdims=keepdims, keep_dims=keep_dims):
            return found
        return ops.reshape(found, ops.shape(reduce_sum(value, axis)))


def reduce_variance(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """`tf.math.reduce_variance`."""
    with name_scope(name or "reduce_variance"):
        value = convert_to_tensor(input_tensor)
        mean = reduce_mean(value, axis, keepdims=True)
        return reduce_mean(ops.squared_difference(value, mean), axis, keepdims=keepdims)


def reduce_std(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """`tf.math.reduce_std`."""
    with name_scope(name or "reduce_std"):
        return ops.sqrt(reduce_variance(input_tensor, axis, keepdims))


def count_nonzero(
    input_tensor: Any = None,
    axis: Any = None,
    keepdims: bool | None = None,
    dtype: Any = dtypes.int64,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
    input: Any = None,
) -> Tensor:
    """`tf.count_nonzero`."""
    with name_scope(name or "count_nonzero"):
        value = convert_to_tensor(chosen(..., input=input, input_tensor=input_tensor))
        there = cast(ops.not_equal(value, ops.zeros_like(value)), dtypes.int64)
        keep = bool(chosen(keepdims=keepdims, keep_dims=keep_dims))
        found = reduce_sum(there, chosen(axis=axis, reduction_indices=reduction_indices), keepdims=keep)
        return cast(found, dtype)


def argmax(
    input: Any, axis: Any = None, name: str | None = None, dimension: Any = None, output_type: Any = dtypes.int64
) -> Tensor:
    """`tf.argmax`."""
    return ops.arg_max(input, chosen(0, axis=axis, dimension=dimension), output_type=output_type, name=name or "ArgMax")


def argmin(
    input: Any, axis: Any = None, name: str | None = None, dimension: Any = None, output_type: Any = dtypes.int64
) -> Tensor:
    """`tf.argmin`."""
    return ops.arg_min(input, chosen(0, axis=axis, dimension=dimension), output_type=output_type, name=name or "ArgMin")


def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    output_type: Any = None,
    grad_a: bool = False,
    grad_b: bool = False,
    name: str | None = None,
) -> Tensor:
    """`tf.matmul`: of matrices, or stacks of matrices.  The hints for sparse factors are ignored."""
    refuse("matmul", output_type=output_type, grad_a=grad_a, grad_b=grad_b)
    left, right = convert_to_tensor(a), None
    right = convert_to_tensor(b, left.dtype.base)
    if (left.static_shape.rank or 2) > 2 or (right.static_shape.rank or 2) > 2:
        if transpose_a or transpose_b:
            if left.dtype.is_complex:
                raise errors.UnsupportedError("matmul: stacked complex matrices are transposed by tf.transpose")
            adjoint_a, adjoint_b = adjoint_a or transpose_a, adjoint_b or transpose_b
        return ops.batch_mat_mul_v2(left, right, adj_x=adjoint_a, adj_y=adjoint_b, name=name)
    if adjoint_a:
        left, transpose_a = _conjugate(left), True
    if adjoint_b:
        right, transpose_b = _conjugate(right), True
    return ops.mat_mul(left, right, transpose_a=transpose_a, transpose_b=transpose_b, name=name)


def _conjugate(value: Tensor) -> Tensor:
    return ops.conj(value) if value.dtype.is_complex else value


def divide(x: Any, y: Any, name: str | None = None) -> Tensor:
    """`tf.divide`: Python's `/`."""
    with name_scope(name or "divide"):
        quotient: Tensor = convert_to_tensor(x) / y
        return quotient


def div(x: Any, y: Any, name: str | None = None) -> Tensor:
    """`tf.div`: integers are rounded down."""
    left = convert_to_tensor(x)
    function = ops.floor_div if left.dtype.is_integer else ops.real_div
    return function(left, y, name=name or "div")


def equal(x: Any, y: Any, name: str | None = None) -> Tensor:
    """`tf.equal`."""
    return ops.equal(x, y, name=name)


def not_equal(x: Any, y: Any, name: str | None = None) -> Tensor:
    """`tf.not_equal`."""
    return ops.not_equal(x, y, name=name)


def add_n(inputs: Any, name: str | None = None) -> Tensor:
    """`tf.add_n`."""
    return ops.add_n(list(inputs), name=name)


def accumulate_n(inputs: Any, shape: Any = None, tensor_dtype: Any = None, name: str | None = None) -> Tensor:
    """`tf.accumulate_n`."""
    if not isinstance(inputs, list | tuple):
        raise errors.InvalidValueError("inputs must be a list of at least one Tensor with the same dtype and shape")
    return ops.add_n(inputs, name=name or "AccumulateNV2")


def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """`tf.scalar_mul`; `IndexedSlices` stay `IndexedSlices`."""
    from aexec.framework.indexed_slices import IndexedSlices

    if isinstance(x, IndexedSlices):
        return x._replace(values=ops.mul(scalar, x.values, name=name))
    return ops.mul(scalar, x, name=name)


def cumsum(x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None) -> Tensor:
    """`tf.cumsum`."""
    return ops.cumsum(x, axis, exclusive=exclusive, reverse=reverse, name=name)


def cumprod(x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None) -> Tensor:
    """`tf.cumprod`."""
    return ops.cumprod(x, axis, exclusive=exclusive, reverse=reverse, name=name)


def einsum(equation: str, *inputs: Any, name: str | None = None, optimize: str = "greedy") -> Tensor:
    """`tf.einsum`; the kernel decides the order of products of many tensors."""
    return ops.einsum(list(inputs), equation, name=name)


def norm(
    tensor: Any,
    ord: Any = "euclidean",
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """`tf.norm`: of vectors; of matrices the Frobenius norm."""
    keep = bool(chosen(keepdims=keepdims, keep_dims=keep_dims))
    matrices = isinstance(axis, list | tuple) and len(axis) == 2
    with name_scope(name or "norm"):
        value = convert_to_tensor(tensor)
        if ord in ("euclidean", "fro") or (ord == 2 and not matrices):
            return ops.sqrt(reduce_sum(ops.square(value), axis, keepdims=keep))
        if matrices:
            raise errors.UnsupportedError(f"norm: ord={ord!r} of matrices is not supported")
        size = ops.abs(value)
        if ord == 1:
            return reduce_sum(size, axis, keepdims=keep)
        if ord == np.inf:
            return reduce_max(size, axis, keepdims=keep)
        return ops.pow(reduce_sum(ops.pow(size, float(ord)), axis, keepdims=keep), 1.0 / ord)


def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Tensor:
    """`tf.tensordot`, as an `einsum`: the ranks must be known."""
    with name_scope(name or "Tensordot"):
        left = convert_to_tensor(a)
        right = convert_to_tensor(b, left.dtype.base)
        ranks = rank_of(left), rank_of(right)
        if isinstance(axes, int):
            pairs: tuple[Sequence[int], Sequence[int]] = (
                tuple(np.arange(ranks[0] - axes, ranks[0])),
                tuple(np.arange(axes)),
            )
        else:
            first, second = axes
            pairs = ([first], [second]) if isinstance(first, int) else (first, second)
        letters = "abcdefghijklmnopqrstuvwxyz"
        of_left = list(letters[: ranks[0]])
        of_right = list(letters[ranks[0] : sum(ranks)])
        for i, j in zip(*pairs, strict=True):
            of_right[j % ranks[1]] = of_left[i % ranks[0]]
        gone = {of_left[i % ranks[0]] for i in pairs[0]}
        left_over = [letter for letter in of_left + of_right if letter not in gone]
        equation = f"{''.join(of_left)},{''.join(of_right)}->{''.join(left_over)}"
        return ops.einsum([left, right], equation)


class TopKV2(NamedTuple):
    """The result of `tf.nn.top_k`."""

    values: Tensor
    indices: Tensor


def top_k(
    input: Any, k: Any = 1, sorted: bool = True, index_type: Any = dtypes.int32, name: str | None = None
) -> TopKV2:
    """`tf.nn.top_k`: the largest values along the last axis, and their indices."""
    return TopKV2(*ops.top_kv2(input, k, sorted=sorted, index_type=index_type, name=name))


def _ordered(values: Any, axis: int, direction: str, name: str) -> tuple[Tensor, Tensor]:
    """Sorted values along an axis, and their indices."""
    if direction not in ("ASCENDING", "DESCENDING"):
        raise errors.InvalidValueError(f"{direction} is not a valid sort direction")
    with name_scope(name):
        x = convert_to_tensor(values)
        last = rank_of(x) - 1
        order = [int(place) for place in np.arange(last + 1)]
        order[axis % (last + 1)], order[last] = last, axis % (last + 1)
        turned = x if order[last] == last else ops.transpose(x, order)
        # Sort negated values.  Integers are negated bitwise, since -x of the smallest integer overflows.
        flipped = ops.invert if x.dtype.is_integer else ops.neg
        ascending = direction == "ASCENDING"
        found, places = top_k(flipped(turned) if ascending else turned, ops.shape(turned)[-1])
        found = flipped(found) if ascending else found
        return (found, places) if turned is x else (ops.transpose(found, order), ops.transpose(places, order))


def sort(values: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    """`tf.sort`."""
    return _ordered(values, axis, direction, name or "sort")[0]


def argsort(
    values: Any, axis: int = -1, direction: str = "ASCENDING", stable: bool = False, name: str | None = None
) -> Tensor:
    """`tf.argsort`; always stable."""
    return _ordered(values, axis, direction, name or "argsort")[1]


def searchsorted(
    sorted_sequence: Any, values: Any, side: str = "left", out_type: Any = dtypes.int32, name: str | None = None
) -> Tensor:
    """`tf.searchsorted`: along the last axis."""
    with name_scope(name or "searchsorted"):
        x = convert_to_tensor(sorted_sequence)
        y = convert_to_tensor(values, x.dtype.base)
        flat = [ops.reshape(tensor, [-1, ops.shape(tensor)[-1]]) for tensor in (x, y)]
        find = ops.lower_bound if side == "left" else ops.upper_bound
        return ops.reshape(find(flat[0], flat[1], out_type=out_type), ops.shape(y))


def bincount(
    arr: Any,
    weights: Any = None,
    minlength: Any = None,
    maxlength: Any = None,
    dtype: Any = dtypes.int32,
) -> Tensor:
    """`tf.math.bincount`."""
    with name_scope("bincount"):
        values = convert_to_tensor(arr, dtypes.int32)
        flat = ops.reshape(values, [-1])
        size: Any = ops.max(ops.concat_v2([flat, [-1]], 0), [0]) + 1
        if minlength is not None:
            size = ops.maximum(size, minlength)
        if maxlength is not None:
            size = ops.minimum(size, maxlength)
        none = constant(np.zeros(0, dtypes.as_dtype(dtype).np))
        return ops.bincount(flat, size, none if weights is None else weights)


def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: Any = None,
    dtype: Any = dtypes.int32,
    name: str | None = None,
    weights: Any = None,
) -> Tensor:
    """`tf.confusion_matrix`: element [i, j] counts the examples of label i that were predicted as class j."""
    with name_scope(name or "confusion_matrix"):
        truth, guess = cast(labels, dtypes.int64), cast(predictions, dtypes.int64)
        if num_classes is None:
            both = ops.concat_v2([ops.reshape(truth, [-1]), ops.reshape(guess, [-1])], 0)
            num_classes = ops.max(both, [0]) + 1
        count = cast(num_classes, dtypes.int64)
        each = ops.ones_like(cast(guess, dtype)) if weights is None else cast(weights, dtype)
        return ops.scatter_nd(ops.pack([truth, guess], axis=1), each, ops.pack([count, count]))


def unsorted_segment_mean(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor:
    """`tf.unsorted_segment_mean`: 0 for segments without elements."""
    with name_scope(name or "UnsortedSegmentMean"):
        values, ids = convert_to_tensor(data), convert_to_tensor(segment_ids)
        count = ops.unsorted_segment_sum(ops.ones_like(ops.cast(ids, DstT=values.dtype.base)), ids, num_segments)
        total = ops.unsorted_segment_sum(values, ids, num_segments)
        inner = ops.sub(ops.rank(total), 1)
        ones = ops.fill(ops.reshape(inner, [1]), 1)
        count = ops.reshape(count, ops.concat_v2([ops.shape(count), ones], 0))
        return total / ops.maximum(count, ops.ones_like(count))


def histogram_fixed_width(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = dtypes.int32, name: str | None = None
) -> Tensor:
    """`tf.histogram_fixed_width`."""
    return ops.histogram_fixed_width(values, value_range, nbins, dtype=dtypes.as_dtype(dtype), name=name)


def histogram_fixed_width_bins(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = dtypes.int32, name: str | None = None
) -> Tensor:
    """`tf.histogram_fixed_width_bins`: the bin of each value; values out of range are in the first or last bin."""
    with name_scope(name or "histogram_fixed_width_bins"):
        given = convert_to_tensor(values)
        bounds = convert_to_tensor(value_range, given.dtype.base)
        count = ops.cast(convert_to_tensor(nbins), DstT=given.dtype.base)
        scaled = (given - bounds[0]) / (bounds[1] - bounds[0])
        bins = ops.cast(ops.floor(count * scaled), DstT=dtypes.int32)
        last = convert_to_tensor(nbins, dtypes.int32) - 1
        return cast(ops.minimum(ops.maximum(bins, convert_to_tensor(0, dtypes.int32)), last), dtype)
