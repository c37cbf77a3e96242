"""Reads and writes runs as TensorFlow's messages: RunStepRequest in, RunStepResponse out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

import aexec
from aexec import errors, proto
from aexec.hosting import DType, dtypes, tensor_from_proto, tensor_to_parts, tensor_to_proto, wire_format
from aexec_server.requests.run_request import MAX_NAMES, RunRequest
from aexec_server.requests.tensors import as_array

__all__ = [
    "error_in_response",
    "error_text",
    "parse_small_run",
    "read_run_step",
    "run_step_response",
    "tensor_message",
]

# Arrays of at least this many bytes are not copied.
_LARGE = 2**14
_FETCHED = proto.RunStepResponse.TENSOR_FIELD_NUMBER
_METADATA = proto.RunStepResponse.METADATA_FIELD_NUMBER
_NAME, _TENSOR = proto.NamedTensorProto.NAME_FIELD_NUMBER, proto.NamedTensorProto.TENSOR_FIELD_NUMBER
_NOTHING_APART: Mapping[int, memoryview] = MappingProxyType({})
_CONTENT = proto.TensorProto.TENSOR_CONTENT_FIELD_NUMBER
# The heads of this many fetched tensors are kept, if their names have at most this many characters.
_MOST_HEADS = 1024
_LONGEST_NAME = 256
# Messages up to this many bytes stay small when decoded; _OBJECTS are types whose elements are objects.
_SMALL = 1024
_OBJECTS = (dtypes.string.enum, dtypes.resource.enum, dtypes.variant.enum)

_NO_METADATA = b"".join(wire_format.enclosed(_METADATA, [b""]))


def parse_small_run(body: bytes) -> proto.RunStepRequest | None:
    """Parse a small message whose tensors are all given as bytes; None for any other, which must be measured first.

    A message in which a singular field occurs twice, so that protobuf merges it, does not serialize to the same bytes
    and is not taken here.
    """
    if len(body) > _SMALL:
        return None
    try:
        message = proto.RunStepRequest.FromString(body)
    except DecodeError:
        return None
    if message.partial_run_handle:
        return None
    for feed in message.feed:
        if not feed.tensor.tensor_content or feed.tensor.dtype in _OBJECTS:
            return None
    return message if message.SerializeToString() == body else None


def read_run_step(message: proto.RunStepRequest, contents: Mapping[int, memoryview] = _NOTHING_APART) -> RunRequest:
    """Return the run that a message asks for.  The message must have been measured.

    Args:
        contents: what was taken out of the message, by the position of the feed.

    Raises:
        InvalidArgumentError: a tensor is not valid, a feed is given twice, or there are too many names.
        UnimplementedError: an option is set that would be ignored though the run depends on it.
    """
    if max(len(message.feed), len(message.fetch), len(message.target)) > MAX_NAMES:
        raise errors.InvalidArgumentError(f"A step may have at most {MAX_NAMES} feeds, fetches and targets each")
    request = RunRequest(fetches=tuple(message.fetch), targets=tuple(message.target), as_message=True)
    for position, feed in enumerate(message.feed):
        if feed.name in request.feeds:
            raise errors.InvalidArgumentError(f'Endpoint "{feed.name}" fed more than once.')
        request.feeds[feed.name] = tensor_from_proto(feed.tensor, content=contents.get(position))
    if message.options.ListFields():
        request.set_options(message.options)
    return request


def run_step_response(
    names: Sequence[str], dtypes: Sequence[DType], values: Sequence[Any], metadata: aexec.RunMetadata | None
) -> bytes:
    """Return the serialized answer: tensors in the order asked for, dense, as TensorFlow's services send them."""
    parts: list[bytes | memoryview] = []
    for name, dtype, value in zip(names, dtypes, values, strict=True):
        if _has_plain_content(value, dtype) and len(name) <= _LONGEST_NAME:
            parts += _head(name, dtype, value.shape), value.tobytes()
            continue
        tensor = wire_format.enclosed(_TENSOR, _tensor_parts(value, dtype))
        parts += wire_format.enclosed(_FETCHED, [*wire_format.enclosed(_NAME, [name.encode()]), *tensor])
    if metadata is None:
        parts.append(_NO_METADATA)
    else:
        parts += wire_format.enclosed(_METADATA, [metadata.to_proto().SerializeToString()])
    return b"".join(parts)


def _has_plain_content(value: Any, dtype: DType) -> bool:
    """True if a value is sent as its own bytes, and is small enough to copy these once more."""
    return (
        isinstance(value, np.ndarray | np.generic)
        and value.dtype is dtype.np
        and dtype.size > 0
        and 0 < value.nbytes < _LARGE
    )


@lru_cache(maxsize=_MOST_HEADS)
def _head(name: str, dtype: DType, shape: tuple[int, ...]) -> bytes:
    """Return the field of a fetched tensor up to its elements, which end it."""
    size = dtype.size * math.prod(shape)
    tensor = tensor_message(np.empty((0, *shape), dtype.np), dtype)
    del tensor.tensor_shape.dim[0]
    inner = _before(_CONTENT, size, tensor.SerializeToString())
    inner = _before(_TENSOR, len(inner) + size, b"".join(wire_format.enclosed(_NAME, [name.encode()]))) + inner
    return _before(_FETCHED, len(inner) + size, b"") + inner


def _before(number: int, size: int, first: bytes) -> bytes:
    """Return `first`, and the beginning of the field of this number whose value has `size` bytes."""
    return first + wire_format.put_varint(number << 3 | wire_format.LENGTH) + wire_format.put_varint(size)


def _tensor_parts(value: Any, dtype: DType) -> Sequence[bytes | memoryview]:
    """Return the encoded message of a value in parts; the bytes of a large array are not copied."""
    if isinstance(value, np.ndarray) and value.nbytes >= _LARGE and dtype.size:
        return tensor_to_parts(value, dtype)
    return [tensor_message(value, dtype).SerializeToString()]


def tensor_message(value: Any, dtype: DType) -> proto.TensorProto:
    """Return a value as a dense TensorProto, as TensorFlow's services send it."""
    tensor = tensor_to_proto(as_array(value, dtype), dtype, compact=False, content_strings=True)
    tensor.tensor_shape.SetInParent()  # a scalar's empty shape is sent too
    return tensor


def error_in_response(error: errors.OpError) -> proto.RunStepResponse:
    """Return a response with the error in the body, whose length is not limited, for clients that ask for that."""
    return proto.RunStepResponse(status_code=error.code.name, status_error_message=error_text(error))


def error_text(error: errors.OpError) -> str:
    """Return an error's text with its node, `… [[{{node y}}]]`, as TensorFlow writes it, without local file names."""
    return str(errors.OpError(error.message, node=error.node, origin=error.origin))
