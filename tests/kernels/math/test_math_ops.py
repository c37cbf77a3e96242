"""Sequences, counting, binning, sorted search and cross products: known answers and TensorFlow's messages."""

from __future__ import annotations

import bisect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import global_registry
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op
from tests.kernels.numeric_support import FLOATS, INTEGERS, assert_close, assert_refused, bfloat16

NAN, INF = float("nan"), float("inf")
MAX64 = 2**63 - 1


@pytest.mark.parametrize("op", ops_of("math.math_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


RANGES = [
    (0, 5, 1, [0, 1, 2, 3, 4]),
    (5, 0, -2, [5, 3, 1]),
    (3, 3, 1, []),
    (3, 3, -1, []),
    (0, -3, -1, [0, -1, -2]),
    (1, 10, 3, [1, 4, 7]),
    (1, 11, 3, [1, 4, 7, 10]),
]


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32, np.int64])
@pytest.mark.parametrize(("start", "limit", "delta", "result"), RANGES)
def test_range(start, limit, delta, result, dtype):
    inputs = [np.array(v, dtype) for v in (start, limit, delta)]
    assert_close(run_op("Range", inputs), result, dtype)
    assert_close(run_op("Range", [v.reshape(1) for v in inputs]), result, dtype)


@pytest.mark.parametrize(
    ("dtype", "ends", "result"),
    [
        (np.float32, (0, 1, 0.25), [0, 0.25, 0.5, 0.75]),
        (np.float32, (0.1, 0.35, 0.1), [0.1, 0.2, 0.3]),
        (np.float32, (0, 2, INF), []),
        (np.int64, (-(2**63), MAX64, 2**62), [-(2**63), -(2**62), 0, 2**62]),
        (np.int64, (2**62, -(2**63), -(2**63)), [2**62, -(2**62)]),
    ],
)
def test_range_at_the_edges(dtype, ends, result):
    got = run_op("Range", [np.array(v, dtype) for v in ends])
    assert_close(got[np.isfinite(got)], result, dtype)


def test_range_rounds_each_element_in_its_type():
    """TensorFlow computes start + i * delta with every step rounded."""
    got = run_op("Range", [np.array(v, bfloat16) for v in (250, 262, 1)])
    assert_close(got, [250, 251, 252, 253, 254, 255, 256, 256, 258, 260, 260, 260], bfloat16, tolerance=0)
    step = np.float16(0.1)
    got = run_op("Range", [np.float16(0), np.float16(3), step])
    assert_close(got, np.arange(30).astype(np.float16) * step, tolerance=0)


@pytest.mark.parametrize(
    ("ends", "dtype", "message"),
    [
        ((0, 5, 0), np.int32, "Requires delta != 0: 0"),
        ((0, 5, 0), np.float32, "Requires delta != 0: 0"),
        ((0, -5, 1), np.int32, "Requires start <= limit when delta > 0: 0/-5"),
        ((0, 5, -1), np.int64, "Requires start >= limit when delta < 0: 0/5"),
        ((0, 5.5, -1), np.float32, "Requires start >= limit when delta < 0: 0/5.5"),
        ((0, NAN, 1), np.float32, "Requires start <= limit when delta > 0: 0/nan"),
        ((0, 2, NAN), np.float32, "Requires start >= limit when delta < 0: 0/2"),
        ((0, INF, 1), np.float32, f"Requires ((limit - start) / delta) <= {MAX64}"),
        ((-(2**63), MAX64, 1), np.int64, f"Requires ((limit - start) / delta) <= {MAX64}"),
        (([0, 1], 5, 1), np.int32, "start must be a scalar, not shape [2]"),
        ((0, [[5]], 1), np.int32, "limit must be a scalar, not shape [1,1]"),
        ((0, 5, []), np.int32, "delta must be a scalar, not shape [0]"),
    ],
)
def test_wrong_range(ends, dtype, message):
    assert_refused(message, "Range", [np.array(v, dtype) for v in ends])


def test_range_that_does_not_fit_into_memory():
    with pytest.raises(errors.ResourceExhaustedError, match="OOM when allocating tensor"):
        run_op("Range", [np.int64(0), np.int64(2**60), np.int64(1)])


def test_time_of_a_sequence_is_estimated_from_its_length():
    cost = {op: global_registry.kernels_of(op)[0].cost for op in ("Range", "LinSpace")}
    assert cost["Range"](np.int32(0), np.int32(1000), np.int32(-2)) == 250
    assert cost["Range"](np.int32(0), np.int32(1000), np.int32(0)) == 0
    assert cost["Range"](np.int32([0, 1]), np.int32(5), np.int32(1)) == 0
    assert cost["LinSpace"](np.float32(0), np.float32(1), np.int32(100)) == 150
    assert cost["LinSpace"](np.float32(0), np.float32(1), np.int32([1, 2])) == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("start", "stop", "num", "result"),
    [
        (0, 10, 5, [0, 2.5, 5, 7.5, 10]),
        (1, 0, 3, [1, 0.5, 0]),
        (3, 9, 1, [3]),
        (5, 5, 3, [5, 5, 5]),
        (0, 1, 2, [0, 1]),
        (NAN, 1, 3, [NAN, NAN, 1]),
        (-INF, INF, 3, [-INF, NAN, INF]),
    ],
)
def test_lin_space(start, stop, num, result, dtype, index):
    assert_close(run_op("LinSpace", [dtype(start), dtype(stop), index(num)]), result, dtype)


def test_lin_space_ends_at_stop_exactly():
    got = run_op("LinSpace", [np.float32(0.1), np.float32(0.7), 7])
    assert got[-1] == np.float32(0.7)
    assert got[0] == np.float32(0.1)


@pytest.mark.parametrize(
    ("start", "stop", "num", "message"),
    [
        (0, 1, 0, "Requires num > 0: 0"),
        (0, 1, -2, "Requires num > 0: -2"),
        ([0], 1, 3, "start must be a scalar, not shape [1]"),
        (0, [1], 3, "stop must be a scalar, not shape [1]"),
        (0, 1, [3], "num must be a scalar, not shape [1]"),
    ],
)
def test_wrong_lin_space(start, stop, num, message):
    assert_refused(message, "LinSpace", [np.float32(start), np.float32(stop), np.int32(num)])


COUNTED = [np.float32, np.float64, np.int32, np.int64]


@pytest.mark.parametrize("dtype", COUNTED)
@pytest.mark.parametrize(
    ("values", "size", "weights", "result"),
    [
        ([1, 2, 2, 5], 4, [], [0, 1, 2, 0]),
        ([1, 2, 2, 5], 4, [1, 2, 3, 4], [0, 1, 5, 0]),
        ([[1, 2], [1, 0]], 3, [[1, 2], [3, 4]], [4, 4, 2]),
        (1, 3, [], [0, 1, 0]),
        (1, 3, 2, [0, 2, 0]),
        ([], 2, [], [0, 0]),
        ([1, 2], 0, [], []),
    ],
)
def test_bincount(values, size, weights, result, dtype):
    inputs = [np.int32(values), size, np.array(weights, dtype)]
    assert_close(run_op("Bincount", inputs), result, dtype)
    if np.ndim(values) < 2:
        assert_close(run_op("DenseBincount", inputs), result, dtype)


def test_bincount_of_large_integers_is_exact():
    weights = np.int64([2**60, 1])
    assert_close(run_op("Bincount", [[0, 0], 1, weights]), [2**60 + 1], np.int64)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", COUNTED)
@pytest.mark.parametrize(
    ("binary", "weights", "result"),
    [
        (False, [], [[0, 1, 2, 0], [2, 0, 0, 0]]),
        (False, [[1, 2, 3], [4, 5, 6]], [[0, 1, 5, 0], [9, 0, 0, 0]]),
        (True, [], [[0, 1, 1, 0], [1, 0, 0, 0]]),
        (True, [[1, 2, 3], [4, 5, 6]], [[0, 1, 1, 0], [1, 0, 0, 0]]),
    ],
)
def test_dense_bincount_of_a_matrix(binary, weights, result, dtype, index):
    inputs = [index([[1, 2, 2], [0, 0, 9]]), index(4), np.array(weights, dtype)]
    assert_close(run_op("DenseBincount", inputs, binary_output=binary), result, dtype)


WEIGHTS_MESSAGE = (
    "`weights` must be the same shape as `arr` or a length-0 `Tensor`, in which case it acts as all weights equal "
    "to 1. Received "
)


@pytest.mark.parametrize(
    ("op", "values", "size", "weights", "message"),
    [
        ("Bincount", [1, -2], 4, [], "Input arr must be non-negative!"),
        ("Bincount", [1], -4, [], "size (-4) must be non-negative"),
        ("Bincount", [1], [3], [], "Shape must be rank 0 but is rank 1"),
        ("Bincount", [1, 2], 3, [1, 2, 3], "Input indices and weights must have the same size."),
        ("DenseBincount", [1, -2], 4, [], "Input arr must be non-negative!"),
        ("DenseBincount", [[1, -2]], 4, [], "Input 'in' must be non-negative! Negative input value found: -2"),
        ("DenseBincount", [1], -4, [], "size (-4) must be non-negative"),
        ("DenseBincount", [1], [3], [], "Shape must be rank 0 but is rank 1"),
        ("DenseBincount", [[[1]]], 3, [], "Shape must be at most rank 2 but is rank 3"),
        ("DenseBincount", [1, 2], 3, [1, 2, 3], WEIGHTS_MESSAGE + "[3]"),
        ("DenseBincount", [[1, 2]], 3, [1, 2], WEIGHTS_MESSAGE + "[2]"),
    ],
)
def test_wrong_bincount(op, values, size, weights, message):
    assert_refused(message, op, [np.int32(values), np.int32(size), np.float32(weights)])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
def test_bucketize(dtype):
    x = np.array([[-5, 0, 1], [10, 100, 1000]], dtype)
    assert_close(run_op("Bucketize", [x], boundaries=[0.0, 10.0, 100.0]), [[0, 1, 1], [2, 3, 3]], np.int32)
    assert_close(run_op("Bucketize", [x], boundaries=[1.0, 1.0]), [[0, 0, 2], [2, 2, 2]], np.int32)
    assert_close(run_op("Bucketize", [x], boundaries=[]), np.zeros((2, 3)), np.int32)
    assert_close(run_op("Bucketize", [dtype(3)], boundaries=[1.0]), 1, np.int32)


@pytest.mark.parametrize(
    ("dtype", "values", "boundaries", "result"),
    [
        (np.float32, [NAN, INF, -INF], [0.0, 1.0], [2, 2, 0]),
        # The boundaries are float32, as which integers are compared but not doubles.
        (np.float64, [0.1, 0.2], [0.1, 0.2], [0, 1]),
        (np.int32, [16777219, 16777218], [16777220.0], [1, 0]),
    ],
)
def test_bucketize_compares_as_float32(dtype, values, boundaries, result):
    boundaries = [float(np.float32(b)) for b in boundaries]
    assert_close(run_op("Bucketize", [np.array(values, dtype)], boundaries=boundaries), result, np.int32)


def test_bucketize_wants_sorted_boundaries():
    assert_refused("Expected sorted boundaries", "Bucketize", [np.float32([1])], boundaries=[3.0, 1.0])


@pytest.mark.parametrize("dtype", COUNTED)
@pytest.mark.parametrize("output", [np.int32, np.int64])
def test_histogram(dtype, output):
    def histogram(values, value_range, bins):
        inputs = [np.array(values, dtype), np.array(value_range, dtype), bins]
        return run_op("HistogramFixedWidth", inputs, dtype=np.dtype(output).name)

    assert_close(histogram([-1, 0, 1, 2, 5, 15], [0, 5], 5), [2, 1, 1, 0, 2], output)
    assert_close(histogram([[1, 2], [3, 4]], [0, 5], 5), [0, 1, 1, 1, 1], output)
    assert_close(histogram(np.arange(-20, 20), [-10, 10], 7), [13, 3, 3, 3, 3, 3, 12], output)
    assert_close(histogram([], [0, 5], 2), [0, 0], output)
    many = np.arange(100_000) % 10
    assert_close(histogram(many, [0, 10], 10), [10_000] * 10, output)


def test_histogram_of_infinities():
    inputs = [np.float32([INF, -INF, 1e30]), np.float32([0, 5]), 3]
    assert_close(run_op("HistogramFixedWidth", inputs), [1, 0, 2], np.int32)


@pytest.mark.parametrize(
    ("values", "value_range", "bins", "message"),
    [
        ([NAN], [0, 5], 3, "Histogram values must not contain NaN"),
        (
            [1],
            [5, 5],
            3,
            "value_range should satisfy value_range[0] < value_range[1], but got '[5, 5]'",
        ),
        ([1], [0, NAN], 3, "value_range should satisfy value_range[0] < value_range[1], but got '[0, nan]'"),
        ([1], [5], 3, "value_range should be a vector of 2 elements."),
        ([1], [[0, 5]], 3, "value_range should be a vector."),
        ([1], [0, 5], 0, "nbins should be a positive number, but got '0'"),
        ([1], [0, 5], [3], "nbins should be a scalar."),
    ],
)
def test_wrong_histogram(values, value_range, bins, message):
    assert_refused(message, "HistogramFixedWidth", [np.float32(values), np.float32(value_range), np.int32(bins)])


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_cross(dtype):
    a, b = np.array([[1, 2, 3], [1, 0, 0]], dtype), np.array([[4, 1, 6], [0, 1, 0]], dtype)
    want = np.array([[9, 6, -7], [0, 0, 1]], np.int64).astype(dtype)
    assert_close(run_op("Cross", [a, b]), want)
    assert_close(run_op("Cross", [a[0], b[0]]), want[0])
    assert run_op("Cross", [a[:0], b[:0]]).shape == (0, 3)


def test_cross_rounds_every_product():
    a, b = np.array([300, 200, 100], bfloat16), np.array([300, 201, 100], bfloat16)
    assert_close(run_op("Cross", [a, b]), [-128, 0, 512], bfloat16, tolerance=0)


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (1, 1, errors.InvalidArgumentError, "Input must be at least 1D[]"),
        ([[1, 2, 3]], [1, 2, 3], errors.InvalidArgumentError, "Both inputs must be of same shape: [1,3] vs. [3]"),
        (
            [1, 2],
            [3, 4],
            errors.FailedPreconditionError,
            "Cross-products are only defined for 3-element vectors.",
        ),
    ],
)
def test_wrong_cross(a, b, error, message):
    with pytest.raises(error) as caught:
        run_op("Cross", [np.float32(a), np.float32(b)])
    assert caught.value.message == message


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("output", ["int32", "int64"])
@pytest.mark.parametrize(
    ("op", "result"), [("LowerBound", [[0, 1, 4], [0, 2, 4]]), ("UpperBound", [[0, 3, 4], [2, 4, 4]])]
)
def test_bounds(op, result, output, dtype):
    rows, values = np.array([[1, 2, 2, 5], [0, 0, 1, 1]], dtype), np.array([[0, 2, 9], [0, 1, 2]], dtype)
    want = np.array(result, output)
    assert_close(run_op(op, [rows, values], out_type=output), want)
    assert_close(run_op(op, [rows[1:], values[1:]], out_type=output), want[1:])
    assert_close(run_op(op, [rows[:, :0], values], out_type=output), np.zeros((2, 3), output))
    assert run_op(op, [rows[:0], values[:0]], out_type=output).shape == (0, 3)


@pytest.mark.parametrize(("op", "result"), [("LowerBound", [0, 4, 0]), ("UpperBound", [4, 4, 0])])
def test_bounds_of_nan(op, result):
    row, values = np.float32([1, 2, 2, 5]), np.float32([NAN, INF, -INF])
    for rows in (1, 2):
        assert_close(run_op(op, [np.stack([row] * rows), np.stack([values] * rows)]), [result] * rows, np.int32)


@pytest.mark.parametrize(
    ("rows", "values", "message"),
    [
        ([1, 2], [2], "Shape must be rank 2 but is rank 1 for `sorted_inputs` argument"),
        ([[1, 2]], [2], "Shape must be rank 2 but is rank 1 for `values` argument"),
        ([[1, 2]], [[2], [3]], "Leading dim_size of both tensors must match."),
    ],
)
def test_wrong_bounds(rows, values, message):
    assert_refused(message, "LowerBound", [np.float32(rows), np.float32(values)])


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, 9), min_size=6, max_size=6), min_size=1, max_size=4),
    width=st.sampled_from([1, 5, 64]),
    seed=st.integers(0, 2**32 - 1),
)
def test_bounds_agree_with_bisect(rows, width, seed):
    table = np.sort(np.float64(rows), axis=1)
    values = np.random.default_rng(seed).integers(-1, 11, (len(rows), width)).astype(np.float64)
    for op, search in (("LowerBound", bisect.bisect_left), ("UpperBound", bisect.bisect_right)):
        want = [[search(row.tolist(), v) for v in wanted] for row, wanted in zip(table, values, strict=True)]
        assert_close(run_op(op, [table, values]), want, np.int32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_next_after(dtype):
    x1, x2 = np.array([1, 0, NAN, INF], dtype), np.array([[2], [-1]], dtype)
    above, tiny, huge = np.finfo(dtype).eps, np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    below = 1 - np.finfo(dtype).epsneg
    got = run_op("NextAfter", [x1, x2])
    assert_close(got, [[1 + above, tiny, NAN, huge], [below, -tiny, NAN, huge]], dtype, tolerance=0)


def test_next_after_of_shapes_that_do_not_fit():
    assert_refused("Incompatible shapes: [3] vs. [2]", "NextAfter", [np.float32([1, 2, 3]), np.float32([1, 2])])
