"""What summaries are made of: histograms, pictures and sounds as messages."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import errors
from aexec.kernels._image_codecs import encode_png
from aexec.kernels._wav import write_wav

__all__ = ["histogram", "picture", "pixels", "sound"]

_GREATEST = float(np.finfo(np.float64).max)


@cache
def _limits() -> Any:
    """Where buckets end: geometric from 1e-12 up, the same below zero, and zero."""
    limits, limit = [], 1e-12
    while limit < 1e20:
        limits.append(limit)
        limit *= 1.1
    limits.append(_GREATEST)
    return np.array([*(-v for v in reversed(limits)), 0.0, *limits])


def histogram(values: Any, name: str) -> proto.HistogramProto:
    """Counts of values of any shape; runs of empty buckets are drawn together.

    Raises:
        InvalidArgumentError: NaN or infinity among them; it says the node's `name`.
    """
    flat = values.ravel().astype(np.float64)
    odd = flat[~np.isfinite(flat)]
    if odd.size:
        what = "Nan in summary histogram" if np.isnan(odd[0]) else "Infinity in Histogram"
        raise errors.InvalidArgumentError(f"{what} for: {name}")
    if not flat.size:
        return proto.HistogramProto(min=_GREATEST, max=-_GREATEST, bucket_limit=[_GREATEST], bucket=[0.0])
    limits = _limits()
    places = np.minimum(limits.searchsorted(flat, "right"), len(limits) - 1)
    counts = np.bincount(places, minlength=len(limits))
    # A bucket is kept unless it and the next one are empty.
    kept = counts > 0
    kept[:-1] |= counts[1:] > 0
    kept[-1] = True
    with np.errstate(over="ignore"):
        # Added up one by one, as the digits of a sum depend on the order.
        total, squares = (float(np.cumsum(v)[-1]) + 0.0 for v in (flat, flat * flat))
    return proto.HistogramProto(
        min=flat.min(),
        max=flat.max(),
        num=flat.size,
        sum=total,
        sum_squares=squares,
        bucket_limit=limits[kept].tolist(),
        bucket=counts[kept].astype(np.float64).tolist(),
    )


def pixels(image: Any, bad_color: Any) -> Any:
    """uint8 of an image [height, width, channels]: floats are scaled to their range, bad ones get `bad_color`.

    Images with negative numbers have zero at 128.
    """
    if image.dtype == np.uint8:
        return image
    kind = image.dtype.type
    finite = np.isfinite(image).all(axis=2)
    good = image[finite]
    # The range is looked at in float32, even of doubles, and so is the scale of what has no sign.
    low, high = (np.float32(v) for v in ((good.min(), good.max()) if good.size else (0, 0)))
    if low < 0:
        reach, offset = kind(max(abs(low), abs(high))), kind(128)
        scale = kind(0) if reach < kind(1e-6) else kind(127) / reach
    else:
        offset = kind(0)
        scale = kind(0) if high < kind(1e-6) else kind(np.float32(255) / high)
    out = np.empty(image.shape, np.uint8)
    out[finite] = (good * scale + offset).astype(np.uint8)
    out[~finite] = bad_color[: image.shape[2]]
    return out


def picture(image: Any) -> proto.Summary.Image:
    """A PNG of uint8 [height, width, channels]."""
    height, width, channels = image.shape
    return proto.Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=encode_png(image))


def sound(audio: Any, sample_rate: float) -> proto.Summary.Audio:
    """A WAV file of float32 [samples, channels]."""
    return proto.Summary.Audio(
        sample_rate=sample_rate,
        num_channels=audio.shape[1],
        length_frames=len(audio),
        encoded_audio_string=write_wav(audio, int(sample_rate)),
        content_type="audio/wav",
    )
