"""`LingeringCloses`: connections that are closed after one last answer, without the client losing it.

If a socket is closed while bytes from its client are unread, the connection is reset, and the client may lose the
answer.  So the server shuts down writing first, then reads and drops bytes until the client closes, or has sent or
waited for more than a limit.  Web servers call this a lingering close.  `connections.py` has the connections in use.
"""

from __future__ import annotations

import asyncio

__all__ = ["LingeringCloses"]

# Seconds and bytes for which a connection is read.  With more than `_MOST` connections the oldest is aborted.
_SECONDS = 2.0
_BYTES = 64 << 20
_MOST = 128


class _LingeringClose(asyncio.Protocol):
    """The protocol of a lingering connection: drops all bytes."""

    def __init__(self, lingering: LingeringCloses, transport: asyncio.Transport) -> None:
        self._table = lingering
        self._left = _BYTES
        self.transport = transport
        self.timer = asyncio.get_running_loop().call_later(_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.timer.cancel()
        self._table.ended(self)


class LingeringCloses:
    """The connections that linger, oldest first; at most `_MOST`."""

    def __init__(self) -> None:
        self._closing: dict[_LingeringClose, None] = {}

    def __len__(self) -> int:
        return len(self._closing)

    def close(self, transport: asyncio.Transport, answer: bytes) -> None:
        """Write the answer and close when the client has it.  The transport's protocol gets no further calls."""
        if len(self._closing) >= _MOST:
            next(iter(self._closing)).transport.abort()
        closing = _LingeringClose(self, transport)
        self._closing[closing] = None
        transport.set_protocol(closing)
        transport.write(answer)
        if transport.can_write_eof():  # TLS cannot
            transport.write_eof()
        transport.resume_reading()

    def ended(self, closing: _LingeringClose) -> None:
        """Remove a connection that is closed."""
        self._closing.pop(closing, None)

    def abort(self) -> None:
        """Abort all of them."""
        for closing in list(self._closing):
            closing.transport.abort()
