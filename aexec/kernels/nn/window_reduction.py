"""The maximum or the sum of each window of a pool, one spatial dimension after the other.

A window is a product of ranges, so the cost grows with the sum of its sides, not with its area.  Along one dimension
there are three methods.  Windows that cover it all, or are adjacent, are reduced by NumPy directly.  A few taps are
taken one by one.  For long windows that overlap, the results of 1, 2, 4, … neighbours are computed, of which each
window is combined.  So a sum is pairwise, and more accurate than one that adds number after number. Read next:
`pooling.py`, which has the positions of the windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.waiting.intra_op import in_pieces
from aexec.kernels.common.scratch import scratch
from aexec.kernels.common.windowing import Window
from aexec.kernels.nn.pooling import Layout, TapBox

__all__ = ["maxima", "sums"]

# The approximate bytes of input for a piece: some tenths of a millisecond's work.
_PIECE_BYTES = 1 << 19
# Taps that are always taken one by one.
_FEW = 3


def maxima(xp: Any, x: Any, layout: Layout, lowest: Any) -> Any:
    """Return the maximum of each window of `x` [n, spatial..., c], at least `lowest`; NaN if the window contains
    one.
    """
    out = _Reduction(xp, xp.maximum, xp.max, lowest).of_windows(x, layout)
    return xp.maximum(out, lowest, out=out)


def sums(xp: Any, x: Any, layout: Layout) -> Any:
    """The sum of each window of `x` [n, spatial..., c]."""
    return _Reduction(xp, xp.add, xp.sum, x.dtype.type(0)).of_windows(x, layout)


class _Reduction:
    """Functions that reduce two arrays, and an axis of one; `neutral` is the reduction's neutral element."""

    def __init__(self, xp: Any, pair: Any, axis: Any, neutral: Any) -> None:
        self._xp, self._pair, self._axis, self._neutral = xp, pair, axis, neutral

    def of_windows(self, x: Any, layout: Layout) -> Any:
        """A new array [n, counts..., c]."""
        shape = list(x.shape)
        sides = [(i, w) for i, w in enumerate(layout.spec, start=1) if w != Window(x.shape[i], 1, 1, 1, 0, 0)]
        for axis, w in sides:
            shape[axis] = w.count
            if axis == sides[-1][0]:
                out = self._xp.empty(shape, x.dtype)
            else:
                announce_scratch(prod(shape) * x.dtype.itemsize)
                out = scratch.empty(self._xp, f"pool{axis}", shape, x.dtype)
            self._in_pieces(x, out, axis, w, layout.boxes(axis - 1))
            x = out
        return x if sides else x.copy()

    def _in_pieces(self, x: Any, out: Any, axis: int, w: Window, boxes: Sequence[TapBox]) -> None:
        """Write the results of windows along one axis into `out`; cuts the longest of the other axes but the
        channels.
        """
        cut = max((i for i in range(x.ndim - 1) if i != axis), key=lambda i: x.shape[i])
        length = x.shape[cut]
        pieces = max(1, min(length, x.nbytes // _PIECE_BYTES))
        every = (slice(None),) * cut

        def piece(i: int) -> None:
            part = (*every, slice(length * i // pieces, length * (i + 1) // pieces))
            self._along(x[part], out[part], axis, w, boxes)

        if out.size:
            in_pieces(pieces, piece)

    def _along(self, x: Any, out: Any, axis: int, w: Window, boxes: Sequence[TapBox]) -> None:
        every = (slice(None),) * axis
        length = x.shape[axis]
        start, stop = -w.before, (w.count - 1) * w.stride + w.size - w.before
        if w.count == 1 and min(stop, length) > max(0, start):
            self._axis(x[(*every, slice(max(0, start), stop))], axis=axis, keepdims=True, out=out)
        elif w.size > _FEW and w.stride == w.size and start >= 0 and stop <= length:
            blocks = x[(*every, slice(start, stop))]
            blocks = blocks.reshape(*x.shape[:axis], w.count, w.size, *x.shape[axis + 1 :])
            self._axis(blocks, axis=axis + 1, out=out)
        elif w.size <= _FEW or len(boxes) * w.count <= (w.size.bit_length() + w.size.bit_count()) * (stop - start):
            self._taps(x, out, every, w, boxes)
        else:
            self._doubling(self._padded(x, axis, start, stop), out, axis, w)

    def _padded(self, x: Any, axis: int, start: int, stop: int) -> Any:
        """The range from start to stop of an axis, neutral outside of the input."""
        every, length = (slice(None),) * axis, x.shape[axis]
        if start >= 0 and stop <= length:
            return x[(*every, slice(start, stop))]
        padded = scratch.empty(self._xp, "pooled", [*x.shape[:axis], stop - start, *x.shape[axis + 1 :]], x.dtype)
        first, last = max(start, 0), min(stop, length)
        padded[(*every, slice(0, first - start))] = self._neutral
        padded[(*every, slice(first - start, last - start))] = x[(*every, slice(first, last))]
        padded[(*every, slice(last - start, None))] = self._neutral
        return padded

    def _taps(self, x: Any, out: Any, every: tuple[slice, ...], w: Window, boxes: Sequence[TapBox]) -> None:
        """Reduce one tap of all windows after the other."""
        begun = 0
        if len(boxes) > 1 and all(where == slice(0, w.count) for _, where, _ in boxes[:2]):
            (_, _, first), (_, _, second) = boxes[:2]
            self._pair(x[(*every, first)], x[(*every, second)], out=out)
            begun = 2
        else:
            out[...] = self._neutral
        for _, where, source in boxes[begun:]:
            part = out[(*every, where)]
            self._pair(part, x[(*every, source)], out=part)

    def _doubling(self, x: Any, out: Any, axis: int, w: Window) -> None:
        """Combine each window from runs of 1, 2, 4, … neighbours, according to the bits of its size."""
        every = (slice(None),) * axis
        span, begun, done, size = (w.count - 1) * w.stride + 1, False, 0, 1
        while True:
            if w.size & size:
                part = x[(*every, slice(done, done + span, w.stride))]
                if begun:
                    self._pair(out, part, out=out)
                else:
                    out[...] = part
                begun, done = True, done + size
            if done == w.size:
                return
            shape = [*x.shape[:axis], x.shape[axis] - size, *x.shape[axis + 1 :]]
            twice = scratch.empty(self._xp, f"pooling{size.bit_length() % 2}", shape, x.dtype)
            self._pair(x[(*every, slice(0, -size))], x[(*every, slice(size, None))], out=twice)
            x, size = twice, size * 2
