"""Gradients of optional values: an optional value of the gradients of its components."""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.autodiff.forward_op import ForwardOp
from aexec.autodiff.gradients import is_differentiable
from aexec.framework.op_contract.gradient_registry import gradient, no_gradient
from aexec.graph.nodes.node import Tensor

Grads = tuple[Any, ...]

no_gradient("OptionalHasValue", "OptionalNone")


@gradient("OptionalFromValue")
def _from_value(op: ForwardOp, grad: Tensor) -> Grads:
    given = op.inputs
    found = ops.optional_get_value(
        grad, output_types=[t.dtype.base for t in given], output_shapes=[t.static_shape for t in given]
    )
    return tuple(part if is_differentiable(part.dtype) else None for part in found)


@gradient("OptionalGetValue")
def _get_value(op: ForwardOp, *grads: Tensor | None) -> Grads:
    """A component without a gradient of its own, such as one of integers, has zeros."""
    return (
        ops.optional_from_value(
            [ops.zeros_like(part) if grad is None else grad for part, grad in zip(op.outputs, grads, strict=True)]
        ),
    )
