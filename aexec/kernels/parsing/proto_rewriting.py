"""Messages parsed by protobuf and serialised again: text as bytes, and bytes that come from elsewhere.

A message object has room for each field of its type, so some bytes may become a million times as many.  The memory is
counted before protobuf takes it.
Next to read: `proto_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf import message_factory, text_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, EncodeError

from aexec.framework import errors
from aexec.framework.memory.allocator import ReusedScratch
from aexec.framework.waiting.loop_budget import giving_way
from aexec.framework.wire.wire_format import LENGTH, fields, parse_in_pieces, put_varint
from aexec.kernels.parsing.proto_fields import GROUP

__all__ = ["rewriting"]

# Bytes of a message object: for itself, for a field of it, and for a byte that is parsed into one, at most.
_OBJECT_BYTES, _FIELD_BYTES, _PARSED_BYTES = 100, 16, 40
_LINE_NS, _FIELD_NS = 20_000.0, 1_000.0

# A bound of this many bytes is counted without a look at the messages within.
_SMALL = 8 << 20


def rewriting(message: Descriptor, *, is_text: bool) -> Callable[[bytes, ReusedScratch], bytes]:
    """A function from a message, as text or serialised, to the same message serialised; it counts its memory.

    It raises DataLossError for what is not such a message, or lacks a required field.
    """
    kind: Any = message_factory.GetMessageClass(message)
    types = _Types(message)
    problem = f"Unable to parse {'text' if is_text else 'binary'} protobuf"

    def parsed(data: bytes, scratch: ReusedScratch) -> Any:
        if not is_text:
            scratch.announce(types.bytes_of(data))
            return parse_in_pieces(kind, data)
        scratch.announce(types.largest * (1 + data.count(b"{") + data.count(b"<")) + _PARSED_BYTES * len(data))
        read: Any = text_format  # its types lack a name
        return read.ParseLines(giving_way(data.decode().split("\n"), _LINE_NS), kind())

    def rewrite(data: bytes, scratch: ReusedScratch) -> bytes:
        try:
            return bytes(parsed(data, scratch).SerializeToString())
        except (text_format.ParseError, DecodeError, EncodeError, UnicodeDecodeError, RecursionError, IndexError) as e:
            raise errors.DataLossError(problem) from e

    return rewrite


class _Types:
    """The types of the messages that a message may have within it, and how much memory their objects take."""

    def __init__(self, message: Descriptor) -> None:
        self._message = message
        self._sizes: dict[str, int] = {}
        # By a message's full name: the types of its fields that are messages, by the numbers of the fields.
        self._inner: dict[str, dict[int, Descriptor]] = {}
        waiting = [message]
        while waiting:
            one = waiting.pop()
            if one.full_name not in self._sizes:
                waiting += self._add(one)
        self.largest = max(self._sizes.values())

    def _add(self, message: Descriptor) -> list[Descriptor]:
        fields = [*message.fields, *message.file.pool.FindAllExtensions(message)]
        inner = {field.number: field.message_type for field in fields if field.message_type is not None}
        self._sizes[message.full_name] = _OBJECT_BYTES + _FIELD_BYTES * len(fields)
        self._inner[message.full_name] = inner
        return list(inner.values())

    def bytes_of(self, data: bytes) -> int:
        """The most bytes that the objects of a serialised message take.

        Raises:
            DecodeError, IndexError: there is no message.
        """
        values = _PARSED_BYTES * len(data)
        most = self.largest * (1 + len(data) // 2)
        return values + most if most <= _SMALL else values + self._counted(data)

    def _counted(self, data: bytes) -> int:
        return sum(giving_way(self._sizes_in(data), _FIELD_NS))

    def _sizes_in(self, data: bytes) -> Iterator[int]:
        """The bytes of the object of each message in a message, and 0 for each field."""
        waiting = [(0, len(data), self._message)]
        while waiting:
            start, end, message = waiting.pop()
            yield self._sizes[message.full_name]
            inner = self._inner[message.full_name]
            for tag, _, payload, after in fields(data, start, end):
                yield 0
                kind = inner.get(tag >> 3)
                if kind is None:
                    continue
                if tag & 7 == LENGTH:
                    waiting.append((payload, after, kind))
                elif tag & 7 == GROUP:
                    waiting.append((payload, after - len(put_varint(tag + 1)), kind))
