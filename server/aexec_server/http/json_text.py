"""JSON in pieces: large texts are parsed and written in parts, so that other threads get their turn.

The C code of the standard library's `json` holds the GIL for a whole document; for tens of megabytes of numbers that is
a second in which the event loop stands still, even if another thread parses.  Here long arrays are cut at their commas
into parts, and the interpreter's lock is released between them; text that cannot be cut goes to `json` as a whole.
The memory of a parsed text is estimated from its punctuation before it is parsed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from json.decoder import scanstring  # type: ignore[attr-defined]  # typeshed lacks it
from json.encoder import encode_basestring_ascii
from typing import Any

import numpy as np
import numpy.typing as npt

from aexec import errors
from aexec.hosting import finite_float, loop_budget
from aexec_server.http.json_style import JsonStyle, styled

__all__ = ["array_pieces", "array_text", "loads", "value_pieces"]

# The number of bytes parsed, and of numbers written, in a piece.
_PIECE = loop_budget.DEFAULT.pieces(loop_budget.JSON_READ_NS)
_ELEMENTS = loop_budget.DEFAULT.pieces(loop_budget.JSON_WRITE_NS)
# From one of these on, the text is not only items of the same list.
_MARKS = (b'"', b"[", b"]", b"{", b"}", b"\\")
_SPACE = re.compile(rb"[ \t\n\r]*+")
# The number of characters of white space skipped in a piece.
_SKIPPED = 1 << 20

# Values written without giving way; characters that count as one value; characters of a long text.
_SMALL_VALUES = 500
_CHARACTERS_OF_VALUE = 64
# Iterators with fewer items are made lists.
_FEW = 16
_SCALARS = frozenset({int, float, bool, type(None)})
_CHARACTERS = 1 << 15

# Estimated bytes of Python's values for each character of these: objects, lists, quotes, commas.
_BYTES_OF = {b"{": 184, b"[": 64, b'"': 28, b",": 32}
_MAX_OBJECT_BYTES = 512 << 20
_SMALL_ENOUGH = _MAX_OBJECT_BYTES // max(_BYTES_OF.values())  # of any content
_COUNTED = 1 << 20

# Two patterns, because searching for one letter is ten times as fast as searching for either.
_EXPONENT, _CAPITAL_EXPONENT = re.compile(rb"e\+?\d{3}"), re.compile(rb"E\+?\d{3}")
# Maps all digits to 0.
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
# The number of digits up to which a number with an exponent of two digits is finite.
_LONG = 200
_LONG_NUMBER = b"0" * _LONG

# Matches texts without an escaped surrogate that lacks the other half of its pair.
_SOUND = re.compile(
    rb"(?:[^\\]|\\(?:[^u]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*+",
    re.DOTALL,
)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _named_twice(Counter(key for key, _ in pairs).most_common(1)[0][0])
    return members


def _named_twice(key: str) -> ValueError:
    return ValueError(f"{key[:80]!r} is named twice in an object")


# Without `parse_float` the C code makes floats itself, and makes infinities of too large numbers.
_DECODER = json.JSONDecoder(object_pairs_hook=_members)
_CHECKING = json.JSONDecoder(object_pairs_hook=_members, parse_float=finite_float)
_encode = json.JSONEncoder(separators=(",", ":")).encode


def loads(body: bytes) -> Any:
    """The value of a JSON text in UTF-8.  NaN, Infinity and -Infinity are numbers.

    Raises:
        ValueError: the body is no JSON or no UTF-8, an object has a name twice, a surrogate lacks the other of its
            pair, or a decimal number is too large.
        RecursionError: it is nested deeper than any tensor.
        ResourceExhaustedError: its values would take more memory than a request may.
    """
    _check_size(body)
    _check_surrogates(body)
    text = body.decode()
    decoder = _CHECKING if _may_be_too_large(body) else _DECODER
    if len(body) <= _PIECE:
        return _whole(text, decoder)
    pieces = _Pieces(text, decoder)
    value, end = pieces.value(0)
    end = pieces.skip(end)
    if end < len(text):
        raise ValueError(f"Extra data after the value: {text[end : end + 20]!r}")
    return value


def _whole(text: str, decoder: json.JSONDecoder) -> Any:
    try:
        value, end = decoder.scan_once(text, 0)  # type: ignore[attr-defined]  # and this
    except StopIteration:
        end = -1
    return value if end == len(text) else decoder.decode(text)  # `decode` skips white space, or raises


def _check_size(body: bytes) -> None:
    if len(body) <= _SMALL_ENOUGH:
        return
    size = 0
    for start in range(0, len(body), _COUNTED):
        size += sum(cost * body.count(mark, start, start + _COUNTED) for mark, cost in _BYTES_OF.items())
        if size > _MAX_OBJECT_BYTES:
            raise errors.ResourceExhaustedError(
                f"The request's JSON of {len(body)} bytes has so many lists, objects and values that it would take "
                f"more than {_MAX_OBJECT_BYTES} bytes of memory: send tensors as binary data"
            )
        loop_budget.let_others_run()


def _may_be_too_large(body: bytes) -> bool:
    """True if a number may be too large: it has an exponent of three digits, or one of two and very many digits."""
    if len(body) <= _COUNTED:
        return _is_suspect(body)
    for start in range(0, len(body), _COUNTED):
        if _is_suspect(body[start : start + _COUNTED + _LONG]):
            return True
        loop_budget.let_others_run()
    return False


def _is_suspect(text: bytes) -> bool:
    if _EXPONENT.search(text) or (b"E" in text and _CAPITAL_EXPONENT.search(text)):
        return True
    return len(text) >= _LONG and _LONG_NUMBER in text.translate(_DIGITS)


def _check_surrogates(body: bytes) -> None:
    if b"\\ud" not in body and b"\\uD" not in body:
        return
    position = 0
    while position < len(body):
        match = _SOUND.match(body, position, position + _PIECE)
        if match is None or match.end() == position:
            raise ValueError(f"a surrogate without its other half, or no escape, at byte {position}")
        position = match.end()
        loop_budget.let_others_run()


class _Pieces:
    """Parses one long text in pieces.

    Args:
        text: the text.
        decoder: decodes pieces.

    Attributes:
        text: as given.
        body: one byte for each character; characters with a meaning in JSON are ASCII.
    """

    def __init__(self, text: str, decoder: json.JSONDecoder) -> None:
        self.text = text
        self._scan: Any = decoder.scan_once  # type: ignore[attr-defined]
        self._decode = decoder.decode
        self.body = text.encode("ascii", "replace")
        self.bytes = np.frombuffer(self.body, np.uint8)

    def value(self, start: int) -> tuple[Any, int]:
        start = self.skip(start)
        opening = self.body[start : start + 1]
        if opening == b"[":
            return self._list(start + 1)
        if opening == b"{":
            return self._dict(start + 1)
        return self._scalar(start)

    def _scalar(self, start: int) -> tuple[Any, int]:
        try:
            value, end = self._scan(self.text, start)
        except StopIteration:
            raise ValueError(f"Expecting value at character {start}") from None
        return value, end

    def skip(self, position: int) -> int:
        """The end of the white space at `position`."""
        while True:
            match = _SPACE.match(self.body, position, position + _SKIPPED)
            assert match is not None
            if match.end() < position + _SKIPPED:
                return match.end()
            position = match.end()
            loop_budget.let_others_run()

    def _dict(self, position: int) -> tuple[dict[str, Any], int]:
        result: dict[str, Any] = {}
        position = self.skip(position)
        if self.body[position : position + 1] == b"}":
            return result, position + 1
        while True:
            cut, closes = self._cut(position, b"}")
            if cut > position:
                members = self._piece("{", position, cut, "}")
                position = cut
            else:
                key, position = self._name(position)
                value, position = self.value(position)
                members = {key: value}
                position = self.skip(position)
                closes = self.body[position : position + 1] == b"}"
            twice = result.keys() & members.keys()
            if twice:
                raise _named_twice(min(twice))
            result |= members
            if closes:
                return result, position + 1
            position = self._next(position, b"}")

    def _name(self, position: int) -> tuple[str, int]:
        """A member's name, and the position of its value."""
        position = self.skip(position)
        if self.body[position : position + 1] != b'"':
            raise ValueError(f"Expecting a name in quotes at character {position}")
        key, position = scanstring(self.text, position + 1)
        position = self.skip(position)
        if self.body[position : position + 1] != b":":
            raise ValueError(f"Expecting ':' at character {position}")
        return key, position + 1

    def _piece(self, opening: str, start: int, end: int, closing: str) -> Any:
        """Decode the items between `start` and `end`, as one list or object."""
        value = self._decode(f"{opening}{self.text[start:end]}{closing}")
        loop_budget.let_others_run()
        return value

    def _next(self, position: int, closing: bytes) -> int:
        """The position of the next item, behind the required comma."""
        if self.body[position : position + 1] != b",":
            raise ValueError(f"Expecting ',' or '{closing.decode()}' at character {position}")
        position = self.skip(position + 1)
        if self.body[position : position + 1] == closing:
            raise ValueError(f"Expecting value at character {position}")
        return position

    def _list(self, position: int) -> tuple[list[Any], int]:
        result: list[Any] = []
        position = self.skip(position)
        if self.body[position : position + 1] == b"]":
            return result, position + 1
        while True:
            cut, closes = self._cut(position, b"]")
            if cut > position:
                result += self._piece("[", position, cut, "]")
                position = cut
            else:
                item, position = self.value(position)
                result.append(item)
                position = self.skip(position)
                closes = self.body[position : position + 1] == b"]"
            if closes:
                return result, position + 1
            position = self._next(position, b"]")

    def _cut(self, start: int, bracket: bytes) -> tuple[int, bool]:
        """Return where to cut the items, from `start`, of a list or an object, and whether its bracket is there.

        The cut is before the next backslash; it is `start` if there is none, as within a very long element.
        """
        body = self.body
        mark = stop = min(start + _PIECE, len(body))
        for one in _MARKS:
            found = body.find(one, start, mark)
            if found >= 0:
                mark = found
        if mark == stop:  # nothing but numbers, as mostly
            comma = body.rfind(b",", start, stop)
            return max(start, comma), False
        if body[mark] in b"]}":
            return mark, body[mark : mark + 1] == bracket
        backslash = body.find(b"\\", mark, stop)
        return self._cut_among_marks(start, stop if backslash < 0 else backslash, bracket)

    def _cut_among_marks(self, start: int, stop: int, bracket: bytes) -> tuple[int, bool]:
        """Like `_cut`, if strings, lists or objects begin between `start` and `stop`."""
        piece = self.bytes[start:stop]
        opening, closing, commas = (piece == 91) | (piece == 123), (piece == 93) | (piece == 125), piece == 44
        if self.body.find(b'"', start, stop) >= 0:
            outside = np.cumsum(piece == 34, dtype=np.int32) & 1 == 0
            opening, closing, commas = opening & outside, closing & outside, commas & outside
        depth = np.cumsum(opening.view(np.int8) - closing.view(np.int8), dtype=np.int32)
        ends = np.flatnonzero(depth < 0)
        if len(ends):
            end = start + int(ends[0])
            return end, self.body[end : end + 1] == bracket
        cuts = np.flatnonzero(commas & (depth == 0))
        return (start + int(cuts[-1]), False) if len(cuts) else (start, False)


def array_text(array: npt.NDArray[Any], style: JsonStyle | None = None) -> str:
    """An array of numbers or booleans as nested JSON lists."""
    if array.size <= _ELEMENTS:
        return _lists_text(array, style)
    pieces = []
    for piece in array_pieces(array, style):
        pieces.append(piece)
        loop_budget.let_others_run()
    return "".join(pieces)


def array_pieces(array: npt.NDArray[Any], style: JsonStyle | None = None) -> Iterator[str]:
    """Like `array_text`, in pieces that each take less than a slice."""
    if array.size <= _ELEMENTS:
        yield _lists_text(array, style)
        return
    row = array.size // len(array)
    opening = "["
    if row > _ELEMENTS:
        for part in array:
            yield opening
            yield from array_pieces(part, style)
            opening = ","
    else:
        step = _ELEMENTS // row
        for start in range(0, len(array), step):
            yield opening + _lists_text(array[start : start + step], style)[1:-1]
            opening = ","
    yield "]"


def value_pieces(value: Any) -> Iterator[str]:
    """A value as JSON, in pieces.  Iterators are written as lists, with items made one at a time."""
    if isinstance(value, dict):
        yield from _members_pieces(value)
    elif isinstance(value, str):
        yield from _string_pieces(value)
    elif isinstance(value, Iterable):
        yield from _items_pieces(value)
    else:
        yield _encode(value)


def _members_pieces(members: dict[str, Any]) -> Iterator[str]:
    opening = "{"
    few: dict[str, Any] = {}
    room = _SMALL_VALUES
    for name, member in members.items():
        member = _looked_into(member)
        left = _room_after(member, room)
        if left >= 0:
            few[name], room = member, left
            continue
        if few:
            yield opening + _encode(few)[1:-1]
            opening, few, room = ",", {}, _SMALL_VALUES
        yield f"{opening}{encode_basestring_ascii(name)}:"
        yield from value_pieces(member)
        opening = ","
    if few:
        yield opening + _encode(few)[1:-1]
    yield "{}" if opening == "{" and not few else "}"


def _looked_into(value: Any) -> Any:
    """The value; a list in place of an iterator with few items."""
    if not isinstance(value, Iterator):
        return value
    first = list(islice(value, _FEW))
    return first if len(first) < _FEW else chain(first, value)


def _items_pieces(items: Iterable[Any]) -> Iterator[str]:
    opening = "["
    few: list[Any] = []
    room = _SMALL_VALUES
    for item in items:
        room = _room_after(item, room)
        if room >= 0:
            few.append(item)
            continue
        if few:
            yield opening + _encode(few)[1:-1]
            opening, few = ",", []
        room = _room_after(item, _SMALL_VALUES)
        if room >= 0:
            few.append(item)
        else:
            yield opening
            yield from value_pieces(item)
            opening, room = ",", _SMALL_VALUES
    if few:
        yield opening + _encode(few)[1:-1]
    yield "[]" if opening == "[" and not few else "]"


def _string_pieces(text: str) -> Iterator[str]:
    yield '"'
    for start in range(0, len(text), _CHARACTERS):
        yield _encode(text[start : start + _CHARACTERS])[1:-1]
    yield '"'


def _room_after(value: Any, room: int) -> int:
    """The room for values that is left after this one; negative if it does not fit."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return -1 if isinstance(value, Iterator) else room - 1 - _length(value)
    for member in value:
        kind = type(member)
        if kind in _SCALARS:
            room -= 1
        elif kind is str:
            room -= 1 + len(member) // _CHARACTERS_OF_VALUE
        else:
            room = _room_after(member, room - 1)
        if room < 0:
            break
    return room


def _length(value: Any) -> int:
    return len(value) // _CHARACTERS_OF_VALUE if isinstance(value, str) else 0


def _lists_text(array: npt.NDArray[Any], style: JsonStyle | None) -> str:
    values = styled(array, style)
    if style is None and array.dtype.kind in "fiu":
        text = repr(values)
        if "n" not in text:  # finite numbers, which are JSON except for spaces
            return text.replace(" ", "")
    return _encode(values)
