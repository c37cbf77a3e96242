"""Writes a run's events: server-sent events, or a JSON object on each line.

html.spec.whatwg.org/multipage/server-sent-events.html.  Once the first byte is sent the status cannot change: an error
is then the last event.  The events come from `run_stream.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from itertools import chain
from time import perf_counter

from aiohttp import web
from aiohttp.hdrs import METH_HEAD
from multidict import istr

from aexec.hosting import datatype_of
from aexec_server.http import bodies
from aexec_server.http.answer_door import AnswerDoor
from aexec_server.http.error_responses import error_body, public_error
from aexec_server.http.json_style import JsonStyle, json_style
from aexec_server.http.request_preferences import EVENT_STREAM, NDJSON
from aexec_server.requests import tensors
from aexec_server.requests.run_stream import Event, Output, RunStream
from aexec_server.requests.run_table import Run

__all__ = ["EVENT_HEADERS", "as_they_come", "framed", "media_of_events", "write_events"]

_LAST_ID = istr("Last-Event-ID")
EVENT_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
# Text written before and after an output's object, whose opening brace the text before includes.
Around = tuple[str, str]
_NOTHING: Around = ("", "")


def media_of_events(request: web.Request) -> str:
    """Return the media type of events: server-sent events unless the request accepts lines."""
    return NDJSON if NDJSON in request.headers.get("Accept", "").lower() else EVENT_STREAM


async def as_they_come(
    request: web.Request,
    door: AnswerDoor,
    media: str,
    stream: RunStream,
    running: asyncio.Task[web.Response],
    around: Around = _NOTHING,
) -> web.StreamResponse:
    """Answer a run with its events; with an ordinary answer if it fails before it has begun.

    Cancelling this, as when the client leaves, cancels the run.

    Args:
        running: the run; its answer is used only if it is an error.
        around: text around each output's object.
    """
    begun = asyncio.ensure_future(stream.begun.wait())
    try:
        await asyncio.wait([begun, running], return_when=asyncio.FIRST_COMPLETED)
        if running.done() and running.result().status >= 400 and not stream.told_anything:
            return running.result()
        assert stream.run is not None
        return await write_events(request, door, media, stream, stream.run, around)
    finally:
        begun.cancel()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([begun, running])


async def write_events(
    request: web.Request, door: AnswerDoor, media: str, stream: RunStream, run: Run, around: Around = _NOTHING
) -> web.StreamResponse:
    """Write all events of a run until it ends.

    Events are made only when the client has taken those before: a slow client gets the progress of that moment, and one
    that does not read at all is cut off.
    """
    style = json_style(request)
    response = web.StreamResponse(headers={**EVENT_HEADERS, "Content-Type": media, "Aexec-Run-Id": run.id})
    if request.method == METH_HEAD:
        return response
    last = request.headers.get(_LAST_ID, "")
    number = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else 0
    await response.prepare(request)
    async for made in stream.events():
        event = await stream.settled(made)
        number += 1
        if event.kind == "output":
            head, tail = _frame_of_output(media, number)
            began = perf_counter()
            parts = chain([head, around[0]], _output_parts(event.what, stream.as_list, style), [around[1], tail])
            await door.write(response, request, parts, nanoseconds=tensors.write_ns(event.what.value, binary=False))
            if stream.phases is not None:
                stream.phases.encoding += perf_counter() - began
        else:
            text = framed(media, event.kind, number, _text(event, run, request))
            await door.write(response, request, [text], nanoseconds=0)
            if event.kind == "error":
                break
    await response.write_eof()
    return response


def _text(event: Event, run: Run, request: web.Request) -> str:
    """Return the JSON object of an event other than an output."""
    if event.kind == "error":
        error = public_error(event.what, f"run {run.id}")
        return bodies.encode_json(error_body(error, request.path))
    if event.kind == "done":
        return bodies.encode_json({"run_id": run.id})
    return bodies.encode_json(event.what or {})


def _output_parts(output: Output, as_list: bool, style: JsonStyle | None) -> Iterator[str]:
    array = tensors.as_array(output.value, output.dtype)
    yield f'"name":{bodies.encode_json(output.name)}'
    if as_list:
        yield f',"datatype":"{datatype_of(output.dtype)}","shape":{list(array.shape)},"data":'
        yield from tensors.v2_pieces(array, output.dtype, style)
    else:
        yield f',"dtype":"{output.dtype.name}","shape":{list(array.shape)},"value":'
        yield from tensors.people_pieces(array, output.dtype, style)
    yield "}"


def _frame_of_output(media: str, number: int) -> tuple[str, str]:
    """Return the text before the first member of an output's object, and after the object."""
    if media == NDJSON:
        return '{"event":"output",', "\n"
    return f"id: {number}\nevent: output\ndata: {{", "\n\n"


def framed(media: str, kind: str, number: int, text: str) -> str:
    """Return an event as a client gets it: server-sent, or as a line.

    Args:
        kind: its name.
        number: its id.
        text: its JSON object.
    """
    if media == NDJSON:
        rest = text[1:] if text == "{}" else f",{text[1:]}"
        return f'{{"event":"{kind}"{rest}\n'
    if kind == "ping":
        return ": ping\n\n"
    return f"id: {number}\nevent: {kind}\ndata: {text}\n\n"
