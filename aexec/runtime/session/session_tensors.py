"""`session.tensors`: the tensors that a session keeps under handles, for Python programs.

A handle is the value of a GetSessionHandle node, as `str` or `bytes`, or a resource handle.  A resource handle can also
be fed in place of the tensor that it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory import log_memory
from aexec.framework.memory.tensor_buffer import buffer_of, measuring_ns, memory_bytes, num_bytes
from aexec.framework.state.resource_manager import ResourceHandle
from aexec.framework.state.session_state import TENSOR_HANDLE_TYPE_NAME, DeviceTensor, SessionState, tensor_handle
from aexec.framework.state.tensor_cell import private_copy
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS, OBJECT_NS
from aexec.framework.waiting.worker_threads import WorkerThreads
from aexec.framework.wire.messages import as_message
from aexec.runtime.feeding.feeds import FeedSpec, in_host_memory
from aexec.runtime.feeding.nested_lists import first_leaf, list_to_array, num_leaves
from aexec.runtime.interpreter.memory_accountant import StepMemory

__all__ = ["Handle", "SessionTensorInfo", "SessionTensors", "handle_text", "plain_tensor"]

Handle = str | bytes | ResourceHandle

# Arrays made for feeds are not counted up to this many bytes.
_SMALL_FEED = 1 << 12


@dataclass(frozen=True, slots=True)
class SessionTensorInfo:
    """One entry of the listing: a tensor's handle, type, shape, and number of bytes."""

    handle: str
    dtype: DType
    shape: tuple[int, ...]
    num_bytes: int


class SessionTensors:
    """The tensors that a session keeps under handles: list, get, put and delete them.

    Args:
        device: the device name that handles contain.
        pool: the threads in which large arrays are copied.

    Attributes:
        state: holds the tensors.
    """

    def __init__(self, state: SessionState, device: str, pool: WorkerThreads) -> None:
        self.state = state
        self._pool = pool
        self._device = device

    def list(self) -> tuple[SessionTensorInfo, ...]:
        """Return the tensors, oldest first."""
        return tuple(
            SessionTensorInfo(handle, tensor.dtype, tensor.shape or (), tensor.num_bytes)
            if type(tensor) is DeviceTensor
            else SessionTensorInfo(handle, dtypes.from_numpy(tensor.dtype), tensor.shape, num_bytes(tensor))
            for handle, tensor in self.state.tensors().items()
        )

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors together."""
        return self.state.num_bytes

    def get(self, handle: Handle) -> Any:
        """Return the tensor of a handle, read-only.

        Raises:
            InvalidArgumentError: the handle is unknown.
            FailedPreconditionError: the tensor is in the memory of a device.
        """
        tensor = self.state.get_tensor(handle_text(handle))
        if type(tensor) is DeviceTensor:
            raise errors.FailedPreconditionError(
                f"The tensor with handle '{handle_text(handle)}' is in the memory of {tensor.device.name}: get it by a "
                "GetSessionTensor node, or feed a resource handle to it"
            )
        return tensor

    async def put(self, value: Any, name: str = "tensor") -> ResourceHandle:
        """Keep a copy of an array, or of a value that NumPy converts to one.  A large one is copied in a thread.

        Args:
            name: the first part of its handle, which is `<name>;<id>;<device>`.

        Returns:
            The handle, which can be fed; its `.name` is the text that GetSessionTensor takes.

        Raises:
            InvalidArgumentError: the value has a type that no tensor has, or the name contains `;`.
            ResourceExhaustedError: the session would keep more than its config allows.
        """
        if ";" in name:
            raise errors.InvalidArgumentError(f"the name of a session tensor must not contain ';': {name!r}")
        tensor = await self._pool.run_here_or_in_thread(_private_tensor, value)
        handle = tensor_handle(name, self.state.get_new_id(), self._device)
        if log_memory.is_enabled():
            log_memory.record_borrowed(log_memory.SpecialStep.EXTERNAL_ALLOCATION, handle.name, tensor)
        self.state.add_tensor(handle.name, tensor)
        return handle

    def delete(self, handle: Handle) -> None:
        """Delete a tensor.  Raises InvalidArgumentError if the handle is unknown."""
        self.state.delete_tensor(handle_text(handle))

    def on_devices(self, specs: Sequence[FeedSpec], values: Sequence[Any]) -> Sequence[Any]:
        """Return the fed values, with device values in place of the handles of tensors in device memory."""
        return (
            [self._on_device(*fed) for fed in zip(specs, values, strict=True)]
            if self.state.has_device_tensors
            else values
        )

    def _on_device(self, spec: FeedSpec, value: Any) -> Any:
        handle = _handle_in(value)
        if handle is None or spec.fits(value):
            return value
        tensor = self.state.get_tensor(handle.name)
        return tensor.value if type(tensor) is DeviceTensor else value

    def feed(self, spec: FeedSpec, value: Any, memory: StepMemory | None = None) -> Any:
        """Return the value to feed: the tensor of the handle if `value` is one, else `value`, converted.

        Args:
            memory: the step's memory, which counts arrays made for the feed; None if nothing is counted.

        Raises:
            InvalidArgumentError: as `FeedSpec.convert` does; or a handle is unknown.
            ResourceExhaustedError: an array that must be made exceeds a limit.
        """
        if spec.fits(value):
            return value
        convert = spec.convert if memory is None else partial(_counted, memory, spec)
        if type(value) is np.ndarray and not (_is_client_handle(value) or (value.dtype.hasobject and value.size == 1)):
            return convert(value)
        handle = _handle_in(value)
        if handle is not None:
            value = self.get(handle)
        converted = convert(value)
        if log_memory.is_enabled() and converted is not value:
            log_memory.record_borrowed(log_memory.SpecialStep.EXTERNAL_ALLOCATION, f"feed {spec.name}", converted)
        return converted

    def __len__(self) -> int:
        return len(self.state.tensors())

    def __repr__(self) -> str:
        return f"<SessionTensors {len(self)} tensors, {self.num_bytes} bytes>"


def _counted(memory: StepMemory, spec: FeedSpec, value: Any) -> Any:
    """Convert a value for a feed; arrays made for it count for the step, unless they are small.

    Raises as `SessionTensors.feed`.
    """
    needed = spec.bytes_to_convert(value)
    with memory.making_feed(f"feed {spec.name}", needed if needed > _SMALL_FEED else 0) as made:
        converted = spec.convert(value)
        if _is_new(converted, value):
            # Strings that were bytes before are the caller's; the array refers to them.
            strings = converted.dtype == object and type(first_leaf(value)) is not bytes
            check_inline(measuring_ns(converted) if strings else 0)
            size = memory_bytes(converted) if strings else converted.nbytes
            if size > _SMALL_FEED:
                made(converted, size)
    return converted


def _is_new(converted: Any, value: Any) -> bool:
    """True if a converted value has memory of its own, which is not the original value's."""
    owner = buffer_of(converted) if isinstance(converted, np.ndarray) else None
    if not isinstance(owner, np.ndarray) or not owner.flags.owndata:
        return False
    if isinstance(value, np.ndarray):
        return owner is not buffer_of(value)
    # Another library's array may be a view of memory that the library owns.
    return owner is converted or isinstance(value, list | tuple)


def _private_tensor(value: Any) -> Any:
    """Return a tensor of an array, or of a value that NumPy converts to one, to which nothing else refers.

    Raises:
        InvalidArgumentError: a type that no tensor has.
        NeedsThreadError: called on the event loop, and copying would block it.
    """
    if isinstance(value, np.ndarray):
        check_inline(value.size * OBJECT_NS if value.dtype.kind in "OSU" else value.nbytes * COPY_NS)
    else:
        check_inline(num_leaves(value) * OBJECT_NS)
    return private_copy(plain_tensor(value))


def plain_tensor(value: Any) -> Any:
    """Convert a value to a tensor of the array type that NumPy chooses; may return the value itself.

    Raises:
        InvalidArgumentError: a type that no tensor has.
    """
    array = list_to_array(in_host_memory(value, "a session's tensor"))
    dtype = dtypes.from_numpy(array.dtype)
    if array.dtype.kind in "SU":
        array = np.char.encode(array, "utf-8").astype(object) if array.dtype.kind == "U" else array.astype(object)
    return array.astype(dtype.np, copy=False)


def _handle_in(value: Any) -> ResourceHandle | None:
    """Return the handle if a fed value is a session tensor's handle, else None.

    TensorFlow marks its handles in their `container`; its Python class makes an array of the bytes of the message.
    """
    if type(value) is np.ndarray:
        if _is_client_handle(value):
            value = ResourceHandle.from_proto(as_message(value.tobytes(), proto.ResourceHandleProto))
        elif value.dtype.hasobject and value.size == 1:
            value = value.item()
    is_handle = type(value) is ResourceHandle and TENSOR_HANDLE_TYPE_NAME in (value.type_name, value.container)
    return value if is_handle else None


def _is_client_handle(value: Any) -> bool:
    """True for an array of a handle's bytes, as TensorFlow's `TensorHandle.to_numpy_array` makes it."""
    return bool(value.dtype.names == ("resource",))


def handle_text(handle: Handle) -> str:
    """Return the handle as text, as GetSessionTensor takes it."""
    if isinstance(handle, ResourceHandle):
        return handle.name
    return handle if isinstance(handle, str) else str(handle, "utf-8", "replace")
