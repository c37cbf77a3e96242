"""Decoding and encoding: Pillow as the other side, the formats' corners, hostile data, TensorFlow's messages."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from aexec.framework import errors
from tests.kernels.array_support import I32, assert_refuses
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op, strings

UNKNOWN = "Unknown image file format. One of JPEG, JPEG XL, PNG, GIF, BMP, WebP required."
BAD_JPEG = "jpeg::Uncompress failed. Invalid JPEG data or crop window."


@pytest.mark.parametrize("op", ops_of("image.codec_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def text(data):
    return strings(data, shape=())


def noise(*shape, dtype=np.uint8, seed=0):
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max + 1, shape).astype(dtype)


def smooth(height=37, width=53):
    y, x = np.mgrid[:height, :width]
    return np.stack([y * 6, x * 4, (x + y) * 2], -1).clip(0, 255).astype(np.uint8)


def saved(image, kind, **options):
    out = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(out, kind, **options)
    return out.getvalue()


def decoded(op, data, **attrs):
    return run_op(op, [text(data)], **attrs)


# PNG


@given(
    st.tuples(st.integers(1, 7), st.integers(1, 7), st.integers(1, 4)),
    st.sampled_from([np.uint8, np.uint16]),
    st.integers(-1, 9),
)
def test_png_there_and_back(shape, dtype, compression):
    image = noise(*shape, dtype=dtype)
    data = run_op("EncodePng", [image], compression=compression)
    got = run_op("DecodePng", [data], dtype="uint16" if dtype is np.uint16 else "uint8")
    assert got.dtype == dtype and (got == image).all()
    if dtype is np.uint8:
        assert (np.asarray(Image.open(io.BytesIO(data.item()))).reshape(shape) == image).all()


def png_with_filters(image, filters):
    """A PNG of uint16 [height, width, 3 or 4], each line by one of the five filters."""
    height, width, channels = image.shape
    step = channels * 2
    raw = image.astype(">u2").tobytes()
    lines = [np.frombuffer(raw, np.uint8).reshape(height, -1)[y].astype(int) for y in range(height)]
    body = b""
    for y, kind in enumerate(filters):
        above = lines[y - 1] if y else np.zeros_like(lines[0])
        out = []
        for x, value in enumerate(lines[y].tolist()):
            left = int(lines[y][x - step]) if x >= step else 0
            corner = int(above[x - step]) if x >= step else 0
            guess = left + int(above[x]) - corner
            best = min((left, int(above[x]), corner), key=lambda v: abs(guess - v))
            out.append((value - [0, left, int(above[x]), (left + int(above[x])) // 2, best][kind]) & 255)
        body += bytes([kind, *out])

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 16, {3: 2, 4: 6}[channels], 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(body)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(1, 5), st.sampled_from([3, 4]))
def test_sixteen_bits_by_every_filter(filters, width, channels):
    image = noise(len(filters), width, channels, dtype=np.uint16)
    got = decoded("DecodePng", png_with_filters(image, filters), dtype="uint16")
    assert (got == image).all()
    high = decoded("DecodePng", png_with_filters(image, filters))
    assert (high == image >> 8).all()


def test_channels_are_made_or_dropped():
    rgba = noise(5, 6, 4)
    color, grey, both = rgba[..., :3], rgba[..., 0], rgba[..., :2]
    assert (decoded("DecodePng", saved(rgba, "PNG"), channels=3) == color).all()
    assert (decoded("DecodePng", saved(grey, "PNG"), channels=3) == grey[..., None]).all()
    with_alpha = decoded("DecodePng", saved(color, "PNG"), channels=4)
    assert (with_alpha[..., :3] == color).all() and (with_alpha[..., 3] == 255).all()
    spread = decoded("DecodePng", saved(both, "PNG"), channels=4)
    assert (spread == rgba[..., [0, 0, 0, 1]]).all()
    luma = decoded("DecodePng", saved(rgba, "PNG"), channels=1)
    want = (color.astype(int) @ [9797, 19234, 3737]) >> 15
    assert (luma[..., 0] == want).all()


def test_widths_are_scaled():
    grey = noise(5, 6)
    wide = grey.astype(np.uint16) * 257
    assert (decoded("DecodePng", saved(grey, "PNG"), dtype="uint16")[..., 0] == wide).all()
    assert (decoded("DecodePng", saved(wide, "PNG"))[..., 0] == grey).all()
    assert (decoded("DecodePng", saved(wide, "PNG"), dtype="uint16")[..., 0] == wide).all()
    deep = noise(5, 6, 3, dtype=np.uint16)
    luma = (deep.astype(int) @ [9797, 19234, 3737] + 16384) >> 15
    data = run_op("EncodePng", [deep]).item()
    assert (decoded("DecodePng", data, dtype="uint16", channels=1)[..., 0] == luma).all()
    assert (decoded("DecodePng", data, channels=1)[..., 0] == luma >> 8).all()


def test_palettes_and_bits():
    palette = Image.fromarray(noise(5, 6, 3)).quantize(7)
    assert (decoded("DecodePng", saved(palette, "PNG")) == np.asarray(palette.convert("RGB"))).all()
    clear = decoded("DecodePng", saved(palette, "PNG", transparency=2))
    assert clear.shape == (5, 6, 4) and (clear[..., 3] == np.where(np.asarray(palette) == 2, 0, 255)).all()
    assert decoded("DecodePng", saved(palette, "PNG", transparency=2), channels=3).shape == (5, 6, 3)
    bits = Image.fromarray(noise(5, 6)).convert("1")
    assert (decoded("DecodePng", saved(bits, "PNG"))[..., 0] == np.asarray(bits) * 255).all()


def test_many_images_are_encoded_at_once():
    images = noise(2, 3, 4, 5, 3)
    data = run_op("EncodePng", [images])
    assert data.shape == (2, 3)
    assert (decoded("DecodePng", data[1, 2]) == images[1, 2]).all()
    assert run_op("EncodePng", [images[:0]]).shape == (0, 3)


@pytest.mark.parametrize(
    ("image", "message", "error"),
    [
        (noise(3, 4), "images must be at least rank 3[3,4]", errors.InvalidArgumentError),
        (noise(3, 4, 5), "image must have 1, 2, 3, or 4 channels, got 5", errors.InvalidArgumentError),
        (
            noise(2, 0, 4, 3),
            "PNG encoding failed at the following flattened batch indices: 0,1",
            errors.InvalidArgumentError,
        ),
    ],
)
def test_images_that_png_cannot_hold_are_refused(image, message, error):
    assert_refuses("EncodePng", [image], message, error)


# JPEG


def test_jpeg_is_decoded_closely():
    image = smooth()
    data = saved(image, "JPEG", quality=95)
    got = decoded("DecodeJpeg", data)
    assert (got == np.asarray(Image.open(io.BytesIO(data)))).all()
    assert np.abs(got.astype(int) - image).mean() < 3
    grey = decoded("DecodeJpeg", data, channels=1)
    assert grey.shape == (37, 53, 1)
    of_grey = saved(image[..., 0], "JPEG")
    assert decoded("DecodeJpeg", of_grey).shape == (37, 53, 1)
    assert decoded("DecodeJpeg", of_grey, channels=3).shape == (37, 53, 3)
    cmyk = saved(Image.fromarray(image).convert("CMYK"), "JPEG")
    assert np.abs(decoded("DecodeJpeg", cmyk).astype(int) - image).mean() < 8


@pytest.mark.parametrize("ratio", [1, 2, 4, 8])
@pytest.mark.parametrize("size", [(37, 53), (3, 50), (3, 2), (16, 8)])
def test_jpeg_is_made_smaller(ratio, size):
    got = decoded("DecodeJpeg", saved(smooth(*size), "JPEG"), ratio=ratio)
    assert got.shape == (-(-size[0] // ratio), -(-size[1] // ratio), 3)


def test_parts_of_a_jpeg():
    data = saved(smooth(), "JPEG")
    whole = decoded("DecodeJpeg", data)
    part = run_op("DecodeAndCropJpeg", [text(data), I32([2, 3, 10, 20])])
    assert (part == whole[2:12, 3:23]).all()
    for window in ([0, 0, 38, 53], [-1, 0, 3, 3], [0, 0, 0, 3]):
        assert_refuses("DecodeAndCropJpeg", [text(data), I32(window)], BAD_JPEG)
    assert_refuses("DecodeAndCropJpeg", [text(data), I32([0, 0, 3])], "crop_size must have four elements [3]")
    assert run_op("ExtractJpegShape", [text(data)]).tolist() == [37, 53, 3]
    shape = run_op("ExtractJpegShape", [text(saved(smooth()[..., 0], "JPEG"))], output_type="int64")
    assert shape.tolist() == [37, 53, 1] and shape.dtype == np.int64
    assert_refuses("ExtractJpegShape", [text("xyz")], "Invalid JPEG data, size 3")


def test_truncated_jpeg():
    data = saved(smooth(), "JPEG")[:-200]
    assert_refuses("DecodeJpeg", [text(data)], BAD_JPEG)
    recovered = decoded("DecodeJpeg", data, try_recover_truncated=True, acceptable_fraction=0.5)
    assert recovered.shape == (37, 53, 3)
    whole = {"try_recover_truncated": True, "acceptable_fraction": 1.0}
    assert_refuses("DecodeJpeg", [text(data)], BAD_JPEG, **whole)


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_is_encoded_as_libjpeg_does(channels):
    image = smooth()[..., :channels]
    plain = image if channels == 3 else image[..., 0]
    sampling = {} if channels == 1 else {"subsampling": 2}
    data = run_op("EncodeJpeg", [image], quality=80).item()
    assert data == saved(plain, "JPEG", quality=80, dpi=(300, 300), **sampling)
    assert run_op("EncodeJpegVariableQuality", [image, np.int32(80)]).item() == data


def test_jpeg_options_are_in_the_file():
    image = smooth()
    options = {"density_unit": "cm", "x_density": 10, "y_density": 20, "xmp_metadata": "<x/>"}
    opened = Image.open(io.BytesIO(run_op("EncodeJpeg", [image], **options).item()))
    assert (opened.info["jfif_unit"], opened.info["jfif_density"]) == (2, (10, 20))
    assert opened.info["xmp"] == b"<x/>"
    sizes = {
        name: len(run_op("EncodeJpeg", [image], **{name: value}).item())
        for name, value in [("progressive", True), ("optimize_size", True), ("chroma_downsampling", False)]
    }
    usual = len(run_op("EncodeJpeg", [image]).item())
    assert sizes["progressive"] != usual and sizes["optimize_size"] < usual < sizes["chroma_downsampling"]
    assert_refuses(
        "EncodeJpeg", [image], "JPEG encoding failed", errors.InvalidArgumentError, xmp_metadata="x" * 70_000
    )


@pytest.mark.parametrize(
    ("image", "attrs", "message"),
    [
        (smooth()[0], {}, "image must be 3-dimensional[53,3]"),
        (smooth()[..., :2], {}, "image must have 1 or 3 channels, got [37,53,2]"),
        (smooth(), {"format": "grayscale"}, "format grayscale expects 1 channels, got [37,53,3]"),
        (smooth()[..., :1], {"format": "rgb"}, "format rgb expects 3 channels, got [37,53,1]"),
        (smooth(), {"quality": 101}, "quality must be in [0,100], got 101"),
    ],
)
def test_encoding_jpeg_checks(image, attrs, message):
    assert_refuses("EncodeJpeg", [image], message, **attrs)


def test_encoding_jpeg_of_variable_quality_checks():
    op = "EncodeJpegVariableQuality"
    assert_refuses(op, [smooth(), np.int32(101)], "quality must be in [0,100], got 101")
    assert_refuses(op, [smooth(), I32([5])], "quality must be scalar: [1]")
    assert_refuses(op, [smooth()[0], I32(5)], "image must be 3-dimensional[53,3]")
    assert_refuses(op, [smooth()[..., :2], I32(5)], "image must have 1 or 3 channels, got [37,53,2]")
    assert_refuses("EncodeJpeg", [smooth()[:0]], "JPEG encoding failed", errors.InvalidArgumentError)


# GIF, BMP, WebP


def animation():
    frames = [Image.fromarray(noise(5, 6, 3, seed=i)).quantize(8) for i in range(3)]
    return saved(frames[0], "GIF", save_all=True, append_images=frames[1:]), [
        np.asarray(f.convert("RGB")) for f in frames
    ]


def test_animations():
    data, frames = animation()
    assert (decoded("DecodeGif", data) == np.stack(frames)).all()
    assert (decoded("DecodeImage", data) == np.stack(frames)).all()
    assert (decoded("DecodeImage", data, expand_animations=False) == frames[0]).all()
    message = "Got 3 frames, but animated gifs can only be decoded by tf.io.decode_gif or tf.io.decode_image"
    assert_refuses("DecodePng", [text(data)], message)
    assert_refuses("DecodeImage", [text(data)], "channels must be 0 or 3 for GIF, got 4", channels=4)
    still = saved(Image.fromarray(frames[0]).quantize(8), "GIF")
    assert decoded("DecodePng", still).shape == (5, 6, 3)
    assert decoded("DecodeGif", saved(noise(5, 6, 4), "PNG")).shape == (1, 5, 6, 3)


@pytest.mark.parametrize("disposal", [0, 1, 2, 3])
def test_frames_of_animations_are_laid_over_each_other(disposal):
    frames = []
    for row in range(3):
        indices = np.zeros((3, 4), np.uint8)
        indices[row] = row + 1
        frame = Image.fromarray(indices).convert("P")
        frame.putpalette([9, 9, 9, 255, 0, 0, 0, 255, 0, 0, 0, 255])
        frames.append(frame)
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:], transparency=0, disposal=disposal)
    want = np.zeros((3, 3, 4, 3), np.uint8)
    for row in range(3):
        want[row:, row, :, row] = 255
    assert (decoded("DecodeGif", data) == want).all()


def test_bmp():
    rgba = noise(5, 6, 4)
    assert (decoded("DecodeBmp", saved(rgba[..., :3], "BMP")) == rgba[..., :3]).all()
    assert (decoded("DecodeBmp", saved(rgba, "BMP")) == rgba).all()
    assert (decoded("DecodeBmp", saved(rgba, "BMP"), channels=3) == rgba[..., :3]).all()
    assert (decoded("DecodeBmp", saved(rgba[..., 0], "BMP"), channels=3) == rgba[..., :1]).all()
    data = bytearray(saved(rgba[..., :3], "BMP"))
    data[22:26] = struct.pack("<i", -5)
    assert (decoded("DecodeBmp", bytes(data)) == rgba[::-1, :, :3]).all()


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (28, "<h", "Number of channels inherent in the image must be 1, 3 or 4, was 2"),
        (18, "<i", "Invalid bmp header: header size 54, width -16, height 5"),
        (10, "<i", "Invalid bmp header: header size -16, width 6, height 5"),
    ],
)
def test_bmp_headers_are_checked(place, value, message):
    data = bytearray(saved(noise(5, 6, 3), "BMP"))
    struct.pack_into(value, data, place, 16 if value == "<h" else -16)
    assert_refuses("DecodeBmp", [text(bytes(data))], message)


def test_bmp_sizes_are_checked():
    data = saved(noise(5, 6, 3), "BMP")
    message = "Input size should match (header_size + row_size * abs_height) but they differ by -5"
    assert_refuses("DecodeBmp", [text(data[:-5])], message)
    message = (
        "Incomplete bmp content, requires at least 32 bytes to find the header size, width, height, and bpp, "
        "got 20 bytes"
    )
    assert_refuses("DecodeBmp", [text(data[:20])], message)
    message = "`channels` must be 0, 3 or 4 for BMP, but got 1"
    assert_refuses("DecodeBmp", [text(data)], message, channels=1)


def test_webp():
    image = noise(5, 6, 4)
    data = saved(image[..., :3], "WEBP", lossless=True)
    assert (decoded("DecodeWebP", data) == image[None, ..., :3]).all()
    assert decoded("DecodeWebP", saved(image, "WEBP", lossless=True), channels=4).shape == (1, 5, 6, 4)
    assert_refuses("DecodeWebP", [text(data)], "WebP only supports 3 or 4 channels", channels=1)
    message = "Number of channels requested does not match input"
    assert_refuses("DecodeWebP", [text(data)], message, channels=4)
    assert_refuses("DecodeGif", [text(saved(image, "WEBP", lossless=True))], message)
    assert_refuses("DecodeImage", [text(data)], "WebP only supports uint8 for dtype", dtype="float")
    assert_refuses("DecodeWebP", [text(data[:40])], "Failed to decode WebP image.")
    assert decoded("DecodeImage", data, expand_animations=False).shape == (5, 6, 3)
    frames = [Image.fromarray(noise(5, 6, 3, seed=i)) for i in range(3)]
    moving = saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    want = np.stack([np.asarray(f.convert("RGBA")) for f in frames])
    assert (decoded("DecodeImage", moving) == want).all()
    assert_refuses("DecodeWebP", [text(moving)], "WebP Animation must be 4 channel RGBA", channels=3)


# Any format


def test_floats_and_wide_integers():
    image = noise(5, 6, 3)
    png, bmp = saved(image, "PNG"), saved(image, "BMP")
    np.testing.assert_allclose(decoded("DecodeImage", png, dtype="float"), image / 255, rtol=1e-6)
    np.testing.assert_allclose(decoded("DecodeImage", bmp, dtype="float"), image / 255, rtol=1e-6)
    assert (decoded("DecodeImage", png, dtype="uint16") == image.astype(np.uint16) * 257).all()
    assert (decoded("DecodeImage", bmp, dtype="uint16") == image.astype(np.uint16) * 256).all()


def test_ops_take_each_others_formats_but_not_bmp():
    image = smooth(5, 6)
    png, jpeg, bmp = (saved(image, kind) for kind in ("PNG", "JPEG", "BMP"))
    assert (decoded("DecodeJpeg", png) == image).all()
    assert (decoded("DecodePng", jpeg) == decoded("DecodeJpeg", jpeg)).all()
    message = (
        "Trying to decode BMP format using a wrong op. Use `decode_bmp` or `decode_image` instead. Op used: DecodePng"
    )
    assert_refuses("DecodePng", [text(bmp)], message)
    message = "Trying to decode PNG format using DecodeBmp op. Use `decode_png` or `decode_image` instead."
    assert_refuses("DecodeBmp", [text(png)], message)


@pytest.mark.parametrize("op", ["DecodePng", "DecodeJpeg", "DecodeGif", "DecodeBmp", "DecodeImage", "DecodeWebP"])
def test_invalid_image_data_is_refused(op):
    assert_refuses(op, [text("")], "Input is empty.")
    assert_refuses(op, [text("no image")], UNKNOWN)
    assert_refuses(op, [strings("a", "b")], "`contents` must be scalar but got shape[2]")


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"channels": 2}, "`channels` must be 0, 1, 3 or 4 but got 2"),
        ({"ratio": 3}, "ratio must be 1, 2, 4, or 8, got 3"),
        ({"dct_method": "x"}, "dct_method must be one of {'', 'INTEGER_FAST', 'INTEGER_ACCURATE'}"),
        ({"channels": 4}, "JPEG does not support 4 channels"),
    ],
)
def test_attrs_are_checked(attrs, message):
    assert_refuses("DecodeJpeg", [text(saved(smooth(), "JPEG"))], message, **attrs)


def broken(kind):
    image = smooth(8, 9)
    data = {
        "PNG": lambda: saved(image, "PNG"),
        "PNG16": lambda: run_op("EncodePng", [noise(8, 9, 3, dtype=np.uint16)]).item(),
        "JPEG": lambda: saved(image, "JPEG"),
        "GIF": lambda: animation()[0],
        "BMP": lambda: saved(image, "BMP"),
        "WEBP": lambda: saved(image, "WEBP"),
    }
    return data[kind]()


@pytest.mark.parametrize("kind", ["PNG", "PNG16", "JPEG", "GIF", "BMP", "WEBP"])
@settings(deadline=None)  # what claims to be large takes long
@given(data=st.data())
def test_broken_data_is_refused_or_decoded_but_nothing_else(kind, data):
    whole = bytearray(broken(kind))
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        got = decoded("DecodeImage", cut, dtype="uint16" if kind == "PNG16" else "uint8")
    except (errors.InvalidArgumentError, errors.ResourceExhaustedError, errors.UnimplementedError):
        return
    assert got.ndim in (3, 4)


def test_bombs_are_refused():
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    png = bytearray(saved(noise(2, 2, 3), "PNG"))
    png[16 : 16 + len(header)] = header
    message = "Total possible pixel bytes must be less than 2^30, got 10800000000"
    assert_refuses("DecodePng", [text(bytes(png))], message)
    gif = bytearray(animation()[0])
    gif[6:10] = struct.pack("<HH", 65535, 65535)
    with pytest.raises(errors.InvalidArgumentError):
        decoded("DecodeGif", bytes(gif))


def test_interlaced_sixteen_bits_are_not_supported():
    png = bytearray(run_op("EncodePng", [noise(2, 2, 3, dtype=np.uint16)]).item())
    png[28] = 1
    message = "Interlaced PNG images of 16 bits per channel are not supported"
    assert_refuses("DecodePng", [text(bytes(png))], message, errors.UnimplementedError, dtype="uint16")


def test_error_of_very_many_empty_images_names_some():
    with pytest.raises(errors.InvalidArgumentError, match=r"indices: 0,1,2,.*,15,...\(3000000 in all\)"):
        run_op("EncodePng", [np.zeros((3_000_000, 0, 2, 3), np.uint8)])


def test_image_that_is_too_long_for_a_jpeg_is_refused():
    with pytest.raises(errors.InvalidArgumentError, match="at most 65535 rows and columns"):
        run_op("EncodeJpeg", [np.broadcast_to(np.uint8(0), (1, 2**40, 3))[:, :70_000]])
