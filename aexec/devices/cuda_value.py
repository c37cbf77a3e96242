"""`CudaValue`: a tensor on a GPU, or one that will be there.

A thread of the device makes it.  Others may pass it on before; only threads of the device may wait for it.
Next to read: `cuda_streams.py`.
"""

from __future__ import annotations

import threading
from typing import Any

from aexec.framework.device_contract.device import Device, no_value_yet
from aexec.framework.device_contract.queued_kernel import QueuedKernel

__all__ = ["Arrivals", "CudaValue"]


class Arrivals:
    """Lets threads wait for values that other threads make; costs nothing while none waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting = 0

    def wait(self, value: CudaValue) -> None:
        """Wait until a value is made, or has failed."""
        with self._changed:
            self._waiting += 1
            while value.is_pending:
                self._changed.wait()
            self._waiting -= 1

    def came(self) -> None:
        """Wake the waiting threads: a value was made, or has failed."""
        # A waiter increments the count before it looks at the value, which was set before this: one of the two sees the
        # other.
        if self._waiting:
            with self._changed:
                self._changed.notify_all()


class CudaValue:
    """A tensor on a GPU, or the promise of one that a thread of the device will make.

    Attributes:
        device: the device that it is on.
        streams: the `CudaStreams` that it is queued on.
        dtype: of its elements.
        node: the node that makes it.
        array: CuPy's array, once it was issued.
        error: why there is no array, or None.
        told: True if the caller that queued the call has got the failure.
        arrival: CUDA event of the copy that brings it; None for a kernel's result.
        awaited: the streams that were last made to wait for `arrival`.
        position: the number of the kernel that made it, among those of its compute stream.
        foreign: True if its memory was not allocated on its compute stream.
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
        """The number of elements; 1 while unknown."""
        return 1 if self.array is None else int(self.array.size)

    @property
    def is_pending(self) -> bool:
        """True until it was issued or has failed."""
        return self.array is None and self.error is None

    def set(self, array: Any) -> None:
        self.array = array
        self.streams.arrivals.came()

    def fail(self, error: BaseException, *, told: bool) -> None:
        self.told = told
        self.error = error
        self.streams.arrivals.came()

    def stay(self, before: Any, kernel: QueuedKernel) -> None:
        """Take the value of a variable from before an update that was not made."""
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
        """True if the array was not and will not be made.  Waits; called in threads of the device."""
        if self.is_pending:
            self.streams.arrivals.wait(self)
        return self.error is not None

    def get(self) -> Any:
        """The array; waits, so only in threads of the device.  Raises the error that prevented it."""
        if self.has_failed():
            assert self.error is not None
            raise self.error
        return self.array

    def __repr__(self) -> str:
        if self.error is not None:
            return f"<CudaValue of '{self.node}' failed: {self.error}>"
        shape = "to come" if self.array is None else list(self.array.shape)
        return f"<CudaValue of '{self.node}' {self.dtype} {shape} on {self.device.name}>"
