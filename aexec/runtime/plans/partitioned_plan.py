"""The plan of a request whose nodes are on several devices: one ordinary plan for each device.

Feeds enter and fetches leave on the host's device.  If all devices are the host's, values need not travel: then the
partitions together are one plan, the *joint* plan, and that is the one to be compiled (`compiled/compiled_plan.py`).
Next to read: `aexec/graph/partitioning/splitting.py` for how the graph is split, and
`interpreter/partitioned_execution.py` for how the plans run beside one another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from aexec.framework.device_contract.device import Device
from aexec.framework.kernel_contract.op_kernel import BuiltKernel
from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.loop_budget import LoopBudget
from aexec.graph.nodes.node import Node
from aexec.graph.partitioning.partition import Partition
from aexec.graph.passes import WorkingGraph
from aexec.runtime.plans.blocks import NotCompiledError
from aexec.runtime.plans.compilation_policy import CompilationPolicy
from aexec.runtime.plans.device_constants import DeviceConstant
from aexec.runtime.plans.plan import Plan, PlanKey
from aexec.runtime.plans.plan_builder import build_plan

__all__ = ["PartitionedPlan", "build_partitioned_plan"]


@dataclass(slots=True, eq=False)
class PartitionedPlan:
    """The plans of one request, one for each device.

    Attributes:
        partitions, plans: in the same order; feeds and fetches of a plan are in the order of its partition's.
        host: the position of the first partition with feeds or fetches.
        compilation: the policy of the joint plan; refused if values have to travel.
    """

    partitions: tuple[Partition, ...]
    plans: tuple[Plan, ...]
    host: int
    _build_joint: Callable[[], Plan] | None
    compilation: CompilationPolicy = field(default_factory=CompilationPolicy)
    _joint: list[Plan] = field(default_factory=list)

    @property
    def num_nodes(self) -> int:
        return sum(plan.num_nodes for plan in self.plans)

    @property
    def size(self) -> int:
        """Like `Plan.size`, of all partitions together."""
        return sum(plan.size for plan in self.plans)

    @property
    def joint(self) -> Plan:
        """The joint plan: the partitions together, without transfers; made at its first use.

        Its nodes have the kernels that they have in the partitions, each for its own device.

        Raises:
            NotCompiledError: values have to travel.
        """
        build = self._build_joint
        if not self._joint and build is None:
            raise NotCompiledError(self.compilation.refused)
        elif not self._joint and build is not None:
            # The loop and a thread may both make one at the same time; the first is kept.
            self._joint.append(replace(build(), compilation=self.compilation))
            self._build_joint = None
        return self._joint[0]

    def take_apart(self) -> None:
        """Like `Plan.take_apart`."""
        self._build_joint = None
        for plan in (*self.plans, *self._joint):
            plan.take_apart()
        for partition in self.partitions:
            partition.take_apart()


def build_partitioned_plan(
    graph: WorkingGraph,
    signature: PlanKey,
    partitions: Sequence[Partition],
    kernel_of: Callable[[Partition, Node], BuiltKernel],
    budget: LoopBudget,
    on_device: Callable[[Device, Node, int, Any, str], DeviceConstant | None],
    has_to_travel: str = "",
    *,
    skip_sync: bool = False,
) -> PartitionedPlan:
    """Lay out partitions for execution.

    Args:
        graph, signature: the graph and the request that were split.
        kernel_of: returns the kernel of a node of a partition, built or remembered.
        on_device: returns a constant as the input of a node of a device that is not the host; see `plan.OnDevice`.
        has_to_travel: why values must travel although all devices are the host's, or "".
        skip_sync: see `PlanKey`.

    Raises:
        InvalidArgumentError, NotFoundError: as `build_plan`.
    """
    kernels: dict[int, BuiltKernel] = {}

    def remembered(partition: Partition, node: Node) -> BuiltKernel:
        kernel = kernel_of(partition, node)
        if node.id not in partition.added:
            kernels[node.id] = kernel
        return kernel

    if not all(partition.device.is_host for partition in partitions):
        has_to_travel = "its nodes are on devices with memory of their own"
    plans = []
    for partition in partitions:
        # Feeds in the order in which they entered: positions are the partition's.
        feeds, fetches = tuple(partition.feeds.values()), tuple(partition.fetches.values())
        ends = PlanKey(feeds, fetches, tuple(partition.targets), skip_sync=skip_sync)
        constant = None if partition.device.is_host else partial(on_device, partition.device)
        kernel = partial(kernel_of if has_to_travel else remembered, partition)
        plans.append(build_plan(partition, ends, kernel, budget, constant, partition.order))
    host = next((i for i, partition in enumerate(partitions) if partition.feeds or partition.fetches), 0)
    if has_to_travel:
        built = PartitionedPlan(tuple(partitions), tuple(plans), host, None)
        built.compilation.refuse(has_to_travel)
        return built

    def joint() -> Plan:
        made = build_plan(graph, signature, lambda node: kernels[node.id], budget, order=graph.order)
        known = {node.node.id: node for plan in plans for node in plan.nodes}
        for node in made.nodes:
            if node.node.id in known:  # a constant that a partition only sends is no node there
                node.learn(known[node.node.id])
        return made

    return PartitionedPlan(tuple(partitions), tuple(plans), host, joint)
