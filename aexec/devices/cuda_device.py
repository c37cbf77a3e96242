"""`CudaDevice`: a GPU, by CuPy.

One thread, the **issuer**, makes all calls of CuPy in the order in which they were queued, so that the event loop
is never held by a launch, by a kernel that is compiled when it is first used, or by one that has to look at values.
All kernels are on one **compute stream**; copies are on a stream for each direction, and those of large arrays have
threads of their own, which feed them piece by piece.  Whoever uses a value that was copied in makes the compute
stream wait for that copy alone.

Memory is CuPy's stream-ordered pool: what was made on the compute stream may be dropped as soon as its last kernel was
queued.  What other streams made or read is kept until they have passed it.
CuPy is imported when the first device is made; without it, or without a GPU, there are none.
Next to read: `cuda_copies.py`, `cuda_signals.py`, `cuda_memory.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import logging
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cache
from typing import Any
from weakref import finalize

import numpy as np

from aexec.devices.cuda_copies import SMALL, Staging, copied_in, copied_out, pieces_in, pieces_out
from aexec.devices.cuda_memory import CudaAllocator, instances, largest
from aexec.devices.cuda_signals import SIGNALS, EventSignals
from aexec.devices.cuda_timer import CudaClock, CudaTimer
from aexec.devices.host_event import HostEvent
from aexec.devices.serial_thread import SerialThread
from aexec.framework import errors
from aexec.framework.device import Device, DeviceEvent, OnError, QueuedKernel, QueuedWork
from aexec.framework.dtypes import from_numpy
from aexec.framework.unique_tensor_references import UniqueTensorReferences
from aexec.kernels.common.portable import is_on_device, register_portable_kernels

__all__ = ["CudaDevice", "CudaValue", "make_cuda_devices"]

logger = logging.getLogger("aexec")

_incarnations = itertools.count(1)
# Calls that used values of other streams, after which those are looked at for what can be let go.
_KEPT_CALLS = 64


class CudaValue:
    """A tensor on a GPU, or one that will be there when the issuer has got to it.

    Attributes:
        dtype: of its elements.
        node: what made it.
        array: CuPy's, once it was issued.
        error: why there is none.
        told: whoever queued what failed knows of that.
        arrival: CUDA event of the copy that brings it, until the compute stream was made to wait for it.
        foreign: its memory is not the compute stream's.
    """

    __slots__ = ("_issued", "array", "arrival", "device", "dtype", "error", "foreign", "node", "told")

    def __init__(self, device: CudaDevice, dtype: Any, node: str) -> None:
        self.device = device
        self.dtype = dtype
        self.node = node
        self.array: Any = None
        self.error: BaseException | None = None
        self.told = False
        self.arrival: Any = None
        self.foreign = False
        self._issued: threading.Event | None = None

    @property
    def size(self) -> int:
        """Number of elements; 1 while that is not known."""
        return 1 if self.array is None else int(self.array.size)

    def comes_later(self) -> None:
        """Another thread than the issuer makes it."""
        self._issued = threading.Event()

    def set(self, array: Any) -> None:
        self.array = array
        if self._issued is not None:
            self._issued.set()

    def fail(self, error: BaseException, *, told: bool) -> None:
        self.error = error
        self.told = told
        if self._issued is not None:
            self._issued.set()

    def has_failed(self) -> bool:
        """Is there no array, and will there be none?  Asked in the issuer."""
        if self._issued is not None:
            self._issued.wait()
            self._issued = None
        return self.error is not None

    def get(self) -> Any:
        """The array, in the issuer.  Raises what failed to make it."""
        if self.has_failed():
            assert self.error is not None
            raise self.error
        return self.array

    def __repr__(self) -> str:
        if self.error is not None:
            return f"<CudaValue of '{self.node}' failed: {self.error}>"
        shape = "to come" if self.array is None else list(self.array.shape)
        return f"<CudaValue of '{self.node}' {self.dtype} {shape} on {self.device.name}>"


class CudaDevice(Device):
    """One GPU.

    Args:
        name: full name.
        number: CUDA's.
        memory_limit: bytes that its pool may hold; None for all there are.
        signals: how the host learns of what is done: a name in `cuda_signals.SIGNALS`.
        cupy: the module, or what stands in for it.

    Raises:
        NotFoundError: CuPy cannot be imported, or finds no such GPU.
    """

    type = "GPU"

    def __init__(
        self, name: str, number: int = 0, *, memory_limit: int | None = None, signals: str = "waiting", cupy: Any = None
    ) -> None:
        self.name = name
        self.number = number
        self.incarnation = next(_incarnations)
        self.xp = self.cupy = _cupy() if cupy is None else cupy
        if number >= _count(self.cupy):
            raise errors.NotFoundError(f"{name}: there is no CUDA device {number} of {_count(self.cupy)}")
        properties = self.cupy.cuda.runtime.getDeviceProperties(number)
        self.description = properties["name"].decode()
        self.memory_limit = memory_limit or int(properties["totalGlobalMem"])
        self.memory = self.allocator = CudaAllocator(name, self.cupy, memory_limit)
        self._signals_type = SIGNALS[signals]
        short = f"GPU:{number}"
        self._issuer = SerialThread(f"{short}-issue", self._set_up)
        self._copier_in = SerialThread(f"{short}-in", lambda: self._enter_later(lambda: self._in.stream))
        self._copier_out = SerialThread(f"{short}-out", lambda: self._enter_later(lambda: self._out.stream))
        self._is_set_up = threading.Event()
        self._threads = [self._issuer, self._copier_in, self._copier_out]
        self._clock: CudaClock | None = None
        self._allocating: list[Any] = []
        self._kept: list[Any] = []
        self._closed = False
        register_portable_kernels(self.type)
        finalize(self, _close, self._threads)

    # In the issuer

    def _set_up(self) -> None:
        cuda = self.cupy.cuda
        cuda.Device(self.number).use()
        # Not one that passes the null stream by: builders of kernels, and programs, may have arrays made there.
        self._compute = cuda.Stream()
        into, out_of = cuda.Stream(non_blocking=True), cuda.Stream(non_blocking=True)
        # Small copies are queued here, pieces of large ones by the threads that copy: each has staging of its own.
        self._small_in, self._in = Staging(self.cupy, into), Staging(self.cupy, into)
        self._small_out, self._out = Staging(self.cupy, out_of), Staging(self.cupy, out_of)
        self._passed = self._signals(self._compute, "compute")
        self._copied_in = self._signals(into, "copied-in")
        self._copied_out = self._signals(out_of, "copied-out")
        self._enter(self._compute)
        self._is_set_up.set()

    def _signals(self, stream: Any, what: str) -> EventSignals:
        name = f"GPU:{self.number}-{what}"
        thread = SerialThread(name, self.cupy.cuda.Device(self.number).use)
        self._threads.append(thread)
        return self._signals_type(self.cupy, stream, thread)

    def _enter(self, stream: Any) -> None:
        """For the rest of this thread."""
        cuda = self.cupy.cuda
        cuda.Device(self.number).use()
        stream.use()
        allocating = cuda.using_allocator(self.memory.malloc)
        allocating.__enter__()
        self._allocating.append(allocating)  # which would be left where nobody has it any more

    def _enter_later(self, stream: Callable[[], Any]) -> None:
        self.issue(lambda: None)
        self._is_set_up.wait()
        self._enter(stream())

    def array(self, value: CudaValue) -> Any:
        """The array of a value, for a kernel that is queued next on the compute stream."""
        array = value.get()
        if value.arrival is not None:
            self._compute.wait_event(value.arrival)
            value.arrival = None
        if value.foreign:
            self._kept.append(array)
        return array

    def let_go(self) -> None:
        """What other streams made, and kernels that were queued read, is free when the compute stream gets here."""
        if self._kept:
            kept = UniqueTensorReferences()
            for array in self._kept:
                kept.add(array)
            self._kept = []
            self._passed.when_passed(lambda _, kept=kept: kept.freeze().clear())  # type: ignore[misc]

    def call(self, kernel: QueuedKernel, arguments: Sequence[Any]) -> Any:
        """Call a kernel on the arrays of its arguments."""
        out = kernel.compute(*[self._argument(value) for value in arguments])
        if len(self._kept) >= _KEPT_CALLS:
            self.let_go()
        return out

    def _argument(self, value: Any) -> Any:
        if type(value) is CudaValue:
            return self.array(value)
        return [self._argument(one) for one in value] if type(value) is list else value

    def explained(self, error: BaseException, node: str) -> BaseException:
        """What CuPy raised, in our terms."""
        cuda = self.cupy.cuda
        if isinstance(error, cuda.memory.OutOfMemoryError):
            mine = [value for value in instances(CudaValue) if value.device is self]
            return errors.ResourceExhaustedError(
                f"OOM on {self.name} when running {{{{node {node}}}}}: {error}\n{self.memory.stats()}\n{largest(mine)}",
                derived=False,
            )
        if isinstance(error, cuda.runtime.CUDARuntimeError):
            return errors.InternalError(f"{self.name} failed at {{{{node {node}}}}} or before it: {error}")
        return error

    # Copies

    def copy_in(self, array: Any, *, node: str) -> CudaValue:
        if isinstance(array, self.xp.ndarray):
            return self._adopted(array, node)
        if array.dtype.hasobject or not is_on_device(from_numpy(array.dtype)):
            raise errors.InvalidArgumentError(
                f"{{{{node {node}}}}}: {array.dtype} lives in host memory and cannot be copied to {self.name}"
            )
        value = CudaValue(self, array.dtype, node)
        value.foreign = True
        if array.nbytes <= SMALL:
            self._issuer.submit(lambda: self._bring(value, lambda: copied_in(self._small_in, array)))
        else:
            value.comes_later()
            self._copier_in.submit(lambda: self._bring(value, lambda: pieces_in(self._in, array)))
        return value

    def _adopted(self, array: Any, node: str) -> CudaValue:
        """An array that is on a GPU already, when whatever made it in its stream is done."""
        value = CudaValue(self, array.dtype, node)
        value.foreign = True
        made = self.cupy.cuda.Event(block=True, disable_timing=True)
        made.record(self.cupy.cuda.get_current_stream())
        value.arrival = made
        value.set(array)
        return value

    def _bring(self, value: CudaValue, bring: Callable[[], tuple[Any, Any]]) -> None:
        try:
            array, value.arrival = bring()
        except BaseException as error:
            value.fail(self.explained(error, value.node), told=False)
        else:
            value.set(array)

    def copy_out(self, value: Any, *, node: str) -> Future[Any]:
        copied: Future[Any] = Future()
        self._issuer.submit(lambda: self._fetch(value, node, copied))
        return copied

    def _fetch(self, value: CudaValue, node: str, copied: Future[Any]) -> None:
        def finish(give: Callable[[], Any], error: BaseException | None = None) -> None:
            try:
                if error is not None:
                    raise error
                copied.set_result(give())
            except BaseException as failed:
                copied.set_exception(self.explained(failed, node))

        try:
            array = _contiguous(self.array(value))
            ready = self._small_out.event()
            ready.record(self._compute)
            self._small_out.stream.wait_event(ready)
            if array.nbytes <= SMALL:
                give = copied_out(self._small_out, array)
                self._copied_out.when_passed(lambda error: finish(give, error))
            else:
                self._copier_out.submit(lambda: finish(lambda: pieces_out(self._out, array)))
        except BaseException as error:
            finish(lambda: None, error)

    def copy_across(self, value: Any, destination: Device, *, node: str) -> Any:
        if not isinstance(destination, CudaDevice):
            return super().copy_across(value, destination, node=node)
        moved = CudaValue(destination, value.dtype, node)
        moved.foreign = True
        moved.comes_later()
        self._issuer.submit(lambda: self._send_across(value, destination, moved))
        return moved

    def _send_across(self, value: CudaValue, destination: CudaDevice, moved: CudaValue) -> None:
        try:
            array = _contiguous(self.array(value))
            ready = self.cupy.cuda.Event(block=True, disable_timing=True)
            ready.record(self._compute)
            destination._copier_in.submit(
                lambda: destination._bring(moved, lambda: destination._receive(array, self.number, ready))
            )
        except BaseException as error:
            moved.fail(self.explained(error, value.node), told=False)

    def _receive(self, array: Any, source: int, ready: Any) -> tuple[Any, Any]:
        stream = self._in.stream
        target = self.cupy.empty(array.shape, array.dtype)
        stream.wait_event(ready)
        self.cupy.cuda.runtime.memcpyPeerAsync(
            target.data.ptr, self.number, array.data.ptr, source, array.nbytes, stream.ptr
        )
        self._copied_in.when_passed(lambda _, array=array: None)  # type: ignore[misc]  # which keeps the source
        return target, self._in.sent(None)

    # Work

    def begin_work(self, on_error: OnError) -> CudaWork:
        return CudaWork(self, on_error)

    def record_event(self) -> DeviceEvent:
        event = HostEvent()

        def record() -> None:
            others = iter(range(2))  # asking for the next of them is atomic

            def passed(_error: BaseException | None) -> None:
                if next(others, None) is None:
                    event.fire()

            for signals in (self._passed, self._copied_in, self._copied_out):
                signals.when_passed(passed)

        def behind_copies() -> None:
            self.let_go()
            self._copier_in.submit(lambda: self._copier_out.submit(record))

        self.issue(behind_copies)
        return event

    def stream_timer(self) -> CudaTimer:
        if self._clock is None:
            self._clock = CudaClock(self.cupy)
        name = f"aexec-GPU:{self.number} compute stream"
        return CudaTimer(self.cupy, self._clock, self._compute, self._passed, name)

    def issue(self, work: Callable[[], object]) -> None:
        """Queue something for the issuer."""
        self._issuer.submit(work)

    def when_computed(self, passed: Callable[[BaseException | None], object]) -> None:
        """In the issuer: call back when the compute stream has done what is queued now."""
        self.let_go()
        self._passed.when_passed(passed)

    async def close(self) -> None:
        """As `Device.close`.  The memory goes back to the driver."""
        if self._closed:
            return
        await self.synchronise()
        self._closed = True
        _close(self._threads)
        for thread in self._threads:
            await thread.ended()
        self.memory.release()


def _close(threads: Sequence[SerialThread]) -> None:
    for thread in threads:
        thread.close()


class CudaWork(QueuedWork):
    """What one execution queues on a GPU."""

    def __init__(self, device: CudaDevice, on_error: OnError) -> None:
        self._device = device
        self._on_error = on_error
        self._stopped = False
        self._last: QueuedKernel | None = None

    def enqueue(self, kernel: QueuedKernel, arguments: Sequence[Any]) -> tuple[Any, ...]:
        device, host = self._device, kernel.host_outputs
        outputs: tuple[Any, ...] = tuple(
            [
                Future() if position in host else CudaValue(device, dtype.np, kernel.name)
                for position, dtype in enumerate(kernel.output_types)
            ]
        )
        device.issue(lambda: self._issue(kernel, arguments, outputs))
        return outputs

    def _issue(self, kernel: QueuedKernel, arguments: Sequence[Any], outputs: tuple[Any, ...]) -> None:
        device = self._device
        if self._stopped:
            error = errors.CancelledError(f"{{{{node {kernel.name}}}}} was not begun on {device.name}", derived=True)
            self._fail(kernel, outputs, error, told=True)
            return
        failed = _failed(arguments)
        if failed is not None:
            assert failed.error is not None
            self._fail(kernel, outputs, failed.error, told=failed.told)
            return
        try:
            self._last = kernel
            made = device.call(kernel, arguments)
            for output, value in zip(outputs, _as_tuple(made, len(outputs)), strict=True):
                self._deliver(kernel, output, value)
        except BaseException as error:
            self._fail(kernel, outputs, device.explained(error, kernel.name), told=False)

    def _fail(self, kernel: QueuedKernel, outputs: tuple[Any, ...], error: BaseException, *, told: bool) -> None:
        for output in outputs:
            if isinstance(output, CudaValue):
                output.fail(error, told=True)
            elif not output.done():
                output.set_exception(error)
        if not told:
            self._on_error(kernel, error)

    def _deliver(self, kernel: QueuedKernel, output: Any, value: Any) -> None:
        device = self._device
        on_gpu = isinstance(value, device.xp.ndarray)
        if isinstance(output, CudaValue):
            output.set(value if on_gpu else device.xp.asarray(value))
        elif on_gpu:
            made = CudaValue(device, value.dtype, kernel.name)
            made.set(value)
            device._fetch(made, kernel.name, output)
        else:
            output.set_result(np.asarray(value))

    def stop(self) -> None:
        self._stopped = True

    def record_event(self) -> DeviceEvent:
        event = HostEvent()

        def passed(error: BaseException | None) -> None:
            # A kernel that fails while it runs is found here, and nobody knows which of those since the last event.
            if error is not None and self._last is not None:
                self._on_error(self._last, self._device.explained(error, self._last.name))
            event.fire()

        self._device.issue(lambda: self._device.when_computed(passed))
        return event


def _contiguous(array: Any) -> Any:
    return array if array.flags.c_contiguous else array.copy()


def _as_tuple(made: Any, count: int) -> tuple[Any, ...]:
    if count == 1 and not isinstance(made, tuple):
        return (made,)
    return () if made is None else tuple(made)


def _failed(arguments: Sequence[Any]) -> CudaValue | None:
    """An argument that there is none of, if any; in the issuer."""
    for value in arguments:
        if type(value) is list:
            value = _failed(value)
        if type(value) is CudaValue and value.has_failed():
            return value
    return None


# Devices of this machine


@cache
def _cupy() -> Any:
    """CuPy.  Raises NotFoundError where it is not installed, or cannot be imported."""
    if importlib.util.find_spec("cupy") is None:
        raise errors.NotFoundError("GPUs need CuPy: install aexec[cuda12] or aexec[cuda13]")
    try:
        return importlib.import_module("cupy")
    except Exception as error:
        raise errors.NotFoundError(f"CuPy cannot be imported: {error}") from error


def _count(cupy: Any) -> int:
    """How many GPUs there are: none where there is no driver."""
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        logger.info("No GPUs: %s", error)
        return 0


def make_cuda_devices(task: str, count: int | None) -> list[CudaDevice]:
    """The GPUs of this machine, at most so many; none without CuPy.  CuPy is not imported where none are wanted."""
    if count == 0:
        return []
    try:
        found = _count(_cupy())
    except errors.NotFoundError as reason:
        if count:
            logger.warning("%d GPUs are wanted: %s", count, reason.message)
        return []
    wanted = min(found, math.inf if count is None else count)
    return [CudaDevice(f"{task}/device:GPU:{number}", number) for number in range(int(wanted))]
