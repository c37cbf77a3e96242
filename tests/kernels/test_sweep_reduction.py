"""Every reduction, scan and segment kernel against plain NumPy: types, zero sizes, negative axes, any order of axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aexec.framework import dtypes, errors
from tests.kernels.harness import ops_of, run_op
from tests.support.sweep import SEEDS, SHAPES, Check, Draw, assert_close, random_values, rounded, sweeps, types_of, wide

Oracle = Callable[..., Any]
INDEX_TYPES = st.sampled_from([np.int32, np.int64])
VECTORS_OR_MORE = st.lists(st.integers(0, 3), min_size=1, max_size=5).map(tuple)
# Sums of a few hundred values lose more digits than one operation does.
LOOSE = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4, "complex64": 1e-4}


def _axes(draw: Draw, rank: int) -> list[int]:
    """Different axes in any order, some counted from the end."""
    chosen = draw(st.lists(st.integers(0, max(rank - 1, 0)), unique=True, max_size=rank))
    return [axis - rank * draw(st.integers(0, 1)) for axis in chosen]


def _limits(dtype: Any) -> tuple[Any, Any]:
    """The lowest and the highest value of a type."""
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return -np.inf, np.inf


def _finite_limits(dtype: Any) -> tuple[Any, Any]:
    """The same, but for infinities."""
    return _limits(dtype) if dtype.kind in "iu" else (ml_dtypes.finfo(dtype).min, ml_dtypes.finfo(dtype).max)


def _reduced(x: Any, axes: list[int], keep: bool, of_rows: Callable[[Any], Any]) -> Any:
    """`of_rows` (elements [n] → value) for each place that is left of an array."""
    at = sorted(axis % x.ndim for axis in axes)
    left = [d for d in range(x.ndim) if d not in at]
    rows = x.transpose(*left, *at).reshape([x.shape[d] for d in left] + [int(np.prod([x.shape[d] for d in at]))])
    out = np.empty(rows.shape[:-1], object)
    for place in np.ndindex(out.shape):
        out[place] = of_rows(rows[place])
    return out.reshape([1 if d in at else x.shape[d] for d in range(x.ndim)]) if keep else out


def reduction(of_rows: Callable[[Any, Any], Any], *bounds: float, kinds: str = "iufc", corners: bool = False) -> Check:
    """A check of an op that makes one value, `of_rows` of wide values and their type, of those along some axes."""

    def check(op: str, draw: Draw) -> None:
        dtype = draw(st.sampled_from(types_of(op, kinds=kinds) or [np.dtype(bool)]))
        x = random_values(draw(SEEDS), draw(SHAPES), dtype, *bounds, corners=corners)
        axes, keep, index = _axes(draw, x.ndim), draw(st.booleans()), draw(INDEX_TYPES)
        got = run_op(op, [x, np.array(axes, index)], keep_dims=keep)
        with np.errstate(all="ignore"):
            want = _reduced(wide(x), axes, keep, lambda row: of_rows(row, dtype))
        assert_close(got, _typed(want, dtype), LOOSE.get(dtype.name))

    return check


def _typed(values: Any, dtype: Any) -> Any:
    if dtype.kind in "iub":
        return rounded(values, dtype)
    return values.astype(np.complex128 if dtype.kind == "c" else np.float64).astype(dtype)


def _is_integer(row: Any) -> bool:
    return row.dtype == object


def _mean(row: Any, dtype: Any) -> Any:
    if _is_integer(row):
        total, count = sum(row.tolist()), len(row)
        return 0 if not count else abs(total) // count * (1 if total >= 0 else -1)
    if not len(row):
        return 0 if dtype.kind == "c" else np.nan
    return row.mean()


def _norm(row: Any, dtype: Any) -> Any:
    if _is_integer(row):
        return int(np.sqrt(float(sum(v * v for v in row.tolist()))))
    return np.sqrt((np.abs(row) ** 2).sum())


def _product(row: Any, dtype: Any) -> Any:
    result = 1
    for value in row.tolist():
        result = result * value
    return result


def _extremum(choose: Callable[..., Any], end: int) -> Callable[[Any, Any], Any]:
    def of_rows(row: Any, dtype: Any) -> Any:
        values = row.tolist()
        return np.nan if any(v != v for v in values) else choose(values, default=_limits(dtype)[end])

    return of_rows


def arg_extremum(find: Oracle, loser: float) -> Check:
    """The first place of the extremum; NaN is none."""

    def check(op: str, draw: Draw) -> None:
        dtype = draw(st.sampled_from(types_of(op, kinds="biuf")))
        shape = draw(VECTORS_OR_MORE)
        axis = draw(st.integers(-len(shape), len(shape) - 1))
        out = draw(st.sampled_from(types_of(op, "output_type")))
        x = random_values(draw(SEEDS), shape, dtype)
        values = wide(x)
        if values.dtype.kind == "f":
            values = np.where(np.isnan(values), loser, values)
        inputs, attrs = [x, np.array(axis, draw(INDEX_TYPES))], {"output_type": dtypes.from_numpy(out)}
        if shape[axis] == 0:
            with pytest.raises(errors.InvalidArgumentError, match=f"Reduction axis {axis} is empty in shape"):
                run_op(op, inputs, **attrs)
        else:
            assert_close(run_op(op, inputs, **attrs), np.asarray(find(values, axis)).astype(out))

    return check


def scan(add: Callable[[Any, Any], Any], identity: float, kinds: str = "iufc") -> Check:
    """Running totals along an axis, element by element."""

    def check(op: str, draw: Draw) -> None:
        dtype = draw(st.sampled_from(types_of(op, kinds=kinds)))
        shape = draw(VECTORS_OR_MORE)
        axis = draw(st.integers(-len(shape), len(shape) - 1))
        exclusive, reverse = draw(st.booleans()), draw(st.booleans())
        x = random_values(draw(SEEDS), shape, dtype, -2, 2, corners=False)
        got = run_op(op, [x, np.array(axis, draw(INDEX_TYPES))], exclusive=exclusive, reverse=reverse)
        rows = np.moveaxis(wide(x), axis, 0)
        want, total = np.empty(rows.shape, rows.dtype), np.full(rows.shape[1:], identity).astype(rows.dtype)
        with np.errstate(all="ignore"):
            for place in reversed(range(len(rows))) if reverse else range(len(rows)):
                after = add(total, rows[place])
                want[place] = total if exclusive else after
                total = after
        assert_close(got, rounded(np.moveaxis(want, 0, axis), dtype), LOOSE.get(dtype.name))

    return check


def _check_l2_loss(op: str, draw: Draw) -> None:
    dtype = draw(st.sampled_from(types_of(op)))
    x = random_values(draw(SEEDS), draw(SHAPES), dtype, corners=False)
    assert_close(run_op(op, [x]), np.asarray((wide(x) ** 2).sum() / 2).astype(dtype), LOOSE.get(dtype.name))


# Segments


def _combined(rows: Any, ids: Any, count: int, of_rows: Callable[[Any, Any], Any], dtype: Any, empty: Any) -> Any:
    """`of_rows` of the elements of all rows with each id; `empty` where there is none."""
    out = np.full((count, *rows.shape[1:]), 0, object)
    for segment in range(count):
        mine = rows[ids == segment]
        for place in np.ndindex(*rows.shape[1:]):
            out[(segment, *place)] = of_rows(mine[(slice(None), *place)], dtype) if len(mine) else empty
    return _typed(out, dtype)


def segment(of_rows: Callable[[Any, Any], Any], empty: float, kinds: str = "iufc") -> Check:
    """Rows by sorted ids, with gaps."""

    def check(op: str, draw: Draw) -> None:
        dtype = draw(st.sampled_from(types_of(op, kinds=kinds)))
        data = random_values(draw(SEEDS), draw(VECTORS_OR_MORE), dtype, corners=False)
        ids = np.sort(random_values(draw(SEEDS), data.shape[:1], draw(INDEX_TYPES), 0, 4, corners=False))
        count = int(ids[-1]) + 1 if ids.size else 0
        want = _combined(wide(data), ids, count, of_rows, dtype, empty)
        assert_close(run_op(op, [data, ids]), want, LOOSE.get(dtype.name))

    return check


def unsorted_segment(of_rows: Callable[[Any, Any], Any], empty: Callable[[Any], Any], kinds: str = "iufc") -> Check:
    """Ids of any order and rank; the negative ones are left out."""

    def check(op: str, draw: Draw) -> None:
        dtype = draw(st.sampled_from(types_of(op, kinds=kinds)))
        data = random_values(draw(SEEDS), draw(SHAPES), dtype, corners=False)
        rank = draw(st.integers(0, data.ndim))
        count = draw(st.integers(0, 4))
        ids = random_values(draw(SEEDS), data.shape[:rank], draw(INDEX_TYPES), -1, 3, corners=False)
        ids = np.where(ids >= count, -1, ids).astype(ids.dtype)
        got = run_op(op, [data, ids, np.array(count, draw(INDEX_TYPES))])
        rows = wide(data).reshape(ids.size, *data.shape[rank:])
        want = _combined(rows, ids.ravel(), count, of_rows, dtype, empty(dtype))
        assert_close(got, want, LOOSE.get(dtype.name))

    return check


_WEIGHTS: dict[str, Callable[[int], float]] = {
    "Sum": lambda n: 1.0,
    "Mean": lambda n: float(n),
    "SqrtN": lambda n: float(np.sqrt(n)),
}


def _draw_sparse(draw: Draw, dtype: Any, *, rows: int) -> tuple[Any, Any]:
    count = draw(st.integers(0, 6)) if rows else 0
    indices = random_values(draw(SEEDS), (count,), draw(INDEX_TYPES), 0, max(rows - 1, 0), corners=False)
    ids = np.sort(random_values(draw(SEEDS), (count,), draw(INDEX_TYPES), 0, 4, corners=False))
    return indices, ids


def _check_sparse_segment(op: str, draw: Draw) -> None:
    dtype = draw(st.sampled_from(types_of(op)))
    data = random_values(draw(SEEDS), draw(VECTORS_OR_MORE), dtype, corners=False)
    indices, ids = _draw_sparse(draw, dtype, rows=len(data))
    count = int(ids[-1]) + 1 if ids.size else 0
    inputs = [data, indices, ids]
    if op.endswith("WithNumSegments"):
        count += draw(st.integers(0, 2))
        inputs.append(np.array(count, draw(INDEX_TYPES)))
    weight = next(w for name, w in _WEIGHTS.items() if op.startswith(f"SparseSegment{name}"))
    want = np.zeros((count, *data.shape[1:]), wide(data).dtype)
    for row, place in zip(indices, ids, strict=True):
        share = wide(data)[row]
        want[place] += share if dtype.kind in "iu" else share / weight(int((ids == place).sum()))
    assert_close(run_op(op, inputs), rounded(want, dtype), LOOSE.get(dtype.name))


def _check_sparse_segment_grad(op: str, draw: Draw) -> None:
    dtype = draw(st.sampled_from(types_of(op)))
    rows = draw(st.integers(0, 4))
    indices, ids = _draw_sparse(draw, dtype, rows=rows)
    segments = int(ids[-1]) + 1 if ids.size else draw(st.integers(0, 2))
    grad = random_values(draw(SEEDS), (segments, *draw(SHAPES)[:3]), dtype, corners=False)
    weight = next(w for name, w in _WEIGHTS.items() if op.startswith(f"SparseSegment{name}"))
    want = np.zeros((rows, *grad.shape[1:]))
    for row, place in zip(indices, ids, strict=True):
        want[row] += wide(grad)[place] / weight(int((ids == place).sum()))
    got = run_op(op, [grad, indices, ids, np.int32(rows)])
    if op.endswith("V2"):
        got, unique = got
        order = np.unique(indices)
        assert sorted(unique.tolist()) == order.tolist()
        want = want[unique]
    assert_close(got, want.astype(dtype), LOOSE.get(dtype.name))


def _sum(row: Any, dtype: Any) -> Any:
    return sum(row.tolist())


_SPARSE = [f"SparseSegment{kind}" for kind in _WEIGHTS]

TABLE: dict[str, Check] = {
    "All": reduction(lambda row, _: all(row.tolist())),
    "Any": reduction(lambda row, _: any(row.tolist())),
    "ArgMax": arg_extremum(np.argmax, -np.inf),
    "ArgMin": arg_extremum(np.argmin, np.inf),
    "Cumprod": scan(lambda a, b: a * b, 1),
    "Cumsum": scan(lambda a, b: a + b, 0),
    "CumulativeLogsumexp": scan(np.logaddexp, -np.inf),
    "EuclideanNorm": reduction(_norm, -0.5, 0.5),
    "L2Loss": _check_l2_loss,
    "Max": reduction(_extremum(max, 0), kinds="iuf", corners=True),
    "Mean": reduction(_mean),
    "Min": reduction(_extremum(min, 1), kinds="iuf", corners=True),
    "Prod": reduction(_product, -1, 1),
    "Sum": reduction(_sum),
    "SegmentMax": segment(_extremum(max, 0), 0, kinds="iuf"),
    "SegmentMean": segment(_mean, 0),
    "SegmentMin": segment(_extremum(min, 1), 0, kinds="iuf"),
    "SegmentProd": segment(_product, 1),
    "SegmentSum": segment(_sum, 0),
    "UnsortedSegmentMax": unsorted_segment(_extremum(max, 0), lambda t: _finite_limits(t)[0], kinds="iuf"),
    "UnsortedSegmentMin": unsorted_segment(_extremum(min, 1), lambda t: _finite_limits(t)[1], kinds="iuf"),
    "UnsortedSegmentProd": unsorted_segment(_product, lambda t: 1),
    "UnsortedSegmentSum": unsorted_segment(_sum, lambda t: 0),
    **dict.fromkeys(_SPARSE, _check_sparse_segment),
    **dict.fromkeys([f"{op}WithNumSegments" for op in _SPARSE], _check_sparse_segment),
    **dict.fromkeys([f"{op}Grad{version}" for op in _SPARSE for version in ("", "V2")], _check_sparse_segment_grad),
}


def test_every_reduction_is_swept():
    assert sorted(TABLE) == sorted(ops_of("math.reduction_ops", "math.segment_ops"))


test_sweep, test_long_sweep = sweeps(TABLE, examples=20)


REDUCTIONS = ("All", "Any", "EuclideanNorm", "Max", "Mean", "Min", "Prod", "Sum")


@pytest.mark.parametrize("op", REDUCTIONS)
@settings(max_examples=15)
@given(shape=SHAPES, axes=st.lists(st.integers(-7, 7), max_size=4))
def test_axes_that_are_refused(op, shape, axes):
    """Out of range, or one twice, be it counted from either end."""
    rank = len(shape)
    x = np.zeros(shape, bool if op in ("All", "Any") else np.float32)
    wrong = [axis for axis in axes if not -rank <= axis < rank]
    twice = not wrong and len({axis % rank for axis in axes}) < len(axes)
    if wrong or twice:
        with pytest.raises(errors.InvalidArgumentError, match=r"Invalid reduction (dimension|arguments)"):
            run_op(op, [x, np.int32(axes)])
    else:
        assert np.ndim(run_op(op, [x, np.int32(axes)])) == rank - len(axes)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin", "Cumprod", "Cumsum", "CumulativeLogsumexp"])
@pytest.mark.parametrize("axis", [-4, 3, 7])
def test_axis_out_of_range(op, axis):
    # Scans name the axis as they count it, from the front.
    named = axis + 3 if op.startswith("Cum") and axis < 0 else axis
    with pytest.raises(errors.InvalidArgumentError, match=rf"in the range \[-3, 3\), but got {named}$"):
        run_op(op, [np.zeros((2, 0, 1), np.float32), np.int32(axis)])
