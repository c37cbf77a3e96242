"""Pruning: removes nodes that nothing needs any more after other passes."""

from __future__ import annotations

from aexec.graph.nodes.prune import reachable
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["prune"]


def prune(working: WorkingGraph) -> None:
    """Remove the nodes that no fetch or target needs."""
    if not working.changed:
        return
    needed = reachable(working, working.roots, working.fed)
    for node_id in [i for i in working.nodes if i not in needed]:
        del working.nodes[node_id]
