"""Zeros of every type: numbers are 0, strings are empty, handles and variants None; and filling arrays of objects.

NumPy's zeros of objects are the number 0, which no string op takes.  For outputs of kernels that begin as zeros see
`kernels/common/allocation.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.framework.waiting.loop_budget import DEFAULT, OBJECT_NS, giving_way

__all__ = ["fill_objects", "zero_object", "zeros_of_type"]

# Elements that are filled at a time.
_AT_ONCE = DEFAULT.pieces(OBJECT_NS)


def zero_object(dtype: DType) -> Any:
    """The zero of a type whose elements are Python objects."""
    return b"" if dtype.base is dtypes.string else None


def zeros_of_type(shape: Sequence[int], dtype: DType, xp: Any = np) -> Any:
    """An array of zeros; of the module `xp` if they are numbers."""
    if dtype.np.kind != "O":
        return xp.zeros(shape, dtype.np)
    out = np.empty(shape, object)
    fill_objects(out, zero_object(dtype))
    return out


def fill_objects(out: Any, value: Any) -> None:
    """Set all elements of a contiguous array of objects to one value, some at a time: Python counts the references to
    it, so each time the interpreter's lock is held.

    Args:
        value: the object, or a 0-d array of it, which may be an array itself then.
    """
    flat = out.reshape(-1)
    for start in giving_way(range(0, flat.size, _AT_ONCE), _AT_ONCE * OBJECT_NS):
        flat[start : start + _AT_ONCE] = value
