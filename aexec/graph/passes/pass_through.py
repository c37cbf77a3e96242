"""Identity and no-op removal: nodes that only hand on values, or only hand on that others are done.

An Identity stays if something waits for it (it is dead where its input is, a Switch is not), if it
waits for something itself, or reads a variable.  A NoOp goes if its consumers do not get more
control edges than there were.
"""

from __future__ import annotations

from collections import Counter

from aexec.framework.waiting.long_work import steadily
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.ordering.ref_edges import RefEdges
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["is_removable", "remove_pass_through"]

_IDENTITIES = frozenset({"Identity", "StopGradient", "PreventGradient", "Snapshot"})
# So many sources of a NoOp are worked out at once.
_FEW = 8


def remove_pass_through(working: WorkingGraph) -> None:
    """Let consumers of an Identity use its input, and of a NoOp wait for what it waits for."""
    waited_for = working.waited_for()
    refs = RefEdges(working, working.fed)
    forward: dict[Endpoint, Endpoint] = {}
    for node in steadily(working.nodes.values()):
        if node.op in _IDENTITIES and node.id not in waited_for and is_removable(node, working, refs):
            forward[node.id, 0] = node.in_edges[0]
    working.redirect(forward)
    _remove_no_ops(working)


def is_removable(node: Node, working: WorkingGraph, refs: RefEdges) -> bool:
    """May consumers of output 0 use an input instead?  It must be no ref, and nobody may ask for the node itself."""
    if node.control_edges or node.id in working.pinned:
        return False
    return not any(refs.gives_cell(endpoint) for endpoint in node.in_edges)


def _remove_no_ops(working: WorkingGraph) -> None:
    if not any(node.op == "NoOp" and node.id not in working.pinned for node in working.nodes.values()):
        return
    counts = Counter(i for node in working.nodes.values() for i in node.control_edges)
    spliced = _Spliced()
    for node in steadily(working.producers_first()):
        if node.op == "NoOp" and node.id not in working.pinned:
            sources = spliced.number(node.control_edges)
            if sources * counts[node.id] <= sources + counts[node.id]:
                spliced.add(node, sources)
    if not spliced:
        return
    for node in steadily(list(working.nodes.values())):
        if node.id not in spliced and any(i in spliced for i in node.control_edges):
            working.rewire(node, node.in_edges, spliced.sources(node.control_edges))


class _Spliced:
    """The NoOps that go, and what is waited for in their place.

    Of one with more than two sources there is one consumer, so that it is looked into once: its sources are worked
    out only for that, as a row of NoOps would otherwise have all of them again and again.
    """

    def __init__(self) -> None:
        self._sources: dict[int, tuple[int, ...]] = {}
        self._numbers: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._sources)

    def __contains__(self, node_id: int) -> bool:
        return node_id in self._sources

    def number(self, controls: tuple[int, ...]) -> int:
        """How many sources these have; two NoOps that share some may be said to have more."""
        most = sum([self._numbers.get(i, 1) for i in controls])
        return len(self.sources(controls)) if most <= _FEW else most

    def add(self, node: Node, number: int) -> None:
        """Let this NoOp go, which has so many sources."""
        few = number <= _FEW
        self._sources[node.id] = self.sources(node.control_edges) if few else node.control_edges
        self._numbers[node.id] = number

    def sources(self, controls: tuple[int, ...]) -> tuple[int, ...]:
        """What these are to be replaced by, in their order."""
        found: dict[int, None] = {}
        seen: set[int] = set()
        left = list(reversed(controls))
        while left:
            i = left.pop()
            if i not in self._sources:
                found[i] = None
            elif i not in seen:
                seen.add(i)
                left += reversed(self._sources[i])
        return tuple(found)
