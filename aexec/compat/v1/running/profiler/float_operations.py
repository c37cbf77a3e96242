"""How many float operations a node does, by the rules of TensorFlow's profiler.

Only ops of these tables have a count: none for activations but softmax, for roots and exponentials, for gradients of
depthwise and 3-D convolutions, nor for pools and gradients of convolutions whose channels come first.
Next to read: `profiled_nodes.py`, which adds them to nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from aexec.framework.shape import PartialTensorShape
from aexec.graph.nodes.node import Node

__all__ = ["float_operations", "has_count"]

# Op → operations for each element of its output.
_EACH_OUTPUT = {
    **dict.fromkeys(
        """Add AddV2 AssignAdd AssignSub BiasAdd Equal Greater GreaterEqual Less LessEqual Log Maximum Minimum Mul Neg
        NotEqual Pow RealDiv Reciprocal Square Sub""".split(),
        1,
    ),
    "Rsqrt": 2,
    "SquaredDifference": 2,
    "RsqrtGrad": 4,
    "Softmax": 5,
}
# Op → operations for each element that is reduced, and for each result at the end.
_REDUCTIONS = {"ArgMax": (1, 0), "ArgMin": (1, 0), "BiasAddGrad": (1, 0), "Mean": (1, 1), "Sum": (1, 0)}
_PRODUCTS = {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "MatMul"}
# Op → how many of the filter's sizes are summed over for an element of the output.
_CONVOLUTIONS = {"Conv2D": 3, "Conv3D": 4, "DepthwiseConv2dNative": 2, "Dilation2D": 2}
_CONVOLUTION_GRADIENTS = {"Conv2DBackpropFilter", "Conv2DBackpropInput"}
_POOLS = {"AvgPool", "AvgPoolGrad", "MaxPool", "MaxPoolGrad"}
_OTHERS = {"AddN", "L2Loss"}

Shapes = Sequence[PartialTensorShape]


class _UnknownSizeError(Exception):
    """A size that is needed is not known."""


def has_count(op: str) -> bool:
    """Whether nodes of an op have a count, if their shapes are known."""
    tables = _EACH_OUTPUT, _REDUCTIONS, _PRODUCTS, _CONVOLUTIONS, _CONVOLUTION_GRADIENTS, _POOLS, _OTHERS
    return any(op in table for table in tables)


def float_operations(node: Node, inputs: Shapes, outputs: Shapes) -> int | None:
    """The float operations of one run of a node.

    Args:
        inputs, outputs: the shapes of its tensors.

    Returns:
        None if its op has no count, or a size that it needs is unknown.
    """
    try:
        return _count(node.op, node.attrs, inputs, outputs) if has_count(node.op) else None
    except _UnknownSizeError:
        return None


def _count(op: str, attrs: Any, inputs: Shapes, outputs: Shapes) -> int | None:
    if op in _EACH_OUTPUT:
        if len(inputs) == 1:
            _sizes(inputs[0])
        return _elements(outputs[0]) * _EACH_OUTPUT[op]
    if op in _REDUCTIONS:
        each, at_end = _REDUCTIONS[op]
        return _elements(inputs[0]) * each + _elements(outputs[0]) * (at_end - each)
    if op in _PRODUCTS:
        # TensorFlow takes the last size of a batch of matrices even where they are transposed.
        summed = _sizes(inputs[0])[-2 if attrs.get("transpose_a") else -1]
        return 2 * _elements(outputs[0]) * summed
    if op in _CONVOLUTIONS:
        _sizes(inputs[0])
        return 2 * _elements(outputs[0]) * prod(_sizes(inputs[1])[: _CONVOLUTIONS[op]])
    if op == "AddN":
        return _elements(outputs[0]) * (len(inputs) - 1)
    if op == "L2Loss":
        return _elements(inputs[0]) * 3 - 1
    return _of_images(op, attrs, inputs, outputs) if attrs["data_format"] == b"NHWC" else None


def _of_images(op: str, attrs: Any, inputs: Shapes, outputs: Shapes) -> int:
    """Pools and gradients, whose channels come last."""
    if op in _CONVOLUTION_GRADIENTS:
        image, kernel = (outputs[0], inputs[1]) if op == "Conv2DBackpropInput" else (inputs[0], outputs[0])
        height, width, _, made = _sizes(kernel)
        strides: int = prod(attrs["strides"])
        return 2 * _elements(image) * height * width * made // strides
    window: int = prod(attrs["ksize"])
    if op == "AvgPoolGrad":
        return 2 * window * _elements(inputs[1])
    if op == "MaxPoolGrad":
        return (window + 1) * _elements(inputs[1])
    return window * _elements(outputs[0])


def _sizes(shape: PartialTensorShape) -> tuple[int, ...]:
    if not shape.is_fully_defined:
        raise _UnknownSizeError
    return shape.as_tuple()


def _elements(shape: PartialTensorShape) -> int:
    return prod(_sizes(shape))
