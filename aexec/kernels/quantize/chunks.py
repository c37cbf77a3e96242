"""Chains of elementwise steps on floats, done chunk by chunk in a buffer that stays in the cache.

Next to read: `quantize_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.kernels.common.scratch import scratch

__all__ = ["clamp", "in_chunks", "round_away"]

# Elements at a time.
_CHUNK = 32768
# From so many elements on bounds are laid out as arrays.
_MANY = 2000


def in_chunks(xp: Any, x: Any, dtype: Any, steps: Callable[[Any], object], *, whole: bool = False) -> Any:
    """What `steps` makes of float32 values, as an array of type `dtype`.

    Args:
        steps: changes a contiguous array in place.
        whole: hand it over in its shape, all at once, for steps that broadcast.
    """
    if whole or xp is not np:
        values = xp.array(x, np.float32)
        steps(values)
        return values.astype(dtype, copy=False)
    flat, out = x.reshape(-1), np.empty(x.size, dtype)
    # What is a float32 in the end is computed where it will be.
    buffer = None if out.dtype == np.float32 else scratch.empty(xp, "quantize", (min(x.size, _CHUNK),), np.dtype("f4"))
    for start in range(0, flat.size, _CHUNK):
        part = out[start : start + _CHUNK]
        values = part if buffer is None else buffer[: part.size]
        values[...] = flat[start : start + _CHUNK]
        steps(values)
        if buffer is not None:
            part[...] = values
    return out.reshape(x.shape)


def clamp(xp: Any, low: Any, high: Any, size: int) -> Callable[[Any], None]:
    """What brings arrays into [low, high] in place, as a step of `in_chunks` on `size` elements.

    NumPy's loops over two arrays are four times as fast as those over an array and a number.
    """
    if xp is np and size >= _MANY and not (low.ndim or high.ndim):
        count = min(size, _CHUNK)
        lows, highs = np.full(count, low, np.float32), np.full(count, high, np.float32)

        def clamp_chunk(values: Any) -> None:
            np.minimum(values, highs[: values.size], out=values)
            np.maximum(values, lows[: values.size], out=values)

        return clamp_chunk

    def clamp_all(values: Any) -> None:
        xp.minimum(values, high, out=values)
        xp.maximum(values, low, out=values)

    return clamp_all


_SIGN = np.int32(-(2**31))
_HALF = np.nextafter(np.float32(0.5), np.float32(0))
_HALF_BITS = _HALF.view(np.int32)


def round_away(xp: Any, values: Any) -> None:
    """Round float32 values in place to the nearest integer, half a step away from zero.

    The largest number below a half is added, with the value's sign: a half more would take the number below a half to
    one, and this takes a half there, as the sum is rounded.
    """
    half = values.view(np.int32) & _SIGN
    half |= _HALF_BITS
    values += half.view(np.float32)
    xp.trunc(values, out=values)
