"""Elementwise operations by loops in C, in pieces that threads may share.

Next to read: `aexec/native`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import native
from aexec.framework.waiting.intra_op import in_pieces

__all__ = ["by_loop"]

# Elements of a piece: some tens of microseconds.
_PIECE = 1 << 16


def by_loop(name: str, out: Any, *inputs: Any) -> Any:
    """The result of the loop `name` of `aexec.native.loops` for inputs of one shape, in `out` if that is not None.

    None if there are no loops, or these arrays are not float32 and contiguous.
    """
    loops = native.loops
    if loops is None or not native.are_single(*inputs):
        return None
    first = inputs[0]
    if out is None:
        out = np.empty(first.shape, first.dtype)
    elif not native.are_single(out):
        return None
    loop = getattr(loops, name)
    if first.size <= _PIECE:
        loop(*inputs, out)
        return out
    flat = [array.reshape(-1) for array in (*inputs, out)]

    def piece(i: int) -> None:
        loop(*[array[i * _PIECE : (i + 1) * _PIECE] for array in flat])

    in_pieces(-(-first.size // _PIECE), piece)
    return out
