"""Convolutions of 3 or 5 rows and columns, and their gradients, by loops in C: Winograd's F(4×4, k×k).

As in `winograd_rows.py`, with rows and columns both transformed: a tile of 4×4 outputs needs (k + 3)² products of sums
for each pair of channels in place of 16 k², a quarter of them for k = 3, and 6¼ times fewer for k = 5.  One call of C
makes the sums of up to a hundred tiles, which stay in the cache, multiplies them, and writes the outputs.

A result has some bits less than that of `winograd_rows`, well within the bound in `docs/graph-passes.md`; and an
infinity or a NaN in the input spreads to all outputs of the tiles that use it.
Next to read: `aexec/native/loops.h`.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from aexec import native
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.framework.waiting.intra_op import at_once, in_pieces
from aexec.kernels.common.epilogue import Epilogue, apply_in_blocks
from aexec.kernels.common.scratch import scratch
from aexec.kernels.nn.convolution_geometry import FILTER_SUMS, Geometry
from aexec.kernels.nn.winograd_rows import TILE, turns

__all__ = ["backprop_filter", "forward", "pays"]

# With fewer channels, filters, tiles, or multiply-adds of the plain convolution, the sums take longer than they save.
_LEAST_DEPTH, _LEAST_TILES, _LEAST_STEPS = 16, 48, 6_000_000
# The most pixels of tiles for each pixel that is needed.
_MOST_WASTE = 2.0
# The most bytes of the kernel's sums: larger ones take longer to read than to multiply.
_MOST_KERNEL = 1 << 24
# Tiles of a piece, and the most of one row; the multiply-adds of a piece, and the bytes of its sums, about.
_LEAST_PIECE, _MOST_PIECE, _MOST_ACROSS = 24, 96, 256
_PIECE_STEPS, _PIECE_BYTES = 1 << 27, 6 << 20
# Pieces that are aimed at, so that cores can share them; and the bytes of all sums of a filter's gradient together.
_PIECES, _SUMS_BYTES = 16, 1 << 25


class _Matrices(NamedTuple):
    """What images, kernels and outputs are multiplied with, contiguous.

    Attributes:
        input: [sums, sums], for both sides of a patch.
        kernel: [sums², k²], for all taps of a kernel at once.
        back: [4, sums], for both sides of a tile's sums.
        spread: its transpose, for a tile of the output's gradient.
    """

    input: Any
    kernel: Any
    back: Any
    spread: Any


@cache
def _matrices(size: int) -> _Matrices:
    of = turns(size)
    return _Matrices(of.input, np.kron(of.kernel, of.kernel), of.back, np.ascontiguousarray(of.back.T))


def pays(geometry: Geometry) -> bool:
    """True if there are loops in C, and they are faster than all other ways; depends on the shapes only."""
    if native.loops is None or native.loops.INSTRUCTIONS == "plain":
        return False
    if len(geometry.spec) != 2 or geometry.groups != 1 or not geometry.on_host:
        return False
    high, wide = geometry.spec
    if wide.size not in (3, 5) or high.size != wide.size:
        return False
    if any(w.stride != 1 or w.dilation != 1 or not 0 <= w.before < w.size or not w.count for w in geometry.spec):
        return False
    if min(geometry.filter_shape[2:]) < _LEAST_DEPTH or _kernel_bytes(geometry) > _MOST_KERNEL:
        return False
    tiles = _rows(geometry) * _across(geometry)
    if tiles < _LEAST_TILES or _across(geometry) > _MOST_ACROSS:
        return False
    pixels = prod(geometry.output_shape[:3])
    return tiles * TILE**2 <= _MOST_WASTE * pixels and pixels * prod(geometry.filter_shape) >= _LEAST_STEPS


def forward(x: Any, kernel: Any, geometry: Geometry, epilogue: Epilogue | None = None) -> Any:
    """Return the convolution of a float32 array with a kernel [k, k, c, f]; `epilogue` is applied to it, in place.

    There must be loops in C.
    """
    loops: Any = native.loops
    size, depth, filters = geometry.filter_shape[1:]
    matrices, sizes, pieces = _matrices(size), _sizes(geometry), _pieces(geometry)
    _announce(loops, geometry, pieces)
    x = np.ascontiguousarray(x)
    turned = np.matmul(matrices.kernel, kernel.reshape(size * size, depth * filters))
    out = np.empty(geometry.output_shape, x.dtype)
    high, wide = geometry.output_shape[1:3]
    pixels, down = out.reshape(-1, filters), -(-high // TILE)

    def first_pixel(row: int) -> int:
        """The number of the first pixel of a row of tiles."""
        image, at = divmod(row, down)
        return (image * high + at * TILE) * wide

    def piece(i: int) -> None:
        row, rows = pieces[i]
        room = _scratch(loops, sizes, rows)
        loops.winograd(x, turned, out, room, matrices.input, matrices.back, sizes, row, rows)
        first = first_pixel(row)
        apply_in_blocks(pixels[first : first_pixel(row + rows)], epilogue, first)

    in_pieces(len(pieces), piece)
    return out


def backprop_filter(x: Any, grad: Any, geometry: Geometry) -> Any:
    """Return the gradient for the filter, from the input and the output's gradient, both float32.

    There must be loops in C.
    """
    loops: Any = native.loops
    size = geometry.filter_shape[0]
    matrices, sizes, pieces = _matrices(size), _sizes(geometry), _pieces(geometry)
    # Separate sums, which are added in order.
    count = max(1, min(FILTER_SUMS, len(pieces) // 2, _SUMS_BYTES // _kernel_bytes(geometry)))
    bounds = [len(pieces) * i // count for i in range(count + 1)]
    _announce(loops, geometry, pieces)
    announce_scratch(_kernel_bytes(geometry) * count)
    x, grad = np.ascontiguousarray(x), np.ascontiguousarray(grad)
    sums = np.zeros((count, len(matrices.kernel), prod(geometry.filter_shape[2:])), x.dtype)

    def piece(i: int) -> None:
        for row, rows in pieces[bounds[i] : bounds[i + 1]]:
            check_wanted()
            room = _scratch(loops, sizes, rows)
            loops.winograd_gradient(x, grad, sums[i], room, matrices.input, matrices.spread, sizes, row, rows)

    in_pieces(count, piece)
    whole = sums[0] if count == 1 else sums.sum(axis=0)
    return np.matmul(matrices.kernel.T, whole).reshape(geometry.filter_shape)


def _across(geometry: Geometry) -> int:
    """Tiles in a row."""
    return -(-geometry.spec[1].count // TILE)


def _rows(geometry: Geometry) -> int:
    """Rows of tiles, of all images."""
    return geometry.output_shape[0] * -(-geometry.spec[0].count // TILE)


def _kernel_bytes(geometry: Geometry) -> int:
    size, depth, filters = geometry.filter_shape[1:]
    return 4 * (TILE + size - 1) ** 2 * depth * filters


def _sizes(geometry: Geometry) -> tuple[int, ...]:
    """Images and tiles as the loops take them."""
    (_, high, wide, filters), (first, second) = geometry.output_shape, geometry.spec
    return (*geometry.input_shape, high, wide, filters, first.before, second.before, TILE + first.size - 1)


def _pieces(geometry: Geometry) -> list[tuple[int, int]]:
    """Pieces of the output: the first of some rows of tiles, and their number."""
    rows, across = _rows(geometry), _across(geometry)
    sums, (depth, filters) = (TILE + geometry.filter_shape[0] - 1) ** 2, geometry.filter_shape[2:]
    most = min(_MOST_PIECE, _PIECE_STEPS // (sums * depth * filters), _PIECE_BYTES // (4 * sums * (depth + filters)))
    step = max(1, max(_LEAST_PIECE, min(most, rows * across // _PIECES)) // across)
    return [(row, min(step, rows - row)) for row in range(0, rows, step)]


def _scratch(loops: Any, sizes: tuple[int, ...], rows: int) -> Any:
    return scratch.empty(np, "winograd tiles", (loops.winograd_scratch(sizes, rows),), np.dtype(np.float32))


def _announce(loops: Any, geometry: Geometry, pieces: list[tuple[int, int]]) -> None:
    """Announce the kernel's sums, and those of the pieces that are computed at once."""
    room = 4 * loops.winograd_scratch(_sizes(geometry), pieces[0][1])
    announce_scratch(_kernel_bytes(geometry) + room * at_once(len(pieces)))
