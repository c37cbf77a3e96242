"""How a graph is walked: so that what a node needs comes before it, or from some nodes to all that depend on them.

Edges that close a loop, from NextIteration to Merge, are *back edges*: they bring the values of later
iterations, and no order follows them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from aexec.framework.waiting.long_work import steadily, taken_from
from aexec.graph.nodes.control_flow import MERGE, NEXT_ITERATION
from aexec.graph.nodes.node import Node

__all__ = ["producers_first", "waits_for", "with_dependents"]


def waits_for(node: Node, node_of: Callable[[int], Node]) -> list[int]:
    """Ids of the nodes from which edges lead to a node, back edges left out.

    A Merge of back edges alone would never get a first value: then they close a cycle like any other.
    """
    data = [source for source, _ in node.in_edges]
    if node.op in MERGE:
        data = [i for i in data if node_of(i).op not in NEXT_ITERATION] or data
    return data + list(node.control_edges)


def producers_first(
    nodes: Collection[Node], node_of: Callable[[int], Node], after: Mapping[int, Sequence[int]] | None = None
) -> list[Node]:
    """The nodes in an order in which only back edges point backwards.

    Args:
        nodes: some of a graph's nodes; edges from others are not looked at.
        node_of: node by id.
        after: more edges: id of a node → ids of nodes that come before it.

    Returns:
        all the nodes, but for those that are in a cycle or need one that is.
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
    """These nodes and all that depend on one of them, given the consumers of each node, by id."""
    found: set[int] = set()
    left = list(node_ids)
    for node_id in taken_from(left):
        if node_id not in found:
            found.add(node_id)
            left += consumers.get(node_id, ())
    return found


def _is_in_order(nodes: Collection[Node], node_of: Callable[[int], Node]) -> bool:
    """Most graphs are written producers first, and the ids say so."""
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
