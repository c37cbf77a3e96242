"""Identity and no-op removal: nodes that only hand on values, or only hand on that others are done.

An Identity stays if something waits for it (it is dead where its input is, a Switch is not), if it
waits for something itself, or reads a variable.  A NoOp goes if its consumers do not get more
control edges than there were.
"""

from __future__ import annotations

from collections import Counter

from aexec.graph.node import Endpoint, Node
from aexec.graph.passes.working_graph import WorkingGraph
from aexec.graph.ref_edges import gives_cell

__all__ = ["is_removable", "remove_pass_through"]

_IDENTITIES = frozenset({"Identity", "StopGradient", "PreventGradient", "Snapshot"})


def remove_pass_through(working: WorkingGraph) -> None:
    """Let consumers of an Identity use its input, and of a NoOp wait for what it waits for."""
    waited_for = working.waited_for()
    forward: dict[Endpoint, Endpoint] = {}
    for node in working.nodes.values():
        if node.op in _IDENTITIES and node.id not in waited_for and is_removable(node, working):
            forward[node.id, 0] = node.inputs[0]
    working.redirect(forward)
    _remove_no_ops(working)


def is_removable(node: Node, working: WorkingGraph) -> bool:
    """May consumers of output 0 use an input instead?  It must be no ref, and nobody may ask for the node itself."""
    if node.control_inputs or node.id in working.pinned:
        return False
    return not any(gives_cell(working, endpoint, working.fed) for endpoint in node.inputs)


def _remove_no_ops(working: WorkingGraph) -> None:
    if not any(node.op == "NoOp" and node.id not in working.pinned for node in working.nodes.values()):
        return
    counts = Counter(i for node in working.nodes.values() for i in node.control_inputs)
    spliced: dict[int, tuple[int, ...]] = {}
    for node in working.producers_first():
        if node.op == "NoOp" and node.id not in working.pinned:
            sources = _splice(node.control_inputs, spliced)
            if len(sources) * counts[node.id] <= len(sources) + counts[node.id]:
                spliced[node.id] = sources
    if not spliced:
        return
    for node in list(working.nodes.values()):
        if any(i in spliced for i in node.control_inputs):
            working.rewire(node, node.inputs, _splice(node.control_inputs, spliced))


def _splice(controls: tuple[int, ...], spliced: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for i in controls:
        found.update(dict.fromkeys(spliced.get(i, (i,))))
    return tuple(found)
