"""Tracing: what each node of a step did, as TensorFlow's StepStats or as lines on stderr.

A hook that costs nothing when unused: only a traced step wraps its kernels.
`AEXEC_DEBUG` turns on, level by level: 1 the executor checks its invariants after every
slice and every output against its op's definition, 2 a line per step, 3 a line per node.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import time
from collections.abc import Callable
from types import CoroutineType
from typing import Any, Protocol

import numpy as np

from aexec import proto
from aexec.framework.allocator import TrackingAllocator, tracking_allocations
from aexec.framework.futures import PendingOutputs
from aexec.runtime import log_memory
from aexec.runtime.plan import PlanNode
from aexec.runtime.step_stats import NodeMemory, StepStatsCollector, merge

__all__ = ["DEBUG", "MemoryLogger", "NodePrinter", "StepTracer", "Tracer", "debug_line"]


def _debug_level() -> int:
    text = os.environ.get("AEXEC_DEBUG", "")
    return int(text) if text.isdigit() else 0


DEBUG = _debug_level()


def debug_line(text: str) -> None:
    """One line of debugging output."""
    print(f"aexec: {text}", file=sys.stderr)


class StepTracer(Protocol):
    """Sees every kernel call of a step."""

    def wrap(self, node: PlanNode, compute: Callable[..., Any]) -> Callable[..., Any]:
        """A compute callable that does the same, and is watched."""
        ...

    def to_proto(self) -> proto.StepStats | None:
        """What was collected, if anything is."""
        ...


class NodePrinter:
    """A tracer that prints a line when a node begins, as AEXEC_DEBUG=3 asks."""

    def __init__(self, step_id: int) -> None:
        self._step_id = step_id

    def wrap(self, node: PlanNode, compute: Callable[..., Any]) -> Callable[..., Any]:
        """The same compute callable: it is about to be called."""
        debug_line(f"step {self._step_id}: {node.name} = {node.op}({', '.join(node.node.input_names())})")
        return compute

    def to_proto(self) -> None:
        """Nothing is collected."""


class MemoryLogger:
    """A tracer that writes the memory log of a step, around another tracer if there is one."""

    def __init__(self, step_id: int, inner: StepTracer | None) -> None:
        self._step_id = step_id
        self._inner = inner

    def wrap(self, node: PlanNode, compute: Callable[..., Any]) -> Callable[..., Any]:
        """A compute callable that does the same and logs its outputs."""
        if self._inner is not None:
            compute = self._inner.wrap(node, compute)

        def record(out: Any) -> None:
            for index, value in enumerate(out if type(out) is tuple else (out,)):
                if isinstance(value, np.ndarray | np.generic):
                    log_memory.record_tensor_allocation(self._step_id, node.name, value)
                    log_memory.record_tensor_output(self._step_id, node.name, index, value)

        if inspect.iscoroutinefunction(compute):

            async def logged_await(*inputs: Any) -> Any:
                out = await compute(*inputs)
                record(out)
                return out

            return logged_await

        def logged(*inputs: Any) -> Any:
            return _once_there(compute(*inputs), record)

        return logged

    def to_proto(self) -> proto.StepStats | None:
        """What the other one collected."""
        return None if self._inner is None else self._inner.to_proto()


def _once_there(out: Any, record: Callable[[Any], None]) -> Any:
    """Have `record` called with a kernel's outputs once they are there; returns what stands for them."""
    if isinstance(out, PendingOutputs):
        out.add_done_callback(lambda done: None if done.cancelled() or done.exception() else record(done.result()))
        return out
    if type(out) is CoroutineType:
        return _recorded(out, record)
    record(out)
    return out


async def _recorded(coroutine: Any, record: Callable[[Any], None]) -> Any:
    out = await coroutine
    record(out)
    return out


class Tracer:
    """Collects what each node of a step did, and when, under the device that it ran on.

    Args:
        device: reported for a step in which no node ran.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._collectors: dict[str, StepStatsCollector] = {}

    def _collector(self, device: str) -> StepStatsCollector:
        found = self._collectors.get(device)
        if found is None:
            found = self._collectors[device] = StepStatsCollector(device)
        return found

    def wrap(self, node: PlanNode, compute: Callable[..., Any]) -> Callable[..., Any]:
        """A compute callable that does the same and records it."""
        scheduled = time.time_ns()
        collector = self._collector(node.device or self._device)

        def record(start: int, out: Any, allocator: TrackingAllocator) -> None:
            outputs = out if type(out) is tuple else () if out is None else (out,)
            used = allocator.used()
            collector.node_done(
                node.name,
                node.op,
                node.node.input_names(),
                scheduled,
                start,
                time.time_ns(),
                outputs,
                threading.get_ident(),
                # Most kernels let NumPy allocate: of them only the outputs are known.
                NodeMemory((used,)) if used.total_bytes else None,
            )

        if inspect.iscoroutinefunction(compute):

            async def traced_await(*inputs: Any) -> Any:
                start = time.time_ns()
                with tracking_allocations() as allocator:
                    out = await compute(*inputs)
                record(start, out, allocator)
                return out

            return traced_await

        def traced(*inputs: Any) -> Any:
            start = time.time_ns()
            with tracking_allocations() as allocator:
                returned = compute(*inputs)
            return _once_there(returned, lambda out: record(start, out, allocator))

        return traced

    def to_proto(self) -> proto.StepStats:
        collectors = self._collectors or {self._device: self._collector(self._device)}
        return merge(collectors[device].to_proto() for device in sorted(collectors))
