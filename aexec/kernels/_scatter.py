"""Index arithmetic shared by the kernels that gather and scatter, with TensorFlow's bounds errors.

Used by `gather_scatter_ops` and by the scattering kernels of variables.  Indices
count from 0 and are never negative; each one is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.op_kernel import OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.kernels._allocation import allocator

__all__ = ["accumulate", "flat_index", "in_bounds", "position", "refuse_index", "zeros_of"]


def zeros_of(c: OpKernelConstruction) -> Callable[[Any], Any]:
    """The function from a shape to an output array of zeros, or of empty strings, or of nothing for objects.

    It raises InvalidArgumentError for a shape that cannot be, ResourceExhaustedError for one too large.
    """
    allocate, zeros, dtype = allocator(c), c.xp.zeros, c.output_types[0].base
    if dtype.np.kind != "O":
        return lambda shape: allocate(shape, zeros)
    empty = b"" if dtype is dtypes.string else None

    def objects(shape: Any) -> Any:
        out = allocate(shape)
        out.fill(empty)
        return out

    return objects


def position(shape: Sequence[int], flat: int) -> str:
    """Where element number `flat` of an array is, as messages print it: `[1,2]`, nothing for a scalar."""
    return shape_text([int(i) for i in np.unravel_index(flat, tuple(shape))]) if len(shape) else ""


def refuse_index(indices: Any, limit: int, name: str = "indices") -> None:
    """Raise InvalidArgumentError for the first entry outside [0, limit), if there is one."""
    values = np.asarray(indices).ravel()
    bad = np.flatnonzero((values < 0) | (values >= limit))
    if bad.size:
        where = position(np.shape(indices), int(bad[0]))
        raise errors.InvalidArgumentError(f"{name}{where} = {values[bad[0]]} is not in [0, {limit})")


def in_bounds(rows: Any, dims: Sequence[int]) -> Any:
    """Which rows of an [n, k] array of indices lie within `dims`, as bools."""
    return ((rows >= 0) & (rows < np.asarray(dims, np.int64))).all(axis=1)


def flat_index(indices: Any, dims: Sequence[int]) -> Any:
    """Row-major positions in an array of shape `dims` for indices [..., len(dims)], flattened to a vector.

    Raises:
        ValueError: an index is out of bounds; `in_bounds` tells which.
    """
    rows = indices.reshape(prod(indices.shape[:-1]), len(dims))
    if len(dims) == 1:
        return np.ravel_multi_index((rows[:, 0],), dims)
    return np.ravel_multi_index(tuple(rows.T), tuple(dims))


def accumulate(ufunc: Any, out: Any, index: Any, rows: Any) -> None:
    """`out[index[i]] = ufunc(out[index[i]], rows[i])`, one after the other, repeated indices included.

    Args:
        out: contiguous array [m, ...], changed in place.
        index: int64 vector of n positions, all within [0, m).
        rows: array [n, ...], as wide as `out`.
    """
    width = prod(out.shape[1:])
    if width == 1:
        ufunc.at(out.reshape(-1), index, rows.reshape(-1))
    elif index.size * width < 64:
        ufunc.at(out, index, rows)
    else:
        # NumPy's loop over a vector is many times faster than the one over rows.
        spread = (index[:, None] * width + np.arange(width)).ravel()
        ufunc.at(out.reshape(-1), spread, rows.reshape(-1))
