"""Orders the side effects in a function's body as its nodes were built.

In a function, a read of a variable after an assignment must return the assigned value.  So nodes that use the same
resource wait for each other, readers only for writers.  So do nodes with other effects, such as printing, that no
handle tells apart.  Random ops, and arrays that have a flow, need no order.
Next to read: `function_def.py`, which makes control outputs of these nodes.
"""

from __future__ import annotations

from aexec.framework import dtypes
from aexec.graph.func_graph import FuncGraph
from aexec.graph.function_def import has_side_effects
from aexec.graph.nodes.node import Endpoint, Node

__all__ = ["order_side_effects"]

_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"})

# Identifies a resource: the endpoint that its handle comes from, or None for all effects without a handle.
_Key = Endpoint | None


class _Users:
    """The last nodes that used a resource."""

    def __init__(self) -> None:
        self.writer: int | None = None
        self.readers: list[int] = []

    def before(self, node: Node, *, reads: bool) -> list[int]:
        """Return the ids of the nodes that a node must wait for, and note it as the last user."""
        found = [] if self.writer is None else [self.writer]
        if reads:
            self.readers.append(node.id)
            return found
        found = self.readers or found
        self.writer, self.readers = node.id, []
        return found


def order_side_effects(graph: FuncGraph) -> None:
    """Add the control edges, except to nodes in branches and loops made of Switch and Merge."""
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
