"""Boxes: outlines pixel by pixel, random boxes as TensorFlow draws them, its messages."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.array_support import F32, I32, I64, assert_gives, assert_refuses
from tests.kernels.harness import build, in_tensorflow, ops_of, registered, run_op


@pytest.mark.parametrize("op", ops_of("image.box_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def drawn(boxes, size=(5, 6)):
    """Which pixels of a grey picture a box paints."""
    image = F32(np.zeros((1, *size, 1)))
    return run_op("DrawBoundingBoxes", [image, F32([boxes])])[0, :, :, 0]


def test_outlines():
    inner = drawn([[0.25, 0.2, 0.75, 0.6]])
    assert inner.tolist() == [
        [0, 0, 0, 0, 0, 0],
        [0, 1, 1, 1, 0, 0],
        [0, 1, 0, 1, 0, 0],
        [0, 1, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 0],
    ]
    cut = drawn([[-0.5, 0.4, 0.5, 2]])
    assert np.argwhere(cut).tolist() == [[0, 2], [1, 2], [2, 2], [2, 3], [2, 4], [2, 5]]


@pytest.mark.parametrize(
    "box",
    [[0.5, 0, 0.2, 1], [0, 0.5, 1, 0.2], [2, 0, 3, 1], [-3, 0, -2, 1], [0, 2, 1, 3], [np.nan] * 4, [1e30, 0, 2e30, 1]],
)
def test_boxes_that_are_none_or_outside_are_not_drawn(box):
    assert not drawn([box]).any()


def test_colours_take_turns():
    image, boxes = F32(np.zeros((1, 4, 4, 3))), F32([[[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]]])
    standard = run_op("DrawBoundingBoxes", [image, boxes])
    assert standard[0, [0, 3, 0], [0, 3, 3]].tolist() == [[1, 1, 0], [0, 0, 1], [1, 0, 0]]
    own = run_op("DrawBoundingBoxesV2", [image, boxes, F32([[1, 2, 3, 9], [4, 5, 6, 9]])])
    assert own[0, [0, 3, 0], [0, 3, 3]].tolist() == [[1, 2, 3], [4, 5, 6], [1, 2, 3]]
    none = run_op("DrawBoundingBoxesV2", [image.astype(np.float16), boxes, F32(np.zeros((0, 3)))])
    assert none.dtype == np.float16 and (none == standard).all()
    assert run_op("DrawBoundingBoxes", [image[:, :0], boxes]).shape == (1, 0, 4, 3)


@pytest.mark.parametrize(
    ("images", "boxes", "message"),
    [
        ((4, 4, 3), (1, 1, 4), "The rank of the images should be 4"),
        ((1, 4, 4, 3), (1, 4), "The rank of the boxes tensor should be 3"),
        ((1, 4, 4, 3), (2, 1, 4), "The batch sizes should be the same"),
        ((1, 4, 4, 3), (1, 1, 3), "The size of the third dimension of the box must be 4. Received: 3"),
        ((1, 4, 4, 2), (1, 1, 4), "Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA)"),
    ],
)
def test_drawing_checks_its_inputs(images, boxes, message):
    assert_refuses("DrawBoundingBoxes", [F32(np.zeros(images)), F32(np.zeros(boxes))], message)


def test_palettes_are_checked():
    inputs = [F32(np.zeros((1, 4, 4, 3))), F32(np.zeros((1, 1, 4)))]
    assert_refuses("DrawBoundingBoxesV2", [*inputs, F32([1, 2, 3])], "colors must be a 2-D matrix[3]")
    message = "colors must have equal or more channels than the image provided: [1,2]"
    assert_refuses("DrawBoundingBoxesV2", [*inputs, F32([[1, 2]])], message)


# Random boxes

STATELESS = "StatelessSampleDistortedBoundingBox"
OBJECT = F32([[[0.1, 0.2, 0.8, 0.9]]])


def sample(seed, size=(40, 60, 3), boxes=OBJECT, covered=0.3, **attrs):
    return run_op(STATELESS, [I32(size), boxes, F32(covered), I64(seed)], **attrs)


def test_boxes_keep_to_their_limits():
    drawn = [sample([1, i], area_range=[0.2, 0.4], aspect_ratio_range=[0.5, 2.0]) for i in range(40)]
    for begin, size, box in drawn:
        top, left, depth = begin.tolist()
        height, width, channels = size.tolist()
        assert (depth, channels) == (0, -1)
        assert 0 <= top <= 40 - height and 0 <= left <= 60 - width
        assert 0.2 * 2400 - 1 <= height * width <= 0.4 * 2400 + 1
        assert 0.4 < width / height < 2.2
        np.testing.assert_allclose(
            box.ravel(), [top / 40, left / 60, (top + height) / 40, (left + width) / 60], rtol=1e-6
        )
        shown = (min(top + height, 32) - max(top, 4)) * (min(left + width, 54) - max(left, 12))
        assert shown >= 0.3 * 28 * 42
    assert len({tuple(begin.tolist()) for begin, _, _ in drawn}) > 20


def test_tensorflows_answers():
    inputs = [I32([40, 60, 3]), OBJECT, F32(0.3)]
    built, _, _ = build("SampleDistortedBoundingBoxV2", inputs, seed=3, seed2=5)
    got = [[v.tolist() for v in built.compute(*inputs)[:2]] for _ in range(3)]
    assert got == [[[0, 7, 0], [39, 38, -1]], [[1, 8, 0], [29, 33, -1]], [[7, 5, 0], [26, 33, -1]]]
    assert [v.tolist() for v in sample([7, -2])[:2]] == [[0, 11, 0], [37, 44, -1]]


def test_first_version_has_the_part_as_attr():
    inputs = [I32([40, 60, 3]), OBJECT]
    first = run_op("SampleDistortedBoundingBox", inputs, context=(), seed=3, seed2=5, min_object_covered=0.3)
    second = run_op("SampleDistortedBoundingBoxV2", [*inputs, F32(0.3)], context=(), seed=3, seed2=5)
    assert [v.tolist() for v in first] == [v.tolist() for v in second]


def test_whole_image_is_the_last_resort():
    for impossible in (
        {"area_range": [0.01, 0.02], "covered": 1.0},
        {"area_range": [0.9, 1.0], "aspect_ratio_range": [5.0, 6.0]},
        {"area_range": [0.9, 0.1]},
        {"max_attempts": 2**40, "size": (0, 5, 3)},
    ):
        begin, size, _ = sample([1, 1], **impossible)
        height, width, _ = impossible.get("size", (40, 60, 3))
        assert (begin.tolist(), size.tolist()) == ([0, 0, 0], [height, width, -1])


def test_image_without_objects():
    none = OBJECT[:, :0]
    _, size, _ = sample([1, 1], boxes=none, use_image_if_no_bounding_boxes=True)
    assert 0 < size[0] <= 40
    message = (
        "No bounding boxes provided as input. One must enable use_image_if_no_bounding_boxes if you wish to "
        "not provide any bounding boxes."
    )
    assert_refuses(STATELESS, [I32([40, 60, 3]), none, F32(0.3), I64([1, 1])], message)


@pytest.mark.parametrize(
    ("index", "value", "message"),
    [
        (0, I32([4, 5]), "image_size must contain 3 elements[2]"),
        (0, I32([[4, 5, 3]]), "image_size must be 1-dimensional[1,3]"),
        (0, I32([-4, 5, 3]), "image height cannot be >= int32 max"),
        (1, OBJECT[0], "input boxes must be 3-dimensional [batch, num_boxes, coords]: [1,4]"),
        (1, OBJECT[..., :3], "bounding boxes must have shape [4] or [*, 4], got [1,1,3]"),
        (1, OBJECT * 2, "All bounding box coordinates must be in [0.0, 1.0]: 1.6"),
        (2, F32([0.3]), "min_object_covered must be 0-D, got shape [1]"),
        (2, F32(-1), "Min object covered must be non-negative: -1"),
        (3, I64([1]), "seed must have shape [2], not [1]"),
    ],
)
def test_sampling_checks_its_inputs(index, value, message):
    inputs = [I32([40, 60, 3]), OBJECT, F32(0.3), I64([1, 1])]
    inputs[index] = value
    assert_refuses(STATELESS, inputs, message)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"aspect_ratio_range": [1.0]}, "Aspect ratio range field must specify 2 dimensions"),
        ({"aspect_ratio_range": [0.0, 1.0]}, "Aspect ratio range must be non-negative: [0, 1]"),
        ({"area_range": [1.0]}, "Area range field must specify 2 dimensions"),
        ({"area_range": [-1.0, 1.0]}, "Area range must be non-negative: [-1, 1]"),
        ({"area_range": [0.5, 1.5]}, "Area range must be less then or equal to 1.0: [0.5, 1.5]"),
        ({"max_attempts": 0}, "Max attempts must be non-negative: 0"),
    ],
)
def test_limits_are_checked(attrs, message):
    assert_refuses(STATELESS, [I32([40, 60, 3]), OBJECT, F32(0.3), I64([1, 1])], message, **attrs)


def test_wide_integers():
    begin, _, _ = run_op(STATELESS, [I64([40, 60, 3]), OBJECT, F32(0.3), I64([1, 1])])
    assert begin.dtype == np.int64
    assert_gives(STATELESS, [I32([40, 60, 3]), OBJECT, F32(0.3), I64([7, -2])], sample([7, -2]))
