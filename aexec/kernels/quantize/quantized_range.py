"""The floats that the integers of a quantised tensor stand for, and the way to integers of another range.

The formulas are those of core/kernels/quantization_utils.
Next to read: `quantized_math_ops.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.kernels.quantize.cache_blocks import clamp, in_cache_blocks, round_away

__all__ = ["Range", "all_bytes", "check_scalars", "in_floats", "product_limits", "quantized"]

# The largest float32 below 2^31.
_LAST_FLOAT = np.nextafter(np.float32(2**31), np.float32(0))


class Range:
    """The floats that an integer type stands for.

    Attributes:
        scale: floats per step.
        low: the float of the smallest integer, rounded so that zero is an integer.
        first, last: the smallest and the largest integer.
        last_float: the largest float32 that the type holds.
    """

    def __init__(self, dtype: Any, low: Any, high: Any) -> None:
        """Raises InvalidArgumentError for a range that is not finite."""
        info = np.iinfo(dtype)
        self.low_given, self.high_given = float(low), float(high)
        if not math.isfinite(self.high_given - self.low_given):
            raise errors.InvalidArgumentError(f"The range of a quantised tensor must be finite, but is {low} to {high}")
        steps = 2.0**info.bits
        self.empty = self.low_given == self.high_given
        self.scale = (self.high_given - self.low_given) * (steps / (steps - 1.0)) / steps
        self.first, self.last = info.min, info.max
        self.last_float = np.float32(info.max) if info.bits <= 24 else _LAST_FLOAT
        self.low = self.low_given if self.empty else _on_a_step(self.low_given, self.scale)

    def floats(self, values: Any) -> Any:
        """The floats of integers, float64."""
        if self.empty:
            return np.full(np.shape(values), self.low_given)
        return self.low + (np.asarray(values, np.float64) - self.first) * self.scale

    def in_float32(self) -> tuple[Any, Any]:
        """(step, origin): an integer times `step`, plus `origin`, is its float."""
        if self.empty:
            return np.float32(0), np.float32(self.low_given)
        step = np.float32(self.scale)
        return step, np.float32(self.low) - np.float32(self.first) * step

    def integer(self, value: float) -> int:
        """The integer of a float, which may be outside of the type."""
        if self.empty:
            return 0
        return int(_away(value / self.scale) - _away(self.low_given / self.scale)) + self.first

    def held(self, value: float) -> int:
        """The nearest integer of the type."""
        return min(max(self.integer(value), self.first), self.last)


def _away(value: float) -> float:
    """The nearest integer, halves away from zero."""
    return math.copysign(math.floor(abs(value) + 0.5), value)


def _on_a_step(low: float, scale: float) -> float:
    """The nearest multiple of `scale`, computed in float32."""
    step = np.float32(scale)
    return float(np.float32(_away(float(np.float32(low) / step))) * step)


def check_scalars(**limits: Any) -> None:
    """Raise InvalidArgumentError, with the input's name, unless each input has one element."""
    for name, value in limits.items():
        if np.size(value) != 1:
            raise errors.InvalidArgumentError(f"{name} must be a scalar, but got {np.size(value)} elements")


def in_floats(xp: Any, values: Any, given: Range, wanted: Range, dtype: Any) -> Any:
    """Integers of another range, computed in float32, as TensorFlow's kernels over whole tensors do."""
    step, origin = given.in_float32()
    to_integers = _to_integers(xp, wanted)

    def steps(floats: Any) -> None:
        floats *= step
        floats += origin
        to_integers(floats)

    return in_cache_blocks(xp, values, dtype, steps)


def quantized(xp: Any, floats: Any, wanted: Range, dtype: Any) -> Any:
    """The nearest integers of float32 values."""
    return in_cache_blocks(xp, floats, dtype, _to_integers(xp, wanted))


def _to_integers(xp: Any, wanted: Range) -> Callable[[Any], None]:
    """Steps in place from float32 values to the nearest integers, still as float32."""
    inverse = np.float32(0 if wanted.empty else 1.0 / wanted.scale)
    low = np.float32(_away(float(np.float32(wanted.low_given) * inverse))) - np.float32(wanted.first)

    def steps(floats: Any) -> None:
        floats *= inverse
        round_away(xp, floats)
        floats -= low
        clamp(xp, floats, np.float32(wanted.first), wanted.last_float)

    return steps


def all_bytes(dtype: Any) -> Any:
    """int64 [256]: the integers of an 8-bit type, in the order of their bits: `all_bytes(t)[x.view(uint8)]` is x."""
    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.int64)


def product_limits(a: Range, b: Range, *, symmetric: bool = False) -> tuple[Any, Any]:
    """The floats, float32, of the lowest and the highest 32-bit sum of products of two types' integers.

    Args:
        symmetric: the range of `b` leaves out its type's lowest integer.
    """
    steps_a, steps_b = a.last - a.first, b.last - b.first - symmetric
    step = np.float32((a.high_given - a.low_given) / steps_a) * np.float32((b.high_given - b.low_given) / steps_b)
    return step * np.float32(-(2**31)), step * np.float32(2**31 - 1)
