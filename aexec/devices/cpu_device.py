"""`CpuDevice`: computes in the host's memory, with NumPy, where it is called.

Nothing is queued and nothing copied: the executor calls its kernels itself, on the event loop or in a thread.  The
other methods of a device take effect at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.device_contract.device import Device, DeviceEvent, OnError, QueuedWork
from aexec.framework.device_contract.queued_kernel import QueuedKernel
from aexec.framework.memory.allocator import Allocator, cpu_allocator

__all__ = ["CpuDevice"]


class CpuDevice(Device):
    """A host device.

    Args:
        name: full name.
        device_type: another type than CPU, if it has kernels of its own for the host's memory.
    """

    xp = np
    is_host = True

    def __init__(self, name: str, device_type: str = "CPU") -> None:
        self.name = name
        self.type = device_type

    @property
    def allocator(self) -> Allocator:  # type: ignore[override]  # the process's, which others may replace
        return cpu_allocator()

    def limit_memory(self, num_bytes: int) -> None:
        raise errors.UnimplementedError(
            f"{self.name} shares the process's memory: step_bytes and session_bytes limit it, memory_limits does not"
        )

    def copy_in(self, array: Any, *, node: str) -> Any:
        return array

    def copy_out(self, value: Any, *, node: str) -> Future[Any]:
        copied: Future[Any] = Future()
        copied.set_result(value)
        return copied

    def copy_across(self, value: Any, destination: Device, *, node: str) -> Any:
        return destination.copy_in(value, node=node)

    def begin_work(self, on_error: OnError) -> QueuedWork:
        return _DoneAtOnce()

    def record_event(self) -> DeviceEvent:
        return _PASSED


class _DoneAtOnce(QueuedWork):
    def enqueue(self, kernel: QueuedKernel, arguments: Sequence[Any]) -> tuple[Any, ...]:
        outputs = kernel.compute(*arguments)
        if not kernel.output_types:
            return ()
        return outputs if isinstance(outputs, tuple) else (outputs,)

    def stop(self) -> None:
        pass

    def record_event(self) -> DeviceEvent:
        return _PASSED


class _Passed(DeviceEvent):
    @property
    def done(self) -> bool:
        return True

    def when_done(self, callback: Callable[[], object]) -> None:
        callback()


_PASSED = _Passed()
