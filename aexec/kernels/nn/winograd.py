"""3×3 convolutions with 16 products instead of 36 multiply-adds: Winograd's F(2×2, 3×3).

Four outputs, two by two, need four by four inputs.  Inputs and kernel are each transformed into 16 sums; each pair of
sums gives one product of matrices of channels, and the four outputs are sums of the products: 2¼ times fewer
multiplications.  The kernel is transformed once.  All factors are 0, 1 and ½, so the result is as close to the exact
one as that of a plain convolution.  But it differs in its last bits, and an infinity or a NaN in the input spreads to
all four outputs of its squares. The graph pass `winograd` marks nodes for it.  Next to read: `convolution.py`, which
computes all other convolutions.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from aexec.framework.waiting.intra_op import in_pieces
from aexec.kernels.common.epilogue import Epilogue, apply_in_blocks
from aexec.kernels.common.scratch import scratch
from aexec.kernels.nn.convolution_geometry import Geometry

__all__ = ["forward", "in_panels", "pays", "turned"]

# With fewer channels, or multiply-adds of the plain convolution, the sums take longer than the multiplications that
# they save; with fewer squares, reading the 16 kernels does, which is faster if BLAS need not copy them.
_LEAST_CHANNELS, _LEAST_STEPS = 32, 6_000_000
_LEAST_SQUARES, _LEAST_IN_PANELS = 32, 16
# The most outputs that are computed and dropped for each that is needed, because a side is odd.
_WASTE = 0.35
# The approximate bytes of a part's transformed input, most of which stays in a core's second-level cache.
_PART_BYTES = 1 << 20
# Products with fewer rows cost more, as BLAS copies the kernel for each.
_LEAST_ROWS = 96
# Filters of a panel, and the least filters that a thread takes if there is one part only.
_PANEL = 64
# OpenBLAS multiplies matrices without copying them up to this many multiply-adds.
_SMALL_PRODUCT = 1_000_000

_KERNEL = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float32)


def pays(geometry: Geometry) -> bool:
    """True if it is possible and faster than `convolution.forward`; depends on the shapes only."""
    if len(geometry.spec) != 2 or geometry.groups != 1 or min(geometry.filter_shape[2:]) < _LEAST_CHANNELS:
        return False
    if any((w.size, w.stride, w.dilation) != (3, 1, 1) or w.before < 0 for w in geometry.spec):
        return False
    squares, outputs = _squares(geometry), prod(geometry.output_shape[:3])
    if outputs * prod(geometry.filter_shape) < _LEAST_STEPS or 4 * squares > (1 + _WASTE) * outputs:
        return False
    return squares >= (_LEAST_IN_PANELS if in_panels(geometry) else _LEAST_SQUARES)


def in_panels(geometry: Geometry) -> bool:
    """True if the kernel's filters are stored in panels.

    To copy a kernel, as BLAS does, takes longer than its product with few squares.
    """
    depth, filters = geometry.filter_shape[2:]
    return filters % _PANEL == 0 and _squares(geometry) * depth * _PANEL <= _SMALL_PRODUCT


def turned(kernel: Any, panels: bool) -> Any:
    """Transform a kernel [3, 3, c, f] to the 16 matrices that `forward` takes: [16, c, f], or [16, f / 64, c, 64] in
    panels.
    """
    rows = np.tensordot(_KERNEL, kernel, (1, 0))
    both = np.tensordot(_KERNEL, rows, (1, 1)).swapaxes(0, 1).reshape(16, *kernel.shape[2:])
    if panels:
        both = both.reshape(16, kernel.shape[2], -1, _PANEL).swapaxes(1, 2)
    return np.ascontiguousarray(both)


def forward(x: Any, kernel: Any, geometry: Geometry, epilogue: Epilogue | None = None) -> Any:
    """Return the convolution of a float32 array with a `turned` kernel; `epilogue` is applied to it, in place.

    The output is cut into parts of squares; if there is only one, as there is with panels, its products are cut by
    filters.
    """
    out = np.empty(geometry.output_shape, x.dtype)
    high, wide, filters = geometry.output_shape[1:]
    parts = _parts(geometry)
    if len(parts) == 1:
        squares = _turned_input(x, geometry, *parts[0])
        pieces = max(1, filters // _PANEL)
        cuts = [slice(filters * i // pieces, filters * (i + 1) // pieces) for i in range(pieces)]
        kernels = [kernel[:, :, cut] for cut in cuts] if kernel.ndim == 3 else kernel.swapaxes(0, 1)
        in_pieces(pieces, lambda i: _put_outputs(squares, kernels[i], out[..., cuts[i]]))
        apply_in_blocks(out, epilogue)
        return out

    def piece(i: int) -> None:
        images, rows = parts[i]
        target = out[images, 2 * rows.start : 2 * rows.stop]
        _put_outputs(_turned_input(x, geometry, images, rows), kernel, target)
        apply_in_blocks(target, epilogue, (images.start * high + 2 * rows.start) * wide)

    in_pieces(len(parts), piece)
    return out


def _squares(geometry: Geometry) -> int:
    images, high, wide, _ = geometry.output_shape
    return images * _half(high) * _half(wide)


def _half(n: int) -> int:
    return (n + 1) // 2


def _parts(geometry: Geometry) -> list[tuple[slice, slice]]:
    """Slices of images and of rows of squares, whose outputs are contiguous."""
    images, high, wide, _ = geometry.output_shape
    rows, width = _half(high), _half(wide)
    fit = max(_LEAST_ROWS, _PART_BYTES // (16 * 4 * geometry.filter_shape[2]))
    if rows * width <= fit:
        step = fit // (rows * width)
        return [(slice(i, min(i + step, images)), slice(0, rows)) for i in range(0, images, step)]
    parts = min(rows, -(-rows * width // fit))
    cuts = [slice(rows * i // parts, rows * (i + 1) // parts) for i in range(parts)]
    return [(slice(i, i + 1), cut) for i in range(images) for cut in cuts]


def _turned_input(x: Any, geometry: Geometry, images: slice, rows: slice) -> Any:
    """Return the 16 sums of each square's inputs: [4, 4, images, rows, squares of a row, c]; scratch of this thread.

    Rows are summed first, those of even and of odd columns separately, so that the sums of columns are over long runs
    too.
    """
    pairs = _pairs_of_rows(x, geometry, images, rows)
    _, n, several, _, stretch = pairs.shape
    depth = x.shape[3]
    sums = scratch.empty(np, "winograd rows", (4, 2, n, several - 1, stretch), x.dtype)
    _turn(pairs[:, :, :, 0], pairs[:, :, :, 1], sums, (slice(None),) * 2, several - 1, 1)
    squares = scratch.empty(np, "winograd squares", (4, 4, n, several - 1, stretch - depth), x.dtype)
    _turn(sums[:, 0], sums[:, 1], squares.swapaxes(0, 1), (slice(None),) * 3, stretch - depth, depth)
    return squares.reshape(4, 4, n, several - 1, -1, depth)


def _turn(even: Any, odd: Any, out: Any, before: tuple[slice, ...], length: int, step: int) -> None:
    """Write the sums of four neighbours, which are even, odd, and both again `step` later on the axis, into `out` [4,
    ...].
    """
    first, second = (*before, slice(0, length)), (*before, slice(step, step + length))
    np.subtract(even[first], even[second], out=out[0])
    np.add(odd[first], even[second], out=out[1])
    np.subtract(even[second], odd[first], out=out[2])
    np.subtract(odd[first], odd[second], out=out[3])


def _pairs_of_rows(x: Any, geometry: Geometry, images: slice, rows: slice) -> Any:
    """The padded input of rows of squares: [column even or odd, images, pairs, row even or odd, columns × c]."""
    high, wide = geometry.spec
    columns, depth = _half(wide.count) + 1, x.shape[3]
    count = 2 * (rows.stop - rows.start) + 2
    padded = scratch.empty(np, "winograd input", (2, images.stop - images.start, count, columns, depth), x.dtype)
    start = 2 * rows.start - high.before
    first, last = max(0, start), max(0, min(x.shape[1], start + count))
    above, below = min(first - start, count), max(0, last - start)
    padded[:, :, :above] = 0
    padded[:, :, below:] = 0
    if below > above:
        for odd in (0, 1):
            left = _half(max(0, wide.before - odd))
            source = x[images, first:last, 2 * left + odd - wide.before :: 2][:, :, : columns - left]
            target = padded[odd, :, above:below]
            target[:, :, :left] = 0
            target[:, :, left : left + source.shape[2]] = source
            target[:, :, left + source.shape[2] :] = 0
    return padded.reshape(2, len(padded[0]), count // 2, 2, columns * depth)


def _put_outputs(squares: Any, kernel: Any, out: Any) -> None:
    """Write the outputs for the squares' sums and a kernel into `out` [images, rows, columns, filters]."""
    filters = kernel.shape[2]
    n, several, width, depth = squares.shape[2:]
    products = scratch.empty(np, "winograd products", (16, n * several * width, filters), squares.dtype)
    np.matmul(squares.reshape(16, -1, depth), kernel, out=products)
    upper, second, third, last = products.reshape(4, 4, n, several, width, filters)
    upper += second
    upper += third
    second -= third
    second -= last
    for row, (left, middle, right, end) in enumerate((upper, second)):
        left += middle
        middle -= right
        _sum_into(out[:, row::2, 0::2], np.add, left, right)
        _sum_into(out[:, row::2, 1::2], np.subtract, middle, end)


def _sum_into(out: Any, ufunc: Any, a: Any, b: Any) -> None:
    """`ufunc(a, b)` into `out`, which is smaller than the squares if a side is odd."""
    inside = (slice(None), slice(out.shape[1]), slice(out.shape[2]))
    ufunc(a[inside], b[inside], out=out)
