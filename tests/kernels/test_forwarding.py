"""Kernels that write over an input: on large arrays, too, the output is bit for bit that of a fresh one.

On small arrays `run_op` compares the two wherever a kernel is tested.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import build, run_op

SIZES = [40_000, 50_021]
ONE = """
    Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Elu Exp Expm1 Floor Inv LeakyRelu Log Log1p LogSoftmax Neg
    Reciprocal Relu Relu6 Rint Round Rsqrt Selu Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Square Tan Tanh
""".split()
TWO = """
    Add AddN AddV2 Atan2 Div FloorMod Maximum Minimum Mod Mul Pow RealDiv SquaredDifference Sub
""".split()


def values(size: int, seed: int, dtype: Any) -> Any:
    """Numbers of many magnitudes, with zeros of both signs, infinities and NaN here and there."""
    random = np.random.default_rng(seed)
    x = (random.standard_normal(size) * 10.0 ** random.integers(-3, 3, size)).astype(dtype)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0], dtype)
    places = random.integers(0, size, size // 50)
    x[places] = random.choice(special, len(places))
    return x


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", ONE)
def test_ops_of_one_input_forward_it(op: str, dtype: Any, size: int) -> None:
    x = values(size, 0, dtype)
    assert build(op, [x])[0].forwards == (0,)
    run_op(op, [x])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", TWO)
def test_ops_of_two_inputs_forward_one(op: str, dtype: Any, size: int) -> None:
    inputs = [values(size, 0, dtype), values(size, 1, dtype)]
    if op == "AddN":
        inputs = [[*inputs, values(size, 2, dtype)]]
    assert 0 in build(op, inputs)[0].forwards
    run_op(op, inputs)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_normalisation_and_bias(layout: str) -> None:
    channels = 8
    shape = (2, 40, 60, channels) if layout == "NHWC" else (2, channels, 40, 60)
    x = values(2 * 40 * 60 * channels, 0, np.float32).reshape(shape)
    vectors = [np.abs(values(channels, seed, np.float32)) for seed in range(1, 5)]
    assert build("BiasAdd", [x, vectors[0]], data_format=layout)[0].forwards == (0,)
    run_op("BiasAdd", [x, vectors[0]], data_format=layout)
    for training in (False, True):
        if layout == "NHWC" or not training:
            given = vectors if not training else [*vectors[:2], np.float32([]), np.float32([])]
            assert build("FusedBatchNormV3", [x, *given], is_training=training)[0].forwards == (0,)
            run_op("FusedBatchNormV3", [x, *given], is_training=training, data_format=layout)


@pytest.mark.parametrize("op", ["Greater", "Equal", "IsNan"])
def test_inputs_of_another_type_are_not_forwarded(op: str) -> None:
    x = values(10, 0, np.float32)
    assert build(op, [x] if op == "IsNan" else [x, x])[0].forwards == ()


def test_complex_inputs_are_not_forwarded() -> None:
    """NumPy rounds their products in another way when it writes over a factor."""
    x = values(10, 0, np.complex64)
    assert build("Mul", [x, x])[0].forwards == build("Square", [x])[0].forwards == ()
