"""TensorFlow's message classes, made without its package.

They are made from our descriptors, with TensorFlow's package name.
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2
from google.protobuf.descriptor import FileDescriptor

from aexec import proto

__all__ = ["foreign"]


def foreign(message: Any) -> Any:
    """Return a message of ours as one of TensorFlow's class."""
    kind = _pool().FindMessageTypeByName(f"tensorflow.{message.DESCRIPTOR.full_name.removeprefix('aexec.')}")
    made = message_factory.GetMessageClass(kind).FromString(message.SerializeToString())
    assert not isinstance(made, type(message))
    return made


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    done: set[str] = set()
    for known in (any_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
        done.add(known.DESCRIPTOR.name)
    for name in ("GraphDef", "MetaGraphDef", "SavedModel", "ConfigProto", "RunOptions", "TensorProto"):
        _add(pool, getattr(proto, name).DESCRIPTOR.file, done)
    return pool


def _add(pool: descriptor_pool.DescriptorPool, file: FileDescriptor, done: set[str]) -> None:
    if file.name in done:
        return
    done.add(file.name)
    for needed in file.dependencies:
        _add(pool, needed, done)
    text = descriptor_pb2.FileDescriptorProto.FromString(file.serialized_pb)
    renamed = text.SerializeToString()
    if text.package == "aexec":
        text.package = "tensorflow"
        for message in text.message_type:
            _rename(message)
        renamed = text.SerializeToString()
    pool.AddSerializedFile(renamed)


def _rename(message: descriptor_pb2.DescriptorProto) -> None:
    for field in message.field:
        if field.type_name.startswith(".aexec."):
            field.type_name = ".tensorflow." + field.type_name.removeprefix(".aexec.")
    for nested in message.nested_type:
        _rename(nested)
