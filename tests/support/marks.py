"""One number that stands for an array, where recordings of all elements would be large."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["mark"]


def mark(array: Any) -> float:
    """One number that depends on every element."""
    return float(np.sum(np.cos(np.arange(array.size)) * array.ravel(), dtype=np.float64))
