"""Chains of elementwise steps on floats, cache block by cache block in a buffer, by several cores.

Next to read: `quantize_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework.waiting.intra_op import in_pieces
from aexec.kernels.common.scratch import scratch

__all__ = ["clamp", "in_cache_blocks", "round_away"]

# Elements of a cache block, and of a piece that one core processes.
_BLOCK = 32768
_PIECE = 4 * _BLOCK


def in_cache_blocks(xp: Any, x: Any, dtype: Any, steps: Callable[[Any], object], *, whole: bool = False) -> Any:
    """Apply `steps` to float32 values; return them as an array of type `dtype`.

    Args:
        steps: changes a contiguous array in place.
        whole: pass the array in its shape, all at once, for steps that broadcast.
    """
    if whole or xp is not np:
        values = xp.array(x, np.float32)
        steps(values)
        return values.astype(dtype, copy=False)
    flat, out = x.reshape(-1), np.empty(x.size, dtype)

    def do(piece: int) -> None:
        end = min(flat.size, (piece + 1) * _PIECE)
        for start in range(piece * _PIECE, end, _BLOCK):
            part = out[start : min(end, start + _BLOCK)]
            # A float32 result is computed in its final place.
            in_place = part.dtype == np.float32
            values = part if in_place else scratch.empty(xp, "quantize", part.shape, np.dtype(np.float32))
            values[...] = flat[start : start + part.size]
            steps(values)
            if not in_place:
                part[...] = values

    in_pieces(-(-flat.size // _PIECE), do)
    return out.reshape(x.shape)


def clamp(xp: Any, values: Any, low: Any, high: Any) -> None:
    """Bring float32 values into [low, high] in place."""
    if xp is np and not (low.ndim or high.ndim):
        values.clip(low, high, values)  # with an array and two numbers: half the time of `minimum` and `maximum`
    else:
        xp.minimum(values, high, out=values)
        xp.maximum(values, low, out=values)


_SIGN = np.int32(-(2**31))
_HALF = np.nextafter(np.float32(0.5), np.float32(0))
_HALF_BITS = _HALF.view(np.int32)


def round_away(xp: Any, values: Any, *, to_be_cast: bool = False) -> None:
    """Round float32 values in place to the nearest integer, halves away from zero.

    It adds the largest number below a half, with the value's sign.  Adding a half would bring the number below a half
    to one; with this, rounding the sum still brings a half there.

    Args:
        to_be_cast: leave truncation to the following cast to an integer type.
    """
    half = values.view(np.int32) & _SIGN
    half |= _HALF_BITS
    values += half.view(np.float32)
    if not to_be_cast:
        xp.trunc(values, out=values)
