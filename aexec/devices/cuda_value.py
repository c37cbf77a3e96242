"""`CudaValue`: a tensor on a GPU, or one that will be there.

A thread of the device makes it; others may use it before, and wait for it in threads of the device alone.
Next to read: `cuda_streams.py`.
"""

from __future__ import annotations

import threading
from typing import Any

from aexec.framework.device_contract.device import Device, no_value_yet
from aexec.framework.device_contract.queued_kernel import QueuedKernel

__all__ = ["Arrivals", "CudaValue"]


class Arrivals:
    """Lets threads wait for values that other threads make; costs nothing as long as none does."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting = 0

    def wait(self, value: CudaValue) -> None:
        """Wait until a value is there, or has failed."""
        with self._changed:
            self._waiting += 1
            while value.is_pending:
                self._changed.wait()
            self._waiting -= 1

    def came(self) -> None:
        """A value is there, or has failed."""
        # Who waits says so before it looks at the value, which was set before this: one of the two sees the other.
        if self._waiting:
            with self._changed:
                self._changed.notify_all()


class CudaValue:
    """A tensor on a GPU, or the promise of one that a thread of the device will make.

    Attributes:
        device: that it is on.
        streams: the `CudaStreams` that it is queued on.
        dtype: of its elements.
        node: what made it.
        array: CuPy's, once it was issued.
        error: why there is none.
        told: whoever queued what failed knows of that.
        arrival: CUDA event of the copy that brings it; None of what a kernel made.
        awaited: the streams that were last made to wait for that.
        position: of the kernel that made it, among those of its compute stream.
        foreign: its memory is not that of its compute stream.
    """

    __slots__ = (
        "array",
        "arrival",
        "awaited",
        "device",
        "dtype",
        "error",
        "foreign",
        "node",
        "position",
        "streams",
        "told",
    )

    def __init__(self, device: Device, streams: Any, dtype: Any, node: str) -> None:
        self.device = device
        self.streams = streams
        self.dtype = dtype
        self.node = node
        self.array: Any = None
        self.error: BaseException | None = None
        self.told = False
        self.arrival: Any = None
        self.awaited: Any = None
        self.position = 0
        self.foreign = False

    @property
    def size(self) -> int:
        """Number of elements; 1 while that is not known."""
        return 1 if self.array is None else int(self.array.size)

    @property
    def is_pending(self) -> bool:
        """Was it not issued yet?"""
        return self.array is None and self.error is None

    def set(self, array: Any) -> None:
        self.array = array
        self.streams.arrivals.came()

    def fail(self, error: BaseException, *, told: bool) -> None:
        self.told = told
        self.error = error
        self.streams.arrivals.came()

    def stay(self, before: Any, kernel: QueuedKernel) -> None:
        """Be what a variable's value was before the update that was to give another."""
        if not isinstance(before, CudaValue):
            self.fail(no_value_yet(kernel), told=False)
        elif before.has_failed():
            assert before.error is not None
            self.fail(before.error, told=before.told)
        else:
            self.streams, self.position = before.streams, before.position
            self.arrival, self.foreign = before.arrival, before.foreign
            self.set(before.array)

    def has_failed(self) -> bool:
        """Is there no array, and will there be none?  Asked in threads of the device."""
        if self.is_pending:
            self.streams.arrivals.wait(self)
        return self.error is not None

    def get(self) -> Any:
        """The array, in threads of the device.  Raises what failed to make it."""
        if self.has_failed():
            assert self.error is not None
            raise self.error
        return self.array

    def __repr__(self) -> str:
        if self.error is not None:
            return f"<CudaValue of '{self.node}' failed: {self.error}>"
        shape = "to come" if self.array is None else list(self.array.shape)
        return f"<CudaValue of '{self.node}' {self.dtype} {shape} on {self.device.name}>"
