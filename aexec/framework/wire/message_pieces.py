"""Writes protobuf messages as JSON or text piece by piece, so that a large one never blocks other threads for long.

protobuf's own writers hold the interpreter's lock until the whole message is written, and return it as one string.
Here protobuf writes small parts only, and this module writes what surrounds them.  The pieces joined are what
`json_format.MessageToJson` (with the .proto files' field names) and `text_format.MessageToString` return, except that
map entries may be in another order in JSON.  The caller decides what to do between two pieces, such as to let other
threads run.
Next to read: `aexec/graph/forms/graph_pieces.py`, which writes graphs this way.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf import json_format, text_encoding, text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from aexec.framework.wire.wire_format import is_repeated

__all__ = ["Apart", "Fields", "json_pieces", "text_pieces"]

# Largest part, in bytes, that protobuf writes at once: a millisecond or two if the fields are small.
_SMALL = 2048
# Numbers written at once.
_NUMBERS = 512
# Bytes encoded in base64 at once, a multiple of three; and bytes escaped for text at once.
_BASE64_AT_ONCE = 3 << 14
_ESCAPED_AT_ONCE = 1 << 14
_NUMBER_SIZE = 8
_NOT_NUMBERS = (FieldDescriptor.CPPTYPE_MESSAGE, FieldDescriptor.CPPTYPE_STRING)


class Fields(NamedTuple):
    """A large message whose fields are produced while it is written.

    Attributes:
        kind: its message class.
        values: (field name, value) in the order of field numbers; a repeated field's value may be any iterable.
    """

    kind: type[Message]
    values: Iterable[tuple[str, Any]]


class Apart(NamedTuple):
    """A small message with placeholders for large bytes fields.

    Attributes:
        message: has a placeholder as the value of each of those fields.
        contents: placeholder → the bytes to write there; placeholders are ASCII letters and digits that occur nowhere
            else in the message.
    """

    message: Message
    contents: Mapping[str, memoryview]


# A message, `Fields`, `Apart`, or a scalar.
_Value = Any


class _Large(NamedTuple):
    """An element that is too large to be written together with others; `key` is its key if the field is a map."""

    value: _Value
    key: Any


def json_pieces(message: Message | Fields, indent: str = "") -> Iterator[str]:
    """Yield a message as JSON.

    Args:
        indent: put before every line but the first.
    """
    if isinstance(message, Message) and message.ByteSize() <= _SMALL:
        yield _json(message).replace("\n", f"\n{indent}")
    else:
        yield from _json_object(message, indent)


def _json_object(message: Message | Fields, indent: str) -> Iterator[str]:
    """Yield a large message as JSON, field by field."""
    kind, fields = _fields(message)
    opening = "{"
    for field, value in fields:
        pieces = _json_field(kind, field, value, indent)
        first = next(pieces, None)
        if first is None:
            continue  # it has no elements
        yield f"{opening}\n{indent}{first}"
        opening = ","
        yield from pieces
    yield "{}" if opening == "{" else f"\n{indent}}}"


def _json_field(kind: type[Message], field: Any, value: _Value, indent: str) -> Iterator[str]:
    """Yield one member of a JSON object; `indent` is put before every line but the first."""
    name = f'  "{field.name}": '
    if not is_repeated(field):
        for part in _parts(kind, field, [value]):
            if isinstance(part, _Large):
                yield name
                yield from _json_value(part.value, f"{indent}  ")
            else:
                yield _json(part)[2:-2].replace("\n", f"\n{indent}")
        return
    brackets = "{}" if _is_map(field) else "[]"
    head, tail = f'{{\n  "{field.name}": {brackets[0]}', f"\n  {brackets[1]}\n}}"
    opening = name + brackets[0]
    for part in _parts(kind, field, value):
        if isinstance(part, _Large):
            key = f"{json.dumps(str(part.key))}: " if _is_map(field) else ""
            yield f"{opening}\n{indent}    {key}"
            yield from _json_value(part.value, f"{indent}    ")
        else:
            yield opening + _json(part)[len(head) : -len(tail)].replace("\n", f"\n{indent}")
        opening = ","
    if opening == ",":
        yield f"\n{indent}  {brackets[1]}"


def _json_value(value: _Value, indent: str) -> Iterator[str]:
    if isinstance(value, Apart):
        yield from _with_contents(json_pieces(value.message, indent), value.contents, _base64, _base64_pieces)
    elif isinstance(value, Message | Fields):
        yield from _json_object(value, indent)
    else:
        yield '"'
        if isinstance(value, bytes):
            yield from _base64_pieces(memoryview(value))
        else:
            for start in range(0, len(value), _ESCAPED_AT_ONCE):
                yield json.dumps(value[start : start + _ESCAPED_AT_ONCE])[1:-1]
        yield '"'


def text_pieces(message: Message | Fields, indent: int = 0) -> Iterator[str]:
    """Yield a message in protobuf's text form.

    Args:
        indent: number of spaces before every line.
    """
    if isinstance(message, Message) and message.ByteSize() <= _SMALL:
        yield _text(message, indent)
    else:
        yield from _text_fields(message, indent)


def _text_fields(message: Message | Fields, indent: int) -> Iterator[str]:
    """Yield a large message in text form, field by field."""
    kind, fields = _fields(message)
    for field, value in fields:
        elements = value if is_repeated(field) else [value]
        if _is_map(field):
            elements = {key: value[key] for key in sorted(value)}
        for part in _parts(kind, field, elements):
            if isinstance(part, _Large):
                yield from _text_field(field, part, indent)
            else:
                yield _text(part, indent)


def _text_field(field: Any, large: _Large, indent: int) -> Iterator[str]:
    blanks = " " * indent
    if _is_map(field):
        entry = field.message_type._concrete_class(key=large.key)
        yield f"{blanks}{field.name} {{\n{_text(entry, indent + 2)}"
        yield from _text_field(field.message_type.fields_by_name["value"], _Large(large.value, None), indent + 2)
        yield f"{blanks}}}\n"
    elif isinstance(large.value, Message | Fields | Apart):
        yield f"{blanks}{field.name} {{\n"
        if isinstance(large.value, Apart):
            message, contents = large.value
            yield from _with_contents(text_pieces(message, indent + 2), contents, str, _escaped_pieces)
        else:
            yield from _text_fields(large.value, indent + 2)
        yield f"{blanks}}}\n"
    else:
        yield f'{blanks}{field.name}: "'
        if isinstance(large.value, bytes):
            yield from _escaped_pieces(memoryview(large.value))
        else:
            for start in range(0, len(large.value), _ESCAPED_AT_ONCE):
                yield text_encoding.CEscape(large.value[start : start + _ESCAPED_AT_ONCE], as_utf8=True)
        yield '"\n'


def _base64_pieces(data: memoryview) -> Iterator[str]:
    """The bytes in base64."""
    for start in range(0, len(data), _BASE64_AT_ONCE):
        yield base64.b64encode(data[start : start + _BASE64_AT_ONCE]).decode()


def _escaped_pieces(data: memoryview) -> Iterator[str]:
    """The bytes as protobuf's text form has them between quotes."""
    for start in range(0, len(data), _ESCAPED_AT_ONCE):
        written = _escapes()[np.frombuffer(data[start : start + _ESCAPED_AT_ONCE], np.uint8)]
        yield written.tobytes().translate(None, b"\0").decode()


@cache
def _escapes() -> npt.NDArray[np.uint32]:
    """A table from each byte to its escaped text: four bytes, padded with zeros, as zero itself is escaped."""
    return np.array([text_encoding.CEscape(bytes([byte]), as_utf8=False).encode() for byte in range(256)], "S4").view(
        np.uint32
    )


def _with_contents(
    pieces: Iterable[str],
    contents: Mapping[str, memoryview],
    written: Callable[[str], str],
    content_pieces: Callable[[memoryview], Iterator[str]],
) -> Iterator[str]:
    """The pieces, with the large bytes in place of the placeholders.

    Args:
        written: returns a placeholder as it appears in the pieces.
        content_pieces: writes the bytes.
    """
    marks = {written(mark): content for mark, content in contents.items()}
    for piece in pieces:
        for mark in sorted((mark for mark in marks if mark in piece), key=piece.index):
            before, _, piece = piece.partition(mark)
            yield before
            yield from content_pieces(marks[mark])
        yield piece


def _fields(message: Message | Fields) -> tuple[type[Message], Iterator[tuple[Any, _Value]]]:
    """The class of a message, and its fields that are set."""
    if isinstance(message, Fields):
        by_name = message.kind.DESCRIPTOR.fields_by_name
        return message.kind, ((by_name[name], value) for name, value in message.values)
    return type(message), iter(message.ListFields())


def _parts(kind: type[Message], field: Any, elements: Iterable[Any]) -> Iterator[Message | _Large]:
    """Split a field: messages that hold some of its small elements each, and every large element as a `_Large`."""
    if field.cpp_type not in _NOT_NUMBERS:
        yield from _numbers(kind, field, elements)
        return
    is_map = _is_map(field)
    part, size = kind(), 0
    for element in elements:
        key, value = (element, elements[element]) if is_map else (None, element)  # type: ignore[index]  # it is a map
        own = _size(value)
        if size and size + own > _SMALL:
            yield part
            part, size = kind(), 0
        if own > _SMALL:
            yield _Large(value, key)
            continue
        _put(part, field, key, value)
        size += own + _NUMBER_SIZE
    if size:
        yield part


def _numbers(kind: type[Message], field: Any, elements: Iterable[Any]) -> Iterator[Message]:
    if not is_repeated(field):
        for element in elements:
            yield kind(**{field.name: element})
        return
    values: Any = elements
    for start in range(0, len(values), _NUMBERS):
        part = kind()
        getattr(part, field.name).extend(values[start : start + _NUMBERS])
        yield part


def _put(part: Message, field: Any, key: Any, value: Any) -> None:
    """Set a field of a message, or add an element to it."""
    held = getattr(part, field.name)
    if key is not None:
        if isinstance(value, Message):
            held[key].CopyFrom(value)
        else:
            held[key] = value
    elif is_repeated(field):
        held.append(value)
    elif isinstance(value, Message):
        held.SetInParent()
        held.CopyFrom(value)
    else:
        setattr(part, field.name, value)


def _size(value: _Value) -> int:
    if isinstance(value, Message):
        return value.ByteSize()
    if isinstance(value, Fields | Apart):
        return _SMALL + 1
    return len(value) if isinstance(value, bytes | str) else _NUMBER_SIZE


def _is_map(field: Any) -> bool:
    kind = field.message_type
    return kind is not None and kind.has_options and kind.GetOptions().map_entry


def _json(message: Message) -> str:
    return json_format.MessageToJson(message, preserving_proto_field_name=True)


def _text(message: Message, indent: int) -> str:
    return text_format.MessageToString(message, indent=indent)


def _base64(mark: str) -> str:
    return base64.b64encode(mark.encode()).decode()
