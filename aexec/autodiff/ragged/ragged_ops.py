"""Gradients of ragged tensors: those of their values."""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import reshaped_like
from aexec.framework.indexed_slices import IndexedSlices
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import create_node

Grads = tuple[Any, ...]

no_gradient("RaggedRange")


@gradient("RaggedTensorToSparse")
def _ragged_tensor_to_sparse(op: ForwardOp, _indices: Tensor, grad: Tensor, _shape: Tensor) -> Grads:
    return (*[None] * (len(op.inputs) - 1), reshaped_like(grad, op.inputs[-1]))


@gradient("RaggedTensorToTensor")
def _ragged_tensor_to_tensor(op: ForwardOp, grad: Tensor) -> Grads:
    """Position numbers, laid out as the values were, show which element of the result each value became."""
    _, values, default, *partitions = op.inputs
    count = ops.shape(values)[0]
    attrs = op.attrs("row_partition_types")
    inputs = {
        "shape": ops.shape(grad)[: ops.rank(grad) - ops.rank(values) + 1],
        "values": ops.range(0, count, 1),
        "default_value": count,
        "row_partition_tensors": partitions,
    }
    numbers = create_node("RaggedTensorToTensor", inputs, attrs).output(0)
    flat_shape = ops.concat_v2([[-1], ops.shape(values)[1:]], 0)
    rows = ops.reshape(grad, flat_shape)
    summed = ops.unsorted_segment_sum(rows, ops.reshape(numbers, [-1]), count + 1)
    by_values, rest = summed[:count], summed[count]
    # A default may be broadcast over the inner axes.
    axes = ops.range(0, ops.rank(rest) - ops.rank(default), 1)
    by_default = ops.sum(rest, axes)
    if (
        default.static_shape.rank is None
        or rest.static_shape.rank is None
        or default.static_shape.rank == rest.static_shape.rank
    ):
        by_default = reshaped_like(by_default, default)
    return (None, by_values, by_default, *[None] * len(partitions))


@gradient("RaggedGather")
def _ragged_gather(op: ForwardOp, *grads: Tensor) -> Grads:
    """For ragged rank 1: the gradients of a gathered row are added at its place in the parameters."""
    *splits, values, indices = op.inputs
    starts, stops = splits[0][:-1], splits[0][1:]
    for inner in splits[1:]:
        starts, stops = ops.gather_v2(inner, starts, 0), ops.gather_v2(inner, stops, 0)
    _, chosen = ops.ragged_range(
        ops.gather_v2(starts, ops.reshape(indices, [-1]), 0), ops.gather_v2(stops, ops.reshape(indices, [-1]), 0), 1
    )
    made = IndexedSlices(grads[-1], chosen, ops.shape(values))
    return (*[None] * len(splits), made, None)


@gradient("RaggedFillEmptyRows")
def _ragged_fill_empty_rows(op: ForwardOp, _rows: Tensor, grad: Tensor, *_: Tensor) -> Grads:
    by_values, by_default = ops.ragged_fill_empty_rows_grad(op.outputs[3], grad)
    return None, by_values, None, by_default
