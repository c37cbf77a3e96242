"""Boxes in images: drawing boxes, and random boxes that show enough of an object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AttrCost
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.random.generators import own_generator, seeded_generator
from aexec.numerics.philox import Philox, unit_floats

__all__: list[str] = []

_F32 = np.float32

# Red, green, blue and alpha: yellow, blue, red, lime, purple, olive, maroon, navy, aqua, fuchsia.
_COLORS = np.array(
    [
        [1, 1, 0, 1], [0, 0, 1, 1], [1, 0, 0, 1], [0, 1, 0, 1], [0.5, 0, 0.5, 1],
        [0.5, 0.5, 0, 1], [0.5, 0, 0, 1], [0, 0, 0.5, 1], [0, 1, 1, 1], [1, 0, 1, 1],
    ],
    _F32,
)  # fmt: skip


def _check_drawing(images: Any, boxes: Any) -> None:
    if images.ndim != 4:
        raise errors.InvalidArgumentError("The rank of the images should be 4")
    if boxes.ndim != 3:
        raise errors.InvalidArgumentError("The rank of the boxes tensor should be 3")
    if len(images) != len(boxes):
        raise errors.InvalidArgumentError("The batch sizes should be the same")
    if boxes.shape[2] != 4:
        raise errors.InvalidArgumentError(
            f"The size of the third dimension of the box must be 4. Received: {boxes.shape[2]}"
        )
    if images.shape[3] not in (1, 3, 4):
        raise errors.InvalidArgumentError("Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA)")


def _palette(depth: int, colors: Any | None) -> Any:
    """The colours [k, depth] that boxes take in turn."""
    if colors is not None:
        if colors.ndim != 2:
            raise errors.InvalidArgumentError(f"colors must be a 2-D matrix{shape_text(colors.shape)}")
        if colors.shape[1] < depth:
            raise errors.InvalidArgumentError(
                f"colors must have equal or more channels than the image provided: {shape_text(colors.shape)}"
            )
        if colors.size:
            return colors[:, :depth]
    return np.ones((1, 1), _F32) if depth == 1 else _COLORS[:, :depth]


def _draw(image: Any, corners: list[int], color: Any) -> None:
    """Draw the part of a box's outline that lies in the image."""
    top, left, bottom, right = corners
    height, width = image.shape[:2]
    if top > bottom or left > right or top >= height or bottom < 0 or left >= width or right < 0:
        return
    rows, columns = slice(max(top, 0), bottom + 1), slice(max(left, 0), right + 1)
    if top >= 0:
        image[top, columns] = color
    if bottom < height:
        image[bottom, columns] = color
    if left >= 0:
        image[rows, left] = color
    if right < width:
        image[rows, right] = color


# Nanoseconds of a box; bytes of one of its sides.
_DRAW_NS = 2000.0
_PLACE_BYTES = 20


def _drawing_cost(images: Any, boxes: Any, *_: Any) -> Any:
    return float(images.size) + _DRAW_NS * boxes.size


@kernel("DrawBoundingBoxes", "DrawBoundingBoxesV2", T=(dtypes.float32, dtypes.float16), cost=_drawing_cost)
def draw_bounding_boxes(c: OpKernelConstruction) -> Compute:
    """Return the images with outlines of boxes (fractions of height and width), one pixel wide."""

    def compute(images: Any, boxes: Any, colors: Any = None) -> Any:
        _check_drawing(images, boxes)
        palette = _palette(images.shape[3], colors)
        out = np.array(images)
        if not out.size:
            return out
        reach = np.array([images.shape[1] - 1, images.shape[2] - 1] * 2, _F32)
        announce_scratch(_PLACE_BYTES * boxes.size)
        places = boxes * reach
        # A place far outside, or NaN, becomes one before the image.
        places[~(np.abs(places) < 2**31)] = -(2**31)
        places = places.astype(np.int64)
        for image, own in zip(out, places, strict=True):
            for number, corners in enumerate(giving_way(own, _DRAW_NS)):
                _draw(image, corners.tolist(), palette[number % len(palette)])
        return out

    return compute


# Random boxes

# More attempts than this do not improve the chance, and would hold up the step.
_MOST_ATTEMPTS = 100_000
# Nanoseconds of one, and of looking at a box in it.
_ATTEMPT_NS, _COMPARE_NS = 20_000.0, 20.0


@dataclass(frozen=True, slots=True)
class _Rectangle:
    """Pixels from `left` to `right` and `top` to `bottom`, the last ones excluded."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def area(self) -> int:
        return max(0, self.right - self.left) * max(0, self.bottom - self.top)


def _round(value: Any) -> int:
    return int(np.rint(value))


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits of a random box: checked attrs; floats are float32."""

    aspect: tuple[Any, Any]
    area: tuple[Any, Any]
    attempts: int
    whole_if_no_boxes: bool

    @classmethod
    def of(cls, c: OpKernelConstruction) -> _Limits:
        aspect, area = c.attr("aspect_ratio_range"), c.attr("area_range")
        for values, name in ((aspect, "Aspect ratio range"), (area, "Area range")):
            if len(values) != 2:
                raise errors.InvalidArgumentError(f"{name} field must specify 2 dimensions")
            if not (values[0] > 0 and values[1] > 0):
                raise errors.InvalidArgumentError(f"{name} must be non-negative: [{values[0]:g}, {values[1]:g}]")
        if not (area[0] <= 1 and area[1] <= 1):
            raise errors.InvalidArgumentError(
                f"Area range must be less then or equal to 1.0: [{area[0]:g}, {area[1]:g}]"
            )
        attempts = c.attr("max_attempts")
        if attempts <= 0:
            raise errors.InvalidArgumentError(f"Max attempts must be non-negative: {attempts}")
        as_floats = [(_F32(low), _F32(high)) for low, high in (aspect, area)]
        return cls(as_floats[0], as_floats[1], attempts, c.attr("use_image_if_no_bounding_boxes"))

    def draw(self, words: Iterator[int], image: _Rectangle) -> _Rectangle | None:
        """A random rectangle within these limits, or None if these words give none."""
        low, high = self.aspect
        ratio = unit_floats(np.array([next(words)], np.uint32))[0] * (high - low) + low
        if not ratio > 0 or not image.area or self.area[0] > self.area[1]:
            return None
        size = self._size(words, image, ratio)
        if size is None:
            return None
        width, height = size
        top = next(words) % (image.bottom - height) if height < image.bottom else 0
        left = next(words) % (image.right - width) if width < image.right else 0
        return _Rectangle(left, top, left + width, top + height)

    def _size(self, words: Iterator[int], image: _Rectangle, ratio: Any) -> tuple[int, int] | None:
        least, most = (part * _F32(image.right) * _F32(image.bottom) for part in self.area)
        height, limit = _round(np.sqrt(least / ratio)), _round(np.sqrt(most / ratio))
        if _round(limit * ratio) > image.right:
            limit = int((image.right + 0.5 - 1e-7) / float(ratio))
            if _round(limit * ratio) > image.right:
                limit -= 1
        limit = min(limit, image.bottom)
        height = min(height, limit)
        if height < limit:
            height += next(words) % (limit - height + 1)
        width = _round(height * ratio)
        # Rounding may bring the area just outside its limits.
        if width * height < least:
            height += 1
            width = _round(height * ratio)
        if width * height > most:
            height -= 1
            width = _round(height * ratio)
        fits = least <= width * height <= most and 0 < width <= image.right and 0 < height <= image.bottom
        return (width, height) if fits else None


def _words(generator: Philox) -> Iterator[int]:
    """The generator's words one by one."""
    start, step = 0, 8
    while True:
        yield from generator.words(start, step).reshape(-1).tolist()
        start, step = start + step, min(2 * step, 1024)


def _shows_enough(crop: _Rectangle, boxes: Any, part: Any) -> bool:
    """True if the crop has this part of at least one of the boxes.

    Args:
        boxes: int64 [number, 4], pixels: top, left, bottom, right.
    """
    if crop.area < 1:
        return False
    top, left, bottom, right = boxes.T
    common = _areas(
        np.maximum(top, crop.top),
        np.maximum(left, crop.left),
        np.minimum(bottom, crop.bottom),
        np.minimum(right, crop.right),
    )
    own = _areas(top, left, bottom, right)
    there = own >= 1
    return bool((common[there].astype(_F32) / own[there].astype(_F32) >= part).any())


def _areas(top: Any, left: Any, bottom: Any, right: Any) -> Any:
    return np.maximum(0, right - left) * np.maximum(0, bottom - top)


def _checked_image(image_size: Any) -> _Rectangle:
    if image_size.ndim != 1:
        raise errors.InvalidArgumentError(f"image_size must be 1-dimensional{shape_text(image_size.shape)}")
    if len(image_size) != 3:
        raise errors.InvalidArgumentError(f"image_size must contain 3 elements{shape_text(image_size.shape)}")
    height, width = image_size.tolist()[:2]
    for name, value in (("height", height), ("width", width)):
        if not 0 <= value < 2**31 - 1:
            raise errors.InvalidArgumentError(f"image {name} cannot be >= int32 max")
    return _Rectangle(0, 0, width, height)


def _checked_boxes(boxes: Any, image: _Rectangle, limits: _Limits) -> Any:
    """Return the boxes in pixels, as `_shows_enough` takes them, after checking them."""
    if boxes.ndim != 3:
        raise errors.InvalidArgumentError(
            f"input boxes must be 3-dimensional [batch, num_boxes, coords]: {shape_text(boxes.shape)}"
        )
    if boxes.shape[2] != 4:
        raise errors.InvalidArgumentError(
            f"bounding boxes must have shape [4] or [*, 4], got {shape_text(boxes.shape)}"
        )
    if not boxes.size:
        if not limits.whole_if_no_boxes:
            raise errors.InvalidArgumentError(
                "No bounding boxes provided as input. One must enable use_image_if_no_bounding_boxes if you wish to "
                "not provide any bounding boxes."
            )
        return np.array([[image.top, image.left, image.bottom, image.right]])
    flat = boxes.reshape(-1, 4)
    outside = flat[~((flat >= 0) & (flat <= 1))]
    if outside.size:
        raise errors.InvalidArgumentError(f"All bounding box coordinates must be in [0.0, 1.0]: {outside[0]:g}")
    return (flat * np.array([image.bottom, image.right] * 2, _F32)).astype(np.int64)


def _checked_part(part: Any) -> Any:
    if part.ndim:
        raise errors.InvalidArgumentError(f"min_object_covered must be 0-D, got shape {shape_text(part.shape)}")
    if not part >= 0:
        raise errors.InvalidArgumentError(f"Min object covered must be non-negative: {part:g}")
    return part


def _sampler(c: OpKernelConstruction) -> Compute:
    """A function `(image_size, boxes, part, reserve) -> (begin, size, box)`; `reserve()` returns the generator."""
    limits, dtype = _Limits.of(c), c.attr("T").np

    def sample(image_size: Any, boxes: Any, part: Any, reserve: Callable[[], Philox]) -> Any:
        image = _checked_image(image_size)
        objects = _checked_boxes(boxes, image, limits)
        words = _words(reserve())
        crop = image
        attempts = range(min(limits.attempts, _MOST_ATTEMPTS))
        for _ in giving_way(attempts, _ATTEMPT_NS + _COMPARE_NS * len(objects)):
            found = limits.draw(words, image)
            if found is not None and _shows_enough(found, objects, part):
                crop = found
                break
        begin = np.array([crop.top, crop.left, 0]).astype(dtype)
        size = np.array([crop.bottom - crop.top, crop.right - crop.left, -1]).astype(dtype)
        with np.errstate(all="ignore"):
            corners = np.array([crop.top, crop.left, crop.bottom, crop.right], _F32)
            box = corners / np.array([image.bottom, image.right] * 2, _F32)
        return begin, size, box.reshape(1, 1, 4)

    return sample


def _cost_of_attempts(attrs: Any) -> Any:
    attempts = min(attrs["max_attempts"], _MOST_ATTEMPTS)
    return lambda image_size, boxes, *_: (_ATTEMPT_NS + _COMPARE_NS * boxes.size / 4) * attempts


_COST = AttrCost(_cost_of_attempts)


# Bytes per coordinate of a box while the boxes are compared with the crop.
_SCRATCH = 48


@kernel("SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2", T=dtypes.INTEGRAL, cost=_COST, scratch=_SCRATCH)
def sample_distorted_bounding_box(c: OpKernelConstruction) -> Compute:
    """Return a random box within limits of area and aspect that shows enough of one of the boxes, else the whole
    image.

    At most 100,000 attempts are made.
    """
    sample, generator, attempts = _sampler(c), own_generator(c), c.attr("max_attempts")
    fixed = _checked_part(_F32(c.attrs["min_object_covered"])) if "min_object_covered" in c.attrs else None

    def compute(image_size: Any, boxes: Any, part: Any = fixed) -> Any:
        return sample(image_size, boxes, _checked_part(part), lambda: generator.reserve(attempts))

    return compute


@kernel("StatelessSampleDistortedBoundingBox", T=dtypes.INTEGRAL, cost=_COST, scratch=_SCRATCH)
def stateless_sample_distorted_bounding_box(c: OpKernelConstruction) -> Compute:
    """Like `sample_distorted_bounding_box`, determined by a seed."""
    sample = _sampler(c)

    def compute(image_size: Any, boxes: Any, part: Any, seed: Any) -> Any:
        return sample(image_size, boxes, _checked_part(part), lambda: seeded_generator(seed))

    return compute
