"""Request bodies and answers: bounded reading, decompression, media types, JSON."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.hdrs import CONTENT_ENCODING, CONTENT_TYPE
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from multidict import istr

from aexec import errors
from aexec.hosting import NeedsThreadError, OnCancel, collector_paused, loop_budget, run_in_thread
from aexec_server import json_text
from aexec_server.error_responses import RequestError
from aexec_server.server_config import ServerConfig

__all__ = [
    "PROTOBUF",
    "accepts",
    "beside",
    "check_fields",
    "check_headers",
    "decode_base64",
    "encode_json",
    "expected",
    "is_protobuf",
    "json_object",
    "json_response",
    "media_type",
    "parse_dict",
    "parse_message",
    "protobuf_response",
    "read_body",
]

T = TypeVar("T")
M = TypeVar("M", bound=Message)

PROTOBUF = "application/x-protobuf"
_PROTOBUF_TYPES = frozenset({PROTOBUF, "application/protobuf", "application/vnd.google.protobuf"})

# So much of a compressed body is inflated on the loop.
_INFLATED_INLINE = int(loop_budget.DEFAULT.inline_ns / loop_budget.INFLATE_NS)
_MAX_CHUNKS = 65536
_WBITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}

_IDEMPOTENCY_KEY = istr("Idempotency-Key")
_PREFER = istr("Prefer")

encode_json = json.JSONEncoder(separators=(",", ":")).encode


def media_type(request: web.Request) -> str:
    """The body's media type in lower case, without parameters; "" if the client names none."""
    return request.headers.get(CONTENT_TYPE, "").partition(";")[0].strip().lower()


def is_protobuf(media: str) -> bool:
    return media in _PROTOBUF_TYPES


def accepts(request: web.Request) -> list[str]:
    """The media types of the Accept header, in the order given."""
    accept = request.headers.get("Accept", "")
    return [part.partition(";")[0].strip().lower() for part in accept.split(",")]


def check_headers(request: web.Request) -> None:
    """Refuse what a header asks for in vain.

    Raises:
        UnimplementedError: an answer before the run has ended, or a replay of a stored answer. A client that sends
            a key counts on retries being safe.
    """
    headers = request.headers
    if _IDEMPOTENCY_KEY in headers:
        raise errors.UnimplementedError(
            "Idempotency-Key is not supported: answers are not stored, so the request would be carried out again"
        )
    if _PREFER in headers and any(
        part.partition(";")[0].strip().lower() == "respond-async"
        for value in headers.getall(_PREFER)
        for part in value.split(",")
    ):
        raise errors.UnimplementedError("Prefer: respond-async is not supported: a run is answered when it has ended")


async def beside(nanoseconds: float, work: Callable[[], T]) -> T:
    """Do work that takes about so long: in a thread if that would hold up the loop.

    The same if it raises NeedsThreadError.
    """
    if loop_budget.DEFAULT.allows(nanoseconds):
        try:
            return work()
        except NeedsThreadError:
            pass

    def in_thread() -> T:
        with collector_paused():
            return work()

    return await run_in_thread(in_thread, on_cancel=OnCancel.ABANDON)


async def read_body(request: web.Request, config: ServerConfig) -> bytes:
    """The whole body, decompressed.

    Raises:
        RequestError: 413 for a body that is too large, before or after decompression; 415 for a
            coding that is not known; 408 if the client takes too long.
        InvalidArgumentError: a body that is cut off, or no data of its coding.
    """
    limit = config.max_body_bytes
    length = request.content_length
    if length is not None and length > limit:
        raise _too_large(limit)
    if length is not None and request.content.is_eof():
        body = await request.read()  # it is all here
    else:
        try:
            async with asyncio.timeout(config.body_seconds):
                body = await _read_slowly(request, limit)
        except TimeoutError:
            raise RequestError(408, f"The body did not arrive within {config.body_seconds:g} s") from None
    coding = request.headers.get(CONTENT_ENCODING)
    if coding is None:
        return body
    return await _decompress(body, coding.strip().lower(), limit)


def _too_large(limit: int) -> RequestError:
    return RequestError(413, f"The request's body is larger than {limit} bytes, the most that this server takes")


async def _read_slowly(request: web.Request, limit: int) -> bytes:
    parts = []
    size = chunks = 0
    async for data, end_of_chunk in request.content.iter_chunks():
        size += len(data)
        chunks += end_of_chunk
        if size > limit:
            raise _too_large(limit)
        if chunks > _MAX_CHUNKS:
            raise RequestError(413, f"The request's body has more than {_MAX_CHUNKS} chunks")
        parts.append(data)
    return b"".join(parts)


async def _decompress(body: bytes, coding: str, limit: int) -> bytes:
    if coding in ("", "identity"):
        return body
    wbits = _WBITS.get(coding)
    if wbits is None:
        raise RequestError(
            415,
            f"Content-Encoding '{coding[:40]}' is not supported: use gzip or deflate",
            {"Accept-Encoding": "gzip, deflate"},
        )
    decompressor = zlib.decompressobj(wbits)
    try:
        data = decompressor.decompress(body, min(_INFLATED_INLINE, limit + 1))
        if decompressor.unconsumed_tail and len(data) <= limit:
            rest = decompressor.unconsumed_tail, limit + 1 - len(data)
            data += await run_in_thread(decompressor.decompress, *rest, on_cancel=OnCancel.ABANDON)
    except zlib.error as error:
        raise errors.InvalidArgumentError(f"The request's body is no {coding} data: {error}") from None
    if len(data) > limit:
        raise _too_large(limit)
    if not decompressor.eof or decompressor.unused_data:
        raise errors.InvalidArgumentError(f"The request's body is cut off, or more than one {coding} stream")
    return data


# JSON


def json_object(body: bytes) -> dict[str, Any]:
    """The object that a JSON body holds.  Raises InvalidArgumentError if it holds something else."""
    try:
        value = json_text.loads(body)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise errors.InvalidArgumentError(f"The request's body is no JSON: {why}") from None
    if type(value) is not dict:
        raise errors.InvalidArgumentError(f"The request's body must be a JSON object, got {_kind(value)}")
    return value


def check_fields(value: dict[str, Any], allowed: frozenset[str], where: str) -> None:
    """Refuse fields that mean nothing: most are misspelt."""
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
    """Raises InvalidArgumentError if `text` is no base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise errors.InvalidArgumentError(f"{what} is no base64: {error}") from None


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=encode_json(value).encode(), status=status, content_type="application/json", headers=headers
    )


# Messages


def parse_message(kind: type[M], body: bytes) -> M:
    """Decode a message.  Raises InvalidArgumentError if the bytes are none."""
    try:
        return kind.FromString(body)
    except DecodeError:
        raise errors.InvalidArgumentError(f"{len(body)} bytes are no {kind.DESCRIPTOR.name}") from None


def parse_dict(kind: type[M], value: Any, what: str) -> M:
    """A message from its JSON form.  Raises InvalidArgumentError for unknown fields and bad values."""
    if type(value) is not dict:
        raise expected(f"{what} must be a JSON object", value)
    try:
        return json_format.ParseDict(value, kind())
    except (json_format.ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise errors.InvalidArgumentError(f"{what} is no {kind.DESCRIPTOR.name}: {error}") from None


def protobuf_response(message: Message, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=message.SerializeToString(), status=status, content_type=PROTOBUF, headers=headers)
