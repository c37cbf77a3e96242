"""Variants: tensors whose elements are arbitrary Python objects, such as tensor lists.

An element flows as the bare object in an object array; an empty variant is None.  What is to be done with the variants
of a class is registered: encoding and decoding (`register_variant`), operations such as zeros_like and add
(`register_unary_op`, `register_binary_op`), copies between devices (`register_device_copy`).  Plain numbers, arrays and
protobuf messages need no registration.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeVar

import numpy as np
from google.protobuf import message as protobuf

from aexec import proto
from aexec.framework import errors
from aexec.framework.late_dataclass import dataclass
from aexec.framework.wire import tensor_codec

__all__ = [
    "DeviceCopyDirection",
    "VariantTensorData",
    "add",
    "copy_between_devices",
    "decode",
    "encode",
    "get",
    "register_binary_op",
    "register_device_copy",
    "register_unary_op",
    "register_variant",
    "tensors_in",
    "type_name_of",
    "unary_op",
    "zeros_like",
]

V = TypeVar("V")
Array = Any


class DeviceCopyDirection(enum.Enum):
    """The direction of a copy between the host's memory and that of devices."""

    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3


# Wire form


@dataclass(slots=True)
class VariantTensorData:
    """A variant, serialised.

    Attributes:
        type_name: the name under which its decoder is registered; "" for an empty variant.
        metadata: everything but the tensors, encoded.
        tensors: arrays.
    """

    type_name: str = ""
    metadata: bytes = b""
    tensors: list[Array] = field(default_factory=list)

    @classmethod
    def from_proto(cls, message: proto.VariantTensorDataProto) -> VariantTensorData:
        """Decode a message.  Raises InvalidArgumentError if a tensor cannot be decoded."""
        return cls(message.type_name, message.metadata, [tensor_codec.from_proto(t) for t in message.tensors])

    def to_proto(self) -> proto.VariantTensorDataProto:
        return proto.VariantTensorDataProto(
            type_name=self.type_name,
            metadata=self.metadata,
            tensors=[tensor_codec.to_proto(t) for t in self.tensors],
        )


class Encodable(Protocol):
    """What a class needs to be registered with `register_variant`."""

    @property
    def type_name(self) -> str: ...

    def encode(self) -> VariantTensorData: ...

    @classmethod
    def decode(cls, data: VariantTensorData) -> Any: ...


E = TypeVar("E", bound=Encodable)


@dataclass(frozen=True, slots=True)
class _Codec:
    type_name: str
    encode: Callable[[Any], VariantTensorData]
    decode: Callable[[VariantTensorData], Any]


_by_class: dict[type, _Codec] = {}
_by_name: dict[str, _Codec] = {}
# Classes of variants with a property `tensors`.
_holders: set[type] = set()


def register_variant(cls: type[E]) -> type[E]:
    """Class decorator: register a class that has `type_name`, `encode(self)` and a class method `decode(data)`.

    If the class has a property `tensors`, these tensors count as memory of the variant.

    Raises:
        AlreadyExistsError: another class has this type name.
    """
    encodable: Any = cls
    _register(cls, _Codec(encodable.type_name, encodable.encode, encodable.decode))
    if hasattr(cls, "tensors"):
        _holders.add(cls)
    return cls


def _register(cls: type, codec: _Codec) -> None:
    if _by_name.setdefault(codec.type_name, codec) is not codec:
        raise errors.AlreadyExistsError(f"a decoder for variant type_name '{codec.type_name}' is registered already")
    _by_class[cls] = codec


def tensors_in(array: Array) -> Iterator[Array | list[Any]]:
    """The tensors that the variants of a tensor hold; none for other tensors.  A variant's list is yielded as a whole,
    with what it has in place of absent tensors.
    """
    if type(array.flat[0] if array.size else None) in _holders:
        for value in array.ravel().tolist():
            if type(value) in _holders:
                held = value.tensors
                if isinstance(held, list):
                    yield held
                else:
                    yield from held


def type_name_of(value: Any) -> str:
    """The registered name of a variant's type; "" for an empty one."""
    if value is None:
        return ""
    if isinstance(value, protobuf.Message):
        return _proto_name(value)
    codec = _by_class.get(type(value))
    return type(value).__name__ if codec is None else codec.type_name


def encode(value: Any) -> proto.VariantTensorDataProto:
    """Serialise one element.

    Raises:
        InvalidArgumentError: nothing is registered for its class, or an int is beyond 64 bits.
    """
    if value is None:
        return proto.VariantTensorDataProto()
    if isinstance(value, protobuf.Message):
        return VariantTensorData(_proto_name(value), value.SerializeToString()).to_proto()
    codec = _by_class.get(type(value))
    if codec is None:
        raise errors.InvalidArgumentError(f"Variants of type {type(value).__name__} cannot be encoded")
    try:
        data = codec.encode(value)
    except struct.error as error:
        raise errors.InvalidArgumentError(f"{value!r} cannot be encoded as a {codec.type_name}: {error}") from None
    data.type_name = codec.type_name
    return data.to_proto()


def decode(message: proto.VariantTensorDataProto) -> Any:
    """The element that a message holds.

    Raises:
        InvalidArgumentError: no decoder has that name; or it fails, or returns a value of another type.
    """
    if not message.type_name:
        return None
    codec = _by_name.get(message.type_name) or _proto_codec(message.type_name)
    if codec is None:
        raise errors.InvalidArgumentError(
            f'Could not decode variant with type_name: "{message.type_name}".  '
            "Perhaps you forgot to register a decoder with register_variant?"
        )
    data = VariantTensorData.from_proto(message)
    try:
        value = codec.decode(data)
    except (ValueError, IndexError, struct.error, protobuf.DecodeError) as error:
        raise errors.InvalidArgumentError(
            f'Could not decode variant with type_name: "{message.type_name}": {error}'
        ) from error
    after = type_name_of(value)
    if after != message.type_name:
        raise errors.InvalidArgumentError(
            f"DecodeUnaryVariant: Variant type_name before decoding was: {message.type_name} "
            f"but after decoding was: {after}.  Treating this as a failure."
        )
    return value


def get(value: Any, cls: type[V]) -> V | None:
    """The element if it is of exactly this class, else None.  Nothing is converted."""
    return value if type(value) is cls else None


# Operations

UnaryOp = Callable[[Any], Any]
BinaryOp = Callable[[Any, Any], Any]
CopyTensor = Callable[[Array], Array]
DeviceCopy = Callable[[Any, CopyTensor], Any]

_unary: dict[tuple[str, str, type], UnaryOp] = {}
_binary: dict[tuple[str, str, type], BinaryOp] = {}
_copies: dict[tuple[DeviceCopyDirection, type], DeviceCopy] = {}


def register_unary_op(operation: str, device_type: str, cls: type, apply: UnaryOp) -> None:
    """Register how an operation such as ZEROS_LIKE works on variants of a class, on a type of device.

    Raises:
        AlreadyExistsError: it is registered already.
    """
    _add(_unary, (operation, device_type, cls), apply)


def register_binary_op(operation: str, device_type: str, cls: type, apply: BinaryOp) -> None:
    """Like `register_unary_op`, for operations such as ADD on two variants of one class."""
    _add(_binary, (operation, device_type, cls), apply)


def register_device_copy(direction: DeviceCopyDirection, cls: type, copy: DeviceCopy) -> None:
    """Register how variants of a class are copied: `copy(value, copy_tensor)`, where `copy_tensor` copies one array.

    Raises:
        AlreadyExistsError: it is registered already.
    """
    _add(_copies, (direction, cls), copy)


K = TypeVar("K")
F = TypeVar("F")


def _add(table: dict[K, F], key: K, function: F) -> None:
    if table.setdefault(key, function) is not function:
        raise errors.AlreadyExistsError(f"a function is registered already for {key}")


def unary_op(operation: str, device_type: str, value: Any) -> Any:
    """Apply an operation to a variant.

    Raises:
        UnimplementedError: nothing is registered for its class and this type of device.
    """
    apply = _unary.get((operation, device_type, type(value)))
    if apply is None:
        raise errors.UnimplementedError(
            f"No unary variant unary_op function found for op {operation} "
            f"Variant type_name: {type_name_of(value)} for device type: {device_type}"
        )
    return apply(value)


def binary_op(operation: str, device_type: str, first: Any, second: Any) -> Any:
    """Apply an operation to two variants.

    Raises:
        InvalidArgumentError: they are of different classes.
        UnimplementedError: nothing is registered for their class.
    """
    if type(first) is not type(second):
        raise errors.InvalidArgumentError(
            "BinaryOpVariants: Variants a and b have different type ids.  "
            f"Type names: '{type_name_of(first)}' vs. '{type_name_of(second)}'"
        )
    apply = _binary.get((operation, device_type, type(first)))
    if apply is None:
        raise errors.UnimplementedError(
            f"No unary variant binary_op function found for op {operation} "
            f"Variant type_name: '{type_name_of(first)}' for device type: {device_type}"
        )
    return apply(first, second)


def zeros_like(value: Any, device_type: str = "CPU") -> Any:
    """`unary_op` ZEROS_LIKE."""
    return unary_op("ZEROS_LIKE", device_type, value)


def add(first: Any, second: Any, device_type: str = "CPU") -> Any:
    """`binary_op` ADD."""
    return binary_op("ADD", device_type, first, second)


def copy_between_devices(value: Any, direction: DeviceCopyDirection, copy_tensor: CopyTensor) -> Any:
    """Copy a variant to another memory space.

    Args:
        value: the element.
        direction: from where to where.
        copy_tensor: copies one array that it contains.

    Raises:
        UnimplementedError: nothing is registered for its class.
    """
    if value is None:
        return None
    copy = _copies.get((direction, type(value)))
    if copy is None:
        raise errors.UnimplementedError(
            f"No unary variant device copy function found for direction: {direction.name} "
            f"and Variant type_name: {type_name_of(value)}"
        )
    return copy(value, copy_tensor)


# Types registered here: numbers under their C++ names, arrays, protobuf messages


def _register_plain(cls: type, name: str, layout: str, parts: Callable[[Any], Sequence[Any]] = lambda v: (v,)) -> None:
    def encode_plain(value: Any) -> VariantTensorData:
        return VariantTensorData(name, struct.pack(layout, *parts(value)))

    def decode_plain(data: VariantTensorData) -> Any:
        return cls(*struct.unpack(layout, data.metadata))

    _register(cls, _Codec(name, encode_plain, decode_plain))
    for direction in DeviceCopyDirection:
        register_device_copy(direction, cls, lambda value, _: value)


_register_plain(bool, "bool", "<?")
_register_plain(int, "long", "<q")
_register_plain(float, "double", "<d")
_register_plain(complex, "std::complex<double>", "<dd", lambda v: (v.real, v.imag))
_register_plain(np.int32, "int", "<i")
_register_plain(np.float32, "float", "<f")

_register(
    np.ndarray,
    _Codec(
        "tensorflow::Tensor",
        lambda array: VariantTensorData(tensors=[array]),
        lambda data: data.tensors[0],
    ),
)
for _direction in DeviceCopyDirection:
    register_device_copy(_direction, np.ndarray, lambda array, copy_tensor: copy_tensor(array))


def _proto_name(message: protobuf.Message) -> str:
    # TensorFlow's readers know our messages under their own package.
    package, _, name = message.DESCRIPTOR.full_name.partition(".")
    return f"tensorflow.{name}" if package == "aexec" else f"{package}.{name}"


def _proto_codec(type_name: str) -> _Codec | None:
    package, _, name = type_name.partition(".")
    if package != "tensorflow" or name not in proto.__all__:
        return None
    cls = getattr(proto, name)
    if not hasattr(cls, "FromString"):
        return None
    return _Codec(type_name, lambda m: VariantTensorData(), lambda data: cls.FromString(data.metadata))
