"""Colours of images [..., channels]: contrast, hue, saturation, and conversion to HSV and back.

Here hues are in sixths of the circle, from red on; the ops' inputs and outputs have hues from 0 to 1.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.kernels.common.elementwise import in_float32

__all__: list[str] = []

_F32 = np.float32
_CONTRAST_TYPES = (dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.float32, dtypes.float64)
_FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


def _check(images: Any, *scalars: tuple[str, Any]) -> None:
    if images.ndim < 3:
        raise errors.InvalidArgumentError(f"input must be at least 3-D, got shape{shape_text(images.shape)}")
    for name, value in scalars:
        if value.ndim:
            raise errors.InvalidArgumentError(f"{name} must be scalar: {shape_text(value.shape)}")


def _with_contrast(images: Any, factor: Any) -> Any:
    """Multiplies each pixel's distance from its channel's mean over the image by `factor`."""
    if not images.size:
        return images.astype(_F32)
    mean = images.mean(axis=(-3, -2), keepdims=True, dtype=_F32)
    out = images - mean
    out *= factor
    out += mean
    return out


def _contrast_scratch(images: Any, *scalars: Any) -> int:
    """Bytes of the means; for version 1, which also limits the range, of the images in float32, too."""
    means = images.size // max(1, prod(images.shape[-3:-1]))
    return 4 * int(means if len(scalars) == 1 else means + 2 * images.size)


@kernel("AdjustContrastv2", T=(dtypes.float32,), cost=5.0, scratch=_contrast_scratch)
def adjust_contrast_v2(c: OpKernelConstruction) -> Compute:
    """Moves every pixel away from, or towards, the mean of its channel."""

    def compute(images: Any, factor: Any) -> Any:
        _check(images, ("contrast_factor", factor))
        return _with_contrast(images, factor)

    return compute


@kernel("AdjustContrast", T=_CONTRAST_TYPES, cost=8.0, scratch=_contrast_scratch)
def adjust_contrast(c: OpKernelConstruction) -> Compute:
    """Like version 2, for any type, and limited to a range."""
    xp = c.xp

    def compute(images: Any, factor: Any, low: Any, high: Any) -> Any:
        _check(images, ("contrast_factor", factor), ("min_value", low), ("max_value", high))
        out = _with_contrast(images.astype(_F32, copy=False), factor)
        return xp.minimum(xp.maximum(out, low), high)

    return compute


def _planes(xp: Any, images: Any) -> Any:
    """Return [3, pixels] of [..., 3]."""
    return xp.ascontiguousarray(images.reshape(prod(images.shape[:-1]), 3).T)


def _images(xp: Any, planes: Any, shape: Any) -> Any:
    return xp.ascontiguousarray(planes.T).reshape(shape)


def _hue(xp: Any, planes: Any, high: Any, spread: Any) -> Any:
    """Hues in [-1, 5]; 0 for greys."""
    red, green, blue = planes
    hue = xp.where(
        red == high, green - blue, xp.where(green == high, blue - red + 2 * spread, red - green + 4 * spread)
    )
    with np.errstate(all="ignore"):
        hue /= spread
    hue[~(spread > 0)] = 0
    return hue


def _purities(xp: Any, hue: Any) -> Any:
    """[3, pixels]: the share of the colours' spread that red, green and blue have, for hues in [0, 6]."""
    one = hue.dtype.type(1)
    out = xp.stack([xp.abs(hue - 3 * one) - one, 2 * one - xp.abs(hue - 2 * one), 2 * one - xp.abs(hue - 4 * one)])
    return xp.clip(out, 0, one, out=out)


def _check_channels(images: Any) -> None:
    if images.shape[-1] != 3:
        raise errors.InvalidArgumentError(f"input must have 3 channels but instead has {images.shape[-1]} channels.")


@kernel("AdjustHue", T=(dtypes.float32,), cost=30.0, scratch=20)
def adjust_hue(c: OpKernelConstruction) -> Compute:
    """Turns hues by a fraction of the circle."""
    xp = c.xp

    def compute(images: Any, delta: Any) -> Any:
        _check(images, ("delta", delta))
        _check_channels(images)
        planes = _planes(xp, images)
        high, low = planes.max(axis=0), planes.min(axis=0)
        spread = high - low
        with np.errstate(all="ignore"):
            hue = xp.mod(_hue(xp, planes, high, spread) + delta * _F32(6), _F32(6))
            return _images(xp, _purities(xp, hue) * spread + low, images.shape)

    return compute


@kernel("AdjustSaturation", T=(dtypes.float32,), cost=30.0, scratch=20)
def adjust_saturation(c: OpKernelConstruction) -> Compute:
    """Multiplies saturations by a factor, up to 1."""
    xp = c.xp

    def compute(images: Any, scale: Any) -> Any:
        _check(images, ("scale", scale))
        _check_channels(images)
        planes = _planes(xp, images)
        high = planes.max(axis=0)
        spread = high - planes.min(axis=0)
        hue = _hue(xp, planes, high, spread)
        with np.errstate(all="ignore"):
            saturation = xp.where(high > 0, spread / high, _F32(0)) * scale
            spread = xp.clip(saturation, 0, 1) * high
            purities = _purities(xp, xp.where(hue < 0, hue + _F32(6), hue))
            return _images(xp, purities * spread + (high - spread), images.shape)

    return compute


def _check_last(images: Any) -> None:
    if images.ndim < 1:
        raise errors.InvalidArgumentError(f"input must be at least 1D{shape_text(images.shape)}")
    if images.shape[-1] != 3:
        raise errors.FailedPreconditionError(
            f"input must have 3 channels but input only has {images.shape[-1]} channels."
        )


def _rgb_to_hsv(xp: Any, images: Any) -> Any:
    _check_last(images)
    planes = _planes(xp, images)
    high = planes.max(axis=0)
    spread = high - planes.min(axis=0)
    hue = _hue(xp, planes, high, spread)
    hue /= 6
    hue[hue < 0] += 1
    with np.errstate(all="ignore"):
        saturation = xp.where(high > 0, spread / high, high.dtype.type(0))
    return _images(xp, xp.stack([hue, saturation, high]), images.shape)


def _hsv_to_rgb(xp: Any, images: Any) -> Any:
    _check_last(images)
    hue, saturation, value = _planes(xp, images)
    one = value.dtype.type(1)
    return _images(xp, (one - saturation + saturation * _purities(xp, hue * 6)) * value, images.shape)


@kernel("RGBToHSV", T=_FLOATS, cost=25.0, scratch=24)
def rgb_to_hsv(c: OpKernelConstruction) -> Compute:
    """Return hue, saturation and value, each in [0, 1] if red, green and blue are."""
    return in_float32(c, partial(_rgb_to_hsv, c.xp))


@kernel("HSVToRGB", T=_FLOATS, cost=20.0, scratch=24)
def hsv_to_rgb(c: OpKernelConstruction) -> Compute:
    """Return red, green and blue."""
    return in_float32(c, partial(_hsv_to_rgb, c.xp))
