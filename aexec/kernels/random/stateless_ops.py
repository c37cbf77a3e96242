"""Random numbers that the inputs determine: a seed, or (V2) a key, a counter and an algorithm.

The only algorithm is Philox.
Next to read: `stateful_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.kernels.common.allocation import allocator
from aexec.kernels.random import generators as common
from aexec.kernels.random.generators import FLOAT_TYPES, cost_per_output
from aexec.numerics import philox

INDEX = (dtypes.int32, dtypes.int64)
WIDE_INTEGERS = (dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64)


_FILL = {
    "StatelessRandomUniform": philox.fill_uniform,
    "StatelessRandomNormal": philox.fill_standard_normal,
    "StatelessTruncatedNormal": philox.fill_truncated_normal,
    "StatelessRandomUniformFullInt": philox.fill_full_integers,
}


@kernel("StatelessRandomUniform", host_memory=("shape", "seed"), dtype=FLOAT_TYPES, cost=cost_per_output(15.0))
@kernel("StatelessRandomNormal", host_memory=("shape", "seed"), dtype=FLOAT_TYPES, cost=cost_per_output(50.0))
@kernel("StatelessTruncatedNormal", host_memory=("shape", "seed"), dtype=FLOAT_TYPES, cost=cost_per_output(100.0))
@kernel("StatelessRandomUniformFullInt", host_memory=("shape", "seed"), dtype=WIDE_INTEGERS, cost=cost_per_output(15.0))
def seeded(c: OpKernelConstruction) -> Compute:
    """Return numbers of the op's distribution, determined by a seed."""
    fill, allocate = _FILL[c.op], allocator(c)
    xp = c.xp

    def compute(shape: Any, seed: Any) -> Any:
        dims = common.dimensions(shape)
        generator = common.seeded_generator(seed)
        out = allocate(dims)
        fill(generator, out, xp)
        return out

    return compute


@kernel("StatelessRandomUniformV2", host_memory=("shape", "alg"), dtype=FLOAT_TYPES, cost=cost_per_output(15.0))
@kernel("StatelessRandomNormalV2", host_memory=("shape", "alg"), dtype=FLOAT_TYPES, cost=cost_per_output(50.0))
@kernel("StatelessTruncatedNormalV2", host_memory=("shape", "alg"), dtype=FLOAT_TYPES, cost=cost_per_output(100.0))
@kernel(
    "StatelessRandomUniformFullIntV2", host_memory=("shape", "alg"), dtype=WIDE_INTEGERS, cost=cost_per_output(15.0)
)
def keyed(c: OpKernelConstruction) -> Compute:
    """Return numbers of the op's distribution, determined by key and counter."""
    fill, allocate = _FILL[c.op.removesuffix("V2")], allocator(c)
    xp = c.xp

    def compute(shape: Any, key: Any, counter: Any, alg: Any) -> Any:
        dims = common.dimensions(shape)
        generator = common.keyed_generator(key, counter, alg)
        out = allocate(dims)
        fill(generator, out, xp)
        return out

    return compute


@kernel(
    "StatelessRandomUniformInt",
    host_memory=("shape", "seed", "minval", "maxval"),
    dtype=INDEX,
    cost=cost_per_output(20.0),
)
def seeded_integers(c: OpKernelConstruction) -> Compute:
    """Return integers in [minval, maxval), determined by a seed."""
    allocate, xp = allocator(c), c.xp

    def compute(shape: Any, seed: Any, minval: Any, maxval: Any) -> Any:
        dims = common.dimensions(shape)
        generator = common.seeded_generator(seed)
        out = allocate(dims)
        low, high = common.bounds(minval, maxval, out.size)
        if out.size:
            philox.fill_integers(generator, out, low, high, xp)
        return out

    return compute


@kernel(
    "StatelessRandomUniformIntV2",
    host_memory=("shape", "alg", "minval", "maxval"),
    dtype=INDEX,
    cost=cost_per_output(20.0),
)
def keyed_integers(c: OpKernelConstruction) -> Compute:
    """Return integers in [minval, maxval), determined by key and counter."""
    allocate, xp = allocator(c), c.xp

    def compute(shape: Any, key: Any, counter: Any, alg: Any, minval: Any, maxval: Any) -> Any:
        dims = common.dimensions(shape)
        generator = common.keyed_generator(key, counter, alg)
        out = allocate(dims)
        low, high = common.bounds(minval, maxval, out.size)
        if out.size:
            philox.fill_integers(generator, out, low, high, xp)
        return out

    return compute


@kernel("StatelessShuffle", T=dtypes.ALL, cost=150.0)
def shuffle(c: OpKernelConstruction) -> Compute:
    """Return the rows of a tensor in random order, determined by key and counter."""

    def compute(value: Any, key: Any, counter: Any, alg: Any) -> Any:
        generator = common.keyed_generator(key, counter, alg)
        if value.ndim == 0 or value.shape[0] <= 1 or not value.size:
            return value
        return common.shuffled(c.xp, generator, value)

    return compute


@kernel("StatelessMultinomial", T=FLOAT_TYPES, output_dtype=INDEX, cost=common.multinomial_cost)
def multinomial(c: OpKernelConstruction) -> Compute:
    """Return classes drawn by unnormalised log probabilities, determined by a seed."""
    xp, out = c.xp, c.attr("output_dtype").np

    def compute(logits: Any, num_samples: Any, seed: Any) -> Any:
        generator = common.seeded_generator(seed)
        return common.multinomial(xp, lambda count: generator, logits, num_samples, out)

    return compute


def _key_and_counter(seed: Any) -> tuple[Any, Any]:
    generator = common.seeded_generator(seed)
    return np.array([generator.key], np.uint64), np.array([0, generator.counter >> 64], np.uint64)


@kernel("StatelessRandomGetKeyCounter", host_memory=("seed", "key", "counter"), cost=0)
def key_and_counter(c: OpKernelConstruction) -> Compute:
    """Return key and counter for the V2 ops, from a seed."""
    return _key_and_counter


@kernel("StatelessRandomGetKeyCounterAlg", host_memory=("seed", "key", "counter", "alg"), cost=0)
def key_counter_and_algorithm(c: OpKernelConstruction) -> Compute:
    """Return key, counter and algorithm for the V2 ops, from a seed."""
    algorithm = np.int32(common.PHILOX)
    return lambda seed: (*_key_and_counter(seed), algorithm)


@kernel("StatelessRandomGetAlg", host_memory=("alg",), cost=0)
def algorithm(c: OpKernelConstruction) -> Compute:
    """Return the number of the algorithm that suits the device."""
    philox_number = np.int32(common.PHILOX)
    return lambda: philox_number
