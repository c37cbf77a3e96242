"""`ClusterPlanner`: the planner of a session across machines: as in process, except that partitions are sent to tasks.

Passes, placement and partitions are the same.  A task runs one GraphDef of all its devices, named by its hash; a fed
value enters at every task that uses it, a fetched one leaves where it is made.
Next to read: `remote_execution.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from aexec import proto
from aexec.distributed.cluster_spec import task_of
from aexec.distributed.collective_groups import tell_groups
from aexec.framework.device_contract.device import Device
from aexec.framework.kernel_contract.op_kernel import BuiltKernel
from aexec.graph.partitioning.partition import Ends, Partition
from aexec.graph.passes import WorkingGraph
from aexec.runtime.planning.cached_plan import CachedPlan
from aexec.runtime.planning.plan_maker import PlanMaker
from aexec.runtime.planning.planner import Planner
from aexec.runtime.plans.partition_graphs import partition_graph
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import PlanKey

__all__ = ["ClusterPlanMaker", "ClusterPlanner", "RemotePlan", "TaskPartition"]


class RemotePlan:
    """The part of a plan that one task runs.

    Attributes:
        task: the task's name.
        graph: a GraphDef as bytes; its `_Arg` and `_Retval` nodes are numbered by position in the request.
        name: the hash of the graph.
        targets: names of the nodes that must run although nothing there uses their outputs.
        feeds, fetches: positions in the request of the values that enter and leave there.
        nodes: names of the session's nodes in it, for errors.
        num_nodes, size: as of a `Plan`.
    """

    def __init__(self, task: str, partition: TaskPartition, message: proto.GraphDef, *, in_parts: bool) -> None:
        self.task = task
        self.graph = message.SerializeToString(deterministic=True)
        self.targets = [part.nodes[i].name for part in partition.parts for i in part.targets]
        told = "\n".join([*self.targets, str(in_parts)]).encode()
        self.name = hashlib.sha256(self.graph + told).hexdigest()[:32]
        self.in_parts = in_parts
        self.feeds, self.fetches = tuple(partition.feeds), tuple(partition.fetches)
        self.nodes = [n.name for part in partition.parts for i, n in part.nodes.items() if i not in part.added]
        self.num_nodes = self.size = len(message.node)

    def take_apart(self) -> None:
        """Nothing to do: it refers to no other object."""

    def __repr__(self) -> str:
        return f"<RemotePlan of {self.task}: {self.num_nodes} nodes>"


class TaskPartition(Partition):
    """The partitions of one task's devices, as one.

    Attributes:
        parts: the partitions of the devices.
    """

    def __init__(self, whole: WorkingGraph, parts: Sequence[Partition]) -> None:
        super().__init__(whole, parts[0].device)
        self.parts = parts
        for part in parts:
            self.nodes.update(part.nodes)
            self.added |= part.added
            self.feeds |= part.feeds
            self.fetches |= part.fetches
            self.fetched_from |= part.fetched_from
            self.targets += part.targets

    def take_apart(self) -> None:
        super().take_apart()
        for part in self.parts:
            part.take_apart()


class ClusterPlanMaker(PlanMaker):
    """Makes plans whose parts are sent to tasks."""

    def is_split(self, working: WorkingGraph, signature: PlanKey) -> bool:
        return bool(working.nodes)

    def ends(self, signature: PlanKey, host: Device) -> Ends:
        return Ends([None] * len(signature.feeds), [None] * len(signature.fetches))

    def partitioned_plan(
        self, working: WorkingGraph, signature: PlanKey, kernels: Mapping[int, BuiltKernel]
    ) -> PartitionedPlan:
        by_task: dict[str, list[Partition]] = {}
        for partition in self.split(working, signature, self.host):
            by_task.setdefault(task_of(partition.device.name), []).append(partition)
        together = [TaskPartition(working, parts) for parts in by_task.values()]
        graphs = [self._graph_of(working, partition) for partition in together]
        tell_groups(graphs)
        plans = [
            RemotePlan(task, partition, graph, in_parts=signature.in_parts)
            for task, partition, graph in zip(by_task, together, graphs, strict=True)
        ]
        host = next((i for i, partition in enumerate(together) if partition.feeds or partition.fetches), 0)
        # The executor of partitions passes each plan to its factory of executors; it does not use it otherwise.
        made = PartitionedPlan(tuple(together), tuple(plans), host, None)  # type: ignore[arg-type]
        made.compilation.refuse("its nodes run in other processes")
        return made

    def _graph_of(self, working: WorkingGraph, partition: TaskPartition) -> proto.GraphDef:
        """The graph that a task is sent."""
        return _merged([partition_graph(part) for part in partition.parts])

    def executed_graphs(self, cached: CachedPlan) -> list[proto.GraphDef]:
        """Like `PlanMaker.executed_graphs`."""
        parts = [p.parts if isinstance(p, TaskPartition) else [p] for p in self.partitions(cached)]
        return [partition_graph(part) for each in parts for part in each]


class ClusterPlanner(Planner):
    """Plans requests of a session across machines: one GraphDef for each task that takes part."""

    maker_class = ClusterPlanMaker


def _merged(graphs: Sequence[proto.GraphDef]) -> proto.GraphDef:
    """Several graphs joined; a feed that enters at two devices of a task becomes one node."""
    merged, *others = graphs
    names = {node.name for node in merged.node}
    for other in others:
        merged.node.extend(node for node in other.node if node.name not in names)
        names.update(node.name for node in other.node)
    return merged
