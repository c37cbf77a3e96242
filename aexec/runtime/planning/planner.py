"""The planner of one session: graph, placement and kernels, and the plans that are made of them.

A plan is made for a signature: pruned, placed, with its kernels built, and laid out.  It
lives as long as a `SessionCallable` has it; callables of one signature share theirs.  Small graphs
are planned on the loop, because a thread hop costs more; large ones, and those that turn out
to take longer than is expected of small ones, in a thread while the loop goes on.  Only one
thread or the loop works on the graph at any time.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary, finalize

import numpy as np

from aexec import proto
from aexec.devices.device_registry import host_device
from aexec.framework import dtypes, errors
from aexec.framework.device_contract.device import Device
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.op_kernel import BuiltKernel, OpKernelConstruction
from aexec.framework.late_dataclass import dataclass
from aexec.framework.memory.allocator import watching
from aexec.framework.memory.garbage_collector import collector_paused
from aexec.framework.memory.memory_account import CallMemory, MemoryAccount
from aexec.framework.types import MemoryType
from aexec.framework.waiting.futures import running_loop
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.framework.waiting.long_work import LongWork, ShortWork, drained, empty, go_on, steadily
from aexec.framework.waiting.loop_budget import NODE_BYTES, LoopBudget
from aexec.graph.calls import is_functional
from aexec.graph.graph import Graph
from aexec.graph.graph_import import ImportOptions, import_graph_def
from aexec.graph.nodes.control_flow import EXECUTOR_OPS
from aexec.graph.nodes.node import GraphView, Node
from aexec.graph.nodes.node_table import NodeTable
from aexec.graph.nodes.node_wire import flatten
from aexec.graph.nodes.prune import reachable
from aexec.graph.partitioning.node_memory_types import memory_types_for_node
from aexec.graph.partitioning.partition import TRANSFERS, Ends, Partition, split
from aexec.graph.partitioning.schedule import Costs
from aexec.graph.passes import (
    WorkingGraph,
    optimize,
    pass_names,
    passes_after_regions,
    passes_before_placing,
    passes_before_regions,
)
from aexec.graph.tensor_connections import ConnectedTable
from aexec.runtime.config import SessionConfig
from aexec.runtime.functions.function_calls import DeviceFunctions, call_kernel
from aexec.runtime.functions.function_plans import BodyPlanner
from aexec.runtime.functions.functions import OUTPUTS_AS_A_NODE, FunctionRuntime
from aexec.runtime.functions.variable_order import put_in_order
from aexec.runtime.interpreter.executor import executor_of_type
from aexec.runtime.placement.placer import Placer
from aexec.runtime.planning.captured import CapturedRegion, Capturing
from aexec.runtime.planning.delegated import Candidate, Delegation, RegionReport
from aexec.runtime.planning.folding import FoldedValues
from aexec.runtime.plans.device_constants import DeviceConstant, DeviceConstants
from aexec.runtime.plans.partition_graphs import partition_graph
from aexec.runtime.plans.partitioned_plan import PartitionedPlan, build_partitioned_plan
from aexec.runtime.plans.plan import Plan, PlanKey
from aexec.runtime.plans.plan_builder import build_plan
from aexec.runtime.threads.disposal import dispose
from aexec.runtime.threads.shared_work import SharedWork
from aexec.runtime.threads.worker_pool import run_in_turns

if TYPE_CHECKING:
    from aexec.runtime.profiling.cost_model import CostModel

__all__ = ["CachedPlan", "Planner"]

T = TypeVar("T")

# What leads to values that are kept between steps.
_HANDLES = frozenset(dtypes.ALWAYS_ON_HOST)

logger = logging.getLogger("aexec")


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


class Planner:
    """Makes and keeps the plans of one session: prunes and places a request's graph, builds kernels, lays out the plan.

    Args:
        graph: may grow by whoever holds it; `extend` leaves it alone and goes on with a copy.
        devices: in order of preference.
        memory: of the session, if that is accounted for.

    Raises:
        InvalidArgumentError: the graph cannot be placed.
    """

    def __init__(
        self, graph: Graph, devices: tuple[Device, ...], config: SessionConfig, memory: MemoryAccount | None = None
    ) -> None:
        self.graph = graph
        self._memory = memory
        self._config = config
        self._devices = devices
        self._budget = LoopBudget(config.slice_seconds)
        self._host = host_device(devices)
        if config.capture_graphs and not any(device.can_capture for device in devices):
            raise errors.InvalidArgumentError(
                f"capture_graphs: none of {', '.join(device.name for device in devices)} captures graphs"
            )
        self._placer = Placer(
            devices,
            soft=config.allow_soft_placement,
            log_placement=config.log_device_placement,
            costs=config.cost_model,
        )
        self._create_kernel = executor_of_type(config.executor_type).create_kernel if config.executor_type else None
        self._plans: WeakValueDictionary[PlanKey, CachedPlan] = WeakValueDictionary()
        self._remains: list[CachedPlan] = []  # plans that are to be taken apart
        self._builds: dict[PlanKey, SharedWork[CachedPlan]] = {}
        self._kernels: dict[int, BuiltKernel] = {}
        self._calling: dict[int, Mapping[str, Any]] = {}  # attrs with which kernels were made that call functions
        self._functions: FunctionRuntime | None = None
        self._constants = DeviceConstants()
        self._folded = FoldedValues(self._host_kernel)
        self._passes_memory: dict[Any, Any] = {}
        self._passes = pass_names(config.graph_passes)
        self._delegation = Delegation(config, self._budget, self._kernel_of_working, self._device_of)
        self._delegating: set[asyncio.Task[Any]] = set()
        self._edge_numbers = itertools.count(1)
        self._bodies = BodyPlanner(devices, config, self._budget, self._edge_numbers, self._on_device)
        # Held by the thread that works on the graph; who is to be next waits for `_turn`.  `_work` are the tasks of
        # those that work or will.
        self._lock = threading.Lock()
        self._turn = asyncio.Lock()
        self._work: dict[asyncio.Task[Any], LongWork] = {}
        # Where a graph is large, or needs kernels that are still to be imported, which takes long, the loop goes on
        # meanwhile: `place`, or else the first plan, does it in a thread.
        self._imported: tuple[Graph, int, int] | None = None  # a graph all of whose kernels are
        # Of how many nodes what graph consists, and as how many it counts.
        self._measured: tuple[Graph, int, int] | None = None
        self._to_place = not config.place_pruned_graph
        # By costs it takes several times as long.
        few = self._budget.place_nodes if config.cost_model is None else self._budget.plan_nodes
        if self._to_place:
            with suppress(NeedsThreadError):
                if running_loop() is None:
                    self._place_all()
                elif self._size < few:
                    self._on_the_loop(self._place_if_imported)

    def __len__(self) -> int:
        """Plans that there are."""
        return len(self._plans)

    async def place(self) -> None:
        """Place the graph, unless that was done.  Raises InvalidArgumentError if it cannot be placed."""
        if self._to_place:
            await self._beside_the_loop(self._place_all).wait()

    def _place_if_imported(self) -> None:
        if self._has_kernels():
            self._place_all()

    def _place_all(self) -> None:
        self._place(self.graph.nodes)
        self._to_place = False

    @property
    def _size(self) -> int:
        """As how many nodes the graph counts: one may have a million outputs, each of which is laid out too."""
        graph, nodes = self.graph, len(self.graph)
        if nodes >= self._budget.place_nodes:
            return nodes
        if self._measured is None or self._measured[:2] != (graph, nodes):
            outputs = sum(node.num_outputs for node in graph)
            self._measured = graph, nodes, nodes + outputs // OUTPUTS_AS_A_NODE
        return self._measured[2]

    def _has_kernels(self) -> bool:
        """Is all imported that the graph needs?"""
        graph = self.graph
        seen = (graph, len(graph), len(graph.library))
        if seen != self._imported:
            bodies = (graph.library.get(name).node_def for name in graph.library)
            if not (_is_imported(graph) and all(_is_imported(body) for body in steadily(bodies))):
                return False
            self._imported = seen
        return True

    def request(self, signature: PlanKey) -> CachedPlan | asyncio.Future[CachedPlan]:
        """The plan of a signature, or a future of it.  Racing requests share one build.

        Raises:
            InvalidArgumentError, NotFoundError: its nodes cannot run.
        """
        cached = self._plans.get(signature)
        if cached is not None:
            return cached
        named = self._delegation.named and not signature.in_parts
        if not named and self._size < self._budget.plan_nodes and not self._work:
            with suppress(NeedsThreadError):
                cached = self._plans[signature] = self._on_the_loop(lambda: self._build_if_imported(signature))
                cached.dispose_when_dropped(asyncio.get_running_loop())
                return cached
        build = self._builds.get(signature)
        if build is None or build.called_off:
            if named:
                # A library that compiles cannot be stopped, and the next request would begin it anew.
                build = SharedWork(self._delegate_task(self._build_delegated(signature)), None)
            else:
                build = self._beside_the_loop(lambda: self._build_beside_the_loop(signature))
            self._builds[signature] = build
            build.task.add_done_callback(partial(self._built, signature, build))
        return build.wait()

    async def extend(self, more: proto.GraphDef | proto.FlatGraphDef | bytes) -> None:
        """Add nodes to the graph; all or none.  Raises as `Session.extend` does.

        Cancelled before the nodes are there, it adds none.
        """
        most = self._budget.plan_nodes
        added = flatten(more) if isinstance(more, bytes) and len(more) < most * NODE_BYTES else more
        small = not isinstance(added, bytes) and len(added.node) < most and _is_imported(added.node)
        if small and self._size < most and not self._work:
            with suppress(NeedsThreadError):
                self._on_the_loop(lambda: self._extend(added))
                return
        await self._beside_the_loop(lambda: self._extend(added)).wait()

    async def close(self) -> None:
        """Call off what is under way, wait for its end, and forget everything."""
        while self._work or self._delegating:
            for work in self._work.values():
                work.call_off()
            await asyncio.wait(self._work.keys() | self._delegating)
        await self._delegation.close()

    def dispose(self) -> None:
        """Let go of everything: nothing is run any more, and nobody will ask."""
        self._remains = list(self._plans.values())
        for cached in self._remains:
            cached.keep_parts()
        dispose(self, nodes=sum(cached.plan.num_nodes for cached in self._remains) + len(self._kernels))

    def release_graph(self) -> None:
        """Let go of the graph too."""
        self.graph, self._imported, self._measured = Graph(), None, None

    def take_apart(self) -> None:
        """Let go of plans, kernels and functions, in pieces."""
        for cached in drained(self._remains):
            cached.plan.take_apart()
            cached.graph.take_apart()
            go_on()  # unless the process ends
        empty(self._kernels)
        if self._functions is not None:
            self._functions.take_apart()
        self._placer.take_apart()
        self._folded.take_apart()
        empty(self._passes_memory)

    def executed_graphs(self, cached: CachedPlan) -> list[proto.GraphDef]:
        """The nodes that a plan runs, as one graph per device."""
        return [partition_graph(partition) for partition in self._partitions(cached)]

    def cost_graph(self, cached: CachedPlan, costs: CostModel) -> proto.CostGraphDef:
        """What is known of the costs of the nodes that a plan runs."""
        from aexec.runtime.profiling.cost_graph import cost_graph

        partitions = self._partitions(cached)
        message = cost_graph(partitions, costs)
        # What a partition adds has another name in each plan, so that nobody will ask for it again.
        costs.forget(partition.nodes[i].name for partition in partitions for i in partition.added)
        return message

    def _partitions(self, cached: CachedPlan) -> Sequence[Partition]:
        if isinstance(cached.plan, PartitionedPlan):
            return cached.plan.partitions
        used = self._devices_of(cached.graph)
        return self._split(cached.graph, cached.signature, used[0])

    def _on_the_loop(self, call: Callable[[], T]) -> T:
        """Work on the graph here and now.  Raises NeedsThreadError if that takes too long."""
        return ShortWork(self._budget.once_seconds).do(lambda: self._counted(call))

    def _counted(self, call: Callable[[], T]) -> T:
        """What `call()` returns; what it takes of memory, and what it has kept of it, is the session's.

        Raises:
            ResourceExhaustedError: there is no room for it.
        """
        if self._memory is None:
            return call()
        memory = CallMemory(MemoryAccount("plan", within=self._memory), "planning")
        try:
            with watching(memory, every=False):
                return call()
        finally:
            with suppress(errors.ResourceExhaustedError):  # because of others: who runs it will see
                memory.end()

    def _beside_the_loop(self, call: Callable[[], T]) -> SharedWork[T]:
        """Work on the graph in a thread, as long as somebody waits for it."""
        work = LongWork()

        def locked() -> T:
            with self._lock, collector_paused():
                return self._counted(call)

        async def in_turn() -> T:
            async with self._turn:
                return await run_in_turns(locked, work)

        task = asyncio.get_running_loop().create_task(in_turn(), name="work on the graph")
        self._work[task] = work
        task.add_done_callback(self._work.pop)
        return SharedWork(task, work)

    def _built(self, signature: PlanKey, build: SharedWork[CachedPlan], task: asyncio.Task[CachedPlan]) -> None:
        if self._builds.get(signature) is build:  # and not another one, because this was called off
            del self._builds[signature]
        if not task.cancelled() and task.exception() is None:
            cached = self._plans[signature] = task.result()
            cached.dispose_when_dropped(task.get_loop())

    # Extending

    def _extend(self, more: proto.GraphDef | proto.FlatGraphDef | bytes) -> None:
        graph_def = flatten(more)
        self._check_extension(graph_def)
        # Other holders of the graph do not see what is added here, and a failure changes nothing.
        graph = self.graph.copy()
        if not len(graph):
            graph.versions.CopyFrom(graph_def.versions)
        added = import_graph_def(graph, graph_def, ImportOptions(refer_to_existing=True))
        placed = {}
        if not self._config.place_pruned_graph:
            placed = self._placer.choose(added, graph.nodes.__getitem__, graph.library)
        go_on()  # whoever asked for it may have gone
        self.graph = graph
        self._placer.keep(placed)
        if self._functions is not None:
            # Its instances stay, with their state: a library only ever grows.
            self._functions.extended(graph.library, graph.versions)

    def _check_extension(self, graph_def: proto.FlatGraphDef) -> None:
        for node_def in graph_def.node:
            if node_def.name in self.graph:
                raise errors.InvalidArgumentError(
                    f"GraphDef argument to Extend includes node '{node_def.name}', which was created by a previous "
                    "call to Create or Extend in this session.",
                    node=node_def.name,
                )
        ours, theirs = self.graph.versions.producer, graph_def.versions.producer
        if len(self.graph) and ours != theirs:
            raise errors.InvalidArgumentError(
                f"Can't extend GraphDef at version {ours} with graph at version {theirs}."
            )

    def _place(self, nodes: list[Node]) -> None:
        self._placer.place(nodes, self.graph.nodes.__getitem__, self.graph.library)

    # Building

    def _build_if_imported(self, signature: PlanKey) -> CachedPlan:
        """The plan.  Raises NeedsThreadError if something is still to be imported for the graph."""
        if not self._has_kernels():
            raise NeedsThreadError("kernels are imported in a thread")
        return self._build(signature)

    def _build_beside_the_loop(self, signature: PlanKey) -> CachedPlan:
        """Build the plan in a thread, and check there whether all kernels are imported, so that the loop need not."""
        cached = self._build(signature)
        self._has_kernels()
        return cached

    @np.errstate(all="ignore")  # kernels compute with their attrs when they are made
    def _build(self, signature: PlanKey) -> CachedPlan:
        working = self._working(signature)
        try:
            return self._plan(signature, working)
        except BaseException:
            working.take_apart()
            raise

    def _plan(self, signature: PlanKey, working: WorkingGraph) -> CachedPlan:
        passes = self._passes
        making = passes & passes_before_placing()
        if len(self._devices) > 1 and len(self.graph.library) and making:
            self._optimize(working, making)
            self._place_bodies(working)
            passes -= making
        self._optimize(working, passes)
        self._put_in_order(working, signature)
        if self._is_split(working, signature):
            inner, kernels, regions = self._with_captured(working, signature)
            return CachedPlan(self._partitioned_plan(working, inner, kernels), signature, working, captured=regions)
        plan = self._whole_plan(working, signature, lambda node: self._kernel_of_working(working, node))
        return CachedPlan(plan, signature, working, None if signature.in_parts else self._on_run())

    def _with_captured(
        self, working: WorkingGraph, signature: PlanKey
    ) -> tuple[PlanKey, dict[int, BuiltKernel], list[CapturedRegion]]:
        """Put the regions that devices capture in their places: the signature then, their kernels, and they."""
        if signature.in_parts or not self._config.capture_graphs:
            return signature, {}, []
        capturing = Capturing(
            working,
            lambda node: self._kernel_of_working(working, node),
            lambda node: self._device_of(working, node),
            self._on_device,
        )
        inner, kernels = capturing.put(signature)
        if capturing.regions:
            self._put_in_order(working, inner)
        return inner, kernels, capturing.regions

    def _place_bodies(self, working: WorkingGraph) -> None:
        """Place the nodes of functions that were inlined, softly: where they ask for, or else their call."""
        nodes = [node for node in working.nodes.values() if not working.is_original(node)]
        try:
            chosen = self._placer.choose(nodes, working.nodes.__getitem__, working.library, soft=True)
        except errors.InvalidArgumentError:
            # They use a resource where they have no kernel.
            chosen = dict.fromkeys((node.id for node in nodes), self._host)
        working.places.update(chosen)

    def _devices_of(self, working: WorkingGraph) -> list[Device]:
        """The devices that its nodes run on, those of the first nodes first."""
        if len(self._devices) == 1 or not working.nodes:
            return [self._host]
        return list(dict.fromkeys(self._device_of(working, node) for node in working.nodes.values()))

    def _is_split(self, working: WorkingGraph, signature: PlanKey) -> bool:
        """Do its nodes run elsewhere than on one device of the host, or are its ends elsewhere than in its memory?"""
        if signature.feed_devices or signature.fetch_devices:
            return True
        used = self._devices_of(working)
        return len(used) > 1 or not used[0].is_host

    def _split(self, working: WorkingGraph, signature: PlanKey, host: Device) -> list[Partition]:
        # What is fed in parts may wait for nothing else than what it needs.
        scheduled = self._config.schedule_receives and not signature.in_parts
        return split(
            working,
            signature.feeds,
            signature.fetches,
            signature.targets,
            lambda node: self._device_of(working, node),
            host,
            self._edge_numbers,
            compress=self._config.compress_transfers,
            costs=self._costs(working) if scheduled else None,
            ends=self._ends(signature, host),
        )

    def _ends(self, signature: PlanKey, host: Device) -> Ends:
        """Where what is fed enters, and what is fetched leaves."""
        by_name = {"": host, **{device.name: device for device in self._devices}}
        feeds = signature.feed_devices or ("",) * len(signature.feeds)
        fetches = signature.fetch_devices or ("",) * len(signature.fetches)
        return Ends([by_name[name] for name in feeds], [by_name[name] for name in fetches])

    def _costs(self, working: WorkingGraph) -> Costs:
        """What a simulated step of a plan is told."""
        from aexec.runtime.profiling.cost_model import CostModel

        model = self._config.cost_model or CostModel()
        nodes = working.nodes

        def device_of(node: Node) -> Device:
            return self._device_of(working, node)

        return Costs(
            device_of,
            lambda node: model.time_estimate(node, device_of(node).type),
            lambda endpoint: model.copy_time(model.size_estimate(nodes[endpoint[0]].name, endpoint[1])),
        )

    def _partitioned_plan(
        self, working: WorkingGraph, signature: PlanKey, kernels: Mapping[int, BuiltKernel]
    ) -> PartitionedPlan:
        by_name = {device.name: device for device in self._devices}

        def kernel_of(partition: Partition, node: Node) -> BuiltKernel:
            if node.id not in partition.added:
                return kernels.get(node.id) or self._kernel_of_working(working, node)
            return self._make_kernel(self.graph, node, self._function_runtime(), by_name[partition.device.name])

        partitions = self._split(working, signature, self._host)
        return build_partitioned_plan(
            working,
            signature,
            partitions,
            kernel_of,
            self._budget,
            self._on_device,
            self._has_to_travel(),
            skip_sync=signature.skip_sync,
        )

    def _has_to_travel(self) -> str:
        """Why values go from one of the host's devices to another although the memory is the same, or ""."""
        if self._config.compress_transfers:
            return "values are compressed where they go to another device"
        if self._config.transport is not None:
            return "the session's transport brings values that go to another device"
        return ""

    def _whole_plan(self, working: WorkingGraph, signature: PlanKey, kernel_of: Callable[[Node], BuiltKernel]) -> Plan:
        return build_plan(working, signature, kernel_of, self._budget, order=working.order)

    def _put_in_order(self, working: WorkingGraph, signature: PlanKey) -> None:
        put_in_order(working, signature, self._function_runtime())

    def _optimize(self, working: WorkingGraph, passes: Collection[str]) -> None:
        optimize(working, passes, self._folded.evaluator(), self._function_runtime().callee)

    def _working(self, signature: PlanKey) -> WorkingGraph:
        """What a request needs of the graph, placed."""
        graph: NodeTable = self.graph
        # What passes remember is of the nodes as they are in the graph.
        memory, unlike = self._passes_memory, frozenset[int]()
        if signature.connections:
            graph = connected = ConnectedTable(graph, signature.connections)
            memory, unlike = {}, frozenset(connected.rewired)
        if self._config.place_pruned_graph:
            roots = [*(i for i, _ in signature.fetches), *signature.targets]
            needed = sorted(reachable(graph, roots, frozenset(signature.feeds)))
            self._place([self.graph.nodes[i] for i in needed])
        else:
            self._place_all()
        return WorkingGraph(
            graph,
            signature.feeds,
            signature.fetches,
            signature.targets,
            self._place_name,
            memory,
            self._config.check_feed_shapes,
            self._config.max_inlined_nodes,
            unlike,
        )

    # Delegating

    def stop_delegating(self) -> None:
        """Plans that are made from now on have no regions."""
        self._delegation.stop()

    async def regions(self, signature: PlanKey) -> list[RegionReport]:
        """What delegates run of a request, or would."""
        _, candidates = await self._beside_the_loop(lambda: self._candidates(signature)).wait()
        return [candidate.report() for candidate in candidates]

    def _on_run(self) -> Callable[[CachedPlan], None] | None:
        """What counts the runs of a plan until it is time to look for regions."""
        look_at = self._delegation.look_at()
        return _Countdown(look_at, self._look_at).ran if look_at else None

    def _look_at(self, cached: CachedPlan, runs: int) -> None:
        cached.on_run = None
        if isinstance(cached.plan, PartitionedPlan) or not self._delegation.may_be_worth(cached.graph, cached.plan):
            return
        self._delegate_task(self._delegate(cached, runs))

    def _delegate_task(self, delegating: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(delegating, name="delegate regions")
        self._delegating.add(task)
        task.add_done_callback(self._delegating.discard)
        return task

    async def _delegate(self, cached: CachedPlan, runs: int) -> None:
        """Give a plan that has been run so often its regions, if its runs have cost as much as compiling will."""
        try:
            working, candidates = await self._beside_the_loop(lambda: self._candidates(cached.signature)).wait()
            wanted = self._delegation.wanted(candidates)
            if not wanted:
                dispose(working, nodes=len(working.nodes))
                return
            due = self._delegation.due(wanted)
            if runs < due:
                cached.on_run = _Countdown(due - runs, lambda cached, more: self._look_at(cached, runs + more)).ran
                return
            plan = await self._delegated_plan(working, cached.signature, wanted)
            if plan is not None:
                cached.replace_plan(plan)
        except errors.CancelledError:
            pass  # the session is closed
        except Exception:
            # Runs go on without.
            logger.exception("Regions of a plan cannot be delegated")

    async def _build_delegated(self, signature: PlanKey) -> CachedPlan:
        """A plan that has its regions from the beginning."""
        cached = await self._beside_the_loop(lambda: self._build(signature)).wait()
        working, candidates = await self._beside_the_loop(lambda: self._candidates(signature)).wait()
        plan = await self._delegated_plan(working, signature, self._delegation.wanted(candidates))
        if plan is not None:
            cached.plan = plan
        return cached

    def _candidates(self, signature: PlanKey) -> tuple[WorkingGraph, list[Candidate]]:
        working = self._working(signature)
        if self._is_split(working, signature) or not self._delegation.prepare():
            return working, []
        self._optimize(working, self._passes & passes_before_regions())
        self._put_in_order(working, signature)
        return working, self._delegation.candidates(working, signature)

    async def _delegated_plan(
        self, working: WorkingGraph, signature: PlanKey, candidates: Iterable[Candidate]
    ) -> Plan | None:
        """The plan with these regions, or None if all are refused."""
        compiled = [(c, region) for c in candidates if (region := await self._delegation.compile(c)) is not None]
        if not compiled:
            return None

        def build() -> Plan:
            inner, kernels = self._delegation.put(working, signature, compiled)
            self._optimize(working, self._passes & passes_after_regions())

            def kernel_of(node: Node) -> BuiltKernel:
                return kernels.get(node.id) or self._kernel_of_working(working, node)

            self._put_in_order(working, inner)
            return self._whole_plan(working, inner, kernel_of)

        return await self._beside_the_loop(build).wait()

    # Kernels

    def kernel(self, node: Node) -> BuiltKernel:
        """The kernel of a node, for use outside steps.  Raises what building it raises.

        It waits for nobody: while a thread works on the graph, a node that has no place yet gets the kernel of
        the device that it would prefer by itself.
        """
        if not self._lock.acquire(blocking=False):
            placed = self._placer.is_placed(node)
            return self._kernel(node, None if placed else self._placer.preferred(node, self.graph.library))
        try:
            self._place([node] if self._config.place_pruned_graph else self.graph.nodes)
            return self._kernel(node)
        finally:
            self._lock.release()

    def _kernel(self, node: Node, device: Device | None = None) -> BuiltKernel:
        """The kernel of a node: the same object for every plan, as its state belongs to the session."""
        kernel = self._kernels.get(node.id)
        if kernel is not None and self._calling.get(node.id, node.attrs) is not node.attrs:
            # Since gradients were taken, it calls functions that give more; plans that were made before stay right.
            self._kernels.pop(node.id, None)
            kernel = None
        if kernel is None:
            if is_functional(node, self.graph.library):
                self._calling[node.id] = node.attrs
            # The loop and a thread may both make one; the first is kept.
            made = self._make_kernel(self.graph, node, self._function_runtime(), device)
            kernel = self._kernels.setdefault(node.id, made)
        return kernel

    def _host_kernel(self, node: Node) -> BuiltKernel:
        """A kernel of a node that computes in the host's memory, wherever the node is placed."""
        if self._placer.device_of(node).is_host:
            return self._kernel(node)
        return self._make_kernel(self.graph, node, self._function_runtime(), self._host)

    def _function_runtime(self) -> FunctionRuntime:
        if self._functions is None:
            self._functions = FunctionRuntime(
                self.graph.library,
                self.graph.versions,
                self._make_kernel,
                self._on_the_loop,
                self._beside_the_loop,
                self._budget,
            )
        return self._functions

    def _kernel_of_working(self, working: WorkingGraph, node: Node) -> BuiltKernel:
        """The kernel of a node that graph passes may have made."""
        if working.is_original(node):
            return self._kernel(node)
        if node.id in working.callees:
            function, in_body = working.callees[node.id]
            kernel: BuiltKernel = function.kernel(in_body, self._device_of(working, node))
            return kernel
        if node.op != "Const":
            return self._make_kernel(self.graph, node, self._function_runtime(), self._device_of(working, node))
        value = node.attrs["value"].array
        device = self._device_of(working, node)
        made = BuiltKernel(lambda: value, wants_context=False, cost=0.0, device=device.name, on_host=device.is_host)
        made.queued_on = device if self._is_queued(node, device) else None
        return made

    def _device_of(self, working: WorkingGraph, node: Node) -> Device:
        """Where a node of a plan runs."""
        if node.id in working.places:
            return working.places[node.id]
        return self._placer.device_of(self.graph.nodes[working.made_of.get(node.id, node.id)])

    def _place_name(self, working: WorkingGraph, node: Node) -> str:
        return self._device_of(working, node).name

    def _make_kernel(
        self, graph: GraphView, node: Node, functions: FunctionRuntime, device: Device | None = None
    ) -> BuiltKernel:
        if device is None:
            device = self._placer.device_of(node)
        queued = self._is_queued(node, device)
        on_device = queued or (_refers(node) and not device.is_host)
        construction = OpKernelConstruction(
            name=node.name,
            op_def=node.op_def,
            attrs=node.attrs,
            input_types=node.input_types,
            output_types=node.output_types,
            device=device.name,
            xp=(device if on_device else self._host).xp,
            graph_version=graph.versions.producer,
            functions=DeviceFunctions(functions, self._bodies, device),
            allocator=None if device.is_host else device.allocator,
            placed_on=device,
            max_image_pixels=self._config.max_image_pixels,
        )
        try:
            if node.op in EXECUTOR_OPS:
                raise errors.InternalError(f"{node.op} is run by the executor and has no kernel")
            if node.op in graph.library:
                kernel = call_kernel(construction)
            else:
                create = self._create_kernel
                kernel = _registered(construction) if create is None else create(construction, _registered)
            kernel.device, kernel.on_host = device.name, device.is_host
            if queued or kernel.variables is not None:
                kernel.queued_on = device
                kernel.host_outputs = frozenset(
                    i for i, memory in enumerate(construction.output_memory_types) if memory is MemoryType.HOST_MEMORY
                )
            return kernel
        except NeedsThreadError:
            raise
        except errors.OpError as error:
            error.attach_node(node.name, node.op, node.site, node.origin)
            raise
        except Exception as error:
            kind = errors.ResourceExhaustedError if isinstance(error, MemoryError) else errors.UnknownError
            raise kind(
                f"building the kernel of {node.op}: {type(error).__name__}: {error}",
                node=node.name,
                op=node.op,
                site=node.site,
            ) from error

    def _is_queued(self, node: Node, device: Device) -> bool:
        """Does a kernel of a device work on what is in its memory?  Others that pass it on do not look into it."""
        if device.is_host or node.op in TRANSFERS or is_functional(node, self.graph.library):
            return False
        if _refers(node) or node.op in _SESSION_TENSORS:
            return False
        memory = memory_types_for_node(node, device.type)
        return MemoryType.DEVICE_MEMORY in (*memory.inputs, *memory.outputs)

    def _on_device(self, device: Device, node: Node, position: int, array: Any, name: str) -> DeviceConstant | None:
        """A constant as the input of a node on a device that is not the host; None if that is in host memory."""
        if memory_types_for_node(node, device.type).inputs[position] is MemoryType.HOST_MEMORY:
            return None
        return self._constants.of(device, array, node=name)


# They give values of a device's memory to the session, or take them, and look into none.
_SESSION_TENSORS = frozenset({"GetSessionHandle", "GetSessionHandleV2", "GetSessionTensor"})


def _registered(c: OpKernelConstruction) -> BuiltKernel:
    """The registered kernel for a node."""
    return kernel_registry.global_registry.lookup(c.op, c.device_type, c.attrs, node=c.name).build(c)


def _refers(node: Node) -> bool:
    """Does a node refer to state, by a handle or a ref?  Its kernel then says itself what of it is queued."""
    types = (*node.input_types, *node.output_types)
    return any(t.is_ref for t in types) or (node.op_def.is_stateful and not _HANDLES.isdisjoint(types))


def _dropped(loop: asyncio.AbstractEventLoop, plan: Plan | PartitionedPlan, graph: WorkingGraph) -> None:
    """A plan that no callable has any more, nor a run."""
    if plan.compilation.busy:
        return  # a thread is at work on it still: it is left to the collector
    # In a turn of its own: it may be the collector that calls this, amid whatever holds a lock in this thread.
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(partial(dispose, plan, graph, nodes=plan.num_nodes))


class _Countdown:
    """Calls somebody at the last of so many runs of a plan."""

    __slots__ = ("_call", "_left", "_runs")

    def __init__(self, runs: int, call: Callable[[CachedPlan, int], None]) -> None:
        self._runs = self._left = runs
        self._call = call

    def ran(self, cached: CachedPlan) -> None:
        """A run of the plan begins."""
        self._left -= 1
        if self._left == 0:
            self._call(cached, self._runs)


def _is_imported(nodes: Iterable[Node | proto.NodeDef | proto.FlatNodeDef]) -> bool:
    """Are the kernels of these nodes' ops?"""
    is_loaded = kernel_registry.global_registry.is_loaded
    return all(is_loaded(node.op) for node in steadily(nodes))
