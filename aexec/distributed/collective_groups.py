"""Collectives with members in several tasks: the client, which sees all members, tells each of them who the others are.

It adds attrs to their nodes in the graphs that it sends (`aexec/kernels/control_flow/collective_exchange.py` says what
they mean), and refuses what cannot become a group.  Members within one task do not need this.
"""

from __future__ import annotations

from collections.abc import Sequence

from aexec import proto
from aexec.distributed.cluster_spec import task_of
from aexec.framework import errors
from aexec.kernels.control_flow.collective_exchange import COLLECTIVES, GROUP_DEVICES, SENDING_DEVICE

__all__ = ["tell_groups"]

# Attrs in which the members of a group agree.
_AGREED = ("T", "group_size", "merge_op", "final_op")


def tell_groups(graphs: Sequence[proto.GraphDef]) -> None:
    """Add to the members of collectives, in the graphs of a step's tasks, attrs that name the others.

    Raises:
        InvalidArgumentError: the members of a group do not agree, two are on one device, or some are not in the step.
    """
    groups: dict[tuple[int, int], list[proto.NodeDef]] = {}
    for graph in graphs:
        for node in graph.node:
            if node.op in COLLECTIVES:
                groups.setdefault((node.attr["group_key"].i, node.attr["instance_key"].i), []).append(node)
    for keys, members in groups.items():
        if len({task_of(node.device) for node in members}) > 1:
            _tell(keys, members)


def _tell(keys: tuple[int, int], members: Sequence[proto.NodeDef]) -> None:
    what = f"group key {keys[0]} and instance key {keys[1]}"
    first = members[0]
    for other in members[1:]:
        if why := _disagreement(first, other):
            raise errors.InvalidArgumentError(
                f"Nodes {other.name} and {first.name} with {what} {why}: expected one collective, with a node on each "
                "of its devices"
            )
    devices = sorted(node.device for node in members)
    size = first.attr["group_size"].i
    if len(members) != size or len(set(devices)) != size:
        raise errors.InvalidArgumentError(
            f"The collective with {what} has group_size {size}, and {len(members)} nodes in this step, on "
            f"{', '.join(sorted(set(devices)))}: expected one on each of {size} devices"
        )
    senders = [node.device for node in members if node.op == "CollectiveBcastSend"]
    if len(senders) > 1 or (first.op.startswith("CollectiveBcast") and not senders):
        raise errors.InvalidArgumentError(f"{len(senders)} nodes with {what} send: expected one that does")
    for node in members:
        node.attr[GROUP_DEVICES].list.s.extend(device.encode() for device in devices)
        if senders:
            node.attr[SENDING_DEVICE].s = senders[0].encode()


def _disagreement(one: proto.NodeDef, other: proto.NodeDef) -> str:
    if one.op != other.op and not (one.op.startswith("CollectiveBcast") and other.op.startswith("CollectiveBcast")):
        return "differ in op"
    differing = [name for name in _AGREED if one.attr.get(name) != other.attr.get(name)]
    return f"differ in {differing[0]}" if differing else ""
