"""Gradients of convolutions, and of their gradients.

A convolution is linear in its input and in its filter, so all of these are convolutions again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.shapes import shape_of
from aexec.framework.op_contract.gradient_registry import gradient
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import create_node

Pair = tuple[Tensor, Tensor]


class _Convolution:
    """The three ops of one kind of convolution: itself, and its gradients by input and filter."""

    def __init__(self, forward: str, by_input: str, by_filter: str, attrs: str) -> None:
        self._ops = forward, by_input, by_filter
        self._attrs = attrs.split()
        gradient(forward)(self.of_forward)
        gradient(by_input)(self.of_input_gradient)
        gradient(by_filter)(self.of_filter_gradient)

    def _attrs_of(self, op: ForwardOp) -> dict[str, Any]:
        return op.attrs(*self._attrs)

    def _forward(self, op: ForwardOp, x: Tensor, filters: Tensor) -> Tensor:
        return create_node(self._ops[0], {"input": x, "filter": filters}, self._attrs_of(op)).output(0)

    def _by_input(self, op: ForwardOp, sizes: Tensor, filters: Tensor, grad: Tensor) -> Tensor:
        inputs = {"input_sizes": sizes, "filter": filters, "out_backprop": grad}
        return create_node(self._ops[1], inputs, self._attrs_of(op)).output(0)

    def _by_filter(self, op: ForwardOp, x: Tensor, sizes: Tensor, grad: Tensor) -> Tensor:
        inputs = {"input": x, "filter_sizes": sizes, "out_backprop": grad}
        return create_node(self._ops[2], inputs, self._attrs_of(op)).output(0)

    def of_forward(self, op: ForwardOp, grad: Tensor) -> Pair:
        x, filters = op.inputs
        return (
            self._by_input(op, shape_of(x), filters, grad),
            self._by_filter(op, x, shape_of(filters), grad),
        )

    def of_input_gradient(self, op: ForwardOp, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        _, filters, backprop = op.inputs
        return None, self._by_filter(op, grad, shape_of(filters), backprop), self._forward(op, grad, filters)

    def of_filter_gradient(self, op: ForwardOp, grad: Tensor) -> tuple[Tensor, None, Tensor]:
        x, _, backprop = op.inputs
        return self._by_input(op, shape_of(x), grad, backprop), None, self._forward(op, x, grad)


_Convolution(
    "Conv2D",
    "Conv2DBackpropInput",
    "Conv2DBackpropFilter",
    "strides padding explicit_paddings data_format dilations use_cudnn_on_gpu",
)
_Convolution(
    "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropInput",
    "DepthwiseConv2dNativeBackpropFilter",
    "strides padding explicit_paddings data_format dilations",
)
_Convolution("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2", "strides padding data_format dilations")


@gradient("Dilation2D")
def _dilation_2d(op: ForwardOp, grad: Tensor) -> Pair:
    attrs = op.attrs("strides", "rates", "padding")
    x, filters = op.inputs
    return (
        ops.dilation2d_backprop_input(x, filters, grad, **attrs),
        ops.dilation2d_backprop_filter(x, filters, grad, **attrs),
    )


# Biases


@gradient("BiasAdd")
def _bias_add(op: ForwardOp, grad: Tensor) -> Pair:
    return grad, ops.bias_add_grad(grad, data_format=op.get_attr("data_format"))


@gradient("BiasAddV1")
def _bias_add_v1(op: ForwardOp, grad: Tensor) -> Pair:
    return grad, ops.sum(grad, ops.range(0, ops.rank(grad) - 1, 1))


@gradient("BiasAddGrad")
def _bias_add_grad(op: ForwardOp, grad: Tensor) -> Tensor:
    """The gradient repeated at every position."""
    x = op.inputs[0]
    shape = shape_of(x)
    if op.get_attr("data_format") == "NCHW":
        ones = ops.fill(ops.reshape(ops.rank(x) - 2, [1]), 1)
        channels = np.array([-1], np.int32)
        grad = ops.reshape(grad, ops.concat_v2([np.array([1], np.int32), channels, ones], 0))
    return ops.broadcast_to(grad, shape)
