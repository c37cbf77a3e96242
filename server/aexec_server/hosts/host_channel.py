"""`HostChannel`: one end of the pair of sockets over which the front and a session host exchange messages.

A message is a JSON object on a line of its own.  Neither end waits for the other, so a half-written message of a host
does not stop its front.  `session_host.py` sends the front's messages, `host_process.py` answers them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

__all__ = ["HostChannel"]

_MOST = 8 << 20  # bytes of a line


class HostChannel(asyncio.Protocol):
    """One end of the channel between the front and a session host: JSON objects, one a line.

    Args:
        on_message: called with each message of the other end.
        on_end: called when the other end is gone, unless this one was closed.

    Attributes:
        ended: done when nothing more will come.
    """

    def __init__(self, on_message: Callable[[dict[str, Any]], object], on_end: Callable[[], object]) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_message = on_message
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._kept = bytearray()  # the beginning of an incomplete line
        self._closed = False  # True if this end was closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def say(self, message: dict[str, Any]) -> None:
        """Send a message; does nothing if the other end is gone."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def data_received(self, data: bytes) -> None:
        self._kept += data
        if b"\n" in data:
            *lines, rest = bytes(self._kept).split(b"\n")
            self._kept = bytearray(rest)
            for line in lines:
                self._on_message(json.loads(line))
        if len(self._kept) > _MOST:
            self.close()

    def close(self) -> None:
        """Close this end; messages already given are still sent."""
        self._closed = True
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        if not self._closed:
            self._on_end()
