"""Tracing: records what each node of a step did, as TensorFlow's StepStats or as lines on stderr.

It costs nothing when unused: only a traced step wraps its kernels.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import CoroutineType
from typing import Any, Protocol

import numpy as np

from aexec import proto
from aexec.framework.device_contract.device_copies import DEVICE_TO_HOST, CopyingDevice, CopyWatcher, DeviceCopy
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory import log_memory
from aexec.framework.memory.allocation_logger import AllocationLogger
from aexec.framework.memory.allocator import TrackedAllocations, tracking_allocations, watching
from aexec.framework.memory.tensor_buffer import CPU_ALLOCATOR, buffer_of, num_bytes
from aexec.framework.memory.unshared import single_references
from aexec.framework.waiting.futures import AWAITABLE, PendingOutputs
from aexec.graph.partitioning.partition import TRANSFERS
from aexec.runtime.plans.plan import PlanNode
from aexec.runtime.profiling.self_time import SelfTime, awaited
from aexec.runtime.profiling.step_stats import COPIES, NodeMemory, StepStatsCollector, merge, transfer_text

__all__ = [
    "MemoryLogger",
    "NodeEvent",
    "NodePrinter",
    "OuterTracer",
    "StepTracer",
    "TimedReady",
    "Tracer",
    "debug_line",
    "once_there",
]


def debug_line(text: str) -> None:
    """One line of debugging output."""
    print(f"aexec: {text}", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Something that happened to a node.

    Attributes:
        seconds: the time since tracing began.
        frame_iter: the node's (frame id, iteration).
        event: `ready`, `started`, `done`, `failed: ...`, `cancelled` or `dead`; for control flow `passed on`.
        thread: the thread's name.
    """

    seconds: float
    frame_iter: tuple[int, int]
    event: str
    thread: str

    def __str__(self) -> str:
        frame, iteration = self.frame_iter
        where = f" in iteration {iteration} of frame {frame:x}" if frame or iteration else ""
        return f"{self.seconds:.6f} s {self.event}{where} ({self.thread})"


class TimedReady(list[PlanNode]):
    """An iteration's list of ready nodes with the `time.perf_counter_ns()` at which each became ready, by index."""

    def __init__(self, nodes: Sequence[PlanNode]) -> None:
        super().__init__(nodes)
        self.since = dict.fromkeys((node.index for node in nodes), time.perf_counter_ns())

    def append(self, node: PlanNode) -> None:
        self.since[node.index] = time.perf_counter_ns()
        super().append(node)


class StepTracer(Protocol):
    """Sees every kernel call of a step."""

    def wrap(
        self, node: PlanNode, compute: Callable[..., Any], frame_iter: tuple[int, int], ready: int
    ) -> Callable[..., Any]:
        """A compute callable that does the same, and is watched.

        Args:
            ready: `time.perf_counter_ns()` when the node became ready.
        """
        ...

    def note(self, node: PlanNode, frame_iter: tuple[int, int], event: str) -> None:
        """Record an event of a node that is no kernel call, such as `dead`."""
        ...

    def story(self, name: str) -> tuple[NodeEvent, ...]:
        """The events of the node with this name, if they are collected."""
        ...

    def to_proto(self) -> proto.StepStats | None:
        """The collected statistics; None if this tracer collects none."""
        ...

    @property
    def copies(self) -> CopyWatcher | None:
        """The watcher of the step's copies; None if they are not collected."""
        ...

    async def settle(self) -> None:
        """Wait for outstanding reports of devices."""
        ...


class NodePrinter:
    """A tracer that prints a line when a node begins, for AEXEC_DEBUG=3."""

    def __init__(self, step_id: int) -> None:
        self._step_id = step_id

    def wrap(
        self, node: PlanNode, compute: Callable[..., Any], frame_iter: tuple[int, int], ready: int
    ) -> Callable[..., Any]:
        """Print a line; return the same compute callable, which is about to be called."""
        debug_line(f"step {self._step_id}: {node.name} = {node.op}({', '.join(node.node.input_names())})")
        return compute

    def note(self, node: PlanNode, frame_iter: tuple[int, int], event: str) -> None:
        """Do nothing: only kernel calls are printed."""

    def story(self, name: str) -> tuple[NodeEvent, ...]:
        """Nothing is collected."""
        return ()

    def to_proto(self) -> None:
        """Nothing is collected."""

    @property
    def copies(self) -> None:
        """None: copies are not collected."""

    async def settle(self) -> None:
        """Do nothing."""


class OuterTracer:
    """A base class of tracers around another tracer or None; passes on everything but calls."""

    def __init__(self, inner: StepTracer | None) -> None:
        self._inner = inner

    def note(self, node: PlanNode, frame_iter: tuple[int, int], event: str) -> None:
        """Like the inner tracer."""
        if self._inner is not None:
            self._inner.note(node, frame_iter, event)

    def story(self, name: str) -> tuple[NodeEvent, ...]:
        """Like the inner tracer."""
        return () if self._inner is None else self._inner.story(name)

    def to_proto(self) -> proto.StepStats | None:
        """Like the inner tracer."""
        return None if self._inner is None else self._inner.to_proto()

    @property
    def copies(self) -> CopyWatcher | None:
        """The inner tracer's watcher."""
        return None if self._inner is None else self._inner.copies

    async def settle(self) -> None:
        """Like the inner tracer."""
        if self._inner is not None:
            await self._inner.settle()


class MemoryLogger(OuterTracer):
    """A tracer that writes the memory log of a step, around another tracer if there is one."""

    def __init__(self, step_id: int, inner: StepTracer | None) -> None:
        super().__init__(inner)
        self._step_id = step_id

    def wrap(
        self, node: PlanNode, compute: Callable[..., Any], frame_iter: tuple[int, int], ready: int
    ) -> Callable[..., Any]:
        """A compute callable that does the same, and logs its outputs and allocations."""
        if self._inner is not None:
            compute = self._inner.wrap(node, compute, frame_iter, ready)
        watcher = AllocationLogger(self._step_id, node.name)

        def record(out: Any, single: Sequence[bool] = ()) -> None:
            single = single or (False,) * (len(out) if type(out) is tuple else 1)
            for index, value in enumerate(out if type(out) is tuple else (out,)):
                if isinstance(value, np.ndarray | np.generic):
                    log_memory.record_tensor_allocation(self._step_id, node.name, value, single=single[index])
                    log_memory.record_tensor_output(self._step_id, node.name, index, value, single=single[index])

        if inspect.iscoroutinefunction(compute):

            async def logged_await(*inputs: Any) -> Any:
                with watching(watcher):
                    out = await compute(*inputs)
                single = single_references(out)
                record(out, single)
                return out

            return logged_await

        def logged(*inputs: Any) -> Any:
            with watching(watcher):
                out = compute(*inputs)
            if isinstance(out, AWAITABLE):
                return once_there(out, record)
            single = single_references(out)
            record(out, single)
            return out

        return logged


def once_there(
    out: Any, record: Callable[[Any], None], failed: Callable[[BaseException], None] = lambda error: None
) -> Any:
    """Call `record` with the outputs that a kernel waits for, or `failed`; return what to await instead."""
    if isinstance(out, PendingOutputs):

        def ended(_: Any) -> None:
            error = asyncio.CancelledError() if out.cancelled() else out.exception()
            if error is None:
                record(out.result())
            else:
                failed(error)

        out.when_ended(ended)
        return out
    return _recorded(out, record, failed)


async def _recorded(coroutine: Any, record: Callable[[Any], None], failed: Callable[[BaseException], None]) -> Any:
    try:
        out = await coroutine
    except BaseException as error:
        failed(error)
        raise
    record(out)
    return out


def _memory(tracked: TrackedAllocations, outputs: Sequence[Any], inputs: Sequence[Any]) -> NodeMemory | None:
    """The memory that a kernel allocated; None if all outputs are new, and nothing else is known."""
    used = tracked.used()
    # Most kernels let NumPy allocate: then only the outputs are known.
    own = {id(buffer) for wrapped in tracked.wrapped_allocators.values() for buffer in wrapped.live()}
    given = [a for value in inputs for a in (value if isinstance(value, list | tuple) else (value,)) if _is_array(a)]
    others = [a for a in outputs if _is_array(a) and id(buffer_of(a)) not in own]
    new = [a for a in others if not any(np.may_share_memory(a, other) for other in given)]
    if not used and len(new) == len(outputs):
        return None
    made = sum(map(num_bytes, new))
    if made:
        rest = proto.AllocatorMemoryUsed(
            allocator_name=CPU_ALLOCATOR, total_bytes=made, peak_bytes=made, live_bytes=made
        )
        used = (*used, rest)
    return NodeMemory(used, tracked.temp_bytes, tracked.persistent_bytes, tuple(tracked.persistent_ids))


def _memory_on_device(tracked: TrackedAllocations) -> NodeMemory | None:
    """The memory that a device's kernel allocated; None if it was not tracked, and only outputs are known.

    Memory that it freed before it returned is its scratch memory.
    """
    used = tracked.used()
    if not used:
        return None
    temporary = sum(each.peak_bytes - each.live_bytes for each in used)
    return NodeMemory(used, temporary, tracked.persistent_bytes, tuple(tracked.persistent_ids))


def _label_inputs(node: PlanNode, frame_iter: tuple[int, int]) -> Sequence[str] | str:
    if node.op in TRANSFERS:
        return transfer_text(node.op, node.node.attrs, frame_iter)
    return node.node.traced_inputs()


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


class _WatchedCall:
    """A call of a kernel in a step that is traced.

    Args:
        ready: `time.perf_counter_ns()` when the node became ready.
    """

    def __init__(
        self,
        tracer: Tracer,
        node: PlanNode,
        compute: Callable[..., Any],
        frame_iter: tuple[int, int],
        ready: int,
    ) -> None:
        self._taken = time.perf_counter_ns()
        self._tracer = tracer
        self._node = node
        self._device = node.queued_on
        self._compute = compute
        self._frame_iter = frame_iter
        self._ready = ready
        memory = CPU_ALLOCATOR if node.queued_on is None else node.queued_on.allocator.name
        self._collector = tracer.collector(node.device, memory)

    def _failed(self, error: BaseException) -> None:
        cancelled = isinstance(error, asyncio.CancelledError)
        said = "cancelled" if cancelled else f"failed: {type(error).__name__}: {error}"
        self._tracer.note(self._node, self._frame_iter, said)

    def _record(
        self,
        start: int,
        out: Any,
        tracked: TrackedAllocations,
        self_time: SelfTime | None,
        inputs: Sequence[Any] = (),
        single: Sequence[bool] = (),
        end: int = 0,
        thread: int | str = 0,
    ) -> None:
        end = end or time.perf_counter_ns()
        with SelfTime():  # so that recording does not count for a call around this one
            self._tracer.note(self._node, self._frame_iter, "done")
            outputs = out if type(out) is tuple else () if out is None else (out,)
            self._collector.node_done(
                self._node.name,
                self._node.op,
                _label_inputs(self._node, self._frame_iter),
                self._tracer.epoch + self._ready,
                self._tracer.epoch + start,
                self._tracer.epoch + end,
                outputs,
                thread or threading.get_ident(),
                _memory(tracked, outputs, inputs) if self._device is None else _memory_on_device(tracked),
                None if self_time is None else self_time.nanoseconds,
                taken_ns=self._tracer.epoch + self._taken,
                single=single,
            )

    async def await_it(self, *inputs: Any) -> Any:
        """Await the kernel, which is a coroutine function, and return its outputs."""
        start, self_time = time.perf_counter_ns(), SelfTime()
        self._tracer.note(self._node, self._frame_iter, "started")
        try:
            with tracking_allocations() as tracked:
                out = await awaited(self._compute(*inputs), self_time)
        except BaseException as error:
            self._failed(error)
            raise
        single = single_references(out)
        self._record(start, out, tracked, self_time, (), single)
        return out

    def call(self, *inputs: Any) -> Any:
        """Call the kernel and return its outputs, or an awaitable of them."""
        start, self_time = time.perf_counter_ns(), SelfTime()
        self._tracer.note(self._node, self._frame_iter, "started")
        timer = None if self._device is None else self._device.stream_timer()
        try:
            with tracking_allocations() as tracked, self_time:
                returned = self._compute(*inputs)
        except BaseException as error:
            self._failed(error)
            raise
        if isinstance(returned, AWAITABLE):
            if type(returned) is CoroutineType:
                returned = awaited(returned, self_time)
            return once_there(returned, lambda out: self._record(start, out, tracked, self_time), self._failed)
        if timer is not None:
            stream = timer.stream
            timer.stop(lambda begin, end: self._record(begin, returned, tracked, None, inputs, (), end, stream))
            return returned
        single = single_references(returned)
        self._record(start, returned, tracked, self_time if self_time.nested else None, inputs, single)
        return returned


class Tracer:
    """A tracer that collects the events and statistics of each node, by device.

    Args:
        device: the device to report if no node runs.

    Attributes:
        epoch: nanoseconds to add to the monotonic clock to get nanoseconds since the epoch.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._collectors: dict[str, StepStatsCollector] = {}
        self._began = time.perf_counter_ns()
        # Converts times of the monotonic clock to nanoseconds since the epoch.
        self.epoch = time.time_ns() - self._began
        self._events: dict[str, list[NodeEvent]] = {}
        self._copying: set[CopyingDevice] = set()

    def collector(self, device: str, allocator: str = CPU_ALLOCATOR) -> StepStatsCollector:
        """Return the collector for the nodes of a device; "" means the step's device."""
        device = device or self._device
        found = self._collectors.get(device)
        if found is None:
            found = self._collectors[device] = StepStatsCollector(device, allocator)
        return found

    def copy_begun(self, device: CopyingDevice) -> None:
        """Like `CopyWatcher.copy_begun`."""
        self._copying.add(device)

    def copied(self, copy: DeviceCopy) -> None:
        """Like `CopyWatcher.copied`."""
        name = copy.device.name + COPIES
        collector = self._collectors.get(name)
        if collector is None:
            # Several streams of a device may be the first to report at the same time.
            collector = self._collectors.setdefault(name, StepStatsCollector(name, source=False))
        allocator = CPU_ALLOCATOR if copy.kind == DEVICE_TO_HOST else copy.device.allocator.name
        begin, end = self.epoch + copy.begin, self.epoch + copy.end
        collector.copy_done(copy.node, copy.kind, copy.stream, begin, end, allocator, copy.num_bytes)

    @property
    def copies(self) -> CopyWatcher:
        """This tracer."""
        return self

    async def settle(self) -> None:
        """Wait until devices have made and reported the copies queued so far."""
        for device in self._copying:
            await device.synchronise()

    def note(self, node: PlanNode, frame_iter: tuple[int, int], event: str) -> None:
        """Record an event of a node.  Called from any thread."""
        self._note(node, frame_iter, event, time.perf_counter_ns())

    def _note(self, node: PlanNode, frame_iter: tuple[int, int], event: str, when: int) -> None:
        seconds = (when - self._began) * 1e-9
        happened = NodeEvent(seconds, frame_iter, event, threading.current_thread().name)
        self._events.setdefault(node.name, []).append(happened)

    def story(self, name: str) -> tuple[NodeEvent, ...]:
        """The events of the node with this name, in order."""
        return tuple(self._events.get(name, ()))

    def wrap(
        self, node: PlanNode, compute: Callable[..., Any], frame_iter: tuple[int, int], ready: int
    ) -> Callable[..., Any]:
        """A compute callable that does the same and records it."""
        watched = _WatchedCall(self, node, compute, frame_iter, ready)
        self._note(node, frame_iter, "ready", ready)
        return watched.await_it if inspect.iscoroutinefunction(compute) else watched.call

    def to_proto(self) -> proto.StepStats:
        collectors = self._collectors or {self._device: self.collector(self._device)}
        return merge(collectors[device].to_proto() for device in sorted(collectors))
