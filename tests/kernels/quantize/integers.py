"""Integers for tests of quantised tensors, which the tables of answers were recorded for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aexec.framework import dtypes

__all__ = ["QUANTIZED", "some"]

QUANTIZED = {name: dtypes.as_dtype(name) for name in ("quint8", "qint8", "qint32")}


def some(shape: tuple[int, ...], seed: int, kind: str = "quint8") -> Any:
    """Integers of a shape, spread over the whole type."""
    values = (np.arange(math.prod(shape)) * (2 * seed + 37) + 11 * seed) % 256
    if kind == "qint8":
        values -= 128
    elif kind == "qint32":
        values = (values - 100) * 7654321
    return values.astype(QUANTIZED[kind].np).reshape(shape)
