"""`scan`: measures a protobuf message on the wire before it is parsed.

Two bytes make an empty node of a graph, 83 bytes a tensor of gigabytes, so a message has to be measured before anything
is allocated for it. The scan enters nested messages, skips every other field by its length, and stops at the first
limit that is passed. It reads a graph of large constants at gigabytes a second; for a graph of small nodes its time is
bounded by the limit on nodes.

`aexec/framework/wire/wire_format.py` describes the format; `http/bodies.py` uses the measurements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from aexec import errors, proto
from aexec.hosting import NeedsThreadError, dtypes, go_on, loop_budget, on_event_loop, unreadable, wire_format

__all__ = ["MessageLimits", "MessageSize", "scan"]

# Estimated bytes of memory for a message, each of its fields, a string of a repeated field, a resource or variant of a
# tensor.
_MESSAGE_BYTES = 24
_FIELD_BYTES = 12
_STRING_BYTES = 32
_OBJECT_BYTES = 300
# Bytes scanned between two looks at the limits and at the clock.
_STRETCH = 1 << 13
# Attrs of at most this many bytes are remembered, and at most this many of them.
_SMALL = 64
_MAX_ATTRS = 4096

# Kinds of fields: bytes, a number, packed numbers, a message, a message that may occur only once. In the table by first
# byte, 0 means that the whole tag has to be looked up.
_BYTES, _NUMBER, _PACKED, _MESSAGE, _ONCE = range(1, 6)
_STRINGS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
_FIXED = {
    FieldDescriptor.TYPE_DOUBLE: (wire_format.FIXED64, 8),
    FieldDescriptor.TYPE_FIXED64: (wire_format.FIXED64, 8),
    FieldDescriptor.TYPE_SFIXED64: (wire_format.FIXED64, 8),
    FieldDescriptor.TYPE_FLOAT: (wire_format.FIXED32, 4),
    FieldDescriptor.TYPE_FIXED32: (wire_format.FIXED32, 4),
    FieldDescriptor.TYPE_SFIXED32: (wire_format.FIXED32, 4),
}
_NUMBER_BYTES = 8

_ITEM_BYTES: dict[int, int] = {dtype.enum: dtype.np.itemsize for dtype in dtypes.ALL if not dtype.is_ref}
_OBJECTS = (dtypes.string.enum, dtypes.resource.enum, dtypes.variant.enum)
_COUNTED = (proto.NodeDef.DESCRIPTOR.full_name, proto.FunctionDef.DESCRIPTOR.full_name)
_TENSOR_NAME = proto.TensorProto.DESCRIPTOR.full_name
# Tags of a TensorProto's `dtype`, `tensor_shape` and `tensor_content`, of a shape's `dim`, of a dimension's `size`.
_DTYPE, _SHAPE, _CONTENT, _DIM, _DIM_SIZE = 0x08, 0x12, 0x22, 0x12, 0x08
_DIM_BYTES = 60
_MOST_ELEMENTS = 2**63


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits on what a message may hold.

    Attributes:
        nodes: nodes and functions of its graphs, nodes of functions included.
        expanded_bytes: memory that it may take once decoded, with its tensors filled.
    """

    nodes: int
    expanded_bytes: int


@dataclass(slots=True)
class MessageSize:
    """The size of a message, as counted by `scan`.

    Attributes:
        nodes: nodes and functions of its graphs, nodes of functions included.
        tensors: number of TensorProtos.
        filled_bytes: memory of tensors that do not carry all their elements as bytes.
        expanded_bytes: estimated memory of the whole message once decoded.
        elements: elements of tensors that are decoded one by one.
    """

    nodes: int = 0
    tensors: int = 0
    filled_bytes: int = 0
    expanded_bytes: int = 0
    elements: int = 0

    @property
    def decode_ns(self) -> float:
        """Estimated time to decode the message, in nanoseconds."""
        return self.expanded_bytes * loop_budget.WIRE_NS + self.elements * loop_budget.OBJECT_NS


def scan(descriptor: Any, data: bytes, limits: MessageLimits) -> MessageSize:
    """Measure a message.

    Bytes that are not a valid message may pass: the scan checks only what it needs to find the fields.

    Args:
        descriptor: protobuf's descriptor of the message type.
        data: the message on the wire.
        limits: the most that it may hold.

    Raises:
        InvalidArgumentError: the bytes cannot be read as a message, or a field with a single tensor is given twice.
        ResourceExhaustedError: it holds more than `limits` allow.
        NeedsThreadError: the scan has used up the event loop's slice, and must be repeated in a thread.
    """
    one = _Scan(data, limits, descriptor.name)
    try:
        one.start(_kind(descriptor))
        one.check(len(data))
    except (IndexError, DecodeError):
        raise unreadable(descriptor.name, data) from None
    return one.size


class _Kind:
    """The scan's data about one message type.

    Attributes:
        name: name of the type.
        counted: 1 for nodes and functions, else 0.
        is_attr: True for an entry of a map of attrs.
        size: bytes of memory of one message.
        actions: by first byte of a field: how to read the field.
        weights: by first byte: bytes of memory that the field takes besides its own length.
        parts: by first byte: the `_Kind` of the nested message.
        others: `_Field` by tag.
    """

    __slots__ = ("actions", "counted", "is_attr", "name", "others", "parts", "size", "weights")

    def __init__(self, descriptor: Any) -> None:
        self.name = descriptor.name
        self.counted = int(descriptor.full_name in _COUNTED)
        value = descriptor.fields_by_name.get("value")
        self.is_attr = descriptor.GetOptions().map_entry and value.message_type is proto.AttrValue.DESCRIPTOR
        self.size = _MESSAGE_BYTES + _FIELD_BYTES * len(descriptor.fields)
        self.actions = bytearray(256)
        self.weights = [0] * 256
        self.parts: list[Any] = [None] * 256
        self.others: dict[int, _Field] = {}

    def add(self, field: Any) -> None:
        """Add a field of the message type to the tables."""
        many = wire_format.is_repeated(field)
        if field.message_type is not None:
            part = _kind(field.message_type)
            once = not many and _has_one_tensor(field.message_type)
            self._set(field, wire_format.LENGTH, _Field(_ONCE if once else _MESSAGE, part.size, 0, part))
        elif field.type in _STRINGS:
            self._set(field, wire_format.LENGTH, _Field(_BYTES, _STRING_BYTES if many else 0, 1))
        else:
            wire, size = _FIXED.get(field.type, (wire_format.VARINT, 1))
            self._set(field, wire, _Field(_NUMBER, _NUMBER_BYTES if many else 0, 0))
            if many:
                self._set(field, wire_format.LENGTH, _Field(_PACKED, 0, _NUMBER_BYTES // size))

    def _set(self, field: Any, wire: int, what: _Field) -> None:
        tag = field.number << 3 | wire
        self.others[tag] = what
        if tag < 128 and what.action != _PACKED and wire in (wire_format.VARINT, wire_format.LENGTH):
            self.actions[tag] = what.action
            self.weights[tag] = what.weight
            self.parts[tag] = what.part


@dataclass(frozen=True, slots=True)
class _Field:
    """How one field is read; it takes `weight` plus `factor` times its length bytes of memory."""

    action: int
    weight: int
    factor: int
    part: _Kind | None = None


_kinds: dict[str, _Kind] = {}


def _kind(descriptor: Any) -> _Kind:
    kind = _kinds.get(descriptor.full_name)
    if kind is None:
        kind = _kinds[descriptor.full_name] = _Kind(descriptor)
        for field in descriptor.fields:
            kind.add(field)
    return kind


@cache
def _has_one_tensor(descriptor: Any) -> bool:
    """True for a TensorProto, and for a message with a singular field that holds one: repeats of the field are merged,
    so a tensor could be spread over them.
    """
    return descriptor.full_name == _TENSOR_NAME or any(
        field.message_type is not None and not wire_format.is_repeated(field) and _has_one_tensor(field.message_type)
        for field in descriptor.fields
        if field.message_type is not descriptor
    )


class _Scan:
    def __init__(self, data: bytes, limits: MessageLimits, name: str) -> None:
        self.size = MessageSize()
        self._data = data
        self._limits = limits
        self._name = name
        self._looked = perf_counter()
        self._depth = 0
        self._attrs: dict[bytes, int] = {}

    def start(self, kind: _Kind) -> None:
        """Scan the whole message."""
        if kind is _TENSOR:
            self._tensor(0, len(self._data))
        else:
            self.message(kind, 0, len(self._data))

    def check(self, at: int) -> None:
        """Check the limits and the clock after the bytes before `at` have been scanned."""
        size, limits = self.size, self._limits
        if size.nodes > limits.nodes:
            raise errors.ResourceExhaustedError(
                f"This {self._name} of {len(self._data)} bytes has more than {limits.nodes} nodes and functions, the "
                f"most that a graph may have here: {size.nodes} in its first {at} bytes"
            )
        if size.expanded_bytes > limits.expanded_bytes:
            raise errors.ResourceExhaustedError(
                f"This {self._name} of {len(self._data)} bytes would take more than {limits.expanded_bytes} bytes of "
                f"memory once decoded, the most that a request may take here: {size.expanded_bytes} are its first {at} "
                f"bytes, with {size.nodes} nodes and functions, and {size.tensors} tensors that fill "
                f"{size.filled_bytes} bytes"
            )
        now = perf_counter()
        if now - self._looked > loop_budget.DEFAULT.slice_seconds:
            if on_event_loop():
                raise NeedsThreadError("the message is to be measured in a thread")
            go_on()
            loop_budget.let_others_run()
            self._looked = perf_counter()

    def message(self, kind: _Kind, at: int, end: int) -> None:
        """Scan a message and those nested in it."""
        data, size = self._data, self.size
        actions, weights, parts, others = kind.actions, kind.weights, kind.parts, kind.others
        stack: list[Any] = []
        given = total = nodes = 0  # `given`: the tag of an _ONCE field that was seen
        stop = at + _STRETCH
        while True:
            while at < end:
                if at >= stop:
                    size.expanded_bytes += total
                    size.nodes += nodes
                    total = nodes = 0
                    self.check(at)
                    stop = at + _STRETCH
                tag = data[at]
                action = actions[tag]
                if action == _BYTES:
                    length = data[at + 1]
                    at += 2
                    if length > 127:
                        length, at = wire_format.read_varint(data, at - 1)
                    at += length
                    total += length + weights[tag]
                    continue
                if action == _NUMBER:
                    at += 2
                    total += weights[tag]
                    if data[at - 1] > 127:
                        _, at = wire_format.read_varint(data, at - 1)
                    continue
                if action:
                    length = data[at + 1]
                    at += 2
                    if length > 127:
                        length, at = wire_format.read_varint(data, at - 1)
                    after = at + length
                    total += weights[tag]
                    part = parts[tag]
                else:
                    tag, begun, at, after = wire_format.field(data, at)
                    length = after - at
                    field = others.get(tag)
                    if field is None:
                        total += after - begun
                        at = after
                        continue
                    total += field.weight + field.factor * length
                    action, part = field.action, field.part
                    if part is None:
                        at = after
                        continue
                if after > end:
                    raise DecodeError("a message is cut off")
                if action == _ONCE:
                    if tag == given:
                        raise errors.InvalidArgumentError(
                            f"This {self._name} has a {part.name} twice in a field that may hold one"
                        )
                    given = tag
                nodes += part.counted
                if part.is_attr and length <= _SMALL:
                    total += self._attr(part, at, after)
                    at = after
                elif part is _TENSOR:
                    self._inner(self._tensor, at, after)
                    at = after
                elif at < after:
                    if len(stack) + self._depth > wire_format.MAX_DEPTH:
                        raise DecodeError("messages in messages")
                    stack.append((actions, weights, parts, others, end, given))
                    actions, weights, parts, others = part.actions, part.weights, part.parts, part.others
                    end = after
                    given = 0
            if at != end:
                raise DecodeError("a field is cut off")
            if not stack:
                break
            actions, weights, parts, others, end, given = stack.pop()
        size.expanded_bytes += total
        size.nodes += nodes

    def _attr(self, kind: _Kind, at: int, end: int) -> int:
        """Return the bytes that a small entry of a map of attrs takes, from memory where possible: a graph has few
        different ones.
        """
        data = self._data[at:end]
        known = self._attrs.get(data)
        if known is None:
            size = self.size
            before, tensors = size.expanded_bytes, size.tensors
            self._inner(self.message, kind, at, end)
            if size.tensors > tensors or len(self._attrs) >= _MAX_ATTRS:
                return 0
            known = self._attrs[data] = size.expanded_bytes - before
            size.expanded_bytes = before
        return known

    def _tensor(self, at: int, end: int) -> None:
        """Scan a TensorProto, and add the size of the array that it will be filled to."""
        data, size = self._data, self.size
        size.tensors += 1
        dtype = values = total = 0
        count = 1
        content = (0, 0)
        stop = at + _STRETCH
        while at < end:
            if at >= stop:
                size.expanded_bytes += total
                total = 0
                self.check(at)
                stop = at + _STRETCH
            tag = data[at]
            action = _TENSOR_VALUES[tag]
            if action == _BYTES:
                length = data[at + 1]
                at += 2
                if length > 127:
                    length, at = wire_format.read_varint(data, at - 1)
                at += length
                total += length + _STRING_BYTES
                values += 1
                continue
            if action == _NUMBER:
                at += 2
                total += _NUMBER_BYTES
                values += 1
                if data[at - 1] > 127:
                    _, at = wire_format.read_varint(data, at - 1)
                continue
            tag, begun, payload, at = wire_format.field(data, at)
            if at > end:
                break
            if tag == _DTYPE:
                dtype, _ = wire_format.read_varint(data, payload)
            elif tag == _SHAPE:
                count *= self._elements(payload, at)
            elif tag == _CONTENT:
                content = payload, at
                total += at - payload
            else:
                field = _TENSOR.others.get(tag)
                if field is None:
                    total += at - begun
                    continue
                taken = field.weight + field.factor * (at - payload)
                total += taken
                values += max(1, taken // _NUMBER_BYTES) if field.action in (_NUMBER, _PACKED) else 1
                if field.part is not None:
                    self._inner(self.message, field.part, payload, at)
        if at != end:
            raise DecodeError("a field is cut off")
        size.expanded_bytes += total
        size.elements += values
        self._fill(dtype, count, content)
        self.check(end)

    def _elements(self, at: int, end: int) -> int:
        """Return the number of elements of a TensorShapeProto; 0 if no tensor may have this shape."""
        count = 1
        for tag, _, payload, after in wire_format.fields(self._data, at, end):
            if tag == _DIM:
                self.size.expanded_bytes += _DIM_BYTES
                dim = 0
                for part, _, number, _ in wire_format.fields(self._data, payload, after):
                    if part == _DIM_SIZE:
                        dim, _ = wire_format.read_varint(self._data, number)
                # larger ones are negative dimensions
                count = min(count * dim, _MOST_ELEMENTS) if dim < _MOST_ELEMENTS else 0
        return count

    def _fill(self, dtype: int, count: int, content: tuple[int, int]) -> None:
        """Add the memory of an array of `count` elements."""
        size = self.size
        at, end = content
        if at == end:
            filled = count * _ITEM_BYTES.get(dtype, 0)
            size.filled_bytes += filled
            size.expanded_bytes += filled
        elif dtype in _OBJECTS and count <= end - at:  # other counts are refused before anything is allocated
            size.elements += count
            size.expanded_bytes += count * (_STRING_BYTES if dtype == dtypes.string.enum else _OBJECT_BYTES)
            if dtype == dtypes.variant.enum:
                self._inner(self._variants, count, at, end)

    def _variants(self, count: int, at: int, end: int) -> None:
        """Scan the variants in a tensor's content, which starts with the lengths of all of them."""
        lengths = []
        for _ in range(count):
            length, at = wire_format.read_varint(self._data, at)
            lengths.append(length)
        for length in lengths:
            if at + length > end:
                return  # the decoder will report this
            self.message(_VARIANT, at, at + length)
            at += length

    def _inner(self, measure: Callable[..., None], *args: Any) -> None:
        self._depth += 1
        if self._depth > wire_format.MAX_DEPTH:
            raise DecodeError("messages in messages")
        measure(*args)
        self._depth -= 1


_TENSOR = _kind(proto.TensorProto.DESCRIPTOR)
# How the scan reads values of a TensorProto that are given one by one, of which there may be millions; by first byte,
# as `_Kind.actions`.
_TENSOR_VALUES = bytes(a if a in (_BYTES, _NUMBER) and _TENSOR.weights[t] else 0 for t, a in enumerate(_TENSOR.actions))
_VARIANT = _kind(proto.VariantTensorDataProto.DESCRIPTOR)
