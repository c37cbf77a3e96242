"""Gradients of tensor lists: lists of gradients, in which a push becomes a pop, a read a write, and vice versa."""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import shape_of
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor

Grads = tuple[Any, ...]

no_gradient(
    *"TensorListConcatLists TensorListElementShape TensorListLength TensorListPushBackBatch TensorListReserve".split(),
    "EmptyTensorList",
)


def _element_shape(elements: Tensor) -> Any:
    """The shape of an element, given a tensor with the elements as rows."""
    return shape_of(elements)[1:]


@gradient("TensorListPushBack")
def _push_back(op: ForwardOp, grad: Tensor) -> Grads:
    tensor = op.inputs[1]
    return ops.tensor_list_pop_back(grad, shape_of(tensor), element_dtype=tensor.dtype.base)


@gradient("TensorListPopBack")
def _pop_back(op: ForwardOp, grad_list: Tensor, grad: Tensor) -> Grads:
    return ops.tensor_list_push_back(grad_list, grad), None


@gradient("TensorListGetItem")
def _get_item(op: ForwardOp, grad: Tensor) -> Grads:
    handle, index, _ = op.inputs
    length = ops.tensor_list_length(handle)
    empty = ops.tensor_list_reserve(shape_of(grad), length, element_dtype=grad.dtype.base)
    return ops.tensor_list_set_item(empty, index, grad), None, None


@gradient("TensorListSetItem")
def _set_item(op: ForwardOp, grad: Tensor) -> Grads:
    _, index, item = op.inputs
    others = ops.tensor_list_set_item(grad, index, ops.zeros_like(item))
    return others, None, ops.tensor_list_get_item(grad, index, shape_of(item), element_dtype=item.dtype.base)


@gradient("TensorListFromTensor")
def _from_tensor(op: ForwardOp, grad: Tensor) -> Grads:
    tensor = op.inputs[0]
    count = None if tensor.static_shape.rank is None else tensor.static_shape[0]
    made = ops.tensor_list_stack(
        grad,
        _element_shape(tensor),
        element_dtype=tensor.dtype.base,
        num_elements=-1 if count is None else count,
    )
    return made, None


@gradient("TensorListStack")
def _stack(op: ForwardOp, grad: Tensor) -> Grads:
    return ops.tensor_list_from_tensor(grad, _element_shape(grad)), None


@gradient("TensorListGather")
def _gather(op: ForwardOp, grad: Tensor) -> Grads:
    """The gradient of an element that was gathered twice is the sum."""
    handle, indices, _ = op.inputs
    rows = ops.unsorted_segment_sum(grad, indices, ops.tensor_list_length(handle))
    return ops.tensor_list_from_tensor(rows, _element_shape(rows)), None, None


def _gathered(grad: Tensor, tensor: Tensor, indices: Tensor) -> Any:
    return ops.tensor_list_gather(grad, indices, _element_shape(tensor), element_dtype=tensor.dtype.base)


@gradient("TensorListScatter", "TensorListScatterV2")
def _scatter(op: ForwardOp, grad: Tensor) -> Grads:
    return (_gathered(grad, *op.inputs[:2]), *[None] * (len(op.inputs) - 1))


@gradient("TensorListScatterIntoExistingList")
def _scatter_into_existing_list(op: ForwardOp, grad: Tensor) -> Grads:
    _, tensor, indices = op.inputs
    others = ops.tensor_list_scatter_into_existing_list(grad, ops.zeros_like(tensor), indices)
    return others, _gathered(grad, tensor, indices), None


@gradient("TensorListConcat", "TensorListConcatV2")
def _concat(op: ForwardOp, grad: Tensor, _: Tensor) -> Grads:
    made = ops.tensor_list_split(grad, ops.concat_v2([[-1], _element_shape(grad)], 0), op.outputs[1])
    return (made, *[None] * (len(op.inputs) - 1))


@gradient("TensorListSplit")
def _split(op: ForwardOp, grad: Tensor) -> Grads:
    tensor, _, lengths = op.inputs
    shape = ops.concat_v2([[-1], _element_shape(tensor)], 0)
    return ops.tensor_list_concat_v2(grad, shape, lengths, element_dtype=tensor.dtype.base)[0], None, None


@gradient("TensorListResize")
def _resize(op: ForwardOp, grad: Tensor) -> Grads:
    return ops.tensor_list_resize(grad, ops.tensor_list_length(op.inputs[0])), None
