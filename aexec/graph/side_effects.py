"""The order of side effects in the body of a function: that in which its nodes were made.

Within a function a program is read from top to bottom: a variable that is read after an assignment has what was
assigned.  So nodes that touch the same resource wait for one another, readers only for writers; and so do nodes whose
effects nobody can tell apart, such as those that print.  Random numbers, and arrays that have a flow, need no order.
Next to read: `function_def.py`, which keeps these nodes among the control outputs.
"""

from __future__ import annotations

from aexec.framework import dtypes
from aexec.graph.func_graph import FuncGraph
from aexec.graph.function_def import has_side_effects
from aexec.graph.nodes.node import Endpoint, Node

__all__ = ["order_side_effects"]

_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"})

# What stands for a resource: the endpoint that its handle comes from, or None for whatever has no handle.
_Key = Endpoint | None


class _Users:
    """Who touched a resource last."""

    def __init__(self) -> None:
        self.writer: int | None = None
        self.readers: list[int] = []

    def before(self, node: Node, *, reads: bool) -> list[int]:
        """Ids of the nodes that this one has to wait for; it is the last one then."""
        found = [] if self.writer is None else [self.writer]
        if reads:
            self.readers.append(node.id)
            return found
        found = self.readers or found
        self.writer, self.readers = node.id, []
        return found


def order_side_effects(graph: FuncGraph) -> None:
    """Add the control edges.  Nodes in branches and loops made of Switch and Merge are left as they are."""
    users: dict[_Key, _Users] = {}
    for node in graph.nodes:
        if node.id in graph.build_state.contexts or not has_side_effects(node, graph.library):
            continue
        waits: dict[int, None] = {}
        for key in _touched(graph, node):
            before = users.setdefault(key, _Users()).before(node, reads=node.op in _READS)
            waits.update(dict.fromkeys(before))
        known = {source for source, _ in node.in_edges} | set(node.control_edges)
        node.control_edges = (*node.control_edges, *(i for i in waits if i not in known))


def _touched(graph: FuncGraph, node: Node) -> list[_Key]:
    if node.op.startswith("TensorArray") or "seed" in node.attrs:
        return []
    handles = [
        _origin(graph, endpoint)
        for endpoint, dtype in zip(node.in_edges, node.input_types, strict=True)
        if dtype is dtypes.resource
    ]
    if handles:
        return list(dict.fromkeys(handles))
    return [] if dtypes.resource in node.output_types else [None]


def _origin(graph: FuncGraph, endpoint: Endpoint) -> Endpoint:
    node = graph.nodes[endpoint[0]]
    while node.op == "Identity":
        endpoint = node.in_edges[0]
        node = graph.nodes[endpoint[0]]
    return endpoint
