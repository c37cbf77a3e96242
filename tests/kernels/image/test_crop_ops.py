"""Crops: resizing as the oracle, gradients as adjoints and differences, glimpses, TensorFlow's messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import errors
from tests.kernels.array_support import F32, I32, I64, assert_gives, assert_refuses
from tests.kernels.harness import build, in_tensorflow, ops_of, registered, run_op


@pytest.mark.parametrize("op", ops_of("image.crop_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def noise(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


WHOLE = F32([[0, 0, 1, 1]])


@pytest.mark.parametrize(("method", "op"), [("bilinear", "ResizeBilinear"), ("nearest", "ResizeNearestNeighbor")])
@given(st.tuples(*[st.integers(2, 6)] * 4))
def test_whole_image_is_resized_with_aligned_corners(method, op, sizes):
    image, size = noise((2, *sizes[:2], 3)), I32(sizes[2:])
    boxes = np.concatenate([WHOLE, WHOLE])
    got = run_op("CropAndResize", [image, boxes, I32([1, 0]), size], method=method)
    want = run_op(op, [image, size], align_corners=True)[::-1]
    if method == "bilinear":
        np.testing.assert_allclose(got, want, atol=1e-5)
    else:  # positions at a half may be rounded either way
        assert (got == want).mean() > 0.4 and np.isin(got, image).all()


def test_known_answers():
    image = F32(np.arange(9)).reshape(1, 3, 3, 1)
    box = F32([[0, 0.5, 0.5, 1]])
    assert_gives("CropAndResize", [image, box, I32([0]), I32([2, 2])], F32([1, 2, 4, 5]).reshape(1, 2, 2, 1))
    flipped = box[:, [2, 3, 0, 1]]
    assert_gives("CropAndResize", [image, flipped, I32([0]), I32([2, 2])], F32([5, 4, 2, 1]).reshape(1, 2, 2, 1))
    assert_gives("CropAndResize", [image, WHOLE, I32([0]), I32([1, 1])], F32([4]).reshape(1, 1, 1, 1))
    outside = run_op("CropAndResize", [image, F32([[0, 0.5, 0, 1.5]]), I32([0]), I32([1, 3])], extrapolation_value=9.0)
    assert outside.ravel().tolist() == [1, 2, 9]
    whole = run_op("CropAndResize", [image.astype(np.uint8), box, I32([0]), I32([2, 2])])
    assert whole.dtype == np.float32


BOXES = st.lists(st.tuples(*[st.floats(-0.25, 1.25, width=32)] * 4), max_size=5)


@given(BOXES, st.sampled_from(["bilinear", "nearest"]), st.tuples(*[st.integers(1, 4)] * 4))
def test_images_gradient_is_the_adjoint(boxes, method, sizes):
    image = noise((2, *sizes[:2], 3))
    boxes = F32(boxes).reshape(-1, 4)
    index = I32(np.arange(len(boxes)) % 2)
    crops = run_op("CropAndResize", [image, boxes, index, I32(sizes[2:])], method=method)
    grads = noise(crops.shape, 1)
    for dtype, name in ((np.float32, "float"), (np.float64, "double"), (np.float16, "half")):
        back = run_op("CropAndResizeGradImage", [grads, boxes, index, I32(image.shape)], method=method, T=name)
        assert back.dtype == dtype
        tolerance = 0.3 if dtype is np.float16 else 1e-3
        np.testing.assert_allclose((back.astype(float) * image).sum(), (crops * grads).sum(), atol=tolerance)


def test_boxes_gradient_is_the_slope():
    image, boxes, index = noise((1, 5, 6, 2)).astype(np.float64), F32([[0.13, 0.21, 0.83, 0.77]]), I32([0])
    for size in ([3, 4], [1, 1]):
        grads = noise((1, *size, 2), 1)
        got = run_op("CropAndResizeGradBoxes", [grads, image, boxes, index])
        for i in range(4):
            step = np.zeros((1, 4), np.float32)
            step[0, i] = 1e-3
            up, down = (run_op("CropAndResize", [image, boxes + s, index, I32(size)]) for s in (step, -step))
            assert ((up - down) * grads).sum() / 2e-3 == pytest.approx(got[0, i], abs=0.05)


def test_empty_batch_of_boxes():
    image = noise((2, 3, 3, 1))
    none, index = F32(np.zeros((0, 4))), I32([])
    assert run_op("CropAndResize", [image, none, index, I32([2, 2])]).shape == (0, 2, 2, 1)
    grads = noise((0, 2, 2, 1))
    assert not run_op("CropAndResizeGradImage", [grads, none, index, I32(image.shape)], T="float").any()
    assert run_op("CropAndResizeGradBoxes", [grads, image, none, index]).shape == (0, 4)


CROP = [noise((2, 3, 3, 1)), F32([[0, 0, 1, 1]] * 2), I32([0, 1]), I32([2, 2])]
GRAD_IMAGE = [noise((2, 2, 2, 1)), CROP[1], CROP[2], I32([2, 3, 3, 1])]
GRAD_BOXES = [noise((2, 2, 2, 1)), *CROP[:3]]


@pytest.mark.parametrize(
    ("op", "index", "value", "message"),
    [
        ("CropAndResize", 0, CROP[0][0], "input image must be 4-D[3,3,1]"),
        ("CropAndResize", 0, CROP[0][:, :0], "image dimensions must be positive"),
        ("CropAndResize", 1, CROP[1][0], "boxes must be 2-D, got: [4]"),
        ("CropAndResize", 1, CROP[1][:, :3], "boxes must have 4 columns"),
        ("CropAndResize", 1, CROP[1] + F32(np.inf), "Boxes contains at least one element that is not finite"),
        ("CropAndResize", 2, I32([0]), "box_index has incompatible shape"),
        ("CropAndResize", 2, I32([[0, 1]]), "box_indices must be rank 1 but is shape [1,2]"),
        ("CropAndResize", 3, I32(2), "crop_size must be 1-D[]"),
        ("CropAndResize", 3, I32([2]), "crop_size must have two elements[1]"),
        ("CropAndResize", 3, I32([0, 2]), "crop dimensions must be positive"),
        ("CropAndResizeGradImage", 0, GRAD_IMAGE[0][0], "grads image must be 4-D[2,2,1]"),
        ("CropAndResizeGradImage", 0, GRAD_IMAGE[0][:, :0], "grads dimensions must be positive"),
        ("CropAndResizeGradImage", 0, GRAD_IMAGE[0][:1], "boxes and grads have incompatible shape"),
        ("CropAndResizeGradImage", 3, I32([[2, 3, 3, 1]]), "image_size must be 1-D[1,4]"),
        ("CropAndResizeGradImage", 3, I32([2, 3, 3]), "image_size must have 4 elements[3]"),
        ("CropAndResizeGradImage", 3, I32([2, 0, 3, 1]), "image dimensions must be positive"),
        ("CropAndResizeGradImage", 3, I32([2, 3, 3, 2]), "image_size and grads are incompatible"),
        ("CropAndResizeGradBoxes", 1, CROP[0][0], "input image must be 4-D[3,3,1]"),
        ("CropAndResizeGradBoxes", 1, CROP[0][..., :0], "image, grads depth differ"),
    ],
)
def test_inputs_are_checked(op, index, value, message):
    inputs = list({"CropAndResize": CROP, "CropAndResizeGradImage": GRAD_IMAGE}.get(op, GRAD_BOXES))
    inputs[index] = value
    assert_refuses(op, inputs, message, **({"T": "float"} if "GradImage" in op else {}))


@pytest.mark.parametrize("bad", [2, -1])
def test_box_indices_are_checked(bad):
    index, message = I32([0, bad]), "box_index has values outside [0, batch_size)"
    assert_refuses("CropAndResize", [*CROP[:2], index, CROP[3]], message, errors.OutOfRangeError)
    grads = [*GRAD_IMAGE[:2], index, GRAD_IMAGE[3]]
    assert_refuses("CropAndResizeGradImage", grads, message, errors.OutOfRangeError, T="float")
    assert_refuses("CropAndResizeGradBoxes", [*GRAD_BOXES[:3], index], message, errors.OutOfRangeError)


def test_huge_outputs_are_refused():
    with pytest.raises(errors.ResourceExhaustedError):
        run_op("CropAndResize", [*CROP[:3], I32([2**20, 2**20])])
    with pytest.raises(errors.ResourceExhaustedError):
        run_op("CropAndResizeGradImage", [*GRAD_IMAGE[:3], I32([2, 2**20, 2**20, 1])], T="float")


# Glimpses

PICTURE = F32(np.arange(30)).reshape(1, 5, 6, 1)


def glimpse(op, offset, size=(3, 2), **attrs):
    attrs = {"uniform_noise": False, "noise": "zero", **attrs}
    return run_op(op, [PICTURE, I32(size), F32([offset])], **attrs)[0, :, :, 0].tolist()


@pytest.mark.parametrize(
    ("op", "centered", "normalized", "offset", "upper_left"),
    [
        ("ExtractGlimpse", True, True, (0.5, 0.3), 14),
        ("ExtractGlimpse", True, False, (2, 1), 14),
        ("ExtractGlimpse", False, True, (0.5, 0.3), 6),
        ("ExtractGlimpse", False, False, (4, 5), 16),
        ("ExtractGlimpseV2", True, True, (0.5, 0.3), 14),
        ("ExtractGlimpseV2", True, False, (-1, -1), 8),
        ("ExtractGlimpseV2", False, True, (0.3, 0.3), 7),
        ("ExtractGlimpseV2", False, False, (1, 1), 7),
    ],
)
def test_positions_of_glimpses(op, centered, normalized, offset, upper_left):
    got = glimpse(op, offset, centered=centered, normalized=normalized)
    assert got == [[upper_left + 6 * i, upper_left + 6 * i + 1] for i in range(3)]


def test_beyond_the_image():
    assert glimpse("ExtractGlimpse", (-1, -1)) == [[0, 0], [0, 0], [0, 6]]
    assert glimpse("ExtractGlimpseV2", (4, 5), normalized=False, centered=False) == [[29, 0], [0, 0], [0, 0]]
    for nowhere in ((1e30, 0), (np.nan, 0), (-np.inf, 0)):
        assert glimpse("ExtractGlimpse", nowhere) == [[0, 0]] * 3
    larger = glimpse("ExtractGlimpse", (0, 0), size=(7, 8))
    assert larger[1] == [0, 0, 1, 2, 3, 4, 5, 0] and larger[6] == [0] * 8
    assert glimpse("ExtractGlimpse", (0, 0), size=(0, 2)) == []


@pytest.mark.parametrize(("noise_name", "uniform"), [("uniform", True), ("uniform", False), ("gaussian", False)])
def test_noise_stays_within_the_images_range(noise_name, uniform):
    picture = PICTURE + 100
    got = run_op("ExtractGlimpse", [picture, I32([40, 40]), F32([[3, 3]])], noise=noise_name, uniform_noise=uniform)
    assert got.min() >= 100 and got.max() <= 129 and np.unique(got).size > 50


@pytest.mark.parametrize(
    ("index", "value", "message"),
    [
        (0, PICTURE[0], "input must be 4-dimensional (batch_size, height, width, depth)[5,6,1]"),
        (1, I32([3]), "input must be a vector of size 2 (height, width)[1]"),
        (1, I32([-1, 2]), "Expected a non-negative size, got -1"),
        (2, F32([0, 0]), "input must be a matrix[2]"),
        (2, F32([[0, 0]] * 2), "first dimension should be batch[2,2]"),
        (2, F32([[0, 0, 0]]), "second dimension should be of size 2 (y,x)[1,3]"),
    ],
)
def test_glimpse_inputs_are_checked(index, value, message):
    inputs = [PICTURE, I32([3, 2]), F32([[0, 0]])]
    inputs[index] = value
    assert_refuses("ExtractGlimpse", inputs, message)


def test_noise_attrs_are_checked():
    inputs = [PICTURE, I32([3, 2]), F32([[0, 0]])]
    message = "The noise could only be uniform, gaussian, or zero, gotpink"
    assert_refuses("ExtractGlimpse", inputs, message, noise="pink", uniform_noise=False)
    message = "The uniform_noise should not be True when noise is not uniform"
    assert_refuses("ExtractGlimpse", inputs, message, noise="zero")


# Random crops


def test_random_crop_is_a_part_and_its_seed_determines_it():
    image = F32(np.arange(60)).reshape(5, 6, 2)
    size = I64([2, 3])

    def crops():
        built, _, _ = build("RandomCrop", [image, size], seed=1, seed2=2)
        return [built.compute(image, size) for _ in range(20)]

    first, second = crops(), crops()
    for a, b in zip(first, second, strict=True):
        assert a.shape == (2, 3, 2) and (a == b).all()
        row, column = divmod(int(a[0, 0, 0]) // 2, 6)
        assert (a == image[row : row + 2, column : column + 3]).all()
    assert len({a.tobytes() for a in first}) > 5


def test_random_crops_are_tensorflows():
    image = F32(np.arange(600)).reshape(20, 30, 1)
    built, _, _ = build("RandomCrop", [image, I64([5, 6])], seed=3, seed2=4)
    sizes = [*[(5, 6)] * 6, *[(20, 6)] * 2, *[(5, 30)] * 2]
    got = [built.compute(image, I64(size))[0, 0, 0] for size in sizes]
    assert got == [131, 369, 160, 256, 43, 72, 24, 20, 150, 330]


@pytest.mark.parametrize(
    ("image", "size", "message", "error"),
    [
        (np.ones((2, 2)), [1, 1], "input must be 3-dimensional [2,2]", errors.InvalidArgumentError),
        (np.ones((2, 2, 1)), [[1, 1]], "shape_t must be 1-dimensional: [1,2]", errors.InvalidArgumentError),
        (np.ones((2, 2, 1)), [1], "shape_t must have two elements: [1]", errors.InvalidArgumentError),
        (
            np.ones((2, 2, 1)),
            [3, 1],
            "height must be >= target_height: height = 2, target_height = 3",
            errors.FailedPreconditionError,
        ),
    ],
)
def test_random_crop_inputs_are_checked(image, size, message, error):
    assert_refuses("RandomCrop", [image, I64(size)], message, error)
