"""Activation functions, their gradients, and softmax."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aexec.framework import errors
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

bfloat16 = ml_dtypes.bfloat16
INF, NAN = np.inf, np.nan
X = np.float32([NAN, INF, -INF, 0, 1, -1, 2.5, -2.5, 300])
FLOATS = [np.float16, bfloat16, np.float32, np.float64]
RTOL = {np.float16: 1e-3, bfloat16: 1e-2, np.float32: 2e-6, np.float64: 2e-6}
SCALE, ALPHA = 1.0507009873554805, 1.7580993408473769


@pytest.mark.parametrize("op", ops_of("nn.activation_ops"))
def test_types_are_those_of_tensorflow(op):
    assert registered(op) == in_tensorflow(op)


@pytest.mark.parametrize(
    ("op", "attrs", "want"),
    [
        ("Relu", {}, [NAN, INF, 0, 0, 1, 0, 2.5, 0, 300]),
        ("Relu6", {}, [NAN, 6, 0, 0, 1, 0, 2.5, 0, 6]),
        ("LeakyRelu", {}, [NAN, INF, -INF, 0, 1, -0.2, 2.5, -0.5, 300]),
        ("LeakyRelu", {"alpha": 0.0}, [NAN, INF, NAN, 0, 1, 0, 2.5, 0, 300]),
        ("LeakyRelu", {"alpha": 2.0}, [NAN, INF, -INF, 0, 1, -2, 2.5, -5, 300]),
        ("LeakyRelu", {"alpha": -0.5}, [NAN, INF, INF, 0, 1, 0.5, 2.5, 1.25, 300]),
        ("Elu", {}, [NAN, INF, -1, 0, 1, -0.6321206, 2.5, -0.917915, 300]),
        ("Selu", {}, [NAN, INF, -ALPHA, 0, SCALE, -1.1113307, 2.6267524, -1.6137857, 315.2103]),
        ("Softplus", {}, [NAN, INF, 0, 0.6931472, 1.3132616, 0.3132617, 2.5788898, 0.0788897, 300]),
        ("Softsign", {}, [NAN, NAN, NAN, 0, 0.5, -0.5, 0.7142857, -0.7142857, 0.9966777]),
    ],
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_known_answers(op, attrs, want, dtype):
    got = run_op(op, [X.astype(dtype)], **attrs)
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(np.float64), np.float64(want), rtol=RTOL[dtype])
    for x, y in zip(X, got, strict=True):
        scalar = run_op(op, [np.asarray(x, dtype)], **attrs)
        np.testing.assert_equal(float(scalar), float(y))


G = np.float32([2, INF, INF, 3, -1, NAN, 5, -2, 4])


@pytest.mark.parametrize(
    ("op", "attrs", "want"),
    [
        # An infinite gradient times zero is NaN; a NaN feature passes nothing on.
        ("ReluGrad", {}, [0, INF, NAN, 0, -1, NAN, 5, 0, 4]),
        ("Relu6Grad", {}, [0, NAN, NAN, 0, -1, NAN, 5, 0, 0]),
        ("LeakyReluGrad", {}, [0.4, INF, INF, 0.6, -1, NAN, 5, -0.4, 4]),
        ("LeakyReluGrad", {"alpha": 2.0}, [4, INF, INF, 6, -1, NAN, 5, -4, 4]),
        ("SoftplusGrad", {}, [NAN, INF, NAN, 1.5, -0.7310586, NAN, 4.6207093, -0.1517164, 4]),
        ("SoftsignGrad", {}, [NAN, NAN, NAN, 3, -0.25, NAN, 0.4081633, -0.1632653, 4 / 301**2]),
    ],
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_by_features(op, attrs, want, dtype):
    got = run_op(op, [G.astype(dtype), X.astype(dtype)], **attrs)
    np.testing.assert_allclose(got.astype(np.float64), np.float64(want), rtol=2 * RTOL[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_by_outputs(dtype):
    g = np.array([2, 2, 2, 2, INF, 3], dtype)
    y = np.array([1, -0.5, 0, NAN, -1, -1], dtype)
    elu = run_op("EluGrad", [g, y])
    np.testing.assert_allclose(elu.astype(np.float64), [2, 1, 2, 2, NAN, 0], rtol=RTOL[dtype])
    selu = run_op("SeluGrad", [g, y])
    want = [2 * SCALE, 2 * (ALPHA - 0.5), 2 * SCALE, 2 * SCALE, INF, 3 * (ALPHA - 1)]
    np.testing.assert_allclose(selu.astype(np.float64), want, rtol=RTOL[dtype])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_integers(dtype):
    x = np.array([-5, 0, 3, 9], np.int64).astype(dtype)
    positive = np.where(x > 0, x, 0).astype(dtype)
    g = np.array([1, 2, 3, 4], dtype)
    np.testing.assert_array_equal(run_op("Relu", [x]), positive, strict=True)
    np.testing.assert_array_equal(run_op("Relu6", [x]), np.minimum(positive, 6).astype(dtype), strict=True)
    np.testing.assert_array_equal(run_op("ReluGrad", [g, x]), np.where(x > 0, g, 0).astype(dtype), strict=True)
    np.testing.assert_array_equal(
        run_op("Relu6Grad", [g, x]), np.where((x > 0) & (x < 6), g, 0).astype(dtype), strict=True
    )


@pytest.mark.parametrize("op", [op for op in ops_of("nn.activation_ops") if op.endswith("Grad")])
def test_gradients_want_equal_shapes(op):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        run_op(op, [np.float32([1, 2, 3]), np.float32([[1, 2, 3]])])
    assert caught.value.message == (
        f"Inputs to operation {op} of type {op} must have the same size and shape.  Input 0: [3] != input 1: [1,3]"
    )


@pytest.mark.parametrize("x", [1e4, -1e4, 88.8, -104.0])
def test_softplus_neither_overflows_nor_loses_small_results(x):
    want = np.logaddexp(0, np.float64(x))
    for size in (1, 1000):  # small and large arrays are computed in different ways
        np.testing.assert_allclose(run_op("Softplus", [np.full(size, x)]), np.full(size, want), rtol=1e-14)


# Softmax


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax(dtype):
    x = np.array([[1, 2, 3], [1000, 1000, 1000], [-INF, 0, 0]], dtype)
    want = [[0.09003057, 0.24472847, 0.66524096], [1 / 3] * 3, [0, 0.5, 0.5]]
    np.testing.assert_allclose(run_op("Softmax", [x]).astype(np.float64), want, rtol=RTOL[dtype])
    with np.errstate(divide="ignore"):
        log_want = np.log(want)
    np.testing.assert_allclose(run_op("LogSoftmax", [x]).astype(np.float64), log_want, rtol=2 * RTOL[dtype])


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("row", [[NAN, 1], [INF, 1], [-INF, -INF]])
def test_softmax_of_what_has_no_distribution_is_nan(op, row):
    assert np.isnan(run_op(op, [np.float32([row])])).all()


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_shapes(op):
    for shape in [(2, 0), (0, 2), (0,)]:
        assert run_op(op, [np.zeros(shape, np.float32)]).shape == shape
    with pytest.raises(errors.InvalidArgumentError, match=r"logits must have >= 1 dimension, got \[\]"):
        run_op(op, [np.float32(1)])


@given(x=hnp.arrays(np.float64, hnp.array_shapes(max_dims=4, max_side=4), elements=st.floats(-50, 50)))
def test_softmax_of_any_shape_sums_to_one(x):
    p = run_op("Softmax", [x])
    np.testing.assert_allclose(p.sum(-1), np.ones(x.shape[:-1]), rtol=1e-12)
    np.testing.assert_allclose(np.exp(run_op("LogSoftmax", [x])), p, rtol=1e-9)


@given(
    x=hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3),
        elements=st.floats(-9, 9, width=32),
    )
)
def test_any_shape(x):
    want = {
        "Relu": np.maximum(x, 0),
        "Elu": np.where(x < 0, np.expm1(x), x),
        "Softplus": np.logaddexp(0, x),
        "LeakyRelu": np.where(x > 0, x, np.float32(0.2) * x),
    }
    for op, y in want.items():
        np.testing.assert_allclose(np.asarray(run_op(op, [x])), np.asarray(y), rtol=1e-5, atol=1e-7, strict=True)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("columns", [1, 2, 8, 9])
def test_softmax_of_many_short_rows_is_that_of_each(op, columns):
    x = np.random.default_rng(columns).standard_normal((700, 3, columns), np.float32) * 10
    x[5, 1, 0] = np.inf
    rows = np.stack([run_op(op, [row]) for row in x])
    np.testing.assert_allclose(run_op(op, [x]), rows, rtol=1e-6, atol=1e-5)
