"""`CudaDevice`: a GPU, by CuPy.

Threads of the device make all calls of CuPy, in the order in which they were queued.  So the event loop is never
blocked by a launch, by compiling a kernel at its first use, or by a kernel that has to read values.  Kernels run on one
compute stream, copies on a stream for each direction (`cuda_streams.py`); a kernel that uses a copied value makes the
compute stream wait for that copy only.  What a stopped step has launched cannot be withdrawn: unless it is done, later
steps use other streams, and wait only for values that they use.

Memory comes from CuPy's stream-ordered pool: a value of the compute stream may be dropped as soon as its last kernel
was queued.  A value that other streams made or read is kept until they have passed it. CuPy is imported when the first
device is made; without it, or without a GPU, there are no devices.
Next to read: `cuda_streams.py`, `cuda_copies.py`, `cuda_memory.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cache, partial
from typing import Any, TypeVar
from weakref import finalize

import numpy as np

from aexec.devices.cuda_copies import SMALL, copied_in, copied_out, pieces_in, pieces_out
from aexec.devices.cuda_exchange import CudaExchange
from aexec.devices.cuda_memory import CudaAllocator, instances, largest
from aexec.devices.cuda_recordings import CudaSequence, guard_captures
from aexec.devices.cuda_signals import SIGNALS
from aexec.devices.cuda_streams import CudaStreams, all_passed, streams_here
from aexec.devices.cuda_timer import CudaTimer
from aexec.devices.cuda_value import Arrivals, CudaValue
from aexec.devices.host_event import HostEvent
from aexec.framework import errors
from aexec.framework.device_contract.device import Device, DeviceEvent, OnError, QueuedWork
from aexec.framework.device_contract.device_copies import (
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    Told,
    begun_copy,
)
from aexec.framework.device_contract.device_memory import DeviceMemory, accounted, device_memory, without_arrays
from aexec.framework.device_contract.queued_kernel import CallSequence, QueuedKernel
from aexec.framework.dtypes import DType, from_numpy
from aexec.framework.memory.tensor_buffer import buffer_of
from aexec.kernels.common.portable import is_on_device, register_portable_kernels

__all__ = ["CudaDevice", "make_cuda_devices"]

logger = logging.getLogger("aexec")

T = TypeVar("T")

_incarnations = itertools.count(1)
# Most sets of streams; each has memory in the pool.  When the last is left, the one left first is used again.
_MOST_STREAMS = 4


class CudaDevice(Device):
    """One GPU.

    Args:
        name: full name.
        number: CUDA's.
        memory_limit: most bytes that its pool may hold; None for all of the GPU's.
        signals: how the host is notified of finished work: a name in `cuda_signals.SIGNALS`.
        cupy: the module, or a substitute.

    Raises:
        NotFoundError: CuPy cannot be imported, or finds no such GPU.
    """

    type = "GPU"
    can_capture = True

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
        self.memory = self.allocator = CudaAllocator(name, self.cupy, number, memory_limit)
        self._arrivals = Arrivals()
        self._signals = SIGNALS[signals]
        self._all: list[CudaStreams] = []
        self._streams = self._new_streams()
        self._leaving = threading.Lock()
        # Streams that were left, oldest first, each with the event behind the work that was stopped there.
        self._left: deque[tuple[CudaStreams, HostEvent]] = deque()
        # The event behind work that was stopped on the streams in use; None if none was.
        self._stopped: HostEvent | None = None
        self._exchange = CudaExchange(self.cupy, number)
        self._closed = False
        self._captures = False
        register_portable_kernels(self.type, keeps_variables=True)
        finalize(self, _close, self._all)

    # Streams

    def _new_streams(self) -> CudaStreams:
        number = f".{len(self._all)}" if self._all else ""
        name = f"GPU:{self.number}{number}"
        streams = CudaStreams(self.cupy, self.number, name, self.memory.malloc, self._arrivals, self._signals)
        self._all.append(streams)
        return streams

    @property
    def streams(self) -> CudaStreams:
        """The streams on which work that begins now is queued."""
        if self._stopped is not None:
            with self._leaving:
                if self._stopped is not None:
                    if not self._stopped.done:
                        self._leave(self._stopped)
                    self._stopped = None
        return self._streams

    def _leave(self, stopped: HostEvent) -> None:
        """Use other streams: left ones that are done, new ones, or else those that were left first."""
        left = self._streams
        found = next((each for each in self._left if each[1].done), None)
        if found is None and len(self._all) < _MOST_STREAMS:
            self._streams = self._new_streams()
        else:
            found = found or self._left[0]
            self._left.remove(found)
            self._streams = found[0]
        self._left.append((left, stopped))

    def stopped_on(self, streams: CudaStreams) -> None:
        """Called when a step was stopped whose work is on `streams`: later work does not wait for it."""
        if streams is self._streams:
            self._stopped = streams.record_event()

    def _streams_to_read(self, value: CudaValue) -> CudaStreams:
        """The streams on which to queue the copy of a value: those that make it, or the present ones if it is made."""
        return self.streams if value.streams.is_done(value) else value.streams

    def issue(self, work: Callable[[], object]) -> None:
        """Queue work for the thread that makes all calls."""
        self.streams.issue(work)

    def explained(self, error: BaseException, node: str) -> BaseException:
        """An error of CuPy's as one of ours."""
        cuda = self.cupy.cuda
        if isinstance(error, cuda.memory.OutOfMemoryError):
            mine = [value for value in instances(CudaValue) if value.device is self]
            return errors.ResourceExhaustedError(
                f"OOM on {self.name} when running {{{{node {node}}}}}: {error}\n{self.memory.stats()}\n{largest(mine)}",
                derived=False,
            )
        if isinstance(error, cuda.runtime.CUDARuntimeError):
            return errors.InternalError(f"{self.name} failed at {{{{node {node}}}}} or before it: {error}")
        return without_arrays(error)

    # Copies

    def copy_in(self, array: Any, *, node: str) -> CudaValue:
        if isinstance(array, self.xp.ndarray):
            return self._adopted(array, node)
        if array.dtype.hasobject or not is_on_device(from_numpy(array.dtype)):
            raise errors.InvalidArgumentError(
                f"{{{{node {node}}}}}: {array.dtype} lives in host memory and cannot be copied to {self.name}"
            )
        streams = self.streams
        value = CudaValue(self, streams, array.dtype, node)
        value.foreign = True
        told, charged = begun_copy(self, HOST_TO_DEVICE, node), device_memory(self)
        if array.nbytes <= SMALL:
            bring = _timed(lambda: copied_in(streams.small_in, array), streams.timer_in, told, array)
            streams.issue(lambda: self._bring(value, bring, charged))
        else:
            bring = _timed(lambda: pieces_in(streams.into, array), streams.timer_in, told, array)
            streams.copier_in.submit(lambda: self._bring(value, bring, charged))
        return value

    def _adopted(self, array: Any, node: str) -> CudaValue:
        """An array that is on a GPU already; used when the work of the stream that made it is done."""
        value = CudaValue(self, self.streams, array.dtype, node)
        value.foreign = True
        with self.cupy.cuda.Device(self.number):
            made = self.cupy.cuda.Event(block=True, disable_timing=True)
            made.record(self.cupy.cuda.get_current_stream())
        value.arrival = made
        value.set(array)
        return value

    def _bring(self, value: CudaValue, bring: Callable[[], tuple[Any, Any]], charged: DeviceMemory | None) -> None:
        try:
            with accounted(charged, value.node):
                array, value.arrival = bring()
        except BaseException as error:
            value.fail(self.explained(error, value.node), told=False)
        else:
            value.set(array)

    def copy_out(self, value: Any, *, node: str) -> Future[Any]:
        copied: Future[Any] = Future()
        streams = self._streams_to_read(value)
        told = begun_copy(self, DEVICE_TO_HOST, node)
        streams.issue(lambda: self.fetch(streams, value, node, copied, told))
        return copied

    def fetch(
        self, streams: CudaStreams, value: CudaValue, node: str, copied: Future[Any], told: Told | None = None
    ) -> None:
        """In the issuer of `streams`: queue the copy of a value to the host."""

        def finish(give: Callable[[], Any], error: BaseException | None = None) -> None:
            try:
                if error is not None:
                    raise error
                copied.set_result(give())
            except BaseException as failed:
                copied.set_exception(self.explained(failed, node))

        try:
            array = _contiguous(streams.array(value))
            streams.out_of.stream.wait_event(streams.recorded())
            if array.nbytes <= SMALL:
                give = _timed(lambda: copied_out(streams.small_out, array), streams.timer_out, told, array)()
                streams.copied_out.when_passed(lambda error: finish(give, error))
            else:
                bring = _timed(lambda: pieces_out(streams.out_of, array), streams.timer_out, told, array)
                streams.copier_out.submit(lambda: finish(bring))
        except BaseException as error:
            finish(lambda: None, error)

    def copy_across(self, value: Any, destination: Device, *, node: str) -> Any:
        if not isinstance(destination, CudaDevice):
            return super().copy_across(value, destination, node=node)
        moved = CudaValue(destination, destination.streams, value.dtype, node)
        moved.foreign = True
        streams = self._streams_to_read(value)
        told, charged = begun_copy(destination, DEVICE_TO_DEVICE, node), device_memory(destination)
        streams.issue(lambda: self._send_across(streams, value, destination, moved, told, charged))
        return moved

    def _send_across(
        self,
        streams: CudaStreams,
        value: CudaValue,
        destination: CudaDevice,
        moved: CudaValue,
        told: Told | None,
        charged: DeviceMemory | None,
    ) -> None:
        try:
            array = _contiguous(streams.array(value))
            ready = streams.recorded()
            receive = partial(destination._receive, moved.streams, array, self, ready, told)
            moved.streams.copier_in.submit(lambda: destination._bring(moved, receive, charged))
        except BaseException as error:
            moved.fail(self.explained(error, value.node), told=False)

    def _receive(
        self, streams: CudaStreams, array: Any, source: CudaDevice, ready: Any, told: Told | None
    ) -> tuple[Any, Any]:
        stream = streams.into.stream
        target = self.cupy.empty(array.shape, array.dtype)
        stream.wait_event(ready)

        def copy() -> None:
            self.cupy.cuda.runtime.memcpyPeerAsync(
                target.data.ptr, self.number, array.data.ptr, source.number, array.nbytes, stream.ptr
            )

        _timed(copy, streams.timer_in, told, array)()
        streams.copied_in.when_passed(lambda _, array=array: None)  # type: ignore[misc]  # which keeps the source
        return target, streams.into.sent(None)

    # Values that users hold in its memory

    def can_hold(self, dtype: DType) -> bool:
        """Like `Device.can_hold`."""
        return is_on_device(dtype)

    def holds(self, value: Any) -> bool:
        """Like `Device.holds`: CuPy's arrays there, arrays whose `__dlpack_device__` says so, and its own values."""
        return value.device is self if type(value) is CudaValue else self._exchange.holds(value)

    def take_in(self, value: Any, *, node: str) -> CudaValue:
        """Like `Device.take_in`.  Raises InvalidArgumentError if CuPy cannot take the value."""
        return value if type(value) is CudaValue else self._adopted(self._exchange.array_of(value, node), node)

    def shape_of(self, value: Any, *, node: str) -> Future[tuple[int, ...]]:
        """Like `Device.shape_of`, without a copy."""
        shape: Future[tuple[int, ...]] = Future()

        def look() -> None:
            try:
                shape.set_result(tuple(value.get().shape))
            except BaseException as error:
                shape.set_exception(self.explained(error, node))

        self._streams_to_read(value).issue(look)
        return shape

    def hand_out(self, value: Any, *, node: str) -> Future[Callable[[], Any]]:
        """Like `Device.hand_out`: a copy, made on the current stream of the thread that takes it."""
        given: Future[Callable[[], Any]] = Future()
        streams = self._streams_to_read(value)

        def issue() -> None:
            try:
                array, computed = streams.array(value), streams.recorded()
            except BaseException as error:
                given.set_exception(self.explained(error, node))
            else:
                given.set_result(lambda: self._exchange.copied(array, computed))

        streams.issue(issue)
        return given

    # Work

    def begin_work(self, on_error: OnError) -> CudaWork:
        self._exchange.let_go()
        return CudaWork(self, self.streams, on_error)

    def captured(self, sequence: CallSequence) -> CudaSequence:
        """Like `Device.captured`.  From then on CuPy's pinned memory comes from its default pool."""
        if not self._captures:
            guard_captures(self.cupy)
            self._captures = True
        return CudaSequence(self.cupy, self.memory.malloc, sequence)

    def record_event(self) -> DeviceEvent:
        event, streams = HostEvent(), list(self._all)
        told = all_passed(len(streams), event.fire)
        for each in streams:
            each.record_event().when_done(lambda: told(None))
        return event

    def limit_memory(self, num_bytes: int) -> None:
        self.memory_limit = num_bytes
        self.memory.limit(num_bytes)

    def stream_timer(self) -> CudaTimer:
        return streams_here().timer()

    async def close(self) -> None:
        """Like `Device.close`.  The memory goes back to the driver."""
        if self._closed:
            return
        self.issue(self._exchange.finish)
        await self.synchronise()
        self._closed = True
        _close(self._all)
        for streams in self._all:
            for thread in streams.threads:
                await thread.ended()
        self.memory.release()


def _close(every: Sequence[CudaStreams]) -> None:
    for streams in every:
        for thread in streams.threads:
            thread.close()


class CudaWork(QueuedWork):
    """The calls that one execution queues on a GPU, all on the streams that the device had when the execution began.

    Args:
        streams: the device's.
        on_error: as `Device.begin_work` takes it.
    """

    def __init__(self, device: CudaDevice, streams: CudaStreams, on_error: OnError) -> None:
        self._device = device
        self._streams = streams
        self._on_error = on_error
        self._memory = device_memory(device)
        self._stopped = False
        self._last: QueuedKernel | None = None

    def enqueue(self, kernel: QueuedKernel, arguments: Sequence[Any]) -> tuple[Any, ...]:
        device, streams, host = self._device, self._streams, kernel.host_outputs
        outputs: tuple[Any, ...] = tuple(
            [
                Future() if position in host else CudaValue(device, streams, dtype.np, kernel.name)
                for position, dtype in enumerate(kernel.output_types)
            ]
        )
        streams.issue(lambda: self._issue(kernel, arguments, outputs))
        return outputs

    def _issue(self, kernel: QueuedKernel, arguments: Sequence[Any], outputs: tuple[Any, ...]) -> None:
        device, streams = self._device, self._streams
        if self._stopped:
            error = errors.CancelledError(f"{{{{node {kernel.name}}}}} was not begun on {device.name}", derived=True)
            self._fail(kernel, arguments, outputs, error, told=True)
            return
        arguments = kernel.to_compute_with(arguments, lambda argument: _failed([argument]))
        failed = _failed(arguments)
        if failed is not None:
            assert failed.error is not None
            self._fail(kernel, arguments, outputs, failed.error, told=failed.told)
            return
        try:
            self._last = kernel
            with accounted(self._memory, kernel.name):
                made, foreign = streams.call(kernel, arguments)
            for output, value in zip(outputs, _as_tuple(made, len(outputs)), strict=True):
                self._deliver(kernel, output, value, foreign)
        except BaseException as error:
            self._fail(kernel, arguments, outputs, device.explained(error, kernel.name), told=False)

    def _fail(
        self,
        kernel: QueuedKernel,
        arguments: Sequence[Any],
        outputs: tuple[Any, ...],
        error: BaseException,
        *,
        told: bool,
    ) -> None:
        for position, output in enumerate(outputs):
            if position < kernel.updates:
                output.stay(arguments[position], kernel)
            elif isinstance(output, CudaValue):
                output.fail(error, told=True)
            elif not output.done():
                output.set_exception(error)
        if not told:
            self._on_error(kernel, error)

    def _deliver(self, kernel: QueuedKernel, output: Any, value: Any, foreign: Sequence[Any]) -> None:
        """Set an output to the kernel's result, which may be a view of an input."""
        device, streams = self._device, self._streams
        on_gpu = isinstance(value, device.xp.ndarray)
        if isinstance(output, CudaValue):
            output.position = streams.position
            if on_gpu and foreign:
                output.foreign = any(buffer_of(value) is buffer_of(array) for array in foreign)
            output.set(value if on_gpu else device.xp.asarray(value))
        elif on_gpu:
            made = CudaValue(device, streams, value.dtype, kernel.name)
            made.position = streams.position
            made.set(value)
            device.fetch(streams, made, kernel.name, output)
        else:
            output.set_result(np.asarray(value))

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._device.stopped_on(self._streams)

    def record_event(self) -> DeviceEvent:
        event = HostEvent()

        def passed(error: BaseException | None) -> None:
            # A kernel that fails while it runs is noticed here; it may be any of those since the last event.
            if error is not None and self._last is not None:
                self._on_error(self._last, self._device.explained(error, self._last.name))
            event.fire()

        self._streams.issue(lambda: self._streams.when_computed(passed))
        return event


def _timed(copy: Callable[[], T], timer: Callable[[], CudaTimer], told: Told | None, array: Any) -> Callable[[], T]:
    """The function that queues a copy of an array; if the copy is watched, it reports when the stream made it."""
    if told is None or not array.nbytes:
        return copy

    def timed() -> T:
        timing = timer()
        made = copy()
        num_bytes = array.nbytes
        timing.stop(lambda begin, end: told(timing.stream, begin, end, num_bytes))
        return made

    return timed


def _contiguous(array: Any) -> Any:
    return array if array.flags.c_contiguous else array.copy()


def _as_tuple(made: Any, count: int) -> tuple[Any, ...]:
    if count == 1 and not isinstance(made, tuple):
        return (made,)
    return () if made is None else tuple(made)


def _failed(arguments: Sequence[Any]) -> CudaValue | None:
    """The first argument that could not be made, or None; in the issuer."""
    for value in arguments:
        if type(value) is list:
            value = _failed(value)
        if type(value) is CudaValue and value.has_failed():
            return value
    return None


# Devices of this machine


@cache
def _cupy() -> Any:
    """CuPy.  Raises NotFoundError if it is not installed, or cannot be imported."""
    if importlib.util.find_spec("cupy") is None:
        raise errors.NotFoundError("GPUs need CuPy: install aexec[cuda12] or aexec[cuda13]")
    try:
        return importlib.import_module("cupy")
    except Exception as error:
        raise errors.NotFoundError(f"CuPy cannot be imported: {error}") from error


def _count(cupy: Any) -> int:
    """The number of GPUs; 0 if there is no driver."""
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        logger.info("No GPUs: %s", error)
        return 0


def make_cuda_devices(task: str, count: int | None) -> list[CudaDevice]:
    """The GPUs of this machine, at most `count`; none without CuPy, which is not imported if none are wanted."""
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
