"""Fake quantisation: floats rounded to the values that a quantised tensor could hold, and the gradients.

The range is nudged first, so that zero is exactly one of the values; the rule is that of
core/kernels/fake_quant_ops_functor.h.  One implementation serves a range for the whole tensor (from attrs or scalars)
and a range per channel: the ranges are broadcast.
Next to read: `quantize_ops.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.kernels.quantize.cache_blocks import clamp, in_cache_blocks

__all__: list[str] = []

_COST = 1.5


class _Range(NamedTuple):
    """A nudged range: its ends, and the step between values."""

    low: Any
    high: Any
    step: Any


class _Levels:
    """The integers that values are rounded to, [first, last]."""

    def __init__(self, c: OpKernelConstruction) -> None:
        bits = c.attr("num_bits")
        if not 2 <= bits <= 16:
            raise errors.InvalidArgumentError("num_bits must be between 2 and 16, inclusive")
        self.xp = c.xp
        self.first = np.float32(1 if c.attr("narrow_range") else 0)
        self.last = np.float32((1 << bits) - 1)

    def nudge(self, low: Any, high: Any) -> _Range:
        """The range nearest to [low, high] that has zero at one of the integers."""
        step = (high - low) / (self.last - self.first)
        zero = self.first - low / step
        # Below the last level it is positive, so this rounds halves away from zero.
        zero = self.xp.clip(self.xp.floor(zero + np.float32(0.5)), self.first, self.last)
        return _Range((self.first - zero) * step, (self.last - zero) * step, step)

    def apply(self, x: Any, nudged: _Range) -> Any:
        xp, (low, high, step) = self.xp, nudged
        inverse, half = 1 / step, np.float32(0.5)
        zero = xp.floor(-low * inverse + half)

        def steps(values: Any) -> None:
            clamp(xp, values, low, high)
            values -= low
            values *= inverse
            values -= zero
            values += half
            xp.floor(values, out=values)
            values *= step

        return in_cache_blocks(xp, x, np.float32, steps, whole=low.ndim > 0)


def _attr_range(c: OpKernelConstruction) -> tuple[np.float32, np.float32]:
    low, high = c.attr("min"), c.attr("max")
    if not low < high:
        raise errors.InvalidArgumentError(f"min has to be smaller than max, was: {low:g} >= {high:g}")
    return np.float32(low), np.float32(high)


@kernel("FakeQuantWithMinMaxArgs", cost=_COST)
def fake_quant_with_min_max_args(c: OpKernelConstruction) -> Compute:
    """Rounds to a range from attrs."""
    levels = _Levels(c)
    nudged = levels.nudge(*_attr_range(c))
    return lambda x: levels.apply(x, nudged)


@kernel("FakeQuantWithMinMaxArgsGradient", cost=1.0)
def fake_quant_with_min_max_args_gradient(c: OpKernelConstruction) -> Compute:
    """Return the gradient where the input is inside the nudged range, else 0."""
    xp = c.xp
    low, high, _ = _Levels(c).nudge(*_attr_range(c))

    def compute(grad: Any, x: Any) -> Any:
        if grad.shape != x.shape:
            raise errors.InvalidArgumentError(
                f"Inputs to operation {c.name} of type {c.op} must have the same size and shape.  "
                f"Input 0: {shape_text(grad.shape)} != input 1: {shape_text(x.shape)}"
            )
        return xp.where((x >= low) & (x <= high), grad, np.float32(0))

    return compute


def _check_range(x: Any, low: Any, high: Any, rank: int) -> None:
    for name, array in (("min", low), ("max", high)):
        if array.ndim != rank:
            raise errors.InvalidArgumentError(f"`{name}` must be rank {rank} but is rank {array.ndim}")
    if not rank:
        return
    if not x.ndim:
        raise errors.InvalidArgumentError("inputs must have a dimension for the channels, got a scalar")
    for name, array in (("min", low), ("max", high)):
        if array.size != x.shape[-1]:
            raise errors.InvalidArgumentError(f"{name} has incorrect size, expected {x.shape[-1]} was {array.size}")


def _channels(c: OpKernelConstruction) -> int:
    return 1 if "PerChannel" in c.op else 0


# Bytes per channel for its range, the nudged range, and intermediate steps.
_RANGE_BYTES = 40


def _ranges_scratch(_x: Any, low: Any, _high: Any) -> int:
    return int(_RANGE_BYTES * np.size(low))


@kernel("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel", cost=_COST, scratch=_ranges_scratch)
def fake_quant_with_min_max_vars(c: OpKernelConstruction) -> Compute:
    """Rounds to a range from inputs: scalars, or vectors over the last dimension.  A range of 0 to 0 gives 0."""
    xp, levels, rank = c.xp, _Levels(c), _channels(c)

    def compute(x: Any, low: Any, high: Any) -> Any:
        _check_range(x, low, high, rank)
        out = levels.apply(x, levels.nudge(low, high))
        none = (low == 0) & (high == 0)
        return xp.where(none, np.float32(0), out) if none.any() else out

    return compute


# Bytes per element for its side of the range, and for its gradient there.
_SIDE_BYTES = 12


def _sides_scratch(_grad: Any, x: Any, low: Any, _high: Any) -> int:
    return int(_SIDE_BYTES * np.size(x) + _RANGE_BYTES * np.size(low))


@kernel(
    "FakeQuantWithMinMaxVarsGradient",
    "FakeQuantWithMinMaxVarsPerChannelGradient",
    cost=_COST,
    scratch=_sides_scratch,
)
def fake_quant_with_min_max_vars_gradient(c: OpKernelConstruction) -> Compute:
    """Return gradients for the input (where it is inside the range), min (where below) and max (where above)."""
    xp, levels, rank, zero = c.xp, _Levels(c), _channels(c), np.float32(0)

    def compute(grad: Any, x: Any, low: Any, high: Any) -> Any:
        if grad.shape != x.shape:
            raise errors.InvalidArgumentError("gradient and input must be the same size")
        _check_range(x, low, high, rank)
        nudged = levels.nudge(low, high)
        none = (low == 0) & (high == 0)  # then the whole gradient is the input's
        below, above = ~none & (x < nudged.low), ~none & (x > nudged.high)
        inside = none | ((x >= nudged.low) & (x <= nudged.high))
        axes = tuple(range(x.ndim - rank))
        return (
            xp.where(inside, grad, zero),
            xp.where(below, grad, zero).sum(axis=axes),
            xp.where(above, grad, zero).sum(axis=axes),
        )

    return compute
