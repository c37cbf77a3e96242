"""Zeros of every type: numbers are 0, strings are empty, handles and variants None.

NumPy's zeros of objects are the number 0, which no string op takes.  For outputs of kernels that begin as zeros see
`kernels/common/allocation.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.dtypes import DType

__all__ = ["zero_object", "zeros_of_type"]


def zero_object(dtype: DType) -> Any:
    """The zero of a type whose elements are Python objects."""
    return b"" if dtype.base is dtypes.string else None


def zeros_of_type(shape: Sequence[int], dtype: DType, xp: Any = np) -> Any:
    """An array of zeros; of the module `xp` if they are numbers."""
    if dtype.np.kind != "O":
        return xp.zeros(shape, dtype.np)
    out = np.empty(shape, object)
    out.fill(zero_object(dtype))
    return out
