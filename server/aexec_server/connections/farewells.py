"""`Farewells`: connections whose client is told one last thing, and then heard no more.

To close a socket while bytes of its client are unread resets the connection, and the client may lose what it was told.
So writing is shut down first, and what comes is read and dropped until the client closes, or has sent or taken its time
for more than it may.  `connections.py` has the connections that are in use.
"""

from __future__ import annotations

import asyncio

__all__ = ["Farewells"]

# How long, and for how many bytes, a client is listened to; and how many there may be before the first has to go.
_SECONDS = 2.0
_BYTES = 64 << 20
_MOST = 128


class _Farewell(asyncio.Protocol):
    """Drops what comes."""

    def __init__(self, farewells: Farewells, transport: asyncio.Transport) -> None:
        self._farewells = farewells
        self._left = _BYTES
        self.transport = transport
        self.timer = asyncio.get_running_loop().call_later(_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.timer.cancel()
        self._farewells.ended(self)


class Farewells:
    """See the module's head."""

    def __init__(self) -> None:
        self._under_way: dict[_Farewell, None] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def say(self, transport: asyncio.Transport, answer: bytes) -> None:
        """Write it, and close as soon as it cannot be lost any more.  The transport's protocol is told no more."""
        if len(self._under_way) >= _MOST:
            next(iter(self._under_way)).transport.abort()
        farewell = _Farewell(self, transport)
        self._under_way[farewell] = None
        transport.set_protocol(farewell)
        transport.write(answer)
        if transport.can_write_eof():  # TLS cannot
            transport.write_eof()
        transport.resume_reading()

    def ended(self, farewell: _Farewell) -> None:
        """Its connection is closed."""
        self._under_way.pop(farewell, None)

    def cut_short(self) -> None:
        """Close all."""
        for farewell in list(self._under_way):
            farewell.transport.abort()
