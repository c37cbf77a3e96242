"""Tensor connections: a view of a graph in which one tensor replaces another.

They come from TensorFlow's CallableOptions: if `y:0` is connected to `z:0`, all consumers of `z:0` use `y:0` of the
same step.  Next to read: `aexec/graph/passes/working_graph.py`, which is made from such a view.
"""

from __future__ import annotations

from collections.abc import Iterable

from aexec.framework import errors
from aexec.framework.waiting.long_work import steadily
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.nodes.node_table import NodeTable
from aexec.graph.nodes.prune import PLACEHOLDERS, reachable

__all__ = ["ConnectedTable", "Connection"]

# (endpoint, the endpoint that it replaces).
Connection = tuple[Endpoint, Endpoint]


class ConnectedTable(NodeTable):
    """The nodes of a graph, with the connected tensors as inputs of the consumers.

    Raises:
        InvalidArgumentError: dtypes differ, or a tensor would depend on itself.

    Attributes:
        rewired: ids of the nodes whose inputs differ from the graph's.
    """

    def __init__(self, graph: NodeTable, connections: Iterable[Connection]) -> None:
        super().__init__()
        self.nodes = list(graph.nodes)
        self.library, self.versions, self._by_name = graph.library, graph.versions, graph._by_name
        self.rewired: set[int] = set()
        for source, replaced in connections:
            self._check(source, replaced)
            self._connect(source, replaced)

    def _check(self, source: Endpoint, replaced: Endpoint) -> None:
        giver, taker = self.nodes[source[0]], self.nodes[replaced[0]]
        dtype, wanted = giver.output_types[source[1]].base, taker.output_types[replaced[1]].base
        if dtype is not wanted:
            raise errors.InvalidArgumentError(
                f"Tensor connection from {giver.name}:{source[1]}, of type {dtype}, to {taker.name}:{replaced[1]}, "
                f"of type {wanted}: expected the same type"
            )
        if taker.id in reachable(self, [giver.id], frozenset()):
            raise errors.InvalidArgumentError(
                f'Requested Tensor connection between nodes "{taker.name}" and "{giver.name}" would create a cycle.'
            )

    def _connect(self, source: Endpoint, replaced: Endpoint) -> None:
        # A placeholder only returns its value, so nodes that wait for it wait for the other tensor's node instead.
        waits = replaced[0] if self.nodes[replaced[0]].op in PLACEHOLDERS else None
        for node in steadily(self.nodes.copy()):
            if replaced in node.in_edges or waits in node.control_edges:
                self.nodes[node.id] = self._rewired(node, source, replaced, waits)
                self.rewired.add(node.id)

    def _rewired(self, node: Node, source: Endpoint, replaced: Endpoint, waits: int | None) -> Node:
        inputs = tuple([source if endpoint == replaced else endpoint for endpoint in node.in_edges])
        controls = dict.fromkeys(source[0] if control == waits else control for control in node.control_edges)
        return node.rewired(self, inputs, tuple(controls))
