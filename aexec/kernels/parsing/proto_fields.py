"""Values of a message's fields as they are on the wire, read and written.

Next to read: `proto_ops.py`, `aexec/framework/wire/wire_format.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from aexec.framework import errors
from aexec.framework.waiting.loop_budget import giving_way
from aexec.framework.wire.wire_format import FIXED32, FIXED64, LENGTH, VARINT, is_repeated, put_varint

__all__ = ["GROUP", "FieldOnWire"]

GROUP, _END_GROUP = 3, 4
_F = FieldDescriptor
_M32, _M64 = 2**32 - 1, 2**64 - 1
# Bytes of packed varints that are read at a time; some arrays of eight times as many bytes are needed meanwhile.
_PIECE = 1 << 15
_PIECE_NS = 300_000.0

_FIXED: dict[int, np.dtype[Any]] = {
    _F.TYPE_DOUBLE: np.dtype("<f8"),
    _F.TYPE_FLOAT: np.dtype("<f4"),
    _F.TYPE_FIXED64: np.dtype("<u8"),
    _F.TYPE_FIXED32: np.dtype("<u4"),
    _F.TYPE_SFIXED64: np.dtype("<i8"),
    _F.TYPE_SFIXED32: np.dtype("<i4"),
}
_BYTES = (_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE)


def _signed(bits: int) -> tuple[Callable[[int], int], Callable[[Any], Any]]:
    mask, sign, types = 2**bits - 1, 2 ** (bits - 1), (np.dtype(f"u{bits // 8}"), np.dtype(f"i{bits // 8}"))
    return lambda n: ((n & mask) ^ sign) - sign, lambda a: a.astype(types[0]).view(types[1])


def _zigzag(bits: int) -> tuple[Callable[[int], int], Callable[[Any], Any]]:
    mask, types = 2**bits - 1, (np.dtype(f"u{bits // 8}"), np.dtype(f"i{bits // 8}"))

    def numbers(varints: Any) -> Any:
        cut = varints.astype(types[0])
        return (cut >> 1).view(types[1]) ^ -(cut & 1).view(types[1])

    return lambda n: ((n & mask) >> 1) ^ -(n & 1), numbers


# By a field's type: a number from a varint, and numbers from uint64 varints.
_VARINTS: dict[int, tuple[Callable[[int], Any], Callable[[Any], Any]]] = {
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_ENUM), _signed(32)),
    _F.TYPE_INT64: _signed(64),
    _F.TYPE_SINT32: _zigzag(32),
    _F.TYPE_SINT64: _zigzag(64),
    _F.TYPE_UINT32: (lambda n: n & _M32, lambda a: a.astype(np.uint32)),
    _F.TYPE_UINT64: (lambda n: n & _M64, lambda a: a),
    _F.TYPE_BOOL: (bool, lambda a: a != 0),
}
_ZIGZAG_BITS = {_F.TYPE_SINT32: 32, _F.TYPE_SINT64: 64}


def _packed_varints(data: bytes) -> Any:
    """uint64: the numbers that these bytes hold as varints, one after another.

    Raises:
        ValueError: they do not end with one, or one has more than ten bytes.
    """
    octets = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(octets < 128)
    if not ends.size or ends[-1] != octets.size - 1:
        raise ValueError("cut off")
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > 10:
        raise ValueError("too long")
    numbers = (octets[starts] & 127).astype(np.uint64)
    for place in range(1, longest):
        longer = np.flatnonzero(lengths > place)
        numbers[longer] |= (octets[starts[longer] + place] & 127).astype(np.uint64) << np.uint64(7 * place)
    return numbers


class FieldOnWire:
    """How the values of one field are on the wire.

    Attributes:
        number: of the field.
        repeated: it may have several values.
        wire: the wire type of a value that is not packed.
        default: the value of a field that is not there.
    """

    def __init__(self, field: FieldDescriptor) -> None:
        self.number, self.repeated = field.number, is_repeated(field)
        self._type = field.type
        self.default = _default(field)
        self._fixed = _FIXED.get(field.type)
        if self._fixed is not None:
            self.wire = FIXED64 if self._fixed.itemsize == 8 else FIXED32
            self._struct = struct.Struct("<" + self._fixed.char)
        elif field.type in _BYTES:
            self.wire = LENGTH
        else:
            self.wire = GROUP if field.type == _F.TYPE_GROUP else VARINT
        self._packed = _is_packed(field)
        self._tag = put_varint(self.number << 3 | self.wire)
        self._packed_tag = put_varint(self.number << 3 | LENGTH)
        self._end_tag = put_varint(self.number << 3 | _END_GROUP)

    # Reading

    def number_of(self, varint: int) -> Any:
        """The number that a varint stands for."""
        return _VARINTS[self._type][0](varint)

    def fixed_at(self, data: bytes, at: int) -> Any:
        """The number of fixed size at a position."""
        return self._struct.unpack_from(data, at)[0]

    def packed_at(self, data: bytes, start: int, end: int, take: Callable[[Any], None]) -> None:
        """Give `take` the packed numbers between two positions, some at a time.

        Raises:
            DataLossError: they are not such numbers.
        """
        if self.wire == GROUP:
            raise errors.DataLossError("TYPE_GROUP encountered as packed")
        fixed = self._fixed
        if fixed is not None:
            if (end - start) % fixed.itemsize:
                raise errors.DataLossError(f"Illegal data length for packed fixed-size type: {end - start}")
            take(np.frombuffer(data, fixed, (end - start) // fixed.itemsize, start))
            return
        if end > start and data[end - 1] > 127:
            raise errors.DataLossError("Corrupt packed varint")
        for piece in giving_way(_pieces(data, start, end), _PIECE_NS):
            try:
                numbers = _packed_varints(piece)
            except ValueError:
                raise errors.DataLossError("Corrupt packed varint") from None
            take(_VARINTS[self._type][1](numbers))

    # Writing

    def head(self) -> bytes:
        """What begins the packed values, before their length; empty if values are not packed."""
        return self._packed_tag if self._packed else b""

    def written(self, values: Any) -> bytes:
        """These values, packed or each with its tag.  Numbers that the field's type does not hold are cut."""
        if self._fixed is not None:
            cut = _cut(values, self._fixed)
            if self._packed:
                return bytes(cut.tobytes())
            return b"".join([self._tag + cut[i : i + 1].tobytes() for i in range(cut.size)])
        if values.dtype == object:
            if self.wire == GROUP:
                return b"".join([self._tag + value + self._end_tag for value in values.tolist()])
            return b"".join([self._tag + put_varint(len(value)) + value for value in values.tolist()])
        varints = map(put_varint, self._varints(values).tolist())
        return b"".join(varints) if self._packed else b"".join([self._tag + varint for varint in varints])

    def _varints(self, values: Any) -> Any:
        """uint64: the varints of numbers."""
        bits = _ZIGZAG_BITS.get(self._type)
        if bits is not None:
            whole = _cut(values, np.dtype(f"i{bits // 8}"))
            return ((whole << 1) ^ (whole >> (bits - 1))).view(f"u{bits // 8}")
        if self._type in (_F.TYPE_INT32, _F.TYPE_ENUM):
            return _cut(values, np.dtype(np.int32)).astype(np.int64).view(np.uint64)
        if self._type == _F.TYPE_UINT32:
            return _cut(values, np.dtype(np.uint32))
        return values.view(np.uint64) if values.dtype == np.int64 else values.astype(np.uint64)


def _cut(values: Any, dtype: np.dtype[Any]) -> Any:
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def _pieces(data: bytes, start: int, end: int) -> Any:
    """The bytes between two positions, cut after a varint."""
    while start < end:
        stop = min(start + _PIECE, end)
        # A varint that is too long is found in a piece of its own.
        while stop < end and stop - start < 2 * _PIECE and data[stop - 1] > 127:
            stop += 1
        yield data[start:stop]
        start = stop


def _is_packed(field: FieldDescriptor) -> bool:
    if hasattr(field, "is_packed"):
        return bool(field.is_packed)
    return bool(field.GetOptions().packed)  # before protobuf 6.31


def _default(field: FieldDescriptor) -> Any:
    if field.type in (_F.TYPE_MESSAGE, _F.TYPE_GROUP):
        return b""
    if not is_repeated(field):
        value = field.default_value
        return value.encode() if isinstance(value, str) else value
    if field.type == _F.TYPE_ENUM:
        values: Any = field.enum_type
        return values.values[0].number
    if field.type in _BYTES:
        return b""
    return False if field.type == _F.TYPE_BOOL else 0
