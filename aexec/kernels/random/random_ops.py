"""Random numbers from generators that each kernel keeps: every run of a node continues where the last one ended.

A kernel's generator belongs to the session that built the kernel, and a lock ensures that no two runs get the same
numbers.
Next to read: `stateless_ops.py`.
"""

from __future__ import annotations

from typing import Any

from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.kernels.common.allocation import allocator
from aexec.kernels.random import generators as common
from aexec.kernels.random.generators import FLOAT_TYPES, cost_per_output
from aexec.numerics import philox

INDEX = (dtypes.int32, dtypes.int64)

_FILL = {
    "RandomUniform": philox.fill_uniform,
    "RandomStandardNormal": philox.fill_standard_normal,
    "TruncatedNormal": philox.fill_truncated_normal,
}


@kernel("RandomUniform", host_memory=("shape",), dtype=FLOAT_TYPES, cost=cost_per_output(15.0))
@kernel("RandomStandardNormal", host_memory=("shape",), dtype=FLOAT_TYPES, cost=cost_per_output(50.0))
@kernel("TruncatedNormal", host_memory=("shape",), dtype=FLOAT_TYPES, cost=cost_per_output(100.0))
def random_floats(c: OpKernelConstruction) -> Compute:
    """Return numbers uniform in [0, 1), or standard normal ones, all or only those within two standard deviations."""
    generator, fill, allocate, xp = common.own_generator(c), _FILL[c.op], allocator(c), c.xp

    def compute(shape: Any) -> Any:
        out = allocate(common.dimensions(shape))
        fill(generator.reserve_outputs(out.size), out, xp)
        return out

    return compute


@kernel("RandomUniformInt", host_memory=("shape", "minval", "maxval"), Tout=INDEX, cost=cost_per_output(20.0))
def random_uniform_int(c: OpKernelConstruction) -> Compute:
    """Return integers in [minval, maxval)."""
    generator, allocate, xp = common.own_generator(c), allocator(c), c.xp

    def compute(shape: Any, minval: Any, maxval: Any) -> Any:
        out = allocate(common.dimensions(shape))
        low, high = common.bounds(minval, maxval, out.size)
        if out.size:
            philox.fill_integers(generator.reserve_outputs(out.size), out, low, high, xp)
        return out

    return compute


@kernel("RandomShuffle", T=dtypes.ALL, cost=150.0)
def random_shuffle(c: OpKernelConstruction) -> Compute:
    """Return the rows of a tensor in random order."""
    generator = common.own_generator(c)

    def compute(value: Any) -> Any:
        if value.ndim == 0 or value.shape[0] <= 1 or not value.size:
            return value
        return common.shuffled(c.xp, generator.reserve((value.shape[0] + 2) // 4), value)

    return compute


@kernel("Multinomial", T=FLOAT_TYPES, output_dtype=INDEX, cost=common.multinomial_cost)
def multinomial(c: OpKernelConstruction) -> Compute:
    """Return classes drawn by unnormalised log probabilities."""
    xp, generator, out = c.xp, common.own_generator(c), c.attr("output_dtype").np
    return lambda logits, num_samples: common.multinomial(xp, generator.reserve_outputs, logits, num_samples, out)
