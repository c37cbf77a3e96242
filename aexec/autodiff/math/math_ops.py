"""Gradients of the other ops of arithmetic."""

from __future__ import annotations

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor

no_gradient("Bincount", "Bucketize", "DenseBincount", "HistogramFixedWidth", "LinSpace", "LowerBound", "Range")
no_gradient("SobolSample", "UpperBound")
no_gradient("BitwiseAnd", "BitwiseOr", "BitwiseXor", "Invert", "LeftShift", "PopulationCount", "RightShift")


@gradient("Cross")
def _cross(op: ForwardOp, grad: Tensor) -> tuple[Tensor, Tensor]:
    a, b = op.inputs
    return ops.cross(b, grad), ops.cross(grad, a)
