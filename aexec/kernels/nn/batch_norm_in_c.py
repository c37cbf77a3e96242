"""Sums over all elements of a channel, and normalisation by them, by loops in C: one pass in place of NumPy's several.

Channels come last.  Sums are taken in double precision over sums of some rows.
Next to read: `aexec/native`, `batch_norm_ops.py`.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np

from aexec import native
from aexec.framework.waiting.intra_op import in_pieces

__all__ = ["centred_sums", "normalised"]

# Elements of a piece, about: they stay in a core's second-level cache.  Each piece of a sum has sums of its own, which
# take less memory than its rows if these are many.
_PIECE, _LEAST_ROWS = 1 << 17, 64
# Rows of more channels are better summed by NumPy.
_MOST_CHANNELS = 1 << 14
# Loops take this many neighbours at a time, so rows of fewer channels are joined.
_LANES = 16


def centred_sums(x: Any, mean: Any, grad: Any = None) -> tuple[Any, Any] | None:
    """Sums of g and of g · (x - mean) over all but the last dimension, float64; g is `grad`, or x - mean without it.

    None if there are no loops for these arrays, which share their shape [..., channels], or rows are few or very long.
    """
    loops, channels = native.loops, x.shape[-1]
    if loops is None or not 0 < x.size >= _LEAST_ROWS * channels or channels > _MOST_CHANNELS:
        return None
    if not native.are_single(x, mean, *(() if grad is None else (grad,))):
        return None
    joined = _joined(x.size // channels, channels)
    rows, width, mean = x.size // (channels * joined), channels * joined, np.tile(mean, joined)
    cuts = _cuts(rows, max(_LEAST_ROWS // joined, _PIECE // width))
    sums = np.zeros((len(cuts), 2, width))
    x, grad = x.reshape(rows, width), None if grad is None else grad.reshape(rows, width)

    def piece(i: int) -> None:
        part = cuts[i]
        slopes = None if grad is None else grad[part]
        loops.centred_sums(x[part], slopes, mean, sums[i], part.stop - part.start, width)

    in_pieces(len(cuts), piece)
    first, second = sums.sum(axis=0).reshape(2, joined, channels).sum(axis=1)
    return first, second


def normalised(x: Any, mean: Any, factor: Any, offset: Any, out: Any = None, of_grad: Any = None) -> Any:
    """(x - mean) · factor + offset, for vectors over the last dimension; plus grad · scale for `of_grad` (grad, scale).

    Written to `out`, which may be x or grad, if it is given.  None if there are no loops for these arrays.
    """
    loops, channels = native.loops, x.shape[-1]
    grad, scale = (None, offset) if of_grad is None else of_grad
    target = np.empty_like(x) if out is None else out
    if loops is None or not x.size or channels > _MOST_CHANNELS:
        return None
    if not native.are_single(x, target, *(() if grad is None else (grad,))):
        return None
    joined = _joined(x.size // channels, channels)
    vectors = np.tile(np.array([mean, factor, offset, scale], x.dtype), joined)
    rows, width = x.size // (channels * joined), channels * joined
    cuts = _cuts(rows, _PIECE // width)
    x, to = x.reshape(rows, width), target.reshape(rows, width)
    grad = None if grad is None else grad.reshape(rows, width)

    def piece(i: int) -> None:
        part = cuts[i]
        slopes = None if grad is None else grad[part]
        loops.normalise(x[part], slopes, vectors, to[part], part.stop - part.start, width)

    in_pieces(len(cuts), piece)
    return target


def _joined(rows: int, channels: int) -> int:
    """How many rows are taken as one, so that loops find as many neighbours as they take at a time."""
    return gcd(rows, _LANES // gcd(channels, _LANES)) if channels < 4 * _LANES else 1


def _cuts(rows: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
