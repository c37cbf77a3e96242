"""Index arithmetic of the kernels that gather and scatter, with TensorFlow's bounds errors.

`gather_scatter_ops` and the scattering kernels of variables use it.  Indices count from 0 and are never negative; each
one is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from aexec import native
from aexec.framework import errors
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.array_module import accumulate_at, apply_at

__all__ = [
    "NdScatter",
    "accumulate",
    "accumulate_piece",
    "adds_in_c",
    "check_ranks",
    "check_scatter_nd",
    "combiner",
    "extremum",
    "flat_index",
    "ignores_bad_indices",
    "in_bounds",
    "position",
    "refuse_index",
    "replace",
    "zeros_of",
]


def zeros_of(c: OpKernelConstruction) -> Callable[[Any], Any]:
    """A function from a shape to an output array of zeros, of empty strings, or of None for other objects.

    It raises InvalidArgumentError for an invalid shape, ResourceExhaustedError for one that is too large.
    """
    allocate, zeros = allocator(c), c.xp.zeros
    return lambda shape: allocate(shape, zeros)


def position(shape: Sequence[int], flat: int) -> str:
    """The index of element number `flat` of an array as messages print it: `[1,2]`, "" for a scalar."""
    return shape_text([int(i) for i in np.unravel_index(flat, tuple(shape))]) if len(shape) else ""


# Bytes per index of the checks: too small, too large, either.
_CHECK_BYTES = 3


def refuse_index(indices: Any, limit: int, name: str = "indices", xp: Any = np) -> None:
    """Raise InvalidArgumentError for the first index outside [0, limit), if there is one."""
    values = xp.asarray(indices)
    if not values.size:
        return
    announce_scratch(_CHECK_BYTES * values.size + (0 if values.flags.c_contiguous else values.nbytes))
    values = values.ravel()
    bad = (values < 0) | (values >= limit)
    first = int(bad.argmax())
    if bad[first]:
        raise errors.InvalidArgumentError(
            f"{name}{position(indices.shape, first)} = {values[first]} is not in [0, {limit})"
        )


def in_bounds(xp: Any, rows: Any, dims: Sequence[int]) -> Any:
    """Bools: which rows of an [n, k] array of indices lie within `dims`."""
    announce_scratch(_CHECK_BYTES * rows.size)
    return ((rows >= 0) & (rows < xp.asarray(dims, np.int64))).all(axis=1)


# Bytes per element of its flat position.
_FLAT_BYTES = 8


def flat_index(xp: Any, indices: Any, dims: Sequence[int]) -> Any:
    """Row-major positions in an array of shape `dims` for indices [..., len(dims)], flattened to a vector.

    Raises:
        ValueError: an index is out of bounds; `in_bounds` tells which.
        ResourceExhaustedError: the memory for the positions is refused.
    """
    announce_scratch(_FLAT_BYTES * prod(indices.shape[:-1]))
    rows = indices.reshape(prod(indices.shape[:-1]), len(dims))
    if len(dims) == 1:
        return xp.ravel_multi_index((rows[:, 0],), dims, "raise")
    return xp.ravel_multi_index(tuple(rows.T), tuple(dims), "raise")


# Bytes per number of the positions when rows are spread into numbers: there are two arrays for a moment.
_SPREAD_BYTES = 16


def adds_in_c(*arrays: Any) -> bool:
    """True if a loop in C adds rows of these arrays, where `accumulate` adds or subtracts."""
    return native.loops is not None and native.are_single(*arrays)


def accumulate(ufunc: Any, out: Any, index: Any, rows: Any) -> None:
    """`out[index[i]] = ufunc(out[index[i]], rows[i])` for each i in order, repeated indices included.

    Args:
        out: contiguous array [m, ...], changed in place.
        index: int64 vector of n positions, all within [0, m).
        rows: array [n, ...], as wide as `out`.
    """
    announce_scratch(index.size * prod(out.shape[1:]) * (_SPREAD_BYTES + rows.itemsize))
    accumulate_piece(ufunc, out, index, rows)


def accumulate_piece(ufunc: Any, out: Any, index: Any, rows: Any) -> None:
    """Like `accumulate`, for one of many pieces; the caller has announced the scratch of one."""
    width = prod(out.shape[1:])
    in_c = ufunc in (np.add, np.subtract) and index.dtype == np.int64 and native.are_single(out, rows)
    if native.loops is not None and in_c:
        terms = rows if ufunc is np.add else np.negative(rows)  # a - b is a + (-b), to the last bit
        native.loops.add_rows(out, np.ascontiguousarray(index), terms, len(out), len(index), width)
    elif width == 1:
        apply_at(ufunc, out.reshape(-1), index, rows.reshape(-1))
    elif index.size * width < 64:
        ufunc.at(out, index, rows)
    else:
        # NumPy's loop over a vector is many times faster than the one over rows.
        spread = (index[:, None] * width + np.arange(width)).ravel()
        apply_at(ufunc, out.reshape(-1), spread, rows.reshape(-1))


def ignores_bad_indices(c: OpKernelConstruction) -> bool:
    policy = c.text("bad_indices_policy") if "bad_indices_policy" in c.attrs else ""
    if policy not in ("", "DEFAULT", "ERROR", "IGNORE"):
        raise errors.InvalidArgumentError(f"Unknown bad indices handling attribute: {policy}")
    return policy == "IGNORE"


class NdScatter:
    """The part common to ScatterNd and the TensorScatter ops: check, flatten the indices, combine rows.

    `combine(out, index, rows)` changes `out`, an array [positions, ...], in place.
    """

    def __init__(self, c: OpKernelConstruction, combine: Callable[[Any, Any, Any], None]) -> None:
        self.ignore = ignores_bad_indices(c)
        self.combine = combine
        self.xp = c.xp

    def __call__(self, out: Any, indices: Any, updates: Any) -> None:
        """Scatter into `out`.  Raises InvalidArgumentError for an index outside its shape."""
        depth = indices.shape[-1]
        if not indices.size and not updates.size:
            return
        if not (out.size and indices.size and updates.size):
            raise errors.InvalidArgumentError("Indices and updates specified for empty output shape")
        dims, inner, count = out.shape[:depth], out.shape[depth:], prod(indices.shape[:-1])
        rows = updates.reshape(count, *inner)
        try:
            flat = flat_index(self.xp, indices, dims)
        except ValueError:
            entries = indices.reshape(-1, depth)
            good = in_bounds(self.xp, entries, dims)
            if not self.ignore:
                # TensorFlow reports the last bad index.
                last = int(self.xp.flatnonzero(~good)[-1])
                raise errors.InvalidArgumentError(
                    f"indices{position(indices.shape[:-1], last)} = {entries[last].tolist()} "
                    f"does not index into shape {shape_text(out.shape)}"
                ) from None
            flat, rows = flat_index(self.xp, entries[good], dims), rows[good]
        self.combine(out.reshape(prod(dims), *inner), flat, rows)


def replace(out: Any, index: Any, rows: Any) -> None:
    out[index] = rows


def combiner(xp: Any, ufunc: str) -> Callable[[Any, Any, Any], None]:
    """`accumulate` with a ufunc, or its equivalent for an array module other than NumPy."""
    return partial(accumulate, getattr(xp, ufunc)) if xp is np else partial(accumulate_at, xp, ufunc)


def extremum(xp: Any, ufunc: str, never: float) -> Callable[[Any, Any, Any], None]:
    """Max or min as C++ compares: an update that is NaN changes nothing; a NaN in the tensor stays."""

    accumulated = combiner(xp, ufunc)

    def combine(out: Any, index: Any, rows: Any) -> None:
        if rows.dtype.kind not in "iu":
            rows = xp.where(rows != rows, xp.asarray(never, rows.dtype), rows)
        accumulated(out, index, rows)

    return combine


def check_ranks(indices: Any, updates: Any) -> None:
    for what, array in (("Indices", indices), ("Updates", updates)):
        if array.ndim < 1:
            raise errors.InvalidArgumentError(f"{what} shape must have rank at least one. Found:[]")


def check_scatter_nd(shape: tuple[int, ...], indices: Any, updates: Any) -> None:
    outer, depth = indices.ndim - 1, indices.shape[-1]
    if indices.shape[:-1] != updates.shape[:outer]:
        raise errors.InvalidArgumentError(
            f"Dimensions [0,{outer}) of indices[shape={shape_text(indices.shape)}] must match "
            f"dimensions [0,{outer}) of updates[shape={shape_text(updates.shape)}]"
        )
    if depth > len(shape) or shape[depth:] != updates.shape[outer:]:
        raise errors.InvalidArgumentError(
            f"Dimensions [{depth},{len(shape)}) of input[shape={shape_text(shape)}] must match "
            f"dimensions [{outer},{updates.ndim}) of updates[shape={shape_text(updates.shape)}]"
        )
