"""Request bodies and answers: bounded reading, decompression, media types, JSON."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

from aiohttp import web
from aiohttp.hdrs import CONTENT_ENCODING, CONTENT_TYPE
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from aexec import errors, proto
from aexec.hosting import (
    NeedsThreadError,
    OnCancel,
    check_inline,
    collector_paused,
    loop_budget,
    run_in_thread,
    unreadable,
    wire_format,
)
from aexec_server.clients.callers import CLIENT
from aexec_server.clients.client_turns import ClientTurns
from aexec_server.headed import Headed
from aexec_server.http import json_text
from aexec_server.http.body_budget import BodyBudget
from aexec_server.http.error_responses import RequestError
from aexec_server.settings.message_scan import MessageLimits, scan
from aexec_server.settings.server_config import ServerConfig

__all__ = [
    "JSON",
    "OCTETS",
    "PROTOBUF",
    "Body",
    "accepts",
    "beside",
    "check_fields",
    "decode_base64",
    "encode_json",
    "expected",
    "in_time",
    "is_protobuf",
    "json_object",
    "json_response",
    "media_type",
    "parse_dict",
    "parse_graph",
    "parse_message",
    "parse_with_graph",
    "protobuf_response",
    "read_body",
    "read_message",
    "read_run_body",
]

# A body as it came; a large one with tensors is not copied to bytes.
Body = bytes | memoryview

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
M = TypeVar("M", bound=Message)

JSON = "application/json"
PROTOBUF = "application/x-protobuf"
OCTETS = "application/octet-stream"
_PROTOBUF_TYPES = frozenset({PROTOBUF, "application/protobuf", "application/vnd.google.protobuf"})

# The bytes of a compressed body that are inflated on the loop, and those at a time in a thread.
_INFLATED_INLINE = int(loop_budget.DEFAULT.inline_ns / loop_budget.INFLATE_NS)
_INFLATED_AT_ONCE = 2**21
# The number of characters that are decoded in a piece.
_BASE64_AT_ONCE = 1 << 20
_WHITE_SPACE = b" \t\r\n\v\f"
_MAX_CHUNKS = 65536
# Tensors of any type may begin at a multiple of this many bytes; and the least size of bodies that are aligned.
_ALIGNMENT = 16
_ALIGNED_BYTES = 1 << 20
# Calls that take longer than this wait for their client's turn; and the most of them at a time, so that two threads of
# the event loop's pool are left to all others.
_LONG_NS = 20e6
_LONG_CALLS = min(32, (os.cpu_count() or 1) + 4) - 2
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, ClientTurns] = WeakKeyDictionary()
_WBITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}

encode_json = json.JSONEncoder(separators=(",", ":")).encode


def media_type(request: Headed) -> str:
    """The body's media type in lower case, without parameters; "" if the client names none."""
    named = request.headers.get(CONTENT_TYPE, "")
    return named if named == JSON else named.partition(";")[0].strip().lower()


def is_protobuf(media: str) -> bool:
    return media in _PROTOBUF_TYPES


def accepts(request: Headed) -> list[str]:
    """The media types of the Accept header, in the order given."""
    accept = request.headers.get("Accept", "")
    return [part.partition(";")[0].strip().lower() for part in accept.split(",")]


async def beside(
    nanoseconds: float, work: Callable[[*Arguments], T], *arguments: *Arguments, deadline: float | None = None
) -> T:
    """Call `work(*arguments)`, which takes about `nanoseconds`, and return its result.

    The call is made in a thread if it is long by that estimate, or if it raises NeedsThreadError.  A bounded number of
    calls that may take very long is made at a time, half of them for one client, so that others find a thread.

    Args:
        deadline: when to stop waiting for a thread, by `time.monotonic`; None for never.

    Raises:
        DeadlineExceededError: the deadline has passed.
    """
    if nanoseconds <= loop_budget.DEFAULT.inline_ns:  # `allows`, without a call
        try:
            return work(*arguments)
        except NeedsThreadError:
            nanoseconds = _LONG_NS  # nobody knows

    def in_thread() -> T:
        with collector_paused():
            return work(*arguments)

    if nanoseconds >= _LONG_NS:
        return await in_time(_in_turn(in_thread), deadline)
    return await in_time(run_in_thread(in_thread, on_cancel=OnCancel.ABANDON), deadline)


async def _in_turn(call: Callable[[], T]) -> T:
    """Make a long call in a thread when it is the present client's turn."""
    loop = asyncio.get_running_loop()
    turns = _turns.get(loop)
    if turns is None:
        turns = _turns[loop] = ClientTurns(_LONG_CALLS, _LONG_CALLS // 2)
    async with turns.turn(CLIENT.get()):
        return await run_in_thread(call, on_cancel=OnCancel.ABANDON)


async def in_time(work: Awaitable[T], deadline: float | None) -> T:
    """Await the reading of a run's request, or the writing of its answer, until the run's deadline.

    Raises:
        DeadlineExceededError: the deadline has passed; the work is cancelled.
    """
    if deadline is None:
        return await work
    try:
        async with asyncio.timeout_at(deadline):
            return await work
    except TimeoutError:
        raise errors.DeadlineExceededError(
            "The run's deadline came while its request was read, or its answer written"
        ) from None


async def read_body(request: web.Request, config: ServerConfig, budget: BodyBudget) -> bytes:
    """The whole body, decompressed.

    Raises:
        RequestError: 413 for a body that is too large, before or after decompression; 415 for a
            coding that is not known; 408 if the client takes too long.
        ResourceExhaustedError: it exceeds the budget.
        InvalidArgumentError: it is cut off, or not of its coding.
    """
    if not request.body_exists:
        return b""
    limit = config.max_body_bytes
    length = request.content_length
    if length is not None and length > limit:
        raise _too_large(limit)
    if length is not None and request.content.is_eof():
        body = request.content.read_nowait()  # the whole body is here
        budget.take(request, len(body))
    else:
        body = bytes(await _read_slowly(request, config, budget))
    coding = request.headers.get(CONTENT_ENCODING)
    if coding is None or (coding := coding.strip().lower()) in ("", "identity"):
        return body
    inflated = bytearray()
    async for data in _inflated(body, coding):
        if len(inflated) + len(data) > limit:
            raise _too_large(limit)
        budget.take(request, len(data))
        inflated += data
    return bytes(inflated)


async def read_run_body(request: web.Request, config: ServerConfig, budget: BodyBudget, aligned_at: int) -> Body:
    """Like `read_body`, for a run.  A large body is aligned from `aligned_at` on, so tensors need no copy."""
    length = request.content_length or 0
    if not aligned_at or length < _ALIGNED_BYTES or CONTENT_ENCODING in request.headers or request.content.is_eof():
        return await read_body(request, config, budget)
    if length > config.max_body_bytes:
        raise _too_large(config.max_body_bytes)
    padding = -aligned_at % _ALIGNMENT
    return memoryview(await _read_slowly(request, config, budget, padding))[padding:].toreadonly()


def _too_large(limit: int) -> RequestError:
    return RequestError(413, f"The request's body is larger than {limit} bytes, the most that this server takes")


async def _read_slowly(request: web.Request, config: ServerConfig, budget: BodyBudget, padding: int = 0) -> bytearray:
    """Read a body that is still coming, after `padding` zero bytes.  Raises as `read_body`."""
    # One large buffer goes back to the system when it is freed; thousands of pieces do not.
    body = bytearray(padding)
    chunks = received = 0
    loop = asyncio.get_running_loop()
    began = loop.time()
    due = began + config.slow_seconds
    latest = began + config.body_seconds
    try:
        async with asyncio.timeout_at(min(due, latest)) as timeout:
            async for data, end_of_chunk in request.content.iter_chunks():
                chunks += end_of_chunk
                received += len(data)
                if received > config.max_body_bytes:
                    raise _too_large(config.max_body_bytes)
                if chunks > _MAX_CHUNKS:
                    raise RequestError(413, f"The request's body has more than {_MAX_CHUNKS} chunks")
                budget.take(request, len(data))
                body += data
                # By the least rate for the missing bytes: fast data earlier does not allow a longer pause now.
                due = min(due + len(data) / config.min_body_rate, loop.time() + config.slow_seconds)
                timeout.reschedule(min(due, latest))
    except TimeoutError:
        raise RequestError(
            408,
            f"The body did not arrive: {received} bytes in {loop.time() - began:.1f} s. It may take "
            f"{config.body_seconds:g} s, and {config.min_body_rate:g} bytes have to come in a second; it may be "
            f"{config.slow_seconds:g} s behind that",
        ) from None
    return body


async def _inflated(body: bytes, coding: str) -> AsyncIterator[bytes]:
    """Yield an inflated body in pieces; inflates no more than the caller asks for."""
    wbits = _WBITS.get(coding)
    if wbits is None:
        raise RequestError(
            415,
            f"Content-Encoding '{coding[:40]}' is not supported: use gzip or deflate",
            {"Accept-Encoding": "gzip, deflate"},
        )
    decompressor = zlib.decompressobj(wbits)
    try:
        data = decompressor.decompress(body, _INFLATED_INLINE)
        yield data
        # The decompressor may have output left after it has read all input.
        while not decompressor.eof and (data or decompressor.unconsumed_tail):
            rest = decompressor.unconsumed_tail, _INFLATED_AT_ONCE
            data = await run_in_thread(decompressor.decompress, *rest, on_cancel=OnCancel.ABANDON)
            yield data
    except zlib.error as error:
        raise errors.InvalidArgumentError(f"The request's body is no {coding} data: {error}") from None
    if not decompressor.eof or decompressor.unused_data:
        raise errors.InvalidArgumentError(f"The request's body is cut off, or more than one {coding} stream")


# JSON


def json_object(body: Body) -> dict[str, Any]:
    """The object that a JSON body holds.  Raises InvalidArgumentError if it holds something else."""
    try:
        value = json_text.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise errors.InvalidArgumentError(f"The request's body is no JSON: {why}") from None
    if type(value) is not dict:
        raise errors.InvalidArgumentError(f"The request's body must be a JSON object, got {_kind(value)}")
    return value


def check_fields(value: dict[str, Any], allowed: frozenset[str], where: str) -> None:
    """Raise InvalidArgumentError for unknown fields, most of which are misspelt."""
    if not allowed.issuperset(value):
        unknown = next(key for key in value if key not in allowed)
        raise errors.InvalidArgumentError(
            f"Unknown field {unknown[:80]!r} in {where}; expected some of {', '.join(sorted(allowed))}"
        )


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def expected(what: str, value: Any) -> errors.InvalidArgumentError:
    """`"fetches" must be a list of names, got an object`."""
    return errors.InvalidArgumentError(f"{what}, got {_kind(value)}")


def decode_base64(text: str, what: str) -> bytes:
    """The bytes of a base64 text (RFC 4648, section 4).

    White space is ignored, because MIME encoders break lines, and padding may be missing.

    Raises:
        InvalidArgumentError: `text` is no base64.
    """
    try:
        return _decode_base64(text)
    except (binascii.Error, ValueError) as error:
        raise errors.InvalidArgumentError(f"{what} is no base64: {error}") from None


def _decode_base64(text: str) -> bytes:
    decoded: list[bytes] = []
    rest = b""
    for start in range(0, len(text), _BASE64_AT_ONCE):
        if start:
            loop_budget.let_others_run()
        piece = rest + text[start : start + _BASE64_AT_ONCE].encode("ascii").translate(None, _WHITE_SPACE)
        if b"=" in rest or (decoded and len(decoded[-1]) % 3 and piece):
            raise ValueError("padding before the end")
        whole = len(piece) - len(piece) % 4
        decoded.append(base64.b64decode(piece[:whole], validate=True))
        rest = piece[whole:]
    if rest:
        if b"=" in rest or (decoded and len(decoded[-1]) % 3):
            raise ValueError("incomplete padding")
        decoded.append(base64.b64decode(rest + b"=" * (4 - len(rest)), validate=True))
    return b"".join(decoded)


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=encode_json(value).encode(), status=status, content_type="application/json", headers=headers
    )


# Messages


async def read_message(kind: type[M], body: bytes, limits: MessageLimits) -> M:
    """Decode a message, in a thread if it is large.  Raises as `parse_message`."""
    message, _ = await beside(0, parse_message, kind, body, limits)
    return message


def parse_message(kind: type[M], body: bytes, limits: MessageLimits) -> tuple[M, float]:
    """Decode a message; return it, and the ns that decoding its tensors takes.

    Raises:
        InvalidArgumentError: the bytes are no such message.
        ResourceExhaustedError: the message exceeds a limit.
        NeedsThreadError: on the event loop, which this would hold up.
    """
    size = scan(kind.DESCRIPTOR, body, limits)
    check_inline(size.decode_ns)
    return _parse(kind, body), size.decode_ns


def _parse(kind: type[M], body: bytes) -> M:
    try:
        return wire_format.parse_in_pieces(kind, body)
    except DecodeError:
        raise unreadable(kind.DESCRIPTOR.name.removeprefix("Flat"), body) from None


def parse_graph(body: bytes, limits: MessageLimits) -> proto.FlatGraphDef:
    """Decode a GraphDef, except its nodes' attrs.  Raises as `parse_message`."""
    check_inline(scan(proto.GraphDef.DESCRIPTOR, body, limits).decode_ns)
    return _parse(proto.FlatGraphDef, body)


def parse_with_graph(kind: type[M], body: bytes, limits: MessageLimits) -> tuple[M, proto.FlatGraphDef]:
    """Decode a message and, separately, its field `graph_def`; return both.  Raises as `parse_message`."""
    check_inline(scan(kind.DESCRIPTOR, body, limits).decode_ns)
    graph, rest = wire_format.without(body, kind.DESCRIPTOR.fields_by_name["graph_def"].number)
    return _parse(kind, rest), _parse(proto.FlatGraphDef, graph)


def parse_dict(kind: type[M], value: Any, what: str) -> M:
    """A message from its JSON form.  Raises InvalidArgumentError for unknown fields and bad values."""
    if type(value) is not dict:
        raise expected(f"{what} must be a JSON object", value)
    try:
        return json_format.ParseDict(value, kind())
    except (json_format.ParseError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise errors.InvalidArgumentError(f"{what} is no {kind.DESCRIPTOR.name}: {error}") from None


def protobuf_response(message: Message, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=message.SerializeToString(), status=status, content_type=PROTOBUF, headers=headers)
