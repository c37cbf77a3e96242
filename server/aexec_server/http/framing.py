"""Finds the end of HTTP/1 messages: the part of HTTP that a relay has to understand.

The relay (`hosts/relay.py`) reads heads strictly, passes on the bytes of bodies without keeping them, and writes chunk
sizes of its own.  So what it takes for the end of a request is the end for the receiver, too.
"""

from __future__ import annotations

import re

__all__ = [
    "MAX_HEAD",
    "Body",
    "ChunkedBody",
    "FramingError",
    "RequestHead",
    "ResponseHead",
    "SizedBody",
    "TooManyChunksError",
    "header_of",
    "headers_of",
    "looks_like_http",
    "read_request_head",
    "read_response_head",
]

MAX_HEAD = 32 * 1024

_REQUEST = re.compile(
    rb"([A-Z]{1,20}) ([!-~]{1,8000}) HTTP/1\.([01])\r\n((?:[!#-'*+\-.0-9A-Z^-z|~]+:[^\r\n\0]*\r\n)*)\r\n"
)
# The beginning of an incomplete request.
_BEGINNING = re.compile(rb"[A-Z]{0,20}(?: [!-~]{0,8000}(?: [HTP/1.0]{0,8}(?:\r\n?|\Z)|\Z)|\Z)")
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")
_RESPONSE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9]) ")
_LENGTH = re.compile(rb"[ \t]*([0-9]{1,15})[ \t]*\r\n")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\r\n\0]{0,200})?\r\n")
_MAX_CHUNKS = 65536
_MAX_TRAILERS = 8 * 1024
_MAX_SIZE_LINE = 256


class FramingError(Exception):
    """The end of the message cannot be determined."""


class TooManyChunksError(FramingError):
    """The body has too many chunks."""


class SizedBody:
    """A body of known length."""

    __slots__ = ("_left",)

    chunked = until_closed = False

    def __init__(self, length: int) -> None:
        self._left = length

    @property
    def ended(self) -> bool:
        return not self._left

    def take(self, data: bytes) -> tuple[bytes, int]:
        """(bytes to pass on, number of bytes of `data` that belong to the body)."""
        if len(data) > self._left:
            data = data[: self._left]
        self._left -= len(data)
        return data, len(data)


class ChunkedBody:
    """A body with chunked coding.  Received data is passed on as chunks of its own, and trailers are dropped."""

    __slots__ = ("_chunks", "_in_chunk", "_line", "_trailers", "ended")

    chunked = True
    until_closed = False

    def __init__(self) -> None:
        self._in_chunk = 0  # bytes of the chunk still to come, with its line end
        self._line = b""  # the beginning of an incomplete line
        self._chunks = 0
        self._trailers = -1  # bytes of trailers after the last chunk; -1 before that
        self.ended = False

    def take(self, data: bytes) -> tuple[bytes, int]:
        """Like `SizedBody.take`.  Raises FramingError."""
        kept = len(self._line)
        data = self._line + data
        self._line = b""
        at = 0
        pieces = []
        while at < len(data) and not self.ended:
            if self._in_chunk:
                piece = data[at : at + self._in_chunk]
                at += len(piece)
                pieces.append(piece[: max(0, self._in_chunk - 2)])
                for end, byte in ((2, 13), (1, 10)):
                    where = self._in_chunk - end
                    if 0 <= where < len(piece) and piece[where] != byte:
                        raise FramingError("a chunk is longer than its size")
                self._in_chunk -= len(piece)
                continue
            end = data.find(b"\n", at) + 1
            if not end:
                if len(data) - at > _MAX_SIZE_LINE + _MAX_TRAILERS * (self._trailers >= 0):
                    raise FramingError("a line of a chunked body is too long")
                self._line = data[at:]
                at = len(data)
                break
            self._read_line(data[at:end])
            at = end
        body = b"".join(pieces)
        passed = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return passed + b"0\r\n\r\n" if self.ended else passed, at - kept

    def _read_line(self, line: bytes) -> None:
        if self._trailers >= 0:
            self._trailers += len(line)
            self.ended = line == b"\r\n"
            if self._trailers > _MAX_TRAILERS or not line.endswith(b"\r\n"):
                raise FramingError("bad trailers")
            return
        size = _CHUNK_SIZE.fullmatch(line)
        self._chunks += 1
        if size is None:
            raise FramingError("a chunk without a size")
        if self._chunks > _MAX_CHUNKS:
            raise TooManyChunksError(f"it has more than {_MAX_CHUNKS} chunks")
        length = int(size[1], 16)
        if length:
            self._in_chunk = length + 2
        else:
            self._trailers = 0


class _UntilClosed:
    """The body of an answer that ends with its connection."""

    chunked = ended = False
    until_closed = True

    def take(self, data: bytes) -> tuple[bytes, int]:
        return data, len(data)


Body = SizedBody | ChunkedBody | _UntilClosed
_NOTHING = SizedBody(0)


class RequestHead:
    """The head of a request.

    Attributes:
        method, target: such as `POST`, `/v1/sessions/s:run`.
        body: finds the end of the body; None if all that follows belongs to it.
        size: the bytes of the head.
    """

    __slots__ = ("_head", "body", "method", "size", "target")

    def __init__(self, method: bytes, target: bytes, body: Body | None, head: bytes) -> None:
        self.method = method
        self.target = target
        self.body = body
        self.size = len(head)
        self._head = head

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition(b"?")[0].decode("ascii")

    def header(self, name: bytes) -> bytes | None:
        """The value of the first header with this lower-case name, or None."""
        return header_of(self._head, name)

    @property
    def asks_for_problem(self) -> bool:
        """True if the client prefers errors as `application/problem+json`."""
        return b"application/problem+json" in self._head


def header_of(head: bytes, name: bytes) -> bytes | None:
    """The value of the first header with this lower-case name in a head, or None."""
    values = headers_of(head, name, most=1)
    return values[0] if values else None


def headers_of(head: bytes, name: bytes, most: int | None = None) -> list[bytes]:
    """The values of the headers with this lower-case name in a head, in their order, `most` of them at most."""
    values: list[bytes] = []
    sought = b"\r\n" + name + b":"
    lower = head.lower()
    at = lower.find(sought)
    while at >= 0 and len(values) != most:
        start = at + len(sought)
        end = head.index(b"\r\n", start)
        values.append(head[start:end].strip(b" \t"))
        at = lower.find(sought, end)
    return values


class ResponseHead:
    """The head of an answer.

    Attributes:
        status: the status, three digits.
        body: finds the end of the body.
        keep_alive: True if another request may follow.
    """

    __slots__ = ("body", "keep_alive", "status")

    def __init__(self, status: int, body: Body, keep_alive: bool) -> None:
        self.status = status
        self.body = body
        self.keep_alive = keep_alive


def looks_like_http(data: bytes) -> bool:
    """True if these bytes can be the beginning of a head."""
    return len(data) <= MAX_HEAD and _BEGINNING.match(data) is not None and _BARE_LINE_FEED.search(data) is None


def read_request_head(head: bytes) -> RequestHead:
    """Read the head of a request, including its empty line.  Raises FramingError."""
    match = _REQUEST.fullmatch(head)
    if match is None:
        raise FramingError("no head of a request")
    return RequestHead(match[1], match[2], _request_body(head.lower()), head)


def _request_body(head: bytes) -> Body:
    length = head.find(b"\r\ncontent-length:")
    if head.find(b"\r\ntransfer-encoding:") >= 0:
        if length >= 0 or head.count(b"\r\ntransfer-encoding:") > 1 or _value(head, b"transfer-encoding") != b"chunked":
            raise FramingError("both a length and chunks, or another coding")
        if head.find(b"\r\nupgrade:") >= 0:
            raise FramingError("an upgrade")
        return ChunkedBody()
    if length < 0:
        return _NOTHING
    return SizedBody(_length(head, length))


def _value(head: bytes, name: bytes) -> bytes:
    start = head.index(b"\r\n" + name + b":") + len(name) + 3
    return head[start : head.index(b"\r\n", start)].strip(b" \t")


def _length(head: bytes, at: int) -> int:
    at += len(b"\r\ncontent-length:")
    match = _LENGTH.match(head, at)
    if match is None or head.find(b"\r\ncontent-length:", at) >= 0:
        raise FramingError("no length, or several")
    return int(match[1])


def read_response_head(head: bytes, method: bytes) -> ResponseHead:
    """Read the head of the answer to a request with this method.  Raises FramingError."""
    match = _RESPONSE.match(head)
    if match is None:
        raise FramingError("no head of an answer")
    status = int(match[2])
    lower = head.lower()
    keep_alive = lower.find(b"\r\nconnection: close") < 0
    if match[1] == b"0":
        keep_alive = lower.find(b"\r\nconnection: keep-alive") >= 0
    if method == b"HEAD" or status < 200 or status in (204, 304):
        return ResponseHead(status, _NOTHING, keep_alive)
    if lower.find(b"\r\ntransfer-encoding: chunked") >= 0:
        return ResponseHead(status, ChunkedBody(), keep_alive)
    length = lower.find(b"\r\ncontent-length:")
    if length >= 0:
        return ResponseHead(status, SizedBody(_length(lower, length)), keep_alive)
    return ResponseHead(status, _UntilClosed(), False)
