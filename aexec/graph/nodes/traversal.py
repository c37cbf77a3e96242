"""Graph traversal: producers before consumers, or from some nodes to all that depend on them.

*Back edges* close a loop, from NextIteration to Merge, and bring the values of later iterations.  Orders ignore them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from aexec.framework.waiting.long_work import steadily, taken_from
from aexec.graph.nodes.control_flow import MERGE, NEXT_ITERATION
from aexec.graph.nodes.node import Node

__all__ = ["producers_first", "waits_for", "with_dependents"]


def waits_for(node: Node, node_of: Callable[[int], Node]) -> list[int]:
    """Return the ids of the nodes from which edges other than back edges lead to a node.

    A Merge with back edges only would never get a first value; its back edges count, and so it is part of a cycle.
    """
    data = [source for source, _ in node.in_edges]
    if node.op in MERGE:
        data = [i for i in data if node_of(i).op not in NEXT_ITERATION] or data
    return data + list(node.control_edges)


def producers_first(
    nodes: Collection[Node], node_of: Callable[[int], Node], after: Mapping[int, Sequence[int]] | None = None
) -> list[Node]:
    """Sort nodes so that only back edges point backwards.

    Args:
        nodes: some of a graph's nodes; edges from other nodes are ignored.
        node_of: returns a node by id.
        after: more edges: id of a node → ids of nodes that come before it.

    Returns:
        all the nodes, except those that are in a cycle or need one that is.
    """
    more = after or {}
    if not more and _is_in_order(nodes, node_of):
        return list(nodes)
    pending = dict.fromkeys((node.id for node in nodes), 0)
    consumers: dict[int, list[Node]] = {node_id: [] for node_id in pending}
    for node in steadily(nodes):
        for source in (*waits_for(node, node_of), *more.get(node.id, ())):
            if source in pending:
                consumers[source].append(node)
                pending[node.id] += 1
    order = [node for node in nodes if not pending[node.id]]
    for node in steadily(order):
        for consumer in consumers[node.id]:
            pending[consumer.id] -= 1
            if not pending[consumer.id]:
                order.append(consumer)
    return order


def with_dependents(node_ids: Collection[int], consumers: Mapping[int, Sequence[int]]) -> set[int]:
    """Return these nodes and all that depend on one of them, given the consumers of each node, by id."""
    found: set[int] = set()
    left = list(node_ids)
    for node_id in taken_from(left):
        if node_id not in found:
            found.add(node_id)
            left += consumers.get(node_id, ())
    return found


def _is_in_order(nodes: Collection[Node], node_of: Callable[[int], Node]) -> bool:
    """True if the order of ids is right already, as it is in most graphs: they are written producers first."""
    last = -1
    for node in steadily(nodes):
        node_id = node.id
        if node_id < last:
            return False
        last = node_id
        for source, _ in node.in_edges:
            if source >= node_id:
                if node.op not in MERGE or max(waits_for(node, node_of)) >= node_id:
                    return False
                break
        for source in node.control_edges:
            if source >= node_id:
                return False
    return True
