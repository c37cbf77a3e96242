"""`AnswerParts`: an answer whose large tensors are sent from their own memory, after the JSON that tells of them.

Joined to one text they would be copied once more, and with the headers again.  Whoever needs an answer in one piece, to
keep or compress it, asks `in_one_piece`.  `run_response.py` makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

__all__ = ["AnswerParts", "in_one_piece"]


class AnswerParts(Payload):
    """See the module's head.

    Args:
        parts: bytes, one after the other.
    """

    _value: Sequence[bytes | memoryview]

    def __init__(self, parts: Sequence[bytes | memoryview]) -> None:
        super().__init__(parts, content_type="application/octet-stream")
        self._size = sum(map(len, parts))

    def __len__(self) -> int:
        assert self._size is not None
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self._value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for part in self._value:
            await writer.write(part)


def in_one_piece(body: Any) -> bytes | None:
    """The bytes of a response's body; None if it has none, or others than a run's answer has."""
    return bytes(body) if isinstance(body, bytes | AnswerParts) else None
