"""The planner of one session: its graph, placement and kernels, and the plans made of them.

A plan is made for a signature: the graph is pruned and placed, kernels are built, and the nodes are laid out.
Callables of one signature share a plan; it lives as long as one of them.  Small graphs are planned on the event loop,
because a thread hop costs more; large ones, and small ones that take longer than expected, in a thread.  At any time
only one thread, or the loop, works on the graph.  Next to read: `plan_maker.py`, `session_kernels.py`,
`region_planning.py`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

from aexec import proto
from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.kernel_contract.op_kernel import BuiltKernel
from aexec.framework.memory.memory_account import MemoryAccount
from aexec.framework.waiting.futures import running_loop
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.framework.waiting.long_work import drained, go_on
from aexec.framework.waiting.loop_budget import NODE_BYTES, LoopBudget
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Node
from aexec.graph.nodes.node_wire import flatten
from aexec.runtime.config import SessionConfig
from aexec.runtime.planning.cached_plan import CachedPlan
from aexec.runtime.planning.delegated import RegionReport
from aexec.runtime.planning.graph_work import GraphWork
from aexec.runtime.planning.plan_maker import PlanMaker
from aexec.runtime.planning.region_planning import RegionPlanning
from aexec.runtime.planning.session_graph import SessionGraph, is_imported
from aexec.runtime.planning.session_kernels import SessionKernels
from aexec.runtime.plans.plan import PlanKey
from aexec.runtime.threads.disposal import dispose
from aexec.runtime.threads.shared_work import SharedWork

if TYPE_CHECKING:
    from aexec.runtime.profiling.cost_model import CostModel

__all__ = ["Planner"]


class Planner:
    """Makes and keeps the plans of one session.

    Args:
        graph: others may add nodes to it; `extend` does not change it, but replaces it by an extended copy.
        devices: in order of preference.
        memory: the session's account; None if its memory is not limited.

    Raises:
        InvalidArgumentError: the graph cannot be placed, or the config captures graphs and no device can.
    """

    maker_class: ClassVar[type[PlanMaker]] = PlanMaker

    def __init__(
        self, graph: Graph, devices: tuple[Device, ...], config: SessionConfig, memory: MemoryAccount | None = None
    ) -> None:
        if config.capture_graphs and not any(device.can_capture for device in devices):
            raise errors.InvalidArgumentError(
                f"capture_graphs: none of {', '.join(device.name for device in devices)} captures graphs"
            )
        self._config = config
        self._budget = LoopBudget(config.slice_seconds)
        self._work = GraphWork(self._budget, memory)
        self._graph = SessionGraph(graph, devices, config, self._budget)
        self._kernels = self._make_kernels(self._graph, devices, config, self._budget, self._work)
        self._maker = self.maker_class(self._graph, self._kernels, devices, config, self._budget)
        self._regions = RegionPlanning(self._maker, self._work, config, self._budget)
        self._plans: WeakValueDictionary[PlanKey, CachedPlan] = WeakValueDictionary()
        self._remains: list[CachedPlan] = []  # plans to be taken apart by `take_apart`
        self._builds: dict[PlanKey, SharedWork[CachedPlan]] = {}
        # Placing by costs takes several times as long per node.
        few = self._budget.place_nodes if config.cost_model is None else self._budget.plan_nodes
        if self._graph.to_place:
            with suppress(NeedsThreadError):
                if running_loop() is None:
                    self._graph.place_all()
                elif self._graph.size < few:
                    self._work.on_the_loop(self._graph.place_if_imported)

    def __len__(self) -> int:
        """The number of plans."""
        return len(self._plans)

    async def place(self) -> None:
        """Place the graph, unless that was done.  Raises InvalidArgumentError if it cannot be placed."""
        if self._graph.to_place:
            await self._work.beside_the_loop(self._graph.place_all).wait()

    def request(self, signature: PlanKey) -> CachedPlan | asyncio.Future[CachedPlan]:
        """The plan of a signature, or a future of it.  Concurrent requests share one build.

        Raises:
            InvalidArgumentError, NotFoundError: the request's nodes cannot run.
        """
        cached = self._plans.get(signature)
        if cached is not None:
            return cached
        named = self._regions.named and not signature.in_parts
        if not named and self._graph.size < self._budget.plan_nodes and not self._work.tasks:
            with suppress(NeedsThreadError):
                cached = self._plans[signature] = self._work.on_the_loop(lambda: self._build_if_imported(signature))
                cached.dispose_when_dropped(asyncio.get_running_loop())
                return cached
        build = self._builds.get(signature)
        if build is None or build.called_off:
            if named:
                build = self._regions.build(signature)
            else:
                build = self._work.beside_the_loop(lambda: self._build_beside_the_loop(signature))
            self._builds[signature] = build
            build.task.add_done_callback(partial(self._built, signature, build))
        return build.wait()

    async def extend(self, more: proto.GraphDef | proto.FlatGraphDef | bytes) -> None:
        """Add nodes to the graph; all or none.  Raises as `Session.extend` does.

        If it is cancelled before the nodes are added, none is.
        """
        most = self._budget.plan_nodes
        added = flatten(more) if isinstance(more, bytes) and len(more) < most * NODE_BYTES else more
        small = not isinstance(added, bytes) and len(added.node) < most and is_imported(added.node)
        if small and self._graph.size < most and not self._work.tasks:
            with suppress(NeedsThreadError):
                self._work.on_the_loop(lambda: self._extend(added))
                return
        await self._work.beside_the_loop(lambda: self._extend(added)).wait()

    async def close(self) -> None:
        """Call off all work, wait for its end, and forget the regions."""
        while self._work.tasks or self._regions.tasks:
            self._work.call_off()
            await asyncio.wait(self._work.tasks.keys() | self._regions.tasks)
        await self._regions.close()

    def dispose(self) -> None:
        """Release everything, in pieces.  Called when nothing runs any more and nothing will be requested."""
        self._remains = list(self._plans.values())
        for cached in self._remains:
            cached.keep_parts()
        dispose(self, nodes=sum(cached.plan.num_nodes for cached in self._remains) + len(self._kernels))

    def release_graph(self) -> None:
        """Release the graph too."""
        self._graph.release()

    def take_apart(self) -> None:
        """Release plans, kernels and functions, in pieces."""
        for cached in drained(self._remains):
            cached.plan.take_apart()
            cached.graph.take_apart()
            go_on()  # raises if the process ends
        self._kernels.take_apart()
        self._graph.placer.take_apart()
        self._maker.take_apart()

    def executed_graphs(self, cached: CachedPlan) -> list[proto.GraphDef]:
        """The nodes that a plan runs, as one graph per device."""
        return self._maker.executed_graphs(cached)

    def cost_graph(self, cached: CachedPlan, costs: CostModel) -> proto.CostGraphDef:
        """The known costs of the nodes that a plan runs."""
        from aexec.runtime.profiling.cost_graph import cost_graph

        partitions = self._maker.partitions(cached)
        message = cost_graph(partitions, costs)
        # Nodes that a partition adds have new names in each plan, so their costs are never used again.
        costs.forget(partition.nodes[i].name for partition in partitions for i in partition.added)
        return message

    def _built(self, signature: PlanKey, build: SharedWork[CachedPlan], task: asyncio.Task[CachedPlan]) -> None:
        if self._builds.get(signature) is build:  # else this build was called off and another one replaced it
            del self._builds[signature]
        if not task.cancelled() and task.exception() is None:
            cached = self._plans[signature] = task.result()
            cached.dispose_when_dropped(task.get_loop())

    @property
    def graph(self) -> Graph:
        """The session's graph, extensions included."""
        return self._graph.graph

    def _make_kernels(self, *settings: Any) -> SessionKernels:
        """Make the kernels; `settings` are the arguments of `SessionKernels`."""
        return SessionKernels(*settings)

    def _extend(self, more: proto.GraphDef | proto.FlatGraphDef | bytes) -> None:
        self._graph.extend(more)
        self._kernels.extended()

    def _build_if_imported(self, signature: PlanKey) -> CachedPlan:
        """The plan.  Raises NeedsThreadError if kernels must be imported first."""
        if not self._graph.has_kernels():
            raise NeedsThreadError("kernels are imported in a thread")
        return self._maker.build(signature, self._regions.on_run())

    def _build_beside_the_loop(self, signature: PlanKey) -> CachedPlan:
        """Build the plan in a thread, and check there whether all kernels are imported, so that the loop need not."""
        cached = self._maker.build(signature, self._regions.on_run())
        self._graph.has_kernels()
        return cached

    def stop_delegating(self) -> None:
        """Make no plans with regions from now on."""
        self._regions.stop()

    async def regions(self, signature: PlanKey) -> list[RegionReport]:
        """The regions of a request that delegates run, or would run."""
        return await self._regions.regions(signature)

    def kernel(self, node: Node) -> BuiltKernel:
        """The kernel of a node, for use outside steps.  Raises what building it raises.

        This does not wait: while a thread works on the graph, a node that is not placed yet gets the kernel of the
        device that it would prefer by itself.
        """
        if not self._work.lock.acquire(blocking=False):
            placed = self._graph.placer.is_placed(node)
            return self._kernels.of(node, None if placed else self._graph.placer.preferred(node, self.graph.library))
        try:
            self._graph.place([node] if self._config.place_pruned_graph else self.graph.nodes)
            return self._kernels.of(node)
        finally:
            self._work.lock.release()
