"""`SessionContents`: what sessions keep (queues, tensors under handles), for `aexec.SessionService`.

Clients wait at queues in the same order of arrival as the graph's own operations.  A client that cancels its call while
it waits has put nothing and taken nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager

from aexec import errors
from aexec.hosting import loop_budget, tensor_from_proto, wire_format
from aexec.proto import rpc
from aexec_server.core.server_state import Server
from aexec_server.handlers.queue_calls import (
    check_count,
    component_names,
    not_put,
    not_taken,
    queue_pieces,
    within,
)
from aexec_server.handlers.tensor_calls import DEFAULT_NAME, found_tensor, message_pieces, tensor_pieces
from aexec_server.http import bodies
from aexec_server.requests.protobuf import run_step_response
from aexec_server.requests.run_response import answer_bytes, check_answer_size
from aexec_server.requests.tensor_bodies import ordered_tensors
from aexec_server.requests.tensors import size_of, write_ns
from aexec_server.rpc.durable_by_rpc import refuse_durable
from aexec_server.rpc.method import Call
from aexec_server.sessions.hosted_session import HostedSession

__all__ = ["SessionContents", "json_answer"]

_JSON = rpc.JsonAnswer.JSON_FIELD_NUMBER


async def json_answer(server: Server, call: Call, parts: Iterable[str], *, in_thread: bool) -> bytes:
    """A JsonAnswer; arguments as of `AnswerDoor.whole`."""
    data, counted = await server.door.whole(parts, client=call.caller.client, in_thread=in_thread)
    call.keep_until_sent(counted)
    return b"".join(wire_format.enclosed(_JSON, [data]))


class SessionContents:
    """The coroutines for queues and kept tensors."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._config = server.config
        self._door = server.door

    def _session(self, handle: str, call: Call) -> HostedSession:
        """A session that the caller may use.  Raises NotFoundError if there is none."""
        return refuse_durable(self._server.sessions.get(handle, call.caller))

    def _changeable(self, handle: str, call: Call) -> HostedSession:
        """Raises PermissionDeniedError if what the session keeps is not the caller's."""
        return self._server.changeable(self._session(handle, call), call.caller)

    # Queues

    async def list_queues(self, call: Call, request: rpc.SessionRequest) -> bytes:
        """ListQueues: the queues that exist so far."""
        with self._session(request.session_handle, call).in_use() as hosted:
            return await json_answer(self._server, call, queue_pieces(hosted), in_thread=False)

    async def enqueue(self, call: Call, request: rpc.EnqueueRequest) -> rpc.QueueResponse:
        """Enqueue: waits until there is room."""
        with self._changeable(request.session_handle, call).in_use() as hosted:
            queue = hosted.session.queue(request.queue)
            names = component_names(request.queue, queue)
            nanoseconds = request.ByteSize() * loop_budget.WIRE_NS
            values = await bodies.beside(nanoseconds, ordered_tensors, request.component, names)
            element = values[0] if len(values) == 1 else tuple(values)
            async with self._within(request.timeout_in_ms, not_put(request.queue, many=request.many)):
                await (queue.put_many(element) if request.many else queue.put(element))
        return rpc.QueueResponse()

    async def dequeue(self, call: Call, request: rpc.DequeueRequest) -> bytes:
        """Dequeue: waits until there is an element."""
        with self._changeable(request.session_handle, call).in_use() as hosted:
            queue = hosted.session.queue(request.queue)
            count = check_count(request.count if request.HasField("count") else None)
            names, types = component_names(request.queue, queue), queue.resource.spec.types
            limited = self._within(request.timeout_in_ms, not_taken(request.queue))
            async with limited as limit, queue.taking(count, up_to=request.up_to) as components:
                limit.reschedule(None)
                size = sum(map(size_of, components))
                check_answer_size(size, self._config.max_answer_bytes)
                call.keep_until_sent(self._door.reserve(answer_bytes(components, as_text=False)))
                return await bodies.beside(
                    size * loop_budget.WIRE_NS, run_step_response, names, types, components, None
                )

    async def close_queue(self, call: Call, request: rpc.CloseQueueRequest) -> rpc.QueueResponse:
        """CloseQueue: no element can be put any more; those in it can still be taken."""
        with self._changeable(request.session_handle, call).in_use() as hosted:
            await hosted.session.queue(request.queue).close(cancel_pending=request.cancel_pending)
        return rpc.QueueResponse()

    # Tensors

    async def list_tensors(self, call: Call, request: rpc.SessionRequest) -> bytes:
        """ListTensors: oldest first."""
        with self._changeable(request.session_handle, call).in_use() as hosted:
            return await json_answer(self._server, call, tensor_pieces(hosted), in_thread=False)

    async def keep_tensor(self, call: Call, request: rpc.KeepTensorRequest) -> rpc.KeepTensorResponse:
        """KeepTensor: keeps a tensor under a new handle."""
        with self._changeable(request.session_handle, call).in_use() as hosted:
            nanoseconds = request.ByteSize() * loop_budget.WIRE_NS
            value = await bodies.beside(nanoseconds, tensor_from_proto, request.tensor)
            kept = await hosted.session.tensors.put(value, request.name or DEFAULT_NAME)
        return rpc.KeepTensorResponse(handle=kept.name)

    async def get_tensor(self, call: Call, request: rpc.KeptTensorRequest) -> bytes:
        """GetTensor: a tensor that is kept."""
        with self._changeable(request.session_handle, call).in_use() as hosted:
            value = found_tensor(hosted.session.tensors.get, request.handle)
            in_thread = not loop_budget.DEFAULT.allows(write_ns(value, binary=False))
            parts = message_pieces(value, self._door.holding)
            data, counted = await self._door.whole(parts, client=call.caller.client, in_thread=in_thread)
        call.keep_until_sent(counted)
        return data

    async def forget_tensor(self, call: Call, request: rpc.KeptTensorRequest) -> rpc.ForgetTensorResponse:
        """ForgetTensor: deletes a tensor that is kept."""
        with self._changeable(request.session_handle, call).in_use() as hosted:
            found_tensor(hosted.session.tensors.delete, request.handle)
        return rpc.ForgetTensorResponse()

    def _within(self, timeout_ms: int, what: str) -> AbstractAsyncContextManager[asyncio.Timeout]:
        if timeout_ms < 0:
            raise errors.InvalidArgumentError(f"timeout_in_ms must not be negative, got {timeout_ms}")
        return within(timeout_ms / 1e3 or None, self._config.max_timeout, what)
