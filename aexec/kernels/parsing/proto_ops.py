"""Fields of any message: DecodeProtoV2 takes them out of serialised messages, EncodeProto makes such messages.

Messages are read and written as they are on the wire, field by field: fields that a node does not name are skipped, and
messages within messages are strings.
Next to read: `proto_fields.py`, `proto_descriptors.py`, `proto_rewriting.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import Growth, ReusedScratch
from aexec.framework.memory.tensor_buffer import STRING_BYTES
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import DEFAULT, Pace, giving_way
from aexec.framework.wire.wire_format import LENGTH, VARINT, end_of_value, put_varint, read_varint
from aexec.framework.zeros import fill_objects
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.strings import array_of, elements_of, string_cost
from aexec.kernels.parsing.proto_descriptors import check_type, descriptors_of, message_fields
from aexec.kernels.parsing.proto_fields import GROUP, FieldOnWire
from aexec.kernels.parsing.proto_rewriting import rewriting

__all__: list[str] = []

# Nanoseconds for a message, for a byte of it, and for a field or a row.
_MESSAGE_NS, _BYTE_NS, _FIELD_NS = 5_000.0, 300.0, 1_500.0
_M32, _LONGEST = 2**32 - 1, 2**31
# Fields that are read at a time.
_PIECE = DEFAULT.pieces(_FIELD_NS)
# Values that are written at a time, and the nanoseconds for one.
_FEW, _VALUE_NS = 200, 400.0
_END_GROUP = 4
# What Python's arrays call the types of numbers.
_CODES = {"f4": "f", "f8": "d", "i4": "i", "i8": "q", "u4": "I", "u8": "Q", "b1": "B"}
_POINTER = 8
# C's names of the types of fields, which TensorFlow's message has.
_KINDS = "", "int32", "int64", "uint32", "uint64", "double", "float", "bool", "enum", "string", "message"


class _Column:
    """The values of one field of all messages.

    They are held one after another until the longest row is known.
    """

    def __init__(self, field: FieldOnWire, dtype: Any) -> None:
        self.field = field
        self._dtype = dtype
        self._values: Any = array(_CODES[dtype.str[1:]]) if dtype.str[1:] in _CODES else []
        self.counts = array("q")
        self._added = 0

    @property
    def held_bytes(self) -> int:
        """Memory for the values, but for the strings themselves."""
        return 9 * getattr(self._values, "itemsize", _POINTER) * len(self._values) // 8

    def end_message(self) -> None:
        """Note that the next values are those of the next message."""
        self.counts.append(self._added)
        self._added = 0

    def add(self, value: Any) -> None:
        """A value of a message; of a field that is not repeated the last one stays."""
        if not self.field.repeated and self._added:
            self._values[-1] = value
            return
        self._values.append(value)
        self._added += 1

    def add_packed(self, data: bytes, start: int, end: int) -> None:
        """Numbers of a message that are packed; of a field that is not repeated they count as its default."""
        if self.field.repeated:
            self.field.packed_at(data, start, end, self._take)
            return
        found: list[int] = []
        self.field.packed_at(data, start, end, lambda numbers: found.append(len(numbers)))
        if sum(found):
            if self._added:
                raise _data_loss(
                    f"ReadPackedValues: Tried to write more entries than allowed.  Field tag: {self.field.number}, "
                    "Max entries allowed: 1"
                )
            self.add(self.field.default)

    def _take(self, numbers: Any) -> None:
        with np.errstate(over="ignore"):
            self._values.frombytes(np.ascontiguousarray(numbers, self._dtype).tobytes())
        self._added += len(numbers)

    def fill(self, out: Any, rows: Any) -> None:
        """Write the values into [messages, longest row] with a row for each message, defaults behind them."""
        if isinstance(self._values, array):
            values = np.frombuffer(self._values, self._dtype) if self._values else np.empty(0, self._dtype)
        else:
            values = array_of(self._values, object)
        if rows.shape[0] and out.shape[1] == 1:
            out[rows > 0, 0] = values
            return
        at = 0
        for row, count in enumerate(giving_way(self.counts, _FIELD_NS)):
            out[row, :count] = values[at : at + count]
            at += count


def _data_loss(text: str) -> errors.OpError:
    return errors.DataLossError(text)


def _read(data: bytes, columns: dict[int, _Column]) -> None:
    """Add the values of a message to the columns, which are by the numbers of the fields.

    Raises:
        DataLossError: these bytes are not a message.
    """
    at, size = 0, len(data)
    pace = Pace(_PIECE)
    left = pace.size
    while at < size:
        left -= 1
        if not left:
            left = pace.rest()
        start = at
        try:
            tag, at = read_varint(data, at)
        except (IndexError, DecodeError):
            raise _data_loss("CountFields: Failed to consume entire buffer") from None
        tag &= _M32
        if tag == 0 or tag & 7 == _END_GROUP:
            raise _data_loss("CountFields: Failed to consume entire buffer")
        column = columns.get(tag >> 3)
        try:
            at = _skip(data, at, size, tag) if column is None else _read_field(data, (start, at), size, tag, column)
        except (IndexError, DecodeError):
            raise _data_loss(_why_not(column, tag)) from None


def _why_not(column: _Column | None, tag: int) -> str:
    if column is None or tag < 8:
        return "Failed skipping unrequested field"
    if tag & 7 == column.field.wire:
        return "ReadValue: Failed skipping field when counting"
    if tag & 7 == LENGTH:
        return "ReadPackedValues: Skipping packed field failed"
    return "CollectField: Failed skipping malformed field"


def _skip(data: bytes, at: int, size: int, tag: int) -> int:
    """Where the value at a position ends.  Raises IndexError or DecodeError if that is behind the message."""
    if tag < 8:
        raise DecodeError
    if tag & 7 == LENGTH:
        length, at = read_varint(data, at)
        end = at + (length & _M32)
    else:
        end = end_of_value(data, at, tag)
    if end > size:
        raise IndexError
    return end


def _read_field(data: bytes, place: tuple[int, int], size: int, tag: int, column: _Column) -> int:
    """Add the value of a field, which begins at `place` with its tag and then its payload, and return where it ends."""
    start, at = place
    wire, field = tag & 7, column.field
    if wire == VARINT == field.wire:
        varint, end = read_varint(data, at)
        column.add(field.number_of(varint))
        return end
    end = _skip(data, at, size, tag)
    if wire == LENGTH:
        length, payload = read_varint(data, at)
        if field.wire == LENGTH:
            column.add(data[payload:end])
        elif length >= _LONGEST:
            raise _data_loss("CollectField: Failed reading packed size")
        else:
            column.add_packed(data, payload, end)
    elif wire == field.wire:
        column.add(data[start:end] if wire == GROUP else field.fixed_at(data, at))
    return end


@kernel("DecodeProtoV2", cost=string_cost(_MESSAGE_NS, _BYTE_NS))
def decode_proto(c: OpKernelConstruction) -> Compute:
    """Return how many values each field has in each message, [..., fields], and the values of each field."""
    name = c.text("message_type")
    descriptors = descriptors_of(c.attr("descriptor_source"))
    message = descriptors.message(name)
    names, types = c.attr("field_names"), c.attr("output_types")
    if len(names) != len(types):
        raise errors.InvalidArgumentError("field_names and output_types attributes must have the same length")
    found = message_fields(descriptors, message, names, name, extended=True)
    for field, dtype in zip(found, types, strict=True):
        wanted = f"Unexpected output type for {field.full_name}: {_KINDS[field.cpp_type]} to {_type_text(dtype)}"
        check_type(field, dtype, wanted)
    if c.attr("message_format") not in (b"binary", b"text"):
        raise errors.InvalidArgumentError("format must be one of binary or text")
    is_text = c.attr("message_format") == b"text"
    rewrite = rewriting(message, is_text=is_text) if is_text or c.attr("sanitize") else None
    fields = [FieldOnWire(field) for field in found]
    allocate = [allocator(c, output) for output in range(len(types) + 1)]

    def read(messages: Any) -> list[_Column]:
        columns = [_Column(field, dtype.np) for field, dtype in zip(fields, types, strict=True)]
        # Of a field that is named twice the first column gets the values.
        by_number = {column.field.number: column for column in reversed(columns)}
        scratch, of_objects = ReusedScratch(), ReusedScratch()
        for data in giving_way(elements_of(messages), _MESSAGE_NS):
            _read(data if rewrite is None else rewrite(data, of_objects), by_number)
            for column in columns:
                column.end_message()
            scratch.announce(sum(column.held_bytes for column in columns))
        return columns

    def compute(messages: Any) -> Any:
        if not messages.size:
            raise errors.InvalidArgumentError("Bufs argument must contain at least one value")
        columns = read(messages)
        sizes = allocate[0]((messages.size, len(columns)))
        outputs = []
        for position, column in enumerate(columns):
            counts = np.frombuffer(column.counts, np.int64)
            sizes[:, position] = counts
            shape = messages.size, max(1, int(counts.max()))
            out = allocate[position + 1](shape)
            if out.dtype == object:
                fill_objects(out, column.field.default)
            else:
                out.fill(column.field.default)
            column.fill(out, counts)
            outputs.append(out.reshape(*messages.shape, shape[1]))
        return (sizes.reshape(*messages.shape, len(columns)), *outputs)

    return compute


def _type_text(dtype: dtypes.DType) -> str:
    return f"DT_{'FLOAT' if dtype is dtypes.float32 else 'DOUBLE' if dtype is dtypes.float64 else dtype.name.upper()}"


# Writing


def _encode_cost(sizes: Any, *values: Any) -> float:
    strings = string_cost(_VALUE_NS, 0.5)
    per_value = (strings(v) if v.dtype == object else _VALUE_NS * v.size for v in values)
    return float(_FIELD_NS * sizes.size + sum(per_value))


def _check_values(sizes: Any, values: Sequence[Any], names: Sequence[bytes]) -> tuple[int, ...]:
    """The shape of the messages.  Raises InvalidArgumentError if the shapes of the inputs do not go together."""
    for name, value in zip(names, values, strict=True):
        if value.ndim < 2:
            raise errors.InvalidArgumentError(
                f"Invalid shape for field {name.decode()}.  Saw shape {shape_text(value.shape)} but it should be at "
                "least a matrix."
            )
        if value.shape[:-1] != values[0].shape[:-1]:
            raise errors.InvalidArgumentError("Values must match up to the last dimension")
    shape: tuple[int, ...] = values[0].shape[:-1]
    expected = (*shape, len(values))
    if sizes.shape != expected:
        raise errors.InvalidArgumentError(
            f"sizes should be batch_size + [len(field_names)].  Saw: {shape_text(sizes.shape)} but expected: "
            f"{shape_text(expected)}"
        )
    return shape


def _check_sizes(sizes: Any, values: Sequence[Any]) -> None:
    for position, value in enumerate(values):
        most = value.shape[-1]
        too_large = np.flatnonzero(sizes[:, position] > most)
        if too_large.size:
            first = int(too_large[0])
            raise errors.InvalidArgumentError(
                f"Size to write must not be larger than value tensor; but saw: {sizes[first, position]} > {most} "
                f"at message {first} field {position}"
            )


class _Message:
    """A message while it is written.

    Args:
        scratch: counts its memory.
    """

    def __init__(self, scratch: ReusedScratch) -> None:
        self.data = bytearray()
        self._scratch = scratch

    def add(self, field: FieldOnWire, values: Any) -> None:
        """Write the values of a field."""
        head = field.head()
        if not head:
            for part in self._parts(field, values):
                self._append(part)
            return
        parts = list(self._parts(field, values))
        self._append(head + put_varint(sum(map(len, parts))))
        for part in parts:
            self._append(part)

    def _parts(self, field: FieldOnWire, values: Any) -> Any:
        for start in giving_way(range(0, len(values), _FEW), _FEW * _VALUE_NS):
            some = values[start : start + _FEW]
            if some.dtype == object:
                self._scratch.announce(2 * (len(self.data) + sum(map(len, some.tolist())) + 100 * _FEW))
            yield field.written(some)

    def _append(self, part: bytes) -> None:
        self._scratch.announce(2 * (len(self.data) + len(part)))
        self.data += part


@kernel("EncodeProto", cost=_encode_cost)
def encode_proto(c: OpKernelConstruction) -> Compute:
    """Return messages with as many values of each field as `sizes`, [..., fields], says."""
    name, names = c.text("message_type"), c.attr("field_names")
    descriptors = descriptors_of(c.attr("descriptor_source"))
    message = descriptors.message(name)
    found = message_fields(descriptors, message, names, name)
    types = c.input_types[1:]
    if len(names) != len(types):
        raise errors.InvalidArgumentError("Length of inputs list must match field_names")
    for field, dtype in zip(found, types, strict=True):
        problem = (
            f"Incompatible type for field {field.name}.  Saw dtype: {dtype} but field type is: {_type_name(field)}"
        )
        check_type(field, dtype, problem)
    fields = [FieldOnWire(field) for field in found]
    in_order = sorted(range(len(fields)), key=lambda position: fields[position].number)
    allocate = allocator(c)

    def written(sizes: Any, values: Sequence[Any], scratch: ReusedScratch) -> bytes:
        whole = _Message(scratch)
        for position in in_order:
            size = int(sizes[position])
            if size > 0:
                whole.add(fields[position], values[position][:size])
        return bytes(whole.data)

    def compute(sizes: Any, *values: Any) -> Any:
        shape = _check_values(sizes, values, names)
        flat = [value.reshape(-1, value.shape[-1]) if value.size else None for value in values]
        rows = sizes.reshape(-1, len(values))
        _check_sizes(rows, values)
        out = allocate((len(rows),))
        growth, scratch = Growth(), ReusedScratch()
        for row in giving_way(range(len(rows)), _MESSAGE_NS):
            own = [empty if value is None else value[row] for value, empty in zip(flat, values, strict=True)]
            data = written(rows[row], own, scratch)
            growth.add(len(data) + STRING_BYTES)
            out[row] = data
        return out.reshape(shape)

    return compute


def _type_name(field: Any) -> str:
    """The name of a field's type in a .proto file."""
    names = "double float int64 uint64 int32 fixed64 fixed32 bool string group message bytes uint32 enum sfixed32"
    return str([*names.split(), "sfixed64", "sint32", "sint64"][field.type - 1])
