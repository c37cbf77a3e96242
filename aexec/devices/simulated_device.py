"""`SimulatedDevice`: a device with streams, memory of its own and a strict checker, for a machine without a GPU.

It has a compute stream and one for copies in each direction, each a thread.  Kernels are called on the compute stream's
thread with read-only NumPy arrays; their results are copied into the device's memory.  A device value
(`SimulatedArray`) is a handle of a buffer that is filled when a stream gets there.  When the last reference to the
handle is dropped, the buffer's memory is freed at once, whatever the streams are doing, so only the device's `_keep`
keeps it alive.  `stream_checker.py` checks every access.

A graph's nodes run on `SIM:0`, `SIM:1`, … of a session made with `device_count={"SIM": n}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from time import perf_counter_ns
from typing import Any, NoReturn
from weakref import finalize

import numpy as np

from aexec.devices.simulated_faults import Faults, SimulatedTiming
from aexec.devices.simulated_stream import AllEvents, SimulatedEvent, SimulatedStream
from aexec.devices.stream_checker import StreamChecker, TrackedBuffer
from aexec.framework import errors
from aexec.framework.device_contract.device import Device, DeviceEvent, OnError, QueuedWork, no_value_yet
from aexec.framework.device_contract.device_copies import (
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    Told,
    begun_copy,
)
from aexec.framework.device_contract.device_memory import DeviceMemory, accounted, device_memory, without_arrays
from aexec.framework.device_contract.queued_kernel import QueuedKernel
from aexec.framework.dtypes import DType, from_numpy
from aexec.framework.memory.allocator import CpuAllocator, watched
from aexec.framework.memory.unique_tensor_references import UniqueTensorReferences
from aexec.kernels.common.portable import register_portable_kernels

__all__ = ["SimulatedArray", "SimulatedDevice", "make_simulated_devices", "simulated_devices"]

_incarnations = count(1)
# The number of largest allocations that an error lists.
_LISTED = 5


@dataclass(slots=True, eq=False)
class _Failure:
    """Why a buffer could not be filled; buffers computed from it fail for the same reason.

    Attributes:
        error: the reason.
        told: True if it was reported.
    """

    error: BaseException
    told: bool


class _FailureError(Exception):
    """Raised by reading a buffer that could not be filled."""

    def __init__(self, failure: _Failure) -> None:
        super().__init__(failure.error)
        self.failure = failure


@dataclass(slots=True, eq=False)
class _Buffer(TrackedBuffer):
    """Memory of the device, once a stream has filled it.

    Attributes:
        dtype: of its elements.
        ready: passes when it is filled; None while nothing that fills it was queued.
        filled_by: the stream that fills it.
        array: its content.
        failure: why it could not be filled, or None.
    """

    dtype: DType = field(kw_only=True)
    ready: SimulatedEvent | None = None
    filled_by: SimulatedStream | None = None
    array: Any = None
    failure: _Failure | None = None

    def fill(self, array: Any) -> None:
        # The handle may have been dropped: the buffer must then not be allocated again.
        self.array = None if self.freed else array

    def read(self) -> Any:
        if self.failure is not None:
            raise _FailureError(self.failure)
        return self.array

    def fail(self, error: BaseException, *, told: bool) -> None:
        """Record that it will not be filled.

        Args:
            told: True if the caller that queued the work has got the error.
        """
        self.failure = error.failure if isinstance(error, _FailureError) else _Failure(error, told)


class _LookedIntoError(errors.InternalError, AttributeError):
    """The host reads something of a device value that only a host array has."""


class SimulatedArray:
    """A device value: the handle of a buffer.

    Attributes:
        dtype: NumPy's dtype of its elements.
        size: 1; the number of elements is known only when the stream has filled it.
    """

    __slots__ = ("__weakref__", "_buffer", "_device", "dtype")

    size = 1

    def __init__(self, device: SimulatedDevice, buffer: _Buffer) -> None:
        self._device = device
        self._buffer = buffer
        self.dtype = buffer.dtype.np

    def __del__(self) -> None:
        if hasattr(self, "_device"):  # False if __init__ failed
            self._device.free(self)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise self._looked_into()

    def __getattr__(self, name: str) -> NoReturn:
        # Private names are looked up by code that inspects objects.
        raise AttributeError(name) if name.startswith("_") else self._looked_into()

    def _looked_into(self) -> _LookedIntoError:
        return _LookedIntoError(
            f"the host looks into {self!r}, which is in the memory of {self._device.name}: expected a copy"
        )

    def __repr__(self) -> str:
        return f"<SimulatedArray of {{{{node {self._buffer.made_by}}}}} on {self._device.name}>"


class SimulatedDevice(Device):
    """A device made of threads, with its own memory, which reports each use of a buffer without its event.

    Args:
        name: full name.
        checker: shared by the devices between which values may be copied.
        memory_limit: bytes; 0 for no limit.
        timing: how long things take.

    Attributes:
        faults: the failures to simulate.
    """

    type = "SIM"
    xp = np

    def __init__(
        self,
        name: str,
        checker: StreamChecker | None = None,
        *,
        memory_limit: int = 0,
        timing: SimulatedTiming | None = None,
    ) -> None:
        self.name = name
        self.incarnation = next(_incarnations)
        self.memory_limit = memory_limit
        self.short_name = name.rpartition("device:")[2]
        self.allocator = CpuAllocator(self.short_name, memory_limit or None)
        self.checker = checker or StreamChecker()
        self.timing = timing or SimulatedTiming()
        self.faults = Faults()
        self._live: dict[int, _Buffer] = {}
        # Includes streams that were left to the work of a stopped step.
        self._streams = self._make_streams()
        finalize(self, _close, self._streams)

    def _make_streams(self) -> list[SimulatedStream]:
        self.compute_stream = self._stream("compute")
        self._in, self._out = self._stream("host-to-device"), self._stream("device-to-host")
        return [self.compute_stream, self._in, self._out]

    def _stream(self, name: str) -> SimulatedStream:
        return SimulatedStream(f"{self.short_name} {name} stream", self.checker)

    # Memory

    def allocate(self, node: str, dtype: DType) -> SimulatedArray:
        """A value that is not filled yet."""
        return SimulatedArray(self, _Buffer(node, dtype=dtype))

    def free(self, value: SimulatedArray) -> None:
        """Free the memory of a value, now."""
        buffer = value._buffer
        if not buffer.freed:
            self.checker.free(buffer)
            self._live.pop(id(buffer), None)
            buffer.array = None

    def _in_memory(self, array: Any, dtype: DType, node: str, charged: DeviceMemory | None) -> Any:
        """The result of a kernel or a copy, in the device's memory; on a stream's thread.

        Args:
            charged: accounts for that memory, or None.
        """
        array = np.asarray(array)
        if array.dtype != dtype.np:
            raise errors.InternalError(
                f"Output of type {array.dtype} does not match declared output type {dtype}", node=node
            )
        try:
            self.faults.before_allocation(node)
            with accounted(charged, node):
                memory = watched(self.allocator).allocate_tensor(array.shape, dtype, self.name)
        except errors.ResourceExhaustedError as error:
            raise errors.ResourceExhaustedError(f"{error.message}\n{self._largest()}", node=node) from None
        np.copyto(memory, array)
        memory.flags.writeable = False
        return memory

    def _fill(self, buffer: _Buffer, memory: Any) -> None:
        buffer.fill(memory)
        if not buffer.freed:
            self._live[id(buffer)] = buffer

    def live_allocations(self) -> list[tuple[int, str]]:
        """(bytes, node) of the buffers in its memory, the largest first."""
        live = [(b.array.nbytes, b.made_by) for b in list(self._live.values()) if b.array is not None]
        return sorted(live, reverse=True)

    def _largest(self) -> str:
        """The largest live allocations, one a line."""
        lines = [f"  {num_bytes} bytes of {{{{node {node}}}}}" for num_bytes, node in self.live_allocations()]
        return "\n".join([f"The largest of {len(lines)} live allocations on {self.name}:", *lines[:_LISTED]])

    # Order and lifetime, which the strict checker checks

    def _issue(self, stream: SimulatedStream, node: str, values: Sequence[SimulatedArray]) -> None:
        """Order the next operation on a stream after the work that fills the values it reads."""
        for value in values:
            ready = value._buffer.ready
            if ready is not None and value._buffer.filled_by is not stream:
                stream.wait_for(ready, node)
        self.checker.issue(stream.clock)

    def _finish(
        self, stream: SimulatedStream, read: Sequence[SimulatedArray], written: Sequence[SimulatedArray]
    ) -> SimulatedEvent:
        """Return the event of the work just queued; readers of the written values wait for it."""
        event = stream.record()
        for value in written:
            value._buffer.ready, value._buffer.filled_by = event, stream
        self._keep(event, (*read, *written))
        return event

    def _keep(self, event: SimulatedEvent, values: Sequence[SimulatedArray]) -> None:
        """Keep values until an event has passed."""
        references = UniqueTensorReferences()
        for value in values:
            references.add(value)
        event.keep((value._buffer, value) for value in references.freeze())

    def _own(self, value: Any, node: str) -> SimulatedArray:
        if not isinstance(value, SimulatedArray):
            raise errors.InternalError(f"{{{{node {node}}}}} uses {value!r} on {self.name}: expected a copy", node=node)
        if value._device is not self:
            raise errors.InternalError(
                f"{{{{node {node}}}}} uses the buffer of {{{{node {value._buffer.made_by}}}}} on {self.short_name}, "
                f"which is on {value._device.short_name}: expected a copy",
                node=node,
            )
        return value

    def queue(
        self,
        stream: SimulatedStream,
        node: str,
        work: Callable[[], None],
        *,
        read: Sequence[SimulatedArray] = (),
        written: Sequence[SimulatedArray] = (),
        to_host: _Buffer | None = None,
    ) -> SimulatedEvent:
        """Queue a kernel call or a copy.

        Args:
            read, written: the values that it reads and writes.
            to_host: the buffer in host memory that it writes.

        Returns:
            the event behind it.
        """
        checker = self.checker
        with checker.lock:
            checker.check()
            stream.check_open()
            self._issue(stream, node, read)
            for value in read:
                checker.read(value._buffer, stream.clock, node)
            for value in written:
                checker.write(value._buffer, stream.clock, node)
            if to_host is not None:
                checker.write(to_host, stream.clock, node)
            stream.submit(work)
            return self._finish(stream, read, written)

    def hand_over(
        self, event: SimulatedEvent, future: Future[Any], result: _Buffer, node: str, kept: object = None
    ) -> None:
        """Complete a future, after an event, with the value that a stream has written to host memory.

        Args:
            kept: kept until then.
        """

        def complete(_kept: object = kept) -> None:
            try:
                self.checker.taken(result, event.seen, node)
                array = result.read()
            except _FailureError as error:
                error.failure.told = True
                future.set_exception(error.failure.error)
            except errors.OpError as error:
                future.set_exception(error)
            else:
                future.set_result(array)

        event.when_done(complete)

    # Copies

    def copy_in(self, array: Any, *, node: str) -> SimulatedArray:
        dtype = from_numpy(array.dtype)
        if not dtype.is_simple:
            raise errors.InvalidArgumentError(
                f"Non-DMA-safe {dtype} tensor may not be copied from/to a device: expected it in host memory", node=node
            )
        value = self.allocate(node, dtype)
        buffer = value._buffer
        told, charged = begun_copy(self, HOST_TO_DEVICE, node), device_memory(self)

        with self.checker.lock:  # `_in` may be replaced while the lock is not held
            stream = self._in
            copy = partial(self._guarded, buffer, node, lambda: array, stream, told, charged)
            self.queue(stream, node, copy, written=[value])
        return value

    def copy_out(self, value: Any, *, node: str) -> Future[Any]:
        buffer = self._own(value, node)._buffer
        result = _Buffer(node, dtype=buffer.dtype)
        copied: Future[Any] = Future()
        told = begun_copy(self, DEVICE_TO_HOST, node)

        def copy() -> None:
            begin = perf_counter_ns()
            try:
                array = buffer.read()
                self.timing.copy(array.nbytes)
                result.array = array.copy()
            except BaseException as error:
                result.fail(error, told=False)
            else:
                if told is not None:
                    told(f"aexec-{stream.name}", begin, perf_counter_ns(), array.nbytes)

        with self.checker.lock:
            stream = self._out
            event = self.queue(stream, node, copy, read=[value], to_host=result)
        self.hand_over(event, copied, result, node)
        return copied

    def copy_across(self, value: Any, destination: Device, *, node: str) -> SimulatedArray:
        """Like `Device.copy_across`.  Raises InvalidArgumentError for a device of another session."""
        if not isinstance(destination, SimulatedDevice) or destination.checker is not self.checker:
            raise errors.InvalidArgumentError(
                f"{self.name} cannot copy to {destination!r}: expected a device made together with it", node=node
            )
        buffer = self._own(value, node)._buffer
        copied = destination.allocate(node, buffer.dtype)
        told, charged = begun_copy(destination, DEVICE_TO_DEVICE, node), device_memory(destination)
        with self.checker.lock:
            stream = destination._in
            copy = partial(destination._guarded, copied._buffer, node, buffer.read, stream, told, charged)
            self.queue(stream, node, copy, read=[value], written=[copied])
        return copied

    def _guarded(
        self,
        buffer: _Buffer,
        node: str,
        read: Callable[[], Any],
        stream: SimulatedStream,
        told: Told | None,
        charged: DeviceMemory | None,
    ) -> None:
        begin = perf_counter_ns()
        try:
            array = read()
            self.timing.copy(array.nbytes)
            self._fill(buffer, self._in_memory(array, buffer.dtype, node, charged))
        except BaseException as error:
            buffer.fail(without_arrays(error), told=False)
        else:
            if told is not None:
                told(f"aexec-{stream.name}", begin, perf_counter_ns(), array.nbytes)

    def holds(self, value: Any) -> bool:
        """Like `Device.holds`: its own values, which it hands out."""
        return isinstance(value, SimulatedArray) and value._device is self

    def shape_of(self, value: Any, *, node: str) -> Future[tuple[int, ...]]:
        """Like `Device.shape_of`, without a copy."""
        buffer, shape = self._own(value, node)._buffer, Future[tuple[int, ...]]()

        def look(_kept: object = value) -> None:
            try:
                shape.set_result(buffer.read().shape)
            except _FailureError as error:
                shape.set_exception(error.failure.error)

        assert buffer.ready is not None
        buffer.ready.when_done(look)
        return shape

    def hand_out(self, value: Any, *, node: str) -> Future[Callable[[], Any]]:
        """Like `Device.hand_out`: the value itself, whose memory is the caller's when it is filled."""
        memory, buffer = device_memory(self), self._own(value, node)._buffer
        if memory is not None and buffer.ready is not None:
            buffer.ready.when_done(lambda: memory.hand_out(buffer.array))
        return super().hand_out(value, node=node)

    # Work

    def limit_memory(self, num_bytes: int) -> None:
        self.memory_limit = num_bytes
        self.allocator = CpuAllocator(self.short_name, num_bytes)

    def begin_work(self, on_error: OnError) -> QueuedWork:
        return _Work(self, on_error)

    def record_event(self) -> DeviceEvent:
        self.checker.check()
        return AllEvents([stream.last for stream in self._streams if stream.last is not None])

    def leave_streams(self) -> None:
        """Use other streams: the work queued on the present ones, and copies that wait for it, are not waited for."""
        with self.checker.lock:
            _close(self._streams)
            left = [stream for stream in self._streams if stream.running]
            for stream in self._streams:
                if stream not in left:
                    self.checker.end_stream(stream.clock)
            self._streams[:] = [*left, *self._make_streams()]

    async def close(self) -> None:
        try:
            await self.synchronise()
        finally:
            _close(self._streams)
            for stream in self._streams:
                await stream.ended()
        self.checker.check()


class _Work(QueuedWork):
    """The kernel calls of one execution."""

    def __init__(self, device: SimulatedDevice, on_error: OnError) -> None:
        self._device = device
        self._on_error = on_error
        self._memory = device_memory(device)
        self._stopped = False
        self._last: SimulatedEvent | None = None

    def enqueue(self, kernel: QueuedKernel, arguments: Sequence[Any]) -> tuple[Any, ...]:
        device, name = self._device, kernel.name
        values: list[SimulatedArray] = []

        def buffer_of_value(value: SimulatedArray) -> _Buffer:
            values.append(device._own(value, name))
            return value._buffer

        # The stream refers to buffers, not handles, so that it does not keep the handles alive.
        raw = _mapped(arguments, SimulatedArray, buffer_of_value)
        outputs = [device.allocate(name, dtype) for dtype in kernel.output_types]
        buffers = [output._buffer for output in outputs]
        with device.checker.lock:
            self._last = device.queue(
                device.compute_stream, name, lambda: self._run(kernel, raw, buffers), read=values, written=outputs
            )
        return tuple(
            self._host_output(output, name) if position in kernel.host_outputs else output
            for position, output in enumerate(outputs)
        )

    def _host_output(self, output: SimulatedArray, node: str) -> Future[Any]:
        assert self._last is not None
        given: Future[Any] = Future()
        self._device.hand_over(self._last, given, output._buffer, node, output)
        return given

    def _run(self, kernel: QueuedKernel, raw: list[Any], buffers: list[_Buffer]) -> None:
        """Call the kernel; on the stream's thread."""
        device = self._device
        try:
            if self._stopped:
                raise errors.CancelledError("the step was stopped before this call began")
            arguments = _mapped(kernel.to_compute_with(raw, _has_failed), _Buffer, _Buffer.read)
            device.faults.before_kernel(kernel.name)
            device.timing.compute()
            with np.errstate(all="ignore"):
                outputs = kernel.compute(*arguments)
            for position, output in enumerate(_as_tuple(outputs, kernel)):
                if position in kernel.host_outputs:
                    buffers[position].fill(np.asarray(output))
                else:
                    memory = device._in_memory(output, kernel.output_types[position], kernel.name, self._memory)
                    device._fill(buffers[position], memory)
        except BaseException as caught:
            error = without_arrays(caught)
            for position, buffer in enumerate(buffers):
                if position < kernel.updates:
                    _leave(buffer, raw[position], kernel)
                else:
                    buffer.fail(error, told=True)
            if self._stopped:
                return
            if not isinstance(error, _FailureError):
                self._on_error(kernel, error)
            elif not error.failure.told:
                error.failure.told = True
                self._on_error(kernel, error.failure.error)

    def stop(self) -> None:
        self._stopped = True
        if self._last is not None and not self._last.has_passed():
            self._device.leave_streams()

    def record_event(self) -> DeviceEvent:
        self._device.checker.check()
        return AllEvents([] if self._last is None else [self._last])


def _has_failed(argument: Any) -> bool:
    return isinstance(argument, _Buffer) and argument.failure is not None


def _leave(buffer: _Buffer, before: Any, kernel: QueuedKernel) -> None:
    """Set the new value of a variable to the one before: its update was not made."""
    if not isinstance(before, _Buffer):
        buffer.fail(no_value_yet(kernel), told=False)
    elif before.failure is not None:
        buffer.failure = before.failure
    else:
        buffer.fill(before.array)


def _mapped(arguments: Sequence[Any], kind: type, function: Callable[[Any], Any]) -> list[Any]:
    """The arguments of a call with those of type `kind` replaced; inputs may be in a list."""
    return [
        function(argument)
        if isinstance(argument, kind)
        else _mapped(argument, kind, function)
        if type(argument) is list
        else argument
        for argument in arguments
    ]


def _as_tuple(outputs: Any, kernel: QueuedKernel) -> tuple[Any, ...]:
    given = outputs if isinstance(outputs, tuple) else () if outputs is None else (outputs,)
    if not kernel.output_types:
        return ()
    if len(given) != len(kernel.output_types):
        raise errors.InternalError(
            f"Kernel of {{{{node {kernel.name}}}}} ({kernel.op}) returned {len(given)} outputs, "
            f"expected {len(kernel.output_types)}",
            node=kernel.name,
        )
    return given


def _close(streams: Sequence[SimulatedStream]) -> None:
    for stream in streams:
        stream.close()


# Making them

_settings: list[tuple[dict[str, Any], list[SimulatedDevice]]] = []


def make_simulated_devices(task: str, count: int | None) -> list[SimulatedDevice]:
    """The simulated devices of a session: none unless they are requested.  See `device_registry.DeviceFactory`."""
    settings, made = _settings[-1] if _settings else ({}, [])
    if not count:
        return []
    register_portable_kernels("SIM", keeps_variables=True)
    checker = StreamChecker()
    devices = [SimulatedDevice(f"{task}/device:SIM:{i}", checker, **settings) for i in range(count)]
    made += devices
    return devices


@contextmanager
def simulated_devices(**settings: Any) -> Iterator[list[SimulatedDevice]]:
    """Context manager: sessions get simulated devices with these settings; yields the list of those that they got.

    Args:
        settings: keyword arguments of `SimulatedDevice`.
    """
    made: list[SimulatedDevice] = []
    _settings.append((settings, made))
    try:
        yield made
    finally:
        _settings.pop()
