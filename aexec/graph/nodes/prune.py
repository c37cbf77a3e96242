"""Pruning: which nodes a step needs, given what is fed, fetched and targeted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable

from aexec.framework.waiting.long_work import taken_from
from aexec.graph.nodes.node import Endpoint, GraphView
from aexec.graph.nodes.traversal import with_dependents

__all__ = ["PLACEHOLDERS", "is_fed_placeholder", "late_nodes", "reachable"]

PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault", "_Arg"})


def reachable(graph: GraphView, roots: Iterable[int], fed: Container[Endpoint]) -> set[int]:
    """Ids of all nodes that the nodes `roots` need, themselves included.

    A fed endpoint cuts the data edges that leave it, not the control edges of its node:
    who waits for the node's end still makes it run.  Only a placeholder has no work of
    its own, so a control edge from a fed one needs nothing.
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
    """Ids of the nodes, among all that `roots` need, that wait for an endpoint which is still to be fed.

    Args:
        fed: all endpoints that are fed, sooner or later.
        pending: those that are still to be.
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
    """Is this a placeholder whose value is fed?  Then it need not run to be done."""
    return (node_id, 0) in fed and graph.nodes[node_id].op in PLACEHOLDERS
