"""`CachedPlan`: a plan with the request that it was made for; taken apart once nothing refers to it."""

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
    """A plan, and the request that it was made for.

    Attributes:
        plan: the plan that a run executes; replaced when a delegate has compiled its regions.
        signature: the request.
        graph: the nodes that the plan runs, after the graph passes.
        on_run: called with this object when a run begins, or None.
        captured: the regions that devices capture.

    With `dispose_when_dropped` the plan and the graph are taken apart once nothing refers to this object.  A weak
    reference does that, not `__del__`: while `__del__` runs, perhaps in a thread, `Planner.request` could still return
    the object.
    """

    plan: Plan | PartitionedPlan
    signature: PlanKey
    graph: WorkingGraph
    on_run: Callable[[CachedPlan], None] | None = None
    captured: Sequence[CapturedRegion] = ()
    _finalizer: finalize[..., CachedPlan] | None = None

    def replace_plan(self, plan: Plan) -> None:
        """Let later runs execute another plan."""
        self.plan = plan
        if self._finalizer is not None and (armed := self._finalizer.detach()) is not None:
            _, _, (loop, *_), _ = armed
            self.dispose_when_dropped(loop)

    def dispose_when_dropped(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the plan and the graph apart once nothing refers to this object, unless the loop has stopped by then."""
        self._finalizer = finalize(self, _dropped, loop, self.plan, self.graph)
        self._finalizer.atexit = False

    def keep_parts(self) -> None:
        """Do not take the parts apart: the caller does it."""
        if self._finalizer is not None:
            self._finalizer.detach()


def _dropped(loop: asyncio.AbstractEventLoop, plan: Plan | PartitionedPlan, graph: WorkingGraph) -> None:
    """Called when no callable and no run has the plan any more."""
    if plan.compilation.busy:
        return  # a thread still works on it: leave it to the collector
    # In a turn of its own, since the collector may call this while the thread holds a lock.
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(partial(dispose, plan, graph, nodes=plan.num_nodes))
