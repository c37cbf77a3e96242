"""Segment kernels: rows with the same id are added, multiplied or compared with each other.

There are three methods with NumPy, chosen by measurement.  Sorted ids use `ufunc.reduceat`.  A vector, a small input,
and everything but sums use `ufunc.at` on flat positions.  Large sums use a product with a sparse matrix of ones,
SciPy's tight loop over rows, which is ten times faster than the others.  bfloat16 and half are accumulated in float32
and rounded once. In minima and maxima NaN wins; in TensorFlow that depends on its place among the rows. The rules come
from TensorFlow's segment_reduction_ops_impl.h, the messages from experiment.
Next to read: `scattering.py`, then `reduction_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import PerOutput
from aexec.framework.memory.allocator import ReusedScratch, announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import let_others_run
from aexec.kernels.common import scattering
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.array_module import reducer
from aexec.kernels.common.distinct import begins_run
from aexec.kernels.common.registration import INDEX
from aexec.kernels.math.math_ops import all_below
from aexec.kernels.math.reduction_ops import accumulation_type, truncating_divide

__all__: list[str] = []

Allocate = Callable[..., Any]

# From this many rows per segment on, `reduceat`, which calls a loop per run and column, is faster than `ufunc.at`.
_RUN_LENGTH = 4
# From this many elements on, the product with a sparse matrix is faster than `add.at`, set-up included.
_SPARSE_FROM = 2000
_SPARSE = ("scipy.sparse",)
# Elements that one call of a library takes and adds, in some ten milliseconds.
_PICKED = 1 << 25
# Bytes per index and per segment in a sparse matrix.
_PICKED_BYTES, _SEGMENT_BYTES = 24, 16


def _full(xp: Any, allocate: Allocate, shape: tuple[int, ...], value: Any, dtype: np.dtype[Any]) -> Any:
    """`xp.full`, after checking that it fits into memory, since ids may ask for any number of rows."""
    array = allocate(shape, xp.zeros)
    if value:
        array.fill(value)
    return array.astype(dtype, copy=False)


def _sum_rows(xp: Any, allocate: Allocate, rows: Any, ids: Any, count: int) -> Any:
    """Sum of the rows [n, ...] with each id: [count, ...].  Ids are a vector of n values in [0, count)."""
    out_shape = (count, *rows.shape[1:])
    announce_scratch(_PLACE_BYTES * ids.size)
    if rows.ndim == 1 or rows.size < _SPARSE_FROM or xp is not np or scattering.adds_in_c(rows):
        out = _full(xp, allocate, out_shape, 0, rows.dtype)
        scattering.combiner(xp, "add")(out, ids.astype(np.intp, copy=False), rows)
        return out
    allocate(out_shape)  # only to check the memory
    from scipy import sparse

    n = ids.size
    index = np.dtype(np.int32 if max(n, count) < 2**31 else np.int64)
    flat = rows.reshape(n, prod(rows.shape[1:]))
    # Complex numbers are added as pairs of reals: 1 * (inf + 0j) has a NaN in it.
    parts = np.ascontiguousarray(flat).view(flat.real.dtype) if flat.dtype.kind == "c" else flat
    ones = np.ones(n, parts.dtype)
    matrix = sparse.csc_array((ones, ids.astype(index), np.arange(n + 1, dtype=index)), shape=(count, n))
    return (matrix @ parts).view(rows.dtype).reshape(out_shape)


# Bytes per segment for counting its rows, and per row for its position.
_COUNT_BYTES = 16
# Bytes per id for finding where ids change.
_RUN_BYTES = 2
_PLACE_BYTES = 24


def _counts(xp: Any, ids: Any, count: int, rank: int, dtype: np.dtype[Any]) -> Any:
    """The number of rows in each segment, at least 1, shaped to divide an array of that rank."""
    announce_scratch(_COUNT_BYTES * count)
    found = xp.maximum(xp.bincount(ids, minlength=count), 1).astype(dtype)
    return found.reshape(count, *(1,) * (rank - 1))


def _check_sorted(xp: Any, ids: Any, limit: int | None = None) -> int:
    """The number of segments of ascending ids, or `limit` if that is given.

    Raises:
        InvalidArgumentError: ids are negative, not ascending, or reach the limit.
    """
    count = (int(ids[-1]) + 1 if ids.size else 0) if limit is None else limit
    if count < 0 or (ids.size and ids[-1] < 0):
        raise errors.InvalidArgumentError("segment ids must be >= 0")
    if limit is not None and ids.size and ids[-1] >= limit:
        raise errors.InvalidArgumentError("segment ids must be < num_segments")
    if ids.size and ids[0] < 0:
        raise errors.InvalidArgumentError(
            f"Segment id {ids[0]} out of range [0, {count}), possibly because 'segment_ids' input is not sorted."
        )
    if reducer(xp, "logical_or")(ids[1:] < ids[:-1], 0):
        raise errors.InvalidArgumentError("segment ids are not increasing")
    return count


def _check_segment_inputs(data: Any, ids: Any) -> None:
    if ids.ndim != 1:
        raise errors.InvalidArgumentError("segment_ids should be a vector.")
    if data.ndim < 1:
        raise errors.InvalidArgumentError("input must be at least rank 1")
    if ids.size != data.shape[0]:
        raise errors.InvalidArgumentError("segment_ids should be the same size as dimension 0 of input.")


def _segments_to_make(data: Any, ids: Any) -> float:
    """Elements of the output of an op whose last id determines the number of rows."""
    return float((int(ids[-1]) + 1) * data.size / max(1, len(data)))


def _ids_scratch(data: Any, ids: Any, *_: Any) -> int:
    """Scratch bytes: for each row its segment, and the segment's number of rows."""
    return 16 * int(ids.size)


_SORTED_COST = PerOutput(1.5, _segments_to_make)


def _rows_to_make(data: Any, *ids_and_count: Any) -> float:
    """Like `_segments_to_make`, if the last input gives the number of rows."""
    return float(int(ids_and_count[-1]) * data.size / max(1, len(data)))


@kernel(
    "SegmentSum", "SegmentMean", T=dtypes.NUMBER, Tindices=INDEX, cost=_SORTED_COST, needs=_SPARSE, scratch=_ids_scratch
)
def segment_sum_or_mean(c: OpKernelConstruction) -> Compute:
    """Return sums or means of rows with the same id, ids ascending; zero for an id without rows."""
    out, work, is_mean = c.attr("T").np, accumulation_type(c.attr("T")), c.op == "SegmentMean"
    xp, allocate = c.xp, allocator(c)
    integers = out.kind in "iu"

    def compute(data: Any, ids: Any) -> Any:
        _check_segment_inputs(data, ids)
        count = _check_sorted(xp, ids)
        if work != out:
            announce_scratch(work.itemsize * data.size)
        sums = _sum_rows(xp, allocate, data.astype(work, copy=False), ids, count)
        if is_mean and sums.size:
            counts = _counts(xp, ids, count, data.ndim, work)
            sums = truncating_divide(xp, sums, counts) if integers else xp.divide(sums, counts, sums)
        if work != out:
            announce_scratch(sums.nbytes)
        return sums.astype(out, copy=False)

    return compute


def _reduce_runs(xp: Any, ufunc: str, rows: Any, is_first: Any, starts: Any) -> Any:
    """Reduces each run of rows, from one start to the next, to one row."""
    if xp is np and (rows.ndim == 1 or starts.size * _RUN_LENGTH < rows.shape[0]):
        return getattr(np, ufunc).reduceat(rows, starts, axis=0, dtype=rows.dtype)
    result, later = rows[starts], ~is_first
    if xp is np:
        run = np.arange(starts.size).repeat(np.diff(starts, append=rows.shape[0]) - 1)
    else:  # CuPy's `repeat` takes no array
        run = xp.cumsum(is_first)[later] - 1
    scattering.combiner(xp, ufunc)(result, run, rows[later])
    return result


@kernel("SegmentProd", T=dtypes.NUMBER, Tindices=INDEX, cost=_SORTED_COST)
@kernel("SegmentMin", "SegmentMax", T=dtypes.REAL_NUMBER, Tindices=INDEX, cost=_SORTED_COST)
def segment_reduce(c: OpKernelConstruction) -> Compute:
    """Return products or extrema of rows with the same id, ids ascending.

    For an id without rows the product is one, and the extremum zero.
    """
    out, work = c.attr("T").np, accumulation_type(c.attr("T"))
    ufunc = {"SegmentProd": "multiply", "SegmentMin": "minimum", "SegmentMax": "maximum"}[c.op]
    xp, of_nothing, allocate = c.xp, int(ufunc == "multiply"), allocator(c)

    def compute(data: Any, ids: Any) -> Any:
        _check_segment_inputs(data, ids)
        count = _check_sorted(xp, ids)
        result = _full(xp, allocate, (count, *data.shape[1:]), of_nothing, out)
        if data.size:
            announce_scratch(_RUN_BYTES * ids.size + (0 if work == out else work.itemsize * data.size))
            is_first = begins_run(ids, xp)
            starts = xp.flatnonzero(is_first)
            announce_scratch(starts.size * (_PLACE_BYTES + work.itemsize * prod(data.shape[1:])))
            result[ids[starts]] = _reduce_runs(xp, ufunc, data.astype(work, copy=False), is_first, starts)
        return result

    return compute


def _unsorted_shape(data: Any, ids: Any, num_segments: Any) -> int:
    """Return the number of segments, after checking the inputs."""
    if num_segments.ndim:
        raise errors.InvalidArgumentError(
            f"num_segments should be a scalar, not shape {shape_text(num_segments.shape)}"
        )
    if data.shape[: ids.ndim] != ids.shape:
        raise errors.InvalidArgumentError(
            f"data.shape = {shape_text(data.shape)} does not start with segment_ids.shape = {shape_text(ids.shape)}"
        )
    count = int(num_segments)
    if count < 0:
        raise errors.InvalidArgumentError(f"Input num_segments == {count} must not be negative.")
    return count


def _drop_negative(xp: Any, ids: Any, count: int) -> Any:
    """Flat ids; negative ones become an extra segment `count`.

    Raises:
        InvalidArgumentError: an id is `count` or more.
    """
    flat = ids.reshape(-1)
    wrong = xp.flatnonzero(flat >= count)
    if wrong.size:
        where = scattering.position(ids.shape, int(wrong[0]))
        raise errors.InvalidArgumentError(f"segment_ids{where} = {flat[wrong[0]]} is out of range [0, {count})")
    return xp.where(flat < 0, count, flat.astype(np.intp))


@kernel(
    "UnsortedSegmentSum",
    "UnsortedSegmentProd",
    T=dtypes.NUMBER,
    Tindices=(dtypes.int16, *INDEX),
    cost=PerOutput(2.0, _rows_to_make),
    needs=_SPARSE,
)
@kernel(
    "UnsortedSegmentMin",
    "UnsortedSegmentMax",
    T=dtypes.REAL_NUMBER,
    Tindices=(dtypes.int16, *INDEX),
    cost=PerOutput(2.0, _rows_to_make),
)
def unsorted_segment(c: OpKernelConstruction) -> Compute:
    """Reduces rows with the same id; ids have any rank and order; rows with negative ids are left out.

    A segment without rows holds 0, 1, or the largest or smallest finite number, from which minima and maxima also
    start.
    """
    xp, dtype, allocate = c.xp, c.attr("T"), allocator(c)
    out, work = dtype.np, accumulation_type(dtype)
    ufunc, initial = {
        "UnsortedSegmentSum": ("add", 0),
        "UnsortedSegmentProd": ("multiply", 1),
        "UnsortedSegmentMin": ("minimum", dtype.max if dtype in dtypes.REAL_NUMBER else None),
        "UnsortedSegmentMax": ("maximum", dtype.min if dtype in dtypes.REAL_NUMBER else None),
    }[c.op]
    combine = scattering.combiner(xp, ufunc)

    def compute(data: Any, ids: Any, num_segments: Any) -> Any:
        count = _unsorted_shape(data, ids, num_segments)
        row_shape = data.shape[ids.ndim :]
        if not data.size:
            return _full(xp, allocate, (count, *row_shape), initial, out)
        if work != out:
            announce_scratch(work.itemsize * data.size)
        rows = data.reshape(ids.size, *row_shape).astype(work, copy=False)
        total = count
        if all_below(ids, count, xp):
            flat = ids.reshape(-1).astype(np.intp)
        else:
            flat, total = _drop_negative(xp, ids, count), count + 1
        if ufunc == "add":
            result = _sum_rows(xp, allocate, rows, flat, total)
        else:
            result = _full(xp, allocate, (total, *row_shape), initial, work)
            combine(result, flat, rows)
        if work != out:
            announce_scratch(result.nbytes)
        return result[:count].astype(out, copy=False)

    return compute


# Bytes of a number that is added without being widened.
_WIDE = 4


def _picked_cost(data: Any, indices: Any, ids: Any, count: Any = None) -> float:
    """One nanosecond per element that is picked, and one per element of the result, independent of the size of `data`.

    Rows to pick from are counted, and elements of half precision widened, whether they are picked or not.
    """
    segments = count if count is not None else ids[-1] + 1 if len(ids) else 0
    widened = np.size(data) if data.dtype.itemsize < _WIDE else 0
    rows = data.shape[0] if data.ndim else 0
    return float((np.size(indices) + int(segments)) * prod(np.shape(data)[1:]) + widened + rows)


def _check_sparse_inputs(indices: Any, ids: Any) -> None:
    if indices.ndim != 1:
        raise errors.InvalidArgumentError("indices should be a vector.")
    if ids.ndim != 1:
        raise errors.InvalidArgumentError("segment_ids should be a vector.")
    if ids.size != indices.size:
        raise errors.InvalidArgumentError("segment_ids and indices should have same size.")


def _pick_and_sum(xp: Any, allocate: Allocate, data: Any, indices: Any, ids: Any, count: int) -> Any:
    """Sum over i of data[indices[i]] in segment ids[i], ids ascending: [count, ...]."""
    width = prod(data.shape[1:])
    if data.ndim == 1 or indices.size * width < _SPARSE_FROM or xp is not np:
        return _sum_rows(xp, allocate, data[indices], ids, count)
    shape, rows, at_once = (count, *data.shape[1:]), data.reshape(len(data), width), max(1, _PICKED // width)
    if indices.size > at_once:
        return _pick_and_sum_in_pieces(allocate(shape, np.zeros), rows, indices, ids, at_once)
    allocate(shape)  # only to check the memory
    announce_scratch(_PICKED_BYTES * indices.size + _SEGMENT_BYTES * count)
    return _product(rows, indices, ids, count).reshape(shape)


def _pick_and_sum_in_pieces(result: Any, rows: Any, indices: Any, ids: Any, at_once: int) -> Any:
    """Add the picked rows to `result`, [count, ...], `at_once` indices at a time."""
    sums, scratch = result.reshape(len(result), rows.shape[1]), ReusedScratch()
    for start in range(0, indices.size, at_once):
        let_others_run()
        some = ids[start : start + at_once]
        first, end = int(some[0]), int(some[-1]) + 1
        scratch.announce(_PICKED_BYTES * some.size + (_SEGMENT_BYTES + sums.strides[0]) * (end - first))
        sums[first:end] += _product(rows, indices[start : start + at_once], some - first, end - first)
    return result


def _product(rows: Any, indices: Any, ids: Any, count: int) -> Any:
    """Sum over i of rows[indices[i]] in segment ids[i], ids ascending: [count, width]."""
    from scipy import sparse

    limit = len(rows)
    index = np.dtype(np.int32 if max(indices.size, limit, count) < 2**31 else np.int64)
    starts = np.zeros(count + 1, index)
    np.cumsum(np.bincount(ids, minlength=count), out=starts[1:])
    matrix = sparse.csr_array((np.ones(indices.size, rows.dtype), indices.astype(index), starts), shape=(count, limit))
    return matrix @ rows


@kernel(
    "SparseSegmentSum",
    "SparseSegmentSumWithNumSegments",
    T=dtypes.REAL_NUMBER,
    Tidx=INDEX,
    Tsegmentids=INDEX,
    cost=_picked_cost,
    needs=_SPARSE,
)
@kernel(
    "SparseSegmentMean",
    "SparseSegmentMeanWithNumSegments",
    "SparseSegmentSqrtN",
    "SparseSegmentSqrtNWithNumSegments",
    T=dtypes.FLOAT,
    Tidx=INDEX,
    Tsegmentids=INDEX,
    cost=_picked_cost,
    needs=_SPARSE,
)
def sparse_segment(c: OpKernelConstruction) -> Compute:
    """Picks rows, then sums those with the same id, ids ascending; divides by their number or its root.

    A segment without rows holds zeros.
    """
    xp, out, work = c.xp, c.attr("T").np, accumulation_type(c.attr("T"))
    is_mean, is_sqrt_n, allocate = "Mean" in c.op, "SqrtN" in c.op, allocator(c)

    def compute(data: Any, indices: Any, ids: Any, num_segments: Any = None) -> Any:
        if num_segments is not None and num_segments.ndim:
            raise errors.InvalidArgumentError(
                f"num_segments should be a scalar, not shape {shape_text(num_segments.shape)}"
            )
        if data.ndim < 1:
            raise errors.InvalidArgumentError("Shape must be at least rank 1")
        _check_sparse_inputs(indices, ids)
        count = _check_sorted(xp, ids, None if num_segments is None else int(num_segments))
        if not all_below(indices, data.shape[0], xp):
            announce_scratch(_CHECK_BYTES * indices.size)
            bad = int(((indices < 0) | (indices >= data.shape[0])).argmax())
            raise errors.InvalidArgumentError(
                f"Bad: indices[{bad}] == {indices[bad]} out of range [0, {data.shape[0]})"
            )
        if data.dtype != work:
            announce_scratch(data.size * np.dtype(work).itemsize)
        result = _pick_and_sum(xp, allocate, data.astype(work, copy=False), indices, ids, count)
        # Segments without elements may be any number.
        if is_mean and result.size:
            result /= _counts(xp, ids, count, data.ndim, work)
        elif is_sqrt_n and result.size:
            result /= xp.sqrt(_counts(xp, ids, count, data.ndim, work))
        if work != out:
            announce_scratch(result.nbytes)
        return result.astype(out, copy=False)

    return compute


# Bytes per index: of the checks for too small, too large, and either; and of the order, the sorted indices, what is new
# among them, and the inverse.
_CHECK_BYTES, _UNIQUE_BYTES = 3, 34


def _spread_gradient(c: OpKernelConstruction) -> Callable[[Any, Any, Any, Any, str], tuple[Any, int]]:
    """A function of (grad, indices, ids, rows, name of rows) that returns the gradient's rows in input order."""
    xp, work, is_mean, is_sqrt_n = c.xp, accumulation_type(c.attr("T")), "Mean" in c.op, "SqrtN" in c.op

    def spread(grad: Any, indices: Any, ids: Any, rows: Any, name: str) -> tuple[Any, int]:
        _check_sparse_inputs(indices, ids)
        if rows.ndim:
            raise errors.InvalidArgumentError(f"{name} should be a scalar.")
        if not grad.ndim:
            raise errors.InvalidArgumentError("grad must have rank 1 at least, got a scalar")
        limit, segments = int(rows), grad.shape[0]
        if limit < 0:
            raise errors.InvalidArgumentError(f"Expected a non-negative size, got {limit}")
        if ids.size and ids[-1] >= segments:
            raise errors.InvalidArgumentError("Invalid number of segments")
        for values, what, bound in ((ids, "Segment id", segments), (indices, "Index", limit)):
            if not all_below(values, bound, xp):
                announce_scratch(_CHECK_BYTES * values.size)
                bad = values[(values < 0) | (values >= bound)][0]
                raise errors.InvalidArgumentError(f"{what} {bad} out of range [0, {bound}).")
        counted = (is_mean or is_sqrt_n) and grad.size  # rows without elements may be any number
        itemsize = np.dtype(work).itemsize
        announce_scratch(2 * ids.size * prod(grad.shape[1:]) * itemsize + (2 * segments * itemsize if counted else 0))
        picked = grad[ids].astype(work, copy=False)
        if counted:
            counts = _counts(xp, ids, segments, grad.ndim, work)[ids]
            picked = picked / (counts if is_mean else xp.sqrt(counts))
        return picked, limit

    return spread


@kernel(
    "SparseSegmentSumGrad",
    "SparseSegmentMeanGrad",
    "SparseSegmentSqrtNGrad",
    T=dtypes.FLOAT,
    Tidx=INDEX,
    Tsegmentids=INDEX,
    cost=_picked_cost,
    needs=_SPARSE,
)
def sparse_segment_grad(c: OpKernelConstruction) -> Compute:
    """Gradient for the rows' source: [output_dim0, ...], zero for rows that were not picked."""
    xp, out, spread, allocate = c.xp, c.attr("T").np, _spread_gradient(c), allocator(c)

    def compute(grad: Any, indices: Any, ids: Any, output_dim0: Any) -> Any:
        rows, limit = spread(grad, indices, ids, output_dim0, "output_dim0")
        return _sum_rows(xp, allocate, rows, indices, limit).astype(out, copy=False)

    return compute


@kernel(
    "SparseSegmentSumGradV2",
    "SparseSegmentMeanGradV2",
    "SparseSegmentSqrtNGradV2",
    T=dtypes.FLOAT,
    Tidx=INDEX,
    Tsegmentids=INDEX,
    cost=20.0,
    needs=_SPARSE,
)
def sparse_segment_grad_v2(c: OpKernelConstruction) -> Compute:
    """Like `sparse_segment_grad`, but returns only the rows that were picked, and their indices, ascending."""
    xp, out, spread, allocate = c.xp, c.attr("T").np, _spread_gradient(c), allocator(c)

    def compute(grad: Any, indices: Any, ids: Any, dense_output_dim0: Any) -> Any:
        rows, _ = spread(grad, indices, ids, dense_output_dim0, "dense_output_dim0")
        announce_scratch(_UNIQUE_BYTES * indices.size)
        picked, place = xp.unique(indices, return_inverse=True)
        return _sum_rows(xp, allocate, rows, place, picked.size).astype(out, copy=False), picked

    return compute
