"""What graph passes have made of a request, for people: `Session.rewrites`, `aexec inspect --passes`.

Next to read: `aexec/graph/passes/__init__.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from aexec.framework.late_dataclass import dataclass
from aexec.graph.passes import WorkingGraph
from aexec.graph.prune import reachable

__all__ = ["PassReport", "report_passes"]


@dataclass(frozen=True, slots=True)
class PassReport:
    """The nodes of a request, before and after the graph passes.

    Attributes:
        written: how many nodes of the graph it needs.
        run: op → number of nodes that are left, constants left out.
        joined: name of a node → its op, and the nodes that it was made of, as `name (op)`.
    """

    written: int
    run: dict[str, int]
    joined: dict[str, tuple[str, list[str]]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.written} nodes, of which passes leave {sum(self.run.values())} and constants:"]
        lines += [f"  {count:6} {op}" for op, count in self.run.items()]
        lines += ["joined:"] if self.joined else []
        lines += [f"  {name}: {op} of {', '.join(of)}" for name, (op, of) in self.joined.items()]
        return "\n".join(lines)


def report_passes(working: WorkingGraph) -> PassReport:
    """What there is to say of a request after its passes."""
    written = reachable(working.graph, working.roots, working.fed)
    left = [node for node in working.nodes.values() if node.op != "Const"]
    joined = {}
    for node in left:
        if node.derived_from is not None and len(node.derived_from.nodes) > 1:
            joined[node.name] = node.op, [_with_op(working, name) for name in node.derived_from.nodes]
    return PassReport(len(written), dict(Counter(node.op for node in left).most_common()), joined)


def _with_op(working: WorkingGraph, name: str) -> str:
    node = working.graph.find(name)
    return name if node is None else f"{name} ({node.op})"
