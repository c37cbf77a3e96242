"""Export: a Graph as a GraphDef.

A node that was imported comes out as its NodeDef went in, unknown attrs and debug
info included; only what the import may change (name, inputs, device) is written anew.
"""

from __future__ import annotations

from aexec import proto
from aexec.graph.nodes.node import Node
from aexec.graph.nodes.node_table import NodeTable

__all__ = ["node_to_proto", "to_graph_def"]


def to_graph_def(graph: NodeTable, first: int = 0) -> proto.GraphDef:
    """The graph as a message, or its nodes from one on."""
    message = proto.GraphDef(node=[node_to_proto(node) for node in graph.nodes[first:]])
    message.versions.CopyFrom(graph.versions)
    if len(graph.library):
        message.library.CopyFrom(graph.library.to_proto())
    return message


def node_to_proto(node: Node) -> proto.NodeDef:
    """One node as a NodeDef."""
    return node.node_def
