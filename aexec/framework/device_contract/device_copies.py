"""Reports copies between memories to a traced step: what is copied, where to, and when a stream does it.

When a device queues a copy, in the task that needs it, it calls `begun_copy`, and reports the times of the copy on its
stream to the result.  Without a watcher this costs one look at a context variable.  Names of kinds are those of
TensorFlow's traces.
Next to read: `aexec/runtime/profiling/tracing.py`, which watches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.allocator import Allocator

__all__ = [
    "DEVICE_TO_DEVICE",
    "DEVICE_TO_HOST",
    "HOST_TO_DEVICE",
    "CopyWatcher",
    "CopyingDevice",
    "DeviceCopy",
    "Told",
    "begun_copy",
    "watching_copies",
]

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = "MEMCPYHtoD", "MEMCPYDtoH", "MEMCPYPtoP"


class CopyingDevice(Protocol):
    """The part of a `Device` that a watcher of copies uses."""

    name: str
    allocator: Allocator

    async def synchronise(self) -> None:
        """Wait until everything that was queued so far is done."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceCopy:
    """A copy that was made.

    Attributes:
        device: the device on whose stream it ran.
        kind: HOST_TO_DEVICE, DEVICE_TO_HOST or DEVICE_TO_DEVICE.
        node: the node that needed it.
        stream: the stream's name, as traces show it.
        begin, end: times on the stream, by `time.perf_counter_ns()`.
        num_bytes: bytes that were copied.
    """

    device: CopyingDevice
    kind: str
    node: str
    stream: str
    begin: int
    end: int
    num_bytes: int


class CopyWatcher(Protocol):
    """Sees copies."""

    def copy_begun(self, device: CopyingDevice) -> None:
        """Called when a copy was queued on a device; the device's events pass after `copied` was called."""
        ...

    def copied(self, copy: DeviceCopy) -> None:
        """Called when a copy was made, in a thread of the device."""
        ...


# Callback(stream, begin, end, bytes) when the copy was made.
Told = Callable[[str, int, int, int], None]

_watcher: ContextVar[CopyWatcher | None] = ContextVar("aexec_copy_watcher", default=None)


@contextmanager
def watching_copies(watcher: CopyWatcher | None) -> Iterator[None]:
    """Context manager: `watcher` sees the copies that this task, and tasks that it makes, queue meanwhile."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def begun_copy(device: CopyingDevice, kind: str, node: str) -> Told | None:
    """Report that a copy is queued on a device; return the callback for when it was made, or None without a watcher.

    The callback is not called for a copy that fails.
    """
    watcher = _watcher.get()
    if watcher is None:
        return None
    watcher.copy_begun(device)
    return lambda stream, begin, end, num_bytes: watcher.copied(
        DeviceCopy(device, kind, node, stream, begin, end, num_bytes)
    )
