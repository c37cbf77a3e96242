"""Images and strings of few bytes that decoding makes large: refused by what their headers say, or as they grow."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from functools import partial

import pytest

from aexec.framework import dtypes
from tests.hostile.conftest import HostileServer
from tests.support.programs.graphs import GraphBuilder

MB = 2**20
LIMIT = 128 * MB


def png(side: int) -> bytes:
    """Black, a thousandth of its pixels in bytes."""
    compressor = zlib.compressobj(9)
    line = bytes(1 + 3 * side)
    pixels = b"".join([compressor.compress(line) for _ in range(side)]) + compressor.flush()
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)), (b"IDAT", pixels), (b"IEND", b"")]
    parts = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def gif(side: int, frames: int) -> bytes:
    """Frames of one pixel each, laid over a large screen."""
    screen = b"GIF89a" + struct.pack("<HHBBB", side, side, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    return screen + (b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x4c\x01\x00") * frames + b";"


def zeros_deflated(size: int) -> bytes:
    """A thousandth of its zeros in bytes."""
    return zlib.compress(bytes(size))


def decoding(op: str, **attrs: object) -> GraphBuilder:
    g = GraphBuilder()
    g.placeholder("x", dtypes.string)
    g("y", op, "x", **attrs)
    return g


# A graph, what makes the bytes that hurt it, and what the refusal says.
BOMBS: dict[str, tuple[GraphBuilder, Callable[[], bytes], bytes]] = {
    "png": (decoding("DecodePng"), partial(png, 8000), b"shape[8000,8000,3]"),
    "gif": (decoding("DecodeGif"), partial(gif, 2000, 50), b"shape[50,2000,2000,3]"),
    "tall gif": (decoding("DecodeGif"), partial(gif, 16000, 1), b"shape[1,16000,16000,3]"),
    "deflate": (
        decoding("DecodeCompressed", compression_type="ZLIB"),
        partial(zeros_deflated, 400 * MB),
        b"more would exceed",
    ),
    "regex": (
        decoding("StaticRegexReplace", pattern="a", rewrite="b" * 10_000, replace_global=True),
        partial(bytes.ljust, b"", 100_000, b"a"),
        b"more would exceed",
    ),
}


@pytest.mark.parametrize(("name", "pixels"), [("png", 8000**2), ("gif", 50 * 2000**2)])
def test_images_of_more_pixels_than_are_allowed(hostile_server: HostileServer, name: str, pixels: int) -> None:
    """Whatever memory there is."""
    graph, data, _ = BOMBS[name]
    feeds = {"x": {"b64": base64.b64encode(data()).decode()}}
    server = hostile_server(max_image_pixels=1_000_000)
    handle = server.create(graph)
    with server.watched() as watch:
        answer = server.run(handle, feeds=feeds, fetches=["y"])
    assert answer.status == 429 and answer.body["node"] == "y"
    assert f"{pixels} pixels, more than the 1000000 of SessionConfig.max_image_pixels" in answer.body["error"]
    assert watch.grown < 64 * MB and not watch.failures
    small = {"x": {"b64": base64.b64encode({"png": png(10), "gif": gif(10, 2)}[name]).decode()}}
    assert server.run(handle, feeds=small, fetches=["y"]).status == 200


@pytest.mark.parametrize("name", BOMBS)
def test_decoded_data_is_bounded(hostile_server: HostileServer, name: str) -> None:
    graph, data, what = BOMBS[name]
    server = hostile_server(max_run_mb=LIMIT // MB, max_image_pixels=10**9)
    handle = server.create(graph)
    with server.watched() as watch:
        answer = server.run(handle, feeds={"x": {"b64": base64.b64encode(data()).decode()}}, fetches=["y"])
    assert answer.status == 429 and answer.body["node"] == "y"
    assert what.decode() in answer.body["error"] and str(LIMIT) in answer.body["error"]
    assert watch.grown < LIMIT + 64 * MB and not watch.failures
