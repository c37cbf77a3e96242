"""`PlanMaker`: makes a plan of a request: prunes the graph, places it, runs the passes, splits it, and lays it out.

What it is given is used by one thread at a time (`graph_work.py`).  Sessions across machines have makers of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from aexec import proto
from aexec.devices.device_registry import host_device
from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.kernel_contract.op_kernel import BuiltKernel
from aexec.framework.waiting.long_work import empty
from aexec.framework.waiting.loop_budget import LoopBudget
from aexec.graph.nodes.node import Node
from aexec.graph.nodes.node_table import NodeTable
from aexec.graph.nodes.prune import reachable
from aexec.graph.partitioning.partition import Ends, Partition
from aexec.graph.partitioning.schedule import Costs
from aexec.graph.partitioning.splitting import split
from aexec.graph.passes import WorkingGraph, optimize, pass_names, passes_before_placing
from aexec.graph.tensor_connections import ConnectedTable
from aexec.runtime.config import SessionConfig
from aexec.runtime.functions.variable_order import put_in_order
from aexec.runtime.planning.cached_plan import CachedPlan
from aexec.runtime.planning.captured import CapturedRegion, Capturing
from aexec.runtime.planning.folding import FoldedValues
from aexec.runtime.planning.session_graph import SessionGraph
from aexec.runtime.planning.session_kernels import SessionKernels
from aexec.runtime.plans.partition_graphs import partition_graph
from aexec.runtime.plans.partitioned_plan import PartitionedPlan, build_partitioned_plan
from aexec.runtime.plans.plan import Plan, PlanKey
from aexec.runtime.plans.plan_builder import build_plan

__all__ = ["PlanMaker"]


class PlanMaker:
    """Makes the plans of a session.

    Attributes:
        kernels: as given.
        host: the device where what is fed and fetched is.
        passes: names of the graph passes that run.
    """

    def __init__(
        self,
        graph: SessionGraph,
        kernels: SessionKernels,
        devices: tuple[Device, ...],
        config: SessionConfig,
        budget: LoopBudget,
    ) -> None:
        self._graph = graph
        self.kernels = kernels
        self._devices = devices
        self._config = config
        self._budget = budget
        self.host = host_device(devices)
        self.passes = pass_names(config.graph_passes)
        self._folded = FoldedValues(kernels.on_host)
        self._passes_memory: dict[Any, Any] = {}

    def take_apart(self) -> None:
        """Let go of what passes have computed, in pieces."""
        self._folded.take_apart()
        empty(self._passes_memory)

    @np.errstate(all="ignore")  # kernels compute with their attrs when they are made
    def build(self, signature: PlanKey, on_run: Callable[[CachedPlan], None] | None) -> CachedPlan:
        """The plan of a request.

        Args:
            on_run: called when a run of it begins, if it is neither split nor run in parts.
        """
        working = self.working_graph(signature)
        try:
            return self._lay_out(signature, working, None if signature.in_parts else on_run)
        except BaseException:
            working.take_apart()
            raise

    def _lay_out(
        self, signature: PlanKey, working: WorkingGraph, on_run: Callable[[CachedPlan], None] | None
    ) -> CachedPlan:
        passes = self.passes
        making = passes & passes_before_placing()
        if len(self._devices) > 1 and len(self._graph.graph.library) and making:
            self.optimize(working, making)
            self._place_bodies(working)
            passes -= making
        self.optimize(working, passes)
        self.put_in_order(working, signature)
        if self.is_split(working, signature):
            inner, kernels, regions = self._with_captured(working, signature)
            return CachedPlan(self.partitioned_plan(working, inner, kernels), signature, working, captured=regions)
        plan = self.whole_plan(working, signature, lambda node: self.kernels.of_working(working, node))
        return CachedPlan(plan, signature, working, on_run)

    def _with_captured(
        self, working: WorkingGraph, signature: PlanKey
    ) -> tuple[PlanKey, dict[int, BuiltKernel], list[CapturedRegion]]:
        """Put the regions that devices capture in their places: the signature then, their kernels, and they."""
        if signature.in_parts or not self._config.capture_graphs:
            return signature, {}, []
        capturing = Capturing(
            working,
            lambda node: self.kernels.of_working(working, node),
            lambda node: self.kernels.device_of(working, node),
            self.kernels.on_device,
        )
        inner, kernels = capturing.put(signature)
        if capturing.regions:
            self.put_in_order(working, inner)
        return inner, kernels, capturing.regions

    def _place_bodies(self, working: WorkingGraph) -> None:
        """Place the nodes of functions that were inlined, softly: where they ask for, or else their call."""
        nodes = [node for node in working.nodes.values() if not working.is_original(node)]
        try:
            chosen = self._graph.placer.choose(nodes, working.nodes.__getitem__, working.library, soft=True)
        except errors.InvalidArgumentError:
            # They use a resource where they have no kernel.
            chosen = dict.fromkeys((node.id for node in nodes), self.host)
        working.places.update(chosen)

    def _devices_of(self, working: WorkingGraph) -> list[Device]:
        """The devices that its nodes run on, those of the first nodes first."""
        if len(self._devices) == 1 or not working.nodes:
            return [self.host]
        return list(dict.fromkeys(self.kernels.device_of(working, node) for node in working.nodes.values()))

    def is_split(self, working: WorkingGraph, signature: PlanKey) -> bool:
        """Do its nodes run elsewhere than on one device of the host, or are its ends elsewhere than in its memory?"""
        if signature.feed_devices or signature.fetch_devices:
            return True
        used = self._devices_of(working)
        return len(used) > 1 or not used[0].is_host

    def split(self, working: WorkingGraph, signature: PlanKey, host: Device) -> list[Partition]:
        # What is fed in parts may wait for nothing else than what it needs.
        scheduled = self._config.schedule_receives and not signature.in_parts
        return split(
            working,
            signature.feeds,
            signature.fetches,
            signature.targets,
            lambda node: self.kernels.device_of(working, node),
            host,
            self.kernels.edge_numbers,
            compress=self._config.compress_transfers,
            costs=self._costs(working) if scheduled else None,
            ends=self.ends(signature, host),
        )

    def ends(self, signature: PlanKey, host: Device) -> Ends:
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
            return self.kernels.device_of(working, node)

        return Costs(
            device_of,
            lambda node: model.time_estimate(node, device_of(node).type),
            lambda endpoint: model.copy_time(model.size_estimate(nodes[endpoint[0]].name, endpoint[1])),
        )

    def partitioned_plan(
        self, working: WorkingGraph, signature: PlanKey, kernels: Mapping[int, BuiltKernel]
    ) -> PartitionedPlan:
        by_name = {device.name: device for device in self._devices}

        def kernel_of(partition: Partition, node: Node) -> BuiltKernel:
            if node.id not in partition.added:
                return kernels.get(node.id) or self.kernels.of_working(working, node)
            return self.kernels.make(self._graph.graph, node, self.kernels.functions, by_name[partition.device.name])

        partitions = self.split(working, signature, self.host)
        return build_partitioned_plan(
            working,
            signature,
            partitions,
            kernel_of,
            self._budget,
            self.kernels.on_device,
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

    def whole_plan(self, working: WorkingGraph, signature: PlanKey, kernel_of: Callable[[Node], BuiltKernel]) -> Plan:
        return build_plan(working, signature, kernel_of, self._budget, order=working.order)

    def put_in_order(self, working: WorkingGraph, signature: PlanKey) -> None:
        put_in_order(working, signature, self.kernels.functions)

    def optimize(self, working: WorkingGraph, passes: Collection[str]) -> None:
        optimize(working, passes, self._folded.evaluator(), self.kernels.functions.callee)

    def working_graph(self, signature: PlanKey) -> WorkingGraph:
        """What a request needs of the graph, placed."""
        graph: NodeTable = self._graph.graph
        # What passes remember is of the nodes as they are in the graph.
        memory, unlike = self._passes_memory, frozenset[int]()
        if signature.connections:
            graph = connected = ConnectedTable(graph, signature.connections)
            memory, unlike = {}, frozenset(connected.rewired)
        if self._config.place_pruned_graph:
            roots = [*(i for i, _ in signature.fetches), *signature.targets]
            needed = sorted(reachable(graph, roots, frozenset(signature.feeds)))
            self._graph.place([self._graph.graph.nodes[i] for i in needed])
        else:
            self._graph.place_all()
        return WorkingGraph(
            graph,
            signature.feeds,
            signature.fetches,
            signature.targets,
            self.place_name,
            memory,
            self._config.check_feed_shapes,
            self._config.max_inlined_nodes,
            unlike,
        )

    def executed_graphs(self, cached: CachedPlan) -> list[proto.GraphDef]:
        """The nodes that a plan runs, as one graph per device."""
        return [partition_graph(partition) for partition in self.partitions(cached)]

    def partitions(self, cached: CachedPlan) -> Sequence[Partition]:
        if isinstance(cached.plan, PartitionedPlan):
            return cached.plan.partitions
        used = self._devices_of(cached.graph)
        return self.split(cached.graph, cached.signature, used[0])

    def place_name(self, working: WorkingGraph, node: Node) -> str:
        return self.kernels.device_of(working, node).name
