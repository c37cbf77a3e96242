"""Encoded images: recognising formats, decoding them to arrays, encoding arrays.

Pillow decodes JPEG, PNG, GIF and WebP, by the class of the format that the data claims to have, so that no other of its
many decoders runs.  BMP, and images that Pillow would reduce to 8 bits, are decoded here.  A few bytes may claim to be
an image of gigabytes: sizes are checked before anything is decoded.  An error that a decoder raises for broken data
becomes the `InvalidArgumentError` that TensorFlow raises for the format.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.framework.waiting.loop_budget import giving_way
from aexec.framework.waiting.thrown_errors import forget_frames

__all__ = [
    "CheckSize",
    "classify",
    "decode_bmp",
    "decode_gif",
    "decode_jpeg",
    "decode_png",
    "decode_webp",
    "encode_jpeg",
    "encode_png",
    "jpeg_shape",
    "png_scratch",
]

Array = Any
CheckSize = Callable[[tuple[int, ...]], Any]
"""Raises ResourceExhaustedError if an image of this shape does not fit into memory."""

_MAX_BYTES = 1 << 30
# Nanoseconds for a frame of an animation, and for each of its pixels.
_FRAME_NS, _PIXEL_NS = 30_000.0, 10.0
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_MAGICS = ((b"\xff\xd8\xff", "jpeg"), (_PNG_MAGIC, "png"), (b"GIF8", "gif"), (b"BM", "bmp"))


def classify(data: bytes) -> str:
    """The format by the first bytes: jpeg, png, gif, bmp, webp, or "" for another one."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return next((name for magic, name in _MAGICS if data.startswith(magic)), "")


@contextmanager
def _refusing(message: str) -> Iterator[None]:
    """Context manager: raises a decoder's errors as TensorFlow's.  Broken data make decoders raise nearly any
    exception.
    """
    try:
        yield
    except (errors.OpError, MemoryError):
        raise
    except Exception as error:
        forget_frames(error)
        raise errors.InvalidArgumentError(message) from error


def _check_shape(shape: tuple[int, ...], check_size: CheckSize) -> Any:
    """Reserves memory for an image of this shape and for Pillow's own; the caller holds the result while it decodes."""
    if min(shape) <= 0:
        raise ValueError("an empty image")
    size = int(np.prod(shape, dtype=object))
    if size >= _MAX_BYTES:
        raise errors.InvalidArgumentError(f"Total possible pixel bytes must be less than 2^30, got {size}")
    # Pillow needs four bytes for each pixel of one frame.
    return check_size(shape), check_size((*shape[-3:-1], 4))


def _pixels(image: Any) -> Array:
    """[height, width, channels] of a loaded image."""
    array = np.asarray(image)
    return array[:, :, None] if array.ndim == 2 else array


# JPEG

_JPEG_REFUSED = "jpeg::Uncompress failed. Invalid JPEG data or crop window."


def decode_jpeg(data: bytes, channels: int, check_size: CheckSize, *, ratio: int = 1, recover: bool = False) -> Array:
    """Return uint8 [height, width, channels].

    Args:
        channels: 1 or 3, or 0 for the image's own.
        ratio: 1, 2, 4 or 8, by which the image is reduced.
        recover: decode as much of truncated data as there is.
    """
    from PIL.JpegImagePlugin import JpegImageFile

    with _refusing(_JPEG_REFUSED):
        image = JpegImageFile(io.BytesIO(data + b"\xff\xd9" if recover else data))
        width, height = image.size
        room = _check_shape((height, width, 3), check_size)
        wanted = {1: "L", 3: "RGB"}.get(channels, "L" if image.mode == "L" else "RGB")
        # Slightly below the exact size, since Pillow rounds the division.  It accepts floats, in spite of its
        # annotation.
        size: Any = (width / ratio * 0.999, height / ratio * 0.999) if ratio > 1 else None
        image.draft("L" if wanted == "L" and image.mode != "CMYK" else None, size)
        image.load()
        found = _pixels(image if image.mode == wanted else image.convert(wanted))
        del room
        return found


def jpeg_shape(data: bytes) -> tuple[int, int, int]:
    """Return (height, width, channels), from the header."""
    from PIL.JpegImagePlugin import JpegImageFile

    with _refusing(f"Invalid JPEG data, size {len(data)}"):
        image = JpegImageFile(io.BytesIO(data))
        return image.size[1], image.size[0], image.layers


def encode_jpeg(
    image: Array,
    *,
    quality: int,
    progressive: bool = False,
    optimize: bool = False,
    downsample: bool = True,
    density: tuple[int, int] = (300, 300),
    per_centimetre: bool = False,
    xmp: bytes = b"",
) -> bytes:
    """A JPEG of uint8 [height, width, 1 or 3].  Raises InvalidArgumentError if it cannot be encoded."""
    from PIL import Image

    out = io.BytesIO()
    try:
        Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(
            out,
            "JPEG",
            quality=quality,
            progressive=progressive,
            optimize=optimize,
            subsampling=-1 if image.shape[2] == 1 else 2 if downsample else 0,
            dpi=density,
        )
    except (OSError, ValueError, SystemError, struct.error) as error:
        raise errors.InvalidArgumentError("JPEG encoding failed") from error
    data = out.getvalue()
    # The first segment, JFIF, ends at byte 20; its byte 13 is the unit of density.
    head, rest = bytearray(data[:20]), data[20:]
    if per_centimetre:
        head[13] = 2
    if not xmp:
        return bytes(head) + rest
    payload = b"http://ns.adobe.com/xap/1.0/\0" + xmp
    if len(payload) + 2 > 0xFFFF:
        raise errors.InvalidArgumentError("JPEG encoding failed")
    return bytes(head) + b"\xff\xe1" + struct.pack(">H", len(payload) + 2) + payload + rest


# PNG

_PNG_NOT_BEGUN = "Invalid PNG. Failed to initialize decoder."
_HEADER = struct.Struct(">IIBBBBB")
_CHANNELS_OF = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
_GREY, _COLOR, _GREY_ALPHA, _COLOR_ALPHA = 0, 2, 4, 6


def decode_png(data: bytes, channels: int, dtype: Any, check_size: CheckSize) -> Array:
    """Return uint8 or uint16 [height, width, channels].

    Args:
        channels: 1, 3 or 4, or 0 for the image's own.
        dtype: values of the other width are scaled, so that the maximum becomes the maximum.
    """
    with _refusing(_PNG_NOT_BEGUN):
        if data[12:16] != b"IHDR":
            raise ValueError("no header")
        width, height, depth, kind, _, _, interlaced = _HEADER.unpack_from(data, 16)
        room = _check_shape((height, width, _CHANNELS_OF[kind] * (2 if depth == 16 else 1)), check_size)
    with _refusing(f"Invalid PNG data, size {len(data)}"):
        # Grey is computed from the full 16 bits, for every output type.
        if depth == 16 and kind != _GREY and (np.dtype(dtype).itemsize == 2 or channels == 1):
            found = _png_16(data, width, height, kind, interlaced)
        else:
            found = _png_by_pillow(data, keep_alpha=channels in (0, 4))
    del room
    found = _with_channels(found, channels)
    if found.dtype == dtype:
        return found
    return (found >> 8).astype(dtype) if found.dtype == np.uint16 else found.astype(dtype) * dtype(257)


def _png_by_pillow(data: bytes, *, keep_alpha: bool) -> Array:
    from PIL.PngImagePlugin import PngImageFile

    image: Any = PngImageFile(io.BytesIO(data))
    image.load()
    if image.mode == "P":
        transparent = keep_alpha and "transparency" in image.info
        image = image.convert("RGBA" if transparent else "RGB")
    elif image.mode == "1":
        image = image.convert("L")
    elif image.mode.startswith("I"):
        return _pixels(image).astype(np.uint16)
    return _pixels(image)


def _with_channels(found: Array, channels: int) -> Array:
    """Converts an image of any kind to grey, colour, or colour with alpha."""
    have, top = found.shape[2], np.iinfo(found.dtype).max
    if channels in (0, have):
        return found
    color, alpha = (found[:, :, :-1], found[:, :, -1:]) if have in (2, 4) else (found, None)
    if channels == 1:
        return color if color.shape[2] == 1 else _grey(color)
    color = np.repeat(color, 3, axis=2) if color.shape[2] == 1 else color
    if channels == 3:
        return color
    return np.concatenate([color, np.full_like(color[:, :, :1], top) if alpha is None else alpha], axis=2)


def _grey(color: Array) -> Array:
    """Grey as libpng computes it: weights in 1/32768, rounded for 16 bits and truncated for 8."""
    red, green, blue = (color[:, :, i].astype(np.uint32) for i in range(3))
    total = red * 9797 + green * 19234 + blue * 3737
    if color.dtype == np.uint16:
        total += 16384
    return (total >> 15).astype(color.dtype)[:, :, None]


def _png_16(data: bytes, width: int, height: int, kind: int, interlaced: int) -> Array:
    """Return uint16 with several channels, which Pillow would reduce to 8 bits."""
    if interlaced:
        raise errors.UnimplementedError("Interlaced PNG images of 16 bits per channel are not supported")
    step = _CHANNELS_OF[kind] * 2
    size = height * (1 + width * step)
    raw = zlib.decompressobj().decompress(b"".join(_png_data(data)), size)
    lines = np.frombuffer(raw, np.uint8, size).reshape(height, 1 + width * step)
    flat = _unfiltered(lines[:, 0], lines[:, 1:].reshape(height, width, step))
    return flat.view(">u2").astype(np.uint16)


def _png_data(data: bytes) -> Iterator[bytes]:
    """Yield the parts of the compressed image in order."""
    place = len(_PNG_MAGIC)
    while place + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, place)
        if data[place + 4 : place + 8] == b"IDAT":
            yield data[place + 8 : place + 8 + length]
        place += 12 + length


def _unfiltered(filters: Array, lines: Array) -> Array:
    """Return uint8 [height, width, bytes] of filtered lines.

    A pixel depends on those to the left, above, and above left; so the pixels of one diagonal do not depend on each
    other.
    """
    if (filters > 4).any():
        raise ValueError("no such filter")
    height, width, step = lines.shape
    out = np.zeros((height + 1, width + 1, step), np.int16)
    for diagonal in range(height + width - 1):
        y = np.arange(max(0, diagonal - width + 1), min(height, diagonal + 1))
        x = diagonal - y
        left, above, corner = out[y + 1, x], out[y, x + 1], out[y, x]
        guesses = (np.zeros_like(left), left, above, (left + above) >> 1, _paeth(left, above, corner))
        guess = np.choose(filters[y][:, None], guesses)
        out[y + 1, x + 1] = (lines[y, x] + guess) & 0xFF
    return out[1:, 1:].astype(np.uint8)


def _paeth(left: Array, above: Array, corner: Array) -> Array:
    """Of the three (int16), the one closest to left + above - corner."""
    to_left, to_above = np.abs(above - corner), np.abs(left - corner)
    to_corner = np.abs(left + above - 2 * corner)
    near_above = np.where(to_above <= to_corner, above, corner)
    return np.where((to_left <= to_above) & (to_left <= to_corner), left, near_above)


# Bytes per byte of an image: its neighbours and their differences, in 16 bits.
_PNG_BYTES = 18


def png_scratch(num_bytes: int) -> int:
    """The bytes that `encode_png` needs while it encodes an image of `num_bytes`."""
    return _PNG_BYTES * num_bytes


def encode_png(image: Array, compression: int = -1) -> bytes:
    """A PNG of uint8 or uint16 [height, width, 1 to 4 channels]; compression is zlib's level, -1 its own choice."""
    height, width, channels = image.shape
    depth = image.dtype.itemsize
    kind = {1: _GREY, 2: _GREY_ALPHA, 3: _COLOR, 4: _COLOR_ALPHA}[channels]
    pixels = image.astype(f">u{depth}").view(np.uint8).reshape(height, width, channels * depth)
    around = np.zeros((height + 1, width + 1, channels * depth), np.int16)
    around[1:, 1:] = pixels
    guess = _paeth(around[1:, :-1], around[:-1, 1:], around[:-1, :-1])
    lines = np.full((height, 1 + width * channels * depth), 4, np.uint8)
    lines[:, 1:] = ((pixels - guess) & 0xFF).reshape(height, -1)
    header = _HEADER.pack(width, height, 8 * depth, kind, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), compression)), (b"IEND", b""))
    return _PNG_MAGIC + b"".join(_png_chunk(*part) for part in parts)


def _png_chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


# GIF and WebP


def _room_for_frames(image: Any, channels: int, check_size: CheckSize, most: int | None = None) -> Array:
    """An array for at most `most` of the image's frames."""
    count = getattr(image, "n_frames", 1)
    shape = (count if most is None else min(count, most), image.size[1], image.size[0], channels)
    _check_shape(shape, check_size)
    return np.empty(shape, np.uint8)


def decode_gif(data: bytes, check_size: CheckSize, most: int | None = None) -> Array:
    """Return uint8 [frames, height, width, 3] of at most `most` frames.

    As in TensorFlow, each frame is drawn over those before it, without regard to its disposal method, and unpainted
    pixels are black.
    """
    from PIL.GifImagePlugin import GifImageFile

    with _refusing(f"Invalid GIF data (size {len(data)}), failed to slurp gif file: Failed to read from given file"):
        image = GifImageFile(_AskingFile(data))
        out = _room_for_frames(image, 3, check_size, most)
        for number, frame in giving_way(enumerate(out), _FRAME_NS + _PIXEL_NS * image.size[0] * image.size[1]):
            image.seek(number)
            # Drop Pillow's replacement for this frame.
            image.dispose = None
            found = _pixels(image.convert("RGBA"))
            np.multiply(found[:, :, :3], found[:, :, 3:] > 0, out=frame)
        return out


class _AskingFile(io.BytesIO):
    """Data whose reader stops when its result is no longer wanted: Pillow reads all frames to count them."""

    def read(self, size: int | None = -1) -> bytes:
        check_wanted()
        return super().read(size)


def decode_webp(data: bytes, channels: int, check_size: CheckSize, most: int | None = None) -> Array:
    """Return uint8 [frames, height, width, channels] of at most `most` frames.

    Args:
        channels: 3 or 4, or 0 for the image's own.  Animations have 4.
    """
    from PIL.WebPImagePlugin import WebPImageFile

    if channels not in (0, 3, 4):
        raise errors.InvalidArgumentError("WebP only supports 3 or 4 channels")
    with _refusing("Failed to decode WebP image."):
        image = WebPImageFile(io.BytesIO(data))
        animated = image.n_frames > 1
        have = 4 if animated or "A" in image.mode else 3
        if channels not in (0, have):
            raise errors.InvalidArgumentError(
                "WebP Animation must be 4 channel RGBA"
                if animated
                else "Number of channels requested does not match input"
            )
        out = _room_for_frames(image, have, check_size, most)
        for number, frame in giving_way(enumerate(out), _FRAME_NS + _PIXEL_NS * image.size[0] * image.size[1]):
            image.seek(number)
            frame[...] = _pixels(image.convert("RGBA" if have == 4 else "RGB"))
        return out


# BMP


def decode_bmp(data: bytes, channels: int, check_size: CheckSize) -> Array:
    """Return uint8 [height, width, channels] of an uncompressed image; palettes are ignored.

    Args:
        channels: 3 or 4, or 0 for the image's own.
    """
    if channels not in (0, 3, 4):
        raise errors.InvalidArgumentError(f"`channels` must be 0, 3 or 4 for BMP, but got {channels}")
    if len(data) < 32:
        raise errors.InvalidArgumentError(
            "Incomplete bmp content, requires at least 32 bytes to find the header size, width, height, and bpp, "
            f"got {len(data)} bytes"
        )
    (start,) = struct.unpack_from("<i", data, 10)
    width, height, _, bits = struct.unpack_from("<iihh", data, 18)
    have, rows = bits // 8, abs(height)
    if have not in (1, 3, 4):
        raise errors.InvalidArgumentError(f"Number of channels inherent in the image must be 1, 3 or 4, was {have}")
    if start < 0 or width <= 0 or not rows:
        raise errors.InvalidArgumentError(f"Invalid bmp header: header size {start}, width {width}, height {height}")
    stride = (have * width + 3) // 4 * 4
    excess = len(data) - (start + stride * rows)
    if excess:
        raise errors.InvalidArgumentError(
            f"Input size should match (header_size + row_size * abs_height) but they differ by {excess}"
        )
    _check_shape((rows, width, max(have, channels)), check_size)
    lines = np.frombuffer(data, np.uint8, stride * rows, start).reshape(rows, stride)
    found = lines[:, : width * have].reshape(rows, width, have)
    if height > 0:
        found = found[::-1]
    if have >= 3:
        found = found[:, :, [2, 1, 0, 3][:have]]
    return np.ascontiguousarray(_with_channels(found, channels))
