"""Depthwise convolution: a direct model, its gradients, TensorFlow's messages."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aexec.framework import errors
from aexec.kernels.common import windowing
from aexec.kernels.nn import depthwise
from tests.kernels.array_support import I32, assert_refuses
from tests.kernels.conv_support import Windows, assert_close, window_attrs
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op
from tests.kernels.nn.test_conv_ops import attrs_of, random

TYPES = [(np.float32, 1e-4), (np.float64, 1e-10), (np.float16, 1e-2), (ml_dtypes.bfloat16, 1e-1)]


@pytest.mark.parametrize("op", ops_of("nn.depthwise_conv_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def model(x, weights, windows):
    """(output, function of the output's gradient giving the gradients of both)."""
    x, weights = x.astype(np.float64), weights.astype(np.float64)
    shape = (x.shape[0], *windows.counts, *weights.shape[2:])
    out = np.zeros(shape)
    for at, tap, where in windows.visits():
        out[(slice(None), *at)] += x[(slice(None), *where)][..., None] * weights[tap]

    def gradients(grad):
        grad = grad.reshape(shape).astype(np.float64)
        for_x, for_weights = np.zeros(x.shape), np.zeros(weights.shape)
        for at, tap, where in windows.visits():
            part = grad[(slice(None), *at)]
            for_x[(slice(None), *where)] += (part * weights[tap]).sum(-1)
            for_weights[tap] += (x[(slice(None), *where)][..., None] * part).sum(0)
        return for_x, for_weights

    return out.reshape(*shape[:3], -1), gradients


@settings(max_examples=60)
@given(data=st.data())
def test_depthwise(data):
    lengths, sizes, strides, _, padding = data.draw(window_attrs(2, explicit=True, equal=True))
    channels, times = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    check(lengths, sizes, strides, padding, channels, times, np.float32, 1e-4)


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
def test_every_type(dtype, tolerance):
    check([5, 4], [3, 2], [1, 1], "SAME", 3, 2, dtype, tolerance)


@pytest.mark.parametrize("limit", [1, 64, 256])
def test_blocks_do_not_change_the_result(monkeypatch, limit):
    monkeypatch.setattr(depthwise, "_BLOCK_BYTES", limit)
    for times in (1, 2):
        check([7, 5], [3, 2], [2, 2], "SAME", 2, times, np.float32, 1e-4)


def check(lengths, sizes, strides, padding, channels, times, dtype, tolerance):
    x, weights = random(2, *lengths, channels, dtype=dtype), random(*sizes, channels, times, dtype=dtype, seed=1)
    attrs = attrs_of(strides, padding)
    want, gradients = model(x, weights, Windows(lengths, sizes, strides, padding))
    assert_close(run_op("DepthwiseConv2dNative", [x, weights], **attrs), want, dtype, tolerance)
    grad = random(*want.shape, dtype=dtype, seed=2)
    for_x, for_weights = gradients(grad)
    got = run_op("DepthwiseConv2dNativeBackpropInput", [I32(x.shape), weights, grad], **attrs)
    assert_close(got, for_x, dtype, tolerance)
    got = run_op("DepthwiseConv2dNativeBackpropFilter", [x, I32(weights.shape), grad], **attrs)
    assert_close(got, for_weights, dtype, tolerance)


def test_dilation_spreads_the_taps():
    x, weights = random(1, 7, 6, 2), random(2, 3, 2, 1, seed=1)
    want, _ = model(x, weights, Windows([7, 6], [2, 3], [1, 1], "VALID", [3, 2]))
    got = run_op("DepthwiseConv2dNative", [x, weights], **attrs_of([1, 1], "VALID", [3, 2]))
    assert_close(got, want, np.float32, 1e-4)


def test_empty_tensors():
    attrs = attrs_of([1, 1], "VALID")
    for x, weights in (((0, 3, 3, 2), (1, 1, 2, 2)), ((1, 3, 3, 2), (1, 1, 2, 0))):
        out = run_op("DepthwiseConv2dNative", [np.zeros(x, np.float32), np.zeros(weights, np.float32)], **attrs)
        assert out.shape == (x[0], 3, 3, 2 * weights[3])


@pytest.mark.parametrize(
    ("x", "weights", "attrs", "message"),
    [
        ((3, 3), (1, 1, 1, 1), {}, "input must be 4-dimensional[3,3]"),
        ((1, 3, 3, 2), (1, 1, 2), {}, "filter must be 4-dimensional: [1,1,2]"),
        ((1, 3, 3, 3), (1, 1, 2, 2), {}, "input and filter must have the same depth: 3 vs 2"),
        (
            (1, 3, 3, 2),
            (1, 1, 2, 2),
            {"strides": [1, 1, 2, 1]},
            "Current implementation only supports equal length strides in the row and column dimensions.",
        ),
        (
            (1, 3, 3, 2),
            (1, 1, 2, 2),
            {"strides": [2, 1, 1, 1]},
            "Current implementation does not yet support strides in the batch and depth dimensions.",
        ),
        ((1, 3, 3, 2), (1, 1, 2, 2), {"strides": [1, 1, 1]}, "Sliding window strides field must specify 4 dimensions"),
    ],
)
def test_errors(x, weights, attrs, message):
    attrs = {"strides": [1, 1, 1, 1], "padding": "VALID", **attrs}
    inputs = [np.zeros(x, np.float32), np.zeros(weights, np.float32)]
    assert_refuses("DepthwiseConv2dNative", inputs, message, **attrs)


def test_unsupported_attributes_are_refused():
    inputs = [np.zeros((1, 2, 3, 2), np.float32), np.zeros((1, 1, 2, 2), np.float32)]
    message = "Depthwise convolution on CPU is only supported for NHWC format"
    first = {"strides": [1, 1, 1, 1], "padding": "VALID", "data_format": "NCHW"}
    assert_refuses("DepthwiseConv2dNative", inputs, message, errors.UnimplementedError, **first)


@pytest.mark.parametrize(
    ("sizes", "weights", "grad", "message"),
    [
        ([3, 3], (2, 2, 2, 3), (1, 2, 2, 6), "input must be 4-dimensional"),
        ([1, 3, 3, 2], (2, 2, 2, 3), (1, 2, 2, 4), "depth_multiplier * in_depth not equal to out_depth"),
        ([1, 3, 3, 3], (2, 2, 2, 3), (1, 2, 2, 6), "input and filter must have the same in_depth"),
        ([1, 3, 3, 2], (2, 2, 2, 3), (2, 2, 2, 6), "input and out_backprop must have the same batch size"),
        (
            [1, 3, 3, 2],
            (2, 2, 2, 3),
            (1, 2, 3, 6),
            "Number of cols of out_backprop doesn't match computed: actual = 3, computed = 2",
        ),
    ],
)
def test_gradient_errors(sizes, weights, grad, message):
    inputs = [I32(sizes), np.zeros(weights, np.float32), np.zeros(grad, np.float32)]
    message = f"DepthwiseConv2DBackpropInput: {message}"
    assert_refuses("DepthwiseConv2dNativeBackpropInput", inputs, message, strides=[1, 1, 1, 1], padding="VALID")


@pytest.mark.parametrize("depth", [1, 3, 40, 700])
@pytest.mark.parametrize("attrs", [{}, {"strides": [1, 2, 2, 1]}, {"dilations": [1, 2, 3, 1]}], ids=str)
def test_one_filter_each_over_several_blocks(depth, attrs):
    """Wide enough for several stretches of pixels and a rest, deep and high enough for several blocks."""
    rng = np.random.default_rng(depth)
    x = rng.standard_normal((2, 23, 31, depth)).astype(np.float32)
    weights = rng.standard_normal((3, 2, depth, 1)).astype(np.float32)
    attrs = {"strides": [1, 1, 1, 1], "padding": "SAME", **attrs}
    twice = np.repeat(weights, 2, axis=3)  # two filters each are computed in another way
    want = run_op("DepthwiseConv2dNative", [x, twice], **attrs)[..., ::2]
    assert_close(run_op("DepthwiseConv2dNative", [x, weights], **attrs), want, np.float32, 1e-4)


def test_explicit_padding_beyond_the_image():
    x, weights = np.ones((1, 2, 2, 1), np.float32), np.ones((2, 2, 1, 1), np.float32)
    attrs = {"strides": [1, 1, 1, 1], "padding": "EXPLICIT", "explicit_paddings": [0, 0, 4, 3, 0, 2, 0, 0]}
    out = run_op("DepthwiseConv2dNative", [x, weights], **attrs)
    assert out[0, :, :, 0].tolist() == [[0, 0, 0]] * 3 + [[2, 1, 0], [4, 2, 0], [2, 1, 0]] + [[0, 0, 0]] * 2


@pytest.mark.parametrize("at_once", [1, 30, 200])
def test_large_windows_are_added_up_some_of_their_taps_at_a_time(at_once, monkeypatch):
    monkeypatch.setattr(depthwise, "_AT_ONCE", at_once)
    check([6, 5], [5, 4], [1, 1], "SAME", 2, 2, np.float32, 1e-4)


def test_large_filters_are_worked_on_with_few_images_at_a_time(monkeypatch):
    x, weights, attrs = random(7, 6, 5, 2), random(9, 8, 2, 3, seed=1), attrs_of((1, 1), "SAME")
    wanted = run_op("DepthwiseConv2dNative", [x, weights], **attrs)
    monkeypatch.setattr(windowing, "MOST_BYTES", 4000)
    depthwise._parts.cache_clear()
    assert_close(run_op("DepthwiseConv2dNative", [x, weights], **attrs), wanted, x.dtype, 1e-4)
    depthwise._parts.cache_clear()
