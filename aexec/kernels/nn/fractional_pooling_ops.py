"""Pools whose windows differ in size by one, so that height and width shrink by a ratio that is no integer.

The windows of a dimension are given by a sequence: window i begins at place i of it and ends before place i + 1, or,
if windows overlap, with that place.  Sequences are TensorFlow's, of the same seeds.
Next to read: `pooling_ops.py`.
"""

from __future__ import annotations

import math
import secrets
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.kernels.common.allocation import allocator
from aexec.kernels.nn.pooling import lowest
from aexec.kernels.random.generators import shuffled
from aexec.numerics.philox import Philox, unit_doubles

__all__: list[str] = []

_TYPES = (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)
# Nanoseconds per element of the input, for each of the passes over rows and columns.
_POOL_NS, _GRAD_NS = 12.0, 40.0

Array = Any


# ---------------------------------------------------------------- Sequences


def _pseudo_random(length: int, windows: int, generator: Philox) -> Array:
    """Window i of the windows begins at the ceiling of the ratio times i + u, with one random number u for all."""
    ratio, least = length / windows, length // windows
    largest = min((least + 2) / ratio - 1, (length + 1 - least) / ratio - (windows - 1))
    u = float(unit_doubles(generator.words(0, 1)[:, :2]).reshape(-1)[0]) * largest
    starts = np.ceil(ratio * (np.arange(1, windows) + u)).astype(np.int64) - 1
    return np.concatenate([[0], starts, [length]])


def _random(length: int, windows: int, generator: Philox) -> Array:
    """The larger windows and the smaller ones are in random order."""
    sizes = np.full(windows, length // windows, np.int64)
    sizes[: length % windows] += 1
    return np.concatenate([[0], np.cumsum(shuffled(np, generator, sizes))])


def _sequences(shape: tuple[int, ...], sizes: list[int], seeds: tuple[int, int], pseudo_random: bool) -> list[Array]:
    """int64 [windows + 1], for rows and for columns."""
    generator, found = Philox.from_seeds(*seeds), []
    for length, windows in zip(shape[1:3], sizes[1:3], strict=True):
        make = _pseudo_random if pseudo_random else _random
        found.append(make(length, windows, generator))
        generator = generator.skip(1 if pseudo_random else (windows + 3) // 4)
    return found


class _Windows:
    """The windows of one dimension.

    Attributes:
        starts, ends: int64 [windows]; an end is not part of its window.
        largest: the size of the largest window.
    """

    def __init__(self, sequence: Array, length: int, overlapping: bool) -> None:
        self.starts = sequence[:-1]
        self.ends = np.minimum(sequence[1:] + bool(overlapping), length)
        self.sizes = self.ends - self.starts
        self.largest = int(self.sizes.max(initial=0))

    def tap(self, number: int) -> tuple[Array, Array]:
        """Return (windows that have this many elements and one more, the places of these elements)."""
        windows = np.flatnonzero(self.sizes > number)
        return windows, self.starts[windows] + number


# ---------------------------------------------------------------- Pools


def _at(axis: int, places: Array) -> tuple[Any, ...]:
    return (slice(None),) * axis + (places,)


def _maxima(x: Array, windows: _Windows, axis: int, low: Any) -> Array:
    out = np.full((*x.shape[:axis], len(windows.starts), *x.shape[axis + 1 :]), low, x.dtype)
    for number in range(windows.largest):
        check_wanted()
        which, places = windows.tap(number)
        out[_at(axis, which)] = np.fmax(out[_at(axis, which)], x[_at(axis, places)])
    return out


def _sums(x: Array, windows: _Windows, axis: int) -> Array:
    out = np.zeros((*x.shape[:axis], len(windows.starts), *x.shape[axis + 1 :]), x.dtype)
    for number in range(windows.largest):
        check_wanted()
        which, places = windows.tap(number)
        out[_at(axis, which)] += x[_at(axis, places)]
    return out


def _max_pool(x: Array, rows: _Windows, columns: _Windows) -> Array:
    low = x.dtype.type(lowest(x.dtype))
    return _maxima(_maxima(x, rows, 1, low), columns, 2, low)


def _counts(rows: _Windows, columns: _Windows, dtype: Any) -> Array:
    return (rows.sizes[:, None, None] * columns.sizes[:, None]).astype(dtype)


def _mean_pool(x: Array, rows: _Windows, columns: _Windows) -> Array:
    sums, counts = _sums(_sums(x, rows, 1), columns, 2), _counts(rows, columns, x.dtype)
    if x.dtype.kind == "f":
        return sums / counts
    # Integers are rounded towards zero.
    whole = sums // counts
    return whole + ((sums < 0) & (whole * counts != sums))


_POOLS = {"FractionalMaxPool": _max_pool, "FractionalAvgPool": _mean_pool}


def _ratios(c: OpKernelConstruction) -> list[float]:
    ratios = [float(np.float32(ratio)) for ratio in c.attr("pooling_ratio")]
    if len(ratios) != 4:
        raise errors.InvalidArgumentError("pooling_ratio field must specify 4 dimensions")
    for ratio in ratios:
        if not 1 <= ratio < math.inf:
            raise errors.InvalidArgumentError(f"pooling_ratio cannot be smaller than 1, got: {ratio:g}")
    if ratios[0] != 1 or ratios[3] != 1:
        kind = "max" if c.op == "FractionalMaxPool" else "average"
        raise errors.UnimplementedError(
            f"Fractional {kind} pooling is not yet supported on the batch nor channel dimension."
        )
    return ratios


def _sizes(shape: tuple[int, ...], ratios: list[float]) -> list[int]:
    if len(shape) != 4:
        raise errors.InvalidArgumentError("tensor_in must be 4-dimensional")
    for i, (size, ratio) in enumerate(zip(shape, ratios, strict=True)):
        if size < ratio:
            raise errors.InvalidArgumentError(
                f"Pooling ratio is higher than input dimension size for dimension {i}. "
                f"Input dim size: {size} pooling ratio: {ratio:g}"
            )
    # As in TensorFlow the quotient is rounded to float32, from which the static shape follows, too.
    return [math.floor(np.float32(size) / np.float32(ratio)) for size, ratio in zip(shape, ratios, strict=True)]


def _fixed_seeds(c: OpKernelConstruction) -> tuple[int, int] | None:
    """The seeds of every run; None if each run draws its own."""
    seeds = c.attr("seed"), c.attr("seed2")
    if not c.attr("deterministic"):
        if seeds != (0, 0):
            raise errors.InvalidArgumentError("Both seed and seed2 should be 0 if deterministic is false.")
        return None
    return _new_seeds() if seeds == (0, 0) else seeds


def _new_seeds() -> tuple[int, int]:
    return secrets.randbits(64), secrets.randbits(64)


def _pool_cost(x: Array) -> float:
    return float(2 * _POOL_NS * x.size)


@kernel("FractionalMaxPool", T=_TYPES, cost=_pool_cost, scratch=4)
@kernel("FractionalAvgPool", T=_TYPES, cost=_pool_cost, scratch=4)
def fractional_pool(c: OpKernelConstruction) -> Compute:
    """Return maxima or means of windows, and the sequences that say which windows these were."""
    ratios, pool, seeds = _ratios(c), _POOLS[c.op], _fixed_seeds(c)
    pseudo_random, overlapping = c.attr("pseudo_random"), c.attr("overlapping")

    def compute(x: Array) -> Any:
        sizes = _sizes(x.shape, ratios)
        rows, columns = _sequences(x.shape, sizes, seeds or _new_seeds(), pseudo_random)
        with np.errstate(all="ignore"):
            windows = _Windows(rows, x.shape[1], overlapping), _Windows(columns, x.shape[2], overlapping)
            return pool(x, *windows), rows, columns

    return compute


# ---------------------------------------------------------------- Gradients


def _given(what: str, sequence: Array, count: int, length: int, overlapping: bool) -> _Windows:
    """The windows of a gradient's input.  Raises InvalidArgumentError unless there are `count`, inside the image."""
    if sequence.ndim != 1:
        raise errors.InvalidArgumentError(f"{what} must be a vector, received shape {shape_text(sequence.shape)}")
    if len(sequence) != count + 1:
        raise errors.InvalidArgumentError(f"{what} must have {count + 1} elements, but got {len(sequence)}")
    if sequence[0] < 0 or (sequence[1:] <= sequence[:-1]).any() or (count and sequence[-2] >= length):
        raise errors.InvalidArgumentError(f"{what} must increase and begin windows in [0, {length})")
    return _Windows(sequence, length, overlapping)


def _both(
    rows: Array, columns: Array, of: tuple[int, ...], image: tuple[int, ...], overlapping: bool
) -> tuple[_Windows, _Windows]:
    if of[0] != image[0] or of[3] != image[3]:
        raise errors.InvalidArgumentError(
            f"out_backprop of shape {shape_text(of)} is not that of an input of shape {shape_text(image)}"
        )
    return (
        _given("row_pooling_sequence", rows, of[1], image[1], overlapping),
        _given("col_pooling_sequence", columns, of[2], image[2], overlapping),
    )


def _first_maxima(x: Array, windows: _Windows, axis: int) -> tuple[Array, Array]:
    """Return (maximum, its place along the axis): the first of equals; a NaN that comes first stays."""
    out = x[_at(axis, windows.starts)]
    shape = [1] * x.ndim
    shape[axis] = len(windows.starts)
    places = np.broadcast_to(windows.starts.astype(np.int32).reshape(shape), out.shape).copy()
    for number in range(1, windows.largest):
        check_wanted()
        which, taken = windows.tap(number)
        shape[axis] = len(taken)
        candidate, best = x[_at(axis, taken)], out[_at(axis, which)]
        better = candidate > best
        out[_at(axis, which)] = np.where(better, candidate, best)
        places[_at(axis, which)] = np.where(better, taken.astype(np.int32).reshape(shape), places[_at(axis, which)])
    return out, places


def _max_grad_cost(x: Array, *_more: Array) -> float:
    return float(2 * _GRAD_NS * x.size)


@kernel("FractionalMaxPoolGrad", T=_TYPES, cost=_max_grad_cost, scratch=16)
def fractional_max_pool_grad(c: OpKernelConstruction) -> Compute:
    """Return each maximum's gradient at the first place where its window had it."""
    overlapping = c.attr("overlapping")

    def compute(x: Array, y: Array, grad: Array, row_sequence: Array, column_sequence: Array) -> Array:
        for what, array in (("orig_input", x), ("orig_output", y), ("out_backprop", grad)):
            if array.ndim != 4:
                raise errors.InvalidArgumentError(f"{what} should be a tensor of rank 4, got {shape_text(array.shape)}")
        if y.shape != grad.shape:
            raise errors.InvalidArgumentError(
                f"out_backprop must have orig_output's shape {shape_text(y.shape)}, not {shape_text(grad.shape)}"
            )
        rows, columns = _both(row_sequence, column_sequence, grad.shape, x.shape, overlapping)
        # Of the rows of a window the first that has its maximum counts, and in it the first column.
        along, column = _first_maxima(x, columns, 2)
        best, row = _first_maxima(along, rows, 1)
        if not np.array_equal(best, y):
            raise errors.InvalidArgumentError("tensor_out_dup is not the same as tensor_out")
        batch, _, window, channel = np.ogrid[tuple(map(slice, y.shape))]
        out = np.zeros_like(x)
        np.add.at(out, (batch, row, column[batch, row, window, channel], channel), grad)
        return out

    return compute


def _mean_grad_cost(shape: Array, grad: Array, *_more: Array) -> float:
    size = float(np.prod(np.maximum(shape, 0), dtype=float))
    return float(2 * _GRAD_NS * (size + grad.size))


def _spread(x: Array, windows: _Windows, axis: int, length: int) -> Array:
    out = np.zeros((*x.shape[:axis], length, *x.shape[axis + 1 :]), x.dtype)
    for number in range(windows.largest):
        check_wanted()
        which, places = windows.tap(number)
        out[_at(axis, places)] += x[_at(axis, which)]  # no two windows have the same place at one tap
    return out


@kernel("FractionalAvgPoolGrad", T=_TYPES, cost=_mean_grad_cost)
def fractional_avg_pool_grad(c: OpKernelConstruction) -> Compute:
    """Return the gradient of each mean, shared by the elements of its window; computed in float64."""
    overlapping, allocate = c.attr("overlapping"), allocator(c)

    def compute(shape: Array, grad: Array, row_sequence: Array, column_sequence: Array) -> Array:
        if shape.shape != (4,):
            raise errors.InvalidArgumentError("original input tensor shape must be 1-dimensional and 4 elements")
        if grad.ndim != 4:
            raise errors.InvalidArgumentError("out_backprop must be 4-dimensional")
        if shape.min() < 0:
            raise errors.InvalidArgumentError(f"Expected a non-negative size, got {shape.min()}")
        image = tuple(shape.tolist())
        rows, columns = _both(row_sequence, column_sequence, grad.shape, image, overlapping)
        out = allocate(image)
        announce_scratch(24 * out.size)
        shares = grad / _counts(rows, columns, np.float64)
        with np.errstate(all="ignore"):
            out[...] = _spread(_spread(shares, columns, 2, image[2]), rows, 1, image[1])
        return out

    return compute
