"""Inputs that never change: axes, permutations and shapes are constants in nearly every graph.

A kernel may keep what it made of such an input and know the input again by identity.
That is right only for arrays whose bytes nobody can change.  NumPy's read-only flag does
not say so, as it may sit on a view of a writable array that the user still holds; memory
that belongs to a `bytes` object does.

The pair of input and value is kept in one tuple: kernels of a node run in several
threads at once, which see the old pair or the new one, but never half of each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["freeze", "is_frozen"]

# Axes, permutations, paddings and shapes are smaller; larger constants are not worth a copy.
_MAX_FROZEN_BYTES = 4096


def freeze(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array with its bytes fixed for good if it is small and numeric, otherwise unchanged."""
    if array.dtype.hasobject or not 0 < array.nbytes <= _MAX_FROZEN_BYTES or is_frozen(array):
        return array
    return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)


def is_frozen(array: Any) -> bool:
    """Can nobody change the array's bytes?"""
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
