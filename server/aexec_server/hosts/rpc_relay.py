"""`RpcRelay`: the table of gRPC calls for a front, which passes on those that are for a session or a model.

The front admits the caller and records the call, as a server without hosts does.  The process that has the session, or
the models, answers it: the request goes there as bytes, with the caller, the deadline, and the trace.  Cancelling the
call cancels that one.  Reflection and the health of the whole server are answered by the front itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import Any

import grpc

from aexec import proto
from aexec.errors import Code
from aexec.hosting import STATUS_DETAILS, forget_frames, read_status
from aexec_server.clients.caller_header import CALLER_HEADER, caller_value
from aexec_server.core.server_state import Server
from aexec_server.hosts.hosts import Hosts
from aexec_server.hosts.relay import Upstream
from aexec_server.hosts.session_host import SessionHost
from aexec_server.http import bodies
from aexec_server.http.lost_handles import LostError
from aexec_server.rpc.first_text import first_text
from aexec_server.rpc.method import Call, Method
from aexec_server.rpc.rpc_server import rpc_path
from aexec_server.rpc.session_service import RUN_ID, SERVICE, TIMEOUT

__all__ = ["RpcRelay"]

_MASTER, _WORKER = "tensorflow.MasterService", "tensorflow.WorkerService"
_HEALTH, _REFLECTION = "grpc.health.v1.Health", "grpc.reflection."
_CALLER = CALLER_HEADER.lower()
# Of the client's metadata, what says to which trace a call belongs, and what belongs to a run.
_PASSED_ON = ("traceparent", "tracestate", RUN_ID, TIMEOUT)
# The most bytes of what hosts say of errors.
_METADATA_BYTES = 2**16
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_metadata_size", _METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", _METADATA_BYTES),
]


class RpcRelay:
    """Passes gRPC calls on to hosts.

    Args:
        server: the front's own state.
        hosts: the hosts.
        methods: the table of calls that the front itself can answer.
        of_model: returns the process that has the server's own session with a name; None if there is none.
    """

    def __init__(
        self, server: Server, hosts: Hosts, methods: list[Method], of_model: Callable[[str], Upstream | None]
    ) -> None:
        assert server.config.caller_key is not None
        self._key = server.config.caller_key
        self._limits = server.config.message_limits
        self._hosts = hosts
        self._of_model = of_model
        self._services = {method.service for method in methods}
        self._channels: dict[SessionHost, Any] = {}
        self.methods = [self._relayed(method) for method in methods]

    async def close(self) -> None:
        """Close the connections to hosts."""
        for channel in self._channels.values():
            await channel.close()

    def _relayed(self, method: Method) -> Method:
        if method.service.startswith(_REFLECTION):
            return method
        if method.response_streams:
            return replace(method, answer=self._streaming(method), encoded=True)
        if method.path == f"/{_MASTER}/Reset":
            return replace(method, answer=self._reset, encoded=True)
        return replace(method, answer=self._single(method), encoded=True)

    def _single(self, method: Method) -> Callable[[Call, bytes], Any]:
        async def answer(call: Call, data: bytes) -> Any:
            host = self._host(call, data)
            if host is None:
                return await method.answer(call, await self._decoded(method, data))
            return await self._pass_on(call, host, data)

        return answer

    def _streaming(self, method: Method) -> Callable[[Call, Any], Any]:
        async def answer(call: Call, requests: Any) -> AsyncIterator[Any]:
            streams = method.request_streams
            host = self._hosts.models if streams else self._host(call, requests)
            if host is None:
                asked = self._all_decoded(method, requests) if streams else await self._decoded(method, requests)
                async with aclosing(method.answer(call, asked)) as responses:
                    async for response in responses:
                        yield response
                return
            kind = "stream_stream" if streams else "unary_stream"
            with _as_own_errors(), _counted(host):
                begin = getattr(await self._channel(host), kind)(method.path)
                async for response in begin(requests, **self._options(call, host)):
                    yield response

        return answer

    async def _decoded(self, method: Method, data: bytes) -> Any:
        return data if method.encoded else await bodies.read_message(method.request, data, self._limits)

    async def _all_decoded(self, method: Method, requests: Any) -> AsyncIterator[Any]:
        async for data in requests:
            yield await self._decoded(method, data)

    def _host(self, call: Call, data: bytes) -> SessionHost | None:
        """Return the host that answers a call; None for the front.  Raises OpError if the call is refused here."""
        method, hosts = call.method, self._hosts
        if method.service == _HEALTH:
            name = first_text(data)
            return hosts.models if name and name not in self._services else None
        if method.service == _WORKER:
            return None
        if method.service not in (_MASTER, SERVICE):
            return hosts.models
        if method.name == "CreateSession":
            return self._host_of_new(call, "" if method.service == _MASTER else first_text(data))
        handle = first_text(data)
        host = hosts.of(handle) or hosts.of_name(handle)
        if host is None:
            return None if hosts.why_gone(handle) or not handle else hosts.models
        # For another client's session the front answers as if it did not exist.
        return host if not call.caller.name or call.caller.sees(host.client) or host is hosts.models else None

    def _host_of_new(self, call: Call, name: str) -> SessionHost | None:
        """The host for a new session, which has a name or ""."""
        if name and (taken := self._of_model(name)) is not None:
            return taken if isinstance(taken, SessionHost) else None  # which refuses it
        return self._hosts.for_new(call.caller, name or None, None)

    async def _reset(self, call: Call, data: bytes) -> bytes:
        """Reset: closes the client's sessions in all hosts."""
        hosts = self._hosts.of_client(call.caller)
        await asyncio.gather(*(self._pass_on(call, host, data) for host in hosts))
        return proto.ResetResponse().SerializeToString()

    async def _pass_on(self, call: Call, host: SessionHost, data: bytes) -> bytes:
        with _as_own_errors(), _counted(host):
            begin = (await self._channel(host)).unary_unary(call.method.path)
            try:
                return await begin(data, **self._options(call, host))  # type: ignore[no-any-return]
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE and not host.ready:
                    raise await host.why_lost() from None
                raise

    async def _channel(self, host: SessionHost) -> Any:
        """Return the connection to a host when the host listens.  Raises OpError if it does not."""
        channel = self._channels.get(host)
        if channel is None:
            await host.started()
            channel = self._channels.setdefault(
                host, grpc.aio.insecure_channel(f"unix:{rpc_path(host.path)}", options=_OPTIONS)
            )
            for gone in [one for one in self._channels if one.ended is not None]:
                del self._channels[gone]
        return channel

    def _options(self, call: Call, host: SessionHost) -> dict[str, Any]:
        """Return the metadata and the deadline for a call of a host."""
        caller = caller_value(self._key, self._hosts.part_of(call.caller, host))
        metadata = [(name, call.metadata[name]) for name in _PASSED_ON if name in call.metadata]
        timeout = None if call.timeout is None else max(0.0, call.timeout - call.seconds)
        return {"metadata": [*metadata, (_CALLER, caller)], "timeout": timeout}


@contextmanager
def _counted(host: Upstream) -> Iterator[None]:
    """Context manager: count a host as working for a client."""
    host.requests += 1
    try:
        yield
    finally:
        host.completed += 1


@contextmanager
def _as_own_errors() -> Iterator[None]:
    """Context manager: turn the status of a host's answer into an error with its code and text."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        details = dict(error.trailing_metadata() or ()).get(STATUS_DETAILS)
        forget_frames(error)
        told, reason = read_status(error.code().value[0], error.details() or "", details)
        raise LostError(told.message, reason) if reason and told.code is Code.NOT_FOUND else told from None
