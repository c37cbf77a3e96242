"""JSON in pieces: large texts are parsed and written in parts, so that other threads get their turn.

The C code of the standard library's `json` holds the GIL for a whole document; for tens
of megabytes of numbers that is a second in which the event loop stands still, even if
another thread does it.  Here long arrays without strings are cut at their own commas
into parts, between which the interpreter's lock is given away; what cannot be cut goes to `json` as it is.
"""

from __future__ import annotations

import json
from json.decoder import scanstring  # type: ignore[attr-defined]  # typeshed lacks it
from typing import Any

import numpy as np
import numpy.typing as npt

from aexec.hosting import loop_budget

__all__ = ["array_text", "loads"]

# Bytes parsed and numbers written at a stretch.
_PIECE = loop_budget.DEFAULT.pieces(loop_budget.JSON_READ_NS)
_ELEMENTS = loop_budget.DEFAULT.pieces(loop_budget.JSON_WRITE_NS)
_SPACE = b" \t\n\r"

_scan: Any = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # and this
_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().decode


def loads(body: bytes) -> Any:
    """The value of a JSON text in UTF-8.  NaN, Infinity and -Infinity are numbers.

    Raises:
        ValueError: no JSON, or no UTF-8.
        RecursionError: nested deeper than any tensor.
    """
    if len(body) <= 2 * _PIECE or not body.isascii():
        return _decode(body.decode())
    value, end = _Pieces(body).value(0)
    rest = body[end:].strip(_SPACE)
    if rest:
        raise ValueError(f"Extra data after the value: {rest[:20]!r}")
    return value


class _Pieces:
    """A parser of one long text, ASCII only so that characters are bytes."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.text = body.decode("ascii")
        self.bytes = np.frombuffer(body, np.uint8)

    def value(self, start: int) -> tuple[Any, int]:
        start = self._skip(start)
        opening = self.body[start : start + 1]
        if opening == b"[":
            return self._list(start + 1)
        if opening == b"{":
            return self._dict(start + 1)
        return self._scalar(start)

    def _scalar(self, start: int) -> tuple[Any, int]:
        try:
            value, end = _scan(self.text, start)
        except StopIteration:
            raise ValueError(f"Expecting value at character {start}") from None
        return value, end

    def _skip(self, position: int) -> int:
        body = self.body
        while body[position : position + 1] in (b" ", b"\t", b"\n", b"\r"):
            position += 1
        return position

    def _dict(self, position: int) -> tuple[dict[str, Any], int]:
        result: dict[str, Any] = {}
        position = self._skip(position)
        if self.body[position : position + 1] == b"}":
            return result, position + 1
        while True:
            position = self._skip(position)
            if self.body[position : position + 1] != b'"':
                raise ValueError(f"Expecting a name in quotes at character {position}")
            key, position = scanstring(self.text, position + 1)
            position = self._skip(position)
            if self.body[position : position + 1] != b":":
                raise ValueError(f"Expecting ':' at character {position}")
            result[key], position = self.value(position + 1)
            position = self._skip(position)
            after = self.body[position : position + 1]
            if after == b"}":
                return result, position + 1
            if after != b",":
                raise ValueError(f"Expecting ',' or '}}' at character {position}")
            position += 1

    def _list(self, position: int) -> tuple[list[Any], int]:
        result: list[Any] = []
        position = self._skip(position)
        if self.body[position : position + 1] == b"]":
            return result, position + 1
        while True:
            cut, closes = self._cut(position)
            if cut > position:
                result += json.loads(f"[{self.text[position:cut]}]")
                loop_budget.let_others_run()
                position = cut
            else:
                item, position = self.value(position)
                result.append(item)
                position = self._skip(position)
                closes = self.body[position : position + 1] == b"]"
            if closes:
                return result, position + 1
            if self.body[position : position + 1] != b",":
                raise ValueError(f"Expecting ',' or ']' at character {position}")
            position += 1
            if self.body[(after := self._skip(position)) : after + 1] == b"]":
                raise ValueError(f"Expecting value at character {after}")

    def _cut(self, start: int) -> tuple[int, bool]:
        """Where to cut a list's elements that begin at `start`, and whether the list ends there.

        Only where no string is near; `start` itself if there is no cut, as within a very long element.
        """
        if self.body.find(b'"', start, start + _PIECE) >= 0:
            return start, False
        piece = self.bytes[start : start + _PIECE]
        opening = (piece == 91) | (piece == 123)
        closing = (piece == 93) | (piece == 125)
        depth = np.cumsum(opening.astype(np.int32) - closing)
        ends = np.flatnonzero(depth < 0)
        if len(ends):
            end = start + int(ends[0])
            return end, self.body[end : end + 1] == b"]"
        commas = np.flatnonzero((piece == 44) & (depth == 0))
        return (start + int(commas[-1]), False) if len(commas) else (start, False)


def array_text(array: npt.NDArray[Any]) -> str:
    """An array of numbers or booleans as nested JSON lists."""
    if array.size <= _ELEMENTS:
        return _encode(array.tolist())
    row = array.size // len(array)
    if row > _ELEMENTS:
        return f"[{','.join(array_text(part) for part in array)}]"
    step = _ELEMENTS // row
    parts = []
    for start in range(0, len(array), step):
        parts.append(_encode(array[start : start + step].tolist())[1:-1])
        loop_budget.let_others_run()
    return f"[{','.join(parts)}]"
