"""Events of a run on the wire: server-sent events, or a JSON object on each line.

html.spec.whatwg.org/multipage/server-sent-events.html.  After the first byte the status is spent: an error is an event,
the last one.  `run_stream.py` is where events come from.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from aiohttp import web
from multidict import istr

from aexec.hosting import datatype_of
from aexec_server import bodies, tensors
from aexec_server.error_responses import error_body, public_error
from aexec_server.json_style import JsonStyle, json_style
from aexec_server.request_wishes import EVENT_STREAM, NDJSON
from aexec_server.run_stream import Event, Output, RunStream
from aexec_server.run_table import Run

__all__ = ["as_they_come", "media_of_events", "write_events"]

_LAST_ID = istr("Last-Event-ID")
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
# What an output's object becomes, given its text.
Wrap = Callable[[str], str]


def media_of_events(request: web.Request) -> str:
    """In which form they are wanted: server-sent events, unless lines are asked for."""
    return NDJSON if NDJSON in request.headers.get("Accept", "").lower() else EVENT_STREAM


async def as_they_come(
    request: web.Request, media: str, stream: RunStream, running: asyncio.Task[web.Response], wrap: Wrap = str
) -> web.StreamResponse:
    """Answer a request for a run with its events; or as it would be without, if it fails before it has begun.

    Whoever cancels this (a client that leaves) cancels the run.

    Args:
        running: the run, whose own answer says nothing but what went wrong.
        wrap: makes what clients get of an output's object.
    """
    begun = asyncio.ensure_future(stream.begun.wait())
    try:
        await asyncio.wait([begun, running], return_when=asyncio.FIRST_COMPLETED)
        if running.done() and running.result().status >= 400 and not stream.told_anything:
            return running.result()
        assert stream.run is not None
        return await write_events(request, media, stream, stream.run, wrap)
    finally:
        begun.cancel()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([begun, running])


async def write_events(
    request: web.Request, media: str, stream: RunStream, run: Run, wrap: Wrap = str
) -> web.StreamResponse:
    """All events of a run, to its end."""
    style = json_style(request)
    response = web.StreamResponse(headers={**_HEADERS, "Content-Type": media, "Aexec-Run-Id": run.id})
    last = request.headers.get(_LAST_ID, "")
    number = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else 0
    await response.prepare(request)
    async for event in stream.events():
        number += 1
        text = await _text(event, stream, run, request, wrap, style)
        await response.write(_framed(media, event.kind, number, text).encode())
    await response.write_eof()
    return response


async def _text(
    event: Event, stream: RunStream, run: Run, request: web.Request, wrap: Wrap, style: JsonStyle | None
) -> str:
    """The event's object, as JSON."""
    if event.kind == "output":
        output: Output = event.what
        nanoseconds = tensors.write_ns(output.value, binary=False)
        return wrap(await bodies.beside(nanoseconds, lambda: _output_text(output, stream.as_list, style)))
    if event.kind == "error":
        error = public_error(event.what, f"run {run.id}")
        return bodies.encode_json(error_body(error, request.path))
    if event.kind == "done":
        return bodies.encode_json({"run_id": run.id})
    return bodies.encode_json(event.what or {})


def _output_text(output: Output, as_list: bool, style: JsonStyle | None) -> str:
    array = tensors.as_array(output.value, output.dtype)
    head = f'{{"name":{bodies.encode_json(output.name)}'
    if as_list:
        facts = f'"datatype":"{datatype_of(output.dtype)}","shape":{list(array.shape)}'
        return f'{head},{facts},"data":{tensors.v2_text(array, output.dtype, style)}}}'
    facts = f'"dtype":"{tensors.people_dtype(output.dtype)}","shape":{list(array.shape)}'
    return f'{head},{facts},"value":{tensors.people_text(array, output.dtype, style)}}}'


def _framed(media: str, kind: str, number: int, text: str) -> str:
    if media == NDJSON:
        rest = text[1:] if text == "{}" else f",{text[1:]}"
        return f'{{"event":"{kind}"{rest}\n'
    if kind == "ping":
        return ": ping\n\n"
    return f"id: {number}\nevent: {kind}\ndata: {text}\n\n"
