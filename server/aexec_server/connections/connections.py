"""`ConnectionTable`: the open connections of clients; bounds their number, and how long clients may do nothing.

When there are as many connections as allowed, a new one replaces the one that has waited longest for its client: for a
request, or else for a body.  A connection whose request is being answered is never closed for another.  An address with
many connections gives up one of its own, and may not take the last share (`clients/client_shares.py`), so that requests
with long answers keep nobody else out.  Once a second the table closes connections whose client is too slow: with the
head of a request, between requests, or in taking an answer.  (`http/bodies.py` bounds the time of bodies.)

`guarded_connection.py` has the connections of aiohttp's server, `hosts/relay.py` those of the front process.
"""

from __future__ import annotations

import asyncio
import enum
import json
import logging
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from aexec import errors
from aexec_server.clients.callers import anyone_at
from aexec_server.clients.client_shares import ClientShares, ShareError
from aexec_server.connections.lingering_close import LingeringCloses
from aexec_server.connections.lost_connections import LostConnections
from aexec_server.http.error_responses import error_body, status_of, title_of
from aexec_server.settings.server_config import ServerConfig

__all__ = ["AnswerWatch", "Connection", "ConnectionLimits", "ConnectionTable", "Waiting", "refused_connection"]

logger = logging.getLogger(__name__)

_SWEEP_SECONDS = 1.0
_WARN_EVERY = 60.0
# If no connection waits, a new one looks through all of them at most this often.
_LOOK_AGAIN_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of connections in `ServerConfig`.

    Attributes:
        most: the most connections.
        header_seconds: how long the head of a request may take, from its first byte or the connection's beginning.
        idle_seconds: how long a connection may be open between two requests.
        min_rate, slow_seconds: the least bytes of an answer that a client takes in a second, and how long it may be
            slower.
    """

    most: int
    header_seconds: float
    idle_seconds: float
    min_rate: float
    slow_seconds: float

    @staticmethod
    def of(config: ServerConfig, most: int) -> ConnectionLimits:
        return ConnectionLimits(most, config.header_seconds, config.idle_seconds, config.min_rate, config.slow_seconds)


class Waiting(enum.IntEnum):
    """What a connection waits for from its client.  Connections of the first member are closed first to make room."""

    FOR_REQUEST = 0
    FOR_BODY = 1


class Connection(Protocol):
    """What the table needs of a connection."""

    def waiting(self) -> tuple[Waiting, float] | None:
        """What it waits for, and since when, by the table's clock; None while its request is being answered."""
        ...

    def is_overdue(self, now: float) -> bool:
        """True if its client is too slow."""
        ...

    def close(self) -> None:
        """Close it; answers already written are still sent to a client that waits for nothing more."""
        ...


class ConnectionTable:
    """The open connections of clients: bounds their number, and closes those that are too slow or idle too long.

    Args:
        limits: the limits of connections.

    Attributes:
        limits: as given.
        now: a recent time in seconds, cheap to read: the loop's clock, less the time in which the loop was held or had
            not begun, for which no client can be blamed.
        lingering: connections that only wait for their clients to take a last answer.
        lost: ends the requests of lost connections.
        shares: the clients' shares of the connections.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.now = asyncio.get_running_loop().time()
        self.lingering = LingeringCloses()
        self.lost = LostConnections()
        self.shares = ClientShares("connections", "connections", limits.most)
        self._open: dict[Connection, str] = {}  # connection → its client
        # By client, or None for all: connections that may be closed for others, longest waiting first, each with what
        # it waited for when it was found.
        self._lines: dict[str | None, deque[tuple[Connection, tuple[Waiting, float]]]] = {}
        self._none_waited: set[str | None] = set()  # the clients of which none waited at the last look, a moment ago
        self._warned = -_WARN_EVERY

    def __len__(self) -> int:
        return len(self._open)

    @property
    def busy(self) -> bool:
        """True if a request is coming in or being answered."""
        return any((waiting := c.waiting()) is None or waiting[0] is Waiting.FOR_BODY for c in self._open)

    def admit(self, connection: Connection, host: str) -> ShareError | None:
        """Admit a connection from this address, in place of another one if necessary.

        Returns:
            None, or why it is refused: all connections that could be closed are being answered.
        """
        caller = anyone_at(host)
        client = caller.client
        refusal = self.shares.refusal(caller)
        if refusal is not None and not self._make_room(None if self.shares.holds_little(client) else client):
            self.shares.refused += 1
            return refusal
        self.shares.hold(caller)
        self._open[connection] = client
        return None

    def remove(self, connection: Connection) -> None:
        """Remove a closed connection."""
        client = self._open.pop(connection, None)
        if client is not None:
            self.shares.give_back(client)
            if client not in self.shares.held:
                self._lines.pop(client, None)

    def _make_room(self, client: str | None) -> bool:
        """Close a waiting connection of a client, or of any client; return whether one was closed."""
        self._warn()
        while True:
            line = self._lines.get(client) or self._find_waiting(client)
            if not line:
                return False
            connection, waiting = line.popleft()
            if connection in self._open and connection.waiting() == waiting:
                self.remove(connection)
                connection.close()
                return True

    def _find_waiting(self, client: str | None) -> deque[tuple[Connection, tuple[Waiting, float]]] | None:
        """The waiting connections; None if there is none, or was none a moment ago."""
        self._lines.pop(client, None)
        if client in self._none_waited:
            return None
        open_ones = [c for c, whose in self._open.items() if client in (None, whose)]
        found = [(c, waiting) for c in open_ones if (waiting := c.waiting()) is not None]
        if not found:
            self._none_waited.add(client)
            asyncio.get_running_loop().call_later(_LOOK_AGAIN_SECONDS, self._none_waited.discard, client)
            return None
        line = self._lines[client] = deque(sorted(found, key=lambda one: one[1]))
        return line

    def _warn(self) -> None:
        if self.now - self._warned >= _WARN_EVERY:
            self._warned = self.now
            logger.warning("%d connections are open, the most: new ones take the place of idle ones", len(self._open))

    async def sweep(self) -> None:
        """Close connections whose client is too slow, until cancelled."""
        loop = asyncio.get_running_loop()
        before = loop.time()
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            after = loop.time()
            self.now += min(after - before, 2 * _SWEEP_SECONDS)
            before = after
            for connection in [c for c in self._open if c.is_overdue(self.now)]:
                connection.close()

    def close_all(self) -> None:
        for connection in list(self._open):
            connection.close()
        self.lingering.abort()


class AnswerWatch:
    """Tells, once a second, whether a client takes its answer fast enough."""

    __slots__ = ("_left", "_since")

    def __init__(self) -> None:
        self._left = 0
        self._since = 0.0

    def is_stalled(self, transport: asyncio.WriteTransport, now: float, limits: ConnectionLimits) -> bool:
        left = transport.get_write_buffer_size()
        enough = limits.min_rate * limits.slow_seconds
        # If more is left than before, the client has taken the earlier data: more would not be written otherwise.
        if not left or not self._left or left > self._left or self._left - left >= enough:
            self._left, self._since = left, now
            return False
        return now - self._since > limits.slow_seconds


def refused_connection(refusal: ShareError) -> bytes:
    """The answer to a client whose connection is refused."""
    error = errors.UnavailableError(f"All connections that might give way are being answered. {refusal.message}")
    body = json.dumps(error_body(error, "/")).encode()
    head = (
        f"HTTP/1.1 {status_of(error)} {title_of(error.code)}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\nRetry-After: 1\r\n\r\n"
    )
    return head.encode() + body
