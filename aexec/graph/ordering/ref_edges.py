"""Ref edges: where a variable's cell travels along an edge, and not a value.

What has a cell reads it when it runs, and so sees what was assigned until then; a pass must not let a
node that takes a value read the cell in its place.
"""

from __future__ import annotations

from collections.abc import Container

from aexec.graph.nodes.node import Endpoint, GraphView

__all__ = ["RefEdges"]


class RefEdges:
    """The ref edges of a graph that does not change meanwhile.

    Args:
        fed: endpoints that are fed: feeds are values.
    """

    def __init__(self, graph: GraphView, fed: Container[Endpoint]) -> None:
        self._graph = graph
        self._fed = fed
        # Of endpoints behind an Identity: whole rows of them are asked for one after the other.
        self._known: dict[Endpoint, bool] = {}

    def gives_cell(self, endpoint: Endpoint) -> bool:
        """Does a variable's cell come out of an endpoint?

        Identity passes a cell on.  TensorFlow's passes on the variable's buffer, so a consumer sees what was
        assigned between Identity and itself: graphs rely on that (`w.read_value()` after a control dependency).
        """
        passed: list[Endpoint] = []
        while (gives := self._gives(endpoint)) is None:
            passed.append(endpoint)
            endpoint = self._graph.nodes[endpoint[0]].in_edges[0]
        self._known.update(dict.fromkeys(passed, gives))
        return gives

    def _gives(self, endpoint: Endpoint) -> bool | None:
        """The answer, or None if it is that of the node's input."""
        if endpoint in self._fed:
            return False
        source = self._graph.nodes[endpoint[0]]
        if source.op != "Identity":
            return source.output_types[endpoint[1]].is_ref
        return self._known.get(endpoint)
