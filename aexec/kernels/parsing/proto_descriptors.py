"""Descriptions of messages: where the attr `descriptor_source` says that they are, and the fields of a message.

Next to read: `proto_ops.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.waiting.long_work import expect, steadily
from aexec.io.files import read_file, text_path

__all__ = ["Descriptors", "check_type", "descriptors_of", "message_fields"]

_OWN, _BYTES = b"local://", b"bytes://"
# protobuf adds the description of a file in one call, which holds the interpreter's lock: mostly 40 ns a byte, but 100
# if messages have no fields.  So a graph, which may come from a client, brings at most this many bytes.
_MOST_BYTES, _BYTE_NS = 1 << 19, 100.0
# TensorFlow's messages have the same names here, in another package; a module of them is loaded when it is used.
_PACKAGES = ("tensorflow", "aexec")

_F = FieldDescriptor
_SIGNED, _UNSIGNED = (dtypes.int32, dtypes.int64), (dtypes.uint32, dtypes.uint64)
# The types of tensors that a field's values may be in.
_TYPES: dict[int, Sequence[DType]] = {
    _F.TYPE_DOUBLE: (dtypes.float64,),
    _F.TYPE_FLOAT: (dtypes.float32, dtypes.float64),
    _F.TYPE_BOOL: (dtypes.bool_,),
    _F.TYPE_ENUM: (dtypes.int32,),
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), _SIGNED),
    **dict.fromkeys((_F.TYPE_UINT32, _F.TYPE_FIXED32), _UNSIGNED),
    **dict.fromkeys((_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64), (dtypes.int64,)),
    **dict.fromkeys((_F.TYPE_UINT64, _F.TYPE_FIXED64), (dtypes.uint64,)),
    **dict.fromkeys((_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE, _F.TYPE_GROUP), (dtypes.string,)),
}


class Descriptors:
    """The descriptions of messages from one source; nodes with the same source share them."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def message(self, name: str) -> Descriptor:
        """The description of a message by its full name.  Raises InvalidArgumentError if there is none."""
        try:
            found: Descriptor = self._pool.FindMessageTypeByName(name)
        except KeyError:
            raise errors.InvalidArgumentError(f"No descriptor found for message type {name}") from None
        return found

    def extensions(self, message: Descriptor) -> dict[str, FieldDescriptor]:
        """The extensions of a message by their full names."""
        return {extension.full_name: extension for extension in self._pool.FindAllExtensions(message)}


class _OwnDescriptors(Descriptors):
    """Those of all messages that this process has loaded, and TensorFlow's by their names there."""

    def __init__(self) -> None:
        super().__init__(descriptor_pool.Default())

    def message(self, name: str) -> Descriptor:
        package, *path = name.split(".")
        first, inner = path[0] if path else "", path[1:]
        if package in _PACKAGES and first in proto.__all__:
            found = getattr(getattr(proto, first), "DESCRIPTOR", None)
            for part in inner:
                found = found.nested_types_by_name.get(part) if isinstance(found, Descriptor) else None
            if isinstance(found, Descriptor):
                return found
        return super().message(name)


_shared: WeakValueDictionary[bytes, Descriptors] = WeakValueDictionary()


def descriptors_of(source: bytes) -> Descriptors:
    """The descriptions that `descriptor_source` names.

    It is `local://` for messages that this process knows, `bytes://` before a serialised FileDescriptorSet, or the name
    of a file that holds one.

    Raises:
        InvalidArgumentError: there is no such set, or it is not consistent.
    """
    if source in (b"", _OWN):
        return _OwnDescriptors()
    if source.startswith(_BYTES):
        found = _shared.get(source)
        if found is None:
            content = source.removeprefix(_BYTES)
            if len(content) > _MOST_BYTES:
                raise errors.InvalidArgumentError(
                    f"descriptor_source has {len(content)} bytes of descriptions; at most {_MOST_BYTES} are read.  "
                    "Put them into a file"
                )
            found = _shared[source] = _parsed(source, content)
        return found
    if source.startswith(_OWN):
        raise _no_set(source)
    try:
        content = read_file(text_path(source))
    except errors.OpError as e:
        raise _no_set(source) from e
    return _parsed(source, content)


def _no_set(source: bytes) -> errors.OpError:
    return errors.InvalidArgumentError(
        "Source does not represent serialized file descriptor set proto. This may be due to a missing dependency on "
        f'the file containing REGISTER_DESCRIPTOR_POOL("{source[:100].decode(errors="replace")}", ...);'
    )


def _parsed(source: bytes, content: bytes) -> Descriptors:
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(content)
    except DecodeError as e:
        raise _no_set(source) from e
    pool = descriptor_pool.DescriptorPool()
    for file in steadily(files.file):
        described = file.SerializeToString()
        expect(_BYTE_NS * len(described))
        try:
            pool.AddSerializedFile(described)
        except Exception as e:  # protobuf's implementations raise different ones
            name = file.name[:100]
            raise errors.InvalidArgumentError(f"Failed to load FileDescriptorProto: {name}: {str(e)[:300]}") from e
    return Descriptors(pool)


def message_fields(
    descriptors: Descriptors, message: Descriptor, names: Sequence[bytes], name: str, *, extended: bool = False
) -> list[FieldDescriptor]:
    """The fields of these names, in their order.

    Args:
        descriptors: those of the message's source.
        message: the message's.
        names: of the fields.
        name: of the message, for errors.
        extended: take extensions, too, which are named in full.

    Raises:
        InvalidArgumentError: the message has no field of a name.
    """
    extensions: dict[str, FieldDescriptor] | None = None if extended else {}
    found = []
    for wanted in names:
        text = wanted.decode(errors="replace")
        field = message.fields_by_name.get(text)
        if field is None:
            extensions = descriptors.extensions(message) if extensions is None else extensions
            field = extensions.get(text)
        if field is None:
            raise errors.InvalidArgumentError(f"Unknown field: {text} in message type {name}")
        found.append(field)
    return found


def check_type(field: FieldDescriptor, dtype: DType, problem: str) -> None:
    """Raise InvalidArgumentError, with this text, unless a tensor of the type may hold the values of the field."""
    if dtype not in _TYPES[field.type]:
        raise errors.InvalidArgumentError(problem)
