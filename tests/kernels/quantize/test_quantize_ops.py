"""Quantisation and back: TensorFlow's answers in tables, properties of the round trip, messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import dtypes
from tests.kernels.array_support import assert_refuses
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

F32 = np.float32
X = F32([-7, -1, -0.3, 0, 0.26, 1, 2.5, 9])
STORAGE = {"qint8": np.int8, "quint8": np.uint8, "qint16": np.int16, "quint16": np.uint16, "qint32": np.int32}


def quantize(x, low, high, dtype, **attrs):
    out, *limits = run_op("QuantizeV2", [x, F32(low), F32(high)], T=dtypes.as_dtype(dtype), **attrs)
    assert out.dtype == STORAGE[dtype]
    return out.tolist(), [np.asarray(v).tolist() for v in limits]


def close(got, want, tolerance=1e-5):
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op", ops_of("quantize.quantize_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


@pytest.mark.parametrize(
    ("dtype", "attrs", "want", "low"),
    [
        ("quint8", {"mode": "MIN_COMBINED"}, [0, 43, 72, 85, 96, 128, 191, 255], -2),
        ("quint8", {"mode": "MIN_FIRST"}, [0, 42, 72, 85, 96, 128, 191, 255], -2),
        ("quint8", {"mode": "SCALED"}, [0, 0, 0, 0, 17, 64, 159, 255], 0),
        ("qint8", {"mode": "MIN_COMBINED"}, [-128, -86, -56, -43, -32, -1, 63, 127], -2),
        ("qint8", {"mode": "MIN_FIRST"}, [-128, -86, -56, -43, -32, 0, 63, 127], -2),
        ("qint8", {"mode": "SCALED"}, [-128, -32, -10, 0, 8, 32, 79, 127], -4.0314961),
        ("qint8", {"mode": "SCALED", "narrow_range": True}, [-127, -32, -10, 0, 8, 32, 79, 127], -4),
    ],
)
def test_quantize(dtype, attrs, want, low):
    got, limits = quantize(X, -2, 4, dtype, **attrs)
    assert got == want
    close(limits, [low, 4])


def test_quantize_rounds_half_as_asked():
    half = F32([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997])
    away, _ = quantize(half, -127, 127, "qint8", mode="SCALED", narrow_range=True)
    even, _ = quantize(half, -127, 127, "qint8", mode="SCALED", narrow_range=True, round_mode="HALF_TO_EVEN")
    assert away == [1, 2, 3, -1, -2, 0]
    assert even == [0, 2, 2, 0, -2, 0]


def test_quantize_makes_the_range_hold_zero_and_not_be_empty():
    assert quantize(X, 1, 4, "quint8") == ([0, 0, 0, 0, 17, 64, 159, 255], [0, 4])
    got, limits = quantize(X, 0, 0, "quint8")
    assert got == [0, 0, 0, 0, 255, 255, 255, 255]
    close(limits, [0, 0.01])
    _, limits = quantize(X, 0, 0, "quint8", ensure_minimum_range=0.5)
    close(limits, [0, 0.5])


def test_quantize_each_slice_by_its_own_range():
    got, limits = quantize(X.reshape(4, 2), [-2, 0], [4, 1], "qint8", mode="SCALED", axis=1)
    assert got == [[-128, -127], [-10, 0], [8, 127], [79, 127]]
    close(limits, [[-4.0314961, -1.0078740], [4, 1]])


@pytest.mark.parametrize("mode", ["MIN_COMBINED", "MIN_FIRST", "SCALED"])
@pytest.mark.parametrize("dtype", list(STORAGE))
def test_large_values_saturate(dtype, mode):
    got, _ = quantize(F32([-1e30, 1e30, 2]), -2, 2, dtype, mode=mode)
    info = np.iinfo(STORAGE[dtype])
    close(got, [info.min, info.max, info.max], 1e-6)


@pytest.mark.parametrize(
    ("dtype", "mode", "want"),
    [
        ("quint8", "MIN_COMBINED", [-2, -0.8, 0.4, 1.6, 2.8, 4]),
        ("quint8", "MIN_FIRST", [-2, -0.8, 0.4, 1.6, 2.8, 4]),
        ("quint8", "SCALED", [0, 0.8, 1.6, 2.4, 3.2, 4]),
        ("qint8", "MIN_COMBINED", [1.01176, 2.21176, 3.41176, -1.41176, -0.211765, 0.988235]),
        ("qint8", "MIN_FIRST", [1.01176, 2.21176, 3.41176, -1.41176, -0.211765, 0.988235]),
        ("qint8", "SCALED", [0, 1.6063, 3.2126, -3.24409, -1.6378, -0.0314961]),
    ],
)
def test_dequantize(dtype, mode, want):
    x = np.arange(0, 256, 51).astype(np.uint8).view(STORAGE[dtype])
    got = run_op("Dequantize", [x, F32(-2), F32(4)], T=dtypes.as_dtype(dtype), mode=mode)
    assert got.dtype == np.float32
    close(got, want)


def test_dequantize_to_bfloat16():
    x = np.uint8([0, 255])
    got = run_op("Dequantize", [x, F32(-2), F32(4)], T=dtypes.quint8, dtype=dtypes.bfloat16)
    assert got.dtype == dtypes.bfloat16.np
    assert got.tolist() == [-2, 4]
    message = "When output type is bfloat16, Mode string must be 'MIN_COMBINED', is 'SCALED'"
    attrs = {"T": dtypes.quint8, "dtype": dtypes.bfloat16, "mode": "SCALED"}
    assert_refuses("Dequantize", [x, F32(-2), F32(4)], message, **attrs)


@given(
    low=st.floats(-50, 0, width=32),
    high=st.floats(0.015625, 50, width=32),
    dtype=st.sampled_from(["qint8", "quint8", "qint16", "quint16"]),
    mode=st.sampled_from(["MIN_COMBINED", "MIN_FIRST", "SCALED"]),
    axis=st.sampled_from([-1, 0, 1]),
)
def test_way_back_is_at_most_a_step_off(low, high, dtype, mode, axis):
    x = np.linspace(low, high, 12, dtype=np.float32).reshape(3, 4)
    ranges = [np.full((3, 4)[axis] if axis >= 0 else (), v, np.float32) for v in (low, high)]
    if mode == "SCALED" and dtype.startswith("qu"):
        x = np.abs(x).clip(0, high)
    attrs = {"T": dtypes.as_dtype(dtype), "mode": mode, "axis": axis}
    q, first, last = run_op("QuantizeV2", [x, *ranges], **attrs)
    back = run_op("Dequantize", [q, first, last], **attrs)
    step = float(np.max(np.asarray(last) - np.asarray(first))) / (2.0 ** (8 * q.dtype.itemsize) - 1)
    # MIN_FIRST moves the whole range by up to half a step, so that zero is one of its values.
    assert np.abs(back - x).max() <= 1.1 * step + 1e-5


@pytest.mark.parametrize(
    ("attrs", "want"),
    [
        ({}, [-7.01575, -0.992126, -0.283465, 0, 0.283465, 0.992126, 2.48031, 9]),
        ({"signed_input": False}, [-6.98824, -0.988235, -0.317647, 0, 0.247059, 0.988235, 2.50588, 9]),
        ({"num_bits": 3}, [-6, 0, 0, 0, 0, 0, 3, 9]),
        ({"num_bits": 3, "range_given": True}, [-16 / 3, -4 / 3, 0, 0, 0, 4 / 3, 8 / 3, 4]),
        ({"num_bits": 3, "range_given": True, "signed_input": False}, [0, 0, 0, 0, 0, 8 / 7, 16 / 7, 4]),
    ],
)
@pytest.mark.parametrize("version", ["", "V2", "V3", "V4"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_round_trip(version, dtype, attrs, want):
    attrs = dict(attrs)
    attrs.setdefault("range_given", False)
    inputs = [X.astype(dtype), dtype(-2), dtype(4)]
    if version == "":
        inputs = inputs[:1]
        attrs |= {"input_min": -2.0, "input_max": 4.0}
    if version == "V3":
        inputs.append(np.int32(attrs.pop("num_bits", 8)))
    got = run_op(f"QuantizeAndDequantize{version}", inputs, **attrs)
    assert got.dtype == dtype
    close(got, want)


def test_round_trip_rounds_half_as_asked():
    x = F32([0.5, 1.5, -0.5, -1.5, 3])
    args = [x, F32(-3), F32(3)]
    attrs = {"num_bits": 3, "narrow_range": True, "range_given": True}
    assert run_op("QuantizeAndDequantizeV2", args, **attrs).tolist() == [0, 2, 0, -2, 3]
    assert run_op("QuantizeAndDequantizeV2", args, round_mode="HALF_UP", **attrs).tolist() == [1, 2, 0, -1, 3]


def test_round_trip_of_each_slice_is_that_of_the_slice_alone():
    x = np.random.default_rng(0).normal(0, 3, (4, 3)).astype(np.float32)
    low, high = F32([-1, -2, -3]), F32([2, 1, 4])
    for given_range in (False, True):
        attrs = {"num_bits": 4, "range_given": given_range}
        whole = run_op("QuantizeAndDequantizeV4", [x, low, high], axis=1, **attrs)
        for i in range(3):
            part = run_op("QuantizeAndDequantizeV4", [x[:, i], low[i], high[i]], **attrs)
            np.testing.assert_array_equal(whole[:, i], part)


def test_round_trip_of_nothing():
    assert run_op("QuantizeAndDequantizeV2", [np.zeros((0, 3), F32), F32(0), F32(1)]).shape == (0, 3)


def test_gradient_of_the_round_trip():
    grad = np.arange(8, dtype=np.float32)
    got = run_op("QuantizeAndDequantizeV4Grad", [grad, X, F32(-1), F32(1)])
    assert [np.asarray(g).tolist() for g in got] == [[0, 1, 2, 3, 4, 5, 0, 0], 0, 0]
    got = run_op(
        "QuantizeAndDequantizeV4Grad",
        [grad.reshape(4, 2), X.reshape(4, 2), F32([-1, 0]), F32([1, 5])],
        axis=1,
    )
    assert [g.tolist() for g in got] == [[[0, 0], [2, 3], [4, 5], [0, 0]], [0, 0], [0, 0]]


def test_reshape_hands_the_range_on():
    x = np.arange(6, dtype=np.uint8)
    out, low, high = run_op("QuantizedReshape", [x, [2, -1], F32(-1), F32(3)], T=dtypes.quint8)
    assert (out.tolist(), float(low), float(high)) == ([[0, 1, 2], [3, 4, 5]], -1, 3)


Q = np.arange(12, dtype=np.uint8).reshape(2, 6)
Y = Q.astype(np.float32)
SIX, FIVE = np.zeros(6, np.float32), np.zeros(5, np.float32)
BY_AXIS = "must be a 1-D tensor whose size matches the axis dimension of the input and output tensors, but"


@pytest.mark.parametrize(
    ("low", "high", "attrs", "message"),
    [
        (3, 2, {}, "input_max_range must be larger than input_min_range."),
        (3, [2, 3], {}, "If axis is not specified, max_range must contain a single float element, "
         "but it contains 2 elements"),
        (1, 2, {"round_mode": "HALF_TO_EVEN"}, "Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED', "
         "but mode is 'MIN_COMBINED'."),
        (1, 2, {"axis": 2}, "Axis is on a zero-based index, so its value must always be less than number of "
         "input's dims, but given axis value was 2 and input's dims was 2"),
        (1, 2, {"axis": 1}, f"If axis is specified, min_range {BY_AXIS} min_range dims are 0"),
        (FIVE, SIX, {"axis": 1}, f"If axis is specified, min_range {BY_AXIS} min_range is a 1-D tensor of size 5 "
         "and input's axis dimension is of size 6"),
    ],
)  # fmt: skip
def test_quantize_refuses(low, high, attrs, message):
    assert_refuses("QuantizeV2", [Y, F32(low), F32(high)], message, T=dtypes.quint8, **attrs)


@pytest.mark.parametrize(
    ("low", "high", "axis", "message"),
    [
        (1, [2, 3], -1, "input_max_tensor must have as many elements as input on the dequantization axis (-1), "
         "got 2, expected 1"),
        (1, 2, 2, "Axis must be less than input dimension(2), got 2"),
        (1, SIX, 1, "input_min_tensor must have as many elements as input on the dequantization axis (1), "
         "got 1, expected 6"),
    ],
)  # fmt: skip
def test_dequantize_refuses(low, high, axis, message):
    assert_refuses("Dequantize", [Q, F32(low), F32(high)], message, T=dtypes.quint8, axis=axis)


@pytest.mark.parametrize(
    ("low", "high", "attrs", "message"),
    [
        (3, 2, {}, "Invalid range: input_min 3 > input_max 2"),
        ([3], 2, {}, "input_min must be a scalar."),
        (1, 2, {"axis": 2}, "Shape must be at least rank 3 but is rank 2"),
        (1, 2, {"axis": -2}, "Axis must be at least -1. Found -2"),
        (1, 2, {"axis": 1}, "Shape must be rank 1 for input_min_tensor when the axis is specified"),
        (1, 2, {"num_bits": 0}, "num_bits is out of range: 0 with signed_input_ 1"),
        (1, 2, {"num_bits": 63, "signed_input": False}, "num_bits is out of range: 63 with signed_input_ 0"),
    ],
)
def test_round_trip_refuses(low, high, attrs, message):
    inputs = [Y, F32(low), F32(high)]
    assert_refuses("QuantizeAndDequantizeV2", inputs, message, range_given=True, **attrs)


def test_round_trip_refuses_the_number_of_bits():
    inputs = [Y, F32(1), F32(2)]
    message = "Invalid shape. The `num_bits` tensor should be a scalar. Got dimensions: 1"
    assert_refuses("QuantizeAndDequantizeV3", [*inputs, np.int32([8])], message)
    message = "num_bits is out of range: 62 with `signed_input_` 1"
    assert_refuses("QuantizeAndDequantizeV3", [*inputs, np.int32(62)], message)
    message = "Invalid range: input_min 3 > input_max 2"
    assert_refuses("QuantizeAndDequantize", [Y], message, range_given=True, input_min=3.0, input_max=2.0)


@pytest.mark.parametrize(
    ("grad", "low", "high", "axis", "message"),
    [
        (Y[:1], 1, 2, -1, "gradient and input must be the same size"),
        (Y, [1], 2, -1, "input_min must be a scalar if axis is unspecified"),
        (Y, 1, 2, 1, "Shape must be rank 1 for input_min_tensor when the axis is specified"),
        (Y, 1, 2, 2, "Axis should be -1 or 0 or a positive value less than 2but given axis value was 2"),
        (Y, 1, 2, -2, "Axis must be at least -1. Found -2"),
        (Y, FIVE, SIX, 1, "min has incorrect size, expected 6 was 5"),
    ],
)
def test_gradient_refuses(grad, low, high, axis, message):
    assert_refuses("QuantizeAndDequantizeV4Grad", [grad, Y, F32(low), F32(high)], message, axis=axis)
