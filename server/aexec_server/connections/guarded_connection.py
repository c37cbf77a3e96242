"""`GuardedConnection`: a connection of aiohttp's server that `connections.py` may close.

It also refuses requests for runs before aiohttp reads them, when too many runs wait to begin (`http/backlog.py`), and
answers direct runs (`handlers/direct_runs.py`).

aiohttp itself closes idle connections (`keepalive_timeout`).  But it does not bound their number, allows the head of a
request the same time, and waits without end for a client that does not take an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

from aiohttp import web

from aexec_server import aiohttp_seam
from aexec_server.clients.client_address import peer_host
from aexec_server.connections.connections import AnswerWatch, ConnectionTable, Waiting, refused_connection
from aexec_server.handlers.direct_runs import DirectRuns, Fate
from aexec_server.http.backlog import Backlog, MessageFollower, PassedOver

__all__ = ["GuardedConnection", "guarded"]


def guarded(
    server: web.Server, table: ConnectionTable, backlog: Backlog, direct: DirectRuns | None = None
) -> Callable[[], GuardedConnection]:
    """Return the protocol factory for `create_server`.

    Args:
        direct: answers direct runs; None if all requests go to aiohttp.
    """
    return lambda: GuardedConnection(server(), table, backlog, direct)


class GuardedConnection(asyncio.Protocol):
    """A connection of aiohttp's server that can be closed for another, refuses runs unread, and answers direct runs."""

    def __init__(
        self, handler: web.RequestHandler, table: ConnectionTable, backlog: Backlog, direct: DirectRuns | None
    ) -> None:
        self._handler = handler
        self._table = table
        self._backlog = backlog
        self._direct = direct
        self._loop = asyncio.get_running_loop()
        self._held: bytes | None = None  # the bytes of a request that waits for its turn, or whose answer for the disk
        self._run_passed_on = False  # True if the last request was a whole run, which aiohttp has
        self._messages = MessageFollower(handler)
        self._refused: PassedOver | None = None  # a refused request, the rest of which is coming
        # Since when it waits for anything but a body, else None; the end of a request is noticed once a second.
        self._since: float | None = table.now
        self._in_head = True
        self._is_new = True  # nothing has come yet, and aiohttp may not be waiting for it
        self._body_since = 0.0
        self._answer = AnswerWatch()

    # For the table

    def waiting(self) -> tuple[Waiting, float] | None:
        if self._held is not None:
            return None
        if self._is_new or aiohttp_seam.awaits_request(self._handler):
            if self._since is None:
                self._since = self._table.now
            return Waiting.FOR_REQUEST, self._since
        return (Waiting.FOR_BODY, self._body_since) if aiohttp_seam.awaits_body(self._handler) else None

    def is_overdue(self, now: float) -> bool:
        limits = self._table.limits
        if self._held is not None or not (self._is_new or aiohttp_seam.awaits_request(self._handler)):
            return self._answer.is_stalled(self._transport, now, limits)
        if self._since is None:
            self._since = now
        return now - self._since > (limits.header_seconds if self._in_head else limits.idle_seconds)

    def close(self) -> None:
        busy = self._held is not None or not aiohttp_seam.awaits_request(self._handler)
        self._held = None
        self._handler.force_close()
        if busy:
            self._transport.abort()

    # From the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        refusal = self._table.admit(self, peer_host(transport))
        if refusal is None:
            self._handler.connection_made(transport)
        else:
            self._table.lingering.close(self._transport, refused_connection(refusal))

    def data_received(self, data: bytes) -> None:
        self._is_new = False
        if self._refused is not None:
            self._pass_over(self._refused, self._refused.take(data))
            return
        if self._held is not None:
            data, self._held = self._held + data, None
            if self._direct is not None:
                self._direct.go_on_ordinarily(self._transport)
            self._pass_on(data, begins_run=False)
            return
        handler, direct = self._handler, self._direct
        begins_run = self._messages.begins_run(data) and (
            aiohttp_seam.awaits_request(handler)
            # Or the last run has been answered, and aiohttp does not yet wait for what has come now.
            or (
                self._run_passed_on
                and direct is not None
                and direct.is_over(self._transport)
                and aiohttp_seam.is_idle(handler)
            )
        )
        if begins_run:
            if self._backlog.refuses(data) and (request := PassedOver.of(data)) is not None:
                self._pass_over(request, True)
                return
            if direct is not None and self._answered(direct, data):
                return
            self._backlog.arrived(self._transport, self._has_ended)
        self._pass_on(data, begins_run=begins_run)

    def _answered(self, direct: DirectRuns, data: bytes, *, again: bool = False) -> bool:
        """True if a request was answered, or is held until its turn.  See `DirectRuns.answer`."""
        arrival = self._backlog.arrival(self._transport)
        fate = direct.answer(self._transport, data, arrival, again=again, on_settled=self._on_settled)
        if fate is Fate.ORDINARY:
            return False
        if fate is Fate.ANSWERED:
            self._stay_open()
            return True
        self._held = data
        if fate is Fate.SETTLING:
            self._stay_open()
            self._backlog.begun(self._transport)
            return True
        if not again:
            self._backlog.arrived(self._transport, self._has_ended)
        turn: asyncio.Future[None] = self._loop.create_future()
        turn.add_done_callback(self._on_turn)
        direct.turns.stand_in_line(self._loop, turn, first=again)
        return True

    def _stay_open(self) -> None:
        """Begin to wait for the next request."""
        self._in_head, self._since = False, None
        aiohttp_seam.keep_open_until(self._handler, self._loop.time() + self._table.limits.idle_seconds)

    def _on_settled(self, written: bool) -> None:
        data, self._held = self._held, None
        if written:
            self._stay_open()
        elif data is not None:
            self._pass_on(data, begins_run=True)

    def _on_turn(self, _: object) -> None:
        data, self._held = self._held, None
        if data is None or self._direct is None:  # more has come, or the connection is closed
            return
        if not self._answered(self._direct, data, again=True):
            self._pass_on(data, begins_run=True)
        elif self._held is None:
            self._backlog.begun(self._transport)

    def _pass_on(self, data: bytes, *, begins_run: bool) -> None:
        """Pass received data on to aiohttp."""
        self._handler.data_received(data)
        self._messages.follow(data)
        self._run_passed_on = False
        if begins_run and not self._messages.between:
            self._backlog.begun(self._transport)  # it waits for its client, and must not keep others from running
        if begins_run and self._direct is not None and (message := self._messages.read_just_now) is not None:
            self._run_passed_on = not message.should_close
            self._direct.passed_on(self._transport)
            self._direct.learn(data, message)
        if not aiohttp_seam.awaits_request(self._handler):
            if self._since is not None:
                self._body_since = self._table.now
            self._since = None
            self._in_head = False
        elif not self._in_head:
            self._since = self._table.now
            self._in_head = True

    def _has_ended(self) -> bool:
        return self._held is None and aiohttp_seam.awaits_request(self._handler)

    def _pass_over(self, request: PassedOver, plain: bool) -> None:
        """Refuse a request at its end; closes the connection unless `plain`: no data beyond the request has come."""
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
        self._held = None
        self._table.remove(self)
        self._backlog.begun(self._transport)
        if self._direct is not None:
            self._direct.ended(self._transport)
        self._table.lost.end(partial(self._handler.connection_lost, error))
