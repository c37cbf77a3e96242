"""Export: a Graph as a GraphDef.

A node that was imported comes out as its NodeDef went in, unknown attrs and debug
info included; only what the import changed (name, inputs, device) is written anew.
"""

from __future__ import annotations

from aexec import proto
from aexec.framework import attr_value
from aexec.framework.attr_value import TensorAttr
from aexec.graph.node import Node
from aexec.graph.node_table import NodeTable

__all__ = ["node_to_proto", "to_graph_def"]


def to_graph_def(graph: NodeTable) -> proto.GraphDef:
    """The whole graph as a message."""
    message = proto.GraphDef(node=[node_to_proto(node) for node in graph.nodes])
    message.versions.CopyFrom(graph.versions)
    if len(graph.library):
        message.library.CopyFrom(graph.library.to_proto())
    return message


def node_to_proto(node: Node) -> proto.NodeDef:
    """One node as a NodeDef.  What it was derived from stands in its debug info."""
    message = _to_proto(node)
    if node.derived_from is not None:
        name, function = node.derived_from
        info = message.experimental_debug_info
        info.original_node_names.append(name)
        info.original_func_names.append(function)
    return message


def _to_proto(node: Node) -> proto.NodeDef:
    if node.node_def is not None:
        message = proto.NodeDef()
        message.CopyFrom(node.node_def)
        message.name = node.name
        message.device = node.device
        inputs = node.input_names()
        if list(message.input) != inputs:
            del message.input[:]
            message.input.extend(inputs)
        for name, value in node.attrs.items():
            # Import leaves large tensors to the attrs.
            if type(value) is TensorAttr and name in message.attr and not message.attr[name].tensor.dtype:
                message.attr[name].tensor.CopyFrom(value.to_proto())
        return message
    message = proto.NodeDef(name=node.name, op=node.op, input=node.input_names(), device=node.device)
    kinds = {attr.name: attr.type for attr in node.op_def.attrs}
    for name, value in sorted(node.attrs.items()):
        message.attr[name].CopyFrom(attr_value.encode(value, kinds.get(name)))
    return message
