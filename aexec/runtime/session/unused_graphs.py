"""Giving back the memory of graphs that nobody uses any more, at once.

A graph and its nodes refer to one another, so only Python's cyclic garbage collector would free a graph that was
dropped, and it knows nothing of the bytes in the constants: with a model of a hundred nodes and a gigabyte of weights
it sees a hundred objects.  So graphs with large constants are remembered, weakly, when a session of theirs closes.
Whenever a session begins or closes, those of them are taken apart to which nothing refers but their own parts.
Next to read: `threads/disposal.py`.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections import Counter
from dataclasses import dataclass
from typing import Any

from aexec.framework.waiting.loop_budget import DEFAULT
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Node
from aexec.runtime.threads.disposal import dispose

__all__ = ["free_unused_graphs", "remember_graph"]

# Constants of fewer bytes in all can wait for the collector.
_LARGE = 1 << 20
# Graphs that are in use after their session has closed; the oldest are left to the collector.
_MOST = 64

# What a graph is made of, besides its nodes.
_CONTAINERS = (dict, list, set, tuple)
# What lasts longer, or is of a session, leads to too much else to be looked through.
_OTHERS = ("aexec.framework.", "aexec.kernels.", "aexec.devices.", "aexec.runtime.")


@dataclass(frozen=True, slots=True)
class _Hold:
    """A part of a graph to which something else referred when the graph was looked through.

    While the part has more references than the other parts account for, the graph is in use: it need not be looked
    through again, which takes as long as it is large.

    Attributes:
        node: the id of the node that is the part; None for the graph itself.
        own: how many references the other parts have to it.
        size: that of the graph then, by `_size`.
    """

    node: int | None
    own: int
    size: int

    def lasts(self, graph: Graph) -> bool:
        """Is the graph in use for sure?"""
        if _size(graph) != self.size:
            return False
        if self.node is None:
            return sys.getrefcount(graph) > self.own + 3  # the caller's variable, the argument's, and that of counting
        return sys.getrefcount(graph.nodes[self.node]) > self.own + 1


@dataclass(slots=True)
class _Remembered:
    """A graph of which a session has closed, and what was found to hold it."""

    graph: weakref.ref[Graph]
    hold: _Hold | None = None

    def is_held(self) -> bool:
        """Is the graph in use for sure?"""
        graph = self.graph()
        return graph is not None and self.hold is not None and self.hold.lasts(graph)


_lock = threading.Lock()
_remembered: dict[int, _Remembered] = {}


def remember_graph(graph: Graph) -> None:
    """A session of this graph has closed: free the graph once nobody refers to it, if that is worth it."""
    if len(graph) < DEFAULT.plan_nodes and _constant_bytes(graph) < _LARGE:
        return
    with _lock:
        _remembered[id(graph)] = _Remembered(weakref.ref(graph))
        while len(_remembered) > _MOST:
            del _remembered[next(iter(_remembered))]


def free_unused_graphs() -> None:
    """Take apart those of the graphs that only their own parts refer to.  From any thread."""
    if not _remembered or not _lock.acquire(blocking=False):  # another thread is at it
        return
    try:
        for key, remembered in list(_remembered.items()):
            if remembered.is_held():
                continue
            parts = _parts(remembered.graph)
            if remembered.graph() is None:
                del _remembered[key]
            elif parts and _is_unused(parts, remembered):
                del _remembered[key]
                dispose(parts[0], nodes=len(parts[0]))
    finally:
        _lock.release()


def _constant_bytes(graph: Graph) -> int:
    return sum(node.attrs["value"].num_bytes for node in graph if node.op == "Const")


def _is_held(graph: Graph) -> bool:
    """Are there more references to the graph itself than its parts have?  Then there is no need to look at those."""
    return sys.getrefcount(graph) > _size(graph) + 3  # the caller's variable, the argument's, and that of counting


def _size(graph: Graph) -> int:
    """How many parts refer to the graph, at most."""
    return len(graph) + sum(belongs is not None for belongs in (graph._build_state, graph._collections))


def _parts(reference: weakref.ref[Graph]) -> list[Any]:
    """The graph itself first, and all objects that belong to it; none if it is gone, or in use for sure."""
    graph = reference()
    if graph is None or _is_held(graph):
        return []
    parts: dict[int, Any] = {id(graph): graph}
    pending: list[Any] = [graph]
    while pending:
        part = pending.pop()
        # Of a node only the table is a way to more: one that the graph was copied from.
        for other in (part.graph,) if type(part) is Node else gc.get_referents(part):
            if id(other) not in parts and _may_belong_to_graph(other):
                parts[id(other)] = other
                pending.append(other)
    return list(parts.values())


def _may_belong_to_graph(thing: Any) -> bool:
    module = type(thing).__module__
    return isinstance(thing, _CONTAINERS) or (module.startswith("aexec.") and not module.startswith(_OTHERS))


def _is_unused(parts: list[Any], remembered: _Remembered) -> bool:
    """Can the first of these objects be reached from nowhere but from them?  Else what holds it is noted, if it can."""
    own = {id(part) for part in parts}
    leads_to = {id(part): [id(to) for to in gc.get_referents(part) if id(to) in own] for part in parts}
    internal = Counter(to for found in leads_to.values() for to in found)
    parts.append(object())  # one to which nothing refers but the list: so many references come of counting them
    counts = {id(part): sys.getrefcount(part) - internal[id(part)] for part in parts}
    least = counts.pop(id(parts.pop()))
    pending = [part for part, count in counts.items() if count > least]  # to which others refer
    reached = set(pending)
    while pending:
        new = set(leads_to[pending.pop()]) - reached
        reached |= new
        pending += new
    if id(parts[0]) not in reached:
        return True
    remembered.hold = _hold(parts[0], {part: internal[part] for part, count in counts.items() if count > least})
    return False


def _hold(graph: Graph, own: dict[int, int]) -> _Hold | None:
    """Of the objects to which others refer, by `id` with the references among the parts: one that holds the graph."""
    size = _size(graph)
    if id(graph) in own:
        return _Hold(None, own[id(graph)], size)
    return next((_Hold(node.id, own[id(node)], size) for node in graph if id(node) in own), None)
