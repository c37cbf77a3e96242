"""Export: a Graph as a GraphDef.

An imported node is exported as the NodeDef that it was read from, with unknown attrs and debug info.  Only fields that
the import may change (name, inputs, device) are written anew.
"""

from __future__ import annotations

from aexec import proto
from aexec.graph.nodes.node import Node
from aexec.graph.nodes.node_table import NodeTable

__all__ = ["node_to_proto", "to_graph_def"]


def to_graph_def(graph: NodeTable, first: int = 0) -> proto.GraphDef:
    """Return the graph as a message; `first` leaves out the nodes with smaller ids."""
    message = proto.GraphDef(node=[node_to_proto(node) for node in graph.nodes[first:]])
    message.versions.CopyFrom(graph.versions)
    if len(graph.library):
        message.library.CopyFrom(graph.library.to_proto())
    return message


def node_to_proto(node: Node) -> proto.NodeDef:
    """Return one node as a NodeDef."""
    return node.node_def
