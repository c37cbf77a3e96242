"""Partitions as GraphDefs, for `RunOptions.output_partition_graphs`.

As in TensorFlow's, fed and fetched tensors are `_Arg` and `_Retval` nodes.  Each graph can be imported on its own
(`ImportOptions(internal_names=True)`).
"""

from __future__ import annotations

from collections.abc import Iterable

from aexec import proto
from aexec.framework.wire import attr_value
from aexec.graph.forms.graph_export import node_to_proto
from aexec.graph.nodes import colocation
from aexec.graph.partitioning.partition import Partition

__all__ = ["ORDER_ATTR", "partition_graph"]

# The names of the nodes that a node follows by order edges; see `aexec/graph/ordering/step_order.py`.
ORDER_ATTR = "_follows"


def partition_graph(partition: Partition) -> proto.GraphDef:
    """The GraphDef of a partition, with its device on all nodes."""
    message = proto.GraphDef()
    edges = partition.order.edges
    for node in partition.nodes.values():
        node_def = message.node.add()
        node_def.CopyFrom(node_to_proto(node))
        _note_order(node_def, partition, edges.get(node.id, ()))
    for index, (node_id, slot) in sorted(partition.fetches.items()):
        source = partition.nodes[node_id]
        if (node_id, slot) in partition.feeds.values():
            continue
        tensor = f"{source.name}:{slot}" if slot else source.name
        retval = message.node.add(name=f"_retval_{source.name}_{slot}_{index}", op="_Retval", input=[tensor])
        retval.attr["T"].CopyFrom(attr_value.encode(source.output_types[slot].base))
        retval.attr["index"].CopyFrom(attr_value.encode(index))
        _note_order(retval, partition, partition.order.fetched.get((node_id, slot), ()))
    for node_def in message.node:
        node_def.device = partition.device.name
    message.versions.CopyFrom(partition.versions)
    if len(partition.library):
        message.library.CopyFrom(partition.library.to_proto())
    _drop_foreign_groups(message)
    return message


def _note_order(node_def: proto.NodeDef, partition: Partition, sources: Iterable[int]) -> None:
    names = [partition.nodes[i].name.encode() for i in sources]
    if names:
        node_def.attr[ORDER_ATTR].list.s.extend(names)


def _drop_foreign_groups(message: proto.GraphDef) -> None:
    """Remove colocation groups that name nodes which are not in the graph."""
    names: set[str] = {node.name for node in message.node}
    for node in message.node:
        if colocation.ATTR not in node.attr:
            continue
        groups: Iterable[bytes] = node.attr[colocation.ATTR].list.s
        kept = [g for g in groups if (name := colocation.group_name(g)) is None or name in names]
        del node.attr[colocation.ATTR]
        if kept:
            node.attr[colocation.ATTR].list.s.extend(kept)
