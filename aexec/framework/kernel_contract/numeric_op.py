"""Base classes of numeric kernels written as classes, which check signature and shapes.

Most kernels are plain functions (`kernel_registry.kernel`); these classes serve programs that bring kernels written as
classes, one per op, as for TensorFlow's numeric_op.h.
"""

from __future__ import annotations

from typing import Any

from aexec.framework import errors
from aexec.framework.kernel_contract.op_kernel import OpKernel, OpKernelConstruction, OpKernelContext

__all__ = ["BinaryElementWiseOp", "BinaryOp", "UnaryElementWiseOp", "UnaryOp"]


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
        dtype = c.attr("T")
        c.match_signature([dtype, dtype], [dtype])


class UnaryElementWiseOp(UnaryOp):
    """The output has the input's shape.  Subclasses define `operate`."""

    def operate(self, a: Any) -> Any:
        """The output, from an input of any shape."""
        raise errors.UnimplementedError(f"{type(self).__name__} does not define operate")

    def compute(self, context: OpKernelContext) -> None:
        context.set_output(0, self.operate(context.input(0)))


class BinaryElementWiseOp(BinaryOp):
    """Both inputs and the output have one shape.  Subclasses define `operate`."""

    def operate(self, a: Any, b: Any) -> Any:
        """The output, from two inputs of the same shape."""
        raise errors.UnimplementedError(f"{type(self).__name__} does not define operate")

    def compute(self, context: OpKernelContext) -> None:
        context.validate_inputs_are_same_shape()
        context.set_output(0, self.operate(context.input(0), context.input(1)))
