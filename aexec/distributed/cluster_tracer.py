"""`ClusterTracer`: the tracer of a step across machines: it traces no kernel, but collects the traces of the tasks.

Times of a task are converted to the client's clock, by the difference of the clocks (`task.py`), so that one trace
shows which task waited for which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aexec import proto
from aexec.runtime.plans.plan import PlanNode
from aexec.runtime.profiling.step_stats import merge
from aexec.runtime.profiling.tracing import OuterTracer

__all__ = ["ClusterTracer"]


class ClusterTracer(OuterTracer):
    """Joins the traces of all tasks of a step into one, with times by the client's clock.

    Args:
        trace: whether statistics are wanted.
        report: whether out-of-memory errors should list the nodes that hold most.

    Attributes:
        trace, report: as given.
    """

    def __init__(self, *, trace: bool, report: bool) -> None:
        super().__init__(None)
        self.trace, self.report = trace, report
        self._parts: list[proto.StepStats] = []

    def wrap(
        self, node: PlanNode, compute: Callable[..., Any], frame_iter: tuple[int, int], ready: int
    ) -> Callable[..., Any]:
        """Return `compute` itself: only feeds and fetches run here."""
        return compute

    def add(self, stats: proto.StepStats, clock_offset: int) -> None:
        """Add the trace of a task.

        Args:
            clock_offset: nanoseconds by which the task's clock is ahead.
        """
        for device in stats.dev_stats:
            for node in device.node_stats:
                node.all_start_nanos -= clock_offset
                node.all_start_micros = node.all_start_nanos // 1000
                node.scheduled_nanos -= clock_offset
                node.scheduled_micros = node.scheduled_nanos // 1000
        self._parts.append(stats)

    def to_proto(self) -> proto.StepStats | None:
        """All traces that were added, tasks in the order of their names."""
        if not self.trace:
            return None
        merged = merge(self._parts)
        ordered = sorted(merged.dev_stats, key=lambda device: device.device)
        return proto.StepStats(dev_stats=ordered)
