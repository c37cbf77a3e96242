"""Delays receives until the step soon needs their values, so that early values do not take memory."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from aexec.graph.nodes.control_flow import ENTER
from aexec.graph.nodes.node import Node
from aexec.graph.nodes.traversal import producers_first
from aexec.graph.ordering.step_order import StepOrder
from aexec.graph.partitioning.partition import RECEIVES
from aexec.graph.partitioning.schedule import Costs, start_times, triggers
from aexec.graph.partitioning.split_graph import SplitGraph
from aexec.graph.partitioning.split_loops import SplitLoops

__all__ = ["hold_receives_back"]


def hold_receives_back(split: SplitGraph, loops: SplitLoops, costs: Costs) -> None:
    """Add triggers to the partitions that delay receives, by the times of a simulated step; call it after the split."""
    starts = start_times(_with_order(split.kept, split.graph.order), costs)
    # The simulation runs a loop once, so a value that leads into a loop may be needed earlier than it says.
    into_loops = _producers_of(split, [node for node in split.kept.values() if node.op in ENTER])
    for partition in split.partitions.values():
        nodes = _with_order(partition.nodes, partition.order)
        order = producers_first(nodes.values(), nodes.__getitem__)
        apart: set[int] = set()
        for node in order:
            if node.op in ENTER or _is_in_loop(loops, node, apart):
                apart.add(node.id)
        # A node whose result no node of the graph needs here has no time at which it is needed.
        needed = {i for i in nodes if i not in partition.added}
        for node in reversed(order):
            if node.id in needed:
                needed.update(_producers(node))
        apart.update(partition.added - needed)
        leading = {i for node in nodes.values() if node.id in into_loops for i in _producers(node)}
        for node in reversed(order):
            if node.id in leading:
                leading.update(_producers(node))
        # A receive with control inputs waits for a Send of its own device, and so starts late already.
        receives = [i for i in partition.added - leading if nodes[i].op in RECEIVES and not nodes[i].control_edges]
        for trigger in triggers(nodes, starts, receives, apart):
            held_by = split.new(partition, split.new_name("synch"), "ControlTrigger", {}, (), (trigger.after,))
            for receive in trigger.receives:
                partition.nodes[receive] = nodes[receive].rewired(partition, (), (held_by,))


def _producers_of(split: SplitGraph, nodes: Iterable[Node]) -> set[int]:
    """Return the ids of these nodes and of all that they depend on."""
    found = {node.id for node in nodes}
    left = list(found)
    while left:
        for i in _producers(split.kept[left.pop()]):
            if i in split.kept and i not in found:
                found.add(i)
                left.append(i)
    return found


def _is_in_loop(loops: SplitLoops, node: Node, in_loops: Container[int]) -> bool:
    """True if a node runs in every iteration of a loop, given which of its producers do."""
    frame = loops.frame_of.get(node.id)
    if frame is not None:
        return frame.parent is not None
    return any(source in in_loops for source in _producers(node))


def _with_order(nodes: Mapping[int, Node], order: StepOrder) -> Mapping[int, Node]:
    """Return the nodes with order edges as control edges, which is enough to see what comes before what."""
    if not order.after:
        return nodes
    followers = [(nodes[i], sources) for i, sources in order.after.items() if i in nodes]
    return {
        **nodes,
        **{n.id: n.rewired(n.graph, n.in_edges, (*n.control_edges, *sources)) for n, sources in followers},
    }


def _producers(node: Node) -> tuple[int, ...]:
    """Return the ids of the nodes with an edge to a node."""
    return (*(i for i, _ in node.in_edges), *node.control_edges)
