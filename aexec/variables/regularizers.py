"""Regularizers: a loss for a variable's values; `get_variable` adds it to `GraphKeys.REGULARIZATION_LOSSES`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec import ops
from aexec.client.building import name_scope
from aexec.framework import errors
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["Regularizer", "l1_l2_regularizer", "l1_regularizer", "l2_regularizer"]

# A variable's value → its loss, a scalar; or None for nothing.
Regularizer = Callable[[Any], Tensor | None]


def l1_regularizer(scale: float) -> Regularizer:
    """`scale` times the sum of the magnitudes."""
    _check(scale)

    def l1(weights: Any) -> Tensor | None:
        if scale == 0:
            return None
        with name_scope("l1_regularizer"):
            values = convert_to_tensor(weights)
            axes = list(range(values.static_shape.rank or 0))
            return ops.mul(convert_to_tensor(scale, values.dtype.base, "scale"), ops.sum(ops.abs(values), axes))

    return l1


def l2_regularizer(scale: float) -> Regularizer:
    """`scale` times half the sum of the squares."""
    _check(scale)

    def l2(weights: Any) -> Tensor | None:
        if scale == 0:
            return None
        with name_scope("l2_regularizer"):
            values = convert_to_tensor(weights)
            return ops.mul(convert_to_tensor(scale, values.dtype.base, "scale"), ops.l2_loss(values))

    return l2


def l1_l2_regularizer(scale_l1: float = 1.0, scale_l2: float = 1.0) -> Regularizer:
    """The sum of both."""
    parts = [l1_regularizer(scale_l1), l2_regularizer(scale_l2)]

    def both(weights: Any) -> Tensor | None:
        found = [loss for part in parts if (loss := part(weights)) is not None]
        return ops.add_n(found) if found else None

    return both


def _check(scale: float) -> None:
    if scale < 0:
        raise errors.InvalidValueError(f"the scale of a regularizer cannot be negative, got {scale}")
