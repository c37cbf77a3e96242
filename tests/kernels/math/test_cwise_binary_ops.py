"""Elementwise kernels of two inputs: arithmetic, comparison, logic, clipping, and how they broadcast."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aexec.framework import errors
from tests.kernels.harness import build, run_op, strings

bfloat16 = ml_dtypes.bfloat16
INF, NAN = np.inf, np.nan
X = np.float32([NAN, 1, INF, 0, -0.0, 0, 1, -1, 0, -7, 7, 1, 5.5, 0])
Y = np.float32([1, NAN, -INF, -0.0, 0, NAN, 0, INF, INF, 3, -3, 0.1, -2, 0])


@pytest.mark.parametrize(
    ("op", "want"),
    [
        ("Add", [NAN, NAN, NAN, 0, 0, NAN, 1, INF, INF, -4, 4, 1.1, 3.5, 0]),
        ("AddV2", [NAN, NAN, NAN, 0, 0, NAN, 1, INF, INF, -4, 4, 1.1, 3.5, 0]),
        ("DivNoNan", [NAN, NAN, NAN, 0, 0, NAN, 0, 0, 0, -7 / 3, -7 / 3, 10, -2.75, 0]),
        ("FloorDiv", [NAN, NAN, NAN, NAN, NAN, NAN, INF, -0.0, 0, -3, -3, 10, -3, NAN]),
        ("FloorMod", [NAN, NAN, NAN, NAN, NAN, NAN, NAN, INF, 0, 2, -2, 0.1, -0.5, NAN]),
        ("Maximum", [NAN, NAN, INF, 0, 0, NAN, 1, INF, INF, 3, 7, 1, 5.5, 0]),
        ("Minimum", [NAN, NAN, -INF, 0, 0, NAN, 0, -1, 0, -7, -3, 0.1, -2, 0]),
        ("Mod", [NAN, NAN, NAN, NAN, NAN, NAN, NAN, -1, 0, -1, 1, 0.1, 1.5, NAN]),
        ("Mul", [NAN, NAN, -INF, 0, 0, NAN, 0, -INF, NAN, -21, -21, 0.1, -11, 0]),
        ("MulNoNan", [NAN, NAN, -INF, 0, 0, NAN, 0, -INF, NAN, -21, -21, 0.1, -11, 0]),
        ("Pow", [NAN, 1, 0, 1, 1, NAN, 1, 1, 0, -343, 1 / 343, 1, 1 / 30.25, 1]),
        ("RealDiv", [NAN, NAN, NAN, NAN, NAN, NAN, INF, 0, 0, -7 / 3, -7 / 3, 10, -2.75, NAN]),
        ("SquaredDifference", [NAN, NAN, INF, 0, 0, NAN, 1, INF, INF, 100, 100, 0.81, 56.25, 0]),
        ("Sub", [NAN, NAN, INF, 0, 0, NAN, 1, -INF, -INF, -10, 10, 0.9, 7.5, 0]),
        ("TruncateDiv", [NAN, NAN, NAN, NAN, NAN, NAN, INF, 0, 0, -2, -2, 10, -2, NAN]),
        ("TruncateMod", [NAN, NAN, NAN, NAN, NAN, NAN, NAN, -1, 0, -1, 1, 0.1, 1.5, NAN]),
        ("Xdivy", [NAN, NAN, NAN, 0, 0, 0, INF, 0, 0, -7 / 3, -7 / 3, 10, -2.75, 0]),
        ("Xlog1py", [NAN, NAN, NAN, 0, 0, 0, 0, -INF, 0, -7 * math.log(4), NAN, math.log(1.1), NAN, 0]),
        ("Xlogy", [NAN, NAN, NAN, 0, 0, 0, -INF, -INF, 0, -7 * math.log(3), NAN, math.log(0.1), NAN, 0]),
        ("Equal", [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ("NotEqual", [1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0]),
        ("Less", [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0]),
        ("LessEqual", [0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 1]),
        ("Greater", [0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0]),
        ("GreaterEqual", [0, 0, 1, 1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 1]),
    ],
)
def test_known_answers_with_nan_infinity_and_zero(op, want):
    got = run_op(op, [X, Y])
    np.testing.assert_allclose(got.astype(float), want, rtol=1e-5)


def test_atan2_knows_the_quadrants():
    got = run_op("Atan2", [np.float32([1, 1, -1, -1, 0]), np.float32([1, -1, -1, 1, -1])])
    np.testing.assert_allclose(got, np.pi * np.float32([0.25, 0.75, -0.75, -0.25, 1]), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
@pytest.mark.parametrize("op", ["AddV2", "Mul", "RealDiv", "Pow", "DivNoNan", "Xlogy", "SquaredDifference", "FloorDiv"])
def test_narrow_floats_are_rounded_once_whatever_the_size(op, dtype):
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(0.5, 4, 3000).astype(dtype) for _ in range(2))
    got = run_op(op, [x, y])
    parts = [run_op(op, [a, b]) for a, b in zip(np.split(x, 30), np.split(y, 30), strict=True)]
    np.testing.assert_array_equal(got.astype(np.float32), np.concatenate(parts).astype(np.float32))
    if op not in ("SquaredDifference", "FloorDiv"):
        reference = {"AddV2": np.add, "Mul": np.multiply, "RealDiv": np.divide, "DivNoNan": np.divide, "Pow": np.power}
        of_float32 = reference.get(op, lambda a, b: a * np.log(b))(x.astype(np.float32), y.astype(np.float32))
        np.testing.assert_array_equal(got.astype(np.float32), of_float32.astype(dtype).astype(np.float32))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_integer_arithmetic_wraps(dtype):
    top, bottom = np.iinfo(dtype).max, np.iinfo(dtype).min
    one = np.array(1, dtype)
    for op, x, want in [("AddV2", top, bottom), ("Sub", bottom, top)]:
        assert run_op(op, [np.array([x], dtype), one]).tolist() == [want]
    assert run_op("Mul", [np.array([top], dtype), np.array(2, dtype)]).tolist() == [int(np.array(-2).astype(dtype))]


# Division of integers

A = [7, -7, 7, -7, 8, 0]
B = [3, 3, -3, -3, 2, -5]


@pytest.mark.parametrize(
    ("op", "want"),
    [
        ("Div", [2, -2, -2, 2, 4, 0]),
        ("TruncateDiv", [2, -2, -2, 2, 4, 0]),
        ("FloorDiv", [2, -3, -3, 2, 4, 0]),
        ("FloorMod", [1, 2, -2, -1, 0, 0]),
        ("Mod", [1, -1, 1, -1, 0, 0]),
        ("TruncateMod", [1, -1, 1, -1, 0, 0]),
    ],
)
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_integer_division_by_sign(op, want, dtype):
    if op in ("Mod", "TruncateMod") and dtype in (np.int8, np.int16):
        return
    np.testing.assert_array_equal(
        run_op(op, [np.array(A, dtype), np.array(B, dtype)]), np.array(want, dtype), strict=True
    )


@pytest.mark.parametrize("op", ["Div", "TruncateDiv", "FloorDiv", "FloorMod", "Mod", "TruncateMod"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_integer_division_by_zero(op, dtype):
    """TensorFlow foresees it in all but the ops that truncate."""
    if op in ("Mod", "TruncateMod") and dtype is np.uint8:
        return
    message = "Integer division by zero"
    if op.startswith("Truncate"):
        message = r"Unexpected error in binary operator \(only integer div and mod should have errors\)"
    for divisor in ([0, 1], [0], 0):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            run_op(op, [np.array([1, 2], dtype), np.array(divisor, dtype)])
    assert run_op(op, [np.zeros(0, dtype), np.array([0], dtype)]).shape == (0,)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_least_integer_divided_by_minus_one_wraps(dtype):
    x = np.array([np.iinfo(dtype).min], dtype)
    minus_one = np.array([-1], dtype)
    for op in ("Div", "FloorDiv", "TruncateDiv"):
        np.testing.assert_array_equal(run_op(op, [x, minus_one]), x, strict=True)
    np.testing.assert_array_equal(run_op("FloorMod", [x, minus_one]), [0])


@pytest.mark.parametrize("op", ["Div", "TruncateDiv", "FloorDiv"])
def test_unsigned_division(op):
    got = run_op(op, [np.uint8([255, 7]), np.uint8([2, 9])])
    np.testing.assert_array_equal(got, np.uint8([127, 0]), strict=True)


@given(x=hnp.arrays(np.int16, 20), y=hnp.arrays(np.int16, 20, elements=st.integers(-300, 300).filter(bool)))
def test_quotient_and_remainder_belong_together(x, y):
    for quotient, remainder in [("FloorDiv", "FloorMod"), ("TruncateDiv", "TruncateMod")]:
        a, b = (x, y) if quotient == "FloorDiv" else (x.astype(np.int32), y.astype(np.int32))
        q, r = run_op(quotient, [a, b]), run_op(remainder, [a, b])
        np.testing.assert_array_equal(q * b + r, a)


@given(x=st.floats(-1000, 1000, width=32), y=st.floats(-1000, 1000, width=32).filter(lambda v: abs(v) > 1e-3))
def test_floor_division_of_floats_is_the_rounded_quotient(x, y):
    x, y = np.float32([x]), np.float32([y])
    np.testing.assert_array_equal(run_op("FloorDiv", [x, y]), np.floor(x / y))


# Powers


def test_integer_powers():
    x, y = np.int32([2, -3, 0, 5, 7]), np.int32([10, 3, 0, 33, 1])
    np.testing.assert_array_equal(run_op("Pow", [x, y]), np.int32([1024, -27, 1, -1671385723, 7]), strict=True)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_negative_powers_of_integers_are_refused(dtype):
    for x in ([2, 3], [1, -1], 1):
        with pytest.raises(errors.InvalidArgumentError, match="Integers to negative integer powers are not allowed"):
            run_op("Pow", [np.array(x, dtype), np.array(-1, dtype)])


def test_complex_powers():
    got = run_op("Pow", [np.complex64([1 + 1j, 2, 0]), np.complex64([2, 0, 0])])
    np.testing.assert_allclose(got, np.complex64([2j, 1, complex(NAN, NAN)]), atol=1e-6)


def test_squared_difference_of_complex_numbers_is_real():
    got = run_op("SquaredDifference", [np.complex64([1 + 2j]), np.complex64([2 - 1j])])
    np.testing.assert_array_equal(got, np.complex64([10]), strict=True)


# Strings, equality, logic


def test_strings_are_joined_and_compared():
    x = strings("a", "b")
    assert run_op("Add", [x, strings("c", shape=())]).tolist() == [b"ac", b"bc"]
    assert run_op("Equal", [x, strings("a", shape=())]).tolist() == [True, False]
    assert run_op("NotEqual", [x, x]).tolist() == [False, False]
    both = run_op("Add", [strings("a", shape=()), strings("b", shape=())])
    assert both.shape == ()
    assert both.item() == b"ab"
    with pytest.raises(errors.InvalidArgumentError, match=r"Incompatible shapes: \[2\] vs. \[3\]"):
        run_op("Add", [x, strings("a", "b", "c")])


@pytest.mark.parametrize(("op", "answer"), [("Equal", False), ("NotEqual", True)])
def test_shapes_that_do_not_broadcast_may_count_as_different(op, answer):
    x, y = np.float32([1, 2, 3]), np.float32([1, 2])
    got = run_op(op, [x, y], incompatible_shape_error=False)
    assert got.shape == ()
    assert bool(got) is answer
    np.testing.assert_array_equal(run_op(op, [x, x], incompatible_shape_error=False), [not answer] * 3)
    with pytest.raises(errors.InvalidArgumentError, match="Incompatible shapes"):
        run_op(op, [x, y])


@pytest.mark.parametrize("dtype", ["bool", "qint8", "quint16", "complex64", "bfloat16", "uint64"])
def test_equality_of_other_types(dtype):
    x, y = [0, 1, 1], [0, 0, 1]
    assert run_op("Equal", [x, y], T=dtype).tolist() == [True, False, True]
    assert run_op("NotEqual", [x, y], T=dtype).tolist() == [False, True, False]


def test_logic():
    x, y = np.array([[True], [False]]), np.array([True, False])
    assert run_op("LogicalAnd", [x, y]).tolist() == [[True, False], [False, False]]
    assert run_op("LogicalOr", [x, y]).tolist() == [[True, True], [True, False]]


def test_approximate_equality():
    x = np.float64([1, 1, NAN, INF])
    y = np.float64([1.1, 1.1000001, NAN, INF])
    assert run_op("ApproximateEqual", [x, y], tolerance=0.1).tolist() == [True, False, False, False]
    with pytest.raises(errors.InvalidArgumentError, match=r"same shape\. x shape: \[4\]\. y shape: \[2,2\]"):
        run_op("ApproximateEqual", [x, y.reshape(2, 2)])


# Clipping


@pytest.mark.parametrize(
    ("t", "low", "high", "want"),
    [
        ([1, 2, 3], 1.5, 2.5, [1.5, 2, 2.5]),
        ([5, 2, 3], [1, 2, 3], [2, 2, 2], [2, 2, 3]),
        ([5, 2, 3], 2, [3, 3, 3], [3, 2, 3]),
        ([0, 2, 5], 3, 1, [3, 3, 3]),  # the lower bound wins
        ([NAN, 1], 0, 2, [NAN, 1]),
        ([1, 2], NAN, 1, [1, 1]),
        ([1, 2], 0, NAN, [1, 2]),
        ([], 0, 1, []),
        (7, 0, 1, 1),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, bfloat16])
def test_clip(t, low, high, want, dtype):
    got = run_op("ClipByValue", [np.array(v, dtype) for v in (t, low, high)])
    assert got.dtype == dtype
    np.testing.assert_array_equal(np.asarray(got).astype(float), np.float64(want))


def test_clip_other_types():
    got = run_op("ClipByValue", [np.uint8([0, 100, 255]), np.uint8(10), np.uint8(200)])
    np.testing.assert_array_equal(got, np.uint8([10, 100, 200]), strict=True)
    z = np.complex64([1 + 2j, 1 - 2j, 2 + 5j, 3])
    got = run_op("ClipByValue", [z, np.complex64(1 + 1j), np.complex64(2 + 3j)])
    np.testing.assert_array_equal(got, np.complex64([1 + 2j, 1 + 1j, 2 + 3j, 2 + 1j]), strict=True)


@pytest.mark.parametrize(("low", "high"), [((1,), ()), ((), (2,)), ((3,), (2, 3)), ((2, 3), (1, 3))])
def test_clip_bounds_are_scalars_or_of_the_same_shape(low, high):
    with pytest.raises(
        errors.InvalidArgumentError, match=r"of the same shape as input, or a scalar. input shape: \[2,3\]"
    ):
        run_op("ClipByValue", [np.zeros((2, 3)), np.zeros(low), np.zeros(high)])


# Broadcasting


BROADCASTING = (
    *("Add", "AddV2", "Sub", "Mul", "Div", "RealDiv", "FloorDiv", "TruncateDiv", "FloorMod", "Mod", "TruncateMod"),
    *("Pow", "Maximum", "Minimum", "SquaredDifference", "DivNoNan", "MulNoNan", "Xdivy", "Xlogy", "Xlog1py", "Atan2"),
    *("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"),
)


@pytest.mark.parametrize("op", BROADCASTING)
def test_incompatible_shapes(op):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        run_op(op, [np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)])
    assert caught.value.message == "Incompatible shapes: [2,3] vs. [3,2]"


@given(
    shapes=hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, min_side=0, max_side=3),
    op=st.sampled_from(["AddV2", "Maximum", "FloorDiv", "DivNoNan", "SquaredDifference", "Less", "Xlogy", "Pow"]),
    dtype=st.sampled_from([np.float32, np.float16, bfloat16]),
)
def test_any_broadcast(shapes, op, dtype):
    x, y = (1 + np.arange(math.prod(shape)).reshape(shape).astype(dtype) % 5 for shape in shapes.input_shapes)
    x, y = x.astype(dtype), y.astype(dtype)
    got = np.asarray(run_op(op, [x, y]))
    assert got.shape == shapes.result_shape
    a, b = np.broadcast_arrays(x.astype(np.float64), y.astype(np.float64))
    want = {
        "AddV2": a + b,
        "Maximum": np.maximum(a, b),
        "FloorDiv": np.floor(a / b),
        "DivNoNan": a / b,
        "SquaredDifference": (a - b) ** 2,
        "Less": a < b,
        "Xlogy": a * np.log(b),
        "Pow": a**b,
    }[op]
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=1e-2 if dtype != np.float32 else 1e-5)


@given(shapes=st.lists(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3), min_size=2, max_size=2))
def test_any_shapes_either_broadcast_or_are_explained(shapes):
    x, y = (np.ones(shape, np.int32) for shape in shapes)
    try:
        want = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(errors.InvalidArgumentError, match="Incompatible shapes"):
            run_op("Sub", [x, y])
    else:
        assert run_op("Sub", [x, y]).shape == want


@pytest.mark.parametrize("op", ["Xlogy", "Xlog1py", "SquaredDifference"])
def test_complex_scalars_give_the_digits_of_arrays(op):
    """`run_op` compares the results for 0-d arrays and for NumPy scalars, whose products round otherwise."""
    for x in (3 + 1.25j, -1.75 + 2j, 0.1 - 0.7j):
        alone = run_op(op, [np.complex128(x), np.complex128(2 + 2.25j)])
        assert alone == run_op(op, [np.complex128([x]), np.complex128([2 + 2.25j])])[0]


@pytest.mark.parametrize(("op", "function"), [("AddV2", np.add), ("Less", np.less), ("RealDiv", np.divide)])
def test_kernel_is_numpys_function_where_possible(op, function):
    built, *_ = build(op, [np.float32([1]), np.float32([1])])
    assert built.compute is function
    assert built.explain is not None
