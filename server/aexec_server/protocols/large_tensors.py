"""Takes the bytes of large tensors out of requests before protobuf parses them, which saves a copy.

Unusual messages, such as those with an input twice, are left unchanged, and protobuf decides what they mean.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from aexec import proto
from aexec.hosting import named_tensors_apart, wire_format
from aexec.proto import inference, serving

__all__ = ["infer_apart", "predict_apart", "run_step_apart"]

# Smaller messages are left unchanged: copying them costs little.
_LARGE = 2**16
# Requests with more fields than this are left unchanged: the search is on the event loop.
_MOST_FIELDS = 1000
_INPUTS = serving.PredictRequest.INPUTS_FIELD_NUMBER
_FEED = proto.RunStepRequest.FEED_FIELD_NUMBER
_RAW = inference.ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER << 3 | wire_format.LENGTH


class _UnusualError(Exception):
    """The message is unusual, and is left to protobuf."""


def predict_apart(data: bytes) -> tuple[bytes, dict[str, memoryview]]:
    """Return a PredictRequest without the contents of its large inputs, and these contents by input name."""
    rest, names, contents = named_tensors_apart(data, _INPUTS)
    if len(set(names)) < len(names):
        return data, {}
    return rest, {names[position]: content for position, content in contents.items()}


def run_step_apart(data: bytes) -> tuple[bytes, dict[int, memoryview]]:
    """A RunStepRequest without the contents of its large feeds, and these contents by the feed's position."""
    rest, _, contents = named_tensors_apart(data, _FEED)
    return rest, contents


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
    for count, (tag, at, payload, end) in enumerate(wire_format.fields(data, 0, len(data))):
        if count == _MOST_FIELDS:
            raise _UnusualError
        if tag == _RAW:
            raw.append(view[payload:end])
        else:
            yield view[at:end]
