"""The planner of one session: graph, placement and kernels, and the plans that are made of them.

A plan is made for a signature: pruned, placed, with its kernels built, and laid out.  It
lives as long as a `Callable` has it; callables of one signature share theirs.  Small graphs
are planned on the loop, because a thread hop costs more; for large ones, which take longer
than a slice, the work is done in a thread while the loop goes on.  Only one thread or the
loop works on the graph at any time.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from aexec import proto
from aexec.devices.device_registry import host_device
from aexec.framework import dtypes, errors, kernel_registry
from aexec.framework.device import Device
from aexec.framework.futures import running_loop
from aexec.framework.garbage_collector import collector_paused
from aexec.framework.inline_call import NeedsThreadError
from aexec.framework.late_dataclass import dataclass
from aexec.framework.loop_budget import NODE_BYTES, LoopBudget
from aexec.framework.op_kernel import BuiltKernel, OpKernelConstruction
from aexec.framework.types import MemoryType
from aexec.graph.calls import is_call
from aexec.graph.control_flow import EXECUTOR_OPS
from aexec.graph.graph import Graph
from aexec.graph.graph_import import ImportOptions, import_graph_def
from aexec.graph.node import GraphView, Node
from aexec.graph.node_memory_types import memory_types_for_node
from aexec.graph.node_wire import flatten
from aexec.graph.partition import TRANSFERS, Partition, split
from aexec.graph.passes import WorkingGraph, optimize, pass_names
from aexec.graph.prune import reachable
from aexec.graph.schedule import Costs
from aexec.runtime.config import SessionConfig
from aexec.runtime.delegated import BEFORE_REGIONS, Candidate, Delegation, RegionReport
from aexec.runtime.device_constants import DeviceConstant, DeviceConstants
from aexec.runtime.folding import FoldedValues
from aexec.runtime.functions import Function, FunctionRuntime, call_kernel
from aexec.runtime.partition_graphs import partition_graph
from aexec.runtime.partitioned_plan import PartitionedPlan, build_partitioned_plan
from aexec.runtime.placer import Placer
from aexec.runtime.plan import Plan, PlanKey, build_plan
from aexec.runtime.worker_pool import OnCancel, run_in_thread

if TYPE_CHECKING:
    from aexec.runtime.cost_model import CostModel

__all__ = ["CachedPlan", "Planner"]

T = TypeVar("T")

# What leads to values that are kept between steps.
_HANDLES = frozenset(dtypes.ALWAYS_ON_HOST)

logger = logging.getLogger("aexec")

_INLINING = "function_inlining"


@dataclass(slots=True, weakref_slot=True, eq=False)
class CachedPlan:
    """A plan, and what it was made for.

    Attributes:
        plan: what runs that begin now execute; another one once a delegate is ready for its regions.
        graph: the nodes that it runs, as the graph passes left them.
        on_run: called with this when a run begins, or None.
    """

    plan: Plan | PartitionedPlan
    signature: PlanKey
    graph: WorkingGraph
    on_run: Callable[[CachedPlan], None] | None = None


class Planner:
    """See the module's head.

    Args:
        graph: may grow by whoever holds it; `extend` leaves it alone and goes on with a copy.
        devices: in order of preference.

    Raises:
        InvalidArgumentError: the graph cannot be placed.
    """

    def __init__(self, graph: Graph, devices: tuple[Device, ...], config: SessionConfig) -> None:
        self.graph = graph
        self._config = config
        self._devices = devices
        self._budget = LoopBudget(config.slice_seconds)
        self._host = host_device(devices)
        self._placer = Placer(
            devices,
            soft=config.allow_soft_placement,
            log_placement=config.log_device_placement,
            costs=config.cost_model,
        )
        self._plans: WeakValueDictionary[PlanKey, CachedPlan] = WeakValueDictionary()
        self._builds: dict[PlanKey, asyncio.Task[CachedPlan]] = {}
        self._kernels: dict[int, BuiltKernel] = {}
        self._body_kernels: dict[tuple[Node, str], BuiltKernel] = {}
        self._functions: FunctionRuntime | None = None
        self._constants = DeviceConstants()
        self._folded = FoldedValues(self._host_kernel)
        self._passes_memory: dict[Any, Any] = {}
        self._passes = pass_names(config.graph_passes)
        self._delegation = Delegation(config, self._budget, self._kernel_of_working, self._device_of)
        self._delegating: set[asyncio.Task[Any]] = set()
        self._edge_numbers = itertools.count(1)
        # Held by the thread that works on the graph; `_work` are the tasks of those that do or will.
        self._lock = threading.Lock()
        self._work: set[asyncio.Task[Any]] = set()
        # Where a graph is large, or needs kernels that are still to be imported, which takes long, the loop goes on
        # meanwhile: `place`, or else the first plan, does it in a thread.
        self._imported: tuple[Graph, int, int] | None = None  # a graph all of whose kernels are
        self._to_place = not config.place_pruned_graph
        # By costs it takes several times as long.
        few = self._budget.place_nodes if config.cost_model is None else self._budget.plan_nodes
        if self._to_place and (running_loop() is None or (len(graph) < few and self._has_kernels())):
            self._place_all()

    def __len__(self) -> int:
        """Plans that there are."""
        return len(self._plans)

    async def place(self) -> None:
        """Place the graph, unless that was done.  Raises InvalidArgumentError if it cannot be placed."""
        if self._to_place:
            await asyncio.shield(self._beside_the_loop(self._place_all))

    def _place_all(self) -> None:
        self._place(self.graph.nodes)
        self._to_place = False

    def _has_kernels(self) -> bool:
        """Is all imported that the graph needs?"""
        graph = self.graph
        seen = (graph, len(graph), len(graph.library))
        if seen != self._imported:
            bodies = [graph.library.get(name).node_def for name in graph.library]
            if not (_is_imported(graph) and all(_is_imported(body) for body in bodies)):
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
        if not named and len(self.graph) < self._budget.plan_nodes and not self._work and self._has_kernels():
            with suppress(NeedsThreadError):
                cached = self._plans[signature] = self._build(signature)
                return cached
        build = self._builds.get(signature)
        if build is None:
            if named:
                build = self._delegate_task(self._build_delegated(signature))
            else:
                build = self._beside_the_loop(lambda: self._build(signature))
            self._builds[signature] = build
            build.add_done_callback(lambda task: self._built(signature, task))
        return asyncio.shield(build)

    async def extend(self, more: proto.GraphDef | bytes) -> None:
        """Add nodes to the graph; all or none.  Raises as `Session.extend` does.

        Cancelled before the nodes are there, it adds none.
        """
        most = self._budget.plan_nodes
        added = flatten(more) if isinstance(more, bytes) and len(more) < most * NODE_BYTES else more
        small = not isinstance(added, bytes) and len(added.node) < most and _is_imported(added.node)
        if small and len(self.graph) < most and not self._work:
            self._extend(added)
            return
        wanted = True
        try:
            await asyncio.shield(self._beside_the_loop(lambda: self._extend(added, lambda: wanted)))
        except asyncio.CancelledError:
            wanted = False
            raise

    async def close(self) -> None:
        """Wait for work under way, and forget everything."""
        while self._work or self._delegating:
            await asyncio.wait(self._work | self._delegating)
        await self._delegation.close()
        self._kernels.clear()
        self._body_kernels.clear()

    def executed_graphs(self, cached: CachedPlan) -> list[proto.GraphDef]:
        """The nodes that a plan runs, as one graph per device."""
        return [partition_graph(partition) for partition in self._partitions(cached)]

    def cost_graph(self, cached: CachedPlan, costs: CostModel) -> proto.CostGraphDef:
        """What is known of the costs of the nodes that a plan runs."""
        from aexec.runtime.cost_graph import cost_graph

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

    def _beside_the_loop(self, work: Callable[[], T]) -> asyncio.Task[T]:
        """Work on the graph in a thread.  Whoever waits for it may leave: the thread goes on, and so its task."""

        def locked() -> T:
            with self._lock, collector_paused():
                return work()

        working = run_in_thread(locked, on_cancel=OnCancel.WAIT)
        task = asyncio.get_running_loop().create_task(working, name="work on the graph")
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def _built(self, signature: PlanKey, build: asyncio.Task[CachedPlan]) -> None:
        del self._builds[signature]
        if not build.cancelled() and build.exception() is None:
            self._plans[signature] = build.result()

    # Extending

    def _extend(
        self, more: proto.GraphDef | proto.FlatGraphDef | bytes, wanted: Callable[[], bool] = lambda: True
    ) -> None:
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
        if wanted():
            self.graph = graph
            self._placer.keep(placed)
            if self._functions is not None:
                # Its instances stay, with their state: a library only ever grows.
                self._functions.library, self._functions.versions = graph.library, graph.versions

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

    def _build(self, signature: PlanKey) -> CachedPlan:
        working = self._working(signature)
        passes = self._passes
        if len(self._devices) > 1 and len(self.graph.library) and _INLINING in passes:
            self._optimize(working, (_INLINING,))
            self._place_bodies(working)
            passes = passes - {_INLINING}
        self._optimize(working, passes)
        if self._is_split(working):
            return CachedPlan(self._partitioned_plan(working, signature), signature, working)
        plan = build_plan(working, signature, lambda node: self._kernel_of_working(working, node), self._budget)
        return CachedPlan(plan, signature, working, None if signature.in_parts else self._on_run())

    def _place_bodies(self, working: WorkingGraph) -> None:
        """Place the nodes of functions that were inlined, softly: where they ask for, or else their call."""
        nodes = [node for node in working.nodes.values() if not working.is_original(node)]
        try:
            chosen = self._placer.choose(nodes, working.nodes.__getitem__, working.library, soft=True)
        except errors.InvalidArgumentError:
            # They use a resource where they have no kernel; on the host bodies run that are not inlined, too.
            chosen = dict.fromkeys((node.id for node in nodes), self._host)
        working.places.update(chosen)

    def _devices_of(self, working: WorkingGraph) -> list[Device]:
        """The devices that its nodes run on, those of the first nodes first."""
        if len(self._devices) == 1 or not working.nodes:
            return [self._host]
        return list(dict.fromkeys(self._device_of(working, node) for node in working.nodes.values()))

    def _is_split(self, working: WorkingGraph) -> bool:
        """Do its nodes run elsewhere than on one device of the host?"""
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
        )

    def _costs(self, working: WorkingGraph) -> Costs:
        """What a simulated step of a plan is told."""
        from aexec.runtime.cost_model import CostModel

        model = self._config.cost_model or CostModel()
        nodes = working.nodes

        def device_of(node: Node) -> Device:
            return self._device_of(working, node)

        return Costs(
            device_of,
            lambda node: model.time_estimate(node, device_of(node).type),
            lambda endpoint: model.copy_time(model.size_estimate(nodes[endpoint[0]].name, endpoint[1])),
        )

    def _partitioned_plan(self, working: WorkingGraph, signature: PlanKey) -> PartitionedPlan:
        by_name = {device.name: device for device in self._devices}

        def kernel_of(partition: Partition, node: Node) -> BuiltKernel:
            if node.id not in partition.added:
                return self._kernel_of_working(working, node)
            return self._make_kernel(self.graph, node, self._function_runtime(), by_name[partition.device.name])

        partitions = self._split(working, signature, self._host)
        return build_partitioned_plan(partitions, kernel_of, self._budget, self._on_device)

    def _optimize(self, working: WorkingGraph, passes: Collection[str]) -> None:
        optimize(working, passes, self._folded.evaluator(), self._function_runtime().callee)

    def _working(self, signature: PlanKey) -> WorkingGraph:
        """What a request needs of the graph, placed."""
        graph = self.graph
        if self._config.place_pruned_graph:
            roots = [*(i for i, _ in signature.fetches), *signature.targets]
            self._place([graph.nodes[i] for i in sorted(reachable(graph, roots, frozenset(signature.feeds)))])
        else:
            self._place_all()
        return WorkingGraph(
            graph,
            signature.feeds,
            signature.fetches,
            signature.targets,
            self._place_name,
            self._passes_memory,
            self._config.check_feed_shapes,
        )

    # Delegating

    def stop_delegating(self) -> None:
        """Plans that are made from now on have no regions."""
        self._delegation.stop()

    async def regions(self, signature: PlanKey) -> list[RegionReport]:
        """What delegates run of a request, or would."""
        _, candidates = await self._beside_the_loop(lambda: self._candidates(signature))
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
            working, candidates = await self._beside_the_loop(lambda: self._candidates(cached.signature))
            wanted = self._delegation.wanted(candidates)
            if not wanted:
                working.nodes.clear()  # nodes and graph refer to each other
                return
            due = self._delegation.due(wanted)
            if runs < due:
                cached.on_run = _Countdown(due - runs, lambda cached, more: self._look_at(cached, runs + more)).ran
                return
            plan = await self._delegated_plan(working, cached.signature, wanted)
            if plan is not None:
                cached.plan = plan
        except Exception:
            # Runs go on without.
            logger.exception("Regions of a plan cannot be delegated")

    async def _build_delegated(self, signature: PlanKey) -> CachedPlan:
        """A plan that has its regions from the beginning."""
        cached = await self._beside_the_loop(lambda: self._build(signature))
        working, candidates = await self._beside_the_loop(lambda: self._candidates(signature))
        plan = await self._delegated_plan(working, signature, self._delegation.wanted(candidates))
        if plan is not None:
            cached.plan = plan
        return cached

    def _candidates(self, signature: PlanKey) -> tuple[WorkingGraph, list[Candidate]]:
        working = self._working(signature)
        if self._is_split(working) or not self._delegation.prepare():
            return working, []
        self._optimize(working, self._passes & BEFORE_REGIONS)
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
            self._optimize(working, self._passes - (BEFORE_REGIONS - {"pruning"}))

            def kernel_of(node: Node) -> BuiltKernel:
                return kernels.get(node.id) or self._kernel_of_working(working, node)

            return build_plan(working, inner, kernel_of, self._budget)

        return await self._beside_the_loop(build)

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
        if kernel is None:
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
                lambda node: self._placer.preferred(node, self.graph.library).name,
                self._beside_the_loop,
                self._budget,
                self._config.graph_passes,
            )
        return self._functions

    def _kernel_of_working(self, working: WorkingGraph, node: Node) -> BuiltKernel:
        """The kernel of a node that graph passes may have made."""
        if working.is_original(node):
            return self._kernel(node)
        if node.id in working.callees:
            function, in_body = working.callees[node.id]
            return self._body_kernel(function, in_body, self._device_of(working, node))
        if node.op != "Const":
            return self._make_kernel(self.graph, node, self._function_runtime(), self._device_of(working, node))
        value = node.attrs["value"].array
        device = self._device_of(working, node)
        made = BuiltKernel(lambda: value, wants_context=False, cost=0.0, device=device.name)
        made.queued_on = device if self._is_queued(node, device) else None
        return made

    def _body_kernel(self, function: Function, node: Node, device: Device) -> BuiltKernel:
        """The kernel of a node of a function's body on a device: the same object for every plan."""
        if device.is_host:
            return function.kernel(node)
        kernel = self._body_kernels.get((node, device.name))
        if kernel is None:
            made = self._make_kernel(function.body.graph, node, self._function_runtime(), device)
            kernel = self._body_kernels.setdefault((node, device.name), made)
        return kernel

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
        if device is None and graph is self.graph:
            device = self._placer.device_of(node)
        elif device is None:
            # What a function's body works on is in the host's memory.
            preferred = self._placer.preferred(node, graph.library)
            device = preferred if preferred.is_host else self._host
        queued = self._is_queued(node, device)
        construction = OpKernelConstruction(
            name=node.name,
            op_def=node.op_def,
            attrs=node.attrs,
            input_types=node.input_types,
            output_types=node.output_types,
            device=device.name,
            xp=(device if queued else self._host).xp,
            graph_version=graph.versions.producer,
            functions=functions,
            allocator=None if device.is_host else device.allocator,
            placed_on=device,
        )
        try:
            if node.op in EXECUTOR_OPS:
                raise errors.InternalError(f"{node.op} is run by the executor and has no kernel")
            if node.op in graph.library:
                kernel = call_kernel(construction)
            else:
                registry = kernel_registry.global_registry
                device_type = self._host.type if is_call(node, graph.library) else device.type
                kernel = registry.lookup(node.op, device_type, node.attrs, node=node.name).build(construction)
            kernel.device = device.name
            if queued:
                kernel.queued_on = device
                kernel.host_outputs = frozenset(
                    i for i, memory in enumerate(construction.output_memory_types) if memory is MemoryType.HOST_MEMORY
                )
            return kernel
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
        if device.is_host or node.op in TRANSFERS or is_call(node, self.graph.library):
            return False
        if node.op_def.is_stateful and not _HANDLES.isdisjoint((*node.input_types, *node.output_types)):
            return False
        memory = memory_types_for_node(node, device.type)
        return MemoryType.DEVICE_MEMORY in (*memory.inputs, *memory.outputs)

    def _on_device(self, device: Device, node: Node, position: int, array: Any, name: str) -> DeviceConstant | None:
        """A constant as the input of a node on a device that is not the host; None if that is in host memory."""
        if memory_types_for_node(node, device.type).inputs[position] is MemoryType.HOST_MEMORY:
            return None
        return self._constants.of(device, array, node=name)


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
    return all(is_loaded(node.op) for node in nodes)
