# mypy: disable-error-code=type-arg
from aexec.proto.framework import function_pb2 as _function_pb2
from aexec.proto.framework import versions_pb2 as _versions_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FlatNodeDef(_message.Message):
    __slots__ = ("name", "op", "input", "device", "attr", "experimental_debug_info", "experimental_type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    ATTR_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENTAL_DEBUG_INFO_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENTAL_TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    op: str
    input: _containers.RepeatedScalarFieldContainer[str]
    device: str
    attr: _containers.RepeatedScalarFieldContainer[bytes]
    experimental_debug_info: _containers.RepeatedScalarFieldContainer[bytes]
    experimental_type: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, name: _Optional[str] = ..., op: _Optional[str] = ..., input: _Optional[_Iterable[str]] = ..., device: _Optional[str] = ..., attr: _Optional[_Iterable[bytes]] = ..., experimental_debug_info: _Optional[_Iterable[bytes]] = ..., experimental_type: _Optional[_Iterable[bytes]] = ...) -> None: ...

class FlatGraphDef(_message.Message):
    __slots__ = ("node", "library", "versions")
    NODE_FIELD_NUMBER: _ClassVar[int]
    LIBRARY_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    node: _containers.RepeatedCompositeFieldContainer[FlatNodeDef]
    library: _function_pb2.FunctionDefLibrary
    versions: _versions_pb2.VersionDef
    def __init__(self, node: _Optional[_Iterable[_Union[FlatNodeDef, _Mapping]]] = ..., library: _Optional[_Union[_function_pb2.FunctionDefLibrary, _Mapping]] = ..., versions: _Optional[_Union[_versions_pb2.VersionDef, _Mapping]] = ...) -> None: ...
