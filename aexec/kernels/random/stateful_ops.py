"""Random numbers from generators whose state is a variable: int64 [3], the counter's halves and the key.

Reading and advancing the state is atomic across threads.  Variables are assigned as whole arrays, so a state that was
read before stays unchanged.
Next to read: `aexec/kernels/state/resource_variable_ops.py`, for the variables.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.kernel_contract.output_sizes import PerOutput
from aexec.framework.shape import shape_text
from aexec.framework.state.resource_manager import handle_from_tensor
from aexec.framework.state.resource_variable import ResourceVariable
from aexec.framework.waiting.loop_budget import let_others_run
from aexec.kernels.common.allocation import allocator
from aexec.kernels.random import generators as common
from aexec.kernels.random.generators import FLOAT_TYPES
from aexec.numerics import philox
from aexec.numerics.philox import Philox

__all__ = ["advance", "scalar_at"]

WIDE_INTEGERS = (dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64)

_PHILOX = 1
_STATE_SIZE = 3
_MASK = 0xFFFFFFFFFFFFFFFF
# Numbers that are requested from the system at a time, in about 0.3 ms.
_AT_ONCE = 1 << 14
_SIGNED = 1 << 63
_COST = PerOutput(20.0)

# Held while a state is read and replaced, which is short, so one lock serves all generators.
_advancing = threading.Lock()

_FILL = {
    "StatefulUniform": philox.fill_uniform,
    "StatefulStandardNormalV2": philox.fill_standard_normal,
    "StatefulTruncatedNormal": philox.fill_truncated_normal,
    "StatefulUniformFullInt": philox.fill_full_integers,
}


def advance(context: OpKernelContext, handle_tensor: Any, algorithm: int | None, blocks: int) -> Philox:
    """Return the generator in a variable, then advances that by `blocks`.

    If `algorithm` is None, the state begins with its number.
    """
    handle = handle_from_tensor(handle_tensor)
    with _advancing:
        variable = context.resources.find(handle.container, handle.name, ResourceVariable)
        if variable is None or variable.value is None:
            raise errors.NotFoundError(f"Resource {handle.container}/{handle.name} does not exist.")
        state = np.asarray(variable.value)
        if variable.dtype is not dtypes.int64:
            raise errors.InvalidArgumentError(f"dtype of RNG state variable must be int64, not {variable.dtype}")
        if state.ndim != 1:
            raise errors.InvalidArgumentError(f"RNG state must have one and only one dimension, not {state.ndim}")
        first = 0 if algorithm is not None else 1
        if state.size < first:
            raise errors.InvalidArgumentError("Size of tensor must be at least 1")
        chosen = int(state[0]) if algorithm is None else algorithm
        if chosen != _PHILOX:
            raise errors.InvalidArgumentError(f"Unsupported algorithm id: {chosen}")
        if state.size < first + _STATE_SIZE:
            raise errors.InvalidArgumentError(
                f"For the Philox algorithm, the size of state must be at least {first + _STATE_SIZE}; got {state.size}"
            )
        low, high, key = (value & _MASK for value in state[first:][:_STATE_SIZE].tolist())
        generator = Philox(key, low | high << 64)
        after = generator.skip(blocks).counter
        advanced = state.copy()
        advanced[first : first + 2] = [((half & _MASK) ^ _SIGNED) - _SIGNED for half in (after, after >> 64)]
        variable.value = advanced
    return generator


def scalar_at(value: Any, index: int) -> int:
    if value.ndim:
        raise errors.InvalidArgumentError(f"input {index} (0-based) must have shape [], not {shape_text(value.shape)}")
    return int(value)


@kernel(
    "StatefulUniform",
    "StatefulStandardNormalV2",
    "StatefulTruncatedNormal",
    host_memory=("resource", "algorithm", "shape"),
    dtype=FLOAT_TYPES,
    cost=_COST,
)
@kernel("StatefulUniformFullInt", host_memory=("resource", "algorithm", "shape"), dtype=WIDE_INTEGERS, cost=_COST)
def stateful(c: OpKernelConstruction) -> Compute:
    """Return numbers of the op's distribution."""
    fill, allocate = _FILL[c.op], allocator(c)
    c.need_context()

    def compute(context: OpKernelContext, resource: Any, algorithm: Any, shape: Any) -> Any:
        chosen = scalar_at(algorithm, 1)
        out = allocate(common.dimensions(shape))
        fill(advance(context, resource, chosen, out.size * philox.BLOCKS_PER_OUTPUT), out)
        return out

    return compute


@kernel("StatefulStandardNormal", host_memory=("resource", "shape"), dtype=FLOAT_TYPES, cost=_COST)
def stateful_with_algorithm(c: OpKernelConstruction) -> Compute:
    """Return standard normal numbers; the state, int64 [4], begins with the algorithm's number."""
    allocate = allocator(c)
    c.need_context()

    def compute(context: OpKernelContext, resource: Any, shape: Any) -> Any:
        out = allocate(common.dimensions(shape))
        philox.fill_standard_normal(advance(context, resource, None, out.size * philox.BLOCKS_PER_OUTPUT), out)
        return out

    return compute


@kernel(
    "StatefulUniformInt",
    host_memory=("resource", "algorithm", "shape", "minval", "maxval"),
    dtype=(dtypes.int32, dtypes.int64),
    cost=_COST,
)
def stateful_integers(c: OpKernelConstruction) -> Compute:
    """Return integers in [minval, maxval)."""
    allocate = allocator(c)
    c.need_context()

    def compute(context: OpKernelContext, resource: Any, algorithm: Any, shape: Any, minval: Any, maxval: Any) -> Any:
        chosen = scalar_at(algorithm, 1)
        low, high = common.bounds(minval, maxval, 1)
        out = allocate(common.dimensions(shape))
        philox.fill_integers(advance(context, resource, chosen, out.size * philox.BLOCKS_PER_OUTPUT), out, low, high)
        return out

    return compute


@kernel("RngSkip", host_memory=("resource", "algorithm", "delta"), cost=0)
def skip(c: OpKernelConstruction) -> Compute:
    """Advances a generator as `delta` numbers would."""
    c.need_context()

    def compute(context: OpKernelContext, resource: Any, algorithm: Any, delta: Any) -> None:
        blocks = scalar_at(delta, 2) * philox.BLOCKS_PER_OUTPUT
        advance(context, resource, scalar_at(algorithm, 1), blocks)

    return compute


@kernel("RngReadAndSkip", host_memory=("resource", "alg", "delta"), cost=0)
def read_and_skip(c: OpKernelConstruction) -> Compute:
    """Return the state before advancing: the counter's halves and the key."""
    c.need_context()

    def compute(context: OpKernelContext, resource: Any, alg: Any, delta: Any) -> Any:
        blocks = scalar_at(delta, 2) * philox.BLOCKS_PER_OUTPUT
        generator = advance(context, resource, scalar_at(alg, 1), blocks)
        words = [generator.counter & _MASK, generator.counter >> 64, generator.key]
        return np.array(words, np.uint64).view(np.int64)

    return compute


@kernel("NonDeterministicInts", host_memory=("shape",), dtype=WIDE_INTEGERS, cost=common.cost_per_output(5.0))
def non_deterministic(c: OpKernelConstruction) -> Compute:
    """Return integers from the system's source of randomness."""
    dtype, allocate = c.attr("dtype").np, allocator(c)
    c.may_be_abandoned = True  # it changes no state of aexec

    def compute(shape: Any) -> Any:
        out = allocate(common.dimensions(shape))
        flat = out.reshape(-1)
        for start in range(0, flat.size, _AT_ONCE):
            if start:
                let_others_run()
            some = flat[start : start + _AT_ONCE]
            some[...] = np.frombuffer(os.urandom(some.nbytes), dtype)
        return out

    return compute
