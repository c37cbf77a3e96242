"""Ref edges: edges that carry a variable's cell instead of a value.

A consumer of a cell reads it when it runs, and so sees all assignments made before.  A pass must not connect a node
that takes a value to a cell.
"""

from __future__ import annotations

from collections.abc import Container

from aexec.graph.nodes.node import Endpoint, GraphView

__all__ = ["RefEdges"]


class RefEdges:
    """Finds the ref edges of a graph, which must not change meanwhile.

    Args:
        fed: endpoints that are fed: feeds are values.
    """

    def __init__(self, graph: GraphView, fed: Container[Endpoint]) -> None:
        self._graph = graph
        self._fed = fed
        # Endpoints behind an Identity → the result: passes ask about chains of them one by one.
        self._known: dict[Endpoint, bool] = {}

    def gives_cell(self, endpoint: Endpoint) -> bool:
        """True if an endpoint carries a variable's cell.

        Identity passes a cell on.  TensorFlow's Identity passes on the variable's buffer, so that a consumer sees what
        was assigned after the Identity ran, and graphs rely on that (`w.read_value()` after a control dependency).
        """
        passed: list[Endpoint] = []
        while (gives := self._gives(endpoint)) is None:
            passed.append(endpoint)
            endpoint = self._graph.nodes[endpoint[0]].in_edges[0]
        self._known.update(dict.fromkeys(passed, gives))
        return gives

    def _gives(self, endpoint: Endpoint) -> bool | None:
        """Return the result for an endpoint, or None if it is that of the node's input."""
        if endpoint in self._fed:
            return False
        source = self._graph.nodes[endpoint[0]]
        if source.op != "Identity":
            return source.output_types[endpoint[1]].is_ref
        return self._known.get(endpoint)
