"""Gradients of reductions over segments.

The gradient of a row is that of its segment; rows with a negative id belong to none.
"""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import like_input, size_along
from aexec.framework.op_contract.gradient_registry import gradient
from aexec.graph.nodes.node import Tensor

Segments = tuple[Tensor | None, ...]


@gradient("SegmentSum")
def _segment_sum(op: ForwardOp, grad: Tensor) -> Segments:
    return ops.gather_v2(grad, op.inputs[1], 0), None


def _with_none(op: ForwardOp, grad: Tensor) -> Segments:
    """A gradient of the data only."""
    return (grad, *[None] * (len(op.inputs) - 1))


@gradient("SegmentMean")
def _segment_mean(op: ForwardOp, grad: Tensor) -> Segments:
    data, ids = op.inputs
    counts = ops.segment_sum(_ones_of_rows(data, ops.shape(ids)), ids)
    return ops.gather_v2(ops.div_no_nan(grad, counts), ids, 0), None


def _ones_of_rows(data: Tensor, ids_shape: Tensor) -> Tensor:
    """Ones in the shape of the ids, followed by a 1 for each further axis of the data."""
    inner = ops.fill(ops.expand_dims(ops.rank(data) - ops.size(ids_shape), 0), 1)
    return ops.cast(ops.fill(ops.concat_v2([ids_shape, inner], 0), 1), DstT=data.dtype.base)


@gradient("SegmentMax", "SegmentMin")
def _segment_extreme(op: ForwardOp, grad: Tensor) -> Segments:
    data, ids = op.inputs
    chosen = ops.equal(data, ops.gather_v2(op.outputs[0], ids, 0))
    counts = ops.segment_sum(like_input(chosen, grad), ids)
    shares = ops.gather_v2(ops.div_no_nan(grad, counts), ids, 0)
    return ops.select_v2(chosen, shares, ops.zeros_like(shares)), None


@gradient("SegmentProd")
def _segment_prod(op: ForwardOp, grad: Tensor) -> Segments:
    data, ids = op.inputs

    def total(x: Tensor) -> Any:
        return ops.segment_prod(x, ids)

    def count(x: Tensor) -> Any:
        return ops.segment_sum(x, ids)

    return _product(data, ids, grad, op.outputs[0], total, count), None


def _product(data: Tensor, ids: Tensor, grad: Tensor, product: Tensor, total: Any, count: Any) -> Tensor:
    """The gradient of a row has the product of the segment's others; for a row of zero, that of those not zero."""
    is_zero = ops.equal(data, ops.zeros_like(data))
    zeros = count(ops.cast(is_zero, DstT="int32"))
    # With two or more zero factors, every product of all but one factor is zero.
    grad = ops.select_v2(ops.greater(zeros, 1), ops.zeros_like(grad), grad)
    factors = ops.select_v2(is_zero, ops.ones_like(data), data)
    return ops.select_v2(is_zero, _rows(total(factors), ids), _rows(product, ids) / factors) * _rows(grad, ids)


def _rows(segments: Tensor, ids: Tensor) -> Tensor:
    """For each id the row of its segment; zeros for negative ids."""
    gathered = ops.gather_v2(segments, ops.maximum(ids, ops.zeros_like(ids)), 0)
    return ops.select_v2(_in_a_segment(gathered, ids), gathered, ops.zeros_like(gathered))


def _in_a_segment(gathered: Tensor, ids: Tensor) -> Tensor:
    """True for the elements of `gathered` whose id is not negative."""
    inside = ops.greater_equal(ids, ops.zeros_like(ids))
    inner = ops.fill(ops.expand_dims(ops.rank(gathered) - ops.rank(ids), 0), 1)
    return ops.reshape(inside, ops.concat_v2([ops.shape(ids), inner], 0))


@gradient("UnsortedSegmentSum")
def _unsorted_segment_sum(op: ForwardOp, grad: Tensor) -> Segments:
    return _rows(grad, op.inputs[1]), None, None


@gradient("UnsortedSegmentMax", "UnsortedSegmentMin")
def _unsorted_segment_extreme(op: ForwardOp, grad: Tensor) -> Segments:
    data, ids, segments = op.inputs
    of_segment = _rows(op.outputs[0], ids)
    chosen = ops.logical_and(ops.equal(data, of_segment), _in_a_segment(of_segment, ids))
    counts = ops.unsorted_segment_sum(like_input(chosen, grad), ids, segments)
    shares = _rows(ops.div_no_nan(grad, counts), ids)
    return ops.select_v2(chosen, shares, ops.zeros_like(shares)), None, None


@gradient("UnsortedSegmentProd")
def _unsorted_segment_prod(op: ForwardOp, grad: Tensor) -> Segments:
    data, ids, segments = op.inputs

    def total(x: Tensor) -> Any:
        return ops.unsorted_segment_prod(x, ids, segments)

    def count(x: Tensor) -> Any:
        return ops.unsorted_segment_sum(x, ids, segments)

    return _product(data, ids, grad, op.outputs[0], total, count), None, None


# Rows selected by indices, then reduced by segment


@gradient("SparseSegmentSum", "SparseSegmentSumWithNumSegments")
def _sparse_segment_sum(op: ForwardOp, grad: Tensor) -> Segments:
    data, indices, ids = op.inputs[:3]
    of_rows = ops.gather_v2(grad, ids, 0)
    return _with_none(op, ops.unsorted_segment_sum(of_rows, indices, size_along(data, 0)))


@gradient("SparseSegmentMean", "SparseSegmentMeanWithNumSegments")
def _sparse_segment_mean(op: ForwardOp, grad: Tensor) -> Segments:
    return _with_none(op, ops.sparse_segment_mean_grad(grad, op.inputs[1], op.inputs[2], size_along(op.inputs[0], 0)))


@gradient("SparseSegmentSqrtN", "SparseSegmentSqrtNWithNumSegments")
def _sparse_segment_sqrt_n(op: ForwardOp, grad: Tensor) -> Segments:
    return _with_none(op, ops.sparse_segment_sqrt_n_grad(grad, op.inputs[1], op.inputs[2], size_along(op.inputs[0], 0)))
