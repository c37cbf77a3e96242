"""Encodes and decodes tensors on the wire: V2 tensors in JSON or binary, and nested lists.

An array's NumPy dtype does not determine its type (quantised types are integers, strings are objects), so every
encoding function takes the `DType` too.  Numbers are checked by the `FeedSpec` that checks feeds of embedding programs,
so that the same mistake gives the same error.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from aexec import errors
from aexec.hosting import (
    DATATYPES,
    DType,
    FeedSpec,
    check_inline,
    datatype_of,
    dtypes,
    has_datatype,
    loop_budget,
    num_leaves,
)
from aexec_server.http import json_text
from aexec_server.http.bodies import decode_base64, encode_json, expected
from aexec_server.http.json_style import JsonStyle

__all__ = [
    "SENT_APART",
    "arrays_of_their_own",
    "as_array",
    "base64_texts",
    "binary_parts",
    "binary_size",
    "check_people_form",
    "check_v2_form",
    "dtype_of_datatype",
    "from_binary",
    "from_json",
    "from_people",
    "has_people_form",
    "people_pieces",
    "people_text",
    "read_shape",
    "size_of",
    "string_bytes",
    "string_text",
    "to_binary",
    "v2_pieces",
    "v2_text",
    "write_ns",
]

Array = npt.NDArray[Any]

_OPAQUE = frozenset({dtypes.resource.enum, dtypes.variant.enum})  # by number: comparing types takes a call for each
_BINARY_ONLY = (dtypes.float16, dtypes.bfloat16)

# Estimated nanoseconds to decode or encode a string in JSON.
_STRING_NS = 10 * loop_budget.OBJECT_NS

# Python's memory for a short string.
_STRING_BYTES = 48
# Tensors of at least this many bytes are sent in binary form from their own memory, without a copy.
SENT_APART = 1 << 20
# Arrays below this many bytes are copied: that costs less than making a view.
_COPIED_BYTES = 1 << 14

_MAX_DIMS = 64  # as NumPy
_MAX_SIZE = 2**63 - 1


def dtype_of_datatype(name: Any, tensor: str) -> DType:
    """Return the type of a V2 datatype or of a `DT_…` name.  Raises InvalidArgumentError."""
    dtype = DATATYPES.get(name) if isinstance(name, str) else None
    if dtype is None and isinstance(name, str) and name.startswith("DT_") and not name.endswith("_REF"):
        try:
            dtype = dtypes.as_dtype(name)
        except errors.InvalidArgumentError:
            dtype = None
    if dtype is None:
        raise errors.InvalidArgumentError(
            f'"datatype" of {tensor} must be one of {", ".join(DATATYPES)}, or a DataType such as "DT_COMPLEX64", '
            f"got {str(name)[:40]!r}"
        )
    return dtype


def as_array(value: Any, dtype: DType) -> Array:
    """Return a fetched value as an array; a step returns scalars as NumPy scalars, `bytes` or objects."""
    if isinstance(value, np.ndarray):
        return value
    if not dtype.is_simple:
        array = np.empty((), object)
        array[()] = value
        return array
    return np.asarray(value)


def arrays_of_their_own(names: Sequence[str], values: Sequence[Any]) -> tuple[dict[str, Array], dict[str, int]]:
    """Return the decoded tensors that do not lie in the body, as arrays by name, and the memory of those of strings."""
    own: dict[str, Array] = {}
    sizes: dict[str, int] = {}
    for name, value in zip(names, values, strict=True):
        owner = value.base if isinstance(value, np.ndarray) and value.base is not None else value
        if isinstance(owner, np.ndarray) and owner.flags.owndata:
            own[f"feed {name}"] = owner
            if owner.dtype.kind == "O":
                sizes[f"feed {name}"] = owner.nbytes + owner.size * _STRING_BYTES
    return own, sizes


def size_of(value: Any) -> int:
    """Return the approximate number of bytes of a fetched value on the wire."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O":
            return sum(len(item) for item in value.flat if type(item) is bytes) + value.nbytes
        return value.nbytes
    return len(value) if type(value) is bytes else 16


def write_ns(value: Any, *, binary: bool) -> float:
    """Return the estimated nanoseconds to write a fetched value, as JSON or in the binary extension."""
    if not isinstance(value, np.ndarray):
        return loop_budget.JSON_WRITE_NS + size_of(value) * loop_budget.JSON_READ_NS
    if value.dtype.kind == "O":
        return value.size * _STRING_NS + size_of(value) * (loop_budget.WIRE_NS if binary else loop_budget.JSON_READ_NS)
    if not binary:
        return value.size * loop_budget.JSON_WRITE_NS
    apart = value.nbytes >= SENT_APART and value.flags.c_contiguous
    return 0 if apart else value.nbytes * loop_budget.WIRE_NS


# The types that each form can hold


def check_v2_form(name: str, dtype: DType, binary: bool) -> None:
    """Check that a tensor can be sent as V2 tensor.

    Raises:
        InvalidArgumentError: it can be sent only in binary form.
        UnimplementedError: it cannot be sent in either form.
    """
    _check_plain(name, dtype)
    if binary:
        return
    if dtype in _BINARY_ONLY or not has_datatype(dtype):
        raise errors.InvalidArgumentError(
            f"{name} has type {dtype}, which has no JSON form in this tensor list: ask for it with "
            '"parameters": {"binary_data": true}, or send it with "binary_data_size" and '
            "the header Inference-Header-Content-Length"
        )


def has_people_form(dtype: DType) -> bool:
    """True if a tensor can be sent as nested JSON lists."""
    return not dtype.is_complex and dtype.enum not in _OPAQUE


def check_people_form(name: str, dtype: DType) -> None:
    """Check that a tensor can be sent as nested JSON lists.  Raises as `check_v2_form`."""
    _check_plain(name, dtype)
    if dtype.is_complex:
        raise errors.InvalidArgumentError(
            f"{name} has type {dtype}, which has no JSON form: ask for the tensor list with binary outputs"
        )


def _check_plain(name: str, dtype: DType) -> None:
    if dtype.enum in _OPAQUE:
        raise errors.UnimplementedError(
            f"{name} has type {dtype}, which has neither a JSON nor a binary form: use application/x-protobuf"
        )


# Decoding


def from_people(name: str, dtype: DType, value: Any) -> Any:
    """Decode a fed value given as nested lists, or as one number or string.  Numbers are converted later, by the step.

    Args:
        name: the tensor's, for messages.
        dtype: its type in the graph.
        value: the decoded JSON.

    Raises:
        InvalidArgumentError, UnimplementedError: the value is not of that type, or the type has no such form.
        NeedsThreadError: it would take too long on the event loop, where it was called.
    """
    if dtype is dtypes.string:
        return _strings(name, value)
    _check_plain(name, dtype)
    if value is None or type(value) is str or type(value) is dict:
        raise expected(f"Feed {name} must be {_a(dtype)} or nested lists of these", value)
    return value


def _a(dtype: DType) -> str:
    if dtype is dtypes.bool_:
        return "true or false"
    return f"a number ({dtype.name})"


def _numbers(name: str, dtype: DType, value: Any) -> Any:
    return FeedSpec(name, dtype).convert(value)


def from_json(name: str, dtype: DType, shape: Any, data: Any) -> Array:
    """Decode a V2 tensor whose `data`, nested or flat, is JSON.

    Raises:
        InvalidArgumentError: a value is not of the type, the number of values does not fit the shape, or the type has
            no JSON form.
    """
    dims = read_shape(name, shape)
    check_v2_form(name, dtype, binary=False)
    if type(data) is not list:
        raise expected(f'"data" of {name} must be a list', data)
    array: Array = _strings(name, data) if dtype is dtypes.string else _numbers(name, dtype, data)
    if array.size != math.prod(dims):
        raise errors.InvalidArgumentError(
            f'"data" of {name} has {array.size} elements, but shape {list(dims)} has {math.prod(dims)}'
        )
    return _reshape(name, array, dims)


def read_shape(name: str, shape: Any) -> tuple[int, ...]:
    """Return a V2 shape as a tuple.  Raises InvalidArgumentError for anything but a list of sizes."""
    if type(shape) is not list or any(type(size) is not int or size < 0 for size in shape):
        raise errors.InvalidArgumentError(f'"shape" of {name} must be a list of sizes, got {encode_json(shape)[:80]}')
    if len(shape) > _MAX_DIMS or math.prod(shape) > _MAX_SIZE:
        raise errors.InvalidArgumentError(f'"shape" of {name} is too large')
    return tuple(shape)


def _reshape(name: str, array: Array, dims: tuple[int, ...]) -> Array:
    try:
        return array.reshape(dims)
    except ValueError as error:  # NumPy limits the sizes of empty arrays too
        raise errors.InvalidArgumentError(f'"shape" of {name} is not possible: {error}') from None


def from_binary(name: str, dtype: DType, dims: tuple[int, ...], raw: memoryview) -> Array:
    """Decode a V2 tensor in binary form; `dims` come from `read_shape`.

    Raises:
        InvalidArgumentError: the number of bytes does not fit the shape, or a byte is not valid.
        UnimplementedError: the type has no binary form.
    """
    _check_plain(name, dtype)
    count = math.prod(dims)
    if dtype is dtypes.string:
        return _reshape(name, _split_strings(name, raw, count), dims)
    if len(raw) != count * dtype.size:
        raise errors.InvalidArgumentError(
            f"{name} has {len(raw)} bytes of binary data, but shape {list(dims)} of {datatype_of(dtype)} "
            f"needs {count * dtype.size}"
        )
    array = np.frombuffer(raw, np.uint8 if dtype is dtypes.bool_ else dtype.np)
    if dtype is dtypes.bool_:
        if count and array.max() > 1:
            raise errors.InvalidArgumentError(f"{name}: bytes of a BOOL must be 0 or 1, got {array.max()}")
        array = array.view(np.bool_)
    if not array.flags.aligned:
        array = array.copy()  # a tensor that follows another one may be unaligned
    return array if len(dims) == 1 else _reshape(name, array, dims)


def _split_strings(name: str, raw: memoryview, count: int) -> Array:
    if count * 4 > len(raw):
        raise errors.InvalidArgumentError(f"{name} has {len(raw)} bytes, too few for the lengths of {count} BYTES")
    strings: list[bytes] = []
    position = 0
    for _ in range(count):
        if position + 4 > len(raw):
            break
        (length,) = struct.unpack_from("<I", raw, position)
        position += 4 + length
        strings.append(bytes(raw[position - length : position]))
    if len(strings) != count or position != len(raw):
        raise errors.InvalidArgumentError(f"{name}: the lengths of {count} BYTES do not add up to {len(raw)} bytes")
    return np.fromiter(strings, object, count)


def _strings(name: str, value: Any) -> Array:
    """Decode nested lists of strings to an object array of bytes."""
    check_inline(num_leaves(value) * _STRING_NS)
    level: list[Any] = [value]
    shape: list[int] = []
    while level and type(level[0]) is list:
        size = len(level[0])
        if len(shape) == _MAX_DIMS or any(type(v) is not list or len(v) != size for v in level):
            raise errors.InvalidArgumentError(f"Cannot feed {name}: lists of different lengths, or too deeply nested")
        shape.append(size)
        level = [item for v in level for item in v]
    array = np.fromiter((string_bytes(name, item) for item in level), object, len(level))
    return array.reshape(shape)


def string_bytes(name: str, item: Any) -> bytes:
    """Return the bytes of a JSON string, or of `{"b64": …}`.  Raises InvalidArgumentError."""
    if type(item) is str:
        try:
            return item.encode()
        except UnicodeEncodeError:
            raise errors.InvalidArgumentError(
                f'Cannot feed {name}: {item[:40]!r} is not Unicode; send bytes as {{"b64": "…"}}'
            ) from None
    if type(item) is dict and item.keys() == {"b64"} and type(item["b64"]) is str:
        return decode_base64(item["b64"], f'"b64" of {name}')
    raise expected(f'Cannot feed {name}: expected a string or {{"b64": "…"}}', item)


# Encoding


def people_text(array: Array, dtype: DType, style: JsonStyle | None = None) -> str:
    """Return a tensor as nested JSON lists."""
    if dtype is dtypes.string:
        return encode_json(_texts(array.tolist()))
    return json_text.array_text(array, style)


def v2_text(array: Array, dtype: DType, style: JsonStyle | None = None) -> str:
    """Return a tensor's elements as a flat JSON list."""
    if dtype is dtypes.string:
        return encode_json([string_text(item) for item in array.ravel()])
    return json_text.array_text(array.reshape(-1), style)


def people_pieces(array: Array, dtype: DType, style: JsonStyle | None = None) -> Iterator[str]:
    """Iterate over `people_text` in pieces."""
    if dtype is dtypes.string:
        return json_text.value_pieces(_texts_of(array))
    return json_text.array_pieces(array, style)


def v2_pieces(array: Array, dtype: DType, style: JsonStyle | None = None) -> Iterator[str]:
    """Iterate over `v2_text` in pieces."""
    return people_pieces(array.reshape(-1), dtype, style)


def _texts_of(array: Array) -> Any:
    """Return an array's strings as nested iterators, so that JSON texts are made one by one."""
    if array.ndim == 0:
        return string_text(array.item())
    return map(string_text if array.ndim == 1 else _texts_of, array)


def _texts(value: Any) -> Any:
    return [_texts(part) for part in value] if type(value) is list else string_text(value)


def string_text(value: bytes) -> Any:
    """Return bytes as a JSON string if they are UTF-8, else as `{"b64": …}`."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64_texts(value)


def base64_texts(value: Any) -> Any:
    """Return bytes, or nested lists of them, each as `{"b64": …}`."""
    if type(value) is list:
        return [base64_texts(part) for part in value]
    return {"b64": base64.b64encode(value).decode()}


def binary_parts(array: Array, dtype: DType) -> Iterator[bytes | memoryview]:
    """Iterate over `to_binary` in parts."""
    if dtype is dtypes.string:
        return (struct.pack("<I", len(item)) + item for item in array.ravel())
    return iter([to_binary(array, dtype)])


def binary_size(array: Array, dtype: DType) -> int:
    """Return the number of bytes of `to_binary`."""
    return sum(4 + len(item) for item in array.ravel()) if dtype is dtypes.string else array.nbytes


def to_binary(array: Array, dtype: DType) -> bytes | memoryview:
    """Return a tensor in the binary extension: little-endian, row-major; strings with their lengths.

    A large contiguous array is returned as a view of its own memory.
    """
    if dtype is dtypes.string:
        return b"".join(binary_parts(array, dtype))
    if array.nbytes < _COPIED_BYTES or not array.flags.c_contiguous:
        return array.tobytes()
    return array.reshape(-1).view(np.uint8).data
