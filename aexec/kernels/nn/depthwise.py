"""Depthwise convolution: every channel has filters of its own.

There is no matrix product in it: the input, shifted to each position of the filter
window, is multiplied by that position's weights and added up, in blocks of output
rows small enough to stay in the cache.  Where a channel has one filter, `einsum` does
both in one go, and its inner loop is a stretch of several pixels, with their weights
repeated.
Next to read: `depthwise_conv_ops.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aexec.kernels.common import windowing
from aexec.kernels.common.epilogue import Epilogue

__all__ = ["blocks", "forward", "positions", "shifted"]

# Bytes of output worked on at once.
_BLOCK_BYTES = 1 << 18
# Numbers of an inner loop, about: it should be long, and what it needs stay in the first cache.
_STRETCH = 1024


def forward(xp: Any, x: Any, weights: Any, spec: Sequence[windowing.Window], epilogue: Epilogue | None = None) -> Any:
    """The convolution of `x` [n, h, w, c] with `weights` [h, w, c, m], in their type: [n, rows, cols, c × m].

    `epilogue` is done to the result, in place.
    """
    depth, times = weights.shape[2:]
    # With one filter each every number is written, else added to.
    make = xp.empty if times == 1 else xp.zeros
    out = make((x.shape[0], spec[0].count, spec[1].count, depth, times), x.dtype)
    if out.size and times == 1:
        _one_filter_each(xp, x, weights[..., 0], out[..., 0], spec, epilogue)
    elif out.size:
        _multiply_add(xp, windowing.pad(xp, x, spec), weights, out, spec, epilogue)
    return out.reshape(*out.shape[:3], depth * times)


def _finish(block: Any, out: Any, images: slice, rows: slice, epilogue: Epilogue | None) -> None:
    """Do the epilogue to a block of `out` [n, rows, cols, ...]."""
    if epilogue is not None:
        pixels = block.reshape(-1, block[0, 0, 0].size)
        first = (images.start * out.shape[1] + rows.start) * out.shape[2]
        epilogue(pixels, slice(first, first + len(pixels)))


def shifted(x: Any, spec: Sequence[windowing.Window], at: tuple[int, int], images: slice, rows: slice) -> Any:
    """The input pixels that filter position `at` meets for the output pixels of a block: [n, rows, cols, c]."""
    high, wide = spec
    top, left = at[0] * high.dilation, at[1] * wide.dilation
    return x[
        images,
        top + rows.start * high.stride : top + (rows.stop - 1) * high.stride + 1 : high.stride,
        left : left + (wide.count - 1) * wide.stride + 1 : wide.stride,
    ]


def blocks(batch: int, spec: Sequence[windowing.Window], bytes_per_pixel: int) -> Iterator[tuple[slice, slice]]:
    """Slices [images, rows] that cut the output into parts that stay in the cache; pixels of a part are neighbours."""
    rows = spec[0].count
    fit = max(1, _BLOCK_BYTES // max(1, spec[1].count * bytes_per_pixel))
    images = max(1, fit // max(1, rows))
    for n in range(0, batch, images):
        for r in range(0, rows, min(fit, rows)):
            yield slice(n, min(n + images, batch)), slice(r, min(r + fit, rows))


def positions(spec: Sequence[windowing.Window]) -> list[tuple[int, int]]:
    """The positions of the filter window, row by row."""
    return [(i, j) for i in range(spec[0].size) for j in range(spec[1].size)]


def _multiply_add(
    xp: Any, x: Any, weights: Any, out: Any, spec: Sequence[windowing.Window], epilogue: Epilogue | None
) -> None:
    """Add every position's products to `out` [n, rows, cols, c, m]."""
    for images, rows in blocks(out.shape[0], spec, out[0, 0, 0].nbytes):
        target = out[images, rows]
        product = xp.empty(target.shape, out.dtype)
        for at in positions(spec):
            pixels = shifted(x, spec, at, images, rows)
            target += xp.multiply(pixels[..., None], weights[at], out=product)
        _finish(target, out, images, rows, epilogue)


def _one_filter_each(
    xp: Any, x: Any, weights: Any, out: Any, spec: Sequence[windowing.Window], epilogue: Epilogue | None
) -> None:
    """Write the convolution of `x` (not padded) with `weights` [h, w, c] into `out` [n, rows, cols, c]."""
    high, wide = spec
    depth = x.shape[3]
    # Output pixels side by side meet input pixels side by side, unless there is a stride.
    pixels = max(1, min(wide.count, _STRETCH // depth)) if wide.stride == 1 else 1
    repeated = xp.repeat(weights[:, :, None], pixels, axis=2).reshape(high.size, wide.size, -1)
    whole = wide.count // pixels * pixels
    padded = _PaddedRows(xp, x, spec)
    for images, rows in blocks(out.shape[0], spec, out[0, 0, 0].nbytes):
        block, target = padded(images, rows), out[images, rows]
        for first, last, count in ((0, whole, pixels), (whole, wide.count, wide.count - whole)):
            if first == last:
                continue
            n, row, col, _ = block.strides
            shape = (*target.shape[:2], (last - first) // count, high.size, wide.size, count * depth)
            strides = (n, row * high.stride, col * wide.stride * count, row * high.dilation, col * wide.dilation)
            view = xp.lib.stride_tricks.as_strided(
                block[:, :, first * wide.stride :], shape, (*strides, block.itemsize)
            )
            stretch = target[:, :, first:last].reshape(*shape[:3], count * depth)
            xp.einsum("nrsijc,ijc->nrsc", view, repeated[:, :, : count * depth], out=stretch)
        _finish(target, out, images, rows, epilogue)


class _PaddedRows:
    """The input rows that a block of output rows meets, with padding around them, in a buffer that is used again."""

    def __init__(self, xp: Any, x: Any, spec: Sequence[windowing.Window]) -> None:
        self._xp, self._x, self._spec = xp, x, spec
        self._buffer: Any = None

    def __call__(self, images: slice, rows: slice) -> Any:
        (high, wide), x = self._spec, self._x
        first = rows.start * high.stride - high.before
        length = (rows.stop - rows.start - 1) * high.stride + (high.size - 1) * high.dilation + 1
        if not (high.before or high.after or wide.before or wide.after):
            return self._xp.ascontiguousarray(x[images, first : first + length])
        if self._buffer is None:  # The first block is the largest.
            width = x.shape[2] + wide.before + wide.after
            self._buffer = self._xp.zeros((images.stop - images.start, length, width, x.shape[3]), x.dtype)
        block = self._buffer[: images.stop - images.start, :length]
        start = min(max(-first, 0), length)
        stop = max(start, min(x.shape[1] - first, length))
        block[:, :start], block[:, stop:] = 0, 0
        block[:, start:stop, wide.before : wide.before + x.shape[2]] = x[images, first + start : first + stop]
        return block
