"""Parts of images [n, height, width, channels]: boxes resampled to one size, glimpses, random crops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import PerOutput
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import elements_asked_for, shape_text
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.row_lists import row_lists
from aexec.kernels.common.scattering import accumulate_piece, combiner
from aexec.kernels.random.generators import own_generator

__all__: list[str] = []

_F32 = np.float32

# Boxes are processed in groups of about this many output elements, which stay in the cache.
_GROUP = 1 << 16
# Bytes of scratch per output element.
_SAMPLE_BYTES = 90
# On a device the number of calls matters more.
_DEVICE_GROUP = 1 << 24


def _positive(shape: Any, what: str) -> None:
    if shape[1] <= 0 or shape[2] <= 0:
        raise errors.InvalidArgumentError(f"{what} dimensions must be positive")


def _check_boxes(xp: Any, boxes: Any, box_index: Any) -> int:
    """Return the number of boxes.  Raises InvalidArgumentError unless there is an index for each box of four
    numbers.
    """
    if boxes.ndim != 2:
        raise errors.InvalidArgumentError(f"boxes must be 2-D, got: {shape_text(boxes.shape)}")
    if box_index.ndim != 1:
        raise errors.InvalidArgumentError(f"box_indices must be rank 1 but is shape {shape_text(box_index.shape)}")
    if not boxes.size and not box_index.size:
        return 0
    if boxes.shape[1] != 4:
        raise errors.InvalidArgumentError("boxes must have 4 columns")
    if not xp.isfinite(boxes).all():
        raise errors.InvalidArgumentError("Boxes contains at least one element that is not finite")
    if len(box_index) != len(boxes):
        raise errors.InvalidArgumentError("box_index has incompatible shape")
    return len(boxes)


def _check_box_index(box_index: Any, batch: int) -> None:
    if ((box_index < 0) | (box_index >= batch)).any():
        raise errors.OutOfRangeError("box_index has values outside [0, batch_size)")


def _places(xp: Any, first: Any, last: Any, size: int, count: int) -> Any:
    """float32 [boxes, count]: positions of samples in a dimension of `size`, from `first` to `last` (fractions of
    it).
    """
    reach = _F32(size - 1)
    with np.errstate(all="ignore"):
        if count == 1:
            return (_F32(0.5) * (first + last) * reach)[:, None]
        step = (last - first) * reach / _F32(count - 1)
        return (first * reach)[:, None] + xp.arange(count, dtype=_F32) * step[:, None]


@dataclass(frozen=True, slots=True)
class _Samples:
    """Positions of the samples of some boxes in images [batch, height, width]; indices are those of pixels.

    Attributes:
        inside: bool [boxes, crop height, crop width, 1], whether a sample lies in the image.
        corners: four int arrays [boxes, crop height, crop width]: upper left, upper right, lower left, lower right.
        y, x: float32 [boxes, crop height, 1, 1] and [boxes, 1, crop width, 1], fractions of the way between these.
        nearest: int [boxes, crop height, crop width], the nearest pixel.
    """

    inside: Any
    corners: tuple[Any, Any, Any, Any]
    y: Any
    x: Any
    nearest: Any

    @classmethod
    def of(cls, xp: Any, boxes: Any, box_index: Any, image: tuple[int, ...], crop: tuple[int, int]) -> _Samples:
        _, height, width = image
        y = _places(xp, boxes[:, 0], boxes[:, 2], height, crop[0])
        x = _places(xp, boxes[:, 1], boxes[:, 3], width, crop[1])
        ok_y, ok_x = (y >= 0) & (y <= height - 1), (x >= 0) & (x <= width - 1)
        y, x = xp.where(ok_y, y, _F32(0)), xp.where(ok_x, x, _F32(0))
        images = box_index.astype(np.intp)[:, None] * height

        def pixels(rows: Any, columns: Any) -> Any:
            return ((images + rows.astype(np.intp)) * width)[:, :, None] + columns.astype(np.intp)[:, None, :]

        top, left, bottom, right = xp.floor(y), xp.floor(x), xp.ceil(y), xp.ceil(x)
        return cls(
            (ok_y[:, :, None] & ok_x[:, None, :])[..., None],
            (pixels(top, left), pixels(top, right), pixels(bottom, left), pixels(bottom, right)),
            (y - top)[:, :, None, None],
            (x - left)[:, None, :, None],
            pixels(xp.floor(y + _F32(0.5)), xp.floor(x + _F32(0.5))),
        )


def _groups(xp: Any, count: int, size: int) -> Iterator[slice]:
    """Yield slices of the boxes, each with about `_GROUP` output elements; nothing if a box has no elements."""
    if not size:
        return
    step = max(1, (_GROUP if xp is np else _DEVICE_GROUP) // size)
    announce_scratch(_SAMPLE_BYTES * size * min(count, step))
    for start in range(0, count, step):
        check_wanted()
        yield slice(start, start + step)


def _crop_cost(image: Any, boxes: Any, box_index: Any, crop_size: Any) -> float:
    values: int = box_index.size * (image.shape[-1] if image.ndim else 1)
    return 20.0 * elements_asked_for(crop_size) * values


@kernel("CropAndResize", T=dtypes.REAL_NUMBER, host_memory=("crop_size",), cost=_crop_cost)
def crop_and_resize(c: OpKernelConstruction) -> Compute:
    """Return float32 [boxes, crop height, crop width, channels]: each box's part of its image, resampled."""
    xp, linear, outside, allocate = c.xp, c.text("method") == "bilinear", c.attr("extrapolation_value"), allocator(c)

    def compute(image: Any, boxes: Any, box_index: Any, crop_size: Any) -> Any:
        if image.ndim != 4:
            raise errors.InvalidArgumentError(f"input image must be 4-D{shape_text(image.shape)}")
        _positive(image.shape, "image")
        count = _check_boxes(xp, boxes, box_index)
        if crop_size.ndim != 1:
            raise errors.InvalidArgumentError(f"crop_size must be 1-D{shape_text(crop_size.shape)}")
        if crop_size.size != 2:
            raise errors.InvalidArgumentError(f"crop_size must have two elements{shape_text(crop_size.shape)}")
        crop = tuple(crop_size.tolist())
        if min(crop) <= 0:
            raise errors.InvalidArgumentError("crop dimensions must be positive")
        _check_box_index(box_index, len(image))
        out = allocate((count, *crop, image.shape[3]))
        pixels = image.reshape(prod(image.shape[:3]), image.shape[3])
        for group in _groups(xp, count, out[:1].size):
            at = _Samples.of(xp, boxes[group], box_index[group], image.shape[:3], crop)
            found = _between(pixels, at) if linear else pixels[at.nearest]
            out[group] = xp.where(at.inside, found, _F32(outside))
        return out

    return compute


def _corners(pixels: Any, at: _Samples) -> Iterator[Any]:
    return (pixels.take(corner, 0).astype(_F32, copy=False) for corner in at.corners)


def _between(pixels: Any, at: _Samples) -> Any:
    top_left, top_right, bottom_left, bottom_right = _corners(pixels, at)
    top = top_left + (top_right - top_left) * at.x
    bottom = bottom_left + (bottom_right - bottom_left) * at.x
    return top + (bottom - top) * at.y


def _check_grads(grads: Any) -> None:
    if grads.ndim != 4:
        raise errors.InvalidArgumentError(f"grads image must be 4-D{shape_text(grads.shape)}")
    _positive(grads.shape, "grads")


def _check_grads_of_boxes(xp: Any, grads: Any, boxes: Any, box_index: Any) -> None:
    if _check_boxes(xp, boxes, box_index) != len(grads):
        raise errors.InvalidArgumentError("boxes and grads have incompatible shape")


@kernel(
    "CropAndResizeGradImage",
    T=(dtypes.float16, dtypes.float32, dtypes.float64),
    host_memory=("image_size",),
    cost=PerOutput(60.0),
)
def crop_and_resize_grad_image(c: OpKernelConstruction) -> Compute:
    """Return the gradient with regard to the images, in the shape `image_size`."""
    xp, linear, dtype, allocate = c.xp, c.text("method") == "bilinear", c.attr("T").np, allocator(c)
    work, add = np.promote_types(dtype, _F32), partial(accumulate_piece, np.add) if xp is np else combiner(xp, "add")

    def compute(grads: Any, boxes: Any, box_index: Any, image_size: Any) -> Any:
        _check_grads(grads)
        _check_grads_of_boxes(xp, grads, boxes, box_index)
        shape = _checked_image_size(image_size, grads)
        _check_box_index(box_index, shape[0])
        allocate(shape)  # refuses a shape that does not fit into memory
        out = xp.zeros((shape[0] * shape[1] * shape[2], shape[3]), work)
        for group in _groups(xp, len(grads), grads[:1].size):
            at = _Samples.of(xp, boxes[group], box_index[group], shape[:3], grads.shape[1:3])
            given = xp.where(at.inside, grads[group], _F32(0))
            for index, part in _shares(given, at) if linear else [(at.nearest, given)]:
                add(out, index.ravel(), part.reshape(index.size, shape[3]).astype(work, copy=False))
        return out.reshape(shape).astype(dtype, copy=False)

    return compute


def _checked_image_size(image_size: Any, grads: Any) -> tuple[int, ...]:
    if image_size.ndim != 1:
        raise errors.InvalidArgumentError(f"image_size must be 1-D{shape_text(image_size.shape)}")
    if image_size.size != 4:
        raise errors.InvalidArgumentError(f"image_size must have 4 elements{shape_text(image_size.shape)}")
    shape = tuple(image_size.tolist())
    _positive(shape, "image")
    if shape[3] != grads.shape[3]:
        raise errors.InvalidArgumentError("image_size and grads are incompatible")
    return shape


def _shares(grads: Any, at: _Samples) -> Iterator[tuple[Any, Any]]:
    """The four corners, each with its part of the gradients."""
    one = _F32(1)
    weights = ((one - at.y, one - at.x), (one - at.y, at.x), (at.y, one - at.x), (at.y, at.x))
    return ((corner, grads * y * x) for corner, (y, x) in zip(at.corners, weights, strict=True))


@kernel("CropAndResizeGradBoxes", T=dtypes.REAL_NUMBER, cost=60.0)
def crop_and_resize_grad_boxes(c: OpKernelConstruction) -> Compute:
    """Return the gradient with regard to the boxes, [boxes, 4]."""
    xp = c.xp

    def compute(grads: Any, image: Any, boxes: Any, box_index: Any) -> Any:
        _check_grads(grads)
        if image.ndim != 4:
            raise errors.InvalidArgumentError(f"input image must be 4-D{shape_text(image.shape)}")
        _positive(image.shape, "image")
        if image.shape[3] != grads.shape[3]:
            raise errors.InvalidArgumentError("image, grads depth differ")
        _check_grads_of_boxes(xp, grads, boxes, box_index)
        _check_box_index(box_index, len(image))
        out = xp.zeros((len(grads), 4), _F32)
        if xp is np and not image.flags.c_contiguous:
            announce_scratch(image.nbytes)
        pixels = image.reshape(prod(image.shape[:3]), image.shape[3])
        for group in _groups(xp, len(grads), grads[:1].size):
            at = _Samples.of(xp, boxes[group], box_index[group], image.shape[:3], grads.shape[1:3])
            slopes = _slopes(pixels, xp.where(at.inside, grads[group], _F32(0)), at)
            for axis, slope in enumerate(slopes):
                first, last = _moves(xp, image.shape[axis + 1], grads.shape[axis + 1])
                out[group, axis] = slope @ first
                out[group, axis + 2] = slope @ last
        return out

    return compute


def _slopes(pixels: Any, grads: Any, at: _Samples) -> tuple[Any, Any]:
    """Gradients with regard to the rows' positions [boxes, crop height] and the columns' [boxes, crop width]."""
    top_left, top_right, bottom_left, bottom_right = _corners(pixels, at)
    one = _F32(1)
    down = (one - at.x) * (bottom_left - top_left) + at.x * (bottom_right - top_right)
    right = (one - at.y) * (top_right - top_left) + at.y * (bottom_right - bottom_left)
    return (down * grads).sum(axis=(2, 3)), (right * grads).sum(axis=(1, 3))


def _moves(xp: Any, size: int, count: int) -> tuple[Any, Any]:
    """float32 [count]: how far each sample moves per move of its box's start, and of its end."""
    reach = _F32(size - 1)
    if count == 1:
        return (xp.full(1, _F32(0.5) * reach),) * 2
    last = xp.arange(count, dtype=_F32) * (reach / _F32(count - 1))
    return reach - last, last


# Glimpses


def _uniform_noise(image: Any, shape: tuple[int, ...]) -> Any:
    low, high = image.min(), image.max()
    return low + np.random.default_rng().random(shape, _F32) * (high - low)


def _gaussian_noise(image: Any, shape: tuple[int, ...]) -> Any:
    """Noise with each channel's mean and deviation, within its range."""
    space = (0, 1)
    noise = np.random.default_rng().standard_normal(shape, _F32) * image.std(axis=space) + image.mean(axis=space)
    return np.clip(noise, image.min(axis=space), image.max(axis=space))


_NOISE: dict[str, Callable[[Any, tuple[int, ...]], Any]] = {
    "uniform": _uniform_noise,
    "gaussian": _gaussian_noise,
    "zero": lambda image, shape: _F32(0),
}


def _noise(c: OpKernelConstruction) -> Callable[[Any, tuple[int, ...]], Any]:
    """A function that makes the noise for the part of a glimpse outside the image."""
    name = c.text("noise")
    if c.attr("uniform_noise"):
        if name not in ("", "uniform"):
            raise errors.InvalidArgumentError("The uniform_noise should not be True when noise is not uniform")
        return _uniform_noise
    if name not in _NOISE:
        raise errors.InvalidArgumentError(f"The noise could only be uniform, gaussian, or zero, got{name}")
    return _NOISE[name]


def _check_glimpse(x: Any, size: Any, offsets: Any) -> tuple[int, int]:
    """Return height and width of glimpses.  Raises InvalidArgumentError for inputs that do not match."""
    if x.ndim != 4:
        raise errors.InvalidArgumentError(
            f"input must be 4-dimensional (batch_size, height, width, depth){shape_text(x.shape)}"
        )
    if size.shape != (2,):
        raise errors.InvalidArgumentError(f"input must be a vector of size 2 (height, width){shape_text(size.shape)}")
    if offsets.ndim != 2:
        raise errors.InvalidArgumentError(f"input must be a matrix{shape_text(offsets.shape)}")
    if len(offsets) != len(x):
        raise errors.InvalidArgumentError(f"first dimension should be batch{shape_text(offsets.shape)}")
    if offsets.shape[1] != 2:
        raise errors.InvalidArgumentError(f"second dimension should be of size 2 (y,x){shape_text(offsets.shape)}")
    height, width = size.tolist()
    for length in (height, width):
        if length < 0:
            raise errors.InvalidArgumentError(f"Expected a non-negative size, got {length}")
    return height, width


# Overhead per window: nanoseconds, and bytes of its position.
_GLIMPSE_NS, _CORNER_BYTES = 6000.0, 48


def _glimpse_cost(x: Any, size: Any, offsets: Any) -> float:
    return (_GLIMPSE_NS + 5.0 * elements_asked_for(size) * x.shape[-1]) * x.shape[0] if x.ndim else 0.0


@kernel("ExtractGlimpse", "ExtractGlimpseV2", cost=_glimpse_cost)
def extract_glimpse(c: OpKernelConstruction) -> Compute:
    """Return a window of one size from each image; noise fills the part outside the image.

    The first version always takes an offset for the window's centre, and halves it if it counts from the image's
    centre.  The second does so only if offsets are both centred and normalised; otherwise they are the window's upper
    left corner.
    """
    centred, normalized, noise, allocate = c.attr("centered"), c.attr("normalized"), _noise(c), allocator(c)
    by_centre = c.op == "ExtractGlimpse" or (centred and normalized)

    def corners(x: Any, offsets: Any, window: tuple[int, int]) -> Any:
        extent = np.array(x.shape[1:3], _F32)
        place = offsets * extent if normalized else offsets
        if centred:
            place = (place / _F32(2) if by_centre else place) + extent / _F32(2)
        if by_centre:
            place = place - np.array(window, _F32) / _F32(2)
        far = _F32(-(2**40))  # outside of any image
        return np.where(np.abs(place) < -far, place, far).astype(np.int64)

    def compute(x: Any, size: Any, offsets: Any) -> Any:
        window = _check_glimpse(x, size, offsets)
        out = allocate((len(x), *window, x.shape[3]))
        if not out.size or not x.size:
            out.fill(0)
            return out
        announce_scratch(2 * x[:1].nbytes + 3 * out[:1].nbytes + _CORNER_BYTES * len(x))
        places = row_lists(corners(x, offsets, window), _GLIMPSE_NS)
        for glimpse, image, corner in zip(out, x, places, strict=True):
            _copy_window(glimpse, image, corner, noise)
        return out

    return compute


def _copy_window(glimpse: Any, image: Any, corner: list[int], noise: Callable[..., Any]) -> None:
    spans = [
        (max(0, at), min(extent, at + length))
        for at, length, extent in zip(corner, glimpse.shape, image.shape, strict=False)
    ]
    if any(stop - start < length for (start, stop), length in zip(spans, glimpse.shape, strict=False)):
        glimpse[...] = noise(image, glimpse.shape)
    if all(start < stop for start, stop in spans):
        inside = tuple(slice(start - at, stop - at) for (start, stop), at in zip(spans, corner, strict=True))
        glimpse[inside] = image[tuple(slice(*span) for span in spans)]


@kernel("RandomCrop", T=dtypes.REAL_NUMBER, cost=0)
def random_crop(c: OpKernelConstruction) -> Compute:
    """Return a window of the given height and width at a random position in an image [height, width, channels]."""
    generator = own_generator(c)

    def compute(image: Any, size: Any) -> Any:
        if image.ndim != 3:
            raise errors.InvalidArgumentError(f"input must be 3-dimensional {shape_text(image.shape)}")
        if size.ndim != 1:
            raise errors.InvalidArgumentError(f"shape_t must be 1-dimensional: {shape_text(size.shape)}")
        if size.size != 2:
            raise errors.InvalidArgumentError(f"shape_t must have two elements: {shape_text(size.shape)}")
        wanted = size.tolist()
        for name, have, want in zip(("height", "width"), image.shape, wanted, strict=False):
            if not 0 <= want <= have:
                raise errors.FailedPreconditionError(
                    f"{name} must be >= target_{name}: {name} = {have}, target_{name} = {want}"
                )
        words = iter(generator.reserve(1).words(0, 1)[0].tolist())
        free = [have - want for have, want in zip(image.shape, wanted, strict=False)]
        # One word for each dimension with a choice, width first.
        column, row = (next(words) % (room + 1) if room else 0 for room in reversed(free))
        return image[row : row + wanted[0], column : column + wanted[1]]

    return compute
