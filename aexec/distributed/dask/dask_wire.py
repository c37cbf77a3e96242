"""The form of messages on Dask's connections: msgpack and buffers, never pickle.

A message is one piece of msgpack with its small frames in it, because Dask examines each part of what it sends.  Large
frames are sent beside it as they are, by aexec's own serialisation family, for buffers.  aexec's connections use only
that family, in both directions: anything else is refused without being deserialised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import distributed
import msgpack  # a dependency of it
from distributed.protocol.serialize import register_serialization_family

from aexec.distributed.cluster_messages import Message
from aexec.framework import errors

__all__ = ["FAMILIES", "packed", "unpacked"]

_FAMILY = "aexec"
# Families of a connection; "error" carries the text of the other end's failure to serialise.
FAMILIES: Mapping[str, Sequence[str]] = {"serializers": [_FAMILY], "deserializers": [_FAMILY, "error"]}
# Bytes; smaller frames are copied into the message, which is faster than a frame of its own.
_SMALL = 1 << 16


def _of_buffer(value: Any) -> tuple[dict[str, Any], list[Any]]:
    if not isinstance(value, memoryview):
        raise NotImplementedError(type(value).__name__)
    return {}, [value]


def _to_buffer(header: dict[str, Any], frames: list[Any]) -> Any:
    return frames[0] if len(frames) == 1 else b"".join(frames)


register_serialization_family(_FAMILY, _of_buffer, _to_buffer)


def packed(head: Sequence[Any], message: Message) -> dict[str, Any]:
    """The message for Dask: fields `body` and `large`."""
    small, large = [], []
    for frame in message.frames:
        is_small = memoryview(frame).nbytes < _SMALL
        small.append(bytes(frame) if is_small else None)
        if not is_small:
            large.append(distributed.protocol.Serialize(memoryview(frame)))
    return {"body": msgpack.packb([head, message.fields, small]), "large": large}


def unpacked(body: Any, large: Any) -> tuple[list[Any], Message]:
    """The head and the message that `packed` was given.

    Raises:
        InvalidArgumentError: the content is anything else, such as a pickled object.
    """
    try:
        # If both ends are in one process, Dask passes the objects on unserialised.
        buffers = [each.data if isinstance(each, distributed.protocol.Serialize) else each for each in large]
        for each in (body, *buffers):
            if not isinstance(each, bytes | bytearray | memoryview):
                raise TypeError(f"it is made of bytes and buffers alone, and has a {type(each).__name__}")
        head, fields, frames = msgpack.unpackb(body)
        rest = iter(buffers)
        return head, Message(fields, [next(rest) if frame is None else frame for frame in frames])
    except (ValueError, TypeError, StopIteration) as error:
        raise errors.InvalidArgumentError(f"A message cannot be read: {type(error).__name__}: {error}") from None
