"""Normal random numbers between bounds, each batch with its own mean, deviation and bounds.

Depending on its bounds, a batch is drawn from normal, uniform or exponential numbers, and those that do not fit are
rejected.  Batches take the generator's words one after the other, so they are drawn one after the other; each in
arrays.
Next to read: `random_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import check_max_rank, shape_text
from aexec.framework.waiting.loop_budget import let_others_run
from aexec.kernels.common.allocation import allocator
from aexec.kernels.random import generators as common
from aexec.kernels.random.generators import cost_per_output
from aexec.numerics import philox
from aexec.numerics.philox import Philox

__all__: list[str] = []

_TYPES = (dtypes.float16, dtypes.float32, dtypes.float64)
_NANOSECONDS = 100.0
# Bytes of candidates per number.
_SCRATCH = 48

# TensorFlow gives up after this many consecutive rejections.
_MAX_ITERATIONS = 1000
# From this many deviations between the mean and a bound on, normal numbers are rejected least.
_NORMAL_FROM = 1.3
# Draws at a time.
_FEW, _MANY = 16, 1 << 15
# Samples of a batch if all batches have the same parameters.
_BATCH = 100

# From a generator and a number of draws: candidates [blocks, n], and which of them are accepted.
Draw = Callable[[Philox, int], tuple[Any, Any]]


def _filled(fill: Any, generator: Philox, blocks: int, dtype: Any) -> Any:
    out = np.empty((blocks, 2 if dtype == np.float64 else 4), dtype)
    fill(generator, out)
    return out


def _from_normal(low: Any, high: Any) -> Draw:
    def draw(generator: Philox, blocks: int) -> tuple[Any, Any]:
        values = _filled(philox.fill_standard_normal, generator, blocks, low.dtype)
        return values, (values >= low) & (values <= high)

    return draw


def _from_uniform(low: Any, high: Any) -> Draw:
    plus = low.dtype.type(0) if low < 0 else low * low

    def draw(generator: Philox, blocks: int) -> tuple[Any, Any]:
        rows = _filled(philox.fill_uniform, generator, 2 * blocks, low.dtype)
        values = rows[0::2] * (high - low) + low
        return values, rows[1::2] <= np.exp((plus - values * values) / low.dtype.type(2))

    return draw


def _from_exponential(low: Any, high: Any) -> Draw:
    number = low.dtype.type
    alpha = (low + np.sqrt(low * low + number(4))) / number(2)

    def draw(generator: Philox, blocks: int) -> tuple[Any, Any]:
        rows = _filled(philox.fill_uniform, generator, blocks, low.dtype)
        values = -np.log(rows[:, 0::2]) / alpha + low
        x = alpha - values if low < alpha else low - alpha
        return values, (rows[:, 1::2] <= np.exp(-x * x / number(2))) & (values < high)

    return draw


def _method(low: Any, high: Any) -> tuple[Draw, int]:
    """Return the method for drawing between these bounds, and the number of blocks that a draw takes."""
    number = low.dtype.type
    if (low < -number(_NORMAL_FROM) and high >= 0) or (high > number(_NORMAL_FROM) and low <= 0):
        return _from_normal(low, high), 1
    root = np.sqrt(low * low + number(4))
    cutoff = number(2) * np.exp(number(0.5) + (low * (low - root)) / number(4)) / (low + root)
    return (_from_uniform(low, high), 2) if high - low < cutoff else (_from_exponential(low, high), 1)


def _batch(generator: Philox, count: int, mean: Any, deviation: Any, low: Any, high: Any) -> tuple[Any, Philox]:
    """Return that many numbers, and the generator after them.

    Raises:
        InvalidArgumentError: the bounds are in the wrong order or both infinite, or the deviation is not positive.
        InvalidArgumentError: too many consecutive candidates were rejected.
    """
    if not (deviation > 0 and low < high and (np.isfinite(low) or np.isfinite(high))):
        raise errors.InvalidArgumentError("Invalid parameters")
    if np.isneginf(low) or high < mean:
        low, high, deviation = high, low, -deviation
    draw, blocks_per_draw = _method((low - mean) / deviation, (high - mean) / deviation)
    pieces, missing, rejected = [], count, 0
    while missing:
        let_others_run()
        draws = min(max(missing // 2 + 1, _FEW), _MANY)
        values, accepted = draw(generator, draws)
        row, column = (places[:missing] for places in np.nonzero(accepted))
        rejected = 0 if row.size else rejected + accepted.size
        if rejected > _MAX_ITERATIONS:
            raise errors.InvalidArgumentError("TruncatedNormal rejection sampler failed to accept a sample.")
        pieces.append(values[row, column])
        missing -= row.size
        # The rest of the last draw is not used.
        generator = generator.skip((draws if missing else int(row[-1]) + 1) * blocks_per_draw)
    return np.concatenate(pieces) * deviation + mean, generator


@kernel("ParameterizedTruncatedNormal", dtype=_TYPES, cost=cost_per_output(_NANOSECONDS), scratch=_SCRATCH)
def parameterized_truncated_normal(c: OpKernelConstruction) -> Compute:
    """Return an array of the given shape, with parameters for each index of the first dimension, or one for all."""
    node_generator, allocate = common.own_generator(c), allocator(c)

    def check(shape: Any, parameters: dict[str, Any]) -> None:
        if shape.ndim != 1:
            raise errors.InvalidArgumentError(f"Input shape should be a vector, got shape: {shape_text(shape.shape)}")
        if not shape.size:
            raise errors.InvalidArgumentError(
                "Shape tensor must not be empty, got Tensor<type: "
                f"{dtypes.from_numpy(shape.dtype)} shape: [0] values: >"
            )
        for name, value in parameters.items():
            if value.ndim > 1:
                raise errors.InvalidArgumentError(
                    f"Input {name} should be a scalar or vector, got shape: {shape_text(value.shape)}"
                )
        for name, value in parameters.items():
            if value.ndim and value.size not in (1, int(shape[0])):
                raise errors.InvalidArgumentError(
                    f"Input {name} should have length 1 or shape[0], got shape: {shape_text(value.shape)}"
                )

    def compute(shape: Any, *parameters: Any) -> Any:
        check(shape, dict(zip(("means", "stddevs", "minvals", "maxvals"), parameters, strict=True)))
        check_max_rank(shape.size)
        out = allocate(shape.tolist())
        if not out.size:
            return out
        batches, size = out.shape[0], out.size // out.shape[0]
        if all(value.size == 1 for value in parameters):
            batches, size = -(-out.size // _BATCH), _BATCH
        generator = node_generator.reserve(batches * 2 * _MAX_ITERATIONS * (size + 3) // 4)
        rows = np.broadcast_arrays(*(value.reshape(-1) for value in parameters), np.empty(batches))[:-1]
        flat = out.reshape(-1)
        for start, *row in zip(range(0, out.size, size), *rows, strict=True):
            part = flat[start : start + size]
            part[...], generator = _batch(generator, part.size, *row)
        return out

    return compute


@kernel(
    "StatelessParameterizedTruncatedNormal",
    host_memory=("shape", "seed", "means", "stddevs", "minvals", "maxvals"),
    dtype=_TYPES,
    cost=cost_per_output(_NANOSECONDS),
    scratch=_SCRATCH,
)
def seeded_parameterized_truncated_normal(c: OpKernelConstruction) -> Compute:
    """Return an array of the given shape, whose last dimensions are those of the parameters; determined by a seed."""
    allocate = allocator(c)

    def compute(shape: Any, seed: Any, *parameters: Any) -> Any:
        try:
            batch = np.broadcast_shapes(*(value.shape for value in parameters))
        except ValueError:
            texts = " vs. ".join(shape_text(value.shape) for value in parameters)
            raise errors.InvalidArgumentError(
                f"means, stddevs, minvals, maxvals must have compatible batch dimensions: {texts}"
            ) from None
        if shape.ndim != 1:
            raise errors.InvalidArgumentError(f"Input shape should be a vector, got shape: {shape_text(shape.shape)}")
        generator = common.seeded_generator(seed)
        check_max_rank(shape.size)
        out = allocate(shape.tolist())
        if len(out.shape) < len(batch) or out.shape[len(out.shape) - len(batch) :] != batch:
            raise errors.InvalidArgumentError("Shape passed in must end with broadcasted shape.")
        if not out.size:
            return out
        columns = out.reshape(-1, int(np.prod(batch)))
        rows = (np.broadcast_to(value, batch).reshape(-1) for value in parameters)
        for column, *row in zip(columns.T, *rows, strict=True):
            column[...], generator = _batch(generator, column.size, *row)
        return out

    return compute
