"""Resampling of images: the elements of a dimension that make each new element, and their weights.

Height and width are independent, so every method is a rule for one dimension.  Interpolation with few taps gathers
whole rows or columns.  Spans of any length, and gradients, which scatter instead of gather, are products with sparse
matrices.  Positions and weights are float32, as TensorFlow's, since a position at a pixel's border would otherwise fall
on its other side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.abridged_text import abridged
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.allocator import announce_scratch

__all__ = ["Grid", "Taps", "area_matrix", "picked", "span_kernel", "span_matrix", "through_matrices"]

_F32 = np.float32
# Bytes for finding an old element for a new one, with its weight.
_TAP_BYTES = 28
# Taps of up to this many new elements are remembered, 64 of them.
_USUAL_SIZE = 1024


@dataclass(frozen=True, slots=True)
class Grid:
    """Positions of the centres of new elements among the old ones.

    Attributes:
        align_corners: the first and last elements of both coincide; otherwise their edges do.
        half_pixel_centers: an element's centre is half a unit from its edge; otherwise it is its edge.
    """

    align_corners: bool
    half_pixel_centers: bool = False

    def scale(self, size: int, new_size: int) -> Any:
        """Old elements per new one."""
        if self.align_corners and size > 1 and new_size > 1:
            return _F32(size - 1) / _F32(new_size - 1)
        return _F32(size) / _F32(new_size)

    def positions(self, size: int, new_size: int) -> Any:
        """float32 [new_size]: each new element's position, in old elements."""
        scale, numbers = self.scale(size, new_size), np.arange(new_size, dtype=_F32)
        return (numbers + _F32(0.5)) * scale - _F32(0.5) if self.half_pixel_centers else numbers * scale

    def nearest(self, size: int, new_size: int) -> Any:
        """int [new_size]: the old element for each new one.  Halves are rounded up if corners are aligned."""
        announce_scratch(_TAP_BYTES * new_size)
        scale, numbers = self.scale(size, new_size), np.arange(new_size, dtype=_F32)
        place = (numbers + _F32(0.5)) * scale if self.half_pixel_centers else numbers * scale
        below = np.floor(place)
        if self.align_corners:
            below += place - below >= _F32(0.5)
        return np.minimum(below.astype(np.intp), size - 1)


def picked(x: Any, index: Any, axis: int) -> Any:
    """`x.take(index, axis)`, which would copy an array that is not contiguous as a whole."""
    return x.take(index, axis) if x.flags.c_contiguous else x[(slice(None),) * axis + (index,)]


@dataclass(frozen=True, slots=True)
class Taps:
    """A fixed number k of old elements for each new one.

    Attributes:
        index: int [k, new size], old elements.
        weight: float32 [k, new size].
        size: number of old elements.
    """

    index: Any
    weight: Any
    size: int

    @classmethod
    def linear(cls, grid: Grid, size: int, new_size: int) -> Taps:
        """The neighbours below and above; the second weight is the fraction of the way between them.

        Their arrays must not be changed: images of usual sizes share them.
        """
        return _usual_linear(grid, size, new_size) if new_size <= _USUAL_SIZE else cls._linear(grid, size, new_size)

    @classmethod
    def _linear(cls, grid: Grid, size: int, new_size: int) -> Taps:
        announce_scratch(2 * _TAP_BYTES * new_size)
        place = grid.positions(size, new_size)
        below = np.floor(place)
        weight = place - below
        low = np.maximum(below, 0).astype(np.intp)
        high = np.minimum(np.ceil(place), size - 1).astype(np.intp)
        return cls(np.stack([low, high]), np.stack([_F32(1) - weight, weight]), size)

    @classmethod
    def cubic(cls, grid: Grid, size: int, new_size: int) -> Taps:
        """Two neighbours on each side, weighted by a cubic: Keys's if centres are half-pixel ones.

        Keys's ignores elements beyond the border; the older one repeats the border.
        """
        keys = grid.half_pixel_centers
        announce_scratch(4 * _TAP_BYTES * new_size)
        place = grid.positions(size, new_size)
        below = np.floor(place)
        offset = np.rint((place - below) * _F32(_TABLE_SIZE)).astype(np.intp)
        near, far = _cubic_table(-0.5 if keys else -0.75)
        weight = np.stack([far[offset], near[offset], near[_TABLE_SIZE - offset], far[_TABLE_SIZE - offset]])
        wanted = below.astype(np.intp) + np.arange(-1, 3)[:, None]
        index = np.clip(wanted, 0, size - 1)
        if keys:
            weight[index != wanted] = 0
            weight *= _F32(1) / weight.sum(axis=0)
        return cls(index, weight, size)

    @classmethod
    def single(cls, index: Any, size: int) -> Taps:
        """One old element for each new one."""
        return cls(index[None], np.ones((1, index.size), _F32), size)

    def blend(self, x: Any, axis: int) -> Any:
        """Resample float32 x along an axis.  Two taps: `a + (b - a) * w`, exact where a equals b."""
        rows = (-1,) + (1,) * (x.ndim - 1 - axis)
        if len(self.index) == 2:
            low, out = picked(x, self.index[0], axis), picked(x, self.index[1], axis)
            announce_scratch(low.nbytes)
            out -= low
            out *= self.weight[1].reshape(rows)
            out += low
            return out
        out = picked(x, self.index[0], axis)
        announce_scratch(out.nbytes)
        out *= self.weight[0].reshape(rows)
        for index, weight in zip(self.index[1:], self.weight[1:], strict=True):
            part = picked(x, index, axis)
            part *= weight.reshape(rows)
            out += part
        return out

    def needed(self) -> tuple[Any, Taps]:
        """(the old elements that are used, these taps with indices into those)."""
        used, index = np.unique(self.index, return_inverse=True)
        return used, Taps(index.reshape(self.index.shape), self.weight, len(used))

    def on(self, xp: Any) -> Taps:
        """These taps in arrays of a module."""
        return self if xp is np else Taps(xp.asarray(self.index), xp.asarray(self.weight), self.size)

    def matrix(self, dtype: Any) -> Any:
        """Sparse [new size, old size]."""
        announce_scratch(_TAP_BYTES * self.index.size)
        return _matrix(self.index.T, self.weight.T.astype(dtype), self.size)


@lru_cache(maxsize=64)
def _usual_linear(grid: Grid, size: int, new_size: int) -> Taps:
    """For small images finding the taps takes longer than to blend with them."""
    return Taps._linear(grid, size, new_size)


# Cubic weights are looked up at 1024 positions between two elements.
_TABLE_SIZE = 1024


@cache
def _cubic_table(a: float) -> tuple[Any, Any]:
    """Weights at distance x and at 1 + x, for x = 0, 1/1024, …, 1, of the cubic with slope `a` at 1."""
    x = np.arange(_TABLE_SIZE + 1) / _TABLE_SIZE
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    x += 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return near.astype(_F32), far.astype(_F32)


def _span_indices(start: Any, length: int, size: int) -> Any:
    return np.clip(start[:, None] + np.arange(length), 0, size - 1)


def _matrix(index: Any, weight: Any, size: int) -> Any:
    """Sparse [n, size] of indices and weights [n, k]."""
    from scipy import sparse

    starts = np.arange(0, index.size + 1, index.shape[1])
    return sparse.csr_array((weight.ravel(), index.ravel(), starts), shape=(len(index), size))


def area_matrix(grid: Grid, size: int, new_size: int, allocate: Callable[..., Any]) -> Any:
    """Sparse float32 [new_size, size]: the part of each old element that a new one covers."""
    scale = grid.scale(size, new_size)
    edges = np.arange(new_size + 1, dtype=_F32) * scale
    low, high = edges[:-1, None], edges[1:, None]
    start = np.floor(low[:, 0])
    length = int((np.ceil(high[:, 0]) - start).max())
    announce_scratch(_TAP_BYTES * new_size * length)
    weight = allocate((new_size, length))
    cell = start[:, None] + np.arange(length, dtype=_F32)
    after = cell + _F32(1)
    cut_off = after > high
    weight[...] = np.where(cell < low, np.where(cut_off, scale, after - low), np.where(cut_off, high - cell, _F32(1)))
    weight[cell >= np.ceil(high)] = 0
    return _matrix(_span_indices(start.astype(np.intp), length, size), weight, size)


# Kernels, by `kernel_type`: radius, and weight at a distance (float32, not negative)


def _lanczos(radius: float) -> tuple[float, Callable[[Any], Any]]:
    def weight(x: Any) -> Any:
        angle = _F32(np.pi) * np.maximum(x, _F32(1e-3))
        value = _F32(radius) * np.sin(angle) * np.sin(angle / _F32(radius)) / (angle * angle)
        return np.where(x > radius, _F32(0), np.where(x <= 1e-3, _F32(1), value))

    return radius, weight


def _gaussian(x: Any) -> Any:
    return np.where(x >= 1.5, _F32(0), np.exp(x * x * _F32(-2)))


def _box(x: Any) -> Any:
    return np.where(x < 0.5, _F32(1), np.where(x == 0.5, _F32(0.5), _F32(0)))


def _triangle(x: Any) -> Any:
    return np.maximum(_F32(1) - x, 0)


def _piecewise(inner: tuple[float, ...], outer: tuple[float, ...]) -> Callable[[Any], Any]:
    """A function of cubics for distances below 1 and from 1 to 2; coefficients from the highest power down."""
    below, above = np.array(inner, _F32), np.array(outer, _F32)
    return lambda x: np.where(x >= 2, _F32(0), np.where(x >= 1, np.polyval(above, x), np.polyval(below, x)))


_KERNELS: Mapping[bytes, tuple[float, Callable[[Any], Any]]] = {
    b"lanczos1": _lanczos(1.0),
    b"lanczos3": _lanczos(3.0),
    b"lanczos5": _lanczos(5.0),
    b"gaussian": (1.5, _gaussian),
    b"box": (1.0, _box),
    b"triangle": (1.0, _triangle),
    b"keyscubic": (2.0, _piecewise((1.5, -2.5, 0, 1), (-0.5, 2.5, -4, 2))),
    b"mitchellcubic": (2.0, _piecewise((7 / 6, -2, 0, 8 / 9), (-7 / 18, 2, -10 / 3, 16 / 9))),
}


def span_kernel(name: bytes) -> tuple[float, Callable[[Any], Any]]:
    """The kernel of this name.  Raises InvalidArgumentError if there is none."""
    try:
        return _KERNELS[name]
    except KeyError:
        raise errors.InvalidArgumentError(f"Unrecognized kernel type: {abridged(name)}") from None


def span_matrix(
    kernel: tuple[float, Callable[[Any], Any]],
    size: int,
    new_size: int,
    scale: Any,
    translation: Any,
    allocate: Callable[..., Any],
    *,
    antialias: bool,
) -> Any:
    """Sparse float32 [new_size, size] for `new = scale * old + translation`.

    Args:
        kernel: of `span_kernel`.
        allocate: makes the array of weights.
        antialias: widen the kernel if the image shrinks.

    A new element outside the old ones has no weights.
    """
    radius, weight_at = kernel
    inverse = _F32(1) / _F32(scale)
    shift = -inverse * _F32(translation)
    stretch = max(inverse, _F32(1)) if antialias else _F32(1)
    reach = _F32(radius) * stretch
    length = int(min(2 * np.ceil(float(reach)) + 1, size))
    announce_scratch(_TAP_BYTES * new_size * length)
    weight = allocate((new_size, length))
    place = (np.arange(new_size, dtype=_F32) + _F32(0.5)) * inverse + shift
    inside = (place >= 0) & (place <= size)
    place[~inside] = 0
    start = np.clip(np.ceil(place - reach - _F32(0.5)), 0, size - 1)
    stop = np.clip(np.floor(place + reach - _F32(0.5)), 0, size - 1) + 1
    cell = start[:, None] + np.arange(length, dtype=_F32)
    distance = np.abs((cell + _F32(0.5) - place[:, None]) * (_F32(1) / stretch))
    weight[...] = weight_at(distance)
    weight[cell >= stop[:, None]] = 0
    total = weight.sum(axis=1)
    inside &= np.abs(total) >= 1000 * np.finfo(_F32).tiny
    weight *= np.where(inside, _F32(1) / np.where(inside, total, _F32(1)), _F32(0))[:, None]
    return _matrix(_span_indices(start.astype(np.intp), length, size), weight, size)


def through_matrices(x: Any, rows: Any, columns: Any, xp: Any = np) -> Any:
    """[n, h', w', c] of x [n, h, w, c], rows [h', h] and columns [w', w], in the order with less work."""
    shape = (len(x), rows.shape[0], columns.shape[0], x.shape[3])
    if 0 in shape or not x.size:
        return xp.zeros(shape, x.dtype)
    axes = (1, 2) if rows.shape[0] * x.shape[2] <= x.shape[1] * columns.shape[0] else (2, 1)
    between = x.size // x.shape[axes[0]] * shape[axes[0]]
    announce_scratch(x.itemsize * max(x.size + between, 2 * between + prod(shape)))
    for axis in axes:
        matrix = rows if axis == 1 else columns
        first = x.swapaxes(0, axis)
        product = matrix @ first.reshape(len(first), -1)
        x = product.reshape(len(product), *first.shape[1:]).swapaxes(0, axis)
    return xp.ascontiguousarray(x)
