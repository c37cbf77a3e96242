"""Gamma distributed random numbers, by the method of Marsaglia and Tsang.

Each sample has its own range of the generator's blocks, from which it draws normal and uniform float64 numbers, two per
block and the second first, until a candidate is accepted.  Here all samples take a step at a time.  The bits are
TensorFlow's but for the last one, which depends on NumPy's logarithm and power.
Next to read: `random_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.kernels.common.allocation import allocator
from aexec.kernels.random import generators as common
from aexec.kernels.random.generators import FLOAT_TYPES, cost_per_output
from aexec.numerics import philox
from aexec.numerics.philox import Philox

__all__ = ["Buffers"]

_NANOSECONDS = 500.0


class Buffers:
    """For each sample, the numbers of one distribution that were drawn and not used yet.

    Args:
        places: the first block of each sample; incremented here.
        convert: makes [n, 2] numbers of words [n, 4].
        xp: module of the arrays.
    """

    def __init__(self, generator: Philox, places: Any, convert: Any, xp: Any = np) -> None:
        self._generator, self._places, self._convert, self._xp = generator, places, convert, xp
        self._values = xp.empty((len(places), 2))
        self._left = xp.zeros(len(places), np.int8 if xp is np else np.int64)

    def next(self, samples: Any) -> Any:
        """The next number of each of these samples."""
        empty = samples[self._left[samples] == 0]
        if len(empty):
            self._values[empty] = self._convert(self._generator.words_at(self._places[empty], self._xp))
            self._places[empty] += np.uint64(1)
            self._left[empty] = 2
        self._left[samples] -= 1
        return self._values[samples, self._left[samples]]


def gamma(generator: Philox, alpha: Any, xp: Any = np, first: int = 0) -> Any:
    """One float64 number for each element of the vector `alpha`; NaN if there is no such distribution.

    Args:
        first: index of the first sample among those of the generator.
    """
    places = xp.arange(first, first + len(alpha), dtype=np.uint64) * np.uint64(philox.BLOCKS_PER_OUTPUT)
    # Both take blocks of the same range, in the order in which they need them.
    normals = Buffers(generator, places, lambda words: philox.normal_doubles(words, xp), xp)
    uniforms = Buffers(generator, places, philox.unit_doubles, xp)
    small = alpha < 1
    d = alpha + xp.where(small, 2.0 / 3, -1.0 / 3)
    c = 1.0 / 3 / xp.sqrt(d)
    result = xp.full(len(alpha), np.nan)
    exponential = alpha == 1
    ones = xp.flatnonzero(exponential)
    result[ones] = -xp.log1p(-uniforms.next(ones))
    waiting = ~exponential & ~xp.isnan(c)
    while len(samples := xp.flatnonzero(waiting)):
        x = normals.next(samples)
        v = 1 + c[samples] * x
        positive = v > 0
        samples, x, v = samples[positive], x[positive], v[positive]
        v = v * v * v
        u, its_d = uniforms.next(samples), d[samples]
        squeezed = u < 1 - 0.0331 * (x * x) * (x * x)
        accepted = squeezed | (xp.log(u) < 0.5 * x * x + its_d * (1 - v + xp.log(v)))
        samples = samples[accepted]
        result[samples] = its_d[accepted] * v[accepted]
        boosted = samples[small[samples]]
        result[boosted] *= uniforms.next(boosted) ** (1 / alpha[boosted])
        waiting[samples] = False
    return result


def _fill(xp: Any, generator: Philox, alpha: Any, out: Any) -> None:
    """Fill `out` [..., *alpha's shape]; samples are numbered alpha by alpha."""
    wide = alpha.astype(np.float64)
    common.fill_samples(xp, [wide], out, np.float64, lambda alphas, first: gamma(generator, alphas, xp, first))


@kernel("RandomGamma", T=FLOAT_TYPES, cost=common.cost_per_parameter(_NANOSECONDS))
def random_gamma(c: OpKernelConstruction) -> Compute:
    """Return [*shape, *alpha's shape]: `shape` numbers for each alpha."""
    xp, generator, allocate = c.xp, common.own_generator(c), allocator(c)

    def compute(shape: Any, alpha: Any) -> Any:
        dims = common.dimensions(shape)
        out = allocate([*dims, *alpha.shape])
        if out.size:
            _fill(xp, generator.reserve_outputs(out.size), alpha, out)
        return out

    return compute


def _stateless(c: OpKernelConstruction, generator_of: Any) -> Compute:
    xp, allocate = c.xp, allocator(c)

    def compute(shape: Any, *inputs: Any) -> Any:
        *seeds, alpha = inputs
        dims = common.dimensions(shape)
        generator = generator_of(*seeds)
        out = allocate(dims)
        if out.size:
            if out.shape[out.ndim - alpha.ndim :] != alpha.shape or out.ndim < alpha.ndim:
                raise errors.InvalidArgumentError("Shape passed in must end with broadcasted shape.")
            _fill(xp, generator, alpha, out)
        return out

    return compute


@kernel("StatelessRandomGammaV2", host_memory=("shape", "seed"), dtype=FLOAT_TYPES, cost=cost_per_output(_NANOSECONDS))
def seeded_gamma(c: OpKernelConstruction) -> Compute:
    """Return an array of the given shape, whose last dimensions are alpha's; determined by a seed."""
    return _stateless(c, common.seeded_generator)


@kernel("StatelessRandomGammaV3", host_memory=("shape", "alg"), dtype=FLOAT_TYPES, cost=cost_per_output(_NANOSECONDS))
def keyed_gamma(c: OpKernelConstruction) -> Compute:
    """Return an array of the given shape, whose last dimensions are alpha's; determined by key and counter."""
    return _stateless(c, common.keyed_generator)
