"""Gradients of activations."""

from __future__ import annotations

import numpy as np

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import like_input
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import create_node

Pair = tuple[Tensor, Tensor]

no_gradient("CTCBeamSearchDecoder", "CTCGreedyDecoder")


# Ops with a gradient op that takes the gradient and the output, which is as good as the input


@gradient("Relu", "Relu6", "Elu", "Selu")
def _of_output(op: ForwardOp, grad: Tensor) -> Tensor:
    outputs = "outputs" if op.type in ("Elu", "Selu") else "features"
    return create_node(f"{op.type}Grad", {"gradients": grad, outputs: op.outputs[0]}, {}).output(0)


@gradient("ReluGrad", "Relu6Grad")
def _relu_grad(op: ForwardOp, grad: Tensor) -> Pair:
    x = op.inputs[1]
    return create_node(op.type, {"gradients": grad, "features": x}, {}).output(0), ops.zeros_like(x)


@gradient("EluGrad", "SeluGrad")
def _elu_grad(op: ForwardOp, grad: Tensor) -> Pair:
    gradients, y = op.inputs
    below = ops.less(y, ops.zeros_like(y))
    by_gradients = create_node(op.type, {"gradients": grad, "outputs": y}, {}).output(0)
    return by_gradients, ops.select_v2(below, grad * gradients, ops.zeros_like(y))


@gradient("LeakyRelu")
def _leaky_relu(op: ForwardOp, grad: Tensor) -> Tensor:
    return ops.leaky_relu_grad(grad, op.inputs[0], alpha=op.get_attr("alpha"))


@gradient("LeakyReluGrad")
def _leaky_relu_grad(op: ForwardOp, grad: Tensor) -> Pair:
    x = op.inputs[1]
    return ops.leaky_relu_grad(grad, x, alpha=op.get_attr("alpha")), ops.zeros_like(x)


@gradient("Softplus")
def _softplus(op: ForwardOp, grad: Tensor) -> Tensor:
    return grad * ops.sigmoid(op.inputs[0])


@gradient("SoftplusGrad")
def _softplus_grad(op: ForwardOp, grad: Tensor) -> Pair:
    gradients, x = op.inputs
    return ops.softplus_grad(grad, x), grad * gradients / (ops.exp(-x) + 2.0 + ops.exp(x))


@gradient("Softsign")
def _softsign(op: ForwardOp, grad: Tensor) -> Tensor:
    return ops.softsign_grad(grad, op.inputs[0])


@gradient("Softmax")
def _softmax(op: ForwardOp, grad: Tensor) -> Tensor:
    y = op.outputs[0]
    return (grad - _sum_of_last(grad * y)) * y


@gradient("LogSoftmax")
def _log_softmax(op: ForwardOp, grad: Tensor) -> Tensor:
    return grad - _sum_of_last(grad) * ops.exp(op.outputs[0])


def _sum_of_last(x: Tensor) -> Tensor:
    return ops.sum(x, np.array([-1], np.int32), keep_dims=True)


@gradient("SoftmaxCrossEntropyWithLogits")
def _softmax_cross_entropy(op: ForwardOp, grad_loss: Tensor, grad_backprop: Tensor) -> Pair:
    """The second output is the gradient of the first, so its gradient is of second order."""
    logits = op.inputs[0]
    by_logits = _by_rows(grad_loss, op.outputs[1])
    if _is_used(grad_backprop):
        probabilities = ops.softmax(logits)
        by_logits = by_logits + (grad_backprop - _sum_of_last(grad_backprop * probabilities)) * probabilities
    return by_logits, _by_rows(grad_loss, -ops.log_softmax(logits))


@gradient("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_softmax_cross_entropy(op: ForwardOp, grad_loss: Tensor, grad_backprop: Tensor) -> tuple[Tensor, None]:
    by_logits = _by_rows(grad_loss, op.outputs[1])
    if _is_used(grad_backprop):
        probabilities = ops.softmax(op.inputs[0])
        by_logits = by_logits + (grad_backprop - _sum_of_last(grad_backprop * probabilities)) * probabilities
    return by_logits, None


def _by_rows(grad: Tensor, rows: Tensor) -> Tensor:
    return ops.expand_dims(grad, -1) * rows


def _is_used(grad: Tensor) -> bool:
    """False for the zeros that represent the gradient of an unused output."""
    return grad.node.op not in ("ZerosLike", "Zeros")


@gradient("TopK", "TopKV2")
def _top_k(op: ForwardOp, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    x, indices = op.inputs[0], op.outputs[1]
    shape = ops.shape(x)
    width, count = shape[-1], ops.shape(indices)[-1]
    rows = ops.reshape(ops.cast(indices, DstT="int32"), ops.pack([-1, count]))
    starts = ops.expand_dims(ops.range(0, ops.shape(rows)[0], 1) * width, 1)
    places = ops.reshape(rows + starts, [-1, 1])
    flat = ops.scatter_nd(places, ops.reshape(grad, [-1]), ops.reshape(ops.size(x), [1]))
    made = ops.reshape(flat, shape)
    return (made,) if op.type == "TopK" else (made, None)


@gradient("NthElement")
def _nth_element(op: ForwardOp, grad: Tensor) -> tuple[Tensor, None]:
    """The gradient is shared equally among equal elements."""
    x = op.inputs[0]
    chosen = like_input(ops.equal(x, ops.expand_dims(op.outputs[0], -1)), x)
    return chosen / _sum_of_last(chosen) * ops.expand_dims(grad, -1), None


@gradient("IsotonicRegression")
def _isotonic_regression(op: ForwardOp, grad: Tensor, _: Tensor) -> Tensor:
    """Each segment is the mean of its elements."""
    x, segments = op.inputs[0], op.outputs[1]
    shape = ops.shape(segments)
    width = shape[-1]
    rows = ops.reshape(segments, ops.pack([-1, width]))
    ids = ops.reshape(rows + ops.expand_dims(ops.range(0, ops.shape(rows)[0], 1) * width, 1), [-1])
    flat = ops.reshape(grad, [-1])
    sums = ops.unsorted_segment_sum(flat, ids, ops.size(segments))
    counts = ops.unsorted_segment_sum(ops.ones_like(flat), ids, ops.size(segments))
    made = ops.reshape(ops.gather_v2(ops.div_no_nan(sums, counts), ids, 0), shape)
    return like_input(made, x)


@gradient("CTCLoss")
def _ctc_loss(op: ForwardOp, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    by_inputs = ops.prevent_gradient(op.outputs[1], message="the loss of CTC can be differentiated only once")
    return ops.reshape(grad, [1, -1, 1]) * by_inputs, None, None, None
