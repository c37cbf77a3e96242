"""`AnswerParts`: an answer whose large tensors are sent from their own memory, after the JSON that tells of them.

Joining them would copy the tensors once more, and joining the headers again.  `in_one_piece` joins them for code that
keeps or compresses an answer.  `requests/run_response.py` makes them.

A large answer is written a piece at a time, and the client must take each within some seconds (`taking`): a client that
does not read loses its connection, which frees the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import Payload
from aiohttp.abc import AbstractStreamWriter

from aexec.hosting import forget_frames

__all__ = ["PIECE", "AnswerParts", "in_one_piece", "slices", "taking"]

# The bytes of an answer that are written at a time; one part in `_SHARES` of the answer if that is more.
PIECE = 1 << 16
_SHARES = 30


class AnswerParts(Payload):
    """An answer as JSON followed by large tensors, each sent from its own memory.

    Args:
        parts: the bytes, in order.

    Attributes:
        patience: the seconds that a client may take for a piece; None for no limit.
        when_sent: called when it was sent or dropped.
    """

    def __init__(self, parts: Sequence[bytes | memoryview]) -> None:
        super().__init__(None, content_type="application/octet-stream")
        self._parts = parts
        self._length = sum(map(len, parts))
        self.patience: float | None = None
        self.when_sent: Callable[[], object] = lambda: None

    @property
    def size(self) -> int:
        return self._length

    def __len__(self) -> int:
        return self._length

    def __bytes__(self) -> bytes:
        return b"".join(self._parts)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        size = max(PIECE, len(self) // _SHARES)
        for part in self._parts:
            for piece in slices(part, size):
                async with taking(writer.transport, self.patience):
                    await writer.write(piece)

    async def close(self) -> None:
        """Release the parts, as aiohttp keeps a response until the next one on its connection."""
        self._parts = ()
        self.when_sent()


def in_one_piece(body: Any) -> bytes | None:
    """The body of a response as bytes; None if it has none, or another kind of body."""
    return bytes(body) if isinstance(body, bytes | AnswerParts) else None


def slices(data: bytes | memoryview, size: int) -> Iterator[bytes | memoryview]:
    """Yield views of the bytes, `size` at a time."""
    if len(data) <= size:
        yield data
        return
    view = memoryview(data)
    for start in range(0, len(view), size):
        yield view[start : start + size]


@asynccontextmanager
async def taking(transport: asyncio.WriteTransport | None, seconds: float | None) -> AsyncIterator[None]:
    """Context manager: the client must take what is written inside within `seconds`, or the connection is closed.

    Raises:
        ConnectionResetError: the client was too slow.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        forget_frames(error)
        if transport is not None:
            transport.abort()
        raise ConnectionResetError("The client did not take its answer") from None
