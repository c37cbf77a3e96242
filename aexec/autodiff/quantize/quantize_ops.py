"""Gradients of simulated quantisation: they pass through rounding, and not through clipping."""

from __future__ import annotations

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor

Grads = tuple[Tensor | None, ...]

no_gradient(
    "FakeQuantWithMinMaxArgsGradient",
    "FakeQuantWithMinMaxVarsGradient",
    "FakeQuantWithMinMaxVarsPerChannelGradient",
)


@gradient("FakeQuantWithMinMaxArgs")
def _fake_quant_args(op: ForwardOp, grad: Tensor) -> Tensor:
    attrs = op.attrs("min", "max", "num_bits", "narrow_range")
    return ops.fake_quant_with_min_max_args_gradient(grad, op.inputs[0], **attrs)


@gradient("FakeQuantWithMinMaxVars")
def _fake_quant_vars(op: ForwardOp, grad: Tensor) -> Grads:
    x, low, high = op.inputs
    return ops.fake_quant_with_min_max_vars_gradient(grad, x, low, high, **op.attrs("num_bits", "narrow_range"))


@gradient("FakeQuantWithMinMaxVarsPerChannel")
def _fake_quant_vars_per_channel(op: ForwardOp, grad: Tensor) -> Grads:
    x, low, high = op.inputs
    attrs = op.attrs("num_bits", "narrow_range")
    return ops.fake_quant_with_min_max_vars_per_channel_gradient(grad, x, low, high, **attrs)


@gradient("QuantizeAndDequantize")
def _straight_through(op: ForwardOp, grad: Tensor) -> Tensor:
    return grad


@gradient("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3")
def _straight_through_with_range(op: ForwardOp, grad: Tensor) -> Grads:
    return (grad, *[None] * (len(op.inputs) - 1))


@gradient("QuantizeAndDequantizeV4")
def _quantize_and_dequantize_v4(op: ForwardOp, grad: Tensor) -> Grads:
    x, low, high = op.inputs
    return ops.quantize_and_dequantize_v4_grad(grad, x, low, high, axis=op.get_attr("axis"))


@gradient("QuantizeAndDequantizeV4Grad")
def _quantize_and_dequantize_v4_grad(op: ForwardOp, grad: Tensor, *_: Tensor) -> Grads:
    return grad, None, None, None
