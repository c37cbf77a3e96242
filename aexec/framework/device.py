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
from typing import Any

from aexec import proto
from aexec.framework.allocator import Allocator, AllocatorStats
from aexec.framework.dtypes import DType
from aexec.framework.futures import complete_on_loop
from aexec.framework.late_dataclass import dataclass

__all__ = ["Device", "DeviceEvent", "OnError", "QueuedKernel", "QueuedWork", "StreamTimer", "copy_between"]

# Told the name of a node whose kernel failed after it was queued, and the error, in whichever thread.
OnError = Callable[["QueuedKernel", BaseException], None]


@dataclass(frozen=True, slots=True, eq=False)
class QueuedKernel:
    """A kernel of one node, as it is queued on a device.

    Attributes:
        name, op: the node's name and op type.
        compute: what is called with the arguments; device values, also in lists, are replaced by arrays of the device's
            `xp`.
        output_types: of the values that it gives.
        host_outputs: positions of those that live in host memory.
        takes_list: the inputs are one list, the last of the arguments.
    """

    name: str
    op: str
    compute: Callable[..., Any]
    output_types: Sequence[DType]
    host_outputs: frozenset[int] = frozenset()
    takes_list: bool = False


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
    """A place where kernels run.  See the module's head.

    Attributes:
        name: full name, `/job:localhost/replica:0/task:0/device:CPU:0`.
        type: `CPU`, `GPU`, …: what its kernels are registered under.
        xp: the array module of its kernels.
        memory_limit: bytes, 0 if not known.
        incarnation: changes when the device is made anew.
        is_host: it computes in the host's memory.
        allocator: where its memory comes from.
        description: what it is physically, for people.
    """

    name: str
    type: str
    xp: Any
    memory_limit: int = 0
    incarnation: int = 1
    is_host: bool = False
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

    # Work

    @abc.abstractmethod
    def begin_work(self, on_error: OnError) -> QueuedWork:
        """What an execution queues its kernel calls with.

        Args:
            on_error: told of each call that fails after it was queued.
        """

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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def copy_between(source: Device, value: Any, destination: Device, *, node: str) -> Any:
    """A value of one device as one of another.  Host devices share their arrays.

    Args:
        value: of `source`: what is in host memory, or a device value.
        node: who wants it, for messages.

    Returns:
        the value; or a future of it where the host has to wait for it: see `Device.copy_out`.

    Raises:
        as `Device.copy_in` does.
    """
    if source is destination or (source.is_host and destination.is_host):
        return value
    if source.is_host:
        return destination.copy_in(value, node=node)
    if destination.is_host:
        return source.copy_out(value, node=node)
    if source.type == destination.type:
        return source.copy_across(value, destination, node=node)
    through_host: Future[Any] = Future()

    def copied_out(copied: Future[Any]) -> None:
        try:
            through_host.set_result(destination.copy_in(copied.result(), node=node))
        except BaseException as error:
            through_host.set_exception(error)

    source.copy_out(value, node=node).add_done_callback(copied_out)
    return through_host
