"""CostGraphDef: the nodes that a plan runs, with the cost model's data on each.

Nodes are numbered over all partitions, and include those that feed, fetch, send and receive.  Times are whole
microseconds, sizes bytes.  `compute_cost` is the longest run.  `compute_time` and `memory_time` add up to the average
run; the latter is the time to read its inputs and write its outputs.  After TensorFlow's
CostModel::AddToCostGraphDef, without its `_SOURCE` and `_SINK`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from aexec import proto
from aexec.graph.nodes.node import Node
from aexec.graph.partitioning.partition import SENDS, Partition
from aexec.runtime.profiling.cost_model import CostModel, NodeCost

__all__ = ["cost_graph"]

_UNKNOWN = NodeCost()


def cost_graph(partitions: Iterable[Partition], costs: CostModel) -> proto.CostGraphDef:
    """The CostGraphDef of the partitions of one step."""
    message = proto.CostGraphDef()
    network = 0.0
    for partition in partitions:
        ids = {node_id: len(message.node) + position for position, node_id in enumerate(partition.nodes)}
        for node in partition.nodes.values():
            entry = message.node.add(name=node.name, device=partition.device.name, id=ids[node.id])
            _add_edges(entry, node, ids)
            _add_outputs(entry, node, partition, costs)
            _add_costs(entry, node, partition, costs)
            if entry.is_final:
                network += costs.copy_time(_read_bytes(node, partition, costs))
    for dimension, cost in (
        ("compute", sum(entry.compute_time for entry in message.node)),
        ("memory", sum(entry.memory_time for entry in message.node)),
        ("network", network),
    ):
        message.cost.add(dimension=dimension, cost=cost)
    return message


def _add_edges(entry: proto.CostGraphDef.Node, node: Node, ids: Mapping[int, int]) -> None:
    for source, slot in node.in_edges:
        entry.input_info.add(preceding_node=ids[source], preceding_port=slot)
    entry.control_input.extend(sorted(ids[source] for source in node.control_edges if source in ids))


def _add_outputs(entry: proto.CostGraphDef.Node, node: Node, partition: Partition, costs: CostModel) -> None:
    known = (costs.find(node.name) or _UNKNOWN).outputs
    for slot, dtype in enumerate(node.output_types):
        output = known[slot] if slot < len(known) else None
        alias = -1 if output is None else _alias(node, output.allocation_id, partition, costs)
        size = -1 if output is None else output.max_bytes
        if output is not None and alias < 0 and output.allocation_id in costs.persistent_ids:
            size = 0  # the node keeps it, so that it counts as persistent memory
        info = entry.output_info.add(size=size, alias_input_port=alias, dtype=dtype.base.enum)
        if output is not None and output.shape is not None:
            info.shape.CopyFrom(output.shape)
        else:
            info.shape.CopyFrom(node.output(slot).static_shape.to_proto())


def _alias(node: Node, allocation_id: int, partition: Partition, costs: CostModel) -> int:
    """The position of the input that shares its buffer with an output, or -1."""
    for position, (source, slot) in enumerate(node.in_edges if allocation_id else ()):
        known = (costs.find(partition.nodes[source].name) or _UNKNOWN).outputs
        if slot < len(known) and known[slot].allocation_id == allocation_id:
            return position
    return -1


def _add_costs(entry: proto.CostGraphDef.Node, node: Node, partition: Partition, costs: CostModel) -> None:
    cost = costs.find(node.name) or _UNKNOWN
    entry.temporary_memory_size = cost.temp_bytes
    entry.persistent_memory_size = cost.persistent_bytes
    entry.compute_cost = math.ceil(cost.max_micros)
    average = round(costs.time_estimate(node, partition.device.type))
    written = sum(costs.size_estimate(node.name, slot) for slot in range(node.num_outputs))
    accessed = costs.memory_time(_read_bytes(node, partition, costs) + written)
    entry.memory_time = min(average, int(accessed))
    entry.compute_time = average - entry.memory_time
    entry.inaccurate = not costs.is_measured(node.name)
    entry.is_final = node.op in SENDS


def _read_bytes(node: Node, partition: Partition, costs: CostModel) -> float:
    return sum(costs.size_estimate(partition.nodes[source].name, slot) for source, slot in node.in_edges)
