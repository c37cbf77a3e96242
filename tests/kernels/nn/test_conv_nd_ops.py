"""The op Conv against direct convolution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import errors
from tests.kernels.array_support import assert_refuses
from tests.kernels.conv_support import Windows, assert_close, convolve, window_attrs
from tests.kernels.harness import in_tensorflow, registered, run_op


def test_types_are_tensorflows():
    assert registered("Conv") == in_tensorflow("Conv")


@pytest.mark.parametrize("spatial", [2, 3])
@given(data=st.data(), batch=st.sampled_from([(), (2,), (2, 3), (0,)]), dtype=st.sampled_from(["f4", "f8", "i4", "f2"]))
def test_against_direct_convolution(spatial, data, batch, dtype):
    lengths, sizes, strides, rates, padding = data.draw(window_attrs(spatial, rates=True, explicit=True))
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(*batch, *lengths, 2)) * 3).astype(dtype)
    weights = (rng.normal(size=(*sizes, 2, 3)) * 3).astype(dtype)
    windows = Windows(lengths, sizes, strides, padding, rates, centred=spatial == 3)
    want = convolve(x.reshape(-1, *lengths, 2), weights, windows).reshape(*batch, *windows.counts, 3)
    attrs = {"padding": padding}
    if not isinstance(padding, str):
        flat = [0, 0, *[side for pair in padding for side in pair], 0, 0]
        attrs = {"padding": "EXPLICIT", "explicit_paddings": flat}
    got = run_op(
        "Conv", [x, weights], strides=[1, *strides, 1], dilations=[1, *rates, 1], batch_dims=len(batch), **attrs
    )
    assert_close(got, want, np.dtype(dtype), 2e-3 if dtype == "f2" else 1e-4)


X, W = np.ones((1, 5, 5, 2), np.float32), np.ones((2, 2, 2, 3), np.float32)


@pytest.mark.parametrize(
    ("inputs", "attrs", "message"),
    [
        ([X, W], {"strides": [1, 1]}, "Sliding window strides field must specify 4 dimensions"),
        ([X, W], {"strides": [1, 0, 1, 1]}, "strides must be positive, got [1, 0, 1, 1]"),
        (
            [X, W],
            {"strides": [2, 1, 1, 1]},
            "Current implementation does not support strides in the batch and depth dimensions.",
        ),
        ([X, W], {"dilations": [1, 2]}, "Dilation rates field must specify4dimensions"),
        ([X, W], {"batch_dims": 2}, "The input must have 2 or 3 spatial dimensions but got 1"),
        ([X, W[0]], {}, "The filter must be rank 4 or 5 but got 3"),
        (
            [X[None], W],
            {"strides": [1] * 5},
            "The filter must have 3 spatial dimensions as the input but got rank 4",
        ),
        ([X, W[:, :, :1]], {}, "Input depth must be equal to filter depth: 2 vs 1"),
        ([X, W[:0]], {}, "filter must not have zero elements (i.e. all dimensions must be non-zero)"),
        (
            [X, W],
            {"data_format": "CHANNELS_FIRST"},
            "CPU implementation of Conv2D currently only supports the NHWC tensor format.",
        ),
        (
            [X, W],
            {"padding": "EXPLICIT"},
            "explicit_paddings attribute must contain 8 values, but got: 0",
        ),
    ],
)
def test_refuses(inputs, attrs, message):
    assert_refuses("Conv", inputs, message, **{"strides": [1] * 4, "padding": "VALID"} | attrs)


def test_refuses_groups():
    message = "Grouped/Depthwise Convolutions are not supported yet."
    attrs = {"strides": [1] * 4, "padding": "VALID", "groups": 2}
    assert_refuses("Conv", [X, W], message, errors.UnimplementedError, **attrs)
