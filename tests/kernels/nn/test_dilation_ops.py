"""Morphological dilation against a slow model, window by window."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import errors
from aexec.kernels.nn.pooling import lowest
from tests.kernels.array_support import assert_refuses
from tests.kernels.conv_support import Windows, window_attrs
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

PLAIN = {"strides": [1, 1, 1, 1], "rates": [1, 1, 1, 1], "padding": "VALID"}


@pytest.mark.parametrize("op", ops_of("nn.dilation_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def model(x, weights, windows, grad):
    """(output, gradient for the input, gradient for the filter); a window may lie between the input's elements."""
    out = np.full((len(x), *windows.counts, x.shape[3]), lowest(grad.dtype), np.float64)
    winners = np.empty(out.shape, object)
    for at, tap, where in windows.visits():
        for n, c in np.ndindex(len(x), x.shape[3]):
            value = x[n, *where, c] + weights[*tap, c]
            if value > out[n, *at, c]:
                out[n, *at, c] = value
                winners[n, *at, c] = (tap, where)
    for_input, for_filter = np.zeros(x.shape), np.zeros(weights.shape)
    for n, i, j, c in np.ndindex(out.shape):
        begin = [max(0, a * s - b) for a, s, b in zip((i, j), windows.strides, windows.befores, strict=True)]
        tap, where = winners[n, i, j, c] or ((0, 0), begin)
        for_input[n, *where, c] += grad[n, i, j, c]
        for_filter[*tap, c] += grad[n, i, j, c]
    return out, for_input, for_filter


@given(attrs=window_attrs(2, rates=True), dtype=st.sampled_from(["f4", "f8", "i4", "f2"]), seed=st.integers(0, 99))
def test_against_the_model(attrs, dtype, seed):
    lengths, sizes, strides, rates, padding = attrs
    rng = np.random.default_rng(seed)
    # Few different values: many maxima are found more than once.
    x = rng.integers(-4, 5, (1, *lengths, 2)).astype(dtype)
    weights = rng.integers(-2, 3, (*sizes, 2)).astype(dtype)
    windows = Windows(lengths, sizes, strides, padding, rates)
    grad = rng.integers(-3, 4, (1, *windows.counts, 2)).astype(dtype)
    wanted = model(x.astype(np.float64), weights.astype(np.float64), windows, grad)
    ops = {"strides": [1, *strides, 1], "rates": [1, *rates, 1], "padding": padding}
    got = (
        run_op("Dilation2D", [x, weights], **ops),
        run_op("Dilation2DBackpropInput", [x, weights, grad], **ops),
        run_op("Dilation2DBackpropFilter", [x, weights, grad], **ops),
    )
    for array, want in zip(got, wanted, strict=True):
        assert array.dtype == dtype
        np.testing.assert_array_equal(array, want)


def test_nan_and_minus_infinity_never_win():
    x = np.float32([np.nan, 1, -np.inf, -np.inf]).reshape(1, 4, 1, 1)
    weights = np.zeros((2, 1, 1), np.float32)
    out = run_op("Dilation2D", [x, weights], **PLAIN)
    assert out.ravel().tolist() == [1, 1, np.finfo(np.float32).min]
    grad = np.float32([1, 2, 4]).reshape(1, 3, 1, 1)
    got = run_op("Dilation2DBackpropInput", [x, weights, grad], **PLAIN)
    assert got.ravel().tolist() == [0, 3, 4, 0]
    got = run_op("Dilation2DBackpropFilter", [x, weights, grad], **PLAIN)
    assert got.ravel().tolist() == [6, 1]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_gradients_are_rounded_once(dtype):
    x, weights = np.zeros((1, 5000, 1, 1), dtype), np.zeros((1, 1, 1), dtype)
    got = run_op("Dilation2DBackpropFilter", [x, weights, np.ones_like(x)], **PLAIN)
    assert got.dtype == dtype
    assert got.item() == dtype(5000)


def test_windows_of_many_taps_over_nothing():
    wide = [np.zeros((0, 4, 10**7, 1), np.float32), np.zeros((2, 10**6, 1), np.float32)]
    assert not run_op("Dilation2D", wide, **PLAIN).size
    deep = [np.zeros(s, np.float32) for s in ((1, 5, 5, 0), (2, 2, 0), (1, 4, 4, 0))]
    assert run_op("Dilation2DBackpropFilter", deep, **PLAIN).shape == (2, 2, 0)


def test_empty_batch():
    x, weights = np.zeros((0, 3, 3, 2), np.float32), np.zeros((2, 2, 2), np.float32)
    assert run_op("Dilation2D", [x, weights], **PLAIN).shape == (0, 2, 2, 2)
    grad = np.zeros((0, 2, 2, 2), np.float32)
    assert not run_op("Dilation2DBackpropFilter", [x, weights, grad], **PLAIN).any()


X, W, G = (np.ones(s, np.float32) for s in ((1, 5, 5, 2), (2, 2, 2), (1, 4, 4, 2)))


@pytest.mark.parametrize(
    ("inputs", "attrs", "message"),
    [
        ([X, W], {"strides": [1] * 5}, "Sliding window stride field must specify 4 dimensions"),
        ([X, W], {"rates": [1] * 5}, "Input stride (atrous rate) field must specify 4 dimensions"),
        ([X, W], {"strides": [1, 0, 1, 1]}, "Stride must be > 0, but got 0"),
        ([X[0], W], {}, "input must be 4-dimensional[5,5,2]"),
        ([X, W[0]], {}, "filter must be 3-dimensional: [2,2]"),
        ([X, W[..., :1]], {}, "input and filter must have the same depth: 2 vs 1"),
        ([X, W, G[0]], {}, "out_backprop must be 4-dimensional[4,4,2]"),
        ([X, W, G[:, :3]], {}, "out_backprop has incompatible size."),
    ],
)
def test_refuses(inputs, attrs, message):
    ops = ["Dilation2D"] if len(inputs) == 2 else ["Dilation2DBackpropInput", "Dilation2DBackpropFilter"]
    for op in ops:
        assert_refuses(op, inputs, message, **PLAIN | attrs)


@pytest.mark.parametrize(("name", "word"), [("strides", "Stride"), ("rates", "Rate")])
def test_refuses_windows_across_depth(name, word):
    message = f"{word} is only supported across spatial dimensions."
    assert_refuses("Dilation2D", [X, W], message, errors.UnimplementedError, **PLAIN | {name: [1, 1, 1, 2]})


@pytest.mark.parametrize("op", ["Dilation2D", "Dilation2DBackpropInput", "Dilation2DBackpropFilter"])
def test_windows_that_reach_further_than_a_position_can_say_are_refused(op):
    x, weights = np.ones((1, 1, 3, 2), np.float32), np.ones((1, 100, 2), np.float32)
    attrs = {"strides": [1, 1, 1, 1], "rates": [1, 1, 2**63 - 1, 1], "padding": b"SAME"}
    with pytest.raises(errors.InvalidArgumentError, match="effective size of 913113831648622804894 are too large"):
        run_op(op, [x, weights, x][: 2 if op == "Dilation2D" else 3], **attrs)
