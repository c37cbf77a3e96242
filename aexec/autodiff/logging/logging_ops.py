"""Gradients of printing ops pass through."""

from __future__ import annotations

from typing import Any

from aexec.autodiff.forward_op import ForwardOp
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient

no_gradient(
    *"Assert HistogramSummary ImageSummary AudioSummary AudioSummaryV2 MergeSummary ScalarSummary".split(),
    *"TensorSummary TensorSummaryV2 Timestamp PrintV2".split(),
)


@gradient("Print")
def _print(op: ForwardOp, grad: Any) -> tuple[Any, ...]:
    return (grad, *[None] * (len(op.inputs) - 1))
