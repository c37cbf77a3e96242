"""Freezing: makes a graph that computes some tensors, with the present values of its variables as constants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.state.resource_manager import ResourceHandle
from aexec.framework.state.resource_variable import ResourceVariable
from aexec.framework.wire import tensor_codec
from aexec.graph.forms.graph_export import node_to_proto
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Node
from aexec.runtime.session.session import Session
from aexec.saved_model.handles_to_values import FunctionTwins, take_values

__all__ = ["freeze"]

_REF_VARIABLES = ("Variable", "VariableV2")


async def freeze(session: Session, outputs: Iterable[str]) -> Graph:
    """A graph of the nodes that the outputs need, in which variables are constants.

    Args:
        session: its graph is frozen, with the values that its variables have now.
        outputs: names of tensors or operations.

    Raises:
        NotFoundError: there is no such output.
        FailedPreconditionError: a variable has no value.
        UnimplementedError: a variable is used in a way that a constant cannot replace, such as an assignment on the way
            to an output.
    """
    graph = session.graph
    needed = _needed(graph, [graph.tensor(name).node if ":" in name else graph.node(name) for name in outputs])
    variables = [node for node in needed if node.op in (*_REF_VARIABLES, "VarHandleOp")]
    fetched: list[Any] = await session.run([node.output(0).name for node in variables])
    values = {
        node.id: value if node.op in _REF_VARIABLES else _value_behind(session, node, value)
        for node, value in zip(variables, fetched, strict=True)
    }
    twins = FunctionTwins(graph.library.to_proto())
    frozen = proto.GraphDef(versions=graph.versions)
    for node in needed:
        frozen.node.extend([_constant(node, values[node.id])] if node.id in values else _user(graph, node, twins))
    frozen.library.CopyFrom(twins.library)
    return Graph.from_graph_def(frozen)


def _needed(graph: Graph, roots: Iterable[Node]) -> list[Node]:
    """The nodes on which others depend, in the graph's order."""
    seen = {node.id for node in roots}
    stack = list(seen)
    while stack:
        node = graph.nodes[stack.pop()]
        for source in (*(i for i, _ in node.in_edges), *node.control_edges):
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return [graph.nodes[i] for i in sorted(seen)]


def _value_behind(session: Session, node: Node, handle: ResourceHandle) -> Any:
    variable = session.resources.find(handle.container, handle.name, ResourceVariable)
    value = None if variable is None else variable.value
    if value is None:
        raise errors.FailedPreconditionError(f"variable {node.name} has no value to freeze", node=node.name, op=node.op)
    return value


def _constant(node: Node, value: Any) -> proto.NodeDef:
    dtype = node.attrs["dtype"]
    message = proto.NodeDef(name=node.name, op="Const", device=node.device)
    message.attr["dtype"].type = dtype.enum
    message.attr["value"].tensor.CopyFrom(tensor_codec.to_proto(value, dtype))
    return message


def _user(graph: Graph, node: Node, twins: FunctionTwins) -> list[proto.NodeDef]:
    """A node that is not a variable, changed to take values instead of handles of variables."""
    message = node_to_proto(node)
    if any(t.is_ref for t in node.input_types):
        raise errors.UnimplementedError(
            f"Node '{node.name}' ({node.op}) assigns to a variable: it cannot be frozen", node=node.name, op=node.op
        )
    types = {}
    for position, dtype in enumerate(node.input_types):
        variable = _variable(graph, node.in_edges[position][0]) if dtype is dtypes.resource else None
        if variable is not None:
            types[position] = variable.attrs["dtype"]
    return take_values(message, types, twins) if types else [message]


def _variable(graph: Graph, node_id: int) -> Node | None:
    """The variable whose handle a node returns, or None."""
    node = graph.nodes[node_id]
    while node.op == "Identity":
        node = graph.nodes[node.in_edges[0][0]]
    return node if node.op == "VarHandleOp" else None
