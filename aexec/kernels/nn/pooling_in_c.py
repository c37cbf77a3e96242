"""Max pools over two dimensions, and their gradients, by loops in C: one pass over the input for all taps of a window.

Next to read: `aexec/native`, `pooling_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import native
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.framework.waiting.intra_op import in_pieces
from aexec.kernels.common import windowing
from aexec.kernels.nn.depthwise import blocks
from aexec.kernels.nn.pooling import Layout

__all__ = ["add_max_pool_grad", "max_pool"]

# Windows of more taps overlap so much that the passes of `window_reduction.py` are faster.
_MOST_TAPS = 64
# Comparisons in a piece, about: half a millisecond.
_PIECE = 1 << 20


def _windows(x: Any, layout: Layout) -> tuple[int, ...] | None:
    """The windows as the loops take them; None if they do not, or should not."""
    if native.loops is None or x.ndim != 4 or layout.size > _MOST_TAPS or not native.are_single(x):
        return None
    return windowing.for_loops(layout.spec, x.shape)


def max_pool(x: Any, layout: Layout) -> Any:
    """The maximum of each window of `x` [n, h, w, c], at least the lowest finite number; NaN is ignored.

    None if there is no loop for these windows.
    """
    loops, windows = native.loops, _windows(x, layout)
    if loops is None or windows is None:
        return None
    channels, out = x.shape[3], np.empty(layout.output, x.dtype)
    if not out.size:  # there may be a million rows of nothing
        return out
    cuts = blocks(len(x), layout.spec, channels, _PIECE // layout.size)

    def piece(i: int) -> None:
        images, rows = cuts[i]
        for n in range(images.start, images.stop):
            loops.max_pool(x[n], out[n, rows], windows, channels, rows.start, rows.stop - rows.start)

    in_pieces(len(cuts), piece)
    return out


def add_max_pool_grad(x: Any, grad: Any, layout: Layout, out: Any) -> bool:
    """Write the gradient of each window to the first of its largest numbers in `out`, of the input's shape; zeros
    elsewhere.  A NaN that comes first stays.

    Returns False, and writes nothing, if there is no loop for these windows.
    """
    loops, windows = native.loops, _windows(x, layout)
    if loops is None or windows is None or not native.are_single(grad, out):
        return False
    if not grad.size:
        out[...] = 0
        return True
    channels, count = x.shape[3], layout.spec[0].count
    step = max(1, _PIECE // (layout.size * max(1, layout.spec[1].count * channels)))
    together = max(1, step // count)

    def piece(i: int) -> None:
        some = slice(i * together, (i + 1) * together)
        for image, slopes, target in zip(x[some], grad[some], out[some], strict=True):
            target[...] = 0
            for start in range(0, count, step):  # in turn, as windows may overlap
                check_wanted()
                rows = min(step, count - start)
                loops.max_pool_grad(image, slopes[start : start + rows], target, windows, channels, start, rows)

    in_pieces(-(-len(x) // together), piece)
    return True
