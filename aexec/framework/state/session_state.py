"""Tensors that a session keeps between steps: `SessionState` holds them, `TensorStore` those of one step.

A GetSessionHandle node puts its input into the step's store and returns a handle, `<node>;<id>;<device>`.  When the
step has succeeded, `save_tensors` moves the tensors whose handle was fetched into the session's state; the others are
dropped with the step.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.memory_account import MemoryAccount
from aexec.framework.memory.tensor_buffer import TensorSizes, sizes_of
from aexec.framework.memory.unshared import is_unshared
from aexec.framework.state.resource_manager import ResourceHandle
from aexec.framework.state.tensor_cell import private_copy

__all__ = ["TENSOR_HANDLE_TYPE_NAME", "DeviceTensor", "SessionState", "TensorStore", "measured", "tensor_handle"]

# The type name in resource handles of session tensors.
TENSOR_HANDLE_TYPE_NAME = "TensorHandle"


def tensor_handle(name: str, tensor_id: int, device: str) -> ResourceHandle:
    """The handle of a session tensor; its name and its container are both `<name>;<id>;<device>`."""
    handle = f"{name};{tensor_id};{device}"
    return ResourceHandle(device, handle, handle, TENSOR_HANDLE_TYPE_NAME)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTensor:
    """A tensor that is kept in the memory of a device.

    Attributes:
        value: the device value.
        shape: None until the device was asked.
    """

    value: Any
    device: Device
    dtype: DType
    shape: tuple[int, ...] | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of all elements; 0 until the shape is known."""
        return math.prod(self.shape or (0,)) * self.dtype.np.itemsize


def measured(tensors: Mapping[str, Any]) -> dict[str, TensorSizes]:
    """The sizes of tensors, by handle; slow for many strings (`tensor_buffer.measuring_ns`)."""
    return {
        handle: TensorSizes(tensor.num_bytes, tensor.num_bytes) if type(tensor) is DeviceTensor else sizes_of(tensor)
        for handle, tensor in tensors.items()
    }


class SessionState:
    """The tensors that a session keeps, by handle.  All methods may be called from any thread.

    Args:
        limit: the most bytes of all of them; None for no limit.
        account: the session's account; None if its memory is not limited.

    Attributes:
        changes: number of times that tensors were added or deleted, or a number was given out.
    """

    def __init__(self, limit: int | None = None, account: MemoryAccount | None = None) -> None:
        self.limit = limit
        self._account = account
        self._lock = threading.Lock()
        self._tensors: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._next_id = 0
        self._bytes = self._on_devices = 0
        self.changes = 0

    @property
    def has_device_tensors(self) -> bool:
        """True if any of them is in the memory of a device."""
        return self._on_devices > 0

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensors, with their strings; of other objects only the references count."""
        return self._bytes

    def get_new_id(self) -> int:
        """A number that no other tensor of the session has: 0, 1, 2, …"""
        with self._lock:
            number, self._next_id = self._next_id, self._next_id + 1
            self.changes += 1
            return number

    @property
    def next_id(self) -> int:
        """The number that `get_new_id` returns next."""
        return self._next_id

    def begin_ids_at(self, number: int) -> None:
        """Continue the numbers of another process's session; no number has been given out yet."""
        self._next_id = number

    def get_tensor(self, handle: str) -> Any:
        """A tensor, read-only, or its `DeviceTensor`.  Raises InvalidArgumentError for an unknown handle."""
        tensor = self._tensors.get(handle)
        if tensor is None:
            raise errors.InvalidArgumentError(f"The tensor with handle '{handle}' is not in the session store.")
        return tensor

    def add_tensor(self, handle: str, tensor: Any) -> None:
        """Keep a tensor, which nothing else may be able to write to.

        Raises:
            InvalidArgumentError: the handle is in use.
            ResourceExhaustedError: the tensors would take more than the limit.
        """
        self.add_tensors({handle: tensor})

    def add_tensors(self, tensors: dict[str, Any], sizes: dict[str, TensorSizes] | None = None) -> None:
        """Keep several tensors, or none.  Raises as `add_tensor` does.

        Args:
            sizes: the result of `measured`; computed if not given.
        """
        on_host = {handle: tensor for handle, tensor in tensors.items() if type(tensor) is not DeviceTensor}
        sizes = measured(tensors) if sizes is None else sizes
        added = sum([size.num_bytes for size in sizes.values()])
        with self._lock:
            for handle in tensors:
                if handle in self._tensors:
                    raise errors.InvalidArgumentError(
                        f"Failed to add a tensor with handle '{handle}' to the session store."
                    )
            if self.limit is not None and self._bytes + added > self.limit:
                raise errors.ResourceExhaustedError(
                    f"The session's tensors take {self._bytes} bytes, {added} more would exceed the {self.limit} "
                    "that its config allows: delete those that are no longer needed"
                )
            if self._account is not None:
                # Values on devices are counted from their making on.
                self._account.hold(on_host, {handle: sizes[handle].in_memory for handle in on_host})
            for tensor in on_host.values():
                tensor.flags.writeable = False
            self._tensors.update(tensors)
            self._sizes.update({handle: size.num_bytes for handle, size in sizes.items()})
            self._bytes += added
            self._on_devices += len(tensors) - len(on_host)
            self.changes += 1

    def delete_tensor(self, handle: str) -> None:
        """Delete a tensor.  Raises InvalidArgumentError for an unknown handle."""
        with self._lock:
            tensor = self._tensors.pop(handle, None)
            if tensor is None:
                raise errors.InvalidArgumentError(
                    f"Failed to delete a tensor with handle '{handle}' in the session store."
                )
            self._bytes -= self._sizes.pop(handle)
            self.changes += 1
            self._on_devices -= type(tensor) is DeviceTensor

    def tensors(self) -> dict[str, Any]:
        """All tensors by handle, oldest first."""
        with self._lock:
            return dict(self._tensors)

    def clear(self) -> None:
        """Delete all."""
        with self._lock:
            self._tensors.clear()
            self._sizes.clear()
            self._bytes = self._on_devices = 0
            self.changes += 1

    def __repr__(self) -> str:
        return f"<SessionState {len(self._tensors)} tensors, {self._bytes} bytes>"


@dataclass(frozen=True, slots=True)
class _TensorAndKey:
    """A tensor of a step, or its `DeviceTensor`, and its handle.  The tensor is in a list, so that it can be taken
    out.
    """

    tensor: list[Any]
    handle: str

    @property
    def is_on_host(self) -> bool:
        return type(self.tensor[0]) is not DeviceTensor


class TensorStore:
    """The tensors of one step for which a handle was requested, by the name of the node that returned it."""

    def __init__(self) -> None:
        self._tensors: dict[str, _TensorAndKey] = {}

    def add_tensor(self, name: str, tensor: Any, handle: str) -> None:
        """Add a node's tensor, or `DeviceTensor`.  Raises InvalidArgumentError if the node has one already."""
        if name in self._tensors:
            raise errors.InvalidArgumentError(f"Failed to add a tensor with name '{name}' to the tensor store.")
        self._tensors[name] = _TensorAndKey([tensor], handle)

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensors in host memory."""
        return sum(entry.tensor[0].nbytes for entry in self._tensors.values() if entry.is_on_host)

    def owned_tensors(self, output_names: Iterable[str]) -> dict[str, Any]:
        """Take the tensors of nodes with a fetched output out of the store; return them by handle.

        A tensor to which something else refers is copied, since it might be written to; values on devices are never
        written to.

        Args:
            output_names: names of tensors; `h` means `h:0`.
        """
        owned = {}
        for output in output_names:
            entry = self._tensors.pop(output.partition(":")[0], None)
            if entry is not None:
                may_stay = not entry.is_on_host or is_unshared(entry.tensor, 0)
                kept = entry.tensor if may_stay else [private_copy(entry.tensor[0])]
                owned[entry.handle] = kept[0]
        return owned

    def save_tensors(self, output_names: Iterable[str], state: SessionState) -> None:
        """Move the fetched tensors into the session's state; all or none.

        Raises:
            ResourceExhaustedError: the session would keep more than its limit.
        """
        state.add_tensors(self.owned_tensors(output_names))
