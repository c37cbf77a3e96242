"""Reports what graph passes did to a request, for `Session.rewrites` and `aexec inspect --passes`.

Next to read: `aexec/graph/passes/__init__.py`, and `aexec/graph/ordering/step_order.py` for reads and updates.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from aexec.framework.late_dataclass import dataclass
from aexec.graph.nodes.prune import reachable
from aexec.graph.passes import WorkingGraph

__all__ = ["PassReport", "report_passes"]


@dataclass(frozen=True, slots=True)
class PassReport:
    """The nodes of a request, before and after the graph passes.

    Attributes:
        written: the number of the graph's nodes that the request needs.
        run: op → number of nodes left, without constants.
        joined: name of a node → its op, and the nodes that it was made of, as `name (op)`.
        unordered: pairs of names, of a read of a variable and of an update that should follow it but does not, because
            that would contradict the order of others.
    """

    written: int
    run: dict[str, int]
    joined: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    unordered: list[tuple[str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.written} nodes, of which passes leave {sum(self.run.values())} and constants:"]
        lines += [f"  {count:6} {op}" for op, count in self.run.items()]
        lines += ["joined:"] if self.joined else []
        lines += [f"  {name}: {op} of {', '.join(of)}" for name, (op, of) in self.joined.items()]
        lines += ["in no order, as it would contradict that of others:"] if self.unordered else []
        lines += [f"  {read} reads what {update} updates" for read, update in self.unordered]
        return "\n".join(lines)


def report_passes(working: WorkingGraph) -> PassReport:
    """The report of a request after its passes."""
    written = reachable(working.graph, working.roots, working.fed)
    left = [node for node in working.nodes.values() if node.op != "Const"]
    joined = {}
    for node in left:
        if node.derived_from is not None and len(node.derived_from.nodes) > 1:
            joined[node.name] = node.op, [_with_op(working, name) for name in node.derived_from.nodes]
    unordered = [(working.nodes[r].name, working.nodes[u].name) for r, u in working.order.contradictions]
    return PassReport(len(written), dict(Counter(node.op for node in left).most_common()), joined, unordered)


def _with_op(working: WorkingGraph, name: str) -> str:
    node = working.graph.find(name)
    return name if node is None else f"{name} ({node.op})"
