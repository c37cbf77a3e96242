"""`finite_float`: parses a number, and refuses one that is too large, which `float` makes infinite."""

from __future__ import annotations

import math

__all__ = ["finite_float"]

_SHOWN = 40


def finite_float(text: str) -> float:
    """The value of a decimal number as JSON writes it.  Raises ValueError if it does not fit a float64, such as
    `1e400`.
    """
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:_SHOWN]} does not fit a float64; Infinity is written so")
    return value
