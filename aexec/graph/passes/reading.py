"""Reads of variables' cells that joining nodes may delay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.ordering.ref_edges import RefEdges
from aexec.graph.ordering.variable_uses import later_than_updates
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["Reading"]


class Reading:
    """Checks that fusing does not delay reads of a variable's cell, so that they would come after an update."""

    def __init__(self, working: WorkingGraph) -> None:
        self._working = working
        self._refs = RefEdges(working, working.fed)
        self._late: set[int] | None = None

    def may_wait_for(self, nodes: Sequence[Node], endpoints: Iterable[Endpoint]) -> bool:
        """True if these nodes may also wait for these endpoints."""
        if not any(self._refs.gives_cell(endpoint) for node in nodes for endpoint in node.in_edges):
            return True
        if self._late is None:
            self._late = later_than_updates(self._working.producers_first(), self._working.library)
        return not any(endpoint[0] in self._late for endpoint in endpoints)
