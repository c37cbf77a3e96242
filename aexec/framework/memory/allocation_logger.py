"""`AllocationLogger`: writes to the memory log what the running call takes of allocators.

Next to read: `log_memory.py`, and `allocator.py` on who watches a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec.framework.dtypes import DType
from aexec.framework.memory import log_memory
from aexec.framework.memory.allocator import Allocator, AllocatorWrapper, watch_the_rest

__all__ = ["AllocationLogger"]


class AllocationLogger:
    """A watcher of allocations.

    Args:
        step_id: of the step that the call belongs to, or a `log_memory.SpecialStep`.
        kernel_name: the node.
    """

    def __init__(self, step_id: int, kernel_name: str) -> None:
        self._step_id = step_id
        self._kernel_name = kernel_name

    def wrap(self, allocator: Allocator) -> Allocator:
        if not log_memory.is_enabled():
            return allocator
        return _Logged(allocator, self._step_id, self._kernel_name)

    def announce(self, num_bytes: int) -> None:
        """It is logged once it is there, if at all."""

    def announce_scratch(self, num_bytes: int) -> None:
        """It is no allocator's, and not logged."""

    def kept(self, array: Any) -> None:
        """It was logged when it was made."""

    def is_scratch(self, array: Any) -> None:
        """It was logged when it was made."""


class _Logged(AllocatorWrapper):
    """Tensors are logged as such, other memory as raw."""

    def __init__(self, allocator: Allocator, step_id: int, kernel_name: str) -> None:
        super().__init__(allocator)
        self._step_id = step_id
        self._kernel_name = kernel_name

    def allocate(self, num_bytes: int, alignment: int = 64) -> Any:
        memory = super().allocate(num_bytes, alignment)
        log_memory.record_borrowed(self._step_id, self._kernel_name, memory, self.name)
        return memory

    def allocate_tensor(self, shape: Sequence[int], dtype: DType, device: str = "", *, zeros: bool = False) -> Any:
        tensor = super().allocate_tensor(shape, dtype, device, zeros=zeros)
        log_memory.record_tensor_allocation(self._step_id, self._kernel_name, tensor, self.name, single=True)
        return tensor


watch_the_rest(AllocationLogger(log_memory.SpecialStep.UNKNOWN, "Unknown"))
