"""A relay of HTTP/1: passes requests of clients to Unix sockets, and answers back, without keeping their bytes.

`admit` chooses the upstream of each request by its head; requests on one connection may go to different upstreams.  A
connection to an `Upstream` carries one request at a time, and is reused for the next client.  When a client leaves, the
relay closes the upstream connection, which tells the upstream.  A slow receiver holds up its sender: the relay keeps no
more of a message than a socket's buffer.

Bytes that are no request in the strict form of `http/framing.py` go to the upstream `fallback`, with all that follows
on that connection: it refuses them in its own words.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from typing import cast

from aexec import errors
from aexec_server.clients.client_address import peer_host
from aexec_server.connections.connections import AnswerWatch, ConnectionTable, Waiting, refused_connection
from aexec_server.core.access_log import log_access
from aexec_server.http.error_responses import RequestError, error_body, error_headers, status_of, title_of
from aexec_server.http.framing import (
    MAX_HEAD,
    Body,
    FramingError,
    RequestHead,
    ResponseHead,
    TooManyChunksError,
    header_of,
    looks_like_http,
    read_request_head,
    read_response_head,
)
from aexec_server.http.not_begun import ShuttingDownError
from aexec_server.watching.trace_context import parse_traceparent

__all__ = ["Relay", "Upstream", "UpstreamConnection"]

# The most bytes read from a client that sends requests before it has its answers.
_MAX_AHEAD = 64 * 1024
_WRITE_BUFFER = 256 * 1024
_MAX_IDLE = 512

# Called with a head's bytes, the parsed head, and the client's address; returns the head to send, and the upstream.
Admit = Callable[[bytes, RequestHead, str], tuple[bytes, "Upstream"]]


class Upstream:
    """A server of HTTP on a Unix socket, with the connections to it.

    Attributes:
        path: the socket's path.
        requests: the number of requests sent to it.
        completed: the number of these that were answered or given up.
        connecting: the number of requests that wait for a connection to it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.requests = self.completed = self.connecting = 0
        self._idle: list[UpstreamConnection] = []

    def idle_connection(self) -> UpstreamConnection | None:
        """Take an idle connection, or None."""
        return self._idle.pop() if self._idle else None

    async def connect(self) -> UpstreamConnection:
        """Return a new connection.  Raises OSError."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_unix_connection(lambda: UpstreamConnection(self), self.path)
        if connection.lost:
            raise ConnectionResetError
        return connection

    async def connect_ahead(self) -> None:
        """Open a connection before the first request, if possible, so that the request need not wait for one."""
        with contextlib.suppress(OSError):
            self.give_back(await self.connect())

    def give_back(self, connection: UpstreamConnection) -> None:
        """Make a connection idle that has carried its request, unless it is lost."""
        if connection.lost:
            return
        if len(self._idle) < _MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def forget(self, connection: UpstreamConnection) -> None:
        """Remove a lost connection."""
        if connection in self._idle:
            self._idle.remove(connection)

    def close_idle(self, keep: int = 0) -> None:
        """Close idle connections, except `keep` of them."""
        closed, self._idle = self._idle[keep:], self._idle[:keep]
        for connection in closed:
            connection.close()

    async def why_lost(self) -> errors.OpError:
        """The error for a client whose request this upstream will not answer."""
        return ShuttingDownError()


class UpstreamConnection(asyncio.Protocol):
    """One connection to an upstream.

    Attributes:
        upstream: the upstream that it is connected to.
        begun: True once a part of the answer was passed on to the client.
        keep_alive: True if it may carry another request after this answer.
        lost: True once the connection is lost: nothing may be written to it, and no further event comes.
    """

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.begun = False
        self.keep_alive = True
        self.lost = False
        self._client: ClientConnection | None = None
        self._method = b""
        self._raw = False
        self._kept = b""  # an incomplete head of an answer
        self._body: Body | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_WRITE_BUFFER)
        self.write = self._transport.write

    def begin(self, client: ClientConnection, method: bytes, *, raw: bool = False) -> None:
        """Give it to a client until the answer has ended; with `raw`, until it is closed."""
        self._client = client
        self._method = method
        self._raw = raw
        self._body = None
        self.begun = False
        self.upstream.requests += 1

    def _end(self) -> None:
        self._client = None
        self.upstream.completed += 1

    def release(self) -> None:
        """Free it, as request and answer have ended."""
        self._end()
        transport = self._transport
        if self.keep_alive and not transport.is_closing() and not transport.get_write_buffer_size():
            transport.resume_reading()
            self.upstream.give_back(self)
        else:
            transport.close()

    @property
    def ends_by_closing(self) -> bool:
        """True if the end of the connection is the end of the answer."""
        return self._body is not None and self._body.until_closed

    def abandon(self) -> None:
        """Close it because nobody waits for the answer; so the upstream sees that its client left."""
        if self._client is not None:
            self._end()
        self._transport.abort()

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        client = self._client
        if client is None:  # an answer without a request
            self._transport.abort()
        elif self._raw:
            client.write(data)
        else:
            try:
                self._answer(client, self._kept + data if self._kept else data)
            except FramingError:
                self._transport.abort()

    def _answer(self, client: ClientConnection, data: bytes) -> None:
        self._kept = b""
        body = self._body
        if body is None:
            end = data.find(b"\r\n\r\n") + 4
            if end < 4:
                if len(data) > MAX_HEAD:
                    raise FramingError("a head without an end")
                self._kept = data
                return
            head = read_response_head(data[:end], self._method)
            if head.status < 200:
                client.write(data[:end])
                if len(data) > end:
                    self._answer(client, data[end:])
                return
            self._body = body = head.body
            self.keep_alive = head.keep_alive
            self.begun = True
            answer_head = client.answer_begins(data[:end], head)
            passed, taken = body.take(data[end:])
            taken += end
            if taken == len(data) and not body.chunked and len(answer_head) == end:
                client.write(data)
            else:
                client.write(answer_head + passed)
        else:
            passed, taken = body.take(data)
            if passed:
                client.write(passed)
        if taken < len(data):
            raise FramingError("more than an answer")
        if body.ended:
            self._body = None
            client.answer_ended()

    def pause_reading(self) -> None:
        """Stop reading the answer, because the client is slow."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def pause_writing(self) -> None:
        if self._client is not None:
            self._client.pause_reading()

    def resume_writing(self) -> None:
        if self._client is not None:
            self._client.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        client = self._client
        if client is None:
            self.upstream.forget(self)
        else:
            self._end()
            client.upstream_lost(self)


class ClientConnection(asyncio.Protocol):
    """One connection of a client.

    Attributes:
        status: the status of the last answer.
        answer_head: the bytes of its head.
        waits_since: since when it waits for a request, by the table's clock; None while one is being answered.
    """

    def __init__(self, relay: Relay) -> None:
        self.status = 0
        self.answer_head = b""
        self.waits_since: float | None = relay.table.now
        self._may_wait = relay.table.limits.header_seconds
        self._answer = AnswerWatch()
        self._relay = relay
        self._request: RequestHead | None = None  # the request whose answer has not ended
        self._receiving = False  # True until the request's body has ended
        self._answered = False  # True once the answer has ended
        self._last_answer = False  # True once the client was told that no other request may follow
        self._upstream: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._lost = False  # True once the connection is lost; `is_closing` of a TLS transport does not tell
        self._raw = False
        self._held = b""  # received bytes that were not passed on
        self._holding_back = False  # True while reading is paused because of `_held`
        self._held_up = False  # True while reading is paused because the upstream is slow
        self._slow = False  # True while the client does not take what is written
        self._in_head = True  # True while a head is coming, or the first is due
        self._began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_WRITE_BUFFER)
        self.write = self._transport.write
        self._host = peer_host(transport)
        table = self._relay.table
        refusal = table.admit(self, self._host)
        if refusal is not None:
            table.lingering.close(self._transport, refused_connection(refusal))

    # For the table

    def waiting(self) -> tuple[Waiting, float] | None:
        if self.waits_since is not None:
            return Waiting.FOR_REQUEST, self.waits_since
        return (Waiting.FOR_BODY, self._began) if self._receiving else None

    def is_overdue(self, now: float) -> bool:
        if self.waits_since is not None:
            return now - self.waits_since > self._may_wait
        return self._answer.is_stalled(self._transport, now, self._relay.table.limits)

    def _wait_for(self, seconds: float) -> None:
        """Wait for a request, for `seconds`."""
        self.waits_since = self._relay.table.now
        self._may_wait = seconds

    def close(self) -> None:
        if self.waits_since is None:
            self._transport.abort()
        else:
            self._transport.close()

    # From the client

    def data_received(self, data: bytes) -> None:
        if self._held:
            data = self._held + data
            self._held = b""
        self._advance(data)

    def _advance(self, data: bytes) -> None:
        while data:
            if self._raw and self._upstream is not None:
                self._upstream.write(data)
                return
            if self._receiving and self._upstream is not None:
                data = self._pass_body(data, self._upstream)
            elif self._request is not None:
                self._hold(data)
                return
            else:
                data = self._begin(data)

    def _hold(self, data: bytes) -> None:
        self._held = data
        if len(data) > _MAX_AHEAD and not self._holding_back:
            self._holding_back = True
            self._transport.pause_reading()

    def _begin(self, data: bytes) -> bytes:
        """Pass a request on; returns the bytes behind what was passed on."""
        if data[0] in b"\r\n":  # after a body, some clients send an empty line
            data = data.lstrip(b"\r\n")
        end = data.find(b"\r\n\r\n") + 4
        if end < 4:
            if looks_like_http(data):
                if not self._in_head:
                    self._in_head = True
                    self._wait_for(self._relay.table.limits.header_seconds)
                self._held = data
                return b""
            return self._begin_raw(data)
        if end > MAX_HEAD:
            return self._begin_raw(data)
        try:
            request = read_request_head(data[:end])
        except FramingError:
            return self._begin_raw(data)
        try:
            head, upstream = self._relay.admit(data[:end], request, self._host)
        except errors.OpError as error:
            self._request = request
            self._began = time.perf_counter()
            self._refuse(error)
            return b""
        request.size = len(head)
        return self._send_to(upstream, request, head + data[end:])

    def _begin_raw(self, data: bytes) -> bytes:
        self._raw = True
        return self._send_to(self._relay.fallback, RequestHead(b"", b"", None, b""), data)

    def _send_to(self, upstream: Upstream, request: RequestHead, data: bytes) -> bytes:
        self.waits_since = None
        self._in_head = False
        self._request = request
        self._answered = False
        self._began = time.perf_counter()
        connection = upstream.idle_connection()
        if connection is None:
            self._transport.pause_reading()
            self._held = data
            upstream.connecting += 1
            self._connecting = asyncio.ensure_future(self._connect(upstream, request))
            return b""
        return self._send(connection, request, data)

    async def _connect(self, upstream: Upstream, request: RequestHead) -> None:
        try:
            connection = await upstream.connect()
        except OSError:
            self._connecting = None
            self._refuse(await upstream.why_lost())
            return
        finally:
            upstream.connecting -= 1
        self._connecting = None
        if self._is_gone:
            upstream.give_back(connection)
            return
        data, self._held = self._held, b""
        self._transport.resume_reading()
        self._advance(self._send(connection, request, data))

    def _send(self, connection: UpstreamConnection, request: RequestHead, data: bytes) -> bytes:
        connection.begin(self, request.method, raw=self._raw)
        self._upstream = connection
        if self._slow:
            connection.pause_reading()
        body = request.body
        if body is None:
            connection.write(data)
            return b""
        try:
            passed, taken = body.take(data[request.size :])
        except FramingError as error:
            self._refuse_body(error)
            return b""
        taken += request.size
        self._receiving = not body.ended
        if taken == len(data) and not body.chunked:
            connection.write(data)
            return b""
        connection.write(data[: request.size] + passed)
        return data[taken:]

    def _pass_body(self, data: bytes, upstream: UpstreamConnection) -> bytes:
        assert self._request is not None and self._request.body is not None
        body = self._request.body
        try:
            passed, taken = body.take(data)
        except FramingError as error:
            self._refuse_body(error)
            return b""
        if passed:
            upstream.write(passed)
        if body.ended:
            self._receiving = False
            if self._answered:
                self._finish()
        return data[taken:] if taken < len(data) else b""

    def pause_reading(self) -> None:
        """Stop reading the request, because the upstream is slow."""
        self._held_up = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._held_up = False
        if not self._holding_back:
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._slow = True
        if self._upstream is not None:
            self._upstream.pause_reading()

    def resume_writing(self) -> None:
        self._slow = False
        if self._upstream is not None:
            self._upstream.resume_reading()

    @property
    def _is_gone(self) -> bool:
        return self._lost or self._transport.is_closing()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self._relay.table.remove(self)
        if self._upstream is not None:
            self._upstream.abandon()
            self._upstream = None

    # From the upstream

    def answer_begins(self, data: bytes, head: ResponseHead) -> bytes:
        """Return the bytes of an answer's head for the client: if it should go elsewhere, the connection ends."""
        self.status = head.status
        self.answer_head = data
        if not self._relay.leaving() or not head.keep_alive or not data.startswith(b"HTTP/1.1"):
            return data
        self._last_answer = True
        return data[:-2] + b"Connection: close\r\n\r\n"

    def answer_ended(self) -> None:
        """Account for an answer that was written completely."""
        self._answered = True
        if not self._receiving:  # otherwise the upstream reads the rest of the request, or closes
            self._finish()

    def _finish(self) -> None:
        connection, self._upstream = self._upstream, None
        assert connection is not None and self._request is not None
        self._relay.log(self._request, self.status, self._began, self.answer_head)
        self._request = None
        connection.release()
        if self._last_answer or not connection.keep_alive:
            self._transport.close()
            return
        self._wait_for(self._relay.table.limits.idle_seconds)
        if self._held_up:
            self.resume_reading()
        if self._held:
            self._advance_held()

    def _advance_held(self) -> None:
        data, self._held = self._held, b""
        if self._holding_back:
            self._holding_back = False
            self._transport.resume_reading()
        self._advance(data)

    def upstream_lost(self, connection: UpstreamConnection) -> None:
        """Handle an upstream connection that was closed, or whose process ended."""
        self._upstream = None
        if self._raw or self._answered or connection.ends_by_closing:
            self._transport.close()
        elif connection.begun:
            self._transport.abort()  # half an answer must not look like a whole one
        else:
            self._connecting = asyncio.ensure_future(self._refuse_lost(connection.upstream))

    async def _refuse_lost(self, upstream: Upstream) -> None:
        error = await upstream.why_lost()
        self._connecting = None
        self._refuse(error)

    def _refuse_body(self, error: FramingError) -> None:
        assert self._upstream is not None
        self._upstream.abandon()
        message = f"The request's body cannot be read: {error}"
        too_many = isinstance(error, TooManyChunksError)
        self._refuse(RequestError(413, message) if too_many else errors.InvalidArgumentError(message))

    def _refuse(self, error: errors.OpError) -> None:
        """Answer in the upstream's place, and close the connection."""
        if self._is_gone:
            return
        self._upstream = None
        self._held = b""
        assert self._request is not None
        self.status = status_of(error)
        self._relay.log(self._request, self.status, self._began)
        table = self._relay.table
        table.remove(self)
        table.lingering.close(self._transport, refusal(error, self._request))


def refusal(error: errors.OpError, request: RequestHead) -> bytes:
    """The answer to a request that did not reach its upstream, or got no answer there."""
    body = json.dumps(error_body(error, request.path, _trace_id(request))).encode()
    media = "application/problem+json" if request.asks_for_problem else "application/json"
    status = status_of(error)
    lines = [
        f"HTTP/1.1 {status} {title_of(error.code)}",
        f"Content-Type: {media}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    lines += [f"{name}: {value}" for name, value in error_headers(error, status).items()]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if request.method == b"HEAD" else body)


class Relay:
    """Passes requests from clients to upstreams, and answers back, without keeping either.

    Args:
        admit: returns the head to send and the upstream of a request; raises the OpError that refuses it.
        fallback: the upstream for anything that is no proper request.
        table: the table of clients' connections.
        leaving: returns True if clients should go elsewhere: their connections then end with an answer.
        access_log: True to log every request.

    Attributes:
        admit, fallback, table, leaving: as given.
    """

    def __init__(
        self,
        admit: Admit,
        fallback: Upstream,
        table: ConnectionTable,
        *,
        leaving: Callable[[], bool] = lambda: False,
        access_log: bool = False,
    ) -> None:
        self.admit = admit
        self.fallback = fallback
        self.table = table
        self.leaving = leaving
        self._access_log = access_log

    def __call__(self) -> ClientConnection:
        """The protocol of a new connection, for `create_server`."""
        return ClientConnection(self)

    def log(self, request: RequestHead, status: int, began: float, answer_head: bytes = b"") -> None:
        """Log a request that was answered."""
        if self._access_log:
            run_id = (header_of(answer_head, b"aexec-run-id") or b"").decode("ascii", "replace")
            seconds = time.perf_counter() - began
            log_access(request.method.decode(), request.path, status, seconds, run_id, _trace_id(request))


def _trace_id(request: RequestHead) -> str:
    """The id of the client's trace; "" without one."""
    named = request.header(b"traceparent")
    trace = None if named is None else parse_traceparent(named.decode("ascii", "replace"))
    return "" if trace is None else trace.trace_id
