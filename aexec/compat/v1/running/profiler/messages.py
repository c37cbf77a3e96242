"""The messages of a profile: GraphNodeProto for trees of nodes, MultiGraphNodeProto for lists of ops.

Next to read: `profiling.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aexec import proto
from aexec.compat.v1.running.profiler.profiled_nodes import ProfiledNode
from aexec.compat.v1.running.profiler.trees import Entry

__all__ = ["graph_node", "multi_graph_node"]


def graph_node(root: Entry) -> proto.GraphNodeProto:
    """The message of a tree of nodes."""
    message = proto.GraphNodeProto()
    rest = [(root, message)]
    while rest:
        entry, made = rest.pop()
        _fill(made, entry.name, entry.own if entry.counted else {}, entry.total)
        for node in entry.nodes:
            _describe(made, node)
        rest += [(child, made.children.add()) for child in entry.children]
    return message


def multi_graph_node(root: Entry) -> proto.MultiGraphNodeProto:
    """The message of a list of ops: the child of each is the next."""
    message = proto.MultiGraphNodeProto()
    rest = [(root, message)]
    while rest:
        entry, made = rest.pop()
        _fill(made, entry.name, entry.own, entry.total)
        for node in sorted(entry.nodes, key=lambda node: node.name):
            one = made.graph_nodes.add()
            _fill(one, node.name, node.numbers, node.numbers)
            _describe(one, node)
        rest += [(child, made.children.add()) for child in entry.children]
    return message


def _fill(message: Any, name: str, own: Mapping[str, int], total: Mapping[str, int]) -> None:
    fields = message.DESCRIPTOR.fields_by_name
    message.name = name
    for prefix, numbers in (("", own), ("total_", total)):
        for number, value in numbers.items():
            if prefix + number in fields:
                setattr(message, prefix + number, value)


def _describe(message: proto.GraphNodeProto, node: ProfiledNode) -> None:
    message.devices.extend(node.devices)
    for index, shape in node.input_shapes.items():
        message.input_shapes[index].CopyFrom(shape.to_proto())
