"""Colours: Python's colorsys as the oracle, known answers, TensorFlow's messages."""

from __future__ import annotations

import colorsys

import ml_dtypes
import numpy as np
import pytest

from aexec.framework import errors
from tests.kernels.array_support import F32, assert_refuses
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op


@pytest.mark.parametrize("op", ops_of("image.color_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def colors():
    """Random ones, and all of few levels, greys and ties among them."""
    levels = np.array([0, 0.25, 0.5, 1])
    grid = np.stack(np.meshgrid(levels, levels, levels), -1).reshape(-1, 3)
    return np.concatenate([grid, np.random.default_rng(0).random((64, 3))]).reshape(2, -1, 2, 3)


def each(function, images):
    return np.array([function(*pixel) for pixel in images.reshape(-1, 3).tolist()]).reshape(images.shape)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_conversions_are_those_of_colorsys(dtype):
    tolerance = {2: 2e-2, 4: 1e-6, 8: 1e-14}[np.dtype(dtype).itemsize]
    images = colors().astype(dtype)
    hsv = run_op("RGBToHSV", [images])
    want = each(colorsys.rgb_to_hsv, images.astype(float))
    if dtype is not np.float16 and dtype is not ml_dtypes.bfloat16:
        np.testing.assert_allclose(hsv, want, atol=tolerance)
    np.testing.assert_allclose(run_op("HSVToRGB", [hsv]).astype(float), images.astype(float), atol=tolerance)


def test_hue_is_turned():
    red = F32([1, 0, 0]).reshape(1, 1, 3)
    assert run_op("AdjustHue", [red, F32(1 / 3)]).ravel().tolist() == pytest.approx([0, 1, 0], abs=1e-6)
    images = colors().astype(np.float32)
    turned = run_op("AdjustHue", [images, F32(0.3)])

    def turn(r, g, b):
        h, s, v = colorsys.rgb_to_hsv(r, g, b)
        return colorsys.hsv_to_rgb((h + 0.3) % 1, s, v)

    np.testing.assert_allclose(turned, each(turn, images), atol=2e-6)
    np.testing.assert_allclose(run_op("AdjustHue", [turned, F32(-1.3)]), images, atol=2e-6)


def test_saturation_is_scaled_up_to_one():
    images = colors().astype(np.float32)

    def scaled(r, g, b):
        h, s, v = colorsys.rgb_to_hsv(r, g, b)
        return colorsys.hsv_to_rgb(h, min(s * 1.5, 1), v)

    np.testing.assert_allclose(run_op("AdjustSaturation", [images, F32(1.5)]), each(scaled, images), atol=2e-6)


def test_contrast_is_about_each_channels_mean():
    images = colors().astype(np.float32)
    mean = images.mean(axis=(1, 2), keepdims=True)
    want = (images - mean) * 2 + mean
    np.testing.assert_allclose(run_op("AdjustContrastv2", [images, F32(2)]), want, atol=1e-6)
    limited = run_op("AdjustContrast", [images.astype(np.float64), F32(2), F32(0), F32(1)])
    np.testing.assert_allclose(limited, np.clip(want, 0, 1), atol=1e-6)
    whole = run_op("AdjustContrast", [np.uint8([0, 10]).reshape(1, 2, 1), F32(3), F32(0), F32(255)])
    assert whole.ravel().tolist() == [0, 20]


@pytest.mark.parametrize("op", ["AdjustHue", "AdjustSaturation", "AdjustContrastv2", "RGBToHSV", "HSVToRGB"])
def test_empty_batch_of_images(op):
    factor = [F32(0.5)] if op.startswith("Adjust") else []
    assert run_op(op, [F32(np.zeros((0, 2, 2, 3))), *factor]).shape == (0, 2, 2, 3)
    assert run_op(op, [F32(np.zeros((2, 0, 2, 3))), *factor]).shape == (2, 0, 2, 3)


@pytest.mark.parametrize(
    ("op", "name"), [("AdjustHue", "delta"), ("AdjustSaturation", "scale"), ("AdjustContrastv2", "contrast_factor")]
)
def test_adjustments_check_their_inputs(op, name):
    assert_refuses(op, [F32(np.ones((2, 3))), F32(1)], "input must be at least 3-D, got shape[2,3]")
    assert_refuses(op, [F32(np.ones((1, 2, 3))), F32([1])], f"{name} must be scalar: [1]")
    if op != "AdjustContrastv2":
        message = "input must have 3 channels but instead has 2 channels."
        assert_refuses(op, [F32(np.ones((1, 2, 2))), F32(1)], message)


@pytest.mark.parametrize("op", ["RGBToHSV", "HSVToRGB"])
def test_conversions_check_their_inputs(op):
    assert_refuses(op, [F32(1)], "input must be at least 1D[]")
    message = "input must have 3 channels but input only has 2 channels."
    assert_refuses(op, [F32([1, 2])], message, errors.FailedPreconditionError)
