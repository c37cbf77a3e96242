"""Base classes of numeric kernels written as classes: signature and shapes are checked for them.

Most kernels are plain functions (`kernel_registry.kernel`); these serve those who bring
kernels written as classes, one per op, as TensorFlow's numeric_op.h does.
"""

from __future__ import annotations

from typing import Any

from aexec.framework import errors
from aexec.framework.op_kernel import OpKernel, OpKernelConstruction
from aexec.framework.shape import shape_text

__all__ = ["BinaryElementWiseOp", "BinaryOp", "UnaryElementWiseOp", "UnaryOp", "check_same_shape"]


class UnaryOp(OpKernel):
    """One input and one output of the node's type T.

    Raises:
        InvalidArgumentError: when built for a node with another signature.
    """

    def __init__(self, c: OpKernelConstruction) -> None:
        super().__init__(c)
        dtype = c.attr("T")
        c.match_signature([dtype], [dtype])


class BinaryOp(OpKernel):
    """Two inputs and one output of the node's type T.

    Raises:
        InvalidArgumentError: when built for a node with another signature.
    """

    def __init__(self, c: OpKernelConstruction) -> None:
        super().__init__(c)
        self.op = c.op
        dtype = c.attr("T")
        c.match_signature([dtype, dtype], [dtype])


class UnaryElementWiseOp(UnaryOp):
    """The output has the input's shape.  Subclasses define `operate`."""

    def operate(self, a: Any) -> Any:
        """The output, from an input of any shape."""
        raise errors.UnimplementedError(f"{type(self).__name__} does not define operate")

    def compute(self, *inputs: Any) -> Any:
        return self.operate(inputs[0])


class BinaryElementWiseOp(BinaryOp):
    """Both inputs and the output have one shape.  Subclasses define `operate`."""

    def operate(self, a: Any, b: Any) -> Any:
        """The output, from two inputs of the same shape."""
        raise errors.UnimplementedError(f"{type(self).__name__} does not define operate")

    def compute(self, *inputs: Any) -> Any:
        a, b = inputs
        check_same_shape(self.name, self.op, a, b)
        return self.operate(a, b)


def check_same_shape(node: str, op: str, *inputs: Any) -> None:
    """Raise InvalidArgumentError unless all inputs have the first one's shape."""
    for position, array in enumerate(inputs):
        if array.shape != inputs[0].shape:
            raise errors.InvalidArgumentError(
                f"Inputs to operation {node} of type {op} must have the same size and shape.  "
                f"Input 0: {shape_text(inputs[0].shape)} != input {position}: {shape_text(array.shape)}"
            )
