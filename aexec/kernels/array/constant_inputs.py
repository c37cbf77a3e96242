"""Inputs that never change: axes, permutations and shapes are constants in nearly every graph.

A kernel may keep results for such an input, and recognise the input by identity. This is right only for arrays whose
bytes nobody can change.  NumPy's read-only flag is not enough, since it may be on a view of a writable array that the
user still holds; the memory of a `bytes` object is.

The pair of input and result is kept in one tuple: the kernel of a node runs in several threads at once, which see the
old pair or the new one, but never half of each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["freeze", "is_frozen"]

# Axes, permutations, paddings and shapes are smaller; copying larger constants is not worth it.
_MAX_FROZEN_BYTES = 4096


def freeze(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy whose bytes cannot change if the array is small and numeric, else the array itself."""
    if array.dtype.hasobject or not 0 < array.nbytes <= _MAX_FROZEN_BYTES or is_frozen(array):
        return array
    return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)


def is_frozen(array: Any) -> bool:
    """True if the array's bytes cannot change."""
    base = array.base
    if base is None:  # owns its memory: the common case of computed inputs
        return False
    if array.flags.writeable:
        return False
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    return type(base) is bytes
