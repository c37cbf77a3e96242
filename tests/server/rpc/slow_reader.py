"""A client of HTTP/2 by hand, which sends a call of gRPC and takes nothing of the answer."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _WINDOW_UPDATE = 0, 1, 4, 8
_END_STREAM, _END_HEADERS = 1, 4
_INITIAL_WINDOW_SIZE = 4


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def _literal(name: str, value: str) -> bytes:
    """A header field that is written out; both are shorter than 127 bytes."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


class UnreadCall:
    """A call of which the server may send no byte of a message but those that `take` allows.

    Attributes:
        reader: what the server sends.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    def take(self, size: int) -> None:
        """Let the server send so many bytes more."""
        for stream in (0, 1):
            self._writer.write(_frame(_WINDOW_UPDATE, 0, stream, struct.pack("!I", size)))


@asynccontextmanager
async def unread_call(address: str, path: str, message: bytes) -> AsyncIterator[UnreadCall]:
    """Context manager: a call whose client lets the server send no byte of a message."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = {":method": "POST", ":scheme": "http", ":path": path, ":authority": address}
    fields = b"".join(_literal(*one) for one in (head | {"content-type": "application/grpc", "te": "trailers"}).items())
    body = b"\x00" + struct.pack("!I", len(message)) + message
    writer.write(
        _PREFACE
        + _frame(_SETTINGS, 0, 0, struct.pack("!HI", _INITIAL_WINDOW_SIZE, 0))
        + _frame(_HEADERS, _END_HEADERS, 1, fields)
        + _frame(_DATA, _END_STREAM, 1, body)
    )
    try:
        yield UnreadCall(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()
