"""Projective transformations of images: rotation, shear, perspective."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import elements_asked_for, shape_text
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.kernels.common.allocation import allocator

__all__: list[str] = []

_F32 = np.float32
_TYPES = (
    dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64,
)  # fmt: skip

# Output pixels that are processed together: their scratch stays in the cache.
_GROUP = 1 << 15
# Bytes per pixel for its position, and per channel for the values found there.
_PLACE_BYTES, _FOUND_BYTES = 48, 24


# The position inside for one outside the image, by fill_mode.  Positions are float32 and finite or NaN.


def _stay(xp: Any, place: Any, size: int) -> Any:
    return place


def _clamp(xp: Any, place: Any, size: int) -> Any:
    return xp.clip(place, 0, size - 1)


def _reflect(xp: Any, place: Any, size: int) -> Any:
    """abcd continues as dcba|abcd|dcba."""
    if size <= 1:
        return xp.where(xp.isnan(place), place, _F32(0))
    period = _F32(2 * size)
    inside = xp.where(place < -period, period * xp.trunc(-place / period) + place, place)
    below = xp.where(inside < -size, inside + period, -inside - _F32(1))
    above = place - period * xp.trunc(place / period)
    above = xp.where(above >= size, period - above - _F32(1), above)
    return _clamp(xp, xp.where(place < 0, below, xp.where(place > size - 1, above, place)), size)


def _wrap(xp: Any, place: Any, size: int) -> Any:
    """abcd continues as abcd|abcd|abcd."""
    if size <= 1:
        return xp.where(xp.isnan(place), place, _F32(0))
    last = _F32(size - 1)
    below = place + _F32(size) * (xp.trunc(-place / last) + _F32(1))
    above = place - _F32(size) * xp.trunc(place / last)
    return _clamp(xp, xp.where(place < 0, below, xp.where(place > last, above, place)), size)


_FILL_MODES = {b"CONSTANT": _stay, b"NEAREST": _clamp, b"REFLECT": _reflect, b"WRAP": _wrap}


def _places(xp: Any, transform: Any, rows: slice, columns: slice) -> tuple[Any, Any, Any]:
    """(y, x, whether that position exists) [rows, columns] in the input, for output pixels."""
    row = xp.arange(rows.start, rows.stop, dtype=_F32)[:, None]
    column = xp.arange(columns.start, columns.stop, dtype=_F32)
    t = transform
    depth = t[6] * column + t[7] * row + _F32(1)
    x = (t[0] * column + t[1] * row + t[2]) / depth
    y = (t[3] * column + t[4] * row + t[5]) / depth
    return y, x, depth != 0


def _read(xp: Any, image: Any, y: Any, x: Any, fill: Any) -> Any:
    """[..., channels] at whole positions (as floats); `fill` where there is no pixel."""
    height, width, channels = image.shape
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    if not image.size:
        return xp.full((*y.shape, channels), fill, image.dtype)
    index = xp.where(inside, y, 0).astype(np.intp) * width + xp.where(inside, x, 0).astype(np.intp)
    found = image.reshape(height * width, channels).take(index, 0)
    if xp is not np:
        return xp.where(inside[..., None], found, fill)
    if not inside.all():
        found[~inside] = fill
    return found


def _nearest(xp: Any, image: Any, y: Any, x: Any, fill: Any) -> Any:
    def rounded(place: Any) -> Any:
        return xp.copysign(xp.floor(xp.abs(place) + _F32(0.5)), place)

    return _read(xp, image, rounded(y), rounded(x), fill)


def _bilinear(xp: Any, image: Any, y: Any, x: Any, fill: Any) -> Any:
    top, left = xp.floor(y), xp.floor(x)
    bottom, right = top + _F32(1), left + _F32(1)

    def row(at: Any) -> Any:
        here, there = (_read(xp, image, at, side, fill).astype(_F32, copy=False) for side in (left, right))
        return (right - x)[..., None] * here + (x - left)[..., None] * there

    return (bottom - y)[..., None] * row(top) + (y - top)[..., None] * row(bottom)


_INTERPOLATIONS = {b"NEAREST": _nearest, b"BILINEAR": _bilinear}


def _chosen(c: OpKernelConstruction, attr: str, choices: dict[bytes, Any], what: str) -> Any:
    name = c.attr(attr)
    if name not in choices:
        supported = ", ".join(str(choice, "ascii") for choice in choices)
        text = str(name, "utf-8", "replace")
        raise errors.InvalidArgumentError(f"Invalid {what} {text}. Supported types: {supported}")
    return choices[name]


def _check(images: Any, transforms: Any, size: Any, fill: Any) -> tuple[int, int]:
    """Return height and width of the output.  Raises InvalidArgumentError for inputs that do not match."""
    if images.ndim != 4:
        raise errors.InvalidArgumentError("Input images must have rank 4")
    if transforms.ndim != 2 or transforms.shape[1] != 8 or len(transforms) not in (1, len(images)):
        raise errors.InvalidArgumentError("Input transform should be num_images x 8 or 1 x 8")
    if size.ndim != 1:
        raise errors.InvalidArgumentError(f"output shape must be 1-dimensional{shape_text(size.shape)}")
    if len(size) != 2:
        raise errors.InvalidArgumentError(f"output shape must have two elements{shape_text(size.shape)}")
    height, width = size.tolist()
    if height <= 0 or width <= 0:
        raise errors.InvalidArgumentError("output dimensions must be positive")
    if fill.ndim:
        raise errors.InvalidArgumentError(f"fill_value must be a scalar{shape_text(fill.shape)}")
    return height, width


def _blocks(height: int, width: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Yield rows and columns of at most `size` pixels: full rows, if one is no longer than that."""
    across = min(width, size)
    down = max(1, size // across)
    for top in range(0, height, down):
        for left in range(0, width, across):
            yield slice(top, min(top + down, height)), slice(left, min(left + across, width))


def _cost(images: Any, transforms: Any, size: Any, *_: Any) -> float:
    return 60.0 * elements_asked_for(size) * prod((images.shape[0], images.shape[-1])) if images.ndim == 4 else 0.0


@kernel("ImageProjectiveTransformV2", "ImageProjectiveTransformV3", dtype=_TYPES, cost=_cost)
def transform_images(c: OpKernelConstruction) -> Compute:
    """Return images of the given size: each pixel is read at the position that its transform of 8 numbers gives."""
    interpolate = _chosen(c, "interpolation", _INTERPOLATIONS, "interpolation")
    inside = _chosen(c, "fill_mode", _FILL_MODES, "mode")
    xp, dtype, allocate, no_fill = c.xp, c.attr("dtype").np, allocator(c), np.float32(0)

    def compute(images: Any, transforms: Any, size: Any, fill_value: Any = no_fill) -> Any:
        height, width = _check(images, transforms, size, fill_value)
        channels = images.shape[3]
        out = allocate((len(images), height, width, channels))
        at_once = min(height * width, max(1, _GROUP // max(1, channels)) if xp is np else height * width)
        announce_scratch(at_once * (_PLACE_BYTES + _FOUND_BYTES * channels))
        if not images.flags.c_contiguous:
            announce_scratch(images.nbytes // max(1, len(images)))
        fill = dtype.type(fill_value.astype(dtype))
        with np.errstate(all="ignore"):
            for n, image in enumerate(images):
                image = xp.ascontiguousarray(image)  # else each block would copy the whole image
                transform = transforms[n if len(transforms) > 1 else 0]
                for block in _blocks(height, width, at_once):
                    check_wanted()
                    y, x, exists = _places(xp, transform, *block)
                    y, x = inside(xp, y, image.shape[0]), inside(xp, x, image.shape[1])
                    found = interpolate(xp, image, y, x, fill).astype(dtype, copy=False)
                    all_exist = xp is np and exists.all()
                    out[n, *block] = found if all_exist else xp.where(exists[..., None], found, fill)
        return out

    return compute
