"""`np.where` for large arrays: NumPy jumps at each element, which takes ten times as long if there is no pattern.

Next to read: `aexec/native`, `array_module.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import native
from aexec.framework.waiting.intra_op import in_pieces

__all__ = ["choose"]

# The elements from which the loop is faster, and those of a piece.
_MANY, _PIECE = 1 << 9, 1 << 16


def choose(condition: Any, then: Any, otherwise: Any) -> Any:
    """Elements of `then` where the condition, an array of booleans, holds, and of `otherwise` elsewhere.

    All three broadcast, as in `np.where`.
    """
    loops = native.loops
    if loops is None or condition.size < _MANY or not _is_plain(condition, condition, np.dtype(bool)):
        return np.where(condition, then, otherwise)
    dtype = then.dtype
    if dtype.kind not in "fiuc" or dtype.itemsize not in (4, 8):
        return np.where(condition, then, otherwise)
    if not _is_plain(then, condition, dtype) or not _is_plain(otherwise, condition, dtype):
        return np.where(condition, then, otherwise)
    out = np.empty(condition.shape, dtype)
    mask, one, other, target = (array.reshape(-1) for array in (condition, then, otherwise, out))
    steps = int(then.ndim > 0), int(otherwise.ndim > 0)

    def piece(i: int) -> None:
        part = slice(i * _PIECE, min((i + 1) * _PIECE, mask.size))
        of_one, of_other = one[part] if steps[0] else one, other[part] if steps[1] else other
        loops.choose(mask[part], of_one, of_other, target[part], part.stop - part.start, dtype.itemsize, *steps)

    in_pieces(-(-mask.size // _PIECE), piece)
    return out


def _is_plain(array: Any, like: Any, dtype: np.dtype[Any]) -> bool:
    """True for a contiguous array of this type, of the shape of `like` or without dimensions."""
    if type(array) is not np.ndarray or array.dtype is not dtype:
        return False
    return array.flags.c_contiguous and array.shape in (like.shape, ())
