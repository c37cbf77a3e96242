"""Depthwise convolution: every channel has its own filters.

It has no matrix product.  The input, shifted to each position of the filter window, is multiplied by that position's
weights and added up, in blocks of output rows that are small enough to stay in the cache.  `einsum` multiplies and adds
in one loop, over several pixels at once, with their weights repeated.  If a channel has several filters, the block's
input repeats the channel as often.
Next to read: `depthwise_conv_ops.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from aexec import native
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.framework.waiting.intra_op import at_once, in_pieces
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.common import windowing
from aexec.kernels.common.epilogue import Epilogue, apply_in_blocks
from aexec.kernels.common.scratch import scratch
from aexec.kernels.nn.convolution_geometry import FILTER_SUMS

__all__ = ["POSITION_NS", "backprop_filter", "blocks", "forward", "positions", "shifted"]

# Overhead per position of a window, in nanoseconds: calls of some NumPy functions.
POSITION_NS = 10_000.0

# Bytes of output that are computed at once.
_BLOCK_BYTES = 1 << 18
# Multiplications that one call of NumPy is given, about: it runs to its end, and takes some nanoseconds for each.
_AT_ONCE = 1 << 25
# The approximate length of an inner loop: it should be long, and its data stay in the first-level cache.
_STRETCH = 1024


def forward(xp: Any, x: Any, weights: Any, spec: Sequence[windowing.Window], epilogue: Epilogue | None = None) -> Any:
    """Return the convolution of `x` [n, h, w, c] with `weights` [h, w, c, m], in their type: [n, rows, cols, c × m].

    `epilogue` is applied to the result, in place.
    """
    depth, times = weights.shape[2:]
    rows, cols = (w.count for w in spec)
    out = xp.empty((len(x), rows, cols, depth * times), x.dtype)
    if not out.size or not weights.size:
        out[...] = 0
        apply_in_blocks(out, epilogue)
        return out
    if times == 1 and native.loops is not None and native.are_single(x, out, weights):
        windows = windowing.for_loops(tuple(spec), x.shape)
        if windows is not None and cols * depth * spec[0].size * spec[1].size <= _AT_ONCE:
            _in_c(native.loops, x, weights, out, spec, windows, epilogue)
            return out
    parts = _parts(tuple(spec), x.shape, depth * times, out.itemsize, _BLOCK_BYTES)
    copied = parts[0].met_elements + (parts[0].elements * times if times > 1 else 0)
    announce_scratch(copied * out.itemsize * at_once(len(parts)))
    repeated = _repeated(xp, weights.reshape(*weights.shape[:2], depth * times), spec[1])

    def piece(i: int) -> None:
        part = parts[i]
        target, source = out[part.images, part.rows], part.met(xp, x)
        if times > 1:
            source = _several(xp, source, times)
        _one_filter_each(xp, xp.ascontiguousarray(source), repeated, target, spec)
        apply_in_blocks(target, epilogue, (part.images.start * rows + part.rows.start) * cols)

    in_pieces(len(parts), piece)
    return out


def _in_c(
    loops: Any,
    x: Any,
    weights: Any,
    out: Any,
    spec: Sequence[windowing.Window],
    windows: tuple[int, ...],
    epilogue: Epilogue | None,
) -> None:
    """The work of `forward` by a loop in C, which needs no copies of the input."""
    rows, cols, depth = out.shape[1:]
    at_once = _AT_ONCE // (spec[0].size * spec[1].size) * out.itemsize
    cuts = blocks(len(x), spec, depth * out.itemsize, min(_BLOCK_BYTES, at_once))

    def piece(i: int) -> None:
        images, part = cuts[i]
        for n in range(images.start, images.stop):
            loops.depthwise(x[n], weights, out[n, part], windows, depth, part.start, part.stop - part.start)
        apply_in_blocks(out[images, part], epilogue, (images.start * rows + part.start) * cols)

    in_pieces(len(cuts), piece)


def backprop_filter(x: Any, grad: Any, size: tuple[int, ...], spec: Sequence[windowing.Window]) -> Any:
    """Gradient [h, w, c, 1] of weights of this size, from `x` [n, h, w, c] and the gradient of an output that is not
    empty; None if there is no loop in C for it.
    """
    loops, depth = native.loops, size[2]
    if loops is None or size[3] != 1 or not native.are_single(x, grad):
        return None
    windows, taps = windowing.for_loops(tuple(spec), x.shape), spec[0].size * spec[1].size
    if windows is None or spec[1].count * depth * taps > _AT_ONCE:
        return None
    cuts = blocks(len(x), spec, depth * grad.itemsize, min(_BLOCK_BYTES, _AT_ONCE // taps * grad.itemsize))
    # Separate sums, which are added in order.
    count = min(FILTER_SUMS, len(cuts))
    bounds = [len(cuts) * i // count for i in range(count + 1)]
    sums = np.zeros((count, *size), x.dtype)
    announce_scratch(sums.nbytes)

    def piece(i: int) -> None:
        for images, part in cuts[bounds[i] : bounds[i + 1]]:
            for n in range(images.start, images.stop):
                check_wanted()
                rows = part.stop - part.start
                loops.depthwise_gradient(x[n], grad[n, part], sums[i], windows, depth, part.start, rows)

    in_pieces(count, piece)
    return sums.sum(axis=0)


@lru_cache(256)
def _parts(
    spec: tuple[windowing.Window, ...], shape: tuple[int, ...], channels: int, itemsize: int, limit: int
) -> list[windowing.Part]:
    cuts = blocks(shape[0], spec, channels * itemsize, limit, windowing.images_together(spec, channels, itemsize))
    return [windowing.Part(spec, shape, *block) for block in cuts]


def _several(xp: Any, x: Any, times: int) -> Any:
    """Each channel repeated `times` times: as often as it has filters."""
    wide = scratch.empty(xp, "several", (*x.shape, times), x.dtype)
    wide[...] = x[..., None]
    return wide.reshape(*x.shape[:-1], -1)


def _repeated(xp: Any, weights: Any, wide: windowing.Window) -> Any:
    """The weights [h, w, c] as [h, w, pixels × c], for several output pixels side by side.

    With stride 1 these meet input pixels side by side.
    """
    high, size, depth = weights.shape
    fit = min(_STRETCH // depth, windowing.MOST_BYTES // weights.nbytes)
    pixels = max(1, min(wide.count, fit)) if wide.stride == 1 else 1
    return weights if pixels == 1 else xp.repeat(weights[:, :, None], pixels, axis=2).reshape(high, size, -1)


def shifted(x: Any, spec: Sequence[windowing.Window], at: tuple[int, int], images: slice, rows: slice) -> Any:
    """The input pixels under filter position `at` for the output pixels of a block: [n, rows, cols, c]."""
    high, wide = spec
    top, left = at[0] * high.dilation, at[1] * wide.dilation
    return x[
        images,
        top + rows.start * high.stride : top + (rows.stop - 1) * high.stride + 1 : high.stride,
        left : left + (wide.count - 1) * wide.stride + 1 : wide.stride,
    ]


def blocks(
    batch: int,
    spec: Sequence[windowing.Window],
    bytes_per_pixel: int,
    limit: int = _BLOCK_BYTES,
    together: int = 1 << 30,
) -> list[tuple[slice, slice]]:
    """Slices [images, rows] that cut the output into parts that stay in the cache; the pixels of a part are contiguous.

    The output must have elements: otherwise the number of its rows says nothing of its size.

    Args:
        together: the most images in a part.
    """
    rows = spec[0].count
    fit = max(1, limit // max(1, spec[1].count * bytes_per_pixel))
    if fit >= rows:
        step = min(together, fit // max(1, rows))
        return [(slice(n, min(n + step, batch)), slice(0, rows)) for n in range(0, batch, step)]
    parts = -(-rows // fit)
    cuts = [slice(rows * i // parts, rows * (i + 1) // parts) for i in range(parts)]
    return [(slice(n, n + 1), cut) for n in range(batch) for cut in cuts]


def positions(spec: Sequence[windowing.Window]) -> Iterator[tuple[int, int]]:
    """Yield the positions of the filter window, row by row; other threads get a turn in between, and cancellation ends
    it.
    """
    return giving_way(product(range(spec[0].size), range(spec[1].size)), POSITION_NS)


def _one_filter_each(xp: Any, x: Any, repeated: Any, out: Any, spec: Sequence[windowing.Window]) -> None:
    """Write the convolution of `x`, the part's padded input, with `repeated` [h, w, pixels × c] into `out` [n, rows,
    cols, c].
    """
    high, wide = spec
    depth = x.shape[3]
    pixels = repeated.shape[2] // depth
    whole = wide.count // pixels * pixels
    n, row, col, _ = x.strides
    for first, last, count in ((0, whole, pixels), (whole, wide.count, wide.count - whole)):
        if first == last:
            continue
        shape = (*out.shape[:2], (last - first) // count, high.size, wide.size, count * depth)
        strides = (n, row * high.stride, col * wide.stride * count, row * high.dilation, col * wide.dilation)
        if xp is np:
            # Does the same as `as_strided` in a tenth of the time.
            view = np.ndarray(shape, x.dtype, x, first * wide.stride * col, (*strides, x.itemsize))
        else:
            view = xp.lib.stride_tricks.as_strided(x[:, :, first * wide.stride :], shape, (*strides, x.itemsize))
        stretch = out[:, :, first:last].reshape(*shape[:3], count * depth)
        _sum_over_window(xp, view, repeated[:, :, : count * depth], stretch)


def _sum_over_window(xp: Any, view: Any, weights: Any, out: Any) -> None:
    """Write the sum over the window of `view` [n, rows, cols, h, w, c] times `weights` [h, w, c] into `out`."""
    high, wide, _ = weights.shape
    if out.size * high * wide <= _AT_ONCE:
        if xp is np:
            np.einsum("nrsijc,ijc->nrsc", view, weights, out=out)
        else:
            out[...] = xp.einsum("nrsijc,ijc->nrsc", view, weights)
        return
    cols = max(1, min(wide, _AT_ONCE // out.size))
    rows = max(1, _AT_ONCE // (out.size * cols))
    out[...] = 0
    for i, j in product(range(0, high, rows), range(0, wide, cols)):
        check_wanted()
        window = view[:, :, :, i : i + rows, j : j + cols], weights[i : i + rows, j : j + cols]
        out += xp.einsum("nrsijc,ijc->nrsc", *window)
