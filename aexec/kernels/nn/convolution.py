"""Convolution as matrix products: windows are copied row by row into a matrix, which BLAS multiplies.

For each output pixel the window over the padded input becomes one row of kernel size × channels numbers.  The copy
moves runs of kernel width × channels, which are contiguous in memory, and it goes block by block, so that the matrix
stays within a few megabytes however large the image is.  With stride 1, windows below each other share rows: then only
the runs are copied, once, and the products of the kernel's rows are added up.  A 1×1 kernel with stride 1 needs no copy
at all.  Any number of spatial dimensions is supported, channels last, with dilation, and with groups if the input has a
multiple of the filter's channels.  An `Epilogue`, elementwise operations after the convolution, is applied to each
block while it is in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any

from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.waiting.intra_op import at_once, in_pieces
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.common import windowing
from aexec.kernels.common.epilogue import Epilogue, apply_in_blocks
from aexec.kernels.common.products import matrix_product
from aexec.kernels.common.scratch import scratch
from aexec.kernels.nn import convolution_in_c
from aexec.kernels.nn.convolution_geometry import FILTER_SUMS, Geometry, turned_around

__all__ = ["TAP_NS", "backprop_filter", "backprop_input", "forward"]

# Overhead per position of the kernel in the gradient, in nanoseconds: calls of some NumPy functions.
TAP_NS = 5_000.0


def _gathered(xp: Any, view: Any) -> Any:
    """A contiguous copy of a view of windows."""
    out = scratch.empty(xp, "windows", view.shape, view.dtype)
    out[...] = view
    return out


def _rows(xp: Any, view: Any, spatial: int) -> Any:
    """A copy of a view [n, counts..., sizes..., c] of windows, as a matrix with one row per window.

    If a row of windows is longer than a row of one window, as in images of one channel, the copy goes position by
    position, for all windows at once: the columns of the matrix are then contiguous.
    """
    taps = prod(view.shape[spatial + 1 :])
    if view.shape[-2] * view.shape[-1] >= view.shape[spatial] or view.strides[spatial] != view.itemsize:
        return _gathered(xp, view).reshape(-1, taps)
    columns = view.transpose(*range(spatial + 1, view.ndim), *range(spatial + 1))
    return _gathered(xp, columns).reshape(taps, -1).T


def _window_views(xp: Any, x: Any, geometry: Geometry, part: windowing.Part) -> list[Any]:
    """Per group, the view [n, counts..., sizes..., channels of the group] of the windows of a part."""
    view = windowing.windows(xp, part.met(xp, x), part.spec)
    depth = geometry.filter_shape[-2]
    if geometry.groups == 1:
        return [view]
    return [view[..., g * depth : (g + 1) * depth] for g in range(geometry.groups)]


def _group_slices(geometry: Geometry) -> list[slice]:
    wide = geometry.filter_shape[-1] // geometry.groups
    return [slice(g * wide, (g + 1) * wide) for g in range(geometry.groups)]


def forward(xp: Any, x: Any, kernel: Any, geometry: Geometry, epilogue: Epilogue | None = None) -> Any:
    """Return the convolution of `x` with `kernel`, in their type; `epilogue` is applied to the result, in place."""
    shape = geometry.output_shape
    if not prod(shape) or not geometry.taps:
        out = xp.zeros(shape, x.dtype)
        apply_in_blocks(out, epilogue)
        return out
    if (geometry.is_matmul and geometry.groups == 1) or geometry.sampled is not None:
        matrix, pixels = kernel.reshape(geometry.taps, shape[-1]), _pixels(xp, x, geometry)
        return matrix_product(xp, pixels, matrix, epilogue).reshape(shape)
    made = convolution_in_c.forward(x, kernel, geometry, epilogue)
    if made is not None:
        return made
    matrix = kernel.reshape(geometry.taps, shape[-1])
    parts, convolve = geometry.parts, _convolve_rows if geometry.shares_rows else _convolve
    announce_scratch(geometry.part_elements * x.itemsize * at_once(len(parts)))
    out = xp.empty(shape, x.dtype)

    def piece(i: int) -> None:
        part = parts[i]
        target = out[part.images, part.rows].reshape(-1, shape[-1])
        convolve(xp, x, matrix, target, geometry, part)
        apply_in_blocks(target, epilogue, (part.images.start * shape[1] + part.rows.start) * prod(shape[2:-1]))

    in_pieces(len(parts), piece)
    return out


def _convolve(xp: Any, x: Any, matrix: Any, out: Any, geometry: Geometry, part: windowing.Part) -> None:
    """Write the products of the windows of a part with the kernel into `out` [pixels, filters]."""
    views = _window_views(xp, x, geometry, part)
    if geometry.groups == 1:
        # A part that is the whole output is cut by the product.
        product = partial(matrix_product, xp) if out.size == prod(geometry.output_shape) else xp.matmul
        product(_rows(xp, views[0], len(geometry.spec)), matrix, out=out)
        return
    for view, group in zip(views, _group_slices(geometry), strict=True):
        windows = _rows(xp, view, len(geometry.spec))
        out[:, group] = xp.matmul(windows, matrix[:, group])


def _convolve_rows(xp: Any, x: Any, matrix: Any, out: Any, geometry: Geometry, part: windowing.Part) -> None:
    """Like `_convolve`, if windows share rows: adds up the products of the kernel's rows with the runs that they
    cover.
    """
    first, rest = geometry.spec[0], geometry.spec[1:]
    kernel_rows = matrix.reshape(first.size, geometry.run, -1)
    width = prod(w.count for w in rest)
    count = part.spec[0].count * width
    product = scratch.empty(xp, "product", (count, out.shape[-1]), out.dtype)
    for number, image in enumerate(part.met(xp, x)):
        # Each row of the image as a separate image: [rows, counts..., sizes..., channels].
        runs = _gathered(xp, windowing.windows(xp, image, rest)).reshape(-1, geometry.run)
        target = out[number * count : (number + 1) * count]
        xp.matmul(runs[:count], kernel_rows[0], out=target)
        for at in range(1, first.size):
            skipped = at * first.dilation * width
            xp.matmul(runs[skipped : skipped + count], kernel_rows[at], out=product)
            target += product


def _pixels(xp: Any, x: Any, geometry: Geometry) -> Any:
    """The windows, if they are pixels, as a matrix [windows, channels]."""
    if geometry.sampled is not None:
        x = x[(slice(None), *geometry.sampled)]
        announce_scratch(x.nbytes)
    return xp.ascontiguousarray(x).reshape(-1, geometry.taps)


def backprop_filter(xp: Any, x: Any, grad: Any, geometry: Geometry) -> Any:
    """Gradient for the filter, from the input and the output's gradient."""
    if not prod(geometry.output_shape) or not geometry.taps:
        return xp.zeros(geometry.filter_shape, grad.dtype)
    if (geometry.is_matmul and geometry.groups == 1) or geometry.sampled is not None:
        flat = grad.reshape(-1, grad.shape[-1])
        return matrix_product(xp, _pixels(xp, x, geometry).T, flat).reshape(geometry.filter_shape)
    if geometry.swapped is not None:
        return xp.ascontiguousarray(turned_around(backprop_filter(xp, grad, x, geometry.swapped)))
    made = convolution_in_c.backprop_filter(x, grad, geometry)
    if made is not None:
        return made
    parts, groups = geometry.parts, _group_slices(geometry)
    # Separate sums, which are added in order.
    bounds = [len(parts) * i // FILTER_SUMS for i in range(FILTER_SUMS + 1)] if len(parts) > 1 else [0, 1]
    sums_at_once = at_once(len(bounds) - 1)
    elements = geometry.part_elements * sums_at_once
    # The sums, and their summands.
    elements += prod(geometry.filter_shape) * (len(bounds) - 1 + sums_at_once)
    announce_scratch(elements * grad.itemsize)
    sums = xp.zeros((len(bounds) - 1, geometry.taps, geometry.filter_shape[-1]), grad.dtype)
    product = matrix_product if len(parts) == 1 else _whole_product

    def piece(i: int) -> None:
        for part in parts[bounds[i] : bounds[i + 1]]:
            for view, group in zip(_window_views(xp, x, geometry, part), groups, strict=True):
                rows = grad[part.images, part.rows][..., group]
                windows = _rows(xp, view, len(geometry.spec))
                sums[i][:, group] += product(xp, windows.T, rows.reshape(-1, rows.shape[-1]))

    in_pieces(len(sums), piece)
    return sums.sum(axis=0).reshape(geometry.filter_shape)


def _whole_product(xp: Any, a: Any, b: Any) -> Any:
    """A product that is not cut, since it is itself a piece."""
    return xp.matmul(a, b)


def backprop_input(xp: Any, kernel: Any, grad: Any, geometry: Geometry) -> Any:
    """Gradient for the input, from the filter and the output's gradient."""
    shape, spec = geometry.input_shape, geometry.spec
    if not prod(geometry.output_shape) or not geometry.taps:
        return xp.zeros(shape, grad.dtype)
    matrix = kernel.reshape(geometry.taps, geometry.filter_shape[-1])
    if geometry.is_matmul and geometry.groups == 1:
        return matrix_product(xp, grad.reshape(-1, grad.shape[-1]), matrix.T).reshape(shape)
    if geometry.sampled is not None:
        out, flat = xp.zeros(shape, grad.dtype), grad.reshape(-1, grad.shape[-1])
        announce_scratch(len(flat) * shape[-1] * grad.itemsize)
        pixels = matrix_product(xp, flat, matrix.T)
        out[(slice(None), *geometry.sampled)] = pixels.reshape(*geometry.output_shape[:-1], shape[-1])
        return out
    if geometry.mirrored is not None:
        return forward(xp, grad, turned_around(kernel), geometry.mirrored)
    made = convolution_in_c.backprop_input(kernel, grad, geometry)
    if made is not None:
        return made
    padded_shape = [
        max(n + w.before + w.after, (w.count - 1) * w.stride + (w.size - 1) * w.dilation + 1)
        for n, w in zip(shape[1:-1], spec, strict=True)
    ]
    announce_scratch((geometry.part_elements + shape[0] * prod(padded_shape) * shape[-1]) * grad.itemsize)
    padded = xp.zeros((shape[0], *padded_shape, shape[-1]), grad.dtype)
    depth, sizes = geometry.filter_shape[-2], geometry.filter_shape[:-2]
    for g, group in enumerate(_group_slices(geometry)):
        weights = matrix[:, group].T
        target = padded[..., g * depth : (g + 1) * depth]
        for part in geometry.parts:
            rows = grad[part.images, part.rows][..., group]
            windows = matrix_product(xp, rows.reshape(-1, rows.shape[-1]), weights)
            _add_windows(xp, target, windows.reshape(*rows.shape[:-1], *sizes, depth), part, geometry)
    inside = tuple(slice(w.before, w.before + n) for n, w in zip(shape[1:-1], spec, strict=True))
    return padded[(slice(None), *inside)]


def _add_windows(xp: Any, padded: Any, windows: Any, part: windowing.Part, geometry: Geometry) -> None:
    """Add windows to the positions that they were cut from; several may overlap."""
    spans = [(part.rows.start, part.rows.stop), *[(0, w.count) for w in geometry.spec[1:]]]
    for tap in giving_way(_positions(geometry.filter_shape[:-2]), TAP_NS):
        where = [part.images]
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
