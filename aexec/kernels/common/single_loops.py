"""Elementwise operations by loops in C, in pieces that threads may share.

Next to read: `aexec/native`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import native
from aexec.framework.waiting.intra_op import in_pieces

__all__ = ["by_loop", "tanh"]

# Elements of a piece: some tens of microseconds.
_PIECE = 1 << 16


def by_loop(name: str, out: Any, *inputs: Any) -> Any:
    """The result of the loop `name` of `aexec.native.loops` for inputs of one shape, in `out` if that is not None.

    A single input that is not contiguous is copied to the result first, so it gets the same bits.  None if there are no
    loops, or these arrays have no dimensions, as NumPy's scalars, are not float32, or not contiguous.
    """
    loops, first = native.loops, inputs[0]
    if loops is None or not first.ndim or (out is not None and not native.are_single(out)):
        return None
    if not native.are_single(*inputs):
        if len(inputs) > 1 or type(first) is not np.ndarray or first.dtype != np.float32:
            return None
        out = np.empty(first.shape, np.float32) if out is None else out
        np.copyto(out, first)
        first, inputs = out, (out,)
    elif out is None:
        out = np.empty(first.shape, first.dtype)
    loop = getattr(loops, name)
    if first.size <= _PIECE:
        loop(*inputs, out)
        return out
    flat = [array.reshape(-1) for array in (*inputs, out)]

    def piece(i: int) -> None:
        loop(*[array[i * _PIECE : (i + 1) * _PIECE] for array in flat])

    in_pieces(-(-first.size // _PIECE), piece)
    return out


def tanh(x: Any, out: Any = None) -> Any:
    """NumPy's `tanh`; of float32 by a loop, in a third of the time, within 5 units in the last place."""
    made = by_loop("tanhs", out, x if x.ndim else np.atleast_1d(x))
    if made is None:
        return np.tanh(x, out)
    return made if x.ndim or out is not None else made[0]
