"""Poisson and binomial random numbers.

For small means the kernels count (Knuth's product of uniform numbers, and sums of geometric ones); for large means they
use Hörmann's transformed rejection.  Each sample has its own range of the generator's blocks; here all samples take a
step at a time, as in `gamma_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.kernel_contract.output_sizes import PerOutput
from aexec.framework.shape import check_max_rank, shape_text
from aexec.kernels.common.allocation import allocator
from aexec.kernels.random import generators as common
from aexec.kernels.random.gamma_ops import Buffers
from aexec.kernels.random.generators import cost_per_output
from aexec.kernels.random.stateful_ops import advance, scalar_at
from aexec.numerics import philox
from aexec.numerics.philox import Philox

__all__: list[str] = []

_RANDOM_TYPES = (dtypes.float16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)
_NANOSECONDS = 1000.0
# From this mean on numbers are drawn by rejection.
_LARGE = 10
# Limit of steps.  A rejection is less likely than one in two, so numbers that fit the type never reach it.
_MAX_STEPS = 2000

Uniforms = Callable[[Any], Any]
Allocate = Callable[[Any], Any]


def _uniforms(generator: Philox, places: Any) -> Uniforms:
    """A function that returns the next uniform number of each of some samples."""
    return Buffers(generator, places, philox.unit_doubles).next


class _Rejection:
    """Draws for samples until all are accepted.  Raises InvalidArgumentError after `_MAX_STEPS` steps."""

    def __init__(self, count: int, what: str) -> None:
        self.waiting, self._what = np.arange(count), what

    def steps(self) -> Any:
        for _ in range(_MAX_STEPS):
            if not self.waiting.size:
                return
            yield self.waiting
        raise errors.InvalidArgumentError(f"{self._what} is too large for the type of the output")

    def accept(self, accepted: Any) -> Any:
        """Mark samples of this step as done; return them."""
        done = self.waiting[accepted]
        self.waiting = self.waiting[~accepted]
        return done


# ---- Poisson


def _small_poisson(rate: Any, uniforms: Uniforms) -> Any:
    limit, product = np.exp(-rate), np.ones_like(rate)
    result = np.zeros_like(rate)
    waiting = np.arange(len(rate))
    while waiting.size:
        product[waiting] *= uniforms(waiting)
        waiting = waiting[product[waiting] > limit[waiting]]
        result[waiting] += 1
    return result


def _large_poisson(rate: Any, uniforms: Uniforms, largest: float) -> Any:
    from scipy.special import gammaln

    if (rate - 20 * np.sqrt(rate) > largest).any():
        raise errors.InvalidArgumentError("rate is too large for the type of the output")
    b = 0.931 + 2.53 * np.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)
    log_rate, result = np.log(rate), np.empty_like(rate)
    drawing = _Rejection(len(rate), "rate")
    for i in drawing.steps():
        u = uniforms(i) - 0.5
        v = uniforms(i)
        shifted = 0.5 - np.abs(u)
        k = np.floor((2 * a[i] / shifted + b[i]) * u + rate[i] + 0.43)
        s = np.log(v * inverse_alpha[i] / (a[i] / (shifted * shifted) + b[i]))
        t = -rate[i] + k * log_rate[i] - gammaln(k + 1)
        tight = (shifted >= 0.07) & (v <= v_r[i])
        possible = (k >= 0) & ~((shifted < 0.013) & (v > shifted))
        accepted = (k <= largest) & (tight | (possible & (s <= t)))
        result[drawing.accept(accepted)] = k[accepted]
    return result


def _poisson(generator: Philox, rate: Any, out: DType, first: int) -> Any:
    """One number for each rate of a float64 vector: NaN for NaN, zero for zero, the type's largest for infinity.

    `first` is the index of the first of them among the generator's samples.
    """
    places = np.arange(first, first + len(rate), dtype=np.uint64) * np.uint64(philox.BLOCKS_PER_OUTPUT)
    largest = float(out.max)
    result = np.where(np.isnan(rate), 0.0, largest) if out.is_integer else rate.copy()
    finite = np.isfinite(rate)
    for chosen, draw in (
        (finite & (rate < _LARGE), _small_poisson),
        (finite & (rate >= _LARGE), lambda r, u: _large_poisson(r, u, largest)),
    ):
        where = np.flatnonzero(chosen)
        if where.size:
            result[where] = draw(rate[where], _uniforms(generator, places[where]))
    return result


def _as_type(values: Any, out: DType) -> Any:
    if out is not dtypes.int64:
        return values.astype(out.np)
    # The largest int64 is not a float64.
    inside = values < 2.0**63
    return np.where(inside, np.where(inside, values, 0).astype(np.int64), np.int64(2**63 - 1))


def _fill_poisson(generator: Philox, rate: Any, out: Any, dtype: DType) -> None:
    """Fill `out` [..., *rate's shape]; samples are numbered rate by rate."""

    def draw(rates: Any, first: int) -> Any:
        return _as_type(_poisson(generator, rates, dtype, first), dtype)

    common.fill_samples(np, [rate.astype(np.float64)], out, out.dtype, draw)


@kernel(
    "RandomPoisson",
    dtype=(dtypes.float16, dtypes.float32, dtypes.float64),
    cost=common.cost_per_parameter(_NANOSECONDS),
    needs=("scipy.special",),
)
@kernel(
    "RandomPoissonV2",
    R=_RANDOM_TYPES,
    dtype=_RANDOM_TYPES,
    cost=common.cost_per_parameter(_NANOSECONDS),
    needs=("scipy.special",),
)
def random_poisson(c: OpKernelConstruction) -> Compute:
    """Return [*shape, *rate's shape]: `shape` numbers for each rate."""
    generator, allocate, dtype = common.own_generator(c), allocator(c), c.attr("dtype")

    def compute(shape: Any, rate: Any) -> Any:
        out = allocate([*common.dimensions(shape), *rate.shape])
        if out.size:
            _fill_poisson(generator.reserve_outputs(out.size), rate, out, dtype)
        return out

    return compute


def _check_ends_with(shape: tuple[int, ...], end: tuple[int, ...]) -> None:
    if len(shape) < len(end) or shape[len(shape) - len(end) :] != end:
        raise errors.InvalidArgumentError("Shape passed in must end with broadcasted shape.")


@kernel(
    "StatelessRandomPoisson",
    host_memory=("shape", "seed", "lam"),
    Rtype=_RANDOM_TYPES,
    dtype=_RANDOM_TYPES,
    cost=cost_per_output(_NANOSECONDS),
    needs=("scipy.special",),
)
def seeded_poisson(c: OpKernelConstruction) -> Compute:
    """Return an array of the given shape, whose last dimensions are the rates'; determined by a seed."""
    allocate, dtype = allocator(c), c.attr("dtype")

    def compute(shape: Any, seed: Any, rate: Any) -> Any:
        dims = common.dimensions(shape)
        generator = common.seeded_generator(seed)
        out = allocate(dims)
        _check_ends_with(out.shape, rate.shape)
        if out.size:
            _fill_poisson(generator, rate, out, dtype)
        return out

    return compute


# ---- Binomial

# Blocks of the generator for each sample.
_REJECTION_BLOCKS = 256
_INVERSION_BLOCKS = 42
# Blocks that TensorFlow reserves for up to four samples of a batch, times `philox.BLOCKS_PER_OUTPUT`.
_BLOCKS_PER_FOUR_SAMPLES = 200

_TAILS = np.array(
    [
        0.0810614667953272,
        0.0413406959554092,
        0.0276779256849983,
        0.02079067210376509,
        0.0166446911898211,
        0.0138761288230707,
        0.0118967099458917,
        0.0104112652619720,
        0.00925546218271273,
        0.00833056343336287,
    ]
)


def _stirling_tail(k: Any) -> Any:
    """The difference between log(k!) and Stirling's formula."""
    square = (k + 1) * (k + 1)
    tail = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    return np.where(k <= 9, _TAILS[np.clip(k, 0, 9).astype(np.intp)], tail)


def _inverted(count: Any, prob: Any, uniforms: Uniforms) -> Any:
    """The number of geometric random numbers whose sum does not exceed the count."""
    total, result = np.zeros_like(count), np.zeros_like(count)
    scale, waiting = np.log1p(-prob), np.arange(len(count))
    while waiting.size:
        total[waiting] += np.ceil(np.log(uniforms(waiting)) / scale[waiting])
        waiting = waiting[total[waiting] <= count[waiting]]
        result[waiting] += 1
    return result


def _rejected(count: Any, prob: Any, uniforms: Uniforms) -> Any:
    deviation = np.sqrt(count * prob * (1 - prob))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * prob
    middle, v_r, r = count * prob + 0.5, 0.92 - 4.2 / b, prob / (1 - prob)
    alpha, m = (2.83 + 5.1 / b) * deviation, np.floor((count + 1) * prob)
    fixed = _stirling_tail(m) + _stirling_tail(count - m)
    result = np.empty_like(count)
    drawing = _Rejection(len(count), "counts")
    for i in drawing.steps():
        u = uniforms(i)
        v = uniforms(i)
        u = u - 0.5
        shifted = 0.5 - np.abs(u)
        k = np.floor((2 * a[i] / shifted + b[i]) * u + middle[i])
        tight = (shifted >= 0.07) & (v <= v_r[i])
        n, possible = count[i], (k >= 0) & (k <= count[i])
        safe = np.where(possible, k, 0)
        bound = (
            (m[i] + 0.5) * np.log((m[i] + 1) / (r[i] * (n - m[i] + 1)))
            + (n + 1) * np.log((n - m[i] + 1) / (n - safe + 1))
            + (safe + 0.5) * np.log(r[i] * (n - safe + 1) / (safe + 1))
            + fixed[i]
            - _stirling_tail(safe)
            - _stirling_tail(n - safe)
        )
        accepted = tight | (possible & (np.log(v * alpha[i] / (a[i] / (shifted * shifted) + b[i])) <= bound))
        result[drawing.accept(accepted)] = k[accepted]
    return result


def _binomial(generator: Philox, counts: Any, probs: Any, first: int) -> Any:
    """One float64 number for each pair of elements of two vectors of one type.

    `first` is the index of the first of them among the generator's samples.
    """
    one = probs.dtype.type(1)
    flipped = probs > 0.5
    small = np.where(flipped, one - probs, probs)
    is_large = counts * small >= _LARGE
    count, prob = counts.astype(np.float64), small.astype(np.float64)
    impossible, certain = (count <= 0) | (probs <= 0), probs >= 1
    number = np.arange(first, first + len(counts), dtype=np.uint64)
    result = np.where(impossible, 0.0, np.where(certain, count, np.nan))
    drawn = ~impossible & ~certain & ~np.isnan(probs) & np.isfinite(count)
    for chosen, blocks, draw in (
        (drawn & is_large, _REJECTION_BLOCKS, _rejected),
        (drawn & ~is_large, _INVERSION_BLOCKS, _inverted),
    ):
        where = np.flatnonzero(chosen)
        if where.size:
            uniforms = _uniforms(generator, number[where] * np.uint64(blocks))
            found = draw(count[where], prob[where], uniforms)
            result[where] = np.where(flipped[where], count[where] - found, found)
    return result


@kernel(
    "StatelessRandomBinomial",
    host_memory=("shape", "seed", "counts", "probs"),
    T=_RANDOM_TYPES[:3],
    dtype=_RANDOM_TYPES,
    cost=cost_per_output(_NANOSECONDS),
)
def seeded_binomial(c: OpKernelConstruction) -> Compute:
    """Return an array of the given shape, whose last dimensions are those of counts and probs; determined by a
    seed.
    """
    allocate, dtype = allocator(c), c.attr("dtype")

    def compute(shape: Any, seed: Any, counts: Any, probs: Any) -> Any:
        pair, out = _batch_and_output(shape, counts, probs, allocate)
        _fill_binomial(common.seeded_generator(seed), pair, out, dtype)
        return out

    return compute


@kernel(
    "StatefulRandomBinomial",
    host_memory=("resource", "algorithm", "shape", "counts", "probs"),
    T=_RANDOM_TYPES[:3],
    dtype=_RANDOM_TYPES,
    cost=PerOutput(_NANOSECONDS),
)
def binomial_from_variable(c: OpKernelConstruction) -> Compute:
    """Return an array of the given shape, whose last dimensions are those of counts and probs; the generator is in a
    variable.
    """
    allocate, dtype = allocator(c), c.attr("dtype")
    c.need_context()

    def compute(context: OpKernelContext, resource: Any, algorithm: Any, shape: Any, counts: Any, probs: Any) -> Any:
        chosen = scalar_at(algorithm, 1)
        pair, out = _batch_and_output(shape, counts, probs, allocate)
        batches = pair[0].size
        samples = out.size // max(batches, 1)
        blocks = batches * _BLOCKS_PER_FOUR_SAMPLES * (samples + 3) // 4
        generator = advance(context, resource, chosen, blocks * philox.BLOCKS_PER_OUTPUT)
        _fill_binomial(generator, pair, out, dtype)
        return out

    return compute


def _batch_and_output(shape: Any, counts: Any, probs: Any, allocate: Allocate) -> tuple[list[Any], Any]:
    """Counts and probs, broadcast to each other, and the output, whose last dimensions are theirs."""
    try:
        batch = np.broadcast_shapes(counts.shape, probs.shape)
    except ValueError:
        raise errors.InvalidArgumentError(
            "counts and probs must have compatible batch dimensions: "
            f"{shape_text(counts.shape)} vs. {shape_text(probs.shape)}"
        ) from None
    if shape.ndim != 1:
        raise errors.InvalidArgumentError(f"Input shape should be a vector, got shape: {shape_text(shape.shape)}")
    check_max_rank(shape.size)
    out = allocate(shape.tolist())
    _check_ends_with(out.shape, batch)
    return [np.broadcast_to(x, batch) for x in (counts, probs)], out


def _fill_binomial(generator: Philox, pair: list[Any], out: Any, dtype: DType) -> None:
    def draw(counts: Any, probs: Any, first: int) -> Any:
        return _as_counts(_binomial(generator, counts, probs, first), dtype)

    if out.size:
        common.fill_samples(np, pair, out, out.dtype, draw)


def _as_counts(values: Any, dtype: DType) -> Any:
    """Values of the output's type; for integers NaN becomes the lowest one, as in C++."""
    if dtype.is_integer:
        values = np.where(np.isnan(values), float(dtype.min), np.minimum(values, float(dtype.max)))
    return _as_type(values, dtype)
