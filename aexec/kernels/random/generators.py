"""Code that the random kernels share: the shape input, the seed inputs, and draws by an array's type."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import check_max_rank, elements_asked_for, shape_text
from aexec.framework.waiting.loop_budget import giving_way, let_others_run
from aexec.numerics import philox
from aexec.numerics.philox import GuardedPhilox, Philox

__all__ = [
    "FLOAT_TYPES",
    "PHILOX",
    "bounds",
    "cost_per_output",
    "cost_per_parameter",
    "dimensions",
    "fill_samples",
    "keyed_generator",
    "multinomial",
    "multinomial_cost",
    "own_generator",
    "seeded_generator",
    "shuffled",
]

# Numbers of algorithms.  The third is Philox on this device.
PHILOX = 1
_AUTO_SELECT = 3
_COUNTER_SIZE = 2

# Blocks of random words that are made at a time, and numbers of them.
_BLOCKS = 1 << 12
_DOUBLES = 1 << 14

# Samples that are drawn together if each needs some hundred bytes of scratch.
_SAMPLES = 1 << 14

# Nanoseconds that a step of a shuffle takes.
_SWAP_NS = 150.0

FLOAT_TYPES = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


def cost_per_output(nanoseconds: float) -> Callable[..., float]:
    """Return the cost function of ops whose first input is the shape of the output."""

    def cost(shape: Any, *_: Any) -> float:
        return nanoseconds * elements_asked_for(shape)

    return cost


def cost_per_parameter(nanoseconds: float) -> Callable[..., float]:
    """Return the cost function of ops whose first input is the shape of the outputs per element of the second."""
    of_shape = cost_per_output(nanoseconds)
    return lambda shape, parameter: of_shape(shape) * parameter.size


def multinomial_cost(logits: Any, num_samples: Any, *_: Any) -> float:
    """One search per sample, in the cumulative sums of each row of `logits`."""
    return 20.0 * float(logits.size) + 40.0 * float(logits.shape[0]) * float(num_samples)


def own_generator(c: OpKernelConstruction) -> GuardedPhilox:
    """The generator of a stateful op's node: with its seeds, or a random seed if both are 0."""
    c.may_be_abandoned = True
    seed, seed2 = c.attr("seed"), c.attr("seed2")
    if seed == 0 and seed2 == 0:
        seed, seed2 = (int.from_bytes(os.urandom(8), "little") for _ in range(2))
    return GuardedPhilox(Philox.from_seeds(seed, seed2))


def seeded_generator(seed: Any) -> Philox:
    """The generator of a stateless op with this seed input.  Raises InvalidArgumentError if its shape is not [2]."""
    if seed.shape != (2,):
        raise errors.InvalidArgumentError(f"seed must have shape [2], not {shape_text(seed.shape)}")
    return Philox.from_stateless_seed(*seed.tolist())


def keyed_generator(key: Any, counter: Any, alg: Any) -> Philox:
    """The generator that the inputs of a stateless V2 op describe."""
    if alg.ndim:
        raise errors.InvalidArgumentError(f"input 3 (0-based) must have shape [], not {shape_text(alg.shape)}")
    if key.shape != (1,):
        raise errors.InvalidArgumentError(
            f"key must have shape [1], not {shape_text(key.shape)}. (Note that batched keys are not supported yet.)"
        )
    algorithm = int(alg)
    if counter.ndim != 1 or (algorithm in (PHILOX, _AUTO_SELECT) and counter.shape[0] < _COUNTER_SIZE):
        raise errors.InvalidArgumentError(
            f"counter must be a vector with length at least {_COUNTER_SIZE}; got shape: "
            f"{shape_text(counter.shape)}. (Note that batched counters are not supported yet.)"
        )
    if algorithm not in (PHILOX, _AUTO_SELECT):
        raise errors.InvalidArgumentError(f"Unsupported algorithm id: {algorithm}")
    low, high = counter[:_COUNTER_SIZE].tolist()
    return Philox(int(key[0]), low | high << 64)


def dimensions(shape: Any) -> list[int]:
    """A shape input as a list.  Raises InvalidArgumentError if it is not a vector."""
    if shape.ndim != 1 or shape.dtype.kind not in "iu":
        of_type = "" if shape.dtype.kind in "iu" else f" and type {dtypes.from_numpy(shape.dtype)}"
        raise errors.InvalidArgumentError(
            f"shape must be a vector of {{int32,int64}}, got shape {shape_text(shape.shape)}{of_type}"
        )
    check_max_rank(shape.size)
    dims: list[int] = shape.tolist()
    return dims


def bounds(minval: Any, maxval: Any, count: int) -> tuple[int, int]:
    """The bounds of `count` integers as Python's.  Raises InvalidArgumentError for an empty range, if any are drawn."""
    for value, name in ((minval, "minval"), (maxval, "maxval")):
        if value.ndim:
            raise errors.InvalidArgumentError(f"{name} must be 0-D, got shape {shape_text(value.shape)}")
    low, high = int(minval), int(maxval)
    if low >= high and count:
        raise errors.InvalidArgumentError(f"Need minval < maxval, got {low} >= {high}")
    return low, high


def shuffled(xp: Any, generator: Philox, value: Any) -> Any:
    """The rows of `value`, an array of `xp`, in random order."""
    count = value.shape[0]
    announce_scratch(8 * count)
    order = np.arange(count)
    places = order.data  # the memoryview's elements are faster than the array's, and take less memory than a list's
    blocks = (count + 2) // 4
    pieces = (generator.words(start, min(_BLOCKS, blocks - start)) for start in range(0, blocks, _BLOCKS))
    words = chain.from_iterable(piece.ravel().tolist() for piece in pieces)
    for i, word in giving_way(zip(range(count - 1), words, strict=False), _SWAP_NS):
        j = i + word % (count - i)
        places[i], places[j] = places[j], places[i]
    return value[xp.asarray(order)]


def fill_samples(xp: Any, parameters: Sequence[Any], out: Any, dtype: Any, draw: Callable[..., Any]) -> None:
    """Fill `out` [..., *parameters' shape]; samples are numbered parameter by parameter, and drawn some at a time.

    Args:
        xp: module of the arrays.
        parameters: arrays of one shape.
        dtype: the type in which samples are kept until all are drawn.
        draw: called with the parameters of some samples, as vectors, and the index of the first of them.
    """
    flat = [values.reshape(-1) for values in parameters]
    each = out.size // flat[0].size
    announce_scratch(out.size * np.dtype(dtype).itemsize)
    drawn = xp.empty(out.size, dtype)
    # On a device the number of calls matters more than the memory.
    most = _SAMPLES if xp is np else out.size
    for first in range(0, out.size, most):
        let_others_run()
        part = drawn[first : first + most]
        which = xp.arange(first, first + part.size) // each
        part[...] = draw(*[values[which] for values in flat], first)
    out.reshape(each, -1)[...] = drawn.reshape(-1, each).T


def multinomial(xp: Any, reserve: Callable[[int], Philox], logits: Any, num_samples: Any, out: np.dtype[Any]) -> Any:
    """[rows of logits, samples]: classes drawn with probabilities proportional to exp(logits).

    Args:
        xp: module of `logits` and of the result.
        reserve: returns the generator for a number of output elements.
    """
    if logits.ndim != 2:
        raise errors.InvalidArgumentError(f"logits should be a matrix, got shape {shape_text(logits.shape)}")
    if num_samples.ndim:
        raise errors.InvalidArgumentError(f"num_samples should be a scalar, got shape {shape_text(num_samples.shape)}")
    count, (rows, classes) = int(num_samples), logits.shape
    if count < 0:
        raise errors.InvalidArgumentError(f"num_samples should be non-negative, got {count}")
    if not classes:
        raise errors.InvalidArgumentError(f"num_classes should be positive, got {classes}")
    result = xp.empty((rows, count), out)
    if not result.size:
        return result
    generator = reserve(rows * -(-count // 4) * 8)
    announce_scratch(19 * logits.size)
    weights = logits.astype(np.float64)
    finite = xp.isfinite(weights)
    weights[~finite] = -np.inf
    weights -= weights.max(axis=1, keepdims=True)
    xp.exp(weights, out=weights)
    weights[~finite] = 0
    weights = xp.cumsum(weights, axis=1)
    # On a device the number of calls matters more than the memory.
    most = _DOUBLES if xp is np else result.size
    together = max(1, most // count)
    for row in range(0, rows, together):
        for start in range(0, count, most):
            let_others_run()
            part = result[row : row + together, start : start + most]
            uniform = _unit_doubles(xp, generator, row * count + start, part.size).reshape(part.shape)
            for target, drawn, total in zip(part, uniform, weights[row : row + together], strict=True):
                target[...] = xp.searchsorted(total, drawn * total[-1], "right")
    return result


def _unit_doubles(xp: Any, generator: Philox, start: int, count: int) -> Any:
    """`count` numbers from number `start` on; a block makes two."""
    first = start // 2
    doubles = philox.unit_doubles(generator.words(first, (start + count + 1) // 2 - first, xp)).reshape(-1)
    return doubles[start - 2 * first :][:count]
