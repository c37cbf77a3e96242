"""TensorProto ↔ arrays, in every encoding that the wire allows.

A TensorProto holds its elements either densely (`tensor_content`) or in the repeated field of its type, where a list
shorter than the shape repeats its last value.  Decoding trusts nothing: a few bytes may declare a huge shape.  Decoded
arrays are read-only.  Dense ones are views of the message's bytes, without a copy; large ones of a single value are
views of that value and take no memory.  Multi-byte elements are little-endian on the wire and in memory. The rules are
TensorFlow's: core/framework/tensor.cc, `Tensor::FromProto`.
Next to read: `attr_value.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.memory import log_memory
from aexec.framework.memory.allocator import Growth, announce
from aexec.framework.memory.tensor_buffer import STRING_BYTES
from aexec.framework.shape import shape_text
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS, DEFAULT, MEASURE_NS, OBJECT_NS, giving_way, let_others_run
from aexec.framework.wire.wire_format import enclosed, is_repeated

__all__ = [
    "copied",
    "decode_ns",
    "from_content",
    "from_proto",
    "has_values",
    "to_field_parts",
    "to_parts",
    "to_proto",
    "to_proto_apart",
    "value_field",
]

Array = npt.NDArray[Any]

# The most bytes of a tensor that is larger than its message: a dense message ends at protobuf's 2 GiB, too.
MAX_FILL_BYTES = 2**31

_MAX_ELEMENTS = 2**63 - 1

# A larger tensor of one value is a view of it, not copies.
_MAX_COPIES = 2**17

# Bytes of an object element while it is decoded, besides its place in the array.
_OBJECT_BYTES = 2 * STRING_BYTES

# Elements compared at once.
_COMPARED = 1 << 18
# Elements decoded at once, if each is a Python object.
_PIECE = DEFAULT.pieces(OBJECT_NS)
# Strings put into a message at once.
_STRINGS = DEFAULT.pieces(MEASURE_NS)
# Elements set to the same object at once.
_FILLED = 8 * _PIECE
# Up to this many elements are encoded inline, in any thread.
_INLINE = 1024

_FIELDS: dict[DType, str] = {
    dtypes.float32: "float_val",
    dtypes.float64: "double_val",
    dtypes.string: "string_val",
    dtypes.complex64: "scomplex_val",
    dtypes.int64: "int64_val",
    dtypes.bool_: "bool_val",
    dtypes.float16: "half_val",
    dtypes.bfloat16: "half_val",
    dtypes.complex128: "dcomplex_val",
    dtypes.resource: "resource_handle_val",
    dtypes.variant: "variant_val",
    dtypes.uint32: "uint32_val",
    dtypes.uint64: "uint64_val",
}
for _dtype in (dtypes.int32, dtypes.uint16, dtypes.uint8, dtypes.int16, dtypes.int8, *dtypes.QUANTIZED):
    _FIELDS[_dtype] = "int_val"
for _dtype in (dtypes.int4, dtypes.uint4, dtypes.int2, dtypes.uint2):
    _FIELDS[_dtype] = "int_val"
for _dtype in (
    dtypes.float8_e5m2,
    dtypes.float8_e4m3fn,
    dtypes.float8_e4m3fnuz,
    dtypes.float8_e4m3b11fnuz,
    dtypes.float8_e5m2fnuz,
    dtypes.float4_e2m1fn,
):
    _FIELDS[_dtype] = "float8_val"

_BY_ENUM: dict[int, tuple[DType, str]] = {dtype.enum: (dtype, field) for dtype, field in _FIELDS.items()}

_REPEATED = sorted(set(_FIELDS.values()) - {"float8_val"})

_FIELD_NUMBERS = {field: proto.TensorProto.DESCRIPTOR.fields_by_name[field].number for field in _FIELDS.values()}
# Their elements are on the wire as they are in memory: of fixed size and little-endian, or one byte.
_AS_IN_MEMORY = frozenset({"float_val", "double_val", "scomplex_val", "dcomplex_val", "bool_val", "float8_val"})

# Repeated field → the NumPy type of its values, before they are converted to the tensor's.
_FIELD_NUMPY: dict[str, Any] = {
    "float_val": np.float32,
    "double_val": np.float64,
    "scomplex_val": np.float32,
    "dcomplex_val": np.float64,
    "int_val": np.int32,
    "half_val": np.int32,
    "int64_val": np.int64,
    "bool_val": np.bool_,
    "uint32_val": np.uint32,
    "uint64_val": np.uint64,
}


def value_field(dtype: DType) -> str:
    """The name of the repeated TensorProto field that holds elements of `dtype`, e.g. `int_val` for uint8.

    Raises:
        InvalidArgumentError: a ref type, whose values are never on the wire.
    """
    try:
        return _FIELDS[dtype]
    except KeyError:
        raise errors.InvalidArgumentError(f"a TensorProto cannot hold elements of type {dtype}") from None


def from_proto(
    message: proto.TensorProto, *, max_fill_bytes: int = MAX_FILL_BYTES, content: memoryview | None = None
) -> Array:
    """Decode a tensor in any encoding.

    A shape of unknown rank is read as its dimensions; without any, the tensor is a scalar.

    Args:
        message: the tensor.
        max_fill_bytes: the largest result that may be made by repeating values.
        content: its `tensor_content`, if that was taken out of the message.

    Returns:
        A read-only array of the message's shape and of its type's NumPy dtype; strings are `bytes` in an object array,
        resources and variants Python objects in one.

    Raises:
        InvalidArgumentError: `Cannot parse tensor from proto`: bad type or shape, or content of the wrong size.
        ResourceExhaustedError: the shape asks for more than `max_fill_bytes` and few values are given; or the account
            of the running step has no room.
    """
    found = _BY_ENUM.get(message.dtype)
    if found is None:
        raise _unparsable(message, "no such element type")
    dtype, field = found
    shape = tuple([d.size for d in message.tensor_shape.dim])
    count = 1
    for size in shape:
        if size < 0:
            raise _unparsable(message, "expected known dimensions")
        count *= size
    if count > _MAX_ELEMENTS or len(shape) > 254:
        raise _unparsable(message, "the shape is too large")
    if count == 0:
        flat = np.empty(0, dtype.np)
    else:
        dense = message.tensor_content if content is None else content
        flat = (
            _from_content(message, dtype, dense, count)
            if dense
            else _from_field(message, dtype, field, count, max_fill_bytes)
        )
    try:
        array = flat.reshape(shape)
    except ValueError as e:  # NumPy allows fewer dimensions than the wire, and limits empty arrays too
        raise _unparsable(message, str(e)) from None
    array.flags.writeable = False
    if log_memory.is_enabled():
        log_memory.record_tensor_allocation(log_memory.SpecialStep.PROTO_BUFFER, "from proto", array)
    return array


def from_content(content: bytes, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Decode the `tensor_content` of a tensor whose type and shape are known.

    Args:
        content: as many bytes as `shape` has elements of `dtype`.
        dtype: a type of fixed size.

    Returns:
        A read-only array of that type and shape, over the bytes of `content`.

    Raises:
        InvalidArgumentError: a bool is neither 0 nor 1.
    """
    array = np.frombuffer(content, dtype.np).reshape(shape)
    if dtype is dtypes.bool_ and array.view(np.uint8).max() > 1:
        raise errors.InvalidArgumentError("Cannot parse tensor from proto: expected bytes 0 and 1 as bool content")
    if log_memory.is_enabled():
        log_memory.record_tensor_allocation(log_memory.SpecialStep.PROTO_BUFFER, "from proto", array)
    return array


def copied(message: proto.TensorProto) -> proto.TensorProto:
    """A copy of a message.  A repeated field of many values is copied in pieces, since copying holds the interpreter's
    lock.
    """
    copy = proto.TensorProto()
    if all(len(getattr(message, field)) <= _PIECE for field in _REPEATED):
        copy.CopyFrom(message)
        return copy
    for field, value in message.ListFields():
        if field.message_type is not None and not is_repeated(field):
            getattr(copy, field.name).CopyFrom(value)
        elif not is_repeated(field):
            setattr(copy, field.name, value)
        else:
            values = getattr(copy, field.name)
            for start in range(0, len(value), _PIECE):
                values.extend(value[start : start + _PIECE])
                let_others_run()
    return copy


def decode_ns(message: proto.TensorProto) -> float:
    """Estimate of the nanoseconds that decoding takes; an upper bound if no elements are given."""
    found = _BY_ENUM.get(message.dtype)
    if found is None:
        return 0.0
    dtype, field = found
    count = min(MAX_FILL_BYTES, math.prod([max(0, d.size) for d in message.tensor_shape.dim]))
    given = len(getattr(message, field))
    if given == 1 < _MAX_COPIES < count:
        return OBJECT_NS
    # Asking for dense content would copy it, so it is assumed.
    return OBJECT_NS * (given if dtype.size else count) + COPY_NS * count * dtype.np.itemsize


def _unparsable(message: proto.TensorProto, why: str) -> errors.InvalidArgumentError:
    shape = shape_text(d.size for d in message.tensor_shape.dim)
    found = _BY_ENUM.get(message.dtype)
    name = found[0].enum_name if found else str(message.dtype)
    return errors.InvalidArgumentError(f"Cannot parse tensor from proto: {why} (dtype: {name}, shape: {shape})")


# ---- dense content


def _from_content(message: proto.TensorProto, dtype: DType, content: bytes | memoryview, count: int) -> Array:
    announce(len(content) + (0 if dtype.size else count * _OBJECT_BYTES))
    if not dtype.size:
        pieces = _split_content(message, bytes(content), count)
        if dtype is dtypes.string:
            return _object_array(pieces, count)
        kind = proto.ResourceHandleProto if dtype is dtypes.resource else proto.VariantTensorDataProto
        try:
            parsed = [kind.FromString(piece) for piece in pieces]
        except Exception as e:  # protobuf's DecodeError, whose class differs between its implementations
            raise _unparsable(message, f"an element is no {kind.DESCRIPTOR.name}") from e
        return _object_array(map(_decoder(dtype), parsed), count)
    if len(content) != count * dtype.size:
        raise _unparsable(message, f"expected {count * dtype.size} bytes of tensor_content, got {len(content)}")
    if dtype is dtypes.bool_:
        raw = np.frombuffer(content, np.uint8)
        if raw.max() > 1:
            raise _unparsable(message, "expected bytes 0 and 1 as bool content")
        return raw.view(np.bool_)
    array = np.frombuffer(content, dtype.np)
    return array if array.flags.aligned else array.copy()


def _split_content(message: proto.TensorProto, content: bytes, count: int) -> list[bytes]:
    """The inverse of `_join_content`: the varint32 lengths of all elements, then their bytes."""
    if count > len(content):  # each length takes a byte: refuse before making a list
        raise _unparsable(message, f"expected {count} lengths in tensor_content, got {len(content)} bytes")
    lengths = []
    position = 0
    for _ in giving_way(range(count), OBJECT_NS):
        length, shift = 0, 0
        while True:
            if position == len(content) or shift > 28:
                raise _unparsable(message, "a length in tensor_content is cut off or no varint32")
            byte = content[position]
            position += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        lengths.append(length)
    if position + sum(lengths) != len(content):
        raise _unparsable(message, "the lengths in tensor_content do not add up to its size")
    pieces = []
    for length in giving_way(lengths, OBJECT_NS):
        pieces.append(content[position : position + length])
        position += length
    return pieces


def _join_content(pieces: Sequence[bytes]) -> bytes:
    parts = bytearray()
    for piece in pieces:
        length = len(piece)
        while length > 127:
            parts.append(length & 127 | 128)
            length >>= 7
        parts.append(length)
    return bytes(parts) + b"".join(pieces)


# ---- repeated fields


def _from_field(message: proto.TensorProto, dtype: DType, field: str, count: int, max_bytes: int) -> Array:
    values = getattr(message, field)
    elements = len(values) // 2 if dtype.is_complex else len(values)
    itemsize = dtype.np.itemsize
    if count > elements and count * itemsize > max_bytes:
        shape = shape_text(d.size for d in message.tensor_shape.dim)
        raise errors.ResourceExhaustedError(
            f"a TensorProto with {elements} values declares a {dtype} tensor of shape {shape}, "
            f"{count * itemsize} bytes; at most {max_bytes} bytes are filled"
        )
    if count > _MAX_COPIES and elements <= (dtype.size > 0 or dtype is dtypes.string):
        return np.broadcast_to(_from_field(message, dtype, field, 1, max_bytes), count)
    announce(count * itemsize + (0 if dtype.size else min(count, elements) * _OBJECT_BYTES))
    if not dtype.size:
        return _objects_from_field(values, dtype, count)
    if not elements:
        return np.zeros(count, dtype.np)
    given = _to_elements(values, dtype, field)[:count]
    if len(given) == count:
        return given
    filled = np.empty(count, dtype.np)
    filled[: len(given)] = given
    filled[len(given) :] = given[-1]
    return filled


def _to_elements(values: Any, dtype: DType, field: str) -> Array:
    """The values of a repeated field as elements of `dtype`."""
    if field == "float8_val":
        return np.frombuffer(values, dtype.np)
    raw = _numbers(values, np.dtype(_FIELD_NUMPY[field]))
    if raw.dtype == dtype.np:
        return raw
    if field == "half_val":
        return raw.astype(np.uint16).view(dtype.np)
    if dtype.is_complex:
        return raw[: len(raw) // 2 * 2].view(dtype.np)
    return raw.astype(dtype.np)  # wraps, as C++'s conversion does


def _numbers(values: Any, dtype: np.dtype[Any]) -> Array:
    """A repeated field of numbers as an array; made in pieces, because each number becomes a Python object on the
    way.
    """
    if len(values) <= _PIECE:
        return np.array(values, dtype)
    array = np.empty(len(values), dtype)
    for start in range(0, len(values), _PIECE):
        array[start : start + _PIECE] = values[start : start + _PIECE]
        let_others_run()
    return array


def _objects_from_field(values: Any, dtype: DType, count: int) -> Array:
    given = min(count, len(values))
    decode = bytes if dtype is dtypes.string else _decoder(dtype)
    if given == count <= _PIECE:
        return _object_array(map(decode, values[:count]), count)
    array = np.empty(count, object)
    for start in range(0, given, _PIECE):
        stop = min(start + _PIECE, given)
        array[start:stop] = _object_array(map(decode, values[start:stop]), stop - start)
        let_others_run()
    if given < count:
        missing = _missing(array, given, dtype)
        for start in range(given, count, _FILLED):
            array[start : start + _FILLED].fill(missing)
            let_others_run()
    return array


def _missing(array: Array, given: int, dtype: DType) -> Any:
    """The value of elements that were not given: the last given string; but an empty handle or variant, never the
    last.
    """
    if dtype is dtypes.string:
        return array[given - 1] if given else b""
    return _decoder(dtype)(proto.ResourceHandleProto() if dtype is dtypes.resource else proto.VariantTensorDataProto())


def _object_array(values: Iterable[Any], count: int) -> Array:
    return np.fromiter(values, dtype=object, count=count)


def _decoder(dtype: DType) -> Callable[[Any], Any]:
    # Imported late: both modules import this one.
    if dtype is dtypes.resource:
        from aexec.framework.state.resource_manager import ResourceHandle

        return ResourceHandle.from_proto
    from aexec.framework.wire import variant

    return variant.decode


def _encode_object(value: Any, dtype: DType) -> Any:
    if dtype is dtypes.resource:
        return value.to_proto()
    from aexec.framework.wire import variant

    return variant.encode(value)


# ---- encoding


def to_proto(
    array: Any, dtype: DType | None = None, *, compact: bool = True, content_strings: bool = False
) -> proto.TensorProto:
    """Encode a tensor.

    Elements of fixed size go to `tensor_content`, strings to `string_val`.

    Args:
        array: an array, or anything that `numpy.asarray` takes.
        dtype: the element type; by default that of the array's NumPy dtype.  Quantised types have to be named, because
            their arrays are of integers.
        compact: write a tensor whose elements are all equal as one value, as graphs' constants are.
        content_strings: put strings, handles and variants into `tensor_content` too, as responses of a session service
            do.

    Raises:
        InvalidArgumentError: the array cannot be a tensor of that type.
    """
    # NumPy's own S arrays would lose trailing NULs of a list of bytes.
    values = np.asarray(array, object if dtype is dtypes.string and isinstance(array, list | tuple | bytes) else None)
    if dtype is None:
        dtype = dtypes.from_numpy(values.dtype)
    message = _without_elements(values.shape, dtype)
    field = value_field(dtype)
    if not values.size:
        return message
    if not dtype.size:
        _put_objects(message, values, dtype, field, content_strings)
        return message
    if values.dtype != dtype.np:
        values = _converted(values, dtype)
    flat = np.ascontiguousarray(values).reshape(-1)
    if compact and _all_equal(flat):
        _put_values(message, flat[:1], dtype, field)
    else:
        message.tensor_content = flat.tobytes()
    return message


def to_parts(array: Array, dtype: DType) -> list[bytes | memoryview]:
    """The encoded message of `to_proto(compact=False)` in parts; numbers are the array's own bytes, without a copy."""
    if dtype is dtypes.string and array.size > _STRINGS:
        return _parts_of_strings(array)
    apart = to_proto_apart(array, dtype, compact=False)
    if apart is None:
        return [to_proto(array, dtype, compact=False).SerializeToString()]
    head, content = apart
    return [head.SerializeToString(), *enclosed(proto.TensorProto.TENSOR_CONTENT_FIELD_NUMBER, [content])]


def to_field_parts(array: Array, dtype: DType) -> list[bytes | memoryview]:
    """Encode a tensor in parts, with its elements in the field of its type, which clients of `float_val` read.

    For types with the same form on the wire and in memory, the parts are the array's own bytes.
    """
    field = value_field(dtype)
    head = _head(array.shape, dtype)
    if array.size > _INLINE and field not in _AS_IN_MEMORY:
        check_inline(OBJECT_NS * array.size)
    values = proto.TensorProto()
    if not dtype.size:
        _put_objects(values, array, dtype, field, in_content=False)
        return [head, values.SerializeToString()]
    flat = np.ascontiguousarray(_converted(array, dtype) if array.dtype != dtype.np else array).reshape(-1)
    if field in _AS_IN_MEMORY:
        return [head, *(enclosed(_FIELD_NUMBERS[field], [flat.view(np.uint8).data]) if flat.size else ())]
    for start in range(0, len(flat), _PIECE):
        _put_values(values, flat[start : start + _PIECE], dtype, field)
        let_others_run()
    return [head, values.SerializeToString()]


@lru_cache(maxsize=1024)
def _head(shape: tuple[int, ...], dtype: DType) -> bytes:
    """A tensor on the wire without its elements; a scalar's shape is there too, empty."""
    message = _without_elements(shape, dtype)
    message.tensor_shape.SetInParent()
    return message.SerializeToString()


# The least bytes of an encoded string besides its own: its tag and its length.
_STRING_HEAD = 2


def _parts_of_strings(array: Array) -> list[bytes | memoryview]:
    """Messages with some of the strings each; their bytes one after another are the message of the whole tensor."""
    parts: list[bytes | memoryview] = [_without_elements(array.shape, dtypes.string).SerializeToString()]
    growth = Growth()
    for strings in _some_strings(array):
        growth.add(sum(map(len, strings)) + _STRING_HEAD * len(strings))
        parts.append(proto.TensorProto(string_val=strings).SerializeToString())
    return parts


def _some_strings(array: Array) -> Iterator[list[bytes]]:
    """Yield the elements in lists, and let other threads run between two of them."""
    flat = array.ravel() if array.flags.c_contiguous else array.flat
    for start in range(0, array.size, _STRINGS):
        yield [_as_bytes(value) for value in flat[start : start + _STRINGS].tolist()]
        let_others_run()


def to_proto_apart(array: Array, dtype: DType, *, compact: bool = True) -> tuple[proto.TensorProto, memoryview] | None:
    """The message of `to_proto` without its `tensor_content`, and the bytes of that, which are the array's own if
    possible.

    None if the message has no content: the elements are not numbers, there are none, or `compact` makes them one value.
    """
    if not dtype.size or array.dtype != dtype.np or not array.size:
        return None
    flat = np.ascontiguousarray(array).reshape(-1)
    if compact and _all_equal(flat):
        return None
    return _without_elements(array.shape, dtype), flat.view(np.uint8).data


def _without_elements(shape: Iterable[int], dtype: DType) -> proto.TensorProto:
    message = proto.TensorProto(dtype=dtype.enum)
    for size in shape:
        message.tensor_shape.dim.add(size=size)
    return message


def has_values(message: proto.TensorProto) -> bool:
    """True if elements are in the repeated field of their type, not in `tensor_content`."""
    return any(len(getattr(message, field)) for field in set(_FIELDS.values()))


def _converted(values: Array, dtype: DType) -> Array:
    if values.dtype.newbyteorder("=") == dtype.np:
        return values.astype(dtype.np)
    raise errors.InvalidArgumentError(f"expected an array of {dtype.np} for a {dtype} tensor, got {values.dtype}")


def _all_equal(flat: Array) -> bool:
    """True if all elements have the same bytes.  (-0.0 is not 0.0, and a NaN equals itself.)"""
    if flat.size == 1:
        return True
    if flat[0].tobytes() != flat[-1].tobytes():
        return False
    size = flat.itemsize
    raw = flat.view(np.uint64 if size % 8 == 0 else f"u{size}").reshape(len(flat), -1)
    return all((raw[start : start + _COMPARED] == raw[0]).all() for start in range(0, len(raw), _COMPARED))


def _put_values(message: proto.TensorProto, values: Array, dtype: DType, field: str) -> None:
    if field == "float8_val":
        message.float8_val = values.tobytes()
        return
    if field == "half_val":
        values = values.view(np.uint16)
    elif dtype.is_complex:
        values = values.view(_FIELD_NUMPY[field])
    elif field == "int_val":
        values = values.astype(np.int32)
    getattr(message, field).extend(values.tolist())


def _put_objects(message: proto.TensorProto, values: Array, dtype: DType, field: str, in_content: bool) -> None:
    if values.size > _STRINGS and dtype is dtypes.string and not in_content:
        for strings in _some_strings(values):
            message.string_val.extend(strings)
        return
    flat = values.reshape(-1).tolist() if values.ndim else [values[()]]
    if dtype is dtypes.string:
        encoded: list[Any] = [_as_bytes(v) for v in flat]
    else:
        encoded = [_encode_object(v, dtype) for v in flat]
    if not in_content:
        getattr(message, field).extend(encoded)
    elif dtype is dtypes.string:
        message.tensor_content = _join_content(encoded)
    else:
        message.tensor_content = _join_content([e.SerializeToString() for e in encoded])


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise errors.InvalidArgumentError(f"expected bytes in a string tensor, got {type(value).__name__} {value!r:.80}")
