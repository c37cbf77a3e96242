"""Segment reductions: known answers, TensorFlow's messages, and a plain loop as the oracle on random ids."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import errors
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op
from tests.kernels.numeric_support import FLOATS, INTEGERS, assert_close, assert_refused, bfloat16

NAN, INF = float("nan"), float("inf")
COMPLEX = [np.complex64, np.complex128]
ROWS = [[1, 2], [3, 4], [5, 6], [7, 8]]
# Enough elements that sums go through the sparse product.
MANY = 3000

UFUNCS = {"Sum": np.add, "Prod": np.multiply, "Min": np.minimum, "Max": np.maximum}


@pytest.mark.parametrize("op", ops_of("math.segment_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


SEGMENTS = [
    ("SegmentSum", [[4, 6], [0, 0], [12, 14]]),
    ("SegmentMean", [[2, 3], [0, 0], [6, 7]]),
    ("SegmentProd", [[3, 8], [1, 1], [35, 48]]),
    ("SegmentMin", [[1, 2], [0, 0], [5, 6]]),
    ("SegmentMax", [[3, 4], [0, 0], [7, 8]]),
]


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, *COMPLEX])
@pytest.mark.parametrize(("op", "result"), SEGMENTS)
def test_sorted_segments(op, result, dtype, index):
    if np.dtype(dtype).kind == "c" and op in ("SegmentMin", "SegmentMax"):
        return
    ids = index([0, 0, 2, 2])
    rows, result = np.array(ROWS, dtype), np.array(result, dtype)
    assert_close(run_op(op, [rows, ids]), result)
    assert_close(run_op(op, [rows[:, 0], ids]), result[:, 0])
    assert_close(run_op(op, [rows[:, None], ids]), result[:, None])


@pytest.mark.parametrize("op", [op for op, _ in SEGMENTS])
def test_sorted_segments_of_nothing(op):
    assert run_op(op, [np.zeros((0, 3), np.float32), np.zeros(0, np.int32)]).shape == (0, 3)
    assert run_op(op, [np.zeros((2, 0), np.float32), [0, 2]]).shape == (3, 0)


@pytest.mark.parametrize("op", [op for op, _ in SEGMENTS])
@pytest.mark.parametrize(
    ("data", "ids", "message"),
    [
        (ROWS, [0, 1, 0, 2], "segment ids are not increasing"),
        (ROWS, [-3, -2, -1, -1], "segment ids must be >= 0"),
        (ROWS, [0, 0, 0, -1], "segment ids must be >= 0"),
        (
            ROWS,
            [-1, 0, 0, 0],
            "Segment id -1 out of range [0, 1), possibly because 'segment_ids' input is not sorted.",
        ),
        (ROWS, [0, 0, 0], "segment_ids should be the same size as dimension 0 of input."),
        (ROWS, 0, "segment_ids should be a vector."),
        (ROWS, [[0, 0], [0, 0]], "segment_ids should be a vector."),
        (1, [0], "input must be at least rank 1"),
    ],
)
def test_wrong_sorted_ids(op, data, ids, message):
    assert_refused(message, op, [np.float32(data), np.int32(ids)])


def test_mean_of_integers_truncates():
    assert_close(run_op("SegmentMean", [np.int32([-3, -4, 5]), [0, 0, 1]]), [-3, 5], np.int32)


@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
@pytest.mark.parametrize("op", ["SegmentSum", "SegmentMean"])
def test_narrow_floats_are_added_up_in_float32(op, dtype):
    want = MANY if op == "SegmentSum" else 1
    ids = np.zeros(MANY, np.int32)
    assert_close(run_op(op, [np.ones(MANY, dtype), ids]), np.float32([want]).astype(dtype))
    assert_close(run_op(op, [np.ones((MANY, 2), dtype), ids]), np.float32([[want, want]]).astype(dtype))


UNSORTED = [
    ("UnsortedSegmentSum", [[6, 8], [10, 12]], lambda t: 0),
    ("UnsortedSegmentProd", [[5, 12], [21, 32]], lambda t: 1),
    ("UnsortedSegmentMin", [[1, 2], [3, 4]], lambda t: limits(t).max),
    ("UnsortedSegmentMax", [[5, 6], [7, 8]], lambda t: limits(t).min),
]


def limits(dtype):
    return np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else ml_dtypes.finfo(dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, *COMPLEX])
@pytest.mark.parametrize(("op", "result", "of_nothing"), UNSORTED)
def test_unsorted_segments(op, result, of_nothing, dtype):
    if np.dtype(dtype).kind == "c" and op[-3:] in ("Min", "Max"):
        return
    rows = np.array(ROWS, dtype)
    want = np.array([result[0], [of_nothing(dtype)] * 2, result[1]], dtype)
    for ids in (np.int32([0, 2, 0, 2]), np.int64([0, 2, 0, 2])):
        assert_close(run_op(op, [rows, ids, 3]), want)
        assert_close(run_op(op, [rows[:, 0], ids, np.int64(3)]), want[:, 0])
    # Ids of a higher rank take as many of the data's dimensions; scalars none.
    assert_close(run_op(op, [rows.reshape(2, 2, 2), [[0, 2], [0, 2]], 3]), want)
    assert_close(run_op(op, [rows[0], 1, 2]), np.stack([want[1], rows[0]]))
    assert_close(run_op(op, [np.zeros((0, 2), dtype), np.zeros(0, np.int32), 1]), want[1:2])
    # Rows with a negative id are left out.
    assert_close(run_op(op, [rows, [-1, 0, -5, -1], 1]), rows[1:2])


def test_unsorted_extrema_start_from_the_finite_limits():
    assert run_op("UnsortedSegmentMin", [np.float32([INF]), [0], 1]) == np.finfo(np.float32).max
    assert run_op("UnsortedSegmentMax", [np.float32([-INF]), [0], 1]) == np.finfo(np.float32).min


@pytest.mark.parametrize("op", ["SegmentMin", "SegmentMax", "SegmentSum", "SegmentProd"])
def test_nan_wins(op):
    data = np.float32([NAN, 1, 2, NAN, 3])
    assert np.isnan(run_op(op, [data, [0, 0, 1, 1, 1]])).all()
    assert np.isnan(run_op("Unsorted" + op, [data, [0, 0, 1, 1, 1], 2])).all()


@pytest.mark.parametrize("op", [op for op, _, _ in UNSORTED])
@pytest.mark.parametrize(
    ("ids", "count", "message"),
    [
        ([0, 1, 2, 1], 2, "segment_ids[2] = 2 is out of range [0, 2)"),
        ([[0, 1], [9, 2], [0, 0], [7, 0]], 2, "segment_ids[1,0] = 9 is out of range [0, 2)"),
        ([0, 0, 0, 0], 0, "segment_ids[0] = 0 is out of range [0, 0)"),
        ([0, 0, 0, 0], -1, "Input num_segments == -1 must not be negative."),
        ([0, 0, 0, 0], [2], "num_segments should be a scalar, not shape [1]"),
        ([0, 0], 2, "data.shape = [4,2] does not start with segment_ids.shape = [2]"),
    ],
)
def test_wrong_unsorted_ids(op, ids, count, message):
    assert_refused(message, op, [np.float32(ROWS), np.int32(ids), np.int32(count)])


def test_too_many_segments_are_refused():
    with pytest.raises(errors.ResourceExhaustedError, match=r"OOM when allocating tensor with shape\[\d+,4\]"):
        run_op("UnsortedSegmentSum", [np.ones((1, 4), np.float32), [0], np.int64(2**50)])


def loop(ufunc, rows, ids, count, of_nothing):
    """The plain definition, one row after the other."""
    result = np.full((count, *rows.shape[1:]), of_nothing, rows.dtype)
    seen = set()
    for i, row in zip(ids, rows, strict=True):
        result[i] = ufunc(result[i], row) if i in seen else row
        seen.add(i)
    return result


@given(
    op=st.sampled_from(sorted(UFUNCS)),
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 400),
    width=st.sampled_from([(), (1,), (7,), (2, 3)]),
    segments=st.integers(1, 400),
    dtype=st.sampled_from([np.float64, np.int32, np.int8]),
)
def test_segments_agree_with_a_loop(op, seed, rows, width, segments, dtype):
    rng = np.random.default_rng(seed)
    data = rng.integers(-3, 4, (rows, *width)).astype(dtype)
    ids = rng.integers(0, segments, rows)
    with np.errstate(over="ignore"):
        limit = limits(dtype)
        empty = {"Sum": 0, "Prod": 1, "Min": limit.max, "Max": limit.min}[op]
        assert_close(
            run_op("UnsortedSegment" + op, [data, ids, segments]), loop(UFUNCS[op], data, ids, segments, empty)
        )
        ids.sort()
        want = loop(UFUNCS[op], data, ids, ids[-1] + 1, int(op == "Prod"))
        assert_close(run_op("Segment" + op, [data, ids]), want)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.complex64])
def test_many_rows(dtype):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 9, (2, MANY)).astype(dtype).T  # not contiguous
    ids = rng.integers(0, 50, MANY)
    want = np.zeros((50, 2), dtype)
    np.add.at(want, ids, rows)
    assert_close(run_op("UnsortedSegmentSum", [rows, ids, 50]), want)


def test_sums_of_infinite_complex_numbers():
    rows = np.full((MANY, 2), complex(INF, 1), np.complex64)
    assert run_op("UnsortedSegmentSum", [rows, np.zeros(MANY, np.int32), 1])[0, 0] == complex(INF, MANY)


SPARSE = [
    ("Sum", [[4, 6], [0, 0], [7, 8]]),
    ("Mean", [[2, 3], [0, 0], [7, 8]]),
    ("SqrtN", [[8**0.5, 18**0.5], [0, 0], [7, 8]]),
]


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize(("kind", "result"), SPARSE)
def test_sparse_segments(kind, result, dtype, index):
    if np.dtype(dtype).kind in "iu" and kind != "Sum":
        return
    rows, picked, ids = np.array(ROWS, dtype), index([0, 1, 3]), np.int32([0, 0, 2])
    op = f"SparseSegment{kind}"
    assert_close(run_op(op, [rows, picked, ids]), np.array(result).astype(dtype))
    assert_close(run_op(op, [rows[:, 0], picked, ids]), np.array(result)[:, 0].astype(dtype))
    longer = np.array([*result, [0, 0]]).astype(dtype)
    assert_close(run_op(op + "WithNumSegments", [rows, picked, ids, 4]), longer)
    nothing = np.zeros(0, index)
    assert run_op(op, [rows, nothing, nothing]).shape == (0, 2)
    assert_close(run_op(op + "WithNumSegments", [rows, nothing, nothing, 1]), [[0, 0]], dtype)


@pytest.mark.parametrize("kind", ["Sum", "Mean", "SqrtN"])
def test_many_sparse_segments(kind):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((40, 3))
    picked, ids = rng.integers(0, 40, MANY), np.sort(rng.integers(0, 30, MANY))
    want = np.zeros((33, 3))
    np.add.at(want, ids, rows[picked])
    count = np.maximum(np.bincount(ids, minlength=33), 1)[:, None]
    want /= {"Sum": 1, "Mean": count, "SqrtN": np.sqrt(count)}[kind]
    assert_close(run_op(f"SparseSegment{kind}WithNumSegments", [rows, picked, ids, 33]), want)


@pytest.mark.parametrize("kind", ["Sum", "Mean", "SqrtN"])
@pytest.mark.parametrize(
    ("picked", "ids", "message"),
    [
        ([0, 1, 3], [0, 1, 0], "segment ids are not increasing"),
        ([0, 1, 3], [-1, -1, -1], "segment ids must be >= 0"),
        ([0, 4, 3], [0, 0, 0], "Bad: indices[1] == 4 out of range [0, 4)"),
        ([0, -1, 3], [0, 0, 0], "Bad: indices[1] == -1 out of range [0, 4)"),
        ([0, 1], [0, 0, 0], "segment_ids and indices should have same size."),
        ([[0, 1]], [0, 0], "indices should be a vector."),
        ([0, 1], [[0, 0]], "segment_ids should be a vector."),
    ],
)
def test_wrong_sparse_ids(kind, picked, ids, message):
    assert_refused(message, f"SparseSegment{kind}", [np.float32(ROWS), np.int32(picked), np.int32(ids)])


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (2, "segment ids must be < num_segments"),
        (-1, "segment ids must be >= 0"),
        ([3], "num_segments should be a scalar, not shape [1]"),
    ],
)
def test_wrong_number_of_segments(count, message):
    assert_refused(message, "SparseSegmentSumWithNumSegments", [np.float32(ROWS), [0, 1], [0, 2], np.int32(count)])


GRADIENTS = [
    ("Sum", [[6, 8], [1, 2], [0, 0], [5, 6], [0, 0]]),
    ("Mean", [[3, 4], [0.5, 1], [0, 0], [2.5, 3], [0, 0]]),
    ("SqrtN", np.sqrt([[18, 32], [0.5, 2], [0, 0], [12.5, 18], [0, 0]])),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("kind", "result"), GRADIENTS)
def test_sparse_segment_gradients(kind, result, dtype):
    inputs = [np.array(ROWS[:3], dtype), [0, 1, 3, 0], [0, 0, 2, 2], 5]
    result = np.array(result).astype(dtype)
    assert_close(run_op(f"SparseSegment{kind}Grad", inputs), result)
    rows, picked = run_op(f"SparseSegment{kind}GradV2", inputs)
    assert_close(rows, result[[0, 1, 3]])
    assert_close(picked, [0, 1, 3], np.int32)


@pytest.mark.parametrize("op", ["SparseSegmentSumGrad", "SparseSegmentMeanGradV2"])
@pytest.mark.parametrize(
    ("picked", "ids", "rows", "message"),
    [
        ([0, 1, 7, 0], [0, 0, 2, 2], 5, "Index 7 out of range [0, 5)."),
        ([0, 1, -7, 0], [0, 0, 2, 2], 5, "Index -7 out of range [0, 5)."),
        ([0, 1, 3, 0], [0, 0, 2, 3], 5, "Invalid number of segments"),
        ([0, 1, 3, 0], [0, 0, 2, -1], 5, "Segment id -1 out of range [0, 3)."),
        ([], [], -1, "Expected a non-negative size, got -1"),
        ([0, 1], [0], 5, "segment_ids and indices should have same size."),
        ([[0, 1]], [[0, 1]], 5, "indices should be a vector."),
    ],
)
def test_wrong_gradient_inputs(op, picked, ids, rows, message):
    assert_refused(message, op, [np.float32(ROWS[:3]), np.int32(picked), np.int32(ids), rows])


def test_gradients_of_nothing_are_zero():
    nothing = np.zeros(0, np.int32)
    assert_close(run_op("SparseSegmentSumGrad", [np.float32(ROWS), nothing, nothing, 3]), np.zeros((3, 2)), np.float32)
    rows, picked = run_op("SparseSegmentSumGradV2", [np.float32(ROWS), nothing, nothing, 3])
    assert rows.shape == (0, 2)
    assert picked.shape == (0,)


@pytest.mark.parametrize("op", ["SparseSegmentMeanGrad", "SparseSegmentSqrtNWithNumSegments"])
def test_segments_without_elements_are_not_counted(op):
    """There may be any number of them."""
    inputs = [np.zeros((10**9, 0), np.float32), np.array([0], np.int32), np.array([0], np.int32), np.int32(10**9)]
    assert run_op(op, inputs).shape == (10**9, 0)
