"""`CudaStreams`: the streams on which steps are queued, with the threads that feed them.

One thread, the **issuer**, makes all calls of CuPy for one **compute stream**, in the order in which they were queued.
Copies are on a stream for each direction; those of large arrays have threads of their own, which feed them piece by
piece.  A device uses one `CudaStreams` at a time, and changes to another if work of a stopped step is in the way.  So
an array may be used on another compute stream than the one that makes it.  The other stream is then made to wait, and
keeps the array until it has passed the use, because the pool would give the array's memory to the stream that allocated
it.
Next to read: `cuda_device.py`, `cuda_signals.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from aexec.devices.cuda_copies import Staging
from aexec.devices.cuda_signals import EventSignals
from aexec.devices.cuda_timer import CudaClock, CudaTimer
from aexec.devices.cuda_value import Arrivals, CudaValue
from aexec.devices.host_event import HostEvent
from aexec.devices.serial_thread import SerialThread
from aexec.framework.device_contract.queued_kernel import QueuedKernel
from aexec.framework.memory.unique_tensor_references import UniqueTensorReferences

__all__ = ["CudaStreams", "all_passed", "streams_here"]

Passed = Callable[[BaseException | None], object]

# After this many calls that used values of other streams, values that are not needed any more are dropped.
_KEPT_CALLS = 64
_issuing = threading.local()


class CudaStreams:
    """The compute stream and the copy streams of one device, with the threads that queue work on them.

    Args:
        cupy: the module.
        number: CUDA's number of the GPU.
        name: for threads and traces.
        malloc: allocates the memory of arrays.
        arrivals: of the device's values.
        signals: how the host is notified of finished work.

    Attributes:
        threads: all threads.
        position: the number of the last kernel that was issued.
        passed: the number of the last kernel that is known to be done.
    """

    def __init__(
        self,
        cupy: Any,
        number: int,
        name: str,
        malloc: Callable[[int], Any],
        arrivals: Arrivals,
        signals: type[EventSignals],
    ) -> None:
        self.arrivals = arrivals
        self.cupy = cupy
        self.name = name
        self._number = number
        self._malloc = malloc
        self._signals_type = signals
        self._issuer = SerialThread(f"{name}-issue", self._set_up)
        self.copier_in = SerialThread(f"{name}-in", lambda: self._enter_later(lambda: self.into.stream))
        self.copier_out = SerialThread(f"{name}-out", lambda: self._enter_later(lambda: self.out_of.stream))
        self.threads = [self._issuer, self.copier_in, self.copier_out]
        self.position = self.passed = 0
        self._is_set_up = threading.Event()
        self._clock: CudaClock | None = None
        self._allocating: list[Any] = []
        self._kept: list[Any] = []
        # Other streams → the position after which this compute stream is known to run.
        self._behind: dict[CudaStreams, int] = {}

    # Setting up, in the threads themselves

    def _set_up(self) -> None:
        cuda = self.cupy.cuda
        cuda.Device(self._number).use()
        # A blocking stream, ordered with the null stream, on which builders of kernels, and programs, may make arrays.
        self.compute = cuda.Stream()
        into, out_of = cuda.Stream(non_blocking=True), cuda.Stream(non_blocking=True)
        # The issuer queues small copies, the copying threads pieces of large ones: each has staging memory of its own.
        self.small_in, self.into = Staging(self.cupy, into), Staging(self.cupy, into)
        self.small_out, self.out_of = Staging(self.cupy, out_of), Staging(self.cupy, out_of)
        self.computed = self._signals(self.compute, "compute")
        self.copied_in = self._signals(into, "copied-in")
        self.copied_out = self._signals(out_of, "copied-out")
        self._enter(self.compute)
        _issuing.streams = self
        self._is_set_up.set()

    def _signals(self, stream: Any, what: str) -> EventSignals:
        thread = SerialThread(f"{self.name}-{what}", self.cupy.cuda.Device(self._number).use)
        self.threads.append(thread)
        return self._signals_type(self.cupy, stream, thread)

    def _enter(self, stream: Any) -> None:
        """Set device, stream and allocator for the rest of this thread."""
        cuda = self.cupy.cuda
        cuda.Device(self._number).use()
        stream.use()
        allocating = cuda.using_allocator(self._malloc)
        allocating.__enter__()
        self._allocating.append(allocating)  # keeps the context manager alive, whose deletion would exit it

    def _enter_later(self, stream: Callable[[], Any]) -> None:
        self.issue(lambda: None)
        self._is_set_up.wait()
        self._enter(stream())

    def issue(self, work: Callable[[], object]) -> None:
        """Queue work for the issuer."""
        self._issuer.submit(work)

    # In the issuer

    def call(self, kernel: QueuedKernel, arguments: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Call a kernel on the arrays of its arguments.

        Returns:
            the kernel's result, and those of the arrays whose memory is not the compute stream's.
        """
        self.position += 1
        before = len(self._kept)
        out = kernel.compute(*[self.argument(value) for value in arguments])
        foreign = self._kept[before:]
        if len(self._kept) >= _KEPT_CALLS:
            self.let_go()
        return out, foreign

    def argument(self, value: Any) -> Any:
        """The kernel's argument for a queued value: see `array`."""
        if type(value) is CudaValue:
            return self.array(value)
        return [self.argument(one) for one in value] if type(value) is list else value

    def array(self, value: CudaValue) -> Any:
        """The array of a value, for a kernel that is queued next on the compute stream."""
        array = value.get()
        if value.arrival is not None:
            if value.awaited is not self:
                self.compute.wait_event(value.arrival)
                value.awaited = self
        elif value.streams is not self:
            self._come_after(value.streams, value.position)
        if value.foreign or value.streams is not self:
            self._kept.append(array)
        return array

    def _come_after(self, other: CudaStreams, position: int) -> None:
        """Make the compute stream wait for a kernel of another one, unless that is known to be done."""
        if position <= max(other.passed, self._behind.get(other, 0)):
            return
        reached, event = other.position, self._event()
        event.record(other.compute)
        self.compute.wait_event(event)
        self._behind[other] = reached

    def _event(self) -> Any:
        return self.cupy.cuda.Event(block=True, disable_timing=True)

    def recorded(self) -> Any:
        """Return an event of the compute stream, behind the work queued now."""
        event = self._event()
        event.record(self.compute)
        return event

    def let_go(self) -> None:
        """When the compute stream gets here, drop kept values of other streams."""
        if self._kept:
            kept = UniqueTensorReferences()
            for array in self._kept:
                kept.add(array)
            self._kept = []
            self.computed.when_passed(lambda _, kept=kept: kept.freeze().clear())  # type: ignore[misc]

    def when_computed(self, passed: Passed) -> None:
        """Call `passed` when the compute stream has done the work queued now."""
        self.let_go()
        position = self.position

        def tell(error: BaseException | None) -> None:
            self.passed = max(self.passed, position)
            passed(error)

        self.computed.when_passed(tell)

    def timer(self) -> CudaTimer:
        """Return a timer of the work queued next on the compute stream."""
        return self._timer(self.compute, self.computed, "compute")

    # In the issuer, or in the thread that copies

    def timer_in(self) -> CudaTimer:
        """Return a timer of the work queued next on the stream of copies from the host, or from other GPUs."""
        return self._timer(self.into.stream, self.copied_in, "host-to-device")

    def timer_out(self) -> CudaTimer:
        """Return a timer of the work queued next on the stream of copies to the host."""
        return self._timer(self.out_of.stream, self.copied_out, "device-to-host")

    def _timer(self, stream: Any, signals: EventSignals, what: str) -> CudaTimer:
        clock = self._clock
        if clock is None:
            clock = self._clock = CudaClock(self.cupy)
        return CudaTimer(self.cupy, clock, stream, signals, f"aexec-{self.name} {what} stream")

    # In any thread

    def is_done(self, value: CudaValue) -> bool:
        """True if the compute stream is known to have made a value."""
        return not value.is_pending and value.position <= self.passed

    def record_event(self) -> HostEvent:
        """An event that passes when all that was queued so far is done, copies included."""
        event = HostEvent()

        def record() -> None:
            told = all_passed(3, event.fire)
            self.when_computed(told)
            self.copied_in.when_passed(told)
            self.copied_out.when_passed(told)

        self.issue(lambda: self.copier_in.submit(lambda: self.copier_out.submit(lambda: self.issue(record))))
        return event


def streams_here() -> CudaStreams:
    """The streams whose issuer this thread is."""
    streams: CudaStreams = _issuing.streams
    return streams


def all_passed(count: int, then: Callable[[], object]) -> Passed:
    """A callback to be called `count` times, from any thread; the last call calls `then`."""
    others = iter(range(count - 1))  # taking the next of them is atomic

    def passed(_error: BaseException | None = None) -> None:
        if next(others, None) is None:
            then()

    return passed
