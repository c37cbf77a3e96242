"""Kernels that make number sequences, count and bin values, search sorted rows, and a few more.

The messages and corner cases are TensorFlow's, from its sequence_ops.cc, bincount_op.cc, bucketize_op.cc,
histogram_op.cc, searchsorted_op.cc and cross_op.cc, and by experiment.
Next to read: `reduction_ops.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import PerOutput
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.array_module import at, reducer
from aexec.kernels.common.elementwise import broadcast_error, ufunc
from aexec.kernels.common.registration import INDEX
from aexec.kernels.math.reduction_ops import accumulation_type

__all__ = ["all_below", "number_of_bins"]

Allocate = Callable[..., Any]

_RANGE_TYPES = (*dtypes.FLOAT, dtypes.int32, dtypes.int64)
_MAX_INT64 = 2**63 - 1
_UNSIGNED = {2: np.uint16, 4: np.uint32, 8: np.uint64}
# Outputs up to this size are made without checking whether they fit into memory.
_UNCHECKED_ELEMENTS = 2**24
# Elements at a time in a histogram, whose arrays stay in the cache.
_HISTOGRAM_CHUNK = 2**15
# From this many values per row on, a binary search row by row is faster than one over all rows at once.
_SEARCH_BY_ROW_FROM = 64


def _sequence(allocate: Allocate, count: int, dtype: dtypes.DType) -> Any:
    """0, 1, ... as an array of `dtype`, after checking that it fits into memory."""
    _check_room(allocate, count)
    return np.arange(count, dtype=accumulation_type(dtype)).astype(dtype.np, copy=False)


def _check_room(allocate: Allocate, count: int) -> None:
    """Raise ResourceExhaustedError if that many elements of the output do not fit into memory."""
    if count > _UNCHECKED_ELEMENTS:
        allocate(count)


def _range_cost(start: Any, limit: Any, delta: Any) -> float:
    """Half a nanosecond per element; 0 for input that the kernel refuses."""
    if start.size != 1 or limit.size != 1 or delta.size != 1 or not float(delta.item()):
        return 0.0
    return abs((float(limit.item()) - float(start.item())) / float(delta.item())) * 0.5


def _check_range_shapes(**inputs: Any) -> None:
    # Every version of TensorFlow accepts a vector of one element for a scalar here.
    for name, value in inputs.items():
        if value.ndim > 1 or value.size != 1:
            raise errors.InvalidArgumentError(f"{name} must be a scalar, not shape {shape_text(value.shape)}")


def _range_count(start: Any, limit: Any, delta: Any) -> int:
    """The number of elements.  Raises InvalidArgumentError for a step of zero or in the wrong direction."""
    if delta == 0:
        raise errors.InvalidArgumentError("Requires delta != 0: 0")
    forward = delta > 0
    if not (start <= limit if forward else start >= limit):
        rule = "start <= limit when delta > 0" if forward else "start >= limit when delta < 0"
        ends = f"{start}/{limit}" if isinstance(start, int) else f"{float(start):g}/{float(limit):g}"
        raise errors.InvalidArgumentError(f"Requires {rule}: {ends}")
    if isinstance(start, int):
        count = -((start - limit) // delta)
        too_many = count > _MAX_INT64
    else:
        exact = abs(float((limit - start) / delta))
        too_many = not exact <= _MAX_INT64
        count = 0 if too_many else math.ceil(exact)
    if too_many:
        raise errors.InvalidArgumentError(f"Requires ((limit - start) / delta) <= {_MAX_INT64}")
    return int(count)


@kernel("Range", host_memory=("start", "limit", "delta"), Tidx=_RANGE_TYPES, cost=_range_cost)
@kernel(
    "Range",
    device="DEFAULT",
    host_memory=("start", "limit", "delta", "output"),
    Tidx=(dtypes.int32,),
    cost=_range_cost,
)
def range_(c: OpKernelConstruction) -> Compute:
    """start, start + delta, ... up to but excluding limit: each element is start + i * delta in the type itself."""
    dtype, allocate = c.attr("Tidx"), allocator(c)
    is_integer = dtype.is_integer

    def compute(start: Any, limit: Any, delta: Any) -> Any:
        if start.ndim or limit.ndim or delta.ndim:
            _check_range_shapes(start=start, limit=limit, delta=delta)
        if is_integer:
            first, step = start.item(), delta.item()
            count = _range_count(first, limit.item(), step)
        else:
            # Indexing keeps the type, in which TensorFlow computes, too.
            first, step = start.reshape(-1)[0], delta.reshape(-1)[0]
            count = _range_count(first, limit.reshape(-1)[0], step)
        result = _sequence(allocate, count, dtype)
        if step != 1:
            result *= step
        if first != 0:
            result += first
        return result

    return compute


def _lin_space_cost(start: Any, stop: Any, num: Any) -> float:
    return 1.5 * float(num.item()) if num.size == 1 else 0.0


@kernel(
    "LinSpace",
    device=("CPU", "DEFAULT"),
    host_memory=("start", "stop", "num", "output"),
    T=(dtypes.float32, dtypes.float64),
    Tidx=INDEX,
    cost=_lin_space_cost,
)
def lin_space(c: OpKernelConstruction) -> Compute:
    """Return num evenly spaced values; the first is start and the last is stop, exactly."""
    dtype, allocate = c.attr("T"), allocator(c)

    def compute(start: Any, stop: Any, num: Any) -> Any:
        for name, value in (("start", start), ("stop", stop), ("num", num)):
            if value.ndim:
                raise errors.InvalidArgumentError(f"{name} must be a scalar, not shape {shape_text(value.shape)}")
        count = int(num)
        if count <= 0:
            raise errors.InvalidArgumentError(f"Requires num > 0: {count}")
        result = _sequence(allocate, count, dtype)
        if count > 1:
            result *= (stop - start) / dtype.np.type(count - 1)
            result += start
            result[-1] = stop
        result[0] = start
        return result

    return compute


def all_below(indices: Any, limit: int, xp: Any = np) -> bool:
    """True if all integers lie in [0, limit), in one pass: negative ones are huge when read as unsigned."""
    if not indices.size:
        return True
    return bool(reducer(xp, "maximum")(indices.view(_UNSIGNED[indices.itemsize]), None) < limit)


# Bytes per value while it is put into its bin, and per bin while it is counted.
_VALUE_BYTES, _BIN_BYTES = 24, 9


def number_of_bins(size: Any) -> int:
    """The `size` of a bincount.  Raises InvalidArgumentError unless it is a non-negative scalar."""
    if size.ndim:
        raise errors.InvalidArgumentError(f"Shape must be rank 0 but is rank {size.ndim}")
    count = int(size)
    if count < 0:
        raise errors.InvalidArgumentError(f"size ({count}) must be non-negative")
    return count


def _count_bins(xp: Any, bins: Any, weights: Any, count: int, dtype: dtypes.DType, *, fit: bool, binary: bool) -> Any:
    """Occurrences of 0 .. count - 1 in a vector, or sums of their weights; larger values are left out.

    Args:
        bins: vector of integers from 0 on.
        weights: vector as long as `bins`, or empty for ones.
        fit: True if no value is too large.
        binary: True to return 1 for each value that occurs, without regard to weights.
    """
    if not fit:
        inside = bins < count
        bins = bins[inside]
        weights = weights[inside] if weights.size else weights
    if binary or not weights.size:
        found = xp.bincount(bins, minlength=count)
        return ((found > 0) if binary else found).astype(dtype.np)
    work = accumulation_type(dtype)
    result = xp.zeros(count, work)
    at(xp, "add")(result, bins.astype(np.intp, copy=False), weights.astype(work, copy=False))
    return result.astype(dtype.np, copy=False)


@kernel("Bincount", T=dtypes.NUMBER, cost=PerOutput(2.0))
def bincount(c: OpKernelConstruction) -> Compute:
    """Return how often each of 0 .. size - 1 occurs, or the sum of the weights of its occurrences."""
    xp, dtype, allocate = c.xp, c.attr("T"), allocator(c)

    def compute(arr: Any, size: Any, weights: Any) -> Any:
        count = number_of_bins(size)
        if weights.size and weights.size != arr.size:
            raise errors.InvalidArgumentError("Input indices and weights must have the same size.")
        bins = arr.reshape(-1)
        fit = all_below(bins, count, xp)
        if not fit and not all_below(bins, 2**31, xp):
            raise errors.InvalidArgumentError("Input arr must be non-negative!")
        _check_room(allocate, count)
        announce_scratch(_VALUE_BYTES * bins.size + _BIN_BYTES * count)
        return _count_bins(xp, bins, weights.reshape(-1), count, dtype, fit=fit, binary=False)

    return compute


@kernel("DenseBincount", T=dtypes.NUMBER, Tidx=INDEX, cost=PerOutput(2.0))
def dense_bincount(c: OpKernelConstruction) -> Compute:
    """Like `bincount`, for each row of a matrix separately; `binary_output` only tells whether a value occurs."""
    xp, dtype, binary, allocate = c.xp, c.attr("T"), c.attr("binary_output"), allocator(c)
    past_positive = int(c.attr("Tidx").max) + 1

    def compute(values: Any, size: Any, weights: Any) -> Any:
        if values.ndim > 2:
            raise errors.InvalidArgumentError(f"Shape must be at most rank 2 but is rank {values.ndim}")
        count = number_of_bins(size)
        if weights.size and weights.shape != values.shape:
            raise errors.InvalidArgumentError(
                "`weights` must be the same shape as `arr` or a length-0 `Tensor`, in which case it acts as all "
                f"weights equal to 1. Received {shape_text(weights.shape)}"
            )
        bins, flat_weights = values.reshape(-1), weights.reshape(-1)
        fit = all_below(bins, min(count, past_positive), xp)
        if not fit and not all_below(bins, past_positive, xp):
            if values.ndim < 2:
                raise errors.InvalidArgumentError("Input arr must be non-negative!")
            raise errors.InvalidArgumentError(
                f"Input 'in' must be non-negative! Negative input value found: {bins[bins < 0][0]}"
            )
        rows = values.shape[0] if values.ndim == 2 else 1
        _check_room(allocate, rows * count)
        announce_scratch(_VALUE_BYTES * bins.size + _BIN_BYTES * rows * count)
        if values.ndim < 2:
            return _count_bins(xp, bins, flat_weights, count, dtype, fit=fit, binary=binary)
        # One range of bins per row; values too large for their row go past the last range.
        spread = xp.where(values < count, values + xp.arange(rows)[:, None] * count, rows * count)
        counts = _count_bins(xp, spread.reshape(-1), flat_weights, rows * count, dtype, fit=fit, binary=binary)
        return counts.reshape(rows, count)

    return compute


@kernel("Bucketize", T=(dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64), cost=5.0, scratch=12)
def bucketize(c: OpKernelConstruction) -> Compute:
    """Return the number of boundaries that are at most each value.  Integers are compared as float32; NaN is above
    all.
    """
    boundaries = np.array(c.attr("boundaries"), np.float32)
    if (boundaries[1:] < boundaries[:-1]).any():
        raise errors.InvalidArgumentError("Expected sorted boundaries")
    compared = np.float64 if c.attr("T") is dtypes.float64 else np.float32
    boundaries = c.xp.asarray(boundaries.astype(compared))

    def compute(x: Any) -> Any:
        return boundaries.searchsorted(x.astype(compared, copy=False), "right").astype(np.int32)

    return compute


def _check_histogram(value_range: Any, nbins: Any) -> tuple[Any, Any, int]:
    if value_range.ndim != 1:
        raise errors.InvalidArgumentError("value_range should be a vector.")
    if value_range.size != 2:
        raise errors.InvalidArgumentError("value_range should be a vector of 2 elements.")
    if nbins.ndim:
        raise errors.InvalidArgumentError("nbins should be a scalar.")
    low, high = value_range
    if not low < high:
        raise errors.InvalidArgumentError(
            f"value_range should satisfy value_range[0] < value_range[1], but got '[{low:g}, {high:g}]'"
        )
    count = int(nbins)
    if count <= 0:
        raise errors.InvalidArgumentError(f"nbins should be a positive number, but got '{count}'")
    return low, high, count


@kernel("HistogramFixedWidth", T=dtypes.REAL_NUMBER, dtype=INDEX, cost=PerOutput(8.0))
def histogram_fixed_width(c: OpKernelConstruction) -> Compute:
    """Return counts of values in bins of equal width; values outside the range count in the outermost bins."""
    xp, out, floating, allocate = c.xp, c.attr("dtype").np, c.attr("T").is_floating, allocator(c)

    def compute(values: Any, value_range: Any, nbins: Any) -> Any:
        low, high, count = _check_histogram(value_range, nbins)
        _check_room(allocate, count)
        announce_scratch(2 * _BIN_BYTES * count)
        step = float(high - low) / count
        flat, found = values.reshape(-1), xp.zeros(count, np.int64)
        for start in range(0, flat.size, _HISTOGRAM_CHUNK):
            place = xp.subtract(xp.maximum(flat[start : start + _HISTOGRAM_CHUNK], low), low).astype(np.float64)
            place /= step
            xp.minimum(place, count - 1, out=place)
            if floating and xp.isnan(place).any():
                raise errors.InvalidArgumentError("Histogram values must not contain NaN")
            found += xp.bincount(place.astype(np.intp), minlength=count)
        return found.astype(out, copy=False)

    return compute


@kernel("Cross", T=dtypes.REAL_NUMBER, cost=4.0)
def cross(c: OpKernelConstruction) -> Compute:
    """Return cross products along the last dimension, of size 3; each product and difference is rounded to the
    type.
    """
    empty = c.xp.empty

    def compute(a: Any, b: Any) -> Any:
        if a.shape != b.shape:
            raise errors.InvalidArgumentError(
                f"Both inputs must be of same shape: {shape_text(a.shape)} vs. {shape_text(b.shape)}"
            )
        if a.ndim < 1:
            raise errors.InvalidArgumentError(f"Input must be at least 1D{shape_text(a.shape)}")
        if a.shape[-1] != 3:
            raise errors.FailedPreconditionError("Cross-products are only defined for 3-element vectors.")
        a0, a1, a2 = a[..., 0], a[..., 1], a[..., 2]
        b0, b1, b2 = b[..., 0], b[..., 1], b[..., 2]
        result = empty(a.shape, a.dtype)
        result[..., 0] = a1 * b2 - a2 * b1
        result[..., 1] = a2 * b0 - a0 * b2
        result[..., 2] = a0 * b1 - a1 * b0
        return result

    return compute


def _search_in_step(xp: Any, rows: Any, values: Any, *, upper: bool) -> Any:
    """Binary search of values [m, k] in ascending rows [m, n], all rows at once."""
    low = xp.zeros(values.shape, np.int64)
    left = xp.full(values.shape, rows.shape[1], np.int64)
    while left.any():
        half = left >> 1
        middle = low + half
        # A finished search reads an element that may not exist.
        element = xp.take_along_axis(rows, xp.minimum(middle, rows.shape[1] - 1), axis=1)
        right = (~(values < element) if upper else element < values) & (left > 0)
        low = xp.where(right, middle + 1, low)
        left = xp.where(right, left - half - 1, half)
    return low


@kernel("LowerBound", "UpperBound", T=dtypes.REAL_NUMBER, out_type=(dtypes.int32,), cost=20.0)
@kernel("LowerBound", "UpperBound", T=dtypes.REAL_NUMBER, out_type=(dtypes.int64,), cost=20.0)
def bound(c: OpKernelConstruction) -> Compute:
    """Return the position of each value in its sorted row: before equal elements, or after them.

    For the lower bound NaN is above nothing, for the upper one above everything.
    """
    xp, out, upper, floating = c.xp, c.attr("out_type").np, c.op == "UpperBound", c.attr("T").is_floating
    side = "right" if upper else "left"

    def compute(rows: Any, values: Any) -> Any:
        for array, name in ((rows, "sorted_inputs"), (values, "values")):
            if array.ndim != 2:
                raise errors.InvalidArgumentError(
                    f"Shape must be rank 2 but is rank {array.ndim} for `{name}` argument"
                )
        if rows.shape[0] != values.shape[0]:
            raise errors.InvalidArgumentError("Leading dim_size of both tensors must match.")
        count, width = values.shape
        if not rows.shape[1]:
            return xp.zeros(values.shape, out)
        if count > 1 and width < _SEARCH_BY_ROW_FROM:
            return _search_in_step(xp, rows, values, upper=upper).astype(out)
        result = xp.empty(values.shape, out)
        for i in range(count):
            result[i] = rows[i].searchsorted(values[i], side)
        if floating and not upper:
            result[xp.isnan(values)] = 0
        return result

    return compute


@kernel("NextAfter", T=(dtypes.float32, dtypes.float64), cost=5.0)
def next_after(c: OpKernelConstruction) -> Compute:
    """Return the next number after x1 in the direction of x2."""

    c.explain = broadcast_error
    return ufunc(c, "nextafter")
