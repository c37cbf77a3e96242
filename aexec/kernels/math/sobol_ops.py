"""Quasi-random numbers of Sobol's sequence, by SciPy, whose direction numbers are TensorFlow's."""

from __future__ import annotations

from typing import Any

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.waiting.loop_budget import let_others_run
from aexec.kernels.common.allocation import allocator

__all__: list[str] = []

_BITS = 32
# Nanoseconds per dimension, for direction numbers, and per number that is made or skipped; numbers at a time.
_DIRECTION_NS, _NUMBER_NS = 20_000.0, 5.0
_AT_ONCE = 1 << 18


def _cost(dim: Any, num_results: Any, skip: Any) -> float:
    if dim.ndim or num_results.ndim or skip.ndim:
        return 0.0
    return max(float(dim), 0.0) * (_DIRECTION_NS + _NUMBER_NS * max(float(num_results) + float(skip), 0.0))


def _checked(dim: Any, num_results: Any, skip: Any) -> tuple[int, int, int]:
    for name, value in (("dim", dim), ("num_results", num_results), ("skip", skip)):
        if value.ndim:
            raise errors.InvalidArgumentError(f"{name} must be a scalar")
    if dim < 1:
        raise errors.InvalidArgumentError("dim must be at least one")
    if num_results < 1:
        raise errors.InvalidArgumentError("num_results must be at least one")
    if skip < 0:
        raise errors.InvalidArgumentError("skip must be non-negative")
    return int(dim), int(num_results), int(skip)


@kernel(
    "SobolSample",
    dtype=(dtypes.float32, dtypes.float64),
    host_memory=("dim", "num_results", "skip"),
    cost=_cost,
    needs=("scipy.stats",),
)
def sobol_sample(c: OpKernelConstruction) -> Compute:
    """Return [num_results, dim] numbers in [0, 1): points of the sequence after its first, zero, and `skip` others."""
    allocate = allocator(c)

    def compute(dim: Any, num_results: Any, skip: Any) -> Any:
        from scipy.stats import qmc

        dims, count, skipped = _checked(dim, num_results, skip)
        if dims > qmc.Sobol.MAXDIM:
            raise errors.InvalidArgumentError(f"dim must be at most {qmc.Sobol.MAXDIM}, got {dims}")
        out = allocate((count, dims))
        rows = max(1, _AT_ONCE // dims)
        announce_scratch(8 * dims * (2 * _BITS + min(rows, count)))
        sequence = qmc.Sobol(dims, scramble=False, bits=_BITS)
        for start in range(0, skipped + 1, rows):
            let_others_run()
            sequence.fast_forward(min(rows, skipped + 1 - start))
        for start in range(0, count, rows):
            let_others_run()
            out[start : start + rows] = sequence.random(min(rows, count - start))
        return out

    return compute
