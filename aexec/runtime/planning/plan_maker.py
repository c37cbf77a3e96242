"""`PlanMaker`: makes the plan of a request: prunes the graph, places it, runs the passes, splits it, and lays it out.

One thread at a time uses a maker (`graph_work.py`).  Sessions across machines have makers of their own.
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
        kernels: the session's kernels.
        host: the device on which feeds enter and fetches leave by default.
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
        """Release what passes have computed, in pieces."""
        self._folded.take_apart()
        empty(self._passes_memory)

    @np.errstate(all="ignore")  # building a kernel may compute with its attributes
    def build(self, signature: PlanKey, on_run: Callable[[CachedPlan], None] | None) -> CachedPlan:
        """The plan of a request.

        Args:
            on_run: called when a run of the plan begins, unless the plan is split or runs in parts.
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
        """Replace the regions that devices capture; return the changed signature, their kernels, and the regions."""
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
        """Place the nodes of inlined functions softly: on the device that they ask for, or else on that of the call."""
        nodes = [node for node in working.nodes.values() if not working.is_original(node)]
        try:
            chosen = self._graph.placer.choose(nodes, working.nodes.__getitem__, working.library, soft=True)
        except errors.InvalidArgumentError:
            # A node uses a resource on a device for which it has no kernel.
            chosen = dict.fromkeys((node.id for node in nodes), self.host)
        working.places.update(chosen)

    def _devices_of(self, working: WorkingGraph) -> list[Device]:
        """The devices that the graph's nodes run on, in the order of the nodes."""
        if len(self._devices) == 1 or not working.nodes:
            return [self.host]
        return list(dict.fromkeys(self.kernels.device_of(working, node) for node in working.nodes.values()))

    def is_split(self, working: WorkingGraph, signature: PlanKey) -> bool:
        """True if the nodes do not all run on one host device, or a feed or fetch is in another device's memory."""
        if signature.feed_devices or signature.fetch_devices:
            return True
        used = self._devices_of(working)
        return len(used) > 1 or not used[0].is_host

    def split(self, working: WorkingGraph, signature: PlanKey, host: Device) -> list[Partition]:
        # With partial feeds, a node must not be held back by a receive that it does not need.
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
        """The devices on which feeds enter and fetches leave."""
        by_name = {"": host, **{device.name: device for device in self._devices}}
        feeds = signature.feed_devices or ("",) * len(signature.feeds)
        fetches = signature.fetch_devices or ("",) * len(signature.fetches)
        return Ends([by_name[name] for name in feeds], [by_name[name] for name in fetches])

    def _costs(self, working: WorkingGraph) -> Costs:
        """The costs for simulating a step of a plan."""
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
        """Why values must be transferred between devices that share the host's memory; "" if they need not."""
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
        """The part of the graph that a request needs, placed."""
        graph: NodeTable = self._graph.graph
        # The passes' memory is valid only for nodes as they are in the graph.
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
