"""`Door`: does for every gRPC call what `core/access.py` and `http/error_responses.py` do for HTTP requests.

It admits the caller, decodes the request within limits, turns errors into a status, and records the call. Of `grpc` it
uses only the methods of a servicer context, so it can be imported without that package.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager, nullcontext
from types import TracebackType
from typing import Any, Protocol

from google.protobuf.message import Message

from aexec import errors
from aexec.errors import Code
from aexec.hosting import STATUS_DETAILS
from aexec_server.clients.caller_header import CALLER_HEADER
from aexec_server.clients.callers import ANYONE, CLIENT, Scope
from aexec_server.core.access_log import log_access
from aexec_server.core.server_state import Server
from aexec_server.core.spans import Spans
from aexec_server.handles import shortened
from aexec_server.http import bodies
from aexec_server.http.error_responses import public_error
from aexec_server.rpc.method import Call, Method
from aexec_server.rpc.peer import host_of
from aexec_server.rpc.rpc_status import error_details, status_message
from aexec_server.rpc.unsent_answers import UnsentAnswers
from aexec_server.settings.trusted_proxies import FORWARDED_FOR, TrustedProxies
from aexec_server.watching.trace_context import TRACERESPONSE

__all__ = ["Context", "Door"]

_CALLER = CALLER_HEADER.lower()
# Bytes of a request that are not counted: there are no more of such requests than calls.
_SMALL = 2**12
_TRACERESPONSE = TRACERESPONSE.lower()
_FORWARDED_FOR = FORWARDED_FOR.lower()


class Context(Protocol):
    """The part of `grpc.aio.ServicerContext` that is used."""

    def invocation_metadata(self) -> Any: ...
    def peer(self) -> str: ...
    def time_remaining(self) -> float | None: ...
    def set_trailing_metadata(self, metadata: Any, /) -> None: ...
    def add_done_callback(self, callback: Callable[[Any], object], /) -> None: ...
    async def abort(self, code: Any, details: str = ..., /) -> Any: ...


class Door:
    """Answers calls of gRPC.

    Args:
        server: the server.
        grpc_code: returns `grpc`'s own form of a code.
        behind_front: the calls come from a front, which names the caller and records them.
    """

    def __init__(self, server: Server, grpc_code: Callable[[Code], Any], *, behind_front: bool = False) -> None:
        self._behind_front = behind_front
        self._server = server
        self._grpc_code = grpc_code
        self._limits = server.config.message_limits
        self._unsent = UnsentAnswers(server, closes=not behind_front)

    def behavior(self, method: Method) -> Callable[[Any, Context], Any]:
        """Return the function that `grpc` calls with the bytes of a request, or with an iterator of them."""
        proxies = self._server.access.proxies
        if method.response_streams:

            async def stream(data: Any, context: Context) -> AsyncIterator[bytes]:
                call = _new_call(method, context, proxies)
                try:
                    with _Recorded(self._record, self._server.spans, call):
                        async with aclosing(self._responses(call, data)) as responses:
                            async for response in responses:
                                sent = self._unsent.sending(call, len(response))
                                try:
                                    yield response
                                finally:
                                    sent()
                except errors.OpError as error:
                    await self._abort(call, context, error)

            return stream

        async def unary(data: Any, context: Context) -> bytes:
            call = _new_call(method, context, proxies)
            try:
                with _Recorded(self._record, self._server.spans, call):
                    response = await self._response(call, data)
                    call.when_ended(self._unsent.sending(call, len(response)))
                    return response
            except errors.OpError as error:
                await self._abort(call, context, error)
                raise

        return unary

    def close(self) -> None:
        """Watch no connections any more."""
        self._unsent.close()

    async def _abort(self, call: Call, context: Context, error: errors.OpError) -> None:
        """End a call with the status of an error: always raises."""
        if call.method.details:
            context.set_trailing_metadata((*_trailing(call), (STATUS_DETAILS, error_details(error))))
        await context.abort(self._grpc_code(error.code), status_message(error))

    async def _response(self, call: Call, data: Any) -> bytes:
        self._admit(call)
        answer = call.method.answer
        if call.method.request_streams:
            return _encoded(await answer(call, self._requests(call, data)))
        if len(data) <= _SMALL:
            return _encoded(await answer(call, await self._request(call.method, data)))
        with self._server.body_budget.holding(call.caller, len(data)):
            return _encoded(await answer(call, await self._request(call.method, data)))

    async def _responses(self, call: Call, data: Any) -> AsyncGenerator[bytes]:
        self._admit(call)
        streams = call.method.request_streams
        with nullcontext() if streams else self._server.body_budget.holding(call.caller, len(data)):
            asked = self._requests(call, data) if streams else await self._request(call.method, data)
            # However the call ends, what answers it ends with it.
            async with aclosing(call.method.answer(call, asked)) as responses:
                async for response in responses:
                    yield _encoded(response)

    async def _requests(self, call: Call, stream: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        async for data in stream:
            with self._server.body_budget.holding(call.caller, len(data)):
                yield await self._request(call.method, data)

    async def _request(self, method: Method, data: bytes) -> Any:
        """Decode a request within limits; with `encoded` return its bytes."""
        return data if method.encoded else await bodies.read_message(method.request, data, self._limits)

    def _admit(self, call: Call) -> None:
        """Find the caller.  Raises OpError if the call is refused."""
        scope, metadata = call.method.scope, call.metadata
        access = self._server.access
        if self._behind_front:
            call.caller = access.admit_relayed_call(_text(metadata.get(_CALLER)), scope)
        else:
            call.caller = access.admit_call(_text(metadata.get("authorization")), call.host, scope)
        CLIENT.set(call.caller.client)
        if scope is not Scope.OPEN:
            self._server.check_accepting()

    def _record(self, call: Call, error: BaseException | None) -> errors.OpError | None:
        """Record a call that has ended; return the error that its client may see, if there is one.

        An exception that is no OpError is logged, and becomes an InternalError.
        """
        code, shown = Code.CANCELLED, None
        if error is None:
            code = Code.OK
        elif isinstance(error, errors.OpError):
            code, shown = error.code, self._noted(call, error)
        elif isinstance(error, Exception):
            internal = errors.InternalError()
            internal.__cause__ = error
            code, shown = Code.INTERNAL, self._noted(call, internal)
        if not self._behind_front:
            self._server.metrics.calls.add((call.method.path, code.name))
        if self._server.config.access_log:
            trace_id = call.trace.trace_id if call.has_trace or code is not Code.OK else ""
            log_access("gRPC", call.method.path, int(code), call.seconds, call.run_id, trace_id)
        return shown

    def _noted(self, call: Call, error: errors.OpError) -> errors.OpError:
        """Return the error that the client may see, after counting it."""
        path = call.method.path
        shown = public_error(error, f"gRPC {shortened(path)} (trace {call.trace.trace_id})")
        if not self._behind_front:
            self._server.activity.note_error(shown, shown.code.http_status, "gRPC", path, path)
        return shown


def _new_call(method: Method, context: Context, proxies: TrustedProxies) -> Call:
    arrival = time.monotonic()
    left = context.time_remaining()
    given = context.invocation_metadata() or ()
    metadata = dict(given)
    peer = context.peer()
    host = host_of(peer)
    if proxies.trusts(host):
        forwarded = [_text(value) or "" for name, value in given if name == _FORWARDED_FOR]
        host = proxies.client_host(host, forwarded)
    call = Call(
        method,
        ANYONE,
        peer,
        host,
        metadata,
        arrival,
        None if left is None else arrival + left,
        lambda ended: context.add_done_callback(lambda _: ended()),
    )
    if call.has_trace:
        context.set_trailing_metadata(_trailing(call))
    return call


def _trailing(call: Call) -> tuple[tuple[str, str], ...]:
    """The trailing metadata of every call."""
    return ((_TRACERESPONSE, str(call.trace)),) if call.has_trace else ()


class _Recorded:
    """Context manager: records a call, which has a span, when it ends.  Raises the error that the client may see."""

    __slots__ = ("_call", "_record", "_span")

    def __init__(
        self, record: Callable[[Call, BaseException | None], errors.OpError | None], spans: Spans | None, call: Call
    ) -> None:
        self._record = record
        self._call = call
        self._span = None if spans is None or not call.method.traced else _traced(spans, call)

    def __enter__(self) -> None:
        if self._span is not None:
            self._span.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._span is not None:
            self._span.__exit__(kind, error, traceback)
        shown = self._record(self._call, error)
        if shown is not None:
            raise shown from None


@contextmanager
def _traced(spans: Spans, call: Call) -> Iterator[None]:
    with spans.call(call.metadata, call.method.path) as trace:
        call.trace = trace
        yield


def _encoded(response: Message | bytes) -> bytes:
    return response if isinstance(response, bytes) else response.SerializeToString()


def _text(value: str | bytes | None) -> str | None:
    return value if isinstance(value, str) else None
