"""`GuardedConnection`: a connection of aiohttp's server that `connections.py` may close.

It also refuses requests for runs before aiohttp reads them, where too many wait to be begun (`backlog.py`).

aiohttp closes connections between requests by itself (`keepalive_timeout`), but has no limit of their number, gives
the head of a request as long as that, and waits for ever for a client who does not take an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from aiohttp import web

from aexec_server.backlog import Backlog, MessageFollower, PassedOver
from aexec_server.connections import AnswerWatch, ConnectionTable, Waiting, refused_connection

__all__ = ["GuardedConnection", "guarded"]


def guarded(server: web.Server, table: ConnectionTable, backlog: Backlog) -> Callable[[], GuardedConnection]:
    """Makes the protocols of new connections, as `create_server` asks for them."""
    return lambda: GuardedConnection(server(), table, backlog)


def _awaits_request(handler: web.RequestHandler) -> bool:
    """Is no request, or not all of a request's head, there?  By what aiohttp's own timeout goes by."""
    waiter = handler._waiter
    return waiter is not None and not waiter.done()


def _awaits_body(handler: web.RequestHandler) -> bool:
    request = handler._current_request
    return request is not None and not request.content.is_eof()


class GuardedConnection(asyncio.Protocol):
    """See the module's head."""

    def __init__(self, handler: web.RequestHandler, table: ConnectionTable, backlog: Backlog) -> None:
        self._handler = handler
        self._table = table
        self._backlog = backlog
        self._messages = MessageFollower(handler)
        self._refused: PassedOver | None = None  # whose rest is on the way
        # What it waits for that is no request's body, or else None; it is noticed once a second that a request ended.
        self._since: float | None = table.now
        self._in_head = True
        self._is_new = True  # nothing has come: aiohttp need not even wait for it yet
        self._body_since = 0.0
        self._answer = AnswerWatch()

    # For the table

    def waiting(self) -> tuple[Waiting, float] | None:
        if self._is_new or _awaits_request(self._handler):
            if self._since is None:
                self._since = self._table.now
            return Waiting.FOR_REQUEST, self._since
        return (Waiting.FOR_BODY, self._body_since) if _awaits_body(self._handler) else None

    def is_overdue(self, now: float) -> bool:
        limits = self._table.limits
        if not (self._is_new or _awaits_request(self._handler)):
            return self._answer.is_stalled(self._transport, now, limits)
        if self._since is None:
            self._since = now
        return now - self._since > (limits.header_seconds if self._in_head else limits.idle_seconds)

    def close(self) -> None:
        busy = not _awaits_request(self._handler)
        self._handler.force_close()
        if busy:
            self._transport.abort()

    # From the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._table.admit(self):
            self._handler.connection_made(transport)
        else:
            self._table.farewells.say(self._transport, refused_connection(self._table.limits))

    def data_received(self, data: bytes) -> None:
        self._is_new = False
        if self._refused is not None:
            self._pass_over(self._refused, self._refused.take(data))
            return
        if self._messages.begins_run(data) and _awaits_request(self._handler):
            if self._backlog.is_too_long() and (request := PassedOver.of(data)) is not None:
                self._pass_over(request, True)
                return
            self._backlog.arrived(self._transport, self._has_ended)
        self._handler.data_received(data)
        self._messages.follow(data)
        if not _awaits_request(self._handler):
            if self._since is not None:
                self._body_since = self._table.now
            self._since = None
            self._in_head = False
        elif not self._in_head:
            self._since = self._table.now
            self._in_head = True

    def _has_ended(self) -> bool:
        return _awaits_request(self._handler)

    def _pass_over(self, request: PassedOver, plain: bool) -> None:
        """Refuse a request, at its end; `plain` unless more came than belongs to it."""
        self._refused = None if request.ended else request
        self._since = self._table.now
        if not plain:
            self._transport.close()
        elif request.ended:
            self._backlog.refuse(self._transport)

    def eof_received(self) -> None:
        self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._table.remove(self)
        self._backlog.begun(self._transport)
        self._handler.connection_lost(error)
