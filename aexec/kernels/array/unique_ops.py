"""Kernels that compare the elements of a tensor with one another: Unique, ListDiff; and kernels that turn positions
into indices and back: Where, InvertPermutation, UnravelIndex.

NaN equals nothing, and zeros of either sign are equal. Few elements and strings are compared by a dict, many numbers by
a sort, which does not hold the interpreter's lock.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import WATCHED_CALLS, announce, announce_scratch
from aexec.framework.shape import MAX_RANK, shape_text
from aexec.framework.waiting.loop_budget import OBJECT_NS, giving_way
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.distinct import begins_run, distinct
from aexec.kernels.common.registration import INDEX, on_host
from aexec.kernels.common.strings import elements_of, values_of

_UNIQUE_TYPES = (*dtypes.REAL_NUMBER, dtypes.bool_, dtypes.string)
_LIST_DIFF_TYPES = (*dtypes.REAL_NUMBER, dtypes.string)

# Up to this many elements a dict is faster than a sort.
_FEW = 128

# Bytes of a number as a Python object, in two lists.
_OBJECT_BYTES = 60

# Nanoseconds per element, in a sort or a dict.
_COMPARED = 80.0

# Nanoseconds per slice along an axis, whose coordinates NumPy computes.
_DIVISION_NS = 5000.0

# The largest rank of a Where input.
_MAX_WHERE_RANK = 8


# ---- Unique


def _first_occurrences(values: Any, xp: Any = np) -> tuple[Any, Any]:
    """Return (positions where a new value appears, for each value the index of its first equal), for a vector."""
    if values.dtype.kind == "V":  # ml_dtypes' types neither sort nor hash well
        values = values.astype(np.float32)
    if xp is not np:
        return _first_by_sorting(xp, values)
    if values.size <= _FEW or values.dtype.hasobject:
        numbers: dict[Any, int] = {}
        firsts: list[int] = []
        which: list[int] = []
        for position, value in enumerate(elements_of(values)):
            number = numbers.setdefault(value, len(firsts))
            if number == len(firsts):
                firsts.append(position)
            which.append(number)
        return np.array(firsts, np.int64), np.array(which, np.int64)
    found, inverse = distinct(values)
    first = np.empty(found.size, np.int64)
    first[inverse[::-1]] = np.arange(values.size - 1, -1, -1)  # of equal values the last one written stays
    order = first.argsort()
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return first[order], rank[inverse]


def _first_by_sorting(xp: Any, values: Any) -> tuple[Any, Any]:
    order = xp.argsort(values, kind="stable")
    begins = begins_run(values[order], xp)
    first = order[begins]  # for each value, in the order of values
    by_place = xp.argsort(first)
    rank, which = xp.empty(first.size, np.int64), xp.empty(values.size, np.int64)
    rank[by_place] = xp.arange(first.size)
    which[order] = rank[begins.cumsum() - 1]
    return first[by_place], which


def _row_codes(rows: Any) -> Any:
    """A vector of codes: two are equal if and only if those rows of the matrix are equal."""
    count, width = rows.shape
    if not width:
        return np.zeros(count, np.int64)  # all rows are equal
    if rows.dtype.hasobject:
        codes = np.empty(count, object)
        for position, row in enumerate(giving_way(rows, _COMPARED)):
            codes[position] = tuple(row.tolist())
        return codes
    if rows.dtype.kind not in "iub":
        rows = rows.astype(np.float64) + 0.0  # exact, and turns -0.0 into 0.0
    rows = np.ascontiguousarray(rows)
    words = rows.view(np.dtype((np.void, rows.itemsize * width))).reshape(count)
    _, codes = distinct(words)
    if rows.dtype.kind == "f":
        odd = np.isnan(rows).any(1).nonzero()[0]
        codes[odd] = count + odd  # equal to no other row
    return codes


def _unique(c: OpKernelConstruction) -> Compute:
    index_dtype = c.attr("out_idx").np
    with_axis = c.op.endswith("V2")
    with_counts = "WithCounts" in c.op
    xp = c.xp

    def compute(x: Any, axis: Any = None) -> Any:
        dim = _unique_axis(x, axis) if with_axis else None
        if dim is None and x.ndim != 1:
            raise errors.InvalidArgumentError("unique expects a 1D vector.")
        if x.ndim == 1:
            firsts, which = _first_occurrences(x, xp)
            y = x[firsts]
        else:
            rows = x if dim == 0 else x.swapaxes(0, dim)
            firsts, which = _first_occurrences(_row_codes(rows.reshape(len(rows), -1 if x.size else 0)))
            y = x[(*[slice(None)] * (dim or 0), firsts)]
        idx = which.astype(index_dtype, copy=False)
        if not with_counts:
            return y, idx
        return y, idx, xp.bincount(which, minlength=firsts.size).astype(index_dtype, copy=False)

    return compute


def _unique_axis(x: Any, axis: Any) -> int | None:
    """The axis as a number from 0, or None for an empty vector."""
    if axis.ndim != 1:
        raise errors.InvalidArgumentError("axis expects a 1D vector.")
    if axis.size > 1:
        raise errors.InvalidArgumentError("axis does not support input tensors larger than 1 elements")
    if not axis.size:
        return None
    dim: int = axis.item()
    if not -x.ndim <= dim < x.ndim:
        raise errors.InvalidArgumentError(f"axis has to be between [0, {x.ndim})")
    return dim % int(x.ndim)


kernel("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", cost=_COMPARED, T=_UNIQUE_TYPES, out_idx=INDEX)(
    _unique
)
kernel("Unique", device="DEFAULT", host_memory=("x", "y", "idx"), cost=_COMPARED, T=_UNIQUE_TYPES, out_idx=INDEX)(
    on_host(_unique)
)


def _compared_scratch(x: Any, y: Any) -> int:
    """Bytes of the elements that are sorted, or put into a set."""
    return int((150 if y.dtype.hasobject else 32) * (x.size + y.size))


@kernel("ListDiff", cost=_COMPARED, scratch=_compared_scratch, T=_LIST_DIFF_TYPES, out_idx=INDEX)
def list_diff(c: OpKernelConstruction) -> Compute:
    """Return the elements of x that y does not hold, in order and with repetitions, and their positions."""
    index_dtype = c.attr("out_idx").np

    def compute(x: Any, y: Any) -> Any:
        for name, value in (("x", x), ("y", y)):
            if value.ndim != 1:
                raise errors.InvalidArgumentError(f"{name} should be a 1D vector.")
        a, b = (x.astype(np.float32), y.astype(np.float32)) if x.dtype.kind == "V" else (x, y)
        if a.dtype.hasobject or a.size + b.size <= _FEW:
            unwanted = set(elements_of(b))
            kept = np.array([i for i, value in enumerate(elements_of(a)) if value not in unwanted], index_dtype)
        else:
            kept = np.isin(a, b, invert=True).nonzero()[0].astype(index_dtype)
        return x[kept], kept

    return compute


# ---- Where


@kernel("Where", T=(*dtypes.NUMBER, dtypes.bool_))
@kernel("Where", device="DEFAULT", host_memory=("input", "index"), T=[dtypes.int32])
def where(c: OpKernelConstruction) -> Compute:
    """Return a row of coordinates for each nonzero element, in row-major order."""
    array = c.xp.array

    def compute(x: Any) -> Any:
        rank = x.ndim
        if isinstance(x, np.ndarray) and WATCHED_CALLS[0]:
            announce(max(1, rank) * 8 * int(np.count_nonzero(x)))
        if rank == 1:
            return x.nonzero()[0].reshape(-1, 1)
        if not 0 < rank <= _MAX_WHERE_RANK:
            raise errors.InvalidArgumentError(f"WhereOp : Unhandled input dimensions: {rank}")
        return array(x.nonzero(), np.int64).T

    return compute


# ---- InvertPermutation and UnravelIndex


@kernel("InvertPermutation", T=INDEX, scratch=8)
@kernel("InvertPermutation", device="DEFAULT", host_memory=("x", "y"), T=INDEX, scratch=8)
def invert_permutation(c: OpKernelConstruction) -> Compute:
    numpy_dtype = c.attr("T").np

    def inverse(positions: list[int]) -> list[int]:
        """Raises InvalidArgumentError unless the positions are a permutation."""
        count = len(positions)
        out = [-1] * count
        for i, position in giving_way(enumerate(positions), OBJECT_NS):
            if not 0 <= position < count:
                raise errors.InvalidArgumentError(f"{position} is not between 0 and {count}")
            if out[position] >= 0:
                raise errors.InvalidArgumentError(f"{position} is duplicated in the input.")
            out[position] = i
        return out

    def compute(x: Any) -> Any:
        if x.ndim != 1:
            raise errors.InvalidArgumentError("invert_permutation expects a 1D vector.")
        if x.size <= _FEW:
            return np.array(inverse(x.tolist()), numpy_dtype)
        out = np.full(x.size, -1, numpy_dtype)
        if x.min() >= 0 and x.max() < x.size:
            out[x] = np.arange(x.size)
        if out.min() < 0:
            announce_scratch(_OBJECT_BYTES * x.size)
            inverse(values_of(x))
        return out

    return compute


@kernel(
    "UnravelIndex",
    Tidx=INDEX,
    cost=lambda indices, dims: dims.size * (_DIVISION_NS + 5.0 * indices.size),
    scratch=lambda indices, dims: 5 * indices.nbytes,  # signs, magnitudes, quotients, remainders, and these with signs
)
def unravel_index(c: OpKernelConstruction) -> Compute:
    """Row-major coordinates of flat positions: one column for each position, a vector for a scalar one."""
    xp, dtype, allocate = c.xp, c.attr("Tidx"), allocator(c)
    most = dtype.max

    def check(indices: Any, dims: Any) -> None:
        if not indices.size:
            raise errors.InvalidArgumentError(
                f"received empty tensor indices: Tensor<type: {dtype} shape: {shape_text(indices.shape)} values: >"
            )
        if indices.ndim > 1:
            raise errors.InvalidArgumentError(
                f'The indices can only be scalar or vector, got "{shape_text(indices.shape)}"'
            )
        if dims.ndim != 1:
            raise errors.InvalidArgumentError(f'The indices can only be 1-D, got "{shape_text(dims.shape)}"')
        wrong = (dims <= 0).nonzero()[0]
        if wrong.size and not dims[wrong[0]]:
            raise errors.InvalidArgumentError(
                f"Input dims cannot contain a dim of zero, but dims contains zero at index {wrong[0]}"
            )
        if wrong.size:
            raise errors.InvalidArgumentError(
                f"Input dims cannot be negative. Got dim = {dims[wrong[0]]} at index {wrong[0]}"
            )
        # Do not multiply a million numbers, which would take hours: the product of 64 is too large already.
        total = math.prod(dims[dims > 1][:64].tolist())
        if total > most:
            shown = " ".join(map(str, dims[:MAX_RANK].tolist()))
            raise errors.InvalidArgumentError(f"Input dims product is causing integer overflow: ({shown})")
        if not dims.size or indices.max() >= total:
            raise errors.InvalidArgumentError("index is out of bound as with dims")

    def compute(indices: Any, dims: Any) -> Any:
        check(indices, dims)
        # Quotients round towards zero, as in C++: a negative position gives a negative last coordinate.
        sign, rest = xp.sign(indices), xp.abs(indices)
        out = allocate((dims.size, *indices.shape))
        for i in giving_way(range(dims.size - 1, -1, -1), _DIVISION_NS):
            rest, digit = xp.divmod(rest, dims[i])
            out[i] = digit * sign
        return out

    return compute
