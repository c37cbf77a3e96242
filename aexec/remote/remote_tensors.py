"""`RemoteTensors`: the tensors that a session in a server keeps under handles, like `session.tensors` of this
process.
"""

from __future__ import annotations

from typing import Any

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.datatypes import DATATYPES
from aexec.framework.dtypes import as_dtype
from aexec.framework.state.resource_manager import ResourceHandle
from aexec.framework.state.session_state import TENSOR_HANDLE_TYPE_NAME
from aexec.framework.wire.tensor_codec import from_proto, to_parts
from aexec.remote.service import Service
from aexec.runtime.session.session_tensors import Handle, SessionTensorInfo, handle_text, plain_tensor

__all__ = ["RemoteTensors"]


class RemoteTensors:
    """The tensors that a session in a server keeps under handles; its methods are coroutine functions.

    Args:
        service: the server.
        session: the session's handle there.
    """

    def __init__(self, service: Service, session: str) -> None:
        self._service = service
        self._session = session

    async def list(self) -> tuple[SessionTensorInfo, ...]:
        """The tensors, oldest first."""
        return tuple(
            SessionTensorInfo(
                fields["handle"],
                DATATYPES.get(fields["datatype"]) or as_dtype(fields["datatype"]),
                tuple(fields["shape"]),
                fields["bytes"],
            )
            for fields in await self._service.tensors(self._session)
        )

    async def get(self, handle: Handle) -> Any:
        """A tensor.  Raises InvalidArgumentError for an unknown handle."""
        try:
            data = await self._service.kept(self._session, handle_text(handle))
        except errors.NotFoundError as error:
            raise errors.InvalidArgumentError(error.message) from None
        return from_proto(proto.TensorProto.FromString(data))

    async def put(self, value: Any, name: str = "tensor") -> ResourceHandle:
        """Keep an array, or a value that NumPy makes an array of.  Arguments and errors as of `SessionTensors.put`."""
        array = plain_tensor(value)
        tensor = to_parts(array, dtypes.from_numpy(array.dtype))
        handle = await self._service.keep(self._session, tensor, name)
        return ResourceHandle(handle.rpartition(";")[2], handle, handle, TENSOR_HANDLE_TYPE_NAME)

    async def delete(self, handle: Handle) -> None:
        """Delete a tensor.  Raises InvalidArgumentError for an unknown handle."""
        try:
            await self._service.forget(self._session, handle_text(handle))
        except errors.NotFoundError as error:
            raise errors.InvalidArgumentError(error.message) from None

    def __repr__(self) -> str:
        return f"<RemoteTensors of {self._session}>"
