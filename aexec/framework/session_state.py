"""Tensors that a session keeps between steps: `SessionState` holds them, `TensorStore` those of one step.

A GetSessionHandle node puts its input into the step's store and gives out a handle,
`<node>;<id>;<device>`.  When the step has succeeded, `save_tensors` moves those whose
handle was fetched into the session's state; the others are forgotten with the step.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from typing import Any

from aexec.framework import errors
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory_account import MemoryAccount
from aexec.framework.resource_manager import ResourceHandle
from aexec.framework.tensor_cell import private_copy
from aexec.framework.unshared import is_unshared

__all__ = ["TENSOR_HANDLE_TYPE_NAME", "SessionState", "TensorStore", "tensor_bytes", "tensor_handle"]

# The type that a resource handle to a session tensor says it is of.
TENSOR_HANDLE_TYPE_NAME = "TensorHandle"


def tensor_handle(name: str, tensor_id: int, device: str) -> ResourceHandle:
    """The handle of a session tensor.  It goes by its name, and its container says the same."""
    handle = f"{name};{tensor_id};{device}"
    return ResourceHandle(device, handle, handle, TENSOR_HANDLE_TYPE_NAME)


def tensor_bytes(tensor: Any) -> int:
    """Bytes that a tensor takes, with those of its strings."""
    size = int(tensor.nbytes)
    return size + sum(len(item) for item in tensor.flat if type(item) is bytes) if tensor.dtype.hasobject else size


class SessionState:
    """The tensors that a session keeps, by handle.  All methods may be called from any thread.

    Args:
        limit: how many bytes they may take; None for no limit.
        account: of all the memory of the session, if that has a limit.
    """

    def __init__(self, limit: int | None = None, account: MemoryAccount | None = None) -> None:
        self.limit = limit
        self._account = account
        self._lock = threading.Lock()
        self._tensors: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._ids = itertools.count()
        self._bytes = 0

    @property
    def num_bytes(self) -> int:
        """Bytes that the tensors take, strings included; of other objects only the references count."""
        return self._bytes

    def get_new_id(self) -> int:
        """A number that no other tensor of the session has: 0, 1, 2, …"""
        return next(self._ids)

    def get_tensor(self, handle: str) -> Any:
        """A tensor, read-only.  Raises InvalidArgumentError for an unknown handle."""
        tensor = self._tensors.get(handle)
        if tensor is None:
            raise errors.InvalidArgumentError(f"The tensor with handle '{handle}' is not in the session store.")
        return tensor

    def add_tensor(self, handle: str, tensor: Any) -> None:
        """Keep a tensor, which nobody else may be able to write to.

        Raises:
            InvalidArgumentError: there is one of this handle.
            ResourceExhaustedError: they would take more than the limit.
        """
        self.add_tensors({handle: tensor})

    def add_tensors(self, tensors: dict[str, Any]) -> None:
        """Keep several, or none.  Raises as `add_tensor` does."""
        sizes = {handle: tensor_bytes(tensor) for handle, tensor in tensors.items()}
        added = sum(sizes.values())
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
                self._account.hold(tensors)
            for tensor in tensors.values():
                tensor.flags.writeable = False
            self._tensors.update(tensors)
            self._sizes.update(sizes)
            self._bytes += added

    def delete_tensor(self, handle: str) -> None:
        """Forget a tensor.  Raises InvalidArgumentError for an unknown handle."""
        with self._lock:
            tensor = self._tensors.pop(handle, None)
            if tensor is None:
                raise errors.InvalidArgumentError(
                    f"Failed to delete a tensor with handle '{handle}' in the session store."
                )
            self._bytes -= self._sizes.pop(handle)

    def tensors(self) -> dict[str, Any]:
        """All tensors by handle, oldest first."""
        with self._lock:
            return dict(self._tensors)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._tensors.clear()
            self._sizes.clear()
            self._bytes = 0

    def __repr__(self) -> str:
        return f"<SessionState {len(self._tensors)} tensors, {self._bytes} bytes>"


@dataclass(frozen=True, slots=True)
class _TensorAndKey:
    """A tensor of a step, in a list of its own, and its handle."""

    tensor: list[Any]
    handle: str


class TensorStore:
    """The tensors of one step for which a handle was asked, by the name of the node that gave it."""

    def __init__(self) -> None:
        self._tensors: dict[str, _TensorAndKey] = {}

    def add_tensor(self, name: str, tensor: Any, handle: str) -> None:
        """Remember a node's tensor.  Raises InvalidArgumentError if the node has one already."""
        if name in self._tensors:
            raise errors.InvalidArgumentError(f"Failed to add a tensor with name '{name}' to the tensor store.")
        self._tensors[name] = _TensorAndKey([tensor], handle)

    @property
    def num_bytes(self) -> int:
        """Bytes that the tensors take."""
        return sum(entry.tensor[0].nbytes for entry in self._tensors.values())

    def owned_tensors(self, output_names: Iterable[str]) -> dict[str, Any]:
        """The tensors of nodes with an output that was fetched, by handle; the store has them no longer.

        A tensor that somebody else refers to, and might write to, is copied.

        Args:
            output_names: names of tensors; `h` means `h:0`.
        """
        owned = {}
        for output in output_names:
            entry = self._tensors.pop(output.partition(":")[0], None)
            if entry is not None:
                kept = entry.tensor if is_unshared(entry.tensor, 0) else [private_copy(entry.tensor[0])]
                owned[entry.handle] = kept[0]
        return owned

    def save_tensors(self, output_names: Iterable[str], state: SessionState) -> None:
        """Move the tensors that were fetched into the session's state; all or none.

        Raises:
            ResourceExhaustedError: they would take more than the state's limit.
        """
        state.add_tensors(self.owned_tensors(output_names))
