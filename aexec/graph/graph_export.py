"""Export: a Graph as a GraphDef.

A node that was imported comes out as its NodeDef went in, unknown attrs and debug
info included; only what the import may change (name, inputs, device) is written anew.
"""

from __future__ import annotations

from aexec import proto
from aexec.framework import attr_value
from aexec.graph.node import Node
from aexec.graph.node_table import NodeTable
from aexec.graph.node_wire import unflatten_node

__all__ = ["node_to_proto", "to_graph_def"]


def to_graph_def(graph: NodeTable, first: int = 0) -> proto.GraphDef:
    """The graph as a message, or its nodes from one on."""
    message = proto.GraphDef(node=[node_to_proto(node) for node in graph.nodes[first:]])
    message.versions.CopyFrom(graph.versions)
    if len(graph.library):
        message.library.CopyFrom(graph.library.to_proto())
    return message


def node_to_proto(node: Node) -> proto.NodeDef:
    """One node as a NodeDef.  What it was derived from stands in its debug info."""
    message = _to_proto(node)
    if node.derived_from is not None:
        info = message.experimental_debug_info
        info.original_node_names.extend(node.derived_from.nodes)
        info.original_func_names.extend(node.derived_from.functions)
    return message


def _to_proto(node: Node) -> proto.NodeDef:
    wire = node.wire
    if wire is None:
        message = proto.NodeDef(name=node.name, op=node.op, input=node.input_names(), device=node.device)
        kinds = {attr.name: attr.type for attr in node.op_def.attrs}
        for name, value in sorted(node.attrs.items()):
            message.attr[name].CopyFrom(attr_value.encode(value, kinds.get(name)))
        return message
    flat = proto.FlatNodeDef(
        name=node.name,
        op=node.op,
        input=node.input_names(),
        device=node.device,
        attr=wire.attr,
        experimental_debug_info=wire.debug_info,
        experimental_type=wire.type,
    )
    message = unflatten_node(flat)
    for name in wire.tensors:
        message.attr[name].tensor.CopyFrom(node.attrs[name].to_proto())
    return message
