"""Arithmetic of quantised tensors: TensorFlow's answers in tables, products of random ones, messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import dtypes, errors
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

F32 = np.float32
BYTES = np.array([0, 1, 50, 100, 127, 128, 200, 255], np.uint8)
EIGHT = {"quint8": np.uint8, "qint8": np.int8}

# Of TensorFlow 2.21: op, lowest and highest float, activations of `BYTES`.
ACTIVATIONS = [
    ("relu", -2.0, 4.0, [85, 85, 85, 100, 127, 128, 200, 255]),
    ("relu6", -2.0, 4.0, [85, 85, 85, 100, 127, 128, 200, 255]),
    ("relu", -10.0, 10.0, [128, 128, 128, 128, 128, 128, 200, 255]),
    ("relu6", -10.0, 10.0, [128, 128, 128, 128, 128, 128, 200, 205]),
    ("relu", 0.0, 7.0, [0, 1, 50, 100, 127, 128, 200, 255]),
    ("relu6", 0.0, 7.0, [0, 1, 50, 100, 127, 128, 200, 219]),
    ("relu", 1.0, 3.0, [0, 1, 50, 100, 127, 128, 200, 255]),
    ("relu6", 1.0, 3.0, [0, 1, 50, 100, 127, 128, 200, 255]),
]

# Op, type of the result, integers, lowest and highest float of their type, results.
NARROWED: list[tuple[str, str, list[int], float, float, list[Any]]] = [
    (
        "range",
        "quint8",
        [-2147483648, -1000000, -5000, -1, 0, 1, 70000, 123456789, 2147483647],
        -100.0,
        100.0,
        [-100.0, 100.0],
    ),
    (
        "shrink",
        "quint8",
        [-2147483648, -1000000, -5000, -1, 0, 1, 70000, 123456789, 2147483647],
        -100.0,
        100.0,
        [[0, 127, 127, 127, 128, 128, 128, 135, 255], -100.0, 100.0],
    ),
    (
        "requantize",
        "quint8",
        [-2147483648, -1000000, -5000, -1, 0, 1, 70000, 123456789, 2147483647],
        -100.0,
        100.0,
        [[0, 116, 116, 116, 116, 116, 116, 129, 255], -50.0, 60.0],
    ),
    (
        "requantize",
        "qint8",
        [-2147483648, -1000000, -5000, -1, 0, 1, 70000, 123456789, 2147483647],
        -100.0,
        100.0,
        [[-128, -12, -12, -12, -12, -12, -12, 1, 127], -50.0, 60.0],
    ),
    ("range", "quint8", [-2147483648, -1000000, -5000, -1, 0, 1, 70000, 123456789, 2147483647], -3.0, 8.0, [-3.0, 8.0]),
    (
        "shrink",
        "quint8",
        [-2147483648, -1000000, -5000, -1, 0, 1, 70000, 123456789, 2147483647],
        -3.0,
        8.0,
        [[0, 127, 127, 127, 128, 128, 128, 135, 255], -3.0, 8.0],
    ),
    (
        "requantize",
        "quint8",
        [-2147483648, -1000000, -5000, -1, 0, 1, 70000, 123456789, 2147483647],
        -3.0,
        8.0,
        [[109, 122, 122, 122, 122, 122, 122, 122, 134], -50.0, 60.0],
    ),
    (
        "requantize",
        "qint8",
        [-2147483648, -1000000, -5000, -1, 0, 1, 70000, 123456789, 2147483647],
        -3.0,
        8.0,
        [[-19, -6, -6, -6, -6, -6, -6, -5, 7], -50.0, 60.0],
    ),
    ("range", "quint8", [-1000, 5, 3000000], -100.0, 100.0, [-4.654284566640854e-05, 0.13969841599464417]),
    (
        "shrink",
        "quint8",
        [-1000, 5, 3000000],
        -100.0,
        100.0,
        [[0, 0, 255], -4.654284566640854e-05, 0.13969841599464417],
    ),
    ("requantize", "quint8", [-1000, 5, 3000000], -100.0, 100.0, [[116, 116, 116], -50.0, 60.0]),
    ("requantize", "qint8", [-1000, 5, 3000000], -100.0, 100.0, [[-12, -12, -12], -50.0, 60.0]),
    ("range", "quint8", [-1000, 5, 3000000], -3.0, 8.0, [0.0, 2.507683515548706]),
    ("shrink", "quint8", [-1000, 5, 3000000], -3.0, 8.0, [[254, 254, 255], 0.0, 2.507683515548706]),
    ("requantize", "quint8", [-1000, 5, 3000000], -3.0, 8.0, [[122, 122, 122], -50.0, 60.0]),
    ("requantize", "qint8", [-1000, 5, 3000000], -3.0, 8.0, [[-6, -6, -6], -50.0, 60.0]),
    ("range", "quint8", [5, 9, 100], -100.0, 100.0, [0.0, 4.6798959374427795e-06]),
    ("shrink", "quint8", [5, 9, 100], -100.0, 100.0, [[13, 23, 254], 0.0, 4.6798959374427795e-06]),
    ("requantize", "quint8", [5, 9, 100], -100.0, 100.0, [[116, 116, 116], -50.0, 60.0]),
    ("requantize", "qint8", [5, 9, 100], -100.0, 100.0, [[-12, -12, -12], -50.0, 60.0]),
    ("range", "quint8", [5, 9, 100], -3.0, 8.0, [0.0, 2.500000238418579]),
    ("shrink", "quint8", [5, 9, 100], -3.0, 8.0, [[255, 255, 255], 0.0, 2.500000238418579]),
    ("requantize", "quint8", [5, 9, 100], -3.0, 8.0, [[122, 122, 122], -50.0, 60.0]),
    ("requantize", "qint8", [5, 9, 100], -3.0, 8.0, [[-6, -6, -6], -50.0, 60.0]),
    ("range", "quint8", [-7, -3], -100.0, 100.0, [-3.026798367500305e-07, -1.1641532182693481e-07]),
    ("shrink", "quint8", [-7, -3], -100.0, 100.0, [[0, 223], -3.026798367500305e-07, -1.1641532182693481e-07]),
    ("requantize", "quint8", [-7, -3], -100.0, 100.0, [[116, 116], -50.0, 60.0]),
    ("requantize", "qint8", [-7, -3], -100.0, 100.0, [[-12, -12], -50.0, 60.0]),
    ("range", "quint8", [-7, -3], -3.0, 8.0, [0.0, 2.5]),
    ("shrink", "quint8", [-7, -3], -3.0, 8.0, [[255, 255], 0.0, 2.5]),
    ("requantize", "quint8", [-7, -3], -3.0, 8.0, [[122, 122], -50.0, 60.0]),
    ("requantize", "qint8", [-7, -3], -3.0, 8.0, [[-6, -6], -50.0, 60.0]),
]


@pytest.mark.parametrize("op", ops_of("quantize.quantized_math_ops"))
def test_types_are_tensorflows(op: str) -> None:
    assert registered(op) == in_tensorflow(op)


@pytest.mark.parametrize(("kind", "low", "high", "wanted"), ACTIVATIONS)
def test_activation(kind: str, low: float, high: float, wanted: list[int]) -> None:
    op = {"relu": "QuantizedRelu", "relu6": "QuantizedRelu6"}[kind]
    types = {"Tinput": dtypes.quint8, "out_type": dtypes.quint8}
    found, *limits = run_op(op, [BYTES, F32(low), F32(high)], **types)
    assert found.tolist() == wanted and found.dtype == np.uint8 and limits == [low, high]


@pytest.mark.parametrize(("op", "dtype", "values", "low", "high", "wanted"), NARROWED)
def test_sums_become_bytes(op: str, dtype: str, values: list[int], low: float, high: float, wanted: list[Any]) -> None:
    inputs, types = [np.array(values, np.int32), F32(low), F32(high)], {"Tinput": dtypes.qint32}
    if op == "range":
        found = run_op("RequantizationRange", inputs, **types)
    else:
        types["out_type"] = dtypes.as_dtype(dtype)
        more = [F32(-50), F32(60)] if op == "requantize" else []
        integers, *found = run_op("Requantize" if more else "QuantizeDownAndShrinkRange", [*inputs, *more], **types)
        assert integers.dtype == EIGHT[dtype] and integers.tolist() == wanted[0]
        wanted = wanted[1:]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def product(a: Any, b: Any, limits: tuple[float, ...], **attrs: bool) -> Any:
    types = {"T1": dtypes.quint8, "T2": dtypes.quint8, "Toutput": dtypes.qint32}
    return run_op("QuantizedMatMul", [a, b, *map(F32, limits)], **types, **attrs)


@pytest.mark.parametrize("turned", [False, True])
def test_product(turned: bool) -> None:
    a, b = (
        np.array([[172, 47, 117, 192], [67, 251, 195, 103], [9, 211, 21, 242]], np.uint8),
        np.array([[36, 87], [70, 216], [88, 140], [58, 193]], np.uint8),
    )
    sides = (a.T, b.T) if turned else (a, b)
    found, low, high = product(*sides, (-1, 2, -3, 0.5), transpose_a=turned, transpose_b=turned)
    assert found.dtype == np.int32 and found.tolist() == [[-31678, -16680], [-38748, -7280], [-21759, 10628]]
    np.testing.assert_allclose([low, high], [-346767.84375, 346767.84375], rtol=1e-6)


@given(st.integers(1, 4), st.integers(0, 5), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_product_is_that_of_the_floats(rows: int, inner: int, columns: int, seed: int) -> None:
    random = np.random.RandomState(seed)
    a, b = (random.randint(0, 256, size).astype(np.uint8) for size in ((rows, inner), (inner, columns)))
    found, low, high = product(a, b, (-1, 1.55, 0, 5.1))
    floats = (a * 0.01 - 1.0) @ (b * 0.02)
    np.testing.assert_allclose(found * (float(high) - float(low)) / (2.0**32 - 1), floats, atol=1e-3)


def test_wrong_inputs_are_refused() -> None:
    for inputs, words in (
        ((BYTES[:, None], BYTES[None], (np.zeros(2), 1, 0, 1)), "min_a must be a scalar"),
        ((BYTES, BYTES, (0, 1, 0, 1)), "must be matrices"),
        ((BYTES[None], BYTES[None], (0, 1, 0, 1)), "Matrix size-incompatible"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=words):
            product(*inputs)
    types = {"Tinput": dtypes.qint32, "out_type": dtypes.qint8}
    for limits, words in (((1, 2), "must be <= 0"), ((-1, -2), "must be >= requested_output_min")):
        with pytest.raises(errors.InvalidArgumentError, match=words):
            run_op("Requantize", [np.zeros(2, np.int32), F32(-1), F32(1), *map(F32, limits)], **types)


def test_empty_ranges_have_one_value() -> None:
    zero = F32(0)
    types = {"Tinput": dtypes.qint32, "out_type": dtypes.qint8}
    found, *limits = run_op("Requantize", [np.array([5], np.int32), F32(-1), F32(1), zero, zero], **types)
    assert found.tolist() == [0] and limits == [0, 0]
    found = run_op("RequantizationRange", [np.zeros(0, np.int32), F32(-1), F32(1)], Tinput=dtypes.qint32)
    assert [float(limit) for limit in found] == [0, 0]
