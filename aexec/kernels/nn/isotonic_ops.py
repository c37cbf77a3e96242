"""Isotonic regression: the non-increasing sequence that is nearest to each row of the input.

SciPy pools adjacent violators, row by row, in compiled code.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.waiting.loop_budget import giving_way

__all__: list[str] = []

# The error of sums of differences in float64, relative to the largest number.
_ROUNDING = 1e-12


def _segments(row: Any, fitted: Any, pools: Any) -> Any:
    """The segment number of each element, from the first elements of SciPy's pools.

    SciPy also pools neighbours with equal means, TensorFlow does not: a segment ends wherever the differences from the
    mean since the pool's start add up to zero.
    """
    excess = np.concatenate(([0.0], np.cumsum(row - fitted)))
    begin = np.repeat(pools[:-1], np.diff(pools))
    ends = np.abs(excess[1:] - excess[begin]) <= _ROUNDING * np.abs(row[np.isfinite(row)]).max(initial=0)
    ends[pools[1:] - 1] = True
    return np.concatenate(([0], np.cumsum(ends[:-1])))


# Nanoseconds of a row, and of an element.
_ROW_NS, _ELEMENT_NS = 25_000.0, 30.0


def _cost(x: Any) -> Any:
    return _ROW_NS * prod(x.shape[:-1]) + _ELEMENT_NS * x.size


def isotonic_regression(c: OpKernelConstruction) -> Compute:
    """Fits rows of the last dimension.  Outputs: the fitted values, and the segment number of each."""
    from scipy.optimize import isotonic_regression as fit

    result = c.output_types[0].np

    def compute(x: Any) -> Any:
        rows = np.asarray(x, np.float64).reshape(prod(x.shape[:-1]), x.shape[-1] if x.ndim else 1)
        out, segments = np.empty(rows.shape, result), np.empty(rows.shape, np.int32)
        if rows.size:
            for i, row in enumerate(giving_way(rows, _ROW_NS + _ELEMENT_NS * rows.shape[1])):
                found = fit(row, increasing=False)
                out[i], segments[i] = found.x, _segments(row, found.x, found.blocks)
        return out.reshape(x.shape), segments.reshape(x.shape)

    return compute


for _types, _result in (
    ((dtypes.float64, dtypes.int32, dtypes.int64), dtypes.float64),
    ((dtypes.float32, dtypes.int16, dtypes.int8), dtypes.float32),
    ((dtypes.bfloat16,), dtypes.bfloat16),
    ((dtypes.float16,), dtypes.float16),
):
    kernel("IsotonicRegression", T=_types, output_dtype=(_result,), cost=_cost, needs=("scipy.optimize",), scratch=24)(
        isotonic_regression
    )
