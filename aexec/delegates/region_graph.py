"""A region as a GraphDef, for a library that reads TensorFlow's graphs.

Inputs are `Placeholder` nodes `in0`, `in1`, …, outputs `Identity` nodes `out0`, `out1`, …; members and constants are
named `n` with their ids, and fused ops are written as their parts (`unfusing.py`).  So no names of the graph are passed
on, and only attrs that the ops define.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aexec import proto
from aexec.delegates.unfusing import parts
from aexec.framework.wire import attr_value
from aexec.framework.wire.attr_value import TensorAttr
from aexec.framework.wire.op_def import OpDef
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.partitioning.regions import Region

__all__ = ["input_name", "member_of", "output_name", "region_graph"]


def input_name(position: int) -> str:
    return f"in{position}"


def output_name(position: int) -> str:
    return f"out{position}"


def member_of(region: Region, text: str) -> Node | None:
    """The member that a message of the library names first, or None."""
    named = {f"n{node.id}": node for node in region.nodes}
    words = "".join(c if c.isalnum() else " " for c in text).split()
    return next((named[word] for word in words if word in named), None)


def region_graph(region: Region) -> Iterator[bytes]:
    """Yield the serialised GraphDef in pieces, one per node, so that a large graph is never in memory as a whole."""
    yield proto.GraphDef(versions=region.graph.versions).SerializeToString()
    names = {endpoint: input_name(position) for position, endpoint in enumerate(region.inputs)}
    shapes = region.input_shapes
    for position, dtype in enumerate(region.input_types):
        placeholder = proto.NodeDef(name=input_name(position), op="Placeholder")
        placeholder.attr["dtype"].CopyFrom(attr_value.encode(dtype))
        placeholder.attr["shape"].CopyFrom(attr_value.encode(shapes[position]))
        yield _piece(placeholder)
    for node in (*region.constants, *region.nodes):
        inputs = [_input(names, endpoint) for endpoint in node.in_edges]
        for message in _messages(node, inputs):
            yield _piece(message)
    for position, (endpoint, dtype) in enumerate(zip(region.outputs, region.output_types, strict=True)):
        result = proto.NodeDef(name=output_name(position), op="Identity", input=[_input(names, endpoint)])
        result.attr["T"].CopyFrom(attr_value.encode(dtype))
        yield _piece(result)


def _messages(node: Node, inputs: Sequence[str]) -> Iterator[proto.NodeDef]:
    """A node; a fused one as its parts, of which the last has the node's name."""
    name = f"n{node.id}"
    apart = parts(node)
    if apart is None:
        yield _message(name, node.op_def, node.attrs, inputs)
        return
    before: list[str] = []
    for position, part in enumerate(apart):
        own = name if position == len(apart) - 1 else f"{name}.{position}"
        yield _message(own, part.op_def, part.attrs, [*before, *(inputs[i] for i in part.inputs)])
        before = [own]


def _message(name: str, op_def: OpDef, attrs: Mapping[str, Any], inputs: Sequence[str]) -> proto.NodeDef:
    message = proto.NodeDef(name=name, op=op_def.name, input=inputs)
    for attr in op_def.attrs:
        value = attrs[attr.name]
        if isinstance(value, TensorAttr):
            message.attr[attr.name].tensor.CopyFrom(value.to_proto())
        else:
            message.attr[attr.name].CopyFrom(attr_value.encode(value, attr.type))
    return message


def _input(names: dict[Endpoint, str], endpoint: Endpoint) -> str:
    found = names.get(endpoint)
    if found is None:
        node_id, slot = endpoint
        found = f"n{node_id}:{slot}" if slot else f"n{node_id}"
    return found


def _piece(node: proto.NodeDef) -> bytes:
    return proto.GraphDef(node=[node]).SerializeToString()
