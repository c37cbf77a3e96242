"""Convolutions of 3 or 5 rows and columns, and their gradients, with half the multiplications: Winograd's F(4, k).

Four outputs side by side in a row need k + 3 inputs.  These and the kernel's columns are each transformed into k + 3
sums; 4 k multiply-adds become k + 3 products of sums.  Rows are not transformed: the rows of a window follow one
another in the products, which so have long runs even if there are few channels.  So the sums, which are products of
small matrices themselves, cost little, and a kernel that changes in training can be transformed each time.

A result has some bits less than that of a plain convolution, well within the bound in `docs/graph-passes.md`; and an
infinity or a NaN in the input spreads to all four outputs that use it.  All three products of a convolution are
computed this way: the input's gradient is a convolution of the output's gradient (`Geometry.mirrored`); for the
filter's gradient, the sums of inputs are multiplied by those of the output's gradient. The graph pass `winograd` marks
nodes for it.  Next to read: `convolution.py`, which computes all other convolutions; `winograd.py`, for constant
kernels; `winograd_tiles.py`, in C.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from aexec.framework.waiting.intra_op import in_pieces
from aexec.kernels.common.epilogue import Epilogue, apply_in_blocks
from aexec.kernels.common.scratch import scratch
from aexec.kernels.nn.convolution_geometry import Geometry

__all__ = ["TILE", "Turns", "backprop_filter", "forward", "pays", "turns"]

# Outputs side by side that are computed together.
TILE = 4
# The points, besides infinity, at which the polynomials of inputs and kernel are multiplied, by columns of the kernel.
# Among small dyadic numbers, these give the smallest errors.
_POINTS = {3: (0.0, 0.75, -0.75, 1.5, -1.5), 5: (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)}
# With fewer channels (by columns of the kernel), filters, or multiply-adds of the plain convolution, the sums take
# longer than they save.
_LEAST_CHANNELS = {3: 48, 5: 16}
_LEAST_FILTERS, _LEAST_STEPS = 32, 6_000_000
# The most outputs that are computed and dropped for each that is needed.
_WASTE = 0.35
# The approximate bytes of a part's windows, which stay in a core's caches; and the least rows of its products, as BLAS
# copies the kernel for each.
_PART_BYTES, _LEAST_ROWS = 1 << 21, 48
# A filter's gradient is the sum of this many sums, which cores share; of fewer if they take more bytes together.
_SUMS, _SUMS_BYTES = 8, 1 << 25
# If one of these sums has more bytes, adding to it takes longer than is saved.
_MOST_SUM = 1 << 24


class Turns(NamedTuple):
    """The matrices of F(4, k): outputs = `back` · ((`kernel` · columns of the kernel) × (`input` · inputs))."""

    input: Any
    kernel: Any
    back: Any


@cache
def turns(columns: int) -> Turns:
    """The transforms of Toom and Cook: the transposed multiplication of two polynomials by their values at some
    points.
    """
    points = np.array(_POINTS[columns])
    sums = len(points) + 1
    assert sums == TILE + columns - 1

    def powers(count: int) -> Any:
        at_infinity = np.eye(count)[-1:]
        return np.concatenate([points[:, None] ** np.arange(count), at_infinity])

    others = points[:, None] - points
    np.fill_diagonal(others, 1)
    scale = np.append(others.prod(axis=1), 1)[:, None]
    # With this scale the factors of inputs are exact.
    turned = np.linalg.inv(powers(sums)).T * scale
    matrices = (turned, powers(columns) / scale, powers(TILE).T)
    return Turns(*(np.ascontiguousarray(matrix, np.float32) for matrix in matrices))


class _Part(NamedTuple):
    """Images and rows of the output."""

    images: slice
    rows: slice

    def of(self, array: Any) -> Any:
        return array[self.images, self.rows]


def pays(geometry: Geometry) -> bool:
    """True if it is possible and faster than `convolution.forward`; depends on the shapes only."""
    if len(geometry.spec) != 2 or geometry.groups != 1:
        return False
    high, wide = geometry.spec
    if wide.size not in _POINTS or high.size != wide.size:
        return False
    if any(w.stride != 1 or w.dilation != 1 or w.before < 0 or not w.count for w in geometry.spec):
        return False
    depth, filters = geometry.filter_shape[2:]
    if depth < _LEAST_CHANNELS[wide.size] or filters < _LEAST_FILTERS or _sum_bytes(geometry) > _MOST_SUM:
        return False
    if _tiles(geometry) * TILE > (1 + _WASTE) * wide.count:
        return False
    return prod(geometry.output_shape[:3]) * prod(geometry.filter_shape) >= _LEAST_STEPS


def forward(x: Any, kernel: Any, geometry: Geometry, epilogue: Epilogue | None = None) -> Any:
    """Return the convolution of a float32 array with a kernel [k, k, c, f]; `epilogue` is applied to it, in place."""
    of, tiles = turns(geometry.spec[1].size), _tiles(geometry)
    high, wide, filters = geometry.output_shape[1:]
    # [sums, rows of the kernel × c, f]
    turned = np.tensordot(of.kernel, kernel, (1, 1)).reshape(len(of.kernel), -1, filters)
    out = np.empty(geometry.output_shape, x.dtype)
    parts = _parts(geometry)

    def piece(i: int) -> None:
        part = parts[i]
        target = part.of(out)
        windows = _windows(x, geometry, part)
        products = scratch.empty(np, "winograd products", (*windows.shape[:2], filters), x.dtype)
        np.matmul(windows, turned, out=products)
        shape = (TILE, len(target), tiles, target.shape[1], filters)
        outputs = scratch.empty(np, "winograd outputs", shape, x.dtype)
        np.matmul(of.back, products.reshape(len(products), -1), out=outputs.reshape(TILE, -1))
        for at in range(TILE):
            place = target[:, :, at::TILE]
            place[...] = outputs[at, :, : place.shape[2]].swapaxes(1, 2)
        apply_in_blocks(target, epilogue, (part.images.start * high + part.rows.start) * wide)

    in_pieces(len(parts), piece)
    return out


def backprop_filter(x: Any, grad: Any, geometry: Geometry) -> Any:
    """Return the gradient for the filter, from the input and the output's gradient, both float32."""
    of = turns(geometry.spec[1].size)
    size, depth, filters = geometry.filter_shape[1:]
    parts = _parts(geometry)
    count = max(1, min(_SUMS, len(parts), _SUMS_BYTES // _sum_bytes(geometry)))
    bounds = [len(parts) * i // count for i in range(count + 1)]
    sums = np.zeros((count, len(of.kernel), filters, size * depth), grad.dtype)

    def piece(i: int) -> None:
        product = scratch.empty(np, "winograd products", sums.shape[1:], grad.dtype)
        for part in parts[bounds[i] : bounds[i + 1]]:
            windows = _windows(x, geometry, part)
            np.matmul(_turned_gradient(grad, geometry, part).swapaxes(1, 2), windows, out=product)
            sums[i] += product

    in_pieces(count, piece)
    # [columns, f, rows, c]
    whole = np.tensordot(of.kernel, sums.sum(axis=0), (0, 0)).reshape(size, filters, size, depth)
    return np.ascontiguousarray(whole.transpose(2, 0, 3, 1))


def _tiles(geometry: Geometry) -> int:
    """The number of tiles of four outputs in a row."""
    return -(-geometry.spec[1].count // TILE)


def _sum_bytes(geometry: Geometry) -> int:
    size, depth, filters = geometry.filter_shape[1:]
    return 4 * (TILE + size - 1) * size * depth * filters


def _parts(geometry: Geometry) -> list[_Part]:
    """Parts of limited size that the output is cut into; the pixels of a part are contiguous."""
    images, rows = geometry.output_shape[:2]
    size, depth = geometry.filter_shape[1:3]
    tiles = _tiles(geometry)
    row_bytes = 4 * (TILE + size - 1) * size * depth * tiles
    fit = max(1, _PART_BYTES // row_bytes, -(-_LEAST_ROWS // tiles))
    if rows <= fit:
        step = fit // rows
        return [_Part(slice(i, min(i + step, images)), slice(0, rows)) for i in range(0, images, step)]
    cuts = -(-rows // fit)
    bounds = [rows * i // cuts for i in range(cuts + 1)]
    return [_Part(slice(i, i + 1), slice(a, b)) for i in range(images) for a, b in pairwise(bounds)]


def _windows(x: Any, geometry: Geometry, part: _Part) -> Any:
    """The sums of a part's inputs, [sums, images × tiles × rows, rows of the kernel × c]; scratch of this thread."""
    of = turns(geometry.spec[1].size)
    dealt = _dealt_input(x, geometry, part)
    sums, images, tiles, high, depth = dealt.shape
    turned = scratch.empty(np, "winograd sums", dealt.shape, x.dtype)
    np.matmul(of.input, dealt.reshape(sums, -1), out=turned.reshape(sums, -1))
    # The rows of a window are already contiguous.
    size = geometry.spec[0].size
    rows = high - size + 1
    shape, strides = (sums, images, tiles, rows, size * depth), (*turned.strides[:4], turned.itemsize)
    windows = scratch.empty(np, "winograd windows", shape, x.dtype)
    windows[...] = np.lib.stride_tricks.as_strided(turned, shape, strides, writeable=False)
    return windows.reshape(sums, -1, size * depth)


def _dealt_input(x: Any, geometry: Geometry, part: _Part) -> Any:
    """The padded input of a part, by columns of a tile: [columns, images, tiles, rows, c]."""
    high, wide = geometry.spec
    tiles, columns = _tiles(geometry), TILE + wide.size - 1
    start = part.rows.start - high.before
    count = part.rows.stop - part.rows.start + high.size - 1
    first, last = max(0, start), max(0, min(x.shape[1], start + count))
    above, below = min(first - start, count), max(0, last - start)
    images = part.images.stop - part.images.start
    dealt = scratch.empty(np, "winograd input", (columns, images, tiles, count, x.shape[3]), x.dtype)
    dealt[:, :, :, :above] = 0
    dealt[:, :, :, below:] = 0
    for column in range(columns):
        # The column at index t is column t × 4 + at of the input, if that exists.
        at = column - wide.before
        left = min(tiles, max(0, -(at // TILE)))
        right = max(left, min(tiles, (x.shape[2] - 1 - at) // TILE + 1))
        dealt[column, :, :left] = 0
        dealt[column, :, right:] = 0
        if right > left and below > above:
            source = x[part.images, first:last, left * TILE + at : (right - 1) * TILE + at + 1 : TILE]
            dealt[column, :, left:right, above:below] = source.swapaxes(1, 2)
    return dealt


def _turned_gradient(grad: Any, geometry: Geometry, part: _Part) -> Any:
    """The sums of the output's gradient of a part: [sums, images × tiles × rows, f]; scratch of this thread."""
    back = turns(geometry.spec[1].size).back
    own = part.of(grad)
    images, rows, _, filters = own.shape
    dealt = scratch.empty(np, "winograd outputs", (TILE, images, _tiles(geometry), rows, filters), grad.dtype)
    for at in range(TILE):
        source = own[:, :, at::TILE].swapaxes(1, 2)
        dealt[at, :, : source.shape[1]] = source
        dealt[at, :, source.shape[1] :] = 0
    shape = (back.shape[1], dealt[0].size // filters, filters)
    turned = scratch.empty(np, "winograd gradient", shape, grad.dtype)
    np.matmul(back.T, dealt.reshape(TILE, -1), out=turned.reshape(len(turned), -1))
    return turned
