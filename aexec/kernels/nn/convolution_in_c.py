"""Convolutions over two dimensions, and their gradients, by loops in C.

`convolution.py` copies windows into a matrix and calls BLAS, which copies matrix and kernel once more into tiles.  The
loop copies them once, into tiles right away.  So it is faster, unless the rows of windows are short or windows are
single pixels.  The input's gradient, if it is no convolution itself, is a product by BLAS whose rows are windows, which
C adds up; and so is a convolution with few filters, for windows of the output are then smaller than those of the input.
Next to read: `aexec/native/loops.h`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from aexec import native
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.framework.waiting.intra_op import at_once, in_pieces
from aexec.kernels.common import windowing
from aexec.kernels.common.epilogue import Epilogue, apply_in_blocks
from aexec.kernels.common.products import matrix_product
from aexec.kernels.common.scratch import scratch
from aexec.kernels.nn.convolution_geometry import FILTER_SUMS, Geometry, turned_around
from aexec.kernels.nn.depthwise import blocks

__all__ = ["backprop_filter", "backprop_input", "forward"]

# The least numbers in a row of a window: shorter ones take longer to copy than to multiply.
_LEAST_RUN = 16
# Multiply-adds of a piece, about; and the least pixels of one, for which the kernel is copied.
_PIECE, _LEAST_PIXELS = 1 << 25, 48
# Bytes of the windows of an image that are made at a time, so that they stay in a core's caches; for small images the
# least windows of several together, as BLAS copies the kernel for each product, and the most bytes of these.
_WINDOWS_BYTES, _LEAST_WINDOWS, _MOST_WINDOWS_BYTES = 1 << 19, 256, 1 << 22
# The strips of images to share, if there are fewer images.
_LEAST_STRIPS = 4
# The most multiply-adds for one row of the output.
_MOST_OF_ROW = 1 << 28
# Bytes of all sums of a filter's gradient together, unless two take more.
_SUMS_BYTES = 1 << 24


def _windows(geometry: Geometry) -> tuple[int, ...] | None:
    """The windows as the loops take them; None if they do not, or should not."""
    if native.loops is None or native.loops.INSTRUCTIONS == "plain" or not geometry.on_host:
        return None
    if len(geometry.spec) != 2 or geometry.groups != 1 or geometry.is_matmul or geometry.run < _LEAST_RUN:
        return None
    if geometry.spec[1].count * geometry.taps * geometry.filter_shape[-1] > _MOST_OF_ROW:
        return None
    return windowing.for_loops(geometry.spec, geometry.input_shape)


def _cuts(geometry: Geometry) -> list[tuple[slice, slice]]:
    """Pieces of the output: images, and rows."""
    filters = geometry.filter_shape[-1]
    fit = max(_LEAST_PIXELS, _PIECE // (geometry.taps * filters))
    return blocks(geometry.input_shape[0], geometry.spec, filters, fit * filters)


def _scratch(loops: Any) -> Any:
    return scratch.empty(np, "convolution", (loops.WINDOW_SCRATCH,), np.dtype(np.float32))


def forward(x: Any, kernel: Any, geometry: Geometry, epilogue: Epilogue | None) -> Any:
    """`convolution.forward` for an output that is not empty; None if there is no loop for it."""
    if geometry.swapped is not None:
        made = backprop_input(turned_around(kernel), x, geometry.swapped)
        if made is not None:
            apply_in_blocks(made, epilogue)
            return made
    loops, windows = native.loops, _windows(geometry)
    if loops is None or windows is None or not native.are_single(x) or kernel.dtype != x.dtype:
        return None
    cuts, (_, rows, columns, filters) = _cuts(geometry), geometry.output_shape
    announce_scratch(loops.WINDOW_SCRATCH * x.itemsize * at_once(len(cuts)))
    if not kernel.flags.c_contiguous:
        announce_scratch(kernel.nbytes)
        kernel = np.ascontiguousarray(kernel)
    out, depth = np.empty(geometry.output_shape, x.dtype), x.shape[-1]

    def piece(i: int) -> None:
        images, part = cuts[i]
        size = part.stop - part.start
        for n in range(images.start, images.stop):
            loops.convolve(x[n], kernel, out[n, part], _scratch(loops), windows, depth, filters, part.start, size)
        apply_in_blocks(out[images, part], epilogue, (images.start * rows + part.start) * columns)

    in_pieces(len(cuts), piece)
    return out


def backprop_filter(x: Any, grad: Any, geometry: Geometry) -> Any:
    """`convolution.backprop_filter` for a filter and an output that are not empty; None if there is no loop for it."""
    loops, windows = native.loops, _windows(geometry)
    if loops is None or windows is None or not native.are_single(x, grad):
        return None
    cuts, size = _cuts(geometry), prod(geometry.filter_shape)
    # Separate sums, which are added in order.
    count = min(FILTER_SUMS, len(cuts), max(2, _SUMS_BYTES // (size * x.itemsize)))
    bounds = [len(cuts) * i // count for i in range(count + 1)]
    announce_scratch((size * count + loops.WINDOW_SCRATCH * at_once(count)) * x.itemsize)
    sums = np.zeros((count, *geometry.filter_shape), x.dtype)
    depth, filters = geometry.filter_shape[-2:]

    def piece(i: int) -> None:
        for images, part in cuts[bounds[i] : bounds[i + 1]]:
            for n in range(images.start, images.stop):
                check_wanted()
                rows = part.stop - part.start
                loops.filter_gradient(
                    x[n], grad[n, part], sums[i], _scratch(loops), windows, depth, filters, part.start, rows
                )

    in_pieces(count, piece)
    return sums[0] if count == 1 else sums.sum(axis=0)


def backprop_input(kernel: Any, grad: Any, geometry: Geometry) -> Any:
    """`convolution.backprop_input` for a filter and an output that are not empty; None if there is no loop for it."""
    loops = native.loops
    if loops is None or not geometry.on_host or len(geometry.spec) != 2 or geometry.groups != 1:
        return None
    strips = _strips(geometry)
    if not strips or not native.are_single(grad) or kernel.dtype != grad.dtype:
        return None
    (images, rows, columns, filters), depth, taps = geometry.output_shape, geometry.input_shape[-1], geometry.taps
    if columns * taps * filters > _MOST_OF_ROW:
        return None
    step = max(1, min(rows, _WINDOWS_BYTES // (columns * taps * grad.itemsize)))
    fit = max(1, _MOST_WINDOWS_BYTES // (rows * columns * taps * grad.itemsize))
    together = 1 if step < rows else min(images, fit, -(-_LEAST_WINDOWS // (rows * columns)))
    pieces = [(i, strip) for i in range(0, images, together) for strip in strips]
    announce_scratch(together * step * columns * taps * grad.itemsize * at_once(len(pieces)))
    weights, out = kernel.reshape(taps, filters).T, np.zeros(geometry.input_shape, grad.dtype)
    product = np.matmul if len(pieces) > 1 else partial(matrix_product, np)

    def piece(number: int) -> None:
        first, strip = pieces[number]
        some, part = range(first, min(images, first + together)), strip.windows
        for row in range(part.start, part.stop, step):
            check_wanted()
            slopes = grad[some.start : some.stop, row : min(row + step, part.stop)]
            shape = (*slopes.shape[:2], columns, taps)
            values = scratch.empty(np, "convolution windows", shape, grad.dtype)
            product(slopes.reshape(-1, filters), weights, out=values.reshape(-1, taps))
            for n, added in zip(some, values, strict=True):
                loops.add_windows(added, out[n, strip.rows], strip.layout, depth, row, slopes.shape[1])

    in_pieces(len(pieces), piece)
    return out


class _Strip(NamedTuple):
    """Some rows of an image to whose gradient windows are added.

    Attributes:
        rows: of the image.
        windows: the rows of windows that meet them.
        layout: the windows over these rows alone, as the loops take them.
    """

    rows: slice
    windows: slice
    layout: tuple[int, ...]


def _strips(geometry: Geometry) -> list[_Strip]:
    """Strips of an image; more than one if images are few and long, though windows that meet two are made twice."""
    height, first = geometry.input_shape[1], geometry.spec[0]
    reach = (first.size - 1) * first.dilation
    count = max(1, min(_LEAST_STRIPS // geometry.input_shape[0], height // (4 * reach + 1)))
    strips = []
    for i in range(count):
        top, bottom = height * i // count, height * (i + 1) // count
        start = min(first.count, max(0, -(-(top + first.before - reach) // first.stride)))
        stop = max(start, min(first.count, (bottom - 1 + first.before) // first.stride + 1))
        spec = (replace(first, before=first.before + top), *geometry.spec[1:])
        layout = windowing.for_loops(spec, (1, bottom - top, *geometry.input_shape[2:]))
        if layout is None:
            return []
        strips.append(_Strip(slice(top, bottom), slice(start, stop), layout))
    return strips
