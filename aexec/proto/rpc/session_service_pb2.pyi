# mypy: disable-error-code=type-arg
from aexec.proto.framework import graph_pb2 as _graph_pb2
from aexec.proto.framework import tensor_pb2 as _tensor_pb2
from aexec.proto.protobuf import config_pb2 as _config_pb2
from aexec.proto.protobuf import named_tensor_pb2 as _named_tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NewSessionRequest(_message.Message):
    __slots__ = ("name", "ttl_seconds", "graph_def", "config")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GRAPH_DEF_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    name: str
    ttl_seconds: float
    graph_def: _graph_pb2.GraphDef
    config: _config_pb2.ConfigProto
    def __init__(self, name: _Optional[str] = ..., ttl_seconds: _Optional[float] = ..., graph_def: _Optional[_Union[_graph_pb2.GraphDef, _Mapping]] = ..., config: _Optional[_Union[_config_pb2.ConfigProto, _Mapping]] = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("session_handle",)
    SESSION_HANDLE_FIELD_NUMBER: _ClassVar[int]
    session_handle: str
    def __init__(self, session_handle: _Optional[str] = ...) -> None: ...

class JsonAnswer(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class ResetSessionRequest(_message.Message):
    __slots__ = ("session_handle", "container")
    SESSION_HANDLE_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    session_handle: str
    container: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session_handle: _Optional[str] = ..., container: _Optional[_Iterable[str]] = ...) -> None: ...

class CancelRunRequest(_message.Message):
    __slots__ = ("session_handle", "run_id", "reason")
    SESSION_HANDLE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    session_handle: str
    run_id: str
    reason: str
    def __init__(self, session_handle: _Optional[str] = ..., run_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CancelRunResponse(_message.Message):
    __slots__ = ("cancelled",)
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    cancelled: bool
    def __init__(self, cancelled: bool = ...) -> None: ...

class EnqueueRequest(_message.Message):
    __slots__ = ("session_handle", "queue", "component", "many", "timeout_in_ms")
    SESSION_HANDLE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    MANY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_IN_MS_FIELD_NUMBER: _ClassVar[int]
    session_handle: str
    queue: str
    component: _containers.RepeatedCompositeFieldContainer[_named_tensor_pb2.NamedTensorProto]
    many: bool
    timeout_in_ms: int
    def __init__(self, session_handle: _Optional[str] = ..., queue: _Optional[str] = ..., component: _Optional[_Iterable[_Union[_named_tensor_pb2.NamedTensorProto, _Mapping]]] = ..., many: bool = ..., timeout_in_ms: _Optional[int] = ...) -> None: ...

class DequeueRequest(_message.Message):
    __slots__ = ("session_handle", "queue", "count", "up_to", "timeout_in_ms")
    SESSION_HANDLE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    UP_TO_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_IN_MS_FIELD_NUMBER: _ClassVar[int]
    session_handle: str
    queue: str
    count: int
    up_to: bool
    timeout_in_ms: int
    def __init__(self, session_handle: _Optional[str] = ..., queue: _Optional[str] = ..., count: _Optional[int] = ..., up_to: bool = ..., timeout_in_ms: _Optional[int] = ...) -> None: ...

class CloseQueueRequest(_message.Message):
    __slots__ = ("session_handle", "queue", "cancel_pending")
    SESSION_HANDLE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_PENDING_FIELD_NUMBER: _ClassVar[int]
    session_handle: str
    queue: str
    cancel_pending: bool
    def __init__(self, session_handle: _Optional[str] = ..., queue: _Optional[str] = ..., cancel_pending: bool = ...) -> None: ...

class QueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class KeepTensorRequest(_message.Message):
    __slots__ = ("session_handle", "name", "tensor")
    SESSION_HANDLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    session_handle: str
    name: str
    tensor: _tensor_pb2.TensorProto
    def __init__(self, session_handle: _Optional[str] = ..., name: _Optional[str] = ..., tensor: _Optional[_Union[_tensor_pb2.TensorProto, _Mapping]] = ...) -> None: ...

class KeepTensorResponse(_message.Message):
    __slots__ = ("handle",)
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    handle: str
    def __init__(self, handle: _Optional[str] = ...) -> None: ...

class KeptTensorRequest(_message.Message):
    __slots__ = ("session_handle", "handle")
    SESSION_HANDLE_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    session_handle: str
    handle: str
    def __init__(self, session_handle: _Optional[str] = ..., handle: _Optional[str] = ...) -> None: ...

class ForgetTensorResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
