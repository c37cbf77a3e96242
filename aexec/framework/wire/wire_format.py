"""Protobuf's wire format: iterating over the fields of a message, and parsing large messages in pieces.

protobuf holds the interpreter's lock while it parses a message, however large, so the event loop stands still.  Hence
`parse_in_pieces` cuts the message between fields and merges the parts, which the format allows. The format is that of
https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from aexec.framework.waiting.long_work import go_on
from aexec.framework.waiting.loop_budget import let_others_run

__all__ = [
    "FIXED32",
    "FIXED64",
    "LENGTH",
    "MAX_DEPTH",
    "VARINT",
    "enclosed",
    "end_of_value",
    "field",
    "fields",
    "is_repeated",
    "parse_in_pieces",
    "put_varint",
    "read_varint",
    "without",
]

M = TypeVar("M", bound=Message)

# Wire types.
VARINT, FIXED64, LENGTH, _GROUP, _END_GROUP, FIXED32 = range(6)

# protobuf's own limit of nesting.
MAX_DEPTH = 100
_MAX_VARINT = 10
# Bytes merged at once: some milliseconds if the submessages are small.
_PIECE = 1 << 15
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_NOT_NUMBERS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE)
_FIXED_TYPES = {
    FieldDescriptor.TYPE_DOUBLE: 8,
    FieldDescriptor.TYPE_FIXED64: 8,
    FieldDescriptor.TYPE_SFIXED64: 8,
    FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_FIXED32: 4,
    FieldDescriptor.TYPE_SFIXED32: 4,
}


def put_varint(value: int) -> bytes:
    """Encode a varint: seven bits a byte, least significant first."""
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def enclosed(number: int, parts: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """A field of this number with the parts, one after another, as its value; the parts are not copied."""
    return [put_varint(number << 3 | LENGTH) + put_varint(sum(map(len, parts))), *parts]


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint, and where it ends.  Raises DecodeError if it has too many bytes, IndexError if it is cut off."""
    value = shift = 0
    for position in range(at, at + _MAX_VARINT):
        byte = data[position]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position + 1
        shift += 7
    raise DecodeError("a varint of more than ten bytes")


def field(data: bytes, at: int) -> tuple[int, int, int, int]:
    """The field that begins at `at`: (its tag, where it begins, where its payload begins, where it ends).

    A tag is the field's number times eight, plus its wire type.

    Raises:
        DecodeError, IndexError: there is no field.
    """
    tag, payload = read_varint(data, at)
    wire = tag & 7
    if tag < 8:
        raise DecodeError("a field without a number")
    if wire == LENGTH:
        size, payload = read_varint(data, payload)
        return tag, at, payload, payload + size
    return tag, at, payload, end_of_value(data, payload, tag)


def fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields, as `field` returns them, of the message between `start` and `end`.

    Raises:
        DecodeError, IndexError: there is no message.
    """
    at = start
    while at < end:
        one = field(data, at)
        at = one[3]
        if at > end:
            raise DecodeError("a field is cut off")
        yield one


def end_of_value(data: bytes, payload: int, tag: int) -> int:
    """Where a value that is not length-delimited ends, which may be behind the data.

    Raises:
        DecodeError, IndexError: there is no value.
    """
    wire = tag & 7
    if wire == VARINT:
        return read_varint(data, payload)[1]
    if wire == _GROUP:
        return _end_of_group(data, payload, tag)
    if wire not in _FIXED_BYTES:
        raise DecodeError(f"wire type {wire}")
    return payload + _FIXED_BYTES[wire]


def _end_of_group(data: bytes, at: int, tag: int) -> int:
    """The end of the group that begins with `tag`."""
    opened = [tag]
    while opened:
        tag, at = read_varint(data, at)
        wire = tag & 7
        if wire == _GROUP:
            opened.append(tag)
            if len(opened) > MAX_DEPTH:
                raise DecodeError("groups in groups")
        elif wire == _END_GROUP:
            if opened.pop() + 1 != tag:
                raise DecodeError("a group ends that was not begun")
        elif wire == LENGTH:
            size, at = read_varint(data, at)
            at += size
        else:
            at = end_of_value(data, at, tag)
    return at


def is_repeated(field: Any) -> bool:
    """True if a field descriptor is that of a repeated field."""
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)  # before protobuf 6.31


def without(data: bytes, number: int) -> tuple[bytes, bytes]:
    """The values of all fields of this number, which are messages or bytes, joined; and the message without them.

    Raises:
        DecodeError, IndexError: there is no message.
    """
    taken = []
    rest = []
    for tag, at, payload, after in fields(data, 0, len(data)):
        if tag == number << 3 | LENGTH:
            taken.append(data[payload:after])
        else:
            rest.append(data[at:after])
    return b"".join(taken), b"".join(rest)


def parse_in_pieces(kind: type[M], data: bytes) -> M:
    """Parse a message in pieces, between which other threads can run.

    Raises:
        DecodeError: the bytes are not such a message.
    """
    if len(data) <= _PIECE:
        return kind.FromString(data)
    message = kind()
    try:
        _merge(message, data, 0, len(data))
    except IndexError:
        raise DecodeError("the message is cut off") from None
    return message


def _merge(message: Message, data: bytes, start: int, end: int) -> None:
    if end - start <= _PIECE:
        _merge_piece(message, data[start:end])
        return
    by_number = message.DESCRIPTOR.fields_by_number
    begun = start  # what is before it has been merged
    for tag, at, payload, after in fields(data, start, end):
        if after - begun <= _PIECE:
            continue
        if at > begun:
            _merge_piece(message, data[begun:at])
            begun = at
        if after - at > _PIECE:
            _merge_large(message, by_number.get(tag >> 3), tag, data, (at, payload, after))
            begun = after
    _merge_piece(message, data[begun:end])


def _merge_large(message: Message, field: Any, tag: int, data: bytes, place: tuple[int, int, int]) -> None:
    at, payload, after = place
    if field is not None and tag & 7 == LENGTH:
        part = _part(message, field)
        if part is not None:
            _merge(part, data, payload, after)
            return
        if is_repeated(field) and field.type not in _NOT_NUMBERS:
            _merge_packed(message, data, place, _FIXED_TYPES.get(field.type, 0))
            return
    _merge_piece(message, data[at:after])


def _part(message: Message, field: Any) -> Message | None:
    """The submessage to merge a field's value into; None if it must be merged whole."""
    if field.message_type is None or field.message_type.GetOptions().map_entry or field.type == field.TYPE_GROUP:
        return None
    value: Any = getattr(message, field.name)
    part: Message = value.add() if is_repeated(field) else value
    part.SetInParent()
    return part


def _merge_packed(message: Message, data: bytes, place: tuple[int, int, int], size: int) -> None:
    """Merge packed numbers as several fields; each number has `size` bytes, or is a varint if that is 0."""
    at, payload, after = place
    tag = data[at : read_varint(data, at)[1]]
    while payload < after:
        cut = min(payload + _PIECE, after)
        if not size:
            while cut < after and data[cut - 1] > 127:
                cut += 1
        _merge_piece(message, tag + put_varint(cut - payload) + data[payload:cut])
        payload = cut


def _merge_piece(message: Message, piece: bytes) -> None:
    message.MergeFromString(piece)
    go_on()
    let_others_run()
