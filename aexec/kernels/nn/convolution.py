"""Convolution as matrix products: windows copied row by row into a matrix, then BLAS.

For each output pixel the window over the padded input becomes one row of
kernel size × channels numbers.  The copy moves runs of kernel width × channels,
which lie together in memory, and it goes block by block, so that the matrix stays
within a few megabytes however large the image is.  With stride 1, windows below each
other share rows: then only the runs are copied, once, and the products of the kernel's
rows are added up.  A 1×1 kernel with stride 1 needs no copy at all.  Works for any
number of spatial dimensions, channels last, with dilation, and with groups where the
input is a multiple as deep as the filter.  What follows a convolution element by
element (`Epilogue`) is done to each block while it is in the cache.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from aexec.kernels.common import windowing
from aexec.kernels.common.epilogue import Epilogue, apply_in_blocks

__all__ = ["Geometry", "backprop_filter", "backprop_input", "forward"]

# Bytes of the window matrix that is alive at once: large enough for BLAS, small enough for a cache.
_BLOCK_BYTES = 1 << 23
# Products of matrices smaller than this are better done as one: so long a run, so many windows per image.
_LEAST_RUN, _LEAST_WINDOWS = 128, 1024


@dataclass(frozen=True, slots=True)
class Geometry:
    """Everything about one convolution that does not depend on its data.

    Attributes:
        input_shape, filter_shape: [n, ..., c] and [..., c / groups, f].
        spec: the windows, one per spatial dimension.
    """

    input_shape: tuple[int, ...]
    filter_shape: tuple[int, ...]
    spec: tuple[windowing.Window, ...]

    @property
    def groups(self) -> int:
        return self.input_shape[-1] // self.filter_shape[-2]

    @property
    def taps(self) -> int:
        """Numbers in one window of one group."""
        return prod(self.filter_shape[:-1])

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (self.input_shape[0], *[w.count for w in self.spec], self.filter_shape[-1])

    @property
    def is_matmul(self) -> bool:
        """True if every window is one pixel, and every pixel one window."""
        return all(w.size == w.stride == 1 and not w.before and not w.after for w in self.spec)

    @property
    def run(self) -> int:
        """Numbers of one row of a window."""
        return prod(self.filter_shape[1:-1])

    @property
    def shares_rows(self) -> bool:
        """True if it pays to copy each row of the windows once, for all windows that have it."""
        first, windows = self.spec[0], prod(w.count for w in self.spec)
        long = self.run >= max(_LEAST_RUN, self.filter_shape[-1])
        many = self.input_shape[0] == 1 or windows >= _LEAST_WINDOWS
        return self.groups == 1 and first.stride == 1 and first.size > 1 and long and many


def _blocks(geometry: Geometry, itemsize: int) -> Iterator[tuple[slice, slice]]:
    """Slices [images, rows] that cut the output into parts whose window matrices are of bearable size.

    The pixels of each part follow one another.
    """
    images, rows = geometry.input_shape[0], geometry.spec[0].count
    bytes_per_row = prod(w.count for w in geometry.spec[1:]) * geometry.taps * itemsize
    fit = max(1, _BLOCK_BYTES // max(1, bytes_per_row))
    if fit >= rows:
        step = max(1, fit // max(1, rows))
        for i in range(0, images, step):
            yield (slice(i, min(i + step, images)), slice(0, rows))
        return
    for i in range(images):
        for r in range(0, rows, fit):
            yield (slice(i, i + 1), slice(r, min(r + fit, rows)))


class _Scratch(threading.local):
    """Memory that each thread keeps for what lives only during a call.

    Fresh memory of some hundred kilobytes costs page faults, which take longer than the copy into it.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    def empty(self, xp: Any, what: str, shape: Sequence[int], dtype: Any) -> Any:
        """An array to write to, valid until the thread asks for `what` again."""
        size = prod(shape) * dtype.itemsize
        if xp is not np or size > _BLOCK_BYTES:
            return xp.empty(shape, dtype)
        kept = self._kept.get(what)
        if kept is None or kept.size < size:
            kept = self._kept[what] = np.empty(size, np.uint8)
        return kept[:size].view(dtype).reshape(shape)


_scratch = _Scratch()


def _gathered(xp: Any, view: Any) -> Any:
    """A contiguous copy of a view of windows."""
    out = _scratch.empty(xp, "windows", view.shape, view.dtype)
    out[...] = view
    return out


def _padded(xp: Any, x: Any, geometry: Geometry) -> Any:
    return windowing.pad(xp, x, geometry.spec, empty=lambda shape, dtype: _scratch.empty(xp, "padded", shape, dtype))


def _window_views(xp: Any, x: Any, geometry: Geometry) -> list[Any]:
    """Per group, the view [n, counts..., sizes..., channels of the group] of the padded input."""
    view = windowing.windows(xp, _padded(xp, x, geometry), geometry.spec)
    depth = geometry.filter_shape[-2]
    if geometry.groups == 1:
        return [view]
    return [view[..., g * depth : (g + 1) * depth] for g in range(geometry.groups)]


def _group_slices(geometry: Geometry) -> list[slice]:
    wide = geometry.filter_shape[-1] // geometry.groups
    return [slice(g * wide, (g + 1) * wide) for g in range(geometry.groups)]


def forward(xp: Any, x: Any, kernel: Any, geometry: Geometry, epilogue: Epilogue | None = None) -> Any:
    """The convolution of `x` with `kernel`, in their type; `epilogue` is done to the result, in place."""
    shape = geometry.output_shape
    if not prod(shape) or not geometry.taps:
        out = xp.zeros(shape, x.dtype)
        apply_in_blocks(out, epilogue)
        return out
    matrix = kernel.reshape(geometry.taps, shape[-1])
    if geometry.is_matmul and geometry.groups == 1:
        out = xp.matmul(x.reshape(-1, geometry.taps), matrix).reshape(shape)
        apply_in_blocks(out, epilogue)
        return out
    out = xp.empty(shape, x.dtype)
    if geometry.shares_rows:
        _add_kernel_rows(xp, x, kernel, out, geometry, epilogue)
        return out
    views, groups = _window_views(xp, x, geometry), _group_slices(geometry)
    for block in _blocks(geometry, x.dtype.itemsize):
        target = out[block]
        for view, part in zip(views, groups, strict=True):
            windows = _gathered(xp, view[block]).reshape(-1, geometry.taps)
            if geometry.groups == 1:
                xp.matmul(windows, matrix, out=target.reshape(-1, target.shape[-1]))
            else:
                weights = matrix[:, part]
                target[..., part] = xp.matmul(windows, weights).reshape(*target.shape[:-1], weights.shape[1])
        if epilogue is not None:
            first = _pixel(geometry, block)
            flat = target.reshape(-1, shape[-1])
            epilogue(flat, slice(first, first + len(flat)))
    return out


def _pixel(geometry: Geometry, block: tuple[slice, slice]) -> int:
    """The number of a block's first pixel in the whole output."""
    images, rows = block
    first, *rest = (w.count for w in geometry.spec)
    number: int = (images.start * first + rows.start) * prod(rest)
    return number


def _add_kernel_rows(
    xp: Any, x: Any, kernel: Any, out: Any, geometry: Geometry, epilogue: Epilogue | None = None
) -> None:
    """Put into `out` the sum of the products of the kernel's rows with the runs of the input that they meet."""
    first, rest = geometry.spec[0], geometry.spec[1:]
    kernel_rows = kernel.reshape(first.size, geometry.run, geometry.filter_shape[-1])
    width = prod(w.count for w in rest)
    halo = (first.size - 1) * first.dilation
    # A block copies `halo` rows of its neighbour: it should have some more of its own.
    fit = max(1, 2 * halo, _BLOCK_BYTES // (width * geometry.run * x.dtype.itemsize) - halo)
    product = _scratch.empty(xp, "product", (min(fit, first.count) * width, out.shape[-1]), out.dtype)
    for number, (image, target) in enumerate(zip(_padded(xp, x, geometry), out, strict=True)):
        # Each row of the image as a picture of its own: [rows, counts..., sizes..., channels].
        view = windowing.windows(xp, image, rest)
        for start in range(0, first.count, fit):
            part = target[start : start + fit].reshape(-1, target.shape[-1])
            rows = len(part) // width
            runs = _gathered(xp, view[start : start + rows + halo]).reshape(-1, geometry.run)
            xp.matmul(runs[: len(part)], kernel_rows[0], out=part)
            for at in range(1, first.size):
                skipped = at * first.dilation * width
                xp.matmul(runs[skipped : skipped + len(part)], kernel_rows[at], out=product[: len(part)])
                part += product[: len(part)]
            if epilogue is not None:
                pixel = (number * first.count + start) * width
                epilogue(part, slice(pixel, pixel + len(part)))


def backprop_filter(xp: Any, x: Any, grad: Any, geometry: Geometry) -> Any:
    """Gradient for the filter, from the input and the output's gradient."""
    matrix = xp.zeros((geometry.taps, geometry.filter_shape[-1]), grad.dtype)
    if not prod(geometry.output_shape) or not geometry.taps:
        return matrix.reshape(geometry.filter_shape)
    if geometry.is_matmul and geometry.groups == 1:
        flat = grad.reshape(-1, grad.shape[-1])
        return xp.matmul(x.reshape(-1, geometry.taps).T, flat).reshape(geometry.filter_shape)
    for view, part in zip(_window_views(xp, x, geometry), _group_slices(geometry), strict=True):
        for block in _blocks(geometry, x.dtype.itemsize):
            rows = grad[block][..., part]
            windows = _gathered(xp, view[block]).reshape(-1, geometry.taps)
            matrix[:, part] += xp.matmul(windows.T, rows.reshape(-1, rows.shape[-1]))
    return matrix.reshape(geometry.filter_shape)


def backprop_input(xp: Any, kernel: Any, grad: Any, geometry: Geometry) -> Any:
    """Gradient for the input, from the filter and the output's gradient."""
    shape, spec = geometry.input_shape, geometry.spec
    if not prod(geometry.output_shape) or not geometry.taps:
        return xp.zeros(shape, grad.dtype)
    matrix = kernel.reshape(geometry.taps, geometry.filter_shape[-1])
    if geometry.is_matmul and geometry.groups == 1:
        return xp.matmul(grad.reshape(-1, grad.shape[-1]), matrix.T).reshape(shape)
    mirrored = _mirrored(geometry)
    if mirrored is not None:
        turned = kernel[(slice(None, None, -1),) * len(spec)].swapaxes(-1, -2)
        return forward(xp, grad, turned, mirrored)
    padded_shape = [
        max(n + w.before + w.after, (w.count - 1) * w.stride + (w.size - 1) * w.dilation + 1)
        for n, w in zip(shape[1:-1], spec, strict=True)
    ]
    padded = xp.zeros((shape[0], *padded_shape, shape[-1]), grad.dtype)
    depth, sizes = geometry.filter_shape[-2], geometry.filter_shape[:-2]
    for g, part in enumerate(_group_slices(geometry)):
        weights = matrix[:, part].T
        target = padded[..., g * depth : (g + 1) * depth]
        for block in _blocks(geometry, grad.dtype.itemsize):
            rows = grad[block][..., part]
            windows = xp.matmul(rows.reshape(-1, rows.shape[-1]), weights)
            _add_windows(xp, target, windows.reshape(*rows.shape[:-1], *sizes, depth), block, geometry)
    inside = tuple(slice(w.before, w.before + n) for n, w in zip(shape[1:-1], spec, strict=True))
    return padded[(slice(None), *inside)]


def _mirrored(geometry: Geometry) -> Geometry | None:
    """The convolution of the output's gradient, with the kernel turned around, that gives the input's gradient.

    None where there is none so simple: strides, groups, padding that no window needs.
    """
    lengths = geometry.input_shape[1:-1]
    spec = []
    for w, length in zip(geometry.spec, lengths, strict=True):
        reach = (w.size - 1) * w.dilation
        before = reach - w.before
        after = length + reach - before - w.count
        if w.stride != 1 or before < 0 or after < 0:
            return None
        spec.append(replace(w, count=length, before=before, after=after))
    *sizes, depth, filters = geometry.filter_shape
    if geometry.groups != 1:
        return None
    return Geometry(geometry.output_shape, (*sizes, filters, depth), tuple(spec))


def _add_windows(xp: Any, padded: Any, windows: Any, block: tuple[Any, ...], geometry: Geometry) -> None:
    """Add windows back to where they were cut from; several may overlap."""
    images, rows = block
    first, last, _ = rows.indices(geometry.spec[0].count)
    spans = [(first, last), *[(0, w.count) for w in geometry.spec[1:]]]
    for tap in _positions(geometry.filter_shape[:-2]):
        where = [images]
        for at, (start, stop), w in zip(tap, spans, geometry.spec, strict=True):
            origin = at * w.dilation
            where.append(slice(origin + start * w.stride, origin + (stop - 1) * w.stride + 1, w.stride))
        target = padded[tuple(where)]
        target += windows[(Ellipsis, *tap, slice(None))]


def _positions(sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if not sizes:
        yield ()
        return
    for at in range(sizes[0]):
        for rest in _positions(sizes[1:]):
            yield (at, *rest)
