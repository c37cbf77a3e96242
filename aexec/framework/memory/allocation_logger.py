"""`AllocationLogger`: writes the allocations of the running call to the memory log.

Next to read: `log_memory.py`, and `allocator.py` for watchers of calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from aexec.framework.dtypes import DType
from aexec.framework.memory import log_memory
from aexec.framework.memory.allocator import Allocator, AllocatorWrapper, watch_the_rest

__all__ = ["AllocationLogger"]


class AllocationLogger:
    """A watcher that logs allocations.

    Args:
        step_id: the id of the call's step, or a `log_memory.SpecialStep`.
        kernel_name: the name of the call's node.
    """

    def __init__(self, step_id: int, kernel_name: str) -> None:
        self._step_id = step_id
        self._kernel_name = kernel_name

    def wrap(self, allocator: Allocator) -> Allocator:
        if not log_memory.is_enabled():
            return allocator
        return _Logged(allocator, self._step_id, self._kernel_name)

    def announce(self, num_bytes: int) -> None:
        """Do nothing: memory is logged when it is there, if at all."""

    def announce_scratch(self, num_bytes: int) -> None:
        """Do nothing: memory that comes from no allocator is not logged."""

    def kept(self, array: Any) -> None:
        """It was logged when it was made."""

    def is_scratch(self, array: Any) -> None:
        """It was logged when it was made."""

    def of_part(self) -> AbstractContextManager[AllocationLogger]:
        return nullcontext(self)


class _Logged(AllocatorWrapper):
    """An allocator whose tensors are logged as tensors, and other memory as raw."""

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
