"""The contents of summaries: histograms, pictures, sounds and tensors as messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import errors
from aexec.framework.memory.allocator import Growth, announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.audio.wav import write_wav
from aexec.kernels.image.codecs import encode_png, png_scratch

__all__ = ["histogram", "pictures", "sounds"]

# Bytes per pixel value: a float, its byte, and temporaries.
_PIXEL_BYTES = 24
# Nanoseconds and bytes of a value, besides its contents.
_VALUE_NS, _VALUE_BYTES = 20_000.0, 400
_GREATEST = float(np.finfo(np.float64).max)


@cache
def _limits() -> Any:
    """Upper limits of the buckets: geometric from 1e-12 up, the same below zero, and zero."""
    limits, limit = [], 1e-12
    while limit < 1e20:
        limits.append(limit)
        limit *= 1.1
    limits.append(_GREATEST)
    return np.array([*(-v for v in reversed(limits)), 0.0, *limits])


def histogram(values: Any, name: str) -> proto.HistogramProto:
    """Counts of values of any shape; runs of empty buckets are merged.

    Raises:
        InvalidArgumentError: NaN or infinity among them; the message has the node's `name`.
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
        # Summed in order, since the last digits depend on it.
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


def _pixels(image: Any, bad_color: Any) -> Any:
    """uint8 of an image [height, width, channels]: floats are scaled to their range; pixels with bad floats get
    `bad_color`.

    Images with negative numbers have zero at 128.
    """
    if image.dtype == np.uint8:
        return image
    kind = image.dtype.type
    finite = np.isfinite(image).all(axis=2)
    good = image[finite]
    # The range, and the scale of non-negative images, are float32, even for doubles.
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


def _picture(image: Any) -> proto.Summary.Image:
    """A PNG of uint8 [height, width, channels]."""
    height, width, channels = image.shape
    return proto.Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=encode_png(image))


def _sound(audio: Any, sample_rate: float) -> proto.Summary.Audio:
    """A WAV file of float32 [samples, channels], with an integer rate."""
    return proto.Summary.Audio(
        sample_rate=sample_rate,
        num_channels=audio.shape[1],
        length_frames=len(audio),
        encoded_audio_string=write_wav(audio, round(sample_rate)),
        content_type="audio/wav",
    )


def _values(
    tag: str, kind: str, most: int, items: Iterable[Any], message_of: Callable[[Any], Any]
) -> Iterator[proto.Summary.Value]:
    """Yield a value for each item; the tags have numbers if `most` allows more than one.

    Args:
        kind: the field of a value that `message_of` makes of an item.
    """
    growth = Growth(joined=True)
    for number, item in enumerate(giving_way(items, _VALUE_NS)):
        name = f"{tag}/{kind}/{number}" if most > 1 else f"{tag}/{kind}"
        value = proto.Summary.Value(tag=name, **{kind: message_of(item)})
        growth.add(value.ByteSize() + _VALUE_BYTES)
        yield value


def pictures(tag: str, images: Any, most: int, bad_color: Any) -> Iterator[proto.Summary.Value]:
    """Yield the first `most` images of [n, height, width, 1, 3 or 4].

    Raises:
        InvalidArgumentError: the shape is another one, or `bad_color`, uint8, has too few channels.
    """
    if images.ndim != 4 or images.shape[3] not in (1, 3, 4):
        raise errors.InvalidArgumentError(
            f"Tensor must be 4-D with last dim 1, 3, or 4, not {shape_text(images.shape)}"
        )
    if len(images) and not images.size:
        raise errors.InvalidArgumentError(
            f"input tensor must have non-zero dims. Found: [{', '.join(map(str, images.shape))}]."
        )
    if images.dtype != np.uint8 and images.shape[3] > len(bad_color):
        raise errors.InvalidArgumentError(
            f"expected depth <= bad_color.size, got depth = {images.shape[3]}, bad_color.size = {len(bad_color)}"
        )
    for image in images[:1]:  # they have one shape, and are encoded one after the other
        announce_scratch(max(_PIXEL_BYTES * image.size, png_scratch(image.size)))
    return _values(tag, "image", most, images[:most], lambda image: _picture(_pixels(image, bad_color)))


def sounds(tag: str, audio: Any, sample_rate: Any, most: int) -> Iterator[proto.Summary.Value]:
    """Yield the first `most` sounds of [n, samples] or [n, samples, channels].

    Raises:
        InvalidArgumentError: the shape is another one, or the sample rate is not valid.
    """
    if audio.ndim not in (2, 3):
        raise errors.InvalidArgumentError(f"Tensor must be 3-D or 2-D, got: {shape_text(audio.shape)}")
    if sample_rate.size != 1:
        raise errors.InvalidArgumentError(f"sample_rate must be a scalar, got: {shape_text(sample_rate.shape)}")
    rate = float(sample_rate.item())
    if not 0.5 < rate < 2**32 - 0.5:  # rounds to a rate that a WAV file can have
        raise errors.InvalidArgumentError("sample_rate must be > 0")
    some = audio[:most] if audio.ndim == 3 else audio[:most, :, None]
    return _values(tag, "audio", most, some, lambda sound: _sound(sound, rate))
