"""Removes Identity nodes, which only pass a value on, and NoOps, which only pass control edges on.

An Identity stays if another node waits for it (it is dead if its input is dead, but a Switch is not), if it has control
inputs, or if it reads a variable.  A NoOp is removed if this does not increase the number of control edges.
"""

from __future__ import annotations

from collections import Counter

from aexec.framework.waiting.long_work import steadily
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.ordering.ref_edges import RefEdges
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["is_removable", "remove_pass_through"]

_IDENTITIES = frozenset({"Identity", "StopGradient", "PreventGradient", "Snapshot"})
# The sources of a NoOp are resolved at once if they are at most so many.
_FEW = 8


def remove_pass_through(working: WorkingGraph) -> None:
    """Connect consumers of an Identity to its input, and those of a NoOp to what it waits for."""
    waited_for = working.waited_for()
    refs = RefEdges(working, working.fed)
    forward: dict[Endpoint, Endpoint] = {}
    for node in steadily(working.nodes.values()):
        if node.op in _IDENTITIES and node.id not in waited_for and is_removable(node, working, refs):
            forward[node.id, 0] = node.in_edges[0]
    working.redirect(forward)
    _remove_no_ops(working)


def is_removable(node: Node, working: WorkingGraph, refs: RefEdges) -> bool:
    """True if consumers of output 0 may use an input instead: it is no ref, and the node itself is not needed."""
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
    """The removed NoOps, and the nodes to wait for instead.

    A NoOp with more than `_FEW` sources has one consumer, and its sources are resolved only for that one: in a chain of
    NoOps each would otherwise list all sources of those before.
    """

    def __init__(self) -> None:
        self._sources: dict[int, tuple[int, ...]] = {}
        self._numbers: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._sources)

    def __contains__(self, node_id: int) -> bool:
        return node_id in self._sources

    def number(self, controls: tuple[int, ...]) -> int:
        """Return the number of sources behind control inputs; may be too high if NoOps share some."""
        most = sum([self._numbers.get(i, 1) for i in controls])
        return len(self.sources(controls)) if most <= _FEW else most

    def add(self, node: Node, number: int) -> None:
        """Remove a NoOp with this number of sources."""
        few = number <= _FEW
        self._sources[node.id] = self.sources(node.control_edges) if few else node.control_edges
        self._numbers[node.id] = number

    def sources(self, controls: tuple[int, ...]) -> tuple[int, ...]:
        """Return the nodes to wait for instead of these control inputs, in their order."""
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
