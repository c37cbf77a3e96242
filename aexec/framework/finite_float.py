"""`finite_float`: the number that a text of digits means, where Python would make an infinity of a large one."""

from __future__ import annotations

import math

__all__ = ["finite_float"]

_SHOWN = 40


def finite_float(text: str) -> float:
    """A decimal number as JSON has it.  Raises ValueError for one that no float64 is near, such as `1e400`."""
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:_SHOWN]} does not fit a float64; Infinity is written so")
    return value
