"""The contract between the runtime and a device.

A **host device** computes in the host's memory: the executor calls its kernels itself, and its values are NumPy's
arrays. Any other device has memory and streams of its own.  A kernel is *queued* on it, and its outputs are passed on
at once as **device values**, which get their content when the device's stream reaches the call.  Others may read only a
device value's `dtype` and `size` (1 if the device does not know it yet).  A device value may be used in whatever is
queued on the device later, without waiting: the device sees to it that streams wait for each other, and keeps memory
until its streams have passed all uses. Implementations are in `aexec/devices`, one file each;
`aexec/devices/check_device.py` is the suite that they pass.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any

from aexec import proto
from aexec.framework import errors
from aexec.framework.device_contract.queued_kernel import CallSequence, CapturedCalls, QueuedKernel
from aexec.framework.dtypes import DType
from aexec.framework.html_repr import block, facts_table
from aexec.framework.memory.allocator import Allocator, AllocatorStats
from aexec.framework.waiting.futures import complete_on_loop

__all__ = [
    "Device",
    "DeviceEvent",
    "OnError",
    "QueuedWork",
    "StreamTimer",
    "copy_between",
    "no_value_yet",
]

# Callback(kernel, error) for a kernel that failed after it was queued, in any thread.
OnError = Callable[[QueuedKernel, BaseException], None]


def no_value_yet(kernel: QueuedKernel) -> errors.OpError:
    """The error for a variable whose first assignment, by this kernel, failed or was withdrawn."""
    return errors.FailedPreconditionError(
        f"Attempting to use uninitialized variables: the step in which {{{{node {kernel.name}}}}} was to assign to one "
        "has failed, or was cancelled"
    )


class DeviceEvent(abc.ABC):
    """A point in the queue of a device.  It has passed when all work before it is done, failed work included."""

    @property
    @abc.abstractmethod
    def done(self) -> bool:
        """True if the event has passed."""

    @abc.abstractmethod
    def when_done(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the event has passed: at once if it has, else in a thread of the device, which must not
        wait.
        """

    async def wait(self) -> None:
        """Wait for the event on the running event loop."""
        if self.done:
            return
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_done(lambda: complete_on_loop(passed, lambda future: future.set_result(None)))
        await passed


class QueuedWork(abc.ABC):
    """The calls that one execution queues on a device; made by `Device.begin_work`."""

    @abc.abstractmethod
    def enqueue(self, kernel: QueuedKernel, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Queue a kernel call and return its outputs without waiting for it.

        The caller may drop the arguments and the outputs at once.

        Args:
            arguments: for `kernel.compute`: device values of this device, NumPy arrays for inputs in host memory, and
                other objects, which are passed on.

        Returns:
            one value per output: a device value, or for an output in host memory the array or a future of it.

        Raises:
            OpError, or whatever the kernel raises, if it fails at once.  A later failure is reported to `on_error`;
                whatever
            is computed from its outputs fails with the same error, which is not reported again.
        """

    @abc.abstractmethod
    def stop(self) -> None:
        """Withdraw all calls of this work that have not begun, as far as the device can.  Does not wait."""

    @abc.abstractmethod
    def record_event(self) -> DeviceEvent:
        """An event that passes when all calls queued so far are done, and their errors have been reported."""


class StreamTimer(abc.ABC):
    """Measures, for a trace, the work queued on a stream between its making and `stop`.

    Attributes:
        stream: name of the stream, as traces show it.
    """

    stream: str

    @abc.abstractmethod
    def stop(self, told: Callable[[int, int], object]) -> None:
        """End the measurement: all work to be measured is queued.

        Args:
            told: called in a thread of the device with the times at which the stream began and ended the work, by
                `time.perf_counter_ns()`; not called if the stream fails.
        """


class Device(abc.ABC):
    """A place where kernels run, with its memory, streams and events.

    Attributes:
        name: full name, `/job:localhost/replica:0/task:0/device:CPU:0`.
        type: `CPU`, `GPU`, …: the device type of its kernels.
        xp: the array module of its kernels.
        memory_limit: bytes; 0 if unknown.
        incarnation: changes when the device is made anew.
        is_host: True if it computes in the host's memory.
        can_capture: True if it can record sequences of calls and replay them: see `captured`.
        allocator: the allocator of its memory.
        description: the hardware, for people.
    """

    name: str
    type: str
    xp: Any
    memory_limit: int = 0
    incarnation: int = 1
    is_host: bool = False
    can_capture: bool = False
    allocator: Allocator
    description: str = ""

    # Copies

    @abc.abstractmethod
    def copy_in(self, array: Any, *, node: str) -> Any:
        """A device value of an array in host memory, without waiting.

        Args:
            array: a NumPy array.  The device keeps it until it has read it; it must not be changed before.
            node: the node that needs it, for errors.

        Raises:
            InvalidArgumentError: strings, resources and variants, which are in host memory only.
            ResourceExhaustedError: there is not enough memory.  A device may raise this later, from what is computed
                from the value.
        """

    @abc.abstractmethod
    def copy_out(self, value: Any, *, node: str) -> Future[Any]:
        """A future of a device value as an array in host memory, completed in one of the device's threads.

        It fails with the error of the call that was to make the value.
        """

    def copy_across(self, value: Any, destination: Device, *, node: str) -> Any:
        """A device value of another device of this type, without waiting.  Raises as `copy_in`."""
        raise NotImplementedError(f"{type(self).__name__} copies to no other device")

    # Values that users hold in the device's memory

    def can_hold(self, dtype: DType) -> bool:
        """True if values of this type can be in the device's memory."""
        return dtype.is_simple

    def holds(self, value: Any) -> bool:
        """True if the value is in the device's memory: a result of `hand_out`, or a user's array of the device's
        kind.
        """
        return False

    def take_in(self, value: Any, *, node: str) -> Any:
        """A device value of an array that the device holds, without a copy; kept until its streams have passed all
        uses.

        Called in the user's thread: the device waits for what the user's current stream is doing to the value.

        Args:
            value: an array whose type the device can hold.
            node: the node that needs it, for errors.
        """
        return value

    def shape_of(self, value: Any, *, node: str) -> Future[tuple[int, ...]]:
        """A future of the shape of a device value; it fails with the error of the call that was to make the value.

        By default the value is copied to the host for that.
        """
        shape: Future[tuple[int, ...]] = Future()

        def copied(out: Future[Any]) -> None:
            error = out.exception()
            if error is None:
                shape.set_result(out.result().shape)
            else:
                shape.set_exception(error)

        self.copy_out(value, node=node).add_done_callback(copied)
        return shape

    def hand_out(self, value: Any, *, node: str) -> Future[Callable[[], Any]]:
        """Hand a device value to a user, in the device's memory, and not shared with others if it can be written to.

        Returns:
            a future of a function that returns the value.  Call it in the user's thread, whose current stream may use
                the
            value at once.  The future fails with the error of the call that was to make the value.
        """
        given: Future[Callable[[], Any]] = Future()
        given.set_result(lambda: value)
        return given

    # Work

    @abc.abstractmethod
    def begin_work(self, on_error: OnError) -> QueuedWork:
        """Begin the queued work of one execution.

        Args:
            on_error: called for each call that fails after it was queued.
        """

    def captured(self, sequence: CallSequence) -> CapturedCalls:
        """A kernel that makes the calls of a sequence; it returns a tuple of the sequence's outputs.

        Calls that cannot be replayed are made one after another.

        Raises:
            UnimplementedError: the device cannot capture calls.
        """
        raise errors.UnimplementedError(f"{self.name} captures no calls")

    def stream_timer(self) -> StreamTimer | None:
        """A timer of the kernel that is called next in this thread; None if a kernel is done when it returns."""
        return None

    @abc.abstractmethod
    def record_event(self) -> DeviceEvent:
        """An event that passes when everything that was queued so far is done, copies included."""

    async def synchronise(self) -> None:
        """Wait until everything that was queued so far is done."""
        await self.record_event().wait()

    def stats(self) -> AllocatorStats:
        """Statistics of the device's memory."""
        return self.allocator.stats()

    def limit_memory(self, num_bytes: int) -> None:
        """Limit the memory of the device to `num_bytes`.  Called before it is used.

        Raises:
            UnimplementedError: the device's memory cannot be limited.
        """
        raise errors.UnimplementedError(f"the memory of {self.name} cannot be limited: leave it out of memory_limits")

    async def close(self) -> None:
        """Wait until nothing runs on the device, and release its resources.  Nothing can be queued afterwards."""
        await self.synchronise()

    def to_proto(self) -> proto.DeviceAttributes:
        return proto.DeviceAttributes(
            name=self.name,
            device_type=self.type,
            memory_limit=self.memory_limit,
            incarnation=self.incarnation,
            physical_device_desc=self.description,
        )

    def memory_facts(self) -> str:
        """Bytes in use and the limit, for people; "" if they are not counted."""
        in_use, limit = self.stats().bytes_in_use, self.memory_limit
        return f"{in_use} of {limit} bytes" if limit else f"{in_use} bytes" if in_use else ""

    def _repr_html_(self) -> str:
        facts = {"type": self.type, "memory": self.memory_facts(), "description": self.description}
        return block("Device", self.name, facts_table(facts))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def _with_memory(device: Device | None) -> Device | None:
    """The device if it has memory of its own; None for a device of the host."""
    return None if device is None or device.is_host else device


def copy_between(source: Device | None, value: Any, destination: Device | None, *, node: str) -> Any:
    """A value of one device as one of another.  Host devices share their arrays.

    Args:
        source, destination: None for the host's memory.
        value: of `source`: an array in host memory, or a device value.
        node: the node that needs it, for errors.

    Returns:
        the value; or a future of it if the host has to wait for it: see `Device.copy_out`.

    Raises:
        as `Device.copy_in` does.
    """
    source, destination = _with_memory(source), _with_memory(destination)
    if source is destination:
        return value
    if destination is None:
        assert source is not None
        return source.copy_out(value, node=node)
    if source is None:
        return destination.copy_in(value, node=node)
    if source.type == destination.type:
        return source.copy_across(value, destination, node=node)
    through_host: Future[Any] = Future()
    of_step = copy_context()

    def copied_out(copied: Future[Any]) -> None:
        try:
            through_host.set_result(of_step.run(partial(destination.copy_in, copied.result(), node=node)))
        except BaseException as error:
            through_host.set_exception(error)

    source.copy_out(value, node=node).add_done_callback(copied_out)
    return through_host
