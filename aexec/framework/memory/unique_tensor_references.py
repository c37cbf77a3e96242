"""`UniqueTensorReferences`: arrays kept alive until a device is done with them, each buffer once."""

from __future__ import annotations

from typing import Any

from aexec.framework import errors
from aexec.framework.memory.tensor_buffer import buffer_of

__all__ = ["UniqueTensorReferences"]

# Kernels have few inputs, and comparing with a few is faster than hashing.
_IN_LIST = 4


class UniqueTensorReferences:
    """A set of arrays of which no two share a buffer.

    A stream's work outlives the call that queued it; what it reads and writes is added here, and
    the whole is dropped when the event behind that work has fired.
    """

    __slots__ = ("_arrays", "_buffers", "_frozen")

    def __init__(self) -> None:
        self._arrays: list[Any] = []
        # Identities of the buffers of _arrays, once there are more than _IN_LIST; _arrays keeps them valid.
        self._buffers: set[int] | None = None
        self._frozen = False

    def add(self, array: Any) -> None:
        """Keep an array, unless it is empty or its buffer is kept already.

        Raises:
            InternalError: the references are frozen.
        """
        if self._frozen:
            raise errors.InternalError("UniqueTensorReferences is frozen: no tensor can be added")
        if array.size == 0:
            return
        if self._buffers is None:
            buffer = buffer_of(array)
            if any(buffer_of(kept) is buffer for kept in self._arrays):
                return
            self._arrays.append(array)
            if len(self._arrays) > _IN_LIST:
                self._buffers = {id(buffer_of(kept)) for kept in self._arrays}
        elif id(buffer_of(array)) not in self._buffers:
            self._buffers.add(id(buffer_of(array)))
            self._arrays.append(array)

    def freeze(self) -> list[Any]:
        """The arrays, in the order in which they were added.  None can be added from now on."""
        self._frozen = True
        return self._arrays

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"<UniqueTensorReferences {len(self._arrays)} tensors{', frozen' if self._frozen else ''}>"
