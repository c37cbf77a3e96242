"""Projective transformation: pixel by pixel, fill modes, TensorFlow's messages."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.array_support import F32, I32, assert_gives, assert_refuses
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

OP = "ImageProjectiveTransformV3"
IDENTITY = F32([[1, 0, 0, 0, 1, 0, 0, 0]])


@pytest.mark.parametrize("op", ops_of("image.projective_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def pixel(image, y, x, fill, nearest):
    def at(row, column):
        inside = 0 <= row < image.shape[0] and 0 <= column < image.shape[1]
        return float(image[int(row), int(column)]) if inside else fill

    if nearest:
        return at(*(math.copysign(math.floor(abs(v) + 0.5), v) for v in (y, x)))
    top, left = math.floor(y), math.floor(x)
    above = (left + 1 - x) * at(top, left) + (x - left) * at(top, left + 1)
    below = (left + 1 - x) * at(top + 1, left) + (x - left) * at(top + 1, left + 1)
    return (top + 1 - y) * above + (y - top) * below


@given(
    st.tuples(*[st.integers(1, 5)] * 4),
    st.lists(st.integers(-8, 8), min_size=6, max_size=6),
    st.sampled_from(["NEAREST", "BILINEAR"]),
)
def test_affine_transforms_are_the_slow_model(sizes, eighths, interpolation):
    height, width, new_height, new_width = sizes
    image = F32(np.arange(height * width)).reshape(1, height, width, 1)
    t = [v / 8 for v in eighths]
    want = [
        [
            pixel(
                image[0, :, :, 0],
                t[3] * x + t[4] * y + t[5],
                t[0] * x + t[1] * y + t[2],
                -1.0,
                interpolation == "NEAREST",
            )
            for x in range(new_width)
        ]
        for y in range(new_height)
    ]
    got = run_op(OP, [image, F32([[*t, 0, 0]]), I32([new_height, new_width]), F32(-1)], interpolation=interpolation)
    np.testing.assert_allclose(got[0, :, :, 0], want, atol=1e-5)


@pytest.mark.parametrize(
    ("fill_mode", "want"),
    [
        ("CONSTANT", [9, 9, 9, 9, 9, 1, 2, 3, 9, 9, 9, 9, 9]),
        ("NEAREST", [1, 1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3]),
        ("REFLECT", [2, 3, 3, 2, 1, 1, 2, 3, 3, 2, 1, 1, 2]),
    ],
)
def test_fill_modes(fill_mode, want):
    row = F32([1, 2, 3]).reshape(1, 1, 3, 1)
    shift = F32([[1, 0, -5, 0, 1, 0, 0, 0]])
    inputs = [row, shift, I32([1, 13]), F32(9)]
    assert_gives(OP, inputs, F32(want).reshape(1, 1, 13, 1), interpolation="NEAREST", fill_mode=fill_mode)


def test_wrapping_is_tensorflows():
    row = F32([1, 2, 3, 4]).reshape(1, 1, 4, 1)
    got = run_op(
        OP,
        [row, F32([[1, 0, -4, 0, 1, 0, 0, 0]]), I32([1, 12]), F32(9)],
        interpolation="NEAREST",
        fill_mode="WRAP",
    )
    # At a whole number of widths away it is the last pixel, or the first.
    assert got.ravel().tolist() == [4, 4, 3, 4, 1, 2, 3, 4, 1, 2, 1, 1]


def test_perspective_and_the_horizon():
    image = F32(np.arange(12)).reshape(1, 3, 4, 1)
    tilted = F32([[1, 0, 0, 0, 1, 0, -0.5, 0]])  # no place for x = 2
    got = run_op(OP, [image, tilted, I32([1, 3]), F32(-7)], interpolation="NEAREST")
    assert got.ravel().tolist() == [0, 2, -7]


@pytest.mark.parametrize("fill_mode", ["CONSTANT", "REFLECT", "WRAP", "NEAREST"])
def test_single_pixel_and_places_nowhere(fill_mode):
    image = F32([[5]]).reshape(1, 1, 1, 1)
    got = run_op(OP, [image, IDENTITY, I32([2, 2]), F32(0)], interpolation="NEAREST", fill_mode=fill_mode)
    assert got[0, 0, 0, 0] == 5
    nowhere = run_op(OP, [image, IDENTITY * np.nan, I32([1, 1]), F32(3)], interpolation="NEAREST", fill_mode=fill_mode)
    assert nowhere.ravel().tolist() == [3]


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64, ml_dtypes.bfloat16])
def test_every_image_may_have_its_own_transform(dtype):
    images = np.arange(12).reshape(2, 2, 3, 1).astype(dtype)
    shift = IDENTITY + F32([0, 0, 1, 0, 0, 0, 0, 0])
    got = run_op(
        "ImageProjectiveTransformV2", [images, np.concatenate([IDENTITY, shift]), I32([2, 3])], interpolation="BILINEAR"
    )
    assert got.dtype == dtype
    assert got[..., 0].tolist() == [[[0, 1, 2], [3, 4, 5]], [[7, 8, 0], [10, 11, 0]]]


@pytest.mark.parametrize("size", [[2, 40_000], [40_000, 2], [200, 200]])
def test_large_outputs_are_made_block_by_block(size):
    image = F32(np.arange(6).reshape(1, 2, 3, 1))
    got = run_op("ImageProjectiveTransformV2", [image, IDENTITY, I32(size)], interpolation="BILINEAR")
    assert got.shape == (1, *size, 1)
    width = min(3, size[1])
    assert got[0, :2, :width, 0].tolist() == image[0, :, :width, 0].tolist()
    assert got[0, 2:].sum() == got[0, :, 3:].sum() == 0


def test_empty_images_give_the_fill_value():
    empty = F32(np.zeros((1, 0, 3, 2)))
    got = run_op(OP, [empty, IDENTITY, I32([1, 2]), F32(4)], interpolation="NEAREST")
    assert got.ravel().tolist() == [4] * 4
    assert run_op(OP, [empty[:0], IDENTITY, I32([1, 2]), F32(4)], interpolation="BILINEAR").shape == (0, 1, 2, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: np.ones((2, 2, 1))}, "Input images must have rank 4"),
        ({1: np.ones((1, 7))}, "Input transform should be num_images x 8 or 1 x 8"),
        ({1: np.ones(8)}, "Input transform should be num_images x 8 or 1 x 8"),
        ({1: np.ones((3, 8))}, "Input transform should be num_images x 8 or 1 x 8"),
        ({2: [3]}, "output shape must have two elements[1]"),
        ({2: [[3, 4]]}, "output shape must be 1-dimensional[1,2]"),
        ({2: [0, 4]}, "output dimensions must be positive"),
        ({3: [0]}, "fill_value must be a scalar[1]"),
    ],
)
def test_inputs_are_checked(change, message):
    inputs = [F32(np.ones((2, 2, 2, 1))), IDENTITY, I32([2, 2]), F32(0)]
    for index, value in change.items():
        inputs[index] = np.array(value, inputs[index].dtype)
    assert_refuses(OP, inputs, message, interpolation="NEAREST")


def test_attrs_are_checked():
    inputs = [F32(np.ones((2, 2, 2, 1))), IDENTITY, I32([2, 2]), F32(0)]
    message = "Invalid interpolation CUBIC. Supported types: NEAREST, BILINEAR"
    assert_refuses(OP, inputs, message, interpolation="CUBIC")
    message = "Invalid mode EDGE. Supported types: CONSTANT, NEAREST, REFLECT, WRAP"
    assert_refuses(OP, inputs, message, interpolation="NEAREST", fill_mode="EDGE")
