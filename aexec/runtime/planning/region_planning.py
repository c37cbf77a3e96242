"""`RegionPlanning`: gives regions to delegates, from the first run or once a plan's runs have cost enough.

Next to read: `delegated.py`, for how a region runs.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from aexec.framework import errors
from aexec.framework.kernel_contract.op_kernel import BuiltKernel
from aexec.framework.waiting.loop_budget import LoopBudget
from aexec.graph.nodes.node import Node
from aexec.graph.passes import WorkingGraph, passes_after_regions, passes_before_regions
from aexec.runtime.config import SessionConfig
from aexec.runtime.planning.cached_plan import CachedPlan
from aexec.runtime.planning.delegated import Candidate, Delegation, RegionReport
from aexec.runtime.planning.graph_work import GraphWork
from aexec.runtime.planning.plan_maker import PlanMaker
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import Plan, PlanKey
from aexec.runtime.threads.disposal import dispose
from aexec.runtime.threads.shared_work import SharedWork

__all__ = ["RegionPlanning"]

T = TypeVar("T")

logger = logging.getLogger("aexec")

# Regions that were all slower in the delegate are tried again after this many times the runs that are due before they
# are compiled; each time they are slower again, after four times as many.
TRY_AGAIN_AT = 50
LEAST_DUE = 4


class RegionPlanning:
    """Gives regions of plans to delegates.

    Attributes:
        tasks: the tasks that do it now.
    """

    def __init__(self, maker: PlanMaker, work: GraphWork, config: SessionConfig, budget: LoopBudget) -> None:
        self._maker = maker
        self._work = work
        self._delegation = Delegation(config, budget, maker.kernels.of_working, maker.kernels.device_of)
        self.tasks: set[asyncio.Task[Any]] = set()

    @property
    def named(self) -> bool:
        """True if plans have their regions from the first run, because the config names a delegate."""
        return self._delegation.named

    def stop(self) -> None:
        """Make no plans with regions from now on."""
        self._delegation.stop()

    async def close(self) -> None:
        """Wait until no delegate works for the session any more; afterwards no plan gets regions."""
        await self._delegation.close()

    def build(self, signature: PlanKey) -> SharedWork[CachedPlan]:
        """Make a plan that has its regions from the beginning.

        It is not called off when nothing waits for it: a library cannot be stopped while it compiles, and the next
        request would start again.
        """
        return SharedWork(self._begin(self._build(signature)), None)

    async def regions(self, signature: PlanKey) -> list[RegionReport]:
        """The regions of a request that delegates run, or would run."""
        _, candidates = await self._work.beside_the_loop(lambda: self._candidates(signature)).wait()
        return [candidate.report() for candidate in candidates]

    def on_run(self) -> Callable[[CachedPlan], None] | None:
        """A callback that counts the runs of a plan until it is time to look for regions; None if it never is."""
        look_at = self._delegation.look_at()
        return _Countdown(look_at, self._look_at).ran if look_at else None

    def _look_at(self, cached: CachedPlan, runs: int) -> None:
        cached.on_run = None
        if isinstance(cached.plan, PartitionedPlan) or not self._delegation.may_be_worth(cached.graph, cached.plan):
            return
        self._begin(self._delegate(cached, runs, 0))

    def _begin(self, delegating: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(delegating, name="delegate regions")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _delegate(self, cached: CachedPlan, runs: int, losses: int) -> None:
        """Give a plan its regions after `runs` runs, if these have cost enough to compile them.

        Args:
            losses: how often all of them were slower in the delegate.
        """
        try:
            working, candidates = await self._work.beside_the_loop(lambda: self._candidates(cached.signature)).wait()
            wanted = self._delegation.wanted(candidates)
            if not wanted:
                dispose(working, nodes=len(working.nodes))
                return
            due = self._delegation.due(wanted)
            if runs < due:
                cached.on_run = _Countdown(due - runs, lambda cached, more: self._look_at(cached, runs + more)).ran
                return
            again = TRY_AGAIN_AT * max(due, LEAST_DUE) * 4**losses
            on_all_lost = self._back_to(cached.plan, cached, again, losses + 1)
            plan = await self._delegated_plan(working, cached.signature, wanted, on_all_lost)
            if plan is not None:
                cached.replace_plan(plan)
        except errors.CancelledError:
            pass  # the session was closed
        except Exception:
            # Runs go on without regions.
            logger.exception("Regions of a plan cannot be delegated")

    def _back_to(self, plan: Any, cached: CachedPlan, again: int, losses: int) -> Callable[[], None]:
        """A function that lets later runs execute a plan again, which has no regions and so is better optimized.

        Args:
            again: the number of runs after which the regions are tried again: the machine may have been busy.
        """
        known = weakref.ref(cached)  # the regions' kernels, which `cached` has, refer to this

        def go_back() -> None:
            found = known()
            if found is not None:
                found.replace_plan(plan)
                found.on_run = _Countdown(again, try_again).ran

        def try_again(cached: CachedPlan, runs: int) -> None:
            cached.on_run = None
            self._begin(self._delegate(cached, runs, losses))

        return go_back

    async def _build(self, signature: PlanKey) -> CachedPlan:
        """A plan that has its regions from the beginning."""
        cached = await self._work.beside_the_loop(lambda: self._maker.build(signature, self.on_run())).wait()
        working, candidates = await self._work.beside_the_loop(lambda: self._candidates(signature)).wait()
        plan = await self._delegated_plan(working, signature, self._delegation.wanted(candidates))
        if plan is not None:
            cached.plan = plan
        return cached

    def _candidates(self, signature: PlanKey) -> tuple[WorkingGraph, list[Candidate]]:
        working = self._maker.working_graph(signature)
        if self._maker.is_split(working, signature):
            return working, []
        installed = self._delegation.prepare()
        if not installed and not self._delegation.missing:
            return working, []
        self._maker.optimize(working, self._maker.passes & passes_before_regions())
        self._maker.put_in_order(working, signature)
        if installed:
            return working, self._delegation.candidates(working, signature)
        self._delegation.suggest(working, signature)
        return working, []

    async def _delegated_plan(
        self,
        working: WorkingGraph,
        signature: PlanKey,
        candidates: Iterable[Candidate],
        on_all_lost: Callable[[], object] = lambda: None,
    ) -> Plan | None:
        """The plan with these regions; None if delegates refuse all of them.

        Args:
            on_all_lost: called when no region is run by its delegate any more.
        """
        compiled = [(c, region) for c in candidates if (region := await self._delegation.compile(c)) is not None]
        if not compiled:
            return None

        def build() -> Plan:
            inner, kernels = self._delegation.put(working, signature, compiled, _After(len(compiled), on_all_lost).one)
            self._maker.optimize(working, self._maker.passes & passes_after_regions())

            def kernel_of(node: Node) -> BuiltKernel:
                return kernels.get(node.id) or self._maker.kernels.of_working(working, node)

            self._maker.put_in_order(working, inner)
            return self._maker.whole_plan(working, inner, kernel_of)

        return await self._work.beside_the_loop(build).wait()


class _After:
    """Calls a function at the last of a number of events."""

    def __init__(self, events: int, call: Callable[[], object]) -> None:
        self._left = events
        self._call = call

    def one(self) -> None:
        """Note an event."""
        self._left -= 1
        if self._left == 0:
            self._call()


class _Countdown:
    """Calls a function when a plan has been run a number of times."""

    __slots__ = ("_call", "_left", "_runs")

    def __init__(self, runs: int, call: Callable[[CachedPlan, int], None]) -> None:
        self._runs = self._left = runs
        self._call = call

    def ran(self, cached: CachedPlan) -> None:
        """Called when a run of the plan begins."""
        self._left -= 1
        if self._left == 0:
            self._call(cached, self._runs)
