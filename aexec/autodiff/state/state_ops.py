"""Gradients of reading variables: they arrive at the variable's handle."""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.framework.indexed_slices import IndexedSlices
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor

no_gradient(
    *"Variable VariableV2 VarHandleOp TemporaryVariable Assign AssignAdd AssignSub AssignVariableOp".split(),
    *"AssignAddVariableOp AssignSubVariableOp VarIsInitializedOp VariableShape IsVariableInitialized".split(),
    *"ScatterAdd ScatterSub ScatterMul ScatterDiv ScatterUpdate ScatterNdUpdate ScatterNdAdd ScatterNdSub".split(),
)


@gradient("ReadVariableOp", rows=True)
def _read_variable(op: ForwardOp, grad: Any) -> Any:
    return grad


@gradient("ResourceGather")
def _resource_gather(op: ForwardOp, grad: Tensor) -> tuple[Any, None]:
    handle, indices = op.inputs
    shape = ops.variable_shape(handle)
    batch_dims = op.get_attr("batch_dims")
    if not batch_dims:
        values = ops.reshape(grad, ops.concat_v2([[-1], shape[1:]], 0))
        return IndexedSlices(values, ops.reshape(indices, [-1]), shape), None
    # The rows of all batches are numbered as one long list.
    batches, count = ops.prod(shape[:batch_dims], [0]), shape[batch_dims]
    inner = shape[batch_dims + 1 :]
    flat = ops.cast(ops.reshape(indices, ops.pack([batches, -1])), DstT="int32")
    numbered = ops.reshape(flat + ops.expand_dims(ops.range(0, batches, 1) * count, 1), [-1])
    values = ops.reshape(grad, ops.concat_v2([[-1], inner], 0))
    rows = ops.unsorted_segment_sum(values, numbered, batches * count)
    return ops.reshape(rows, shape), None


@gradient("ResourceGatherNd")
def _resource_gather_nd(op: ForwardOp, grad: Tensor) -> tuple[Any, None]:
    handle, indices = op.inputs
    shape = ops.variable_shape(handle, out_type=indices.dtype.base)
    if indices.static_shape.rank == 2 and indices.static_shape[-1] == 1:
        return IndexedSlices(grad, ops.squeeze(indices, squeeze_dims=[-1]), shape), None
    return ops.scatter_nd(indices, grad, shape), None
