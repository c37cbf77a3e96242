"""Reduction kernels: sums, products, extrema and norms over axes, arg-extrema, and cumulative scans.

With NumPy all of them are `ufunc.reduce` and `ufunc.accumulate`, called directly: `np.sum` and similar functions cost a
microsecond more.  The kernels add TensorFlow's rules for axes, for empty reductions, for NaN, and for the accumulation
type.  bfloat16 and half are accumulated in float32 and rounded once. The rules were read from TensorFlow's CPU kernels
(core/kernels/reduction_ops_common.h, argmax_op.cc, scan_ops.cc), and found by experiment if those leave them to Eigen.
Next to read: `segment_ops.py`, which reduces rows by label instead of by axis.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.kernels.common.array_module import accumulator, reducer
from aexec.kernels.common.registration import INDEX
from aexec.kernels.common.row_sums import MANY, sum_of_rows

__all__ = ["accumulation_type", "sum_function", "truncating_divide"]

_ARG_TYPES = (*dtypes.REAL_NUMBER, dtypes.bool_)
_SMALL_FLOATS = (dtypes.float16, dtypes.bfloat16)
# Intermediate arrays with at most this many elements are not counted.
_FEW = 1 << 12
# Eigen's arg-reduction is compiled for up to this many dimensions.
_MAX_ARG_RANK = 7


def _counted(array: Any) -> Any:
    """Announce an intermediate array, and return it."""
    if array.size > _FEW:
        announce_scratch(array.nbytes)
    return array


class _Axes(dict[tuple[int, bytes], tuple[int, ...]]):
    """(rank, bytes of the axes tensor) → normalised axes; checked once per distinct value.

    The key is the value, since the axes are nearly always a constant, but may be fed and change.
    """

    # Dynamic axes have few values in practice; the bound keeps a hostile feed from filling memory.
    _BOUND = 256

    def __init__(self, index_type: np.dtype[Any]) -> None:
        super().__init__()
        self._index_type = index_type

    def __missing__(self, key: tuple[int, bytes]) -> tuple[int, ...]:
        rank, raw = key
        axes: list[int] = []
        # If there are more axes than dimensions, one is wrong or repeated.
        for axis in np.frombuffer(raw, self._index_type)[: rank + 1].tolist():
            if not -rank <= axis < rank:
                raise errors.InvalidArgumentError(
                    f"Invalid reduction dimension ({axis} for input with {rank} dimension(s)"
                )
            if axis % rank in axes:
                raise errors.InvalidArgumentError(
                    f"Invalid reduction arguments: Axes contains duplicate dimension: {axis % rank}"
                )
            axes.append(axis % rank)
        if len(self) >= self._BOUND:
            self.clear()
        return self.setdefault(key, tuple(axes))


def accumulation_type(dtype: dtypes.DType) -> np.dtype[Any]:
    """The NumPy type for sums of elements of `dtype`: float32 for half and bfloat16, else their own."""
    return np.dtype(np.float32) if dtype in _SMALL_FLOATS else dtype.np


def _lowest(dtype: dtypes.DType) -> Any:
    """The maximum of an empty reduction: minus infinity, or the smallest integer."""
    return -np.inf if dtype.is_floating else np.iinfo(dtype.np).min


def _highest(dtype: dtypes.DType) -> Any:
    """The minimum of an empty reduction: infinity, or the largest integer."""
    return np.inf if dtype.is_floating else np.iinfo(dtype.np).max


def _axes_scratch(x: Any, axes: Any) -> float:
    """Bytes of a copy of the axes, by which they are looked up."""
    return float(axes.nbytes)


@kernel("Sum", "Prod", T=dtypes.NUMBER, Tidx=INDEX, cost=0.4, scratch=_axes_scratch)
def sum_or_prod(c: OpKernelConstruction) -> Compute:
    """Sums or products; integers wrap around in their own type.  Without axes it is the input itself."""
    return sum_function(c.xp, c.attr("T"), c.attr("Tidx"), keep=c.attr("keep_dims"), product=c.op == "Prod")


def _adder(xp: Any, work: np.dtype[Any]) -> Any:
    """Like `reducer(xp, "add")`, for sums in `work`; rows that are summed are summed together.

    Not integers, which wrap around.
    """
    plain = reducer(xp, "add")
    if xp is not np or work.kind not in "fc":
        return plain

    def add(x: Any, axes: tuple[int, ...], work: Any, out: None, keep: bool) -> Any:
        if x.size < MANY or not axes or not x.flags.c_contiguous:
            return plain(x, axes, work, out, keep)
        first, last = min(axes), max(axes)
        if last - first >= len(axes) or last == x.ndim - 1:
            return plain(x, axes, work, out, keep)
        before, kept = x.shape[:first], x.shape[last + 1 :]
        matrices = x.reshape(math.prod(before), math.prod(x.shape[first : last + 1]), math.prod(kept))
        return sum_of_rows(matrices, work).reshape(before + (1,) * len(axes) * keep + kept)

    return add


def sum_function(
    xp: Any, dtype: dtypes.DType, index_type: dtypes.DType, *, keep: bool = False, product: bool = False
) -> Compute:
    """Return `(x, axes) -> sum or product`.

    Args:
        index_type: of the axes.
        keep: reduced dimensions stay, with size 1.
    """
    out, work, axes_of = dtype.np, accumulation_type(dtype), _Axes(index_type.np)
    reduce = reducer(xp, "multiply") if product else _adder(xp, work)

    def compute(x: Any, axes: Any) -> Any:
        found = axes_of[x.ndim, axes.tobytes()]
        return reduce(x, found, work, None, keep) if found else x

    def compute_rounded(x: Any, axes: Any) -> Any:
        if not x.size:  # there may be very many empty sums
            return reduce(x, axes_of[x.ndim, axes.tobytes()], out, None, keep)
        wide = reduce(x, axes_of[x.ndim, axes.tobytes()], work, None, keep)
        return _counted(wide).astype(out)

    return compute if work == out else compute_rounded


@kernel("Max", "Min", T=dtypes.REAL_NUMBER, Tidx=INDEX, cost=0.3, scratch=_axes_scratch)
@kernel(
    "Max",
    "Min",
    device="DEFAULT",
    host_memory=("reduction_indices", "input", "output"),
    T=(dtypes.int32,),
    Tidx=INDEX,
    cost=0.3,
    scratch=_axes_scratch,
)
def max_or_min(c: OpKernelConstruction) -> Compute:
    """NaN wins.  An empty reduction gives the type's infinity, for integers its limit."""
    dtype, keep, axes_of = c.attr("T"), c.attr("keep_dims"), _Axes(c.attr("Tidx").np)
    out, work = dtype.np, accumulation_type(dtype)
    ufunc, start = ("maximum", _lowest(dtype)) if c.op == "Max" else ("minimum", _highest(dtype))
    reduce = reducer(c.xp, ufunc)
    initial = work.type(start)

    def compute(x: Any, axes: Any) -> Any:
        return reduce(x, axes_of[x.ndim, axes.tobytes()], None, None, keep, initial)

    def compute_widened(x: Any, axes: Any) -> Any:
        if not x.size:
            return reduce(x, axes_of[x.ndim, axes.tobytes()], None, None, keep, out.type(start))
        # The loops for half and bfloat16 are several times slower than a cast and the float32 loop.
        if x.size > _FEW:
            announce_scratch(work.itemsize * x.size)
        wide = reduce(x.astype(work), axes_of[x.ndim, axes.tobytes()], None, None, keep, initial)
        return _counted(wide).astype(out)

    return compute if work == out else compute_widened


@kernel("All", "Any", host_memory=("reduction_indices",), Tidx=INDEX, cost=0.2, scratch=_axes_scratch)
def all_or_any(c: OpKernelConstruction) -> Compute:
    """All of an empty reduction is true, any is false."""
    keep, axes_of = c.attr("keep_dims"), _Axes(c.attr("Tidx").np)
    reduce = reducer(c.xp, "logical_and" if c.op == "All" else "logical_or")

    def compute(x: Any, axes: Any) -> Any:
        return reduce(x, axes_of[x.ndim, axes.tobytes()], None, None, keep)

    return compute


def truncating_divide(xp: Any, total: Any, count: Any) -> Any:
    """Integer quotient rounded toward zero, as in C; dividing by zero gives zero."""
    if total.size > _FEW:
        announce_scratch(2 * total.nbytes)
    return (total - xp.fmod(total, count)) // count


@kernel("Mean", T=dtypes.NUMBER, Tidx=INDEX, cost=0.4, scratch=_axes_scratch)
def mean(c: OpKernelConstruction) -> Compute:
    """The mean of an empty reduction is NaN; for complex numbers and integers it is zero.

    Integers are summed in 64 bits and divided toward zero.
    """
    dtype, keep, axes_of = c.attr("T"), c.attr("keep_dims"), _Axes(c.attr("Tidx").np)
    out, work = dtype.np, accumulation_type(dtype)
    if out.kind in "iu":
        work = np.dtype(np.int64 if out.kind == "i" else np.uint64)
        return _integer_mean(c.xp, out, work, keep, axes_of)
    reduce, is_complex = _adder(c.xp, work), dtype.is_complex

    def compute(x: Any, axes: Any, work: Any = work) -> Any:
        total = reduce(x, axes_of[x.ndim, axes.tobytes()], work, None, keep)
        if not x.size and is_complex:
            return total
        # If the result has no elements the divisor does not matter.
        return _counted(total) / (x.size // (total.size or 1))

    def compute_rounded(x: Any, axes: Any) -> Any:
        if not x.size:
            return compute(x, axes, out)
        return _counted(compute(x, axes)).astype(out)

    return compute if work == out else compute_rounded


def _integer_mean(xp: Any, out: np.dtype[Any], work: np.dtype[Any], keep: bool, axes_of: _Axes) -> Compute:
    reduce = reducer(xp, "add")

    def compute(x: Any, axes: Any) -> Any:
        if not x.size:
            return reduce(x, axes_of[x.ndim, axes.tobytes()], out, None, keep)
        total = reduce(x, axes_of[x.ndim, axes.tobytes()], work, None, keep)
        count = work.type(x.size // (total.size or 1))
        return truncating_divide(xp, _counted(total), count).astype(out)

    return compute


@kernel("EuclideanNorm", T=dtypes.NUMBER, Tidx=INDEX, cost=0.8, scratch=16)
def euclidean_norm(c: OpKernelConstruction) -> Compute:
    """The root of the sum of squares.  Integers are summed in their own type, wrap, and the root is truncated."""
    dtype, keep, axes_of = c.attr("T"), c.attr("keep_dims"), _Axes(c.attr("Tidx").np)
    out, work = dtype.np, accumulation_type(dtype)
    xp, reduce = c.xp, reducer(c.xp, "add")
    if out.kind in "iu":
        return _integer_norm(xp, out, keep, axes_of)

    def compute(x: Any, axes: Any, work: Any = work) -> Any:
        total = reduce(xp.square(x, dtype=work), axes_of[x.ndim, axes.tobytes()], work, None, keep)
        return xp.sqrt(_counted(total))

    def compute_rounded(x: Any, axes: Any) -> Any:
        if not x.size:
            return compute(x, axes, out)
        return _counted(compute(x, axes)).astype(out)

    def compute_complex(x: Any, axes: Any) -> Any:
        squares = xp.square(x.real) + xp.square(x.imag)
        return xp.sqrt(reduce(squares, axes_of[x.ndim, axes.tobytes()], None, None, keep)).astype(out)

    if dtype.is_complex:
        return compute_complex
    return compute if work == out else compute_rounded


# Bytes per sum of integers while its root is taken.
_ROOT_BYTES = 24


def _integer_norm(xp: Any, out: np.dtype[Any], keep: bool, axes_of: _Axes) -> Compute:
    # A wrapped sum may be negative.  Its root is NaN, which TensorFlow's casts turn into this on x86.
    of_negative = np.iinfo(out).min if out.itemsize >= 4 else 0
    reduce = reducer(xp, "add")

    def compute(x: Any, axes: Any) -> Any:
        total = reduce(x * x, axes_of[x.ndim, axes.tobytes()], out, None, keep)
        if not x.size:
            return total
        if total.size > _FEW:
            announce_scratch(_ROOT_BYTES * total.size)
        root = xp.sqrt(xp.abs(total.astype(np.float64))).astype(out)
        return xp.where(total < 0, out.type(of_negative), root)

    return compute


@kernel("L2Loss", T=dtypes.FLOAT, cost=0.2)
def l2_loss(c: OpKernelConstruction) -> Compute:
    """Return half the sum of squares, over all elements."""
    out, work = c.attr("T").np, accumulation_type(c.attr("T"))
    half, vdot = work.type(0.5), c.xp.vdot

    def compute(x: Any) -> Any:
        return vdot(x, x) * half

    def compute_rounded(x: Any) -> Any:
        announce_scratch(work.itemsize * x.size)
        wide = x.astype(work)
        return (vdot(wide, wide) * half).astype(out)

    return compute if work == out else compute_rounded


def _check_arg_axis(x: Any, axis: Any) -> int:
    """The axis to search.

    Raises:
        InvalidArgumentError: it is not a scalar, out of range or empty, or the input has too many dimensions.
    """
    if axis.ndim:
        raise errors.InvalidArgumentError(
            f"dim must be a scalar, but received tensor of shape: {shape_text(axis.shape)}"
        )
    value, rank = int(axis), x.ndim
    if not -rank <= value < rank:
        raise errors.InvalidArgumentError(f"Expected dimension in the range [{-rank}, {rank}), but got {value}")
    if x.shape[value] == 0:
        raise errors.InvalidArgumentError(f"Reduction axis {value} is empty in shape {shape_text(x.shape)}")
    if rank > _MAX_ARG_RANK:
        raise errors.InvalidArgumentError(
            f"Argmax and Argmin only support up to {_MAX_ARG_RANK} input dimensions, but got {rank}. "
            f"Inputs shape: {shape_text(x.shape)}"
        )
    return value


def _announce_turned(x: Any, axis: int) -> None:
    """Announce the copy that NumPy makes to search along another axis than the last."""
    if axis not in (-1, x.ndim - 1) or not x.flags.c_contiguous:
        announce_scratch(x.nbytes)


@kernel(
    "ArgMax",
    host_memory=("dimension",),
    T=_ARG_TYPES,
    output_type=(dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.int64),
    cost=0.7,
)
@kernel("ArgMin", host_memory=("dimension",), T=_ARG_TYPES, output_type=(dtypes.int32, dtypes.int64), cost=0.7)
def arg_max_or_min(c: OpKernelConstruction) -> Compute:
    """Return the first position of the extremum.  NaN never wins: if all are NaN the position is 0."""
    dtype, out = c.attr("T"), c.attr("output_type").np
    xp = c.xp
    find, loser = (xp.ndarray.argmax, -np.inf) if c.op == "ArgMax" else (xp.ndarray.argmin, np.inf)
    widen = dtype in _SMALL_FLOATS

    def compute(x: Any, axis: Any) -> Any:
        at = _check_arg_axis(x, axis)
        _announce_turned(x, at)
        found = find(x, at)
        return found if found.dtype == out else found.astype(out)

    def compute_floating(x: Any, axis: Any) -> Any:
        at = _check_arg_axis(x, axis)
        if widen:
            announce_scratch(4 * x.size)
            x = x.astype(np.float32)
        _announce_turned(x, at)
        # The sum of squares is NaN only if an element is, and is the fastest check.
        squares = xp.vdot(x, x)
        if squares != squares:
            announce_scratch(x.size + x.nbytes)
            x = xp.where(xp.isnan(x), x.dtype.type(loser), x)
        found = find(x, at)
        return found if found.dtype == out else found.astype(out)

    return compute_floating if dtype.is_floating else compute


class _Scan:
    """Index tuples of a scan along one axis: for the input, the output and the identity."""

    __slots__ = ("axis", "first", "source", "target")

    def __init__(self, axis: int, *, exclusive: bool, reverse: bool) -> None:
        before = (slice(None),) * axis
        backward = slice(None, None, -1)
        if not exclusive:
            source = target = backward if reverse else slice(None)
            first = slice(0, 0)
        elif reverse:
            source, target, first = slice(None, 0, -1), slice(-2, None, -1), slice(-1, None)
        else:
            source, target, first = slice(None, -1), slice(1, None), slice(0, 1)
        self.axis = axis
        self.source, self.target, self.first = (*before, source), (*before, target), (*before, first)


def _scan_axis(rank: int, axis: Any) -> int:
    if axis.ndim:
        raise errors.InvalidArgumentError(f"ScanOp: axis must be a scalar, not {shape_text(axis.shape)}")
    value = int(axis)
    if value < 0:
        value += rank
    if not 0 <= value < rank:
        raise errors.InvalidArgumentError(f"ScanOp: Expected scan axis in the range [{-rank}, {rank}), but got {value}")
    return value


@kernel("Cumsum", "Cumprod", T=dtypes.NUMBER, Tidx=INDEX, cost=1.5)
@kernel("CumulativeLogsumexp", host_memory=("axis",), T=dtypes.FLOAT, Tidx=INDEX, cost=25.0)
def cumulative(c: OpKernelConstruction) -> Compute:
    """Scans along one axis.  `exclusive` starts from the identity and leaves out the last element.

    In a log-sum-exp NaN spreads to all later elements, and two infinities add up to infinity; TensorFlow's kernel skips
    some NaNs and turns two infinities into NaN.
    """
    out, work = c.attr("T").np, accumulation_type(c.attr("T"))
    exclusive, reverse = c.attr("exclusive"), c.attr("reverse")
    ufunc, identity = {
        "Cumsum": ("add", 0),
        "Cumprod": ("multiply", 1),
        "CumulativeLogsumexp": ("logaddexp", -np.inf),
    }[c.op]
    empty, accumulate = c.xp.empty, accumulator(c.xp, ufunc)
    scans: dict[int, _Scan] = {}

    def compute(x: Any, axis: Any) -> Any:
        at = _scan_axis(x.ndim, axis)
        scan = scans.get(at)
        if scan is None:
            scan = scans[at] = _Scan(at, exclusive=exclusive, reverse=reverse)
        result = empty(x.shape, work)
        result[scan.first] = identity
        accumulate(x[scan.source], at, work, result[scan.target])
        return result

    def compute_plain(x: Any, axis: Any) -> Any:
        return accumulate(x, _scan_axis(x.ndim, axis), work)

    def compute_rounded(x: Any, axis: Any) -> Any:
        announce_scratch(2 * work.itemsize * x.size)
        return compute(x.astype(work), axis).astype(out)

    if work != out:
        return compute_rounded
    return compute if exclusive or reverse else compute_plain
