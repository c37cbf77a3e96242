"""Copies between memories, watched: what a traced step has copied where, and when its streams did that.

A device asks for `begun_copy` where a copy is queued, in the task of whoever wants it, and says when the copy began
and ended on its stream; where nobody watches that costs a look at a variable of the context.  Names of kinds are those
of TensorFlow's traces.
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
    """What is asked of a `Device` that copies."""

    name: str
    allocator: Allocator

    async def synchronise(self) -> None:
        """Wait until everything that was queued so far is done."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceCopy:
    """A copy that was made.

    Attributes:
        device: on whose stream it was.
        kind: HOST_TO_DEVICE, DEVICE_TO_HOST or DEVICE_TO_DEVICE.
        node: who wanted it.
        stream: as traces show it.
        begin, end: on the stream, by `time.perf_counter_ns()`.
        num_bytes: that were copied.
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
        """One was queued on a device, whose events pass when it was told of."""
        ...

    def copied(self, copy: DeviceCopy) -> None:
        """One was made.  Called in a thread of the device."""
        ...


# Told the stream, when the copy began and ended there, and its bytes.
Told = Callable[[str, int, int, int], None]

_watcher: ContextVar[CopyWatcher | None] = ContextVar("aexec_copy_watcher", default=None)


@contextmanager
def watching_copies(watcher: CopyWatcher | None) -> Iterator[None]:
    """Within, in this task and those that it makes, `watcher` sees what copies are queued."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def begun_copy(device: CopyingDevice, kind: str, node: str) -> Told | None:
    """A copy is queued on a device: what is to be told of it when it was made; None if nobody watches.

    One that fails is not told of.
    """
    watcher = _watcher.get()
    if watcher is None:
        return None
    watcher.copy_begun(device)
    return lambda stream, begin, end, num_bytes: watcher.copied(
        DeviceCopy(device, kind, node, stream, begin, end, num_bytes)
    )
