"""Gradients of gathers, scatters, partitions and stitches."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import constant_value, like_input, shape_of
from aexec.framework.indexed_slices import IndexedSlices
from aexec.framework.op_contract.gradient_registry import gradient
from aexec.graph.nodes.node import Tensor

Grads = tuple[Any, ...]


def _rows(params: Tensor, indices: Tensor, grad: Tensor) -> IndexedSlices[Tensor]:
    """The gradient of rows that were gathered along axis 0."""
    shape = shape_of(params)
    values = ops.reshape(grad, ops.concat_v2([np.array([-1], np.int32), shape[1:]], 0))
    return IndexedSlices(values, ops.reshape(indices, [-1]), shape)


@gradient("Gather")
def _gather(op: ForwardOp, grad: Tensor) -> Grads:
    return _rows(op.inputs[0], op.inputs[1], grad), None


@gradient("GatherV2")
def _gather_v2(op: ForwardOp, grad: Tensor) -> Grads:
    params, indices, axis = op.inputs
    batch_dims = op.get_attr("batch_dims")
    if constant_value(axis) == 0 and not batch_dims:
        return _rows(params, indices, grad), None, None
    return (*_along(params, indices, axis, grad, batch_dims), None)


def _along(params: Tensor, indices: Tensor, axis: Tensor, grad: Tensor, batch_dims: int) -> Grads:
    """Return gradients for any axis: the gathered axis is moved to the front, and batches become rows."""
    shape = shape_of(params)
    rank = ops.size(shape)
    axis = ops.floor_mod(ops.cast(axis, DstT="int32"), rank)
    if batch_dims < 0:
        batch_dims += len(indices.static_shape)
    batch, outer = shape[:batch_dims], ops.slice(shape, [batch_dims], ops.pack([axis - batch_dims]))
    count = ops.gather_v2(shape, axis, 0)
    inner = ops.slice(shape, ops.pack([axis + 1]), [-1])
    batches, outers, inners = (ops.prod(part, [0]) for part in (batch, outer, inner))
    # [batches, outers, chosen, inners] → [batches * chosen, outers * inners]
    flat = ops.reshape(grad, ops.pack([batches, outers, -1, inners]))
    rows = ops.reshape(ops.transpose(flat, [0, 2, 1, 3]), ops.pack([-1, outers * inners]))
    flat_indices = ops.cast(ops.reshape(indices, ops.pack([batches, -1])), DstT="int32")
    numbered = flat_indices + ops.expand_dims(ops.range(0, batches, 1) * count, 1)
    summed = ops.unsorted_segment_sum(rows, ops.reshape(numbered, [-1]), batches * count)
    back = ops.transpose(ops.reshape(summed, ops.pack([batches, count, outers, inners])), [0, 2, 1, 3])
    return ops.reshape(back, shape), None


@gradient("GatherNd")
def _gather_nd(op: ForwardOp, grad: Tensor) -> Grads:
    params, indices = op.inputs
    if indices.static_shape.rank == 2 and indices.static_shape[-1] == 1:
        return IndexedSlices(grad, ops.squeeze(indices, squeeze_dims=[-1]), shape_of(params)), None
    return ops.scatter_nd(indices, grad, shape_of(params, indices.dtype.base)), None


@gradient("ScatterNd")
def _scatter_nd(op: ForwardOp, grad: Tensor) -> Grads:
    return None, ops.gather_nd(grad, op.inputs[0]), None


@gradient("ScatterNdNonAliasingAdd", "TensorScatterAdd")
def _scatter_add(op: ForwardOp, grad: Tensor) -> Grads:
    return grad, None, ops.gather_nd(grad, op.inputs[1])


@gradient("TensorScatterSub")
def _scatter_sub(op: ForwardOp, grad: Tensor) -> Grads:
    return grad, None, -ops.gather_nd(grad, op.inputs[1])


@gradient("TensorScatterUpdate")
def _scatter_update(op: ForwardOp, grad: Tensor) -> Grads:
    _, indices, updates = op.inputs
    return ops.tensor_scatter_update(grad, indices, ops.zeros_like(updates)), None, ops.gather_nd(grad, indices)


@gradient("TensorScatterMax", "TensorScatterMin")
def _scatter_extreme(op: ForwardOp, grad: Tensor) -> Grads:
    """The gradient is shared equally among the element and the updates that are equal to the result."""
    tensor, indices, updates = op.inputs
    result = op.outputs[0]
    of_tensor = like_input(ops.equal(result, tensor), grad)
    of_updates = like_input(ops.equal(updates, ops.gather_nd(result, indices)), grad)
    shares = grad / ops.tensor_scatter_add(of_tensor, indices, of_updates)
    return shares * of_tensor, None, ops.gather_nd(shares, indices) * of_updates


@gradient("DynamicPartition")
def _dynamic_partition(op: ForwardOp, *grads: Tensor) -> Grads:
    data, partitions = op.inputs
    shape = ops.shape(partitions)
    numbers = ops.reshape(ops.range(0, ops.prod(shape, [0]), 1), shape)
    places = ops.dynamic_partition(numbers, partitions, num_partitions=op.get_attr("num_partitions"))
    rows = ops.dynamic_stitch(places, list(grads))
    return ops.reshape(rows, shape_of(data)), None


@gradient("DynamicStitch", "ParallelDynamicStitch")
def _dynamic_stitch(op: ForwardOp, grad: Tensor) -> list[Any]:
    """Rows that were overwritten by later ones get zeros."""
    count = len(op.inputs) // 2
    indices = op.inputs[:count]
    sizes = [ops.size(part) for part in indices]
    flat = (
        ops.concat_v2([ops.reshape(part, [-1]) for part in indices], 0) if count > 1 else ops.reshape(indices[0], [-1])
    )
    order = ops.range(0, ops.size(flat), 1)
    last = ops.unsorted_segment_max(order, flat, ops.shape(grad)[0])
    made = []
    start: Any = 0
    for part, size in zip(indices, sizes, strict=True):
        mine = ops.reshape(ops.range(0, size, 1) + start, ops.shape(part))
        kept = ops.equal(ops.gather_v2(last, part, 0), mine)
        rows = ops.gather_v2(grad, part, 0)
        inner = ops.fill(ops.expand_dims(ops.rank(rows) - ops.rank(part), 0), 1)
        mask = ops.reshape(kept, ops.concat_v2([ops.shape(part), inner], 0))
        made.append(ops.select_v2(mask, rows, ops.zeros_like(rows)))
        start = start + size
    return [None] * count + made
