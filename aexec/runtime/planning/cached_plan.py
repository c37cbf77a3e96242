"""`CachedPlan`: a plan with the request that it was made for, taken apart once nobody refers to it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from weakref import finalize

from aexec.framework.late_dataclass import dataclass
from aexec.graph.passes import WorkingGraph
from aexec.runtime.planning.captured import CapturedRegion
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import Plan, PlanKey
from aexec.runtime.threads.disposal import dispose

__all__ = ["CachedPlan"]


@dataclass(slots=True, weakref_slot=True, eq=False)
class CachedPlan:
    """A plan, and what it was made for.

    Attributes:
        plan: what runs that begin now execute; another one once a delegate is ready for its regions.
        graph: the nodes that it runs, as the graph passes left them.
        on_run: called with this when a run begins, or None.
        captured: the regions that devices capture.

    Once nobody refers to it any more its plan and graph are taken apart, if that was asked for.  By a weak reference,
    not by `__del__`: while that runs, which may be in a thread, `Planner.request` could still hand it out.
    """

    plan: Plan | PartitionedPlan
    signature: PlanKey
    graph: WorkingGraph
    on_run: Callable[[CachedPlan], None] | None = None
    captured: Sequence[CapturedRegion] = ()
    _finalizer: finalize[..., CachedPlan] | None = None

    def replace_plan(self, plan: Plan) -> None:
        """Have runs that begin now execute another one."""
        self.plan = plan
        if self._finalizer is not None and (armed := self._finalizer.detach()) is not None:
            _, _, (loop, *_), _ = armed
            self.dispose_when_dropped(loop)

    def dispose_when_dropped(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have plan and graph taken apart when nobody refers to this any more, unless the loop has stopped by then."""
        self._finalizer = finalize(self, _dropped, loop, self.plan, self.graph)
        self._finalizer.atexit = False

    def keep_parts(self) -> None:
        """Somebody else takes them apart."""
        if self._finalizer is not None:
            self._finalizer.detach()


def _dropped(loop: asyncio.AbstractEventLoop, plan: Plan | PartitionedPlan, graph: WorkingGraph) -> None:
    """A plan that no callable has any more, nor a run."""
    if plan.compilation.busy:
        return  # a thread is at work on it still: it is left to the collector
    # In a turn of its own: it may be the collector that calls this, amid whatever holds a lock in this thread.
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(partial(dispose, plan, graph, nodes=plan.num_nodes))
