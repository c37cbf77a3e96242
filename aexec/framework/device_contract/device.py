"""What a device is: the contract between the runtime and the places where kernels run.

A **host device** computes in the host's memory: the executor calls its kernels itself, and its values are NumPy's
arrays.  Any other device has memory and streams of its own.  A kernel is *queued* on it and its outputs travel on at
once, as **device values** that the device gives a meaning to when its stream gets there; others may ask their `dtype`
and `size` (1 where the device does not know it yet), and look into nothing else.  Values of one device may be used in
whatever is queued on it later, without waiting: which stream has to wait for which is the device's business, and so
is keeping memory until its streams have passed whoever uses it.
Implementations are in `aexec/devices`, one file each; `aexec/devices/check_device.py` is the suite that they pass.
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

# Told the name of a node whose kernel failed after it was queued, and the error, in whichever thread.
OnError = Callable[[QueuedKernel, BaseException], None]


def no_value_yet(kernel: QueuedKernel) -> errors.OpError:
    """Why there is no value of a variable whose first assignment, by this kernel, failed or was withdrawn."""
    return errors.FailedPreconditionError(
        f"Attempting to use uninitialized variables: the step in which {{{{node {kernel.name}}}}} was to assign to one "
        "has failed, or was cancelled"
    )


class DeviceEvent(abc.ABC):
    """A point in what is queued on a device.  It passes when all before it is done, whether that failed or not."""

    @property
    @abc.abstractmethod
    def done(self) -> bool:
        """Has it passed?"""

    @abc.abstractmethod
    def when_done(self, callback: Callable[[], object]) -> None:
        """Call back when it has passed: at once if it has, else in a thread of the device, which must not wait."""

    async def wait(self) -> None:
        """Wait for it on the running event loop."""
        if self.done:
            return
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_done(lambda: complete_on_loop(passed, lambda future: future.set_result(None)))
        await passed


class QueuedWork(abc.ABC):
    """What one execution queues on a device; `Device.begin_work` makes it."""

    @abc.abstractmethod
    def enqueue(self, kernel: QueuedKernel, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Queue a kernel call and return its outputs without waiting for it.

        The arguments, and the outputs, may be dropped at once.

        Args:
            arguments: what `kernel.compute` is called with: device values of this device, NumPy arrays for inputs in
                host memory, and whatever the device does not know, which is passed on.

        Returns:
            one value per output: a device value, or for an output in host memory the array, or a future of it.

        Raises:
            OpError, or whatever the kernel raises, if it fails at once.  What fails later is told to `on_error`,
            and whatever is computed from its outputs fails with the same error, untold.
        """

    @abc.abstractmethod
    def stop(self) -> None:
        """No call of this work begins any more, if the device can still withdraw it.  Nothing waits."""

    @abc.abstractmethod
    def record_event(self) -> DeviceEvent:
        """An event that passes when all calls queued so far are done; their errors have been told before."""


class StreamTimer(abc.ABC):
    """Measures, for a trace, what is queued on a stream between its making and `stop`.

    Attributes:
        stream: name of the stream, as traces show it.
    """

    stream: str

    @abc.abstractmethod
    def stop(self, told: Callable[[int, int], object]) -> None:
        """All that is to be measured is queued.

        Args:
            told: called in a thread of the device with when the stream began with it and when it was done, by
                `time.perf_counter_ns()`; not at all if the stream fails.
        """


class Device(abc.ABC):
    """A place where kernels run, with its memory, streams and events.

    Attributes:
        name: full name, `/job:localhost/replica:0/task:0/device:CPU:0`.
        type: `CPU`, `GPU`, …: what its kernels are registered under.
        xp: the array module of its kernels.
        memory_limit: bytes, 0 if not known.
        incarnation: changes when the device is made anew.
        is_host: it computes in the host's memory.
        can_capture: it records sequences of calls, and replays them: see `captured`.
        allocator: where its memory comes from.
        description: what it is physically, for people.
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
            array: a NumPy array, not to be changed until the device has read it: it is kept until then.
            node: who wants it, for messages.

        Raises:
            InvalidArgumentError: strings, resources and variants, which live in host memory alone.
            ResourceExhaustedError: there is not enough memory; or else what is computed from the value fails so.
        """

    @abc.abstractmethod
    def copy_out(self, value: Any, *, node: str) -> Future[Any]:
        """A device value as an array in host memory: a future that the device completes in one of its threads.

        It has the error of whatever failed to make the value.
        """

    def copy_across(self, value: Any, destination: Device, *, node: str) -> Any:
        """A device value of another device of this type, without waiting.  Raises as `copy_in`."""
        raise NotImplementedError(f"{type(self).__name__} copies to no other device")

    # What users hold in its memory

    def can_hold(self, dtype: DType) -> bool:
        """Can values of this type be in its memory?"""
        return dtype.is_simple

    def holds(self, value: Any) -> bool:
        """Is this in its memory: what `hand_out` gave, or an array of its own kind that a user has?"""
        return False

    def take_in(self, value: Any, *, node: str) -> Any:
        """A device value of what it holds, without a copy; it is kept until the device's streams have passed its use.

        Called in the user's thread: what the user's current stream does to the value by now is waited for there.

        Args:
            value: with elements of a type that the device can hold, and `dtype` and `shape`, if they are known.
            node: who wants it, for messages.
        """
        return value

    def shape_of(self, value: Any, *, node: str) -> Future[tuple[int, ...]]:
        """The shape of a device value, when it is known; it has the error of whatever failed to make the value.

        Devices that would have to copy the value for that need not do better.
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
        """What a user gets of a device value: in its memory, and his alone if it can be written to.

        Returns:
            a future of what gives it, to be called in the user's thread, whose current stream may use what that gives
            at once.  It has the error of whatever failed to make the value.
        """
        given: Future[Callable[[], Any]] = Future()
        given.set_result(lambda: value)
        return given

    # Work

    @abc.abstractmethod
    def begin_work(self, on_error: OnError) -> QueuedWork:
        """What an execution queues its kernel calls with.

        Args:
            on_error: told of each call that fails after it was queued.
        """

    def captured(self, sequence: CallSequence) -> CapturedCalls:
        """What makes calls of kernels as one kernel: called as these are, it gives a tuple of the sequence's outputs.

        Where the calls cannot be replayed it makes them one after another.

        Raises:
            UnimplementedError: the device captures none.
        """
        raise errors.UnimplementedError(f"{self.name} captures no calls")

    def stream_timer(self) -> StreamTimer | None:
        """What measures a kernel that is called now, in this thread; None if the kernel is done when it returns."""
        return None

    @abc.abstractmethod
    def record_event(self) -> DeviceEvent:
        """An event that passes when everything that was queued so far, copies too, is done."""

    async def synchronise(self) -> None:
        """Wait until everything that was queued so far is done."""
        await self.record_event().wait()

    def stats(self) -> AllocatorStats:
        """Use of its memory."""
        return self.allocator.stats()

    def limit_memory(self, num_bytes: int) -> None:
        """Let what is on it take so many bytes at most.  Called before anything is.

        Raises:
            UnimplementedError: it cannot be limited.
        """
        raise errors.UnimplementedError(f"the memory of {self.name} cannot be limited: leave it out of memory_limits")

    async def close(self) -> None:
        """Wait until nothing runs on it, and give back what it holds.  Nothing can be queued any more."""
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
        """How much of its memory is in use, and how much there is, for people; "" where nobody counts it."""
        in_use, limit = self.stats().bytes_in_use, self.memory_limit
        return f"{in_use} of {limit} bytes" if limit else f"{in_use} bytes" if in_use else ""

    def _repr_html_(self) -> str:
        facts = {"type": self.type, "memory": self.memory_facts(), "description": self.description}
        return block("Device", self.name, facts_table(facts))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def _with_memory(device: Device | None) -> Device | None:
    """A device with memory of its own; None for those of the host."""
    return None if device is None or device.is_host else device


def copy_between(source: Device | None, value: Any, destination: Device | None, *, node: str) -> Any:
    """A value of one device as one of another.  Host devices share their arrays.

    Args:
        source, destination: None for the host's memory, whoever's.
        value: of `source`: what is in host memory, or a device value.
        node: who wants it, for messages.

    Returns:
        the value; or a future of it where the host has to wait for it: see `Device.copy_out`.

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
