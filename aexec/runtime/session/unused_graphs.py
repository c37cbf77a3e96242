"""Frees the memory of large graphs as soon as nothing uses them.

A graph and its nodes refer to one another, so a graph that was dropped is freed only by Python's cyclic garbage
collector. The collector counts objects, not bytes: a model of a hundred nodes with a gigabyte of weights does not
trigger it.  So graphs with large constants are remembered, weakly, when a session of theirs closes.  Whenever a session
begins or closes, each remembered graph to which only its own parts refer is taken apart.  Next to read:
`threads/disposal.py`.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections import Counter
from typing import Any

from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.loop_budget import DEFAULT
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Node
from aexec.runtime.threads.disposal import dispose

__all__ = ["free_unused_graphs", "remember_graph"]

# Graphs with fewer bytes of constants are left to the collector.
_LARGE = 1 << 20
# At most this many graphs are remembered; the oldest are left to the collector.
_MOST = 64

# Builtin types that a graph consists of, besides its nodes.
_CONTAINERS = (dict, list, set, tuple)
# Objects of these packages outlive a graph or belong to a session; through them too many objects can be reached.
_OTHERS = ("aexec.framework.", "aexec.kernels.", "aexec.devices.", "aexec.runtime.")


@dataclass(frozen=True, slots=True)
class _Hold:
    """Evidence that a graph is in use: a part of it that had references from outside when the graph was searched.

    While the part still has more references than `own`, the graph is in use, and the slow search need not be repeated.

    Attributes:
        node: the id of the node that is the part; None for the graph itself.
        own: the number of references from other parts of the graph.
        size: the graph's `_size` at that time.
    """

    node: int | None
    own: int
    size: int

    def lasts(self, graph: Graph) -> bool:
        """True if the graph is certainly in use."""
        if _size(graph) != self.size:
            return False
        if self.node is None:
            return sys.getrefcount(graph) > self.own + 3  # those of the caller, the parameter, getrefcount
        return sys.getrefcount(graph.nodes[self.node]) > self.own + 1


@dataclass(slots=True)
class _Remembered:
    """A graph of a closed session, and the objects that still refer to it."""

    graph: weakref.ref[Graph]
    hold: _Hold | None = None

    def is_held(self) -> bool:
        """True if the graph is certainly in use."""
        graph = self.graph()
        return graph is not None and self.hold is not None and self.hold.lasts(graph)


_lock = threading.Lock()
_remembered: dict[int, _Remembered] = {}


def remember_graph(graph: Graph) -> None:
    """Called when a session of this graph has closed: remember a large graph, to free it once nothing refers to it."""
    if len(graph) < DEFAULT.plan_nodes and _constant_bytes(graph) < _LARGE:
        return
    with _lock:
        _remembered[id(graph)] = _Remembered(weakref.ref(graph))
        while len(_remembered) > _MOST:
            del _remembered[next(iter(_remembered))]


def free_unused_graphs() -> None:
    """Take apart the remembered graphs to which only their own parts refer.  May be called from any thread."""
    if not _remembered or not _lock.acquire(blocking=False):  # another thread does it
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
    """True if the graph object has more references than its parts have, so that the parts need not be searched."""
    return sys.getrefcount(graph) > _size(graph) + 3  # those of the caller, the parameter, getrefcount


def _size(graph: Graph) -> int:
    """An upper bound of the number of references from the graph's parts to the graph."""
    return len(graph) + sum(belongs is not None for belongs in (graph._build_state, graph._collections))


def _parts(reference: weakref.ref[Graph]) -> list[Any]:
    """The graph, then all objects that belong to it; empty if the graph is gone or certainly in use."""
    graph = reference()
    if graph is None or _is_held(graph):
        return []
    parts: dict[int, Any] = {id(graph): graph}
    pending: list[Any] = [graph]
    while pending:
        part = pending.pop()
        # A node leads only to its table, or to the one that its graph was copied from.
        for other in (part.graph,) if type(part) is Node else gc.get_referents(part):
            if id(other) not in parts and _may_belong_to_graph(other):
                parts[id(other)] = other
                pending.append(other)
    return list(parts.values())


def _may_belong_to_graph(thing: Any) -> bool:
    module = type(thing).__module__
    return isinstance(thing, _CONTAINERS) or (module.startswith("aexec.") and not module.startswith(_OTHERS))


def _is_unused(parts: list[Any], remembered: _Remembered) -> bool:
    """True if nothing outside `parts` refers to the graph.  Else `remembered.hold` is set, if a part can be named."""
    own = {id(part) for part in parts}
    leads_to = {id(part): [id(to) for to in gc.get_referents(part) if id(to) in own] for part in parts}
    internal = Counter(to for found in leads_to.values() for to in found)
    parts.append(object())  # only the list refers to it: its count is what counting adds
    counts = {id(part): sys.getrefcount(part) - internal[id(part)] for part in parts}
    least = counts.pop(id(parts.pop()))
    pending = [part for part, count in counts.items() if count > least]  # parts with references from outside
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
    """A part that holds the graph, of `own`: id of a part with references from outside → those from other parts."""
    size = _size(graph)
    if id(graph) in own:
        return _Hold(None, own[id(graph)], size)
    return next((_Hold(node.id, own[id(node)], size) for node in graph if id(node) in own), None)
