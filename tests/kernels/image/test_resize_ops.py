"""Resizing: pixel-by-pixel models in double, gradients as adjoints, TensorFlow's messages."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aexec.framework import errors
from tests.kernels.array_support import F32, I32, assert_gives, assert_refuses
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op

GRIDS = [
    {"align_corners": False, "half_pixel_centers": False},
    {"align_corners": True, "half_pixel_centers": False},
    {"align_corners": False, "half_pixel_centers": True},
]
KERNELS = ["lanczos1", "lanczos3", "lanczos5", "gaussian", "box", "triangle", "keyscubic", "mitchellcubic"]


@pytest.mark.parametrize("op", ops_of("image.resize_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def noise(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# One dimension, pixel by pixel: what makes new pixel i, as (old pixel, weight) pairs


def place_of(i, old, new, align_corners, half_pixel_centers):
    scale = np.float32(old - 1) / np.float32(new - 1) if align_corners and min(old, new) > 1 else np.float32(old / new)
    if half_pixel_centers:
        return np.float32(i + 0.5) * scale - np.float32(0.5), scale
    return np.float32(i) * scale, scale


def linear(i, old, new, **grid):
    place, _ = place_of(i, old, new, **grid)
    below = math.floor(place)
    return [(max(below, 0), 1 - (place - below)), (min(math.ceil(place), old - 1), place - below)]


def cubic(i, old, new, **grid):
    keys = grid["half_pixel_centers"]
    a = -0.5 if keys else -0.75
    place, _ = place_of(i, old, new, **grid)
    below = math.floor(place)
    pairs = []
    for j in range(below - 1, below + 3):
        x = abs(round(float(place - below) * 1024) / 1024 + below - j)
        weight = ((a + 2) * x - (a + 3)) * x * x + 1 if x <= 1 else ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        if not keys or 0 <= j < old:
            pairs.append((min(max(j, 0), old - 1), weight))
    total = sum(w for _, w in pairs) if keys else 1
    return [(j, w / total) for j, w in pairs]


def nearest(i, old, new, **grid):
    place, scale = place_of(i, old, new, **grid)
    if grid["half_pixel_centers"]:
        place = np.float32(i + 0.5) * scale
    return [(min(math.floor(place + 0.5) if grid["align_corners"] else math.floor(place), old - 1), 1)]


def area(i, old, new, **grid):
    _, scale = place_of(0, old, new, **grid)
    low, high = float(np.float32(i) * scale), float(np.float32(i + 1) * scale)
    return [
        (min(j, old - 1), (min(high, j + 1) - max(low, j)) / float(scale))
        for j in range(math.floor(low), math.ceil(high))
    ]


def matrix(rule, old, new, **grid):
    weights = np.zeros((new, old))
    for i in range(new):
        for j, weight in rule(i, old, new, **grid):
            weights[i, j] += weight
    return weights


def model(rule, x, size, **grid):
    rows, columns = (matrix(rule, old, new, **grid) for old, new in zip(x.shape[1:3], size, strict=True))
    return np.einsum("ih,jw,nhwc->nijc", rows, columns, x.astype(np.float64))


SIZES = st.tuples(st.integers(1, 9), st.integers(1, 9))


@pytest.mark.parametrize(
    ("op", "rule"), [("ResizeBilinear", linear), ("ResizeBicubic", cubic), ("ResizeNearestNeighbor", nearest)]
)
@settings(deadline=None)  # SciPy is imported on the way
@given(old=SIZES, new=SIZES, grid=st.sampled_from(GRIDS))
def test_interpolation_is_the_slow_model_and_the_gradient_its_adjoint(op, rule, old, new, grid):
    x, grads = noise((2, *old, 3)), noise((2, *new, 3), 1)
    resized = run_op(op, [x, I32(new)], **grid)
    np.testing.assert_allclose(resized, model(rule, x, new, **grid), atol=2e-5)
    back = run_op(f"{op}Grad", [grads, I32(old) if rule is nearest else x], **grid)
    np.testing.assert_allclose((back.astype(float) * x).sum(), (resized.astype(float) * grads).sum(), atol=1e-3)


@given(old=SIZES, new=SIZES, align_corners=st.booleans())
def test_area_is_the_slow_model(old, new, align_corners):
    grid = {"align_corners": align_corners, "half_pixel_centers": False}
    x = noise((2, *old, 3))
    got = run_op("ResizeArea", [x, I32(new)], align_corners=align_corners)
    np.testing.assert_allclose(got, model(area, x, new, **grid), atol=2e-5)


def test_known_answers():
    x = F32([[1, 2], [3, 4]]).reshape(1, 2, 2, 1)
    size = I32([1, 3])
    assert_gives("ResizeBilinear", [x, I32([1, 4])], F32([1, 1.5, 2, 2]).reshape(1, 1, 4, 1))
    assert_gives("ResizeBilinear", [x, size], F32([1, 1.5, 2]).reshape(1, 1, 3, 1), align_corners=True)
    assert_gives("ResizeBilinear", [x, size], F32([2, 2.5, 3]).reshape(1, 1, 3, 1), half_pixel_centers=True)
    assert_gives("ResizeNearestNeighbor", [x, I32([2, 3])], F32([1, 1, 2, 3, 3, 4]).reshape(1, 2, 3, 1))
    assert_gives("ResizeArea", [x, I32([1, 1])], F32([2.5]).reshape(1, 1, 1, 1))


@pytest.mark.parametrize("op", ["ResizeBilinear", "ResizeBicubic", "ResizeArea", "ResizeNearestNeighbor"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, np.float64, ml_dtypes.bfloat16])
def test_types(op, dtype):
    x = np.arange(24).reshape(1, 4, 6, 1).astype(dtype)
    got = run_op(op, [x, I32([2, 9])])
    assert got.dtype == (dtype if op == "ResizeNearestNeighbor" else np.float32)
    np.testing.assert_array_equal(got.astype(np.float32), run_op(op, [x.astype(np.float32), I32([2, 9])]))


def test_gradients_of_integers_wrap_around_and_narrow_floats_round_once():
    grads = np.full((1, 1, 3, 1), 100, np.int8)
    assert_gives("ResizeNearestNeighborGrad", [grads, I32([1, 1])], np.int8([300 - 256]).reshape(1, 1, 1, 1))
    ones = np.ones((1, 1, 4099, 1), np.float16)
    assert_gives("ResizeNearestNeighborGrad", [ones, I32([1, 1])], np.float16([4099]).reshape(1, 1, 1, 1))


def test_long_thin_image_turned_around_needs_no_square_in_between():
    x = noise((1, 200_000, 1, 1))
    for op in ("ResizeBilinear", "ResizeBicubic", "ResizeArea", "ResizeNearestNeighbor"):
        assert run_op(op, [x, I32([1, 200_000])]).shape == (1, 1, 200_000, 1)


def test_empty_batch_of_images():
    for op in ("ResizeBilinear", "ResizeBicubic", "ResizeArea", "ResizeNearestNeighbor"):
        assert run_op(op, [noise((0, 4, 4, 3)), I32([2, 2])]).shape == (0, 2, 2, 3)
    assert not run_op("ResizeNearestNeighborGrad", [noise((1, 0, 2, 3)), I32([2, 2])]).any()


@pytest.mark.parametrize("op", ["ResizeBilinear", "ResizeBicubic", "ResizeArea", "ResizeNearestNeighbor"])
@pytest.mark.parametrize(
    ("shape", "size", "message"),
    [
        ((4, 4, 3), [2, 2], "input must be 4-dimensional[4,4,3]"),
        ((1, 4, 4, 3), [2, 2, 2], "shape_t must have two elements[3]"),
        ((1, 4, 4, 3), 2, "shape_t must be 1-dimensional[]"),
        ((1, 4, 4, 3), [0, 2], "output dimensions must be positive"),
        ((1, 0, 4, 3), [2, 2], "input image must be of non-zero size"),
        ((1, 4, 4, 0), [2, 2], "image must have at least one channel"),
    ],
)
def test_inputs_are_checked(op, shape, size, message):
    assert_refuses(op, [noise(shape), I32(size)], message)


@pytest.mark.parametrize("op", ["ResizeBilinear", "ResizeBicubic", "ResizeArea", "ResizeNearestNeighbor"])
def test_huge_outputs_are_refused(op):
    with pytest.raises(errors.ResourceExhaustedError):
        run_op(op, [noise((1, 1, 1, 1)), I32([2**31 - 1, 2**16])])


def test_contradictory_grids_are_refused():
    message = "If half_pixel_centers is True, align_corners must be False."
    both = {"align_corners": True, "half_pixel_centers": True}
    x = noise((1, 2, 2, 1))
    for op in ("ResizeBilinear", "ResizeBicubic", "ResizeNearestNeighbor"):
        assert_refuses(op, [x, I32([2, 2])], message, **both)
    assert_refuses("ResizeBilinearGrad", [x, x], message, **both)


@pytest.mark.parametrize(
    ("grads", "original", "message"),
    [
        ((2, 2, 1), (1, 2, 2, 1), "input_grad must be 4-dimensional[2,2,1]"),
        ((1, 2, 2, 1), (2, 2, 1), "original_image must be 4-dimensional[2,2,1]"),
        ((1, 0, 2, 1), (1, 2, 2, 1), "resized dimensions must be positive"),
        ((1, 2, 2, 1), (1, 2, 0, 1), "original dimensions must be positive"),
    ],
)
def test_gradient_inputs_are_checked(grads, original, message):
    for op in ("ResizeBilinearGrad", "ResizeBicubicGrad"):
        assert_refuses(op, [noise(grads), noise(original)], message)


@pytest.mark.parametrize(
    ("grads", "size", "message"),
    [
        ((2, 2, 1), [2, 2], "input must be 4-dimensional[2,2,1]"),
        ((1, 2, 2, 1), [2], "shape_t must have two elements[1]"),
        ((1, 2, 2, 1), 2, "shape_t must be 1-dimensional[]"),
        ((1, 2, 2, 1), [2, 0], "shape_t's elements must be positive"),
    ],
)
def test_nearest_gradient_inputs_are_checked(grads, size, message):
    assert_refuses("ResizeNearestNeighborGrad", [noise(grads), I32(size)], message)


# Scale and translate


@pytest.mark.parametrize("kernel_type", KERNELS)
@settings(deadline=None)  # SciPy is imported on the way
@given(old=SIZES, new=SIZES, antialias=st.booleans(), data=st.data())
def test_scaled_images_keep_their_level_and_gradients_are_adjoint(kernel_type, old, new, antialias, data):
    x, grads = noise((2, *old, 2)), noise((2, *new, 2), 1)
    scale = F32([data.draw(st.floats(0.2, 4)) for _ in range(2)])
    translation = F32([data.draw(st.floats(-2, 2)) for _ in range(2)])
    attrs = {"kernel_type": kernel_type, "antialias": antialias}
    moved = run_op("ScaleAndTranslate", [x, I32(new), scale, translation], **attrs)
    back = run_op("ScaleAndTranslateGrad", [grads, x, scale, translation], **attrs)
    np.testing.assert_allclose((back.astype(float) * x).sum(), (moved.astype(float) * grads).sum(), atol=1e-3)
    level = run_op("ScaleAndTranslate", [np.ones_like(x), I32(new), scale, translation], **attrs)
    assert np.all((np.abs(level) < 1e-3) | (np.abs(level - 1) < 1e-3))


def test_triangle_is_linear_interpolation():
    x = noise((1, 4, 5, 3))
    got = run_op(
        "ScaleAndTranslate", [x, I32([8, 10]), F32([2, 2]), F32([0, 0])], kernel_type="triangle", antialias=False
    )
    want = run_op("ResizeBilinear", [x, I32([8, 10])], half_pixel_centers=True)
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_translation_by_whole_pixels_moves_them():
    x = noise((1, 3, 4, 1))
    got = run_op("ScaleAndTranslate", [x, I32([3, 4]), F32([1, 1]), F32([0, 1])], kernel_type="keyscubic")
    np.testing.assert_allclose(got[:, :, 1:], x[:, :, :-1], atol=1e-6)
    assert not got[:, :, 0].any()
    lost = run_op("ScaleAndTranslate", [x, I32([3, 4]), F32([1, 1]), F32([np.nan, np.inf])])
    assert not lost.any()


@pytest.mark.parametrize(
    ("shape", "size", "scale", "translation", "message"),
    [
        ((4, 4, 3), [2, 2], [1, 1], [0, 0], "input must be 4-dimensional[4,4,3]"),
        ((1, 4, 4, 3), [2], [1, 1], [0, 0], "output_shape_t must have two elements[1]"),
        ((1, 4, 4, 3), [2, 2], [1], [0, 0], "t must have two elements[1]"),
        ((1, 4, 4, 3), [2, 2], [1, 1], [0], "t must have two elements[1]"),
        ((1, 4, 4, 3), [2, 2], [0, 1], [0, 0], "Scale must be greater than zero."),
        ((1, 4, 4, 3), [2, 2], [np.nan, 1], [0, 0], "Scale must be greater than zero."),
    ],
)
def test_scale_and_translate_inputs_are_checked(shape, size, scale, translation, message):
    assert_refuses("ScaleAndTranslate", [noise(shape), I32(size), F32(scale), F32(translation)], message)


@pytest.mark.parametrize(
    ("grads", "original", "message"),
    [
        ((2, 2, 1), (1, 2, 2, 1), "input_grad must be 4-dimensional[2,2,1]"),
        ((1, 2, 2, 1), (2, 2, 1), "original_image must be 4-dimensional[2,2,1]"),
        ((1, 2, 2, 1), (1, 0, 2, 1), "original dimensions must be positive"),
    ],
)
def test_scale_and_translate_gradient_inputs_are_checked(grads, original, message):
    args = [noise(grads), noise(original), F32([1, 1]), F32([0, 0])]
    assert_refuses("ScaleAndTranslateGrad", args, message)


def test_unknown_kernels_are_refused():
    args = [noise((1, 2, 2, 1)), I32([2, 2]), F32([1, 1]), F32([0, 0])]
    assert_refuses("ScaleAndTranslate", args, "Unrecognized kernel type: sinc", kernel_type="sinc")
