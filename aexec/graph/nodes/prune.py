"""Pruning: finds the nodes that a step needs, given its feeds, fetches and targets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable

from aexec.framework.waiting.long_work import taken_from
from aexec.graph.nodes.node import Endpoint, GraphView
from aexec.graph.nodes.traversal import with_dependents

__all__ = ["PLACEHOLDERS", "is_fed_placeholder", "late_nodes", "reachable"]

PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault", "_Arg"})


def reachable(graph: GraphView, roots: Iterable[int], fed: Container[Endpoint]) -> set[int]:
    """Return the ids of the nodes `roots` and of all nodes that they need.

    A fed endpoint cuts the data edges from it, but not the control edges from its node: nodes that wait for that node
    still make it run.  Only a placeholder has no work of its own, so a control edge from a fed placeholder is cut too.
    """
    nodes = graph.nodes
    kept: set[int] = set()
    stack = list(roots)
    for node_id in taken_from(stack):
        if node_id in kept:
            continue
        kept.add(node_id)
        node = nodes[node_id]
        stack.extend(endpoint[0] for endpoint in node.in_edges if endpoint not in fed)
        stack.extend(control for control in node.control_edges if not is_fed_placeholder(graph, control, fed))
    return kept


def late_nodes(
    graph: GraphView, roots: Iterable[int], fed: Container[Endpoint], pending: Collection[Endpoint]
) -> set[int]:
    """Return the ids of those nodes needed by `roots` that wait for an endpoint which is still to be fed.

    Args:
        fed: all endpoints that are fed, now or later.
        pending: the endpoints that are still to be fed.
    """
    nodes = graph.nodes
    consumers: defaultdict[int, list[int]] = defaultdict(list)
    late: list[int] = []
    for node_id in reachable(graph, roots, fed):
        node = nodes[node_id]
        for endpoint in node.in_edges:
            if endpoint in pending:
                late.append(node_id)
            elif endpoint not in fed:
                consumers[endpoint[0]].append(node_id)
        for control in node.control_edges:
            if not is_fed_placeholder(graph, control, fed):
                consumers[control].append(node_id)
    return with_dependents(late, consumers)


def is_fed_placeholder(graph: GraphView, node_id: int, fed: Container[Endpoint]) -> bool:
    """True for a placeholder whose value is fed; it need not run."""
    return (node_id, 0) in fed and graph.nodes[node_id].op in PLACEHOLDERS
