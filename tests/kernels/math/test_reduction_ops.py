"""Reductions, arg-extrema and scans: TensorFlow's corners in tables, NumPy as the oracle on random shapes."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aexec.framework import dtypes
from tests.kernels.harness import build, in_tensorflow, ops_of, registered, run_op
from tests.kernels.numeric_support import FLOATS, INTEGERS, assert_close, assert_refused, bfloat16

NAN, INF = float("nan"), float("inf")
REDUCTIONS = ["Sum", "Prod", "Mean", "Max", "Min", "EuclideanNorm"]
COMPLEX = [np.complex64, np.complex128]
X = [[1, 2, 3], [4, 5, 6]]


def axes(*values, dtype=np.int32):
    return np.array(values, dtype)


@pytest.mark.parametrize("op", ops_of("math.reduction_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize(
    ("op", "rows", "columns", "everything"),
    [
        ("Sum", [6, 15], [5, 7, 9], 21),
        ("Prod", [6, 120], [4, 10, 18], 720),
        ("Mean", [2, 5], [2.5, 3.5, 4.5], 3.5),
        ("Max", [3, 6], [4, 5, 6], 6),
        ("Min", [1, 4], [1, 2, 3], 1),
    ],
)
def test_reduction(op, rows, columns, everything, dtype):
    x = np.array(X, dtype)
    with np.errstate(over="ignore"):
        assert_close(run_op(op, [x, axes(1)]), np.array(rows).astype(dtype))
        assert_close(run_op(op, [x, axes(-2)]), np.array(columns).astype(dtype))
        assert_close(run_op(op, [x, axes(1, 0)]), np.array(everything).astype(dtype))
        assert_close(run_op(op, [x, axes(1, 0)], keep_dims=True), np.array([[everything]]).astype(dtype))
    assert_close(run_op(op, [x, axes()]), x)


@pytest.mark.parametrize("op", ["Sum", "Prod"])
def test_reduction_over_no_axes_is_the_input(op):
    x = np.array([[-0.0, NAN, INF]], np.float32)
    assert run_op(op, [x, axes()]).tobytes() == x.tobytes()
    assert run_op(op, [x, axes()], keep_dims=True).tobytes() == x.tobytes()


NOTHING = [
    *(("Sum", t, 0) for t in (*FLOATS, *INTEGERS, *COMPLEX)),
    *(("Prod", t, 1) for t in (*FLOATS, *INTEGERS, *COMPLEX)),
    *(("Mean", t, NAN) for t in FLOATS),
    *(("Mean", t, 0) for t in (*INTEGERS, *COMPLEX)),
    *(("Max", t, -INF) for t in FLOATS),
    *(("Min", t, INF) for t in FLOATS),
    *(("Max", t, np.iinfo(t).min) for t in INTEGERS),
    *(("Min", t, np.iinfo(t).max) for t in INTEGERS),
    *(("EuclideanNorm", t, 0) for t in (*FLOATS, *INTEGERS, *COMPLEX)),
]


@pytest.mark.parametrize(("op", "dtype", "value"), NOTHING)
def test_reducing_nothing(op, dtype, value):
    assert_close(run_op(op, [np.zeros((0,), dtype), axes(0)]), value, dtype)
    assert_close(run_op(op, [np.zeros((2, 0, 3), dtype), axes(1)], keep_dims=True), np.full((2, 1, 3), value), dtype)
    assert run_op(op, [np.zeros((0, 3), dtype), axes(1)]).shape == (0,)


@pytest.mark.parametrize("op", ["Sum", "Prod", "Mean", "Max", "EuclideanNorm"])
@pytest.mark.parametrize("dtype", [np.int8, np.float16])
def test_sums_of_nothing_are_made_in_their_own_type(op, dtype):
    count = 1_000_000
    built, arrays, _ = build(op, [np.zeros((0, count), dtype), axes(0)])
    tracemalloc.start()
    try:
        with np.errstate(invalid="ignore"):
            built.compute(*arrays)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 2.5 * count * dtype().itemsize


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_axes_in_every_form(op, index):
    x = np.float32([[3, 4], [6, 8]])
    whole = run_op(op, [x, axes(0, 1)])
    for form in ([0, 1], [-1, 0], [[0], [1]], [[1, -2]]):
        assert run_op(op, [x, np.array(form, index)]) == whole
    np.testing.assert_array_equal(run_op(op, [x, index(1)]), run_op(op, [x, axes(-1)]))
    assert run_op(op, [np.float32(3), np.array([], index)]) == 3


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize(
    ("shape", "given_axes", "message"),
    [
        ((2, 3), [2], "Invalid reduction dimension (2 for input with 2 dimension(s)"),
        ((2, 3), [0, 5], "Invalid reduction dimension (5 for input with 2 dimension(s)"),
        ((2, 3), [-3], "Invalid reduction dimension (-3 for input with 2 dimension(s)"),
        ((), [0], "Invalid reduction dimension (0 for input with 0 dimension(s)"),
        ((), [-1], "Invalid reduction dimension (-1 for input with 0 dimension(s)"),
        ((2, 3), [1, 1], "Invalid reduction arguments: Axes contains duplicate dimension: 1"),
        ((2, 3), [0, -2], "Invalid reduction arguments: Axes contains duplicate dimension: 0"),
    ],
)
def test_wrong_axes(op, shape, given_axes, message):
    assert_refused(message, op, [np.ones(shape, np.float32), np.int32(given_axes)])


def test_axes_may_change_from_call_to_call():
    x = np.float32(X)
    kernel = build("Sum", [x, axes(0)])[0]
    fed = axes(0)
    assert kernel.compute(x, fed).tolist() == [5, 7, 9]
    fed[0] = 1
    assert kernel.compute(x, fed).tolist() == [6, 15]
    assert kernel.compute(np.float32([1, 2]), axes(0)).tolist() == 3


def test_cache_of_axes_is_bounded():
    x = np.zeros((1,) * 6, np.float32)
    kernel = build("Sum", [x, axes(0)])[0]
    for order in itertools.permutations(range(6)):
        assert kernel.compute(x, axes(*order)) == 0
    caches = [cell.cell_contents for cell in kernel.compute.__closure__ if isinstance(cell.cell_contents, dict)]
    assert len(caches[0]) <= 256


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", REDUCTIONS)
def test_nan_wins(op, dtype):
    x = np.array([[1, NAN, 3], [INF, 2, NAN], [1, 2, 3]], dtype)
    assert np.isnan(run_op(op, [x, axes(1)])).tolist() == [True, True, False]


@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
def test_narrow_floats_are_added_up_in_float32(dtype):
    x = np.full((5000, 2), 1, dtype)
    assert_close(run_op("Sum", [x, axes(0)]), np.array([5000, 5000]).astype(dtype))
    assert_close(run_op("Mean", [x, axes(0)]), [1, 1], dtype)
    assert_close(run_op("EuclideanNorm", [x, axes(0)]), np.sqrt([5000, 5000]).astype(dtype))
    assert_close(run_op("L2Loss", [x]), np.float64(5000).astype(dtype))
    big = np.array([60000, 60000, -60000], dtype)
    assert_close(run_op("Sum", [big, axes(0)]), np.float32(60000).astype(dtype))


@pytest.mark.parametrize(
    ("dtype", "values", "mean"),
    [
        (np.int32, [-3, -4], -3),
        (np.int32, [2**31 - 1] * 3, 2**31 - 1),
        (np.int8, [100, 100, 101], 100),
        (np.uint8, [255, 254], 254),
        (np.uint64, [2**63, 2**62], 3 * 2**61),
        (np.int64, [2**62] * 3, -1537228672809129301),
    ],
)
def test_mean_of_integers_is_taken_in_64_bits_and_truncated(dtype, values, mean):
    assert_close(run_op("Mean", [np.array(values, dtype), axes(0)]), mean, dtype)


@pytest.mark.parametrize(
    ("op", "dtype", "values", "result"),
    [
        ("Sum", np.int8, [100, 100], -56),
        ("Prod", np.uint8, [100, 3], 44),
        ("Prod", np.int32, [2**16, 2**15], -(2**31)),
        ("EuclideanNorm", np.int32, [3, 4], 5),
        ("EuclideanNorm", np.int32, [1, 2], 2),
        ("EuclideanNorm", np.uint8, [100, 120, 127, 3, 5, 90, 99], 9),
        ("EuclideanNorm", np.int16, [100, 120, 127, 3, 5, 90, 99], 0),
        ("EuclideanNorm", np.int32, [46341], -(2**31)),
        ("EuclideanNorm", np.int64, [3037000500], -(2**63)),
    ],
)
def test_integers_wrap_around(op, dtype, values, result):
    assert_close(run_op(op, [np.array(values, dtype), axes(0)]), result, dtype)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex(dtype):
    x = np.array([1 + 2j, 3 - 1j, 0.5j], dtype)
    assert_close(run_op("Sum", [x, axes(0)]), 4 + 1.5j, dtype)
    assert_close(run_op("Prod", [x, axes(0)]), -2.5 + 2.5j, dtype)
    assert_close(run_op("Mean", [x, axes(0)]), (4 + 1.5j) / 3, dtype)
    assert_close(run_op("EuclideanNorm", [x, axes(0)]), 15.25**0.5, dtype)


def test_norm_is_positive_even_where_nothing_is_reduced():
    x = np.float32([[-3, 2]])
    assert_close(run_op("EuclideanNorm", [x, axes()]), [[3, 2]], np.float32)
    assert_close(run_op("EuclideanNorm", [x, axes(0)]), [3, 2], np.float32)


@pytest.mark.parametrize(
    ("op", "values", "axis", "result"),
    [
        ("All", [[True, False], [True, True]], [1], [False, True]),
        ("Any", [[False, False], [True, False]], [1], [False, True]),
        ("All", np.zeros((2, 0), bool), [1], [True, True]),
        ("Any", np.zeros((2, 0), bool), [1], [False, False]),
        ("All", [True, True], [], [True, True]),
    ],
)
def test_logical(op, values, axis, result):
    assert_close(run_op(op, [values, axes(*axis)]), result, bool)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("values", "result"), [([300.0, 200.0], 65000), ([[]], 0), (3, 4.5), ([[1, -2], [3, 0]], 7)])
def test_l2_loss(values, result, dtype):
    assert_close(run_op("L2Loss", [np.array(values, dtype)]), np.float64(result).astype(dtype))


@given(data=st.data(), op=st.sampled_from(["Sum", "Prod", "Mean", "Max", "Min", "EuclideanNorm"]), keep=st.booleans())
def test_reductions_agree_with_numpy(data, op, keep):
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4))
    x = data.draw(hnp.arrays(np.float64, shape, elements=st.floats(-4, 4, width=16)))
    chosen = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True)) if shape else []
    signed = tuple(data.draw(st.sampled_from([a, a - len(shape)])) for a in chosen)
    if op in ("Max", "Min"):
        start = -INF if op == "Max" else INF
        want = (np.maximum if op == "Max" else np.minimum).reduce(x, signed, keepdims=keep, initial=start)
    elif op == "Mean":
        with np.errstate(all="ignore"):
            count = np.prod([shape[a] for a in chosen], dtype=int)
            want = np.divide(np.sum(x, signed, keepdims=keep), count)
    elif op == "EuclideanNorm":
        want = np.sqrt(np.sum(x * x, signed, keepdims=keep))
    else:
        want = (np.add if op == "Sum" else np.multiply).reduce(x, signed, keepdims=keep)
    assert_close(run_op(op, [x, np.array(signed, np.int64)], keep_dims=keep), want, tolerance=1e-9)


ARGS = [
    ("ArgMax", [1, NAN, 2], 2),
    ("ArgMax", [NAN, 1, 2], 2),
    ("ArgMax", [NAN, NAN], 0),
    ("ArgMax", [NAN, -INF], 0),
    ("ArgMax", [-INF, NAN], 0),
    ("ArgMax", [1, 5, 5], 1),
    ("ArgMin", [1, NAN, 2], 0),
    ("ArgMin", [NAN, 1, 2], 1),
    ("ArgMin", [NAN, INF], 0),
    ("ArgMin", [NAN, -INF], 1),
    ("ArgMin", [2, 1, 1], 1),
    ("ArgMax", [-0.0, 0.0], 0),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("op", "values", "at"), ARGS)
def test_arg_extremum_passes_over_nan(op, values, at, dtype):
    x = np.array(values, dtype)
    assert_close(run_op(op, [x, 0]), at, np.int64)
    assert_close(run_op(op, [np.stack([x] * 3, axis=1), -2], output_type="int32"), [at] * 3, np.int32)


@pytest.mark.parametrize("dtype", [*INTEGERS, bool])
def test_arg_extremum_of_integers(dtype):
    x = np.array([[0, 1, 1], [1, 0, 0]], dtype)
    assert_close(run_op("ArgMax", [x, 1]), [1, 0], np.int64)
    assert_close(run_op("ArgMin", [x, 0]), [0, 1, 1], np.int64)


@pytest.mark.parametrize("output", ["int16", "uint16", "int32", "int64"])
def test_arg_max_output_types(output):
    got = run_op("ArgMax", [np.float32(X), 1], output_type=output)
    assert_close(got, [2, 2], dtypes.as_dtype(output).np)


def test_arg_max_wraps_in_a_narrow_output():
    x = np.arange(40000, dtype=np.float32)
    assert run_op("ArgMax", [x, 0], output_type="int16") == 39999 - 65536


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize(
    ("shape", "axis", "message"),
    [
        ((0, 5), 0, "Reduction axis 0 is empty in shape [0,5]"),
        ((2, 5), 2, "Expected dimension in the range [-2, 2), but got 2"),
        ((2, 5), -3, "Expected dimension in the range [-2, 2), but got -3"),
        ((), 0, "Expected dimension in the range [0, 0), but got 0"),
        ((2, 5), [0], "dim must be a scalar, but received tensor of shape: [1]"),
        (
            (1,) * 8,
            1,
            "Argmax and Argmin only support up to 7 input dimensions, but got 8. Inputs shape: [1,1,1,1,1,1,1,1]",
        ),
    ],
)
def test_wrong_arg_axis(op, shape, axis, message):
    assert_refused(message, op, [np.zeros(shape, np.float32), np.int32(axis)])


def test_arg_of_no_rows():
    assert_close(run_op("ArgMax", [np.zeros((0, 5), np.float32), 1]), np.zeros((0,)), np.int64)


SCANS = [
    ("Cumsum", False, False, [1, 3, 6]),
    ("Cumsum", True, False, [0, 1, 3]),
    ("Cumsum", False, True, [6, 5, 3]),
    ("Cumsum", True, True, [5, 3, 0]),
    ("Cumprod", False, False, [1, 2, 6]),
    ("Cumprod", True, False, [1, 1, 2]),
    ("Cumprod", False, True, [6, 6, 3]),
    ("Cumprod", True, True, [6, 3, 1]),
]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, *COMPLEX])
@pytest.mark.parametrize(("op", "exclusive", "reverse", "result"), SCANS)
def test_scan(op, exclusive, reverse, result, dtype):
    attrs = {"exclusive": exclusive, "reverse": reverse}
    x = np.array([1, 2, 3], dtype)
    assert_close(run_op(op, [x, 0], **attrs), result, dtype)
    assert_close(run_op(op, [np.stack([x, x]), -1], **attrs), [result, result], dtype)
    assert_close(run_op(op, [np.stack([x, x], 1), np.int64(0)], **attrs), np.stack([result, result], 1), dtype)
    for shape in ((0, 3), (3, 0), (1, 1)):
        assert run_op(op, [np.zeros(shape, dtype), 1], **attrs).shape == shape


def test_scan_of_integers_wraps():
    assert_close(run_op("Cumsum", [np.int8([100, 50, 60]), 0]), [100, -106, -46], np.int8)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reverse", [False, True])
def test_cumulative_logsumexp(dtype, reverse):
    x = np.array([1.0, -INF, 300, 2], dtype)
    ordered = x[::-1] if reverse else x
    want = np.logaddexp.accumulate(ordered.astype(np.float64))
    exclusive = np.concatenate([[-INF], want[:-1]])
    for attr, scan in ((False, want), (True, exclusive)):
        got = run_op("CumulativeLogsumexp", [x, 0], exclusive=attr, reverse=reverse)
        assert_close(got, (scan[::-1] if reverse else scan).astype(dtype))


@pytest.mark.parametrize("op", ["Cumsum", "Cumprod", "CumulativeLogsumexp"])
@pytest.mark.parametrize(
    ("shape", "axis", "message"),
    [
        ((2, 3), 2, "ScanOp: Expected scan axis in the range [-2, 2), but got 2"),
        ((2, 3), -3, "ScanOp: Expected scan axis in the range [-2, 2), but got -1"),
        ((), 0, "ScanOp: Expected scan axis in the range [0, 0), but got 0"),
        ((2, 3), [0], "ScanOp: axis must be a scalar, not [1]"),
    ],
)
def test_wrong_scan_axis(op, shape, axis, message):
    assert_refused(message, op, [np.zeros(shape, np.float32), np.int32(axis)])


@settings(max_examples=80, deadline=None)
@given(data=st.data(), exclusive=st.booleans(), reverse=st.booleans())
def test_cumsum_agrees_with_numpy(data, exclusive, reverse):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4))
    x = data.draw(hnp.arrays(np.int32, shape))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    flipped = np.flip(x, axis) if reverse else x
    want = np.cumsum(flipped, axis, dtype=np.int32)
    if exclusive:
        want = want - flipped
    want = np.flip(want, axis) if reverse else want
    assert_close(run_op("Cumsum", [x, axis], exclusive=exclusive, reverse=reverse), want)
