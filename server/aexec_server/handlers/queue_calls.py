"""Queues of a session over HTTP: look at them, put elements in, take elements out, close a queue.

Clients wait in the same order of arrival as the graph's own operations.  A client that leaves while it waits has put
nothing and taken nothing; elements that were taken for a client that can no longer be answered are put back in their
place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

from aiohttp import web

from aexec import errors, proto
from aexec.hosting import Queue, QueueStatistics, each_queue, forget_frames, loop_budget
from aexec_server.clients.callers import CALLER, Scope
from aexec_server.core.routes import Route
from aexec_server.core.server_state import Server
from aexec_server.http import bodies
from aexec_server.http.json_style import json_style
from aexec_server.http.json_text import value_pieces
from aexec_server.http.request_preferences import refuse_preferences
from aexec_server.requests.protobuf import run_step_response
from aexec_server.requests.run_request import read_timeout
from aexec_server.requests.run_response import answer_bytes, check_answer_size, tensors_response
from aexec_server.requests.tensor_bodies import TensorBody, TensorMessage, check_form, tensors_text, wants_binary
from aexec_server.requests.tensors import size_of, write_ns
from aexec_server.sessions.hosted_session import HostedSession

__all__ = [
    "check_count",
    "component_names",
    "described_queues",
    "not_put",
    "not_taken",
    "queue_pieces",
    "routes",
    "within",
]

_ENQUEUE_FIELDS = frozenset({"components", "many", "timeout_in_ms"})
_DEQUEUE_FIELDS = frozenset({"count", "up_to", "timeout_in_ms", "parameters"})
_CLOSE_FIELDS = frozenset({"cancel_pending"})
_MAX_COUNT = 1_000_000


def routes(server: Server) -> list[Route]:
    """Return the routes below …/queues."""
    handlers = _Handlers(server)
    all_of_them, one = "/v1/sessions/{session}/queues", "/v1/sessions/{session}/queues/{queue}"
    call = partial(Route, scope=Scope.RUN)
    return [
        call("GET", all_of_them, handlers.list, "List the queues of a session, with waiting runs", None, "Queues"),
        call(
            "POST",
            f"{one}:enqueue",
            handlers.enqueue,
            "Put elements into a queue",
            "Enqueue",
            "Queue",
            parameters=("Inference-Header-Content-Length",),
        ),
        call("POST", f"{one}:dequeue", handlers.dequeue, "Take elements from a queue", "Dequeue", "Elements"),
        call("POST", f"{one}:close", handlers.close, "Close a queue", "CloseQueue", "Queue"),
    ]


class _Handlers:
    def __init__(self, server: Server) -> None:
        self.server = server

    def _changeable(self, request: web.Request) -> HostedSession:
        self.server.check_accepting()
        refuse_preferences(request)
        return self.server.changeable(self.server.session_of(request), request[CALLER])

    async def _read(self, request: web.Request, allowed: frozenset[str]) -> TensorBody | TensorMessage:
        body = await bodies.read_body(request, self.server.config, self.server.body_budget)
        if bodies.is_protobuf(bodies.media_type(request)):
            message = await bodies.read_message(proto.RunStepRequest, body, self.server.config.message_limits)
            return TensorMessage(message, request.query, allowed)
        return await bodies.beside(len(body) * loop_budget.JSON_READ_NS, TensorBody.of, request, body, allowed)

    async def list(self, request: web.Request) -> web.StreamResponse:
        """GET …/queues: the queues that exist so far."""
        with self.server.session_of(request).in_use() as hosted:
            await hosted.settled()
            return await self.server.door.send(request, queue_pieces(hosted), bodies.JSON, in_thread=False)

    async def enqueue(self, request: web.Request) -> web.Response:
        """POST …/{queue}:enqueue"""
        with self._changeable(request).in_use() as hosted:
            name = request.match_info["queue"]
            read = await self._read(request, _ENQUEUE_FIELDS)
            queue = hosted.session.queue(name)
            types, names = queue.resource.spec.types, component_names(name, queue)
            values = await bodies.beside(0, read.tensors, "components", names, types)
            element = values[0] if len(values) == 1 else tuple(values)
            many = _flag(read.fields, "many")
            async with hosted.changing(), self._within(read.fields, not_put(name, many=many)):
                await (queue.put_many(element) if many else queue.put(element))
            return _answer(read, name, queue)

    async def dequeue(self, request: web.Request) -> web.StreamResponse:
        """POST …/{queue}:dequeue"""
        with self._changeable(request).in_use() as hosted:
            name = request.match_info["queue"]
            read = await self._read(request, _DEQUEUE_FIELDS)
            count, up_to = _count(read.fields), _flag(read.fields, "up_to")
            binary, style = wants_binary(read.fields), json_style(request)
            queue = hosted.session.queue(name)
            types, names = queue.resource.spec.types, component_names(name, queue)
            if not read.is_message:
                check_form(names, types, binary)
            within = self._within(read.fields, not_taken(name))
            async with hosted.taking(), within as limit, queue.taking(count, up_to=up_to) as components:
                limit.reschedule(None)
                if hosted.durable is not None:
                    hosted.durable.touch()
                    await hosted.durable.settle()
                size = sum(map(size_of, components))
                check_answer_size(size, self.server.config.max_answer_bytes)
                counted = self.server.door.reserve(answer_bytes(components, as_text=not (read.is_message or binary)))
                if read.is_message:
                    answer = await bodies.beside(
                        size * loop_budget.WIRE_NS, lambda: run_step_response(names, types, components, None)
                    )
                    message = counted(web.Response(body=answer, content_type=bodies.PROTOBUF))
                    return await _delivered(request, self.server.door.check_out(request, message))
                written = await bodies.beside(
                    sum(write_ns(value, binary=bool(binary)) for value in components),
                    lambda: tensors_text("", "components", names, types, components, binary, style),
                )
                return await _delivered(
                    request, self.server.door.check_out(request, counted(tensors_response(*written)))
                )

    async def close(self, request: web.Request) -> web.Response:
        """POST …/{queue}:close"""
        with self._changeable(request).in_use() as hosted:
            read = await self._read(request, _CLOSE_FIELDS)
            queue = hosted.session.queue(request.match_info["queue"])
            async with hosted.changing():
                await queue.close(cancel_pending=_flag(read.fields, "cancel_pending"))
            return _answer(read, request.match_info["queue"], queue)

    def _within(self, fields: dict[str, Any], what: str) -> AbstractAsyncContextManager[asyncio.Timeout]:
        timeout = read_timeout(fields.get("timeout_in_ms", 0), '"timeout_in_ms"', 1e3)
        return within(timeout, self.server.config.max_timeout, what)


@asynccontextmanager
async def within(timeout: float | None, most: float | None, what: str) -> AsyncIterator[asyncio.Timeout]:
    """Context manager: raise DeadlineExceededError if the block exceeds a request's timeout or the server's maximum.

    Args:
        timeout, most: seconds; None for no limit.
        what: what was not done then, such as `not_taken`.
    """
    if most is not None:
        timeout = most if timeout is None else min(timeout, most)
    try:
        async with asyncio.timeout(timeout) as limit:
            yield limit
    except TimeoutError as error:
        forget_frames(error)
        raise errors.DeadlineExceededError(f"{what} within {timeout:g} s, and nobody waits for that any more") from None


def not_put(name: str, *, many: bool) -> str:
    """What to say if the time to put something into a queue was over."""
    return "Not all was put" if many else f"Nothing was put into '{name}'"


def not_taken(name: str) -> str:
    """What to say if the time to take something out of a queue was over."""
    return f"Nothing was taken out of '{name}'"


def queue_pieces(hosted: HostedSession) -> Iterator[str]:
    """The list of a session's queues as JSON, in pieces."""
    return value_pieces({"queues": described_queues(hosted)})


def described_queues(hosted: HostedSession) -> Iterator[dict[str, Any]]:
    """Describe a session's queues, one by one."""
    return (_describe(name, queue.statistics()) for name, queue in each_queue(hosted.session))


def component_names(name: str, queue: Queue) -> list[str]:
    """The names of the components of a queue's elements: `q[0]`, `q[1]`, …"""
    return [f"{name}[{i}]" for i in range(len(queue.resource.spec.types))]


def check_count(count: int | None) -> int | None:
    """A number of elements to take together, None for one.  Raises InvalidArgumentError if it is too large."""
    if count is not None and (type(count) is not int or not 0 <= count <= _MAX_COUNT):
        raise errors.InvalidArgumentError(f'"count" must be a number up to {_MAX_COUNT}, got {str(count)[:40]}')
    return count


async def _delivered(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Write an answer.  Raises ConnectionError if the client has left."""
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("The client has gone")
    await response.prepare(request)
    await response.write_eof()
    if transport.is_closing():
        raise ConnectionResetError("The client has gone")
    return response


def _answer(read: TensorBody | TensorMessage, name: str, queue: Queue) -> web.Response:
    if read.is_message:
        return bodies.protobuf_response(proto.RunStepResponse())
    return bodies.json_response(_describe(name, queue.statistics()))


def _describe(name: str, statistics: QueueStatistics) -> dict[str, Any]:
    """Describe a queue and its state."""
    return {
        "name": name,
        "kind": statistics.kind,
        "size": statistics.size,
        "capacity": statistics.capacity,
        "peak": statistics.peak,
        "enqueued": statistics.enqueued,
        "dequeued": statistics.dequeued,
        "waiting_producers": statistics.waiting_enqueues,
        "waiting_consumers": statistics.waiting_dequeues,
        "closed": statistics.closed,
    }


def _flag(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name, False)
    if type(value) is not bool:
        raise bodies.expected(f'"{name}" must be true or false', value)
    return value


def _count(fields: dict[str, Any]) -> int | None:
    """Return the number of elements to take as a batch; None for a single element."""
    count = check_count(fields.get("count"))
    if count is None and "up_to" in fields:
        raise errors.InvalidArgumentError('"up_to" is for requests with a "count"')
    return count
