"""`ReplicaPlanner`: the planner of a session that has its whole graph on each worker: nothing is split here.

Nodes are placed on devices that every worker has, and sent with device names within a task; a worker splits a
graph that is on several of its devices, as a session in process does.  Next to read: `replicated_session.py`.
"""

from __future__ import annotations

from dataclasses import replace

from aexec import proto
from aexec.distributed.cluster_planner import ClusterPlanMaker, ClusterPlanner, TaskPartition
from aexec.framework.device_contract.device import Device
from aexec.framework.device_contract.device_name import DeviceName
from aexec.graph.partitioning.partition import Partition
from aexec.graph.partitioning.splitting import split
from aexec.graph.passes import WorkingGraph
from aexec.runtime.plans.plan import PlanKey

__all__ = ["ReplicaPlanner"]


class _ReplicaPlanMaker(ClusterPlanMaker):
    def split(self, working: WorkingGraph, signature: PlanKey, host: Device) -> list[Partition]:
        ends = self.ends(signature, host)
        feeds, fetches, targets = signature.feeds, signature.fetches, signature.targets
        return split(working, feeds, fetches, targets, lambda _: host, host, self.kernels.edge_numbers, ends=ends)

    def _graph_of(self, working: WorkingGraph, partition: TaskPartition) -> proto.GraphDef:
        message = super()._graph_of(working, partition)
        own = [node for i, node in partition.nodes.items() if i not in partition.added]
        devices = {node.name: self.place_name(working, node) for node in own}
        for node in message.node:
            # Feeds and fetches enter and leave in the host's memory.
            node.device = _within_task(devices.get(node.name, self.host.name))
        return message


class ReplicaPlanner(ClusterPlanner):
    """Plans requests of a replicated session: the whole graph goes to one worker, which splits it itself."""

    maker_class = _ReplicaPlanMaker


def _within_task(device: str) -> str:
    """The name without its task, such as `/device:CPU:0`."""
    return str(replace(DeviceName.parse(device), job=None, replica=None, task=None))
