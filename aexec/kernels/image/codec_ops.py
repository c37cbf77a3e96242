"""Decoding and encoding images.

The ops for JPEG, PNG and GIF decode each other's formats, too.
Next to read: `codecs.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.abridged_text import abridged_list
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.common.allocation import allocator
from aexec.kernels.image import codecs

__all__: list[str] = []

_UNKNOWN = "Unknown image file format. One of JPEG, JPEG XL, PNG, GIF, BMP, WebP required."
_PILLOW = tuple(f"PIL.{form}ImagePlugin" for form in ("Bmp", "Gif", "Jpeg", "Png", "Ppm", "WebP"))
_DCT_METHODS = (b"", b"INTEGER_FAST", b"INTEGER_ACCURATE")


def _cost(contents: Any, *_: Any) -> float:
    """Always too much for the event loop, however short the data: a few bytes may become a large image."""
    return max(1e6, 0.0 if contents.ndim else 30.0 * len(contents.item()))


def _checked_contents(contents: Any) -> bytes:
    if contents.ndim:
        raise errors.InvalidArgumentError(f"`contents` must be scalar but got shape{shape_text(contents.shape)}")
    data: bytes = contents.item()
    if not data:
        raise errors.InvalidArgumentError("Input is empty.")
    return data


def _room(c: OpKernelConstruction) -> codecs.CheckSize:
    """A function that allocates an image, [height, width, channels] or of several frames, after checking its pixels."""
    allocate, most = allocator(c), c.max_image_pixels

    def room(shape: tuple[int, ...]) -> Any:
        pixels = math.prod(shape[:-1])
        if most is not None and pixels > most:
            raise errors.ResourceExhaustedError(
                f"An image of shape {shape_text(shape)} has {pixels} pixels, more than the {most} of "
                "SessionConfig.max_image_pixels"
            )
        return allocate(shape)

    return room


def _scaled(image: Any, dtype: Any) -> Any:
    """8 bit values as uint16 in steps of 256, or as floats up to 1."""
    if dtype == np.uint8:
        return image
    return image.astype(np.uint16) * np.uint16(256) if dtype == np.uint16 else image * np.float32(1 / 255)


@dataclass(frozen=True, slots=True)
class _JpegOptions:
    """Checked attrs of the ops that decode JPEG; the accurate transform and the fancy upscaling are always used."""

    ratio: int = 1
    recover: bool = False

    @classmethod
    def of(cls, c: OpKernelConstruction) -> _JpegOptions:
        if "ratio" not in c.attrs:
            return cls()
        ratio = c.attr("ratio")
        if ratio not in (1, 2, 4, 8):
            raise errors.InvalidArgumentError(f"ratio must be 1, 2, 4, or 8, got {ratio}")
        if c.attr("dct_method") not in _DCT_METHODS:
            raise errors.InvalidArgumentError("dct_method must be one of {'', 'INTEGER_FAST', 'INTEGER_ACCURATE'}")
        # Requiring all lines means requiring the whole image.
        return cls(ratio, c.attr("try_recover_truncated") and c.attr("acceptable_fraction") < 1)


def _checked_channels(c: OpKernelConstruction) -> int:
    channels: int = 3 if c.op == "DecodeGif" else c.attrs.get("channels", 0)
    if c.op not in ("DecodeBmp", "DecodeWebP") and channels not in (0, 1, 3, 4):
        raise errors.InvalidArgumentError(f"`channels` must be 0, 1, 3 or 4 but got {channels}")
    return channels


def _wrong_op(op: str, kind: str) -> errors.InvalidArgumentError:
    if op == "DecodeBmp":
        return errors.InvalidArgumentError(
            f"Trying to decode {kind.upper()} format using DecodeBmp op. Use `decode_{kind}` or `decode_image` instead."
        )
    return errors.InvalidArgumentError(
        f"Trying to decode BMP format using a wrong op. Use `decode_bmp` or `decode_image` instead. Op used: {op}"
    )


@kernel(
    "DecodeJpeg",
    "DecodePng",
    "DecodeGif",
    "DecodeBmp",
    "DecodeImage",
    "DecodeWebP",
    "DecodeAndCropJpeg",
    cost=_cost,
    needs=_PILLOW,
)
def decode(c: OpKernelConstruction) -> Compute:
    """Return [height, width, channels], or [frames, height, width, channels] of formats that allow animations.

    Data that is broken, empty, of another format or larger than 2**30 bytes when decoded is refused with
    InvalidArgumentError, an image with more pixels than allowed with ResourceExhaustedError.
    """
    op, dtype, channels = c.op, c.output_types[0].np, _checked_channels(c)
    options, allocate = _JpegOptions.of(c), _room(c)
    expand = op in ("DecodeGif", "DecodeImage", "DecodeWebP") and c.attrs.get("expand_animations", True)

    def jpeg(data: bytes) -> Any:
        if channels == 4:
            raise errors.InvalidArgumentError("JPEG does not support 4 channels")
        image = codecs.decode_jpeg(data, channels, allocate, ratio=options.ratio, recover=options.recover)
        return _scaled(image, dtype)

    def png(data: bytes) -> Any:
        if dtype != np.float32:
            return codecs.decode_png(data, channels, dtype.type, allocate)
        return codecs.decode_png(data, channels, np.uint16, allocate) * np.float32(1 / 65535)

    def gif(data: bytes) -> Any:
        if channels not in (0, 3):
            raise errors.InvalidArgumentError(f"channels must be 0 or 3 for GIF, got {channels}")
        still = op == "DecodeImage" and not expand
        frames = codecs.decode_gif(data, allocate, 1 if still else None)
        if expand:
            return _scaled(frames, dtype)
        if len(frames) != 1:
            raise errors.InvalidArgumentError(
                f"Got {len(frames)} frames, but animated gifs can only be decoded by tf.io.decode_gif or "
                "tf.io.decode_image"
            )
        return _scaled(frames[0], dtype)

    def bmp(data: bytes) -> Any:
        return _scaled(codecs.decode_bmp(data, channels, allocate), dtype)

    def webp(data: bytes) -> Any:
        if dtype != np.uint8:
            raise errors.InvalidArgumentError("WebP only supports uint8 for dtype")
        still = op == "DecodeImage" and not expand
        frames = codecs.decode_webp(data, channels, allocate, 1 if still else None)
        return frames[0] if still else frames

    decoders = {"jpeg": jpeg, "png": png, "gif": gif, "bmp": bmp, "webp": webp}

    def compute(contents: Any) -> Any:
        data = _checked_contents(contents)
        kind = codecs.classify(data)
        if not kind:
            raise errors.InvalidArgumentError(_UNKNOWN)
        if op != "DecodeImage" and kind != "webp" and (op == "DecodeBmp") != (kind == "bmp"):
            raise _wrong_op(op, kind)
        image = decoders[kind](data)
        # A still image gets a dimension for frames if the op promises one.
        return image[None] if op in ("DecodeGif", "DecodeWebP") and image.ndim == 3 else image

    def compute_crop(contents: Any, window: Any) -> Any:
        if window.shape != (4,):
            raise errors.InvalidArgumentError(f"crop_size must have four elements {shape_text(window.shape)}")
        image = jpeg(_checked_contents(contents))
        top, left, height, width = window.tolist()
        if min(top, left) < 0 or min(height, width) <= 0 or top + height > len(image) or left + width > image.shape[1]:
            raise errors.InvalidArgumentError("jpeg::Uncompress failed. Invalid JPEG data or crop window.")
        return image[top : top + height, left : left + width]

    return compute_crop if op == "DecodeAndCropJpeg" else compute


@kernel("ExtractJpegShape", output_type=(dtypes.int32, dtypes.int64), cost=0, needs=_PILLOW)
def extract_jpeg_shape(c: OpKernelConstruction) -> Compute:
    """Return [height, width, channels] as a vector, from the header alone."""
    dtype = c.attr("output_type").np
    return lambda contents: np.array(codecs.jpeg_shape(_checked_contents(contents)), dtype)


def _encoded(data: bytes) -> Any:
    out = np.empty((), object)
    out[()] = data
    return out


# The format has 16 bits for height and width.
_LONGEST_JPEG = 65_535


def _check_jpeg_image(image: Any) -> None:
    if image.ndim != 3:
        raise errors.InvalidArgumentError(f"image must be 3-dimensional{shape_text(image.shape)}")
    if max(image.shape[:2]) > _LONGEST_JPEG:
        raise errors.InvalidArgumentError(
            f"image must have at most {_LONGEST_JPEG} rows and columns, got {shape_text(image.shape)}"
        )


def _check_quality(quality: int) -> None:
    if not 0 <= quality <= 100:
        raise errors.InvalidArgumentError(f"quality must be in [0,100], got {quality}")


@kernel("EncodeJpeg", cost=20.0, needs=_PILLOW)
def encode_jpeg(c: OpKernelConstruction) -> Compute:
    """Return a JPEG of uint8 [height, width, 1 or 3]."""
    _check_quality(c.attr("quality"))
    name = c.text("format")
    options = {
        "quality": c.attr("quality"),
        "progressive": c.attr("progressive"),
        "optimize": c.attr("optimize_size"),
        "downsample": c.attr("chroma_downsampling"),
        "density": (c.attr("x_density"), c.attr("y_density")),
        "per_centimetre": c.attr("density_unit") == b"cm",
        "xmp": c.attr("xmp_metadata"),
    }
    wanted = {"grayscale": 1, "rgb": 3}.get(name)

    def compute(image: Any) -> Any:
        _check_jpeg_image(image)
        channels = image.shape[2]
        if wanted is not None and channels != wanted:
            raise errors.InvalidArgumentError(f"format {name} expects {wanted} channels, got {shape_text(image.shape)}")
        if channels not in (1, 3):
            raise errors.InvalidArgumentError(f"image must have 1 or 3 channels, got {shape_text(image.shape)}")
        return _encoded(codecs.encode_jpeg(image, **options))

    return compute


@kernel("EncodeJpegVariableQuality", cost=20.0, needs=_PILLOW)
def encode_jpeg_variable_quality(c: OpKernelConstruction) -> Compute:
    """Like `encode_jpeg`, with the quality as an input."""

    def compute(image: Any, quality: Any) -> Any:
        _check_jpeg_image(image)
        if quality.ndim:
            raise errors.InvalidArgumentError(f"quality must be scalar: {shape_text(quality.shape)}")
        _check_quality(int(quality))
        if image.shape[2] not in (1, 3):
            raise errors.InvalidArgumentError(f"image must have 1 or 3 channels, got {shape_text(image.shape)}")
        return _encoded(codecs.encode_jpeg(image, quality=int(quality)))

    return compute


# Nanoseconds of an image besides those for its bytes.
_PNG_NS = 30_000.0


def _png_cost(images: Any) -> float:
    """By bytes and by images, since there may be many small images."""
    return float(60.0 * images.size + _PNG_NS * math.prod(images.shape[:-3]))


@kernel("EncodePng", cost=_png_cost)
def encode_png(c: OpKernelConstruction) -> Compute:
    """Return a PNG of each image [..., height, width, 1 to 4 channels]."""
    compression = c.attr("compression")
    if not -1 <= compression <= 9:
        raise errors.InvalidArgumentError(f"compression should be in [-1,9], got {compression}")

    def compute(images: Any) -> Any:
        if images.ndim < 3:
            raise errors.InvalidArgumentError(f"images must be at least rank 3{shape_text(images.shape)}")
        if images.shape[-1] not in (1, 2, 3, 4):
            raise errors.InvalidArgumentError(f"image must have 1, 2, 3, or 4 channels, got {images.shape[-1]}")
        count = math.prod(images.shape[:-3])
        if count and not images.size:
            numbers = abridged_list(range(count), ",")
            raise errors.InvalidArgumentError(
                f"PNG encoding failed at the following flattened batch indices: {numbers}"
            )
        out = np.empty(images.shape[:-3], object)
        if not count:  # NumPy would multiply the sizes other than 0
            return out
        announce_scratch(codecs.png_scratch(images.nbytes // count))
        for place in giving_way(np.ndindex(out.shape), _PNG_NS):
            out[place] = codecs.encode_png(images[place], compression)
        return out

    return compute
