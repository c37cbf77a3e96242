"""Where a message ends: known forms, and the same bytes however they arrive."""

from __future__ import annotations

import pytest
from aexec_server.http.framing import (
    ChunkedBody,
    FramingError,
    TooManyChunksError,
    header_of,
    headers_of,
    looks_like_http,
    read_request_head,
    read_response_head,
)


def request(*headers: str) -> bytes:
    return "\r\n".join(["POST /v1/sessions/s:run?a=1 HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def test_request() -> None:
    head = read_request_head(request("Content-Length: 5"))
    assert (head.method, head.path) == (b"POST", "/v1/sessions/s:run")
    assert head.body is not None and head.body.take(b"12345GET") == (b"12345", 5) and head.body.ended


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 5", "Content-Length: 5"),
        ("Content-Length: +5",),
        ("Content-Length: 5, 5",),
        ("Content-Length:",),
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding : chunked",),
        (" Content-Length: 5",),
        ("A: b\n c",),
        ("A: b\rc",),
        ("A: b\0c",),
        ("no colon",),
    ],
)
def test_heads_that_two_could_read_in_two_ways(headers: tuple[str, ...]) -> None:
    with pytest.raises(FramingError):
        read_request_head(request(*headers))


CHUNKS = b"5\r\nhello\r\n3;x=y\r\nabc\r\n0\r\nT: x\r\n\r\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_chunks_are_written_anew(size: int) -> None:
    body, passed, taken = ChunkedBody(), b"", 0
    data = CHUNKS + b"GET"
    while not body.ended:
        piece, count = body.take(data[taken : taken + size])
        passed, taken = passed + piece, taken + count
    assert taken == len(CHUNKS)
    again = ChunkedBody()
    assert again.take(passed)[1] == len(passed) and again.ended
    assert sum(line in passed for line in (b"T: x", b"x=y")) == 0


@pytest.mark.parametrize("data", [b"5\r\nhelloo\r\n", b"x\r\n", b"5\nhello", b"-1\r\n", b"1" * 300, b"0\r\nA\n"])
def test_broken_chunks(data: bytes) -> None:
    with pytest.raises(FramingError):
        ChunkedBody().take(data)


def test_chunks_are_counted() -> None:
    with pytest.raises(TooManyChunksError):
        ChunkedBody().take(b"1\r\n \r\n" * 70_000)


@pytest.mark.parametrize(
    ("data", "may_be"),
    [
        (b"G", True),
        (b"GET /x HTTP/1.", True),
        (b"GET /x HTTP/1.1\r\nHo", True),
        (b"\x16\x03", False),
        (b"get", False),
        (b"GET / HTTP/1.1\nHost", False),
        (b"G" * 40_000, False),
    ],
)
def test_beginnings(data: bytes, may_be: bool) -> None:
    assert looks_like_http(data) is may_be


def test_header_given_several_times_has_all_values() -> None:
    head = b"GET / HTTP/1.1\r\nx-a: 1, 2\r\nX-B: \r\nX-A:\t3 \r\nX-Ab: 4\r\n\r\n"
    assert headers_of(head, b"x-a") == [b"1, 2", b"3"]
    assert headers_of(head, b"x-b") == [b""]
    assert headers_of(head, b"x-c") == []
    assert header_of(head, b"x-a") == b"1, 2"


def test_answers() -> None:
    def answer(first: bytes, *headers: bytes) -> bytes:
        return b"\r\n".join([first, *headers, b"", b""])

    head = read_response_head(answer(b"HTTP/1.1 200 OK", b"Content-Length: 3"), b"GET")
    assert head.status == 200 and head.keep_alive and not head.body.ended
    assert read_response_head(answer(b"HTTP/1.1 200 OK", b"Content-Length: 3"), b"HEAD").body.ended
    assert read_response_head(answer(b"HTTP/1.1 204 No Content"), b"DELETE").body.ended
    assert read_response_head(answer(b"HTTP/1.1 200 OK"), b"GET").body.until_closed
    assert not read_response_head(
        answer(b"HTTP/1.1 400 x", b"Connection: close", b"Content-Length: 1"), b"GET"
    ).keep_alive
