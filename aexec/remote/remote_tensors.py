"""`RemoteTensors`: the tensors that a session in a server keeps under handles, like `session.tensors` of this
process.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.datatypes import DATATYPES
from aexec.framework.dtypes import as_dtype
from aexec.framework.state.resource_manager import ResourceHandle
from aexec.framework.state.session_state import TENSOR_HANDLE_TYPE_NAME
from aexec.framework.wire.tensor_codec import from_proto, to_proto
from aexec.remote.service import PROTOBUF, Service
from aexec.runtime.session.session_tensors import Handle, SessionTensorInfo, handle_text, plain_tensor

__all__ = ["RemoteTensors"]


class RemoteTensors:
    """The tensors that a session in a server keeps under handles; its methods are coroutine functions.

    Args:
        service: the server.
        path: of the session's tensors there.
    """

    def __init__(self, service: Service, path: str) -> None:
        self._service = service
        self._path = path

    async def list(self) -> tuple[SessionTensorInfo, ...]:
        """The tensors, oldest first."""
        answer = await self._service.look_at(self._path)
        return tuple(
            SessionTensorInfo(
                fields["handle"],
                DATATYPES.get(fields["datatype"]) or as_dtype(fields["datatype"]),
                tuple(fields["shape"]),
                fields["bytes"],
            )
            for fields in answer["tensors"]
        )

    async def get(self, handle: Handle) -> Any:
        """A tensor.  Raises InvalidArgumentError for an unknown handle."""
        try:
            data = await self._service.look(self._of(handle), PROTOBUF)
        except errors.NotFoundError as error:
            raise errors.InvalidArgumentError(error.message) from None
        return from_proto(proto.TensorProto.FromString(data))

    async def put(self, value: Any, name: str = "tensor") -> ResourceHandle:
        """Keep an array, or a value that NumPy makes an array of.  Arguments and errors as of `SessionTensors.put`."""
        array = plain_tensor(value)
        body = to_proto(array, dtypes.from_numpy(array.dtype), compact=False).SerializeToString()
        answer = await self._service.post_message(f"{self._path}?name={quote(name, safe='')}", body)
        handle = self._service.read_object(answer)["handle"]
        return ResourceHandle(handle.rpartition(";")[2], handle, handle, TENSOR_HANDLE_TYPE_NAME)

    async def delete(self, handle: Handle) -> None:
        """Delete a tensor.  Raises InvalidArgumentError for an unknown handle."""
        try:
            await self._service.delete(self._of(handle), missing=False)
        except errors.NotFoundError as error:
            raise errors.InvalidArgumentError(error.message) from None

    def _of(self, handle: Handle) -> str:
        return f"{self._path}/{quote(handle_text(handle), safe=';/:')}"

    def __repr__(self) -> str:
        return f"<RemoteTensors {self._path}>"
