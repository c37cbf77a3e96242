"""Freezing: a graph that computes some tensors, with the present values of its variables as constants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import dtypes, errors, tensor_codec
from aexec.framework.resource_manager import ContainerInfo
from aexec.framework.resource_variable import ResourceVariable
from aexec.graph.graph import Graph, Node
from aexec.graph.graph_export import node_to_proto
from aexec.runtime.session import Session

__all__ = ["freeze"]

_REF_VARIABLES = ("Variable", "VariableV2")


async def freeze(session: Session, outputs: Iterable[str]) -> Graph:
    """A graph of what the outputs need, in which variables are constants.

    Args:
        session: its graph is frozen, with the values that its variables have now.
        outputs: names of tensors or operations.

    Raises:
        NotFoundError: there is no such output.
        FailedPreconditionError: a variable has no value.
        UnimplementedError: a variable is used in a way that a constant cannot stand for: it is assigned
            to on the way to an output, or its handle goes into a function.
    """
    graph = session.graph
    needed = _needed(graph, [graph.tensor(name).node if ":" in name else graph.node(name) for name in outputs])
    refs = [node for node in needed if node.op in _REF_VARIABLES]
    ref_values = await session.run([node.output(0).name for node in refs])
    values = {node.id: value for node, value in zip(refs, ref_values, strict=True)}
    values |= {node.id: _resource_value(session, node) for node in needed if node.op == "VarHandleOp"}
    frozen = proto.GraphDef(versions=graph.versions)
    for node in needed:
        frozen.node.extend([_constant(node, values[node.id])] if node.id in values else _user(graph, node))
    if len(graph.library):
        frozen.library.CopyFrom(graph.library.to_proto())
    return Graph.from_graph_def(frozen)


def _needed(graph: Graph, roots: Iterable[Node]) -> list[Node]:
    """The nodes that others need for their inputs, in the graph's order."""
    seen = {node.id for node in roots}
    stack = list(seen)
    while stack:
        node = graph.nodes[stack.pop()]
        for source in (*(i for i, _ in node.inputs), *node.control_inputs):
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return [graph.nodes[i] for i in sorted(seen)]


def _resource_value(session: Session, node: Node) -> Any:
    info = ContainerInfo.from_attrs(node.attrs, node.name, use_node_name=True)
    variable = session.resources.find(info.container, info.name, ResourceVariable)
    value = None if variable is None else variable.value
    if value is None:
        raise errors.FailedPreconditionError(f"variable {info.name} has no value to freeze", node=node.name, op=node.op)
    return value


def _constant(node: Node, value: Any) -> proto.NodeDef:
    dtype = node.attrs["dtype"]
    message = proto.NodeDef(name=node.name, op="Const", device=node.device)
    message.attr["dtype"].type = dtype.enum
    message.attr["value"].tensor.CopyFrom(tensor_codec.to_proto(value, dtype))
    return message


def _user(graph: Graph, node: Node) -> list[proto.NodeDef]:
    """A node that is no variable, made to take values where it took handles of variables."""
    message = node_to_proto(node)
    if any(t.is_ref for t in node.input_types):
        raise _unfreezable(node)
    handles = [position for position, t in enumerate(node.input_types) if t is dtypes.resource]
    variables = [_variable(graph, node.inputs[position][0]) for position in handles]
    if not any(variables):
        return [message]
    variable = variables[0]
    if variable is None or handles != [0]:
        raise _unfreezable(node)
    value_type = proto.AttrValue(type=variable.attrs["dtype"].enum)
    attr = message.attr
    if node.op in ("Identity", "ReadVariableOp"):
        return [_rewritten(message, "Identity", T=value_type)]
    if node.op == "VariableShape":
        return [_rewritten(message, "Shape", T=value_type, out_type=attr["out_type"])]
    if node.op == "ResourceGather":
        batch_dims = node.attrs["batch_dims"]
        axis = _scalar(f"{node.name}/axis", batch_dims)
        message.input.insert(2, axis.name)
        types = {"Tparams": value_type, "Tindices": attr["Tindices"], "Taxis": axis.attr["dtype"]}
        return [axis, _rewritten(message, "GatherV2", batch_dims=proto.AttrValue(i=batch_dims), **types)]
    raise _unfreezable(node)


def _variable(graph: Graph, node_id: int) -> Node | None:
    """The variable whose handle a node gives, or None."""
    node = graph.nodes[node_id]
    while node.op == "Identity":
        node = graph.nodes[node.inputs[0][0]]
    return node if node.op == "VarHandleOp" else None


def _rewritten(message: proto.NodeDef, op: str, **attrs: proto.AttrValue) -> proto.NodeDef:
    return proto.NodeDef(name=message.name, op=op, input=message.input, device=message.device, attr=attrs)


def _scalar(name: str, value: int) -> proto.NodeDef:
    message = proto.NodeDef(name=name, op="Const")
    message.attr["dtype"].type = dtypes.int32.enum  # type: ignore[assignment]
    message.attr["value"].tensor.CopyFrom(tensor_codec.to_proto(np.int32(value)))
    return message


def _unfreezable(node: Node) -> errors.OpError:
    return errors.UnimplementedError(
        f"Node '{node.name}' ({node.op}) needs a variable itself, not only its value: it cannot be frozen",
        node=node.name,
        op=node.op,
    )
