"""Takes the bytes of large tensors out of requests before protobuf parses them, which saves a copy.

Unusual messages, such as those with a tensor's content twice, are left unchanged, and protobuf decides what they mean.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from aexec import proto
from aexec.hosting import wire_format
from aexec.proto import inference, serving

__all__ = ["infer_apart", "predict_apart", "run_step_apart"]

# Contents below this many bytes are left in the message: copying them costs little.
_LARGE = 2**16
# Requests with more fields than this are left unchanged, and so are those with a tensor or entry of more: the search is
# on the event loop.
_MOST_FIELDS = 1000
_MOST_FIELDS_INSIDE = 32
_CONTENT = proto.TensorProto.TENSOR_CONTENT_FIELD_NUMBER
_INPUTS = serving.PredictRequest.INPUTS_FIELD_NUMBER
_FEED = proto.RunStepRequest.FEED_FIELD_NUMBER
_RAW = inference.ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER
_KEY, _VALUE = 1, 2  # of an entry of a map, and of a NamedTensorProto

# Offsets of a field's start, of its payload's start, and of its end.
_Place = tuple[int, int, int]


class _UnusualError(Exception):
    """The message is unusual, and is left to protobuf."""


def predict_apart(data: bytes) -> tuple[bytes, dict[str, memoryview]]:
    """Return a PredictRequest without the contents of its large inputs, and these contents by input name."""
    contents: dict[str, memoryview] = {}
    try:
        if len(data) >= _LARGE:
            return b"".join(_inputs_apart(data, contents)), contents
    except (DecodeError, IndexError, UnicodeDecodeError, _UnusualError):
        pass
    return data, {}


def _inputs_apart(data: bytes, contents: dict[str, memoryview]) -> Iterator[bytes | memoryview]:
    view = memoryview(data)
    names: set[str] = set()
    for tag, (at, payload, end) in _fields(data, 0, len(data)):
        if tag != _tag(_INPUTS):
            yield view[at:end]
            continue
        name, tensor = _entry(data, payload, end)
        if name in names:
            raise _UnusualError
        names.add(name)
        place = _content(data, tensor) if end - payload >= _LARGE else None
        if place is None:
            yield view[at:end]
            continue
        contents[name] = view[place[1] : place[2]]
        yield from _without(view, _INPUTS, name, tensor, place)


def run_step_apart(data: bytes) -> tuple[bytes, dict[int, memoryview]]:
    """A RunStepRequest without the contents of its large feeds, and these contents by the feed's position."""
    contents: dict[int, memoryview] = {}
    try:
        if len(data) >= _LARGE:
            return b"".join(_feeds_apart(data, contents)), contents
    except (DecodeError, IndexError, UnicodeDecodeError, _UnusualError):
        pass
    return data, {}


def _feeds_apart(data: bytes, contents: dict[int, memoryview]) -> Iterator[bytes | memoryview]:
    view, position = memoryview(data), 0
    for tag, (at, payload, end) in _fields(data, 0, len(data)):
        if tag != _tag(_FEED):
            yield view[at:end]
            continue
        name, tensor = _entry(data, payload, end)
        place = _content(data, tensor) if end - payload >= _LARGE else None
        if place is None:
            yield view[at:end]
        else:
            contents[position] = view[place[1] : place[2]]
            yield from _without(view, _FEED, name, tensor, place)
        position += 1


def _without(view: memoryview, number: int, name: str, tensor: _Place, content: _Place) -> Iterator[bytes | memoryview]:
    """A field with a name and a tensor, whose content is left out."""
    rest = [view[tensor[1] : content[0]], view[content[2] : tensor[2]]]
    key = wire_format.enclosed(_KEY, [name.encode()])
    yield from wire_format.enclosed(number, [*key, *wire_format.enclosed(_VALUE, rest)])


def _entry(data: bytes, start: int, end: int) -> tuple[str, _Place]:
    """Return the key of a map's entry, and the place of its value."""
    found = dict(_fields(data, start, end, _MOST_FIELDS_INSIDE))
    if found.keys() != {_tag(_KEY), _tag(_VALUE)}:
        raise _UnusualError
    _, begin, after = found[_tag(_KEY)]
    return data[begin:after].decode(), found[_tag(_VALUE)]


def _content(data: bytes, tensor: _Place) -> _Place | None:
    """Return the place of a tensor's content; None if its elements are elsewhere or have no fixed size."""
    found = list(_fields(data, tensor[1], tensor[2], _MOST_FIELDS_INSIDE))
    tags = [tag for tag, _ in found]
    if len(set(tags)) < len(tags):
        raise _UnusualError
    place = dict(found).get(_tag(_CONTENT))
    return place if place is not None and place[2] - place[1] >= _LARGE else None


def infer_apart(data: bytes) -> tuple[bytes, list[memoryview]]:
    """Return a ModelInferRequest without its raw contents, and these contents; a small message keeps them all."""
    raw: list[memoryview] = []
    try:
        if len(data) >= _LARGE:
            return b"".join(_raw_apart(data, raw)), raw
    except (DecodeError, IndexError, _UnusualError):
        pass
    return data, []


def _raw_apart(data: bytes, raw: list[memoryview]) -> Iterator[memoryview]:
    view = memoryview(data)
    for tag, (at, payload, end) in _fields(data, 0, len(data)):
        if tag == _tag(_RAW):
            raw.append(view[payload:end])
        else:
            yield view[at:end]


def _tag(number: int) -> int:
    return number << 3 | wire_format.LENGTH


def _fields(data: bytes, start: int, end: int, most: int = _MOST_FIELDS) -> Iterator[tuple[int, _Place]]:
    """Iterate over tag and place of a message's fields.  Raises _UnusualError if there are too many."""
    for count, (tag, at, payload, after) in enumerate(wire_format.fields(data, start, end)):
        if count == most:
            raise _UnusualError
        yield tag, (at, payload, after)
