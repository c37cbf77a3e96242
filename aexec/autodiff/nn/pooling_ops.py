"""Gradients of pooling, and of their gradients.

The gradient of an average is linear; that of a maximum depends on the positions of the maxima, which small changes do
not move.
"""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import shape_of
from aexec.framework.op_contract.gradient_registry import gradient
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import create_node

Triple = tuple[Tensor, Tensor, Tensor]


def _windows(op: ForwardOp) -> dict[str, Any]:
    return op.attrs("ksize", "strides", "padding", "data_format")


# Averages


@gradient("AvgPool", "AvgPool3D")
def _avg_pool(op: ForwardOp, grad: Tensor) -> Tensor:
    inputs = {"orig_input_shape": shape_of(op.inputs[0]), "grad": grad}
    return create_node(f"{op.type}Grad", inputs, _windows(op)).output(0)


@gradient("AvgPoolGrad", "AvgPool3DGrad")
def _avg_pool_grad(op: ForwardOp, grad: Tensor) -> tuple[None, Tensor]:
    forward = op.type.removesuffix("Grad")
    argument = "value" if forward == "AvgPool" else "input"
    return None, create_node(forward, {argument: grad}, _windows(op)).output(0)


@gradient("FractionalAvgPool")
def _fractional_avg_pool(op: ForwardOp, grad: Tensor, *_sequences: Tensor | None) -> Tensor:
    inputs = {
        "orig_input_tensor_shape": ops.shape(op.inputs[0], out_type="int64"),
        "out_backprop": grad,
        "row_pooling_sequence": op.outputs[1],
        "col_pooling_sequence": op.outputs[2],
    }
    return create_node("FractionalAvgPoolGrad", inputs, op.attrs("overlapping")).output(0)


# Maxima


def _of_max(name: str, x: Tensor, y: Tensor, grad: Tensor, attrs: dict[str, Any], **more: Tensor) -> Tensor:
    return create_node(name, {"orig_input": x, "orig_output": y, "grad": grad, **more}, attrs).output(0)


@gradient("MaxPool")
def _max_pool(op: ForwardOp, grad: Tensor) -> Tensor:
    attrs = _windows(op) | op.attrs("explicit_paddings")
    return _of_max("MaxPoolGrad", op.inputs[0], op.outputs[0], grad, attrs)


@gradient("FractionalMaxPool")
def _fractional_max_pool(op: ForwardOp, grad: Tensor, *_sequences: Tensor | None) -> Tensor:
    inputs = {
        "orig_input": op.inputs[0],
        "orig_output": op.outputs[0],
        "out_backprop": grad,
        "row_pooling_sequence": op.outputs[1],
        "col_pooling_sequence": op.outputs[2],
    }
    return create_node("FractionalMaxPoolGrad", inputs, op.attrs("overlapping")).output(0)


@gradient("MaxPool3D")
def _max_pool_3d(op: ForwardOp, grad: Tensor) -> Tensor:
    return _of_max("MaxPool3DGrad", op.inputs[0], op.outputs[0], grad, _windows(op))


@gradient("MaxPoolGrad", "MaxPoolGradGrad", "MaxPool3DGrad", "MaxPool3DGradGrad")
def _max_pool_grad(op: ForwardOp, grad: Tensor) -> Triple:
    x, y, _ = op.inputs
    again = op.type.removesuffix("Grad") if op.type.endswith("GradGrad") else f"{op.type}Grad"
    return ops.zeros_like(x), ops.zeros_like(y), _of_max(again, x, y, grad, _windows(op))


@gradient("MaxPoolV2")
def _max_pool_v2(op: ForwardOp, grad: Tensor) -> tuple[Tensor, None, None]:
    x, ksize, strides = op.inputs
    attrs = op.attrs("padding", "data_format")
    return _of_max("MaxPoolGradV2", x, op.outputs[0], grad, attrs, ksize=ksize, strides=strides), None, None


@gradient("MaxPoolGradV2", "MaxPoolGradGradV2")
def _max_pool_grad_v2(op: ForwardOp, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, y, _, ksize, strides = op.inputs
    again = "MaxPoolGradV2" if op.type == "MaxPoolGradGradV2" else "MaxPoolGradGradV2"
    made = _of_max(again, x, y, grad, op.attrs("padding", "data_format"), ksize=ksize, strides=strides)
    return ops.zeros_like(x), ops.zeros_like(y), made, None, None


@gradient("MaxPoolWithArgmax")
def _max_pool_with_argmax(op: ForwardOp, grad: Tensor, _: Tensor) -> Tensor:
    attrs = op.attrs("ksize", "strides", "padding", "include_batch_in_index")
    return ops.max_pool_grad_with_argmax(op.inputs[0], grad, op.outputs[1], **attrs)


@gradient("LRN")
def _lrn(op: ForwardOp, grad: Tensor) -> Tensor:
    attrs = op.attrs("depth_radius", "bias", "alpha", "beta")
    return ops.lrn_grad(grad, op.inputs[0], op.outputs[0], **attrs)
