"""Takes the bytes of large tensors out of messages before protobuf parses them, which saves a copy.

Unusual messages, such as those with a tensor's content twice, are left unchanged, and protobuf decides what they mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf.message import DecodeError

from aexec import proto
from aexec.framework.wire import wire_format
from aexec.framework.wire.wire_format import LENGTH, enclosed

__all__ = ["attr_tensor_apart", "named_tensors_apart"]

# Contents below this many bytes are left in the message: copying them costs little.
_LARGE = 2**16
# Messages with more fields than this are left unchanged, and so are those with a tensor or entry of more: the search is
# on the event loop.
_MOST_FIELDS = 1000
_MOST_FIELDS_INSIDE = 32
_CONTENT = proto.TensorProto.TENSOR_CONTENT_FIELD_NUMBER << 3 | LENGTH
_NAME, _TENSOR = 1, 2  # of an entry: of a NamedTensorProto, and of a map
_ENTRY = {_NAME << 3 | LENGTH, _TENSOR << 3 | LENGTH}
_TENSOR_ATTR = proto.AttrValue.TENSOR_FIELD_NUMBER

# Offsets of a field's start, of its payload's start, and of its end.
_Place = tuple[int, int, int]


class _UnusualError(Exception):
    """The message is unusual, and is left to protobuf."""


def named_tensors_apart(data: bytes, number: int) -> tuple[bytes, Sequence[str], dict[int, memoryview]]:
    """Take the contents of large tensors out of a message that has tensors with names in the field `number`.

    Returns:
        The message without these contents, the names of all tensors, and the contents by position.  A small or unusual
        message is returned as it is, with no names and no contents.
    """
    names: list[str] = []
    contents: dict[int, memoryview] = {}
    try:
        if len(data) >= _LARGE:
            return b"".join(_rest(data, number, names, contents)), names, contents
    except (DecodeError, IndexError, UnicodeDecodeError, _UnusualError):
        pass
    return data, (), {}


def attr_tensor_apart(entry: bytes) -> tuple[bytes, memoryview] | None:
    """Take the content of a large tensor out of an entry of a map of attrs.

    Returns:
        The entry without the content, and the content; None if the entry is small, unusual, or has no such tensor.
    """
    if len(entry) < _LARGE:
        return None
    try:
        name, value = _entry(entry, 0, len(entry))
        ((tag, tensor),) = _fields(entry, value[1], value[2], _MOST_FIELDS_INSIDE)
        place = _content(entry, tensor) if tag == _TENSOR_ATTR << 3 | LENGTH else None
    except (DecodeError, IndexError, UnicodeDecodeError, ValueError, _UnusualError):
        return None
    if place is None:
        return None
    view = memoryview(entry)
    rest = [view[tensor[1] : place[0]], view[place[2] : tensor[2]]]
    parts = [*enclosed(_NAME, [name.encode()]), *enclosed(_TENSOR, enclosed(_TENSOR_ATTR, rest))]
    return b"".join(parts), view[place[1] : place[2]]


def _rest(data: bytes, number: int, names: list[str], contents: dict[int, memoryview]) -> Iterator[bytes | memoryview]:
    view = memoryview(data)
    for tag, (at, payload, end) in _fields(data, 0, len(data)):
        if tag != number << 3 | LENGTH:
            yield view[at:end]
            continue
        name, tensor = _entry(data, payload, end)
        place = _content(data, tensor) if end - payload >= _LARGE else None
        if place is None:
            yield view[at:end]
        else:
            contents[len(names)] = view[place[1] : place[2]]
            yield from _without(view, number, name, tensor, place)
        names.append(name)


def _without(view: memoryview, number: int, name: str, tensor: _Place, content: _Place) -> Iterator[bytes | memoryview]:
    """A field with a name and a tensor, whose content is left out."""
    rest = [view[tensor[1] : content[0]], view[content[2] : tensor[2]]]
    yield from enclosed(number, [*enclosed(_NAME, [name.encode()]), *enclosed(_TENSOR, rest)])


def _entry(data: bytes, start: int, end: int) -> tuple[str, _Place]:
    """The name in an entry, and the place of its tensor."""
    places = list(_fields(data, start, end, _MOST_FIELDS_INSIDE))
    found = dict(places)
    if found.keys() != _ENTRY or len(places) != len(found):
        raise _UnusualError
    _, begin, after = found[_NAME << 3 | LENGTH]
    return data[begin:after].decode(), found[_TENSOR << 3 | LENGTH]


def _content(data: bytes, tensor: _Place) -> _Place | None:
    """The place of a tensor's content; None if its elements are elsewhere or have no fixed size."""
    found = list(_fields(data, tensor[1], tensor[2], _MOST_FIELDS_INSIDE))
    tags = [tag for tag, _ in found]
    if len(set(tags)) < len(tags):
        raise _UnusualError
    place = dict(found).get(_CONTENT)
    return place if place is not None and place[2] - place[1] >= _LARGE else None


def _fields(data: bytes, start: int, end: int, most: int = _MOST_FIELDS) -> Iterator[tuple[int, _Place]]:
    """Iterate over tag and place of a message's fields.  Raises _UnusualError if there are too many."""
    for count, (tag, at, payload, after) in enumerate(wire_format.fields(data, start, end)):
        if count == most:
            raise _UnusualError
        yield tag, (at, payload, after)
