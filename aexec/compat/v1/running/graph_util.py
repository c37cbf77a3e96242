"""`tf.graph_util`: freezes graphs, cuts parts out of them, and writes them to files.

Next to read: `aexec/saved_model/freezing.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from aexec import proto
from aexec.compat.v1.namespace import namespace, refuse
from aexec.compat.v1.running.session import Session, in_session
from aexec.framework import errors
from aexec.graph.graph import Graph
from aexec.graph.nodes.colocation import ATTR, group_names
from aexec.saved_model.freezing import freeze

__all__ = [
    "convert_variables_to_constants",
    "extract_sub_graph",
    "remove_training_nodes",
    "tensor_shape_from_node_def_name",
    "write_graph",
]


def write_graph(graph_or_graph_def: Any, logdir: str, name: str, as_text: bool = True) -> str:
    """`tf.train.write_graph`: write a GraphDef, as protobuf text or binary; return the path of the file."""
    graph = graph_or_graph_def if isinstance(graph_or_graph_def, Graph) else Graph.from_graph_def(graph_or_graph_def)
    os.makedirs(logdir, exist_ok=True)
    path = os.path.join(logdir, name)
    with open(path, "wb") as file:
        file.write(graph.to_text().encode() if as_text else graph.to_bytes())
    return path


def convert_variables_to_constants(
    sess: Any,
    input_graph_def: proto.GraphDef,
    output_node_names: Sequence[str],
    variable_names_whitelist: Any = None,
    variable_names_blacklist: Any = None,
) -> proto.GraphDef:
    """`tf.graph_util.convert_variables_to_constants`: the part of a graph that outputs need, without variables.

    Args:
        sess: its graph and the values of its variables are used.
        input_graph_def: ignored; it must describe the session's graph.
        output_node_names: names of operations.

    Raises:
        UnimplementedError: lists of variables are given, or the session is an `AsyncSession`: await
            `aexec.saved_model.freeze` instead.
    """
    refuse("convert_variables_to_constants", variable_names_whitelist=variable_names_whitelist)
    refuse("convert_variables_to_constants", variable_names_blacklist=variable_names_blacklist)
    if not isinstance(sess, Session):
        raise errors.UnsupportedError("convert_variables_to_constants waits: await aexec.saved_model.freeze instead")
    frozen: Graph = in_session(sess, freeze, list(output_node_names))
    return frozen.to_graph_def()


def extract_sub_graph(graph_def: proto.GraphDef, dest_nodes: Sequence[str]) -> proto.GraphDef:
    """`tf.graph_util.extract_sub_graph`: the part of a graph that computes `dest_nodes`, in the original order.

    Raises:
        NotFoundError: the graph has no node of a name.
    """
    nodes = {node.name: node for node in graph_def.node}
    pending, needed = list(dest_nodes), set[str]()
    while pending:
        name = pending.pop().removeprefix("^").partition(":")[0]
        if name not in nodes:
            raise errors.UnknownKeyError(f"{name} is not in graph")
        if name not in needed:
            needed.add(name)
            pending.extend(nodes[name].input)
    part = proto.GraphDef(library=graph_def.library, versions=graph_def.versions)
    part.node.extend(node for node in graph_def.node if node.name in needed)
    return part


def remove_training_nodes(input_graph: proto.GraphDef, protected_nodes: Sequence[str] | None = None) -> proto.GraphDef:
    """`tf.graph_util.remove_training_nodes`: remove CheckNumerics, Identity and StopGradient nodes.

    Their consumers are connected to their inputs.  Protected nodes stay, and so does an Identity or StopGradient that
    has control edges or that another node is colocated with.  Unlike TensorFlow, this keeps the other inputs of a node
    that consumes a CheckNumerics.

    Raises:
        ValueError: nodes to remove form a cycle.
    """
    protected = set(protected_nodes or ())
    nodes = list(input_graph.node)
    nodes = _spliced(nodes, [node for node in nodes if node.op == "CheckNumerics" and node.name not in protected])
    kept = protected | {edge[1:] for node in nodes for edge in node.input if edge.startswith("^")}
    for node in nodes:
        if ATTR in node.attr:
            kept.update(group_names({ATTR: list(node.attr[ATTR].list.s)}))
    passing = [node for node in nodes if node.op in ("Identity", "StopGradient") and node.name not in kept]
    nodes = _spliced(nodes, [node for node in passing if not any(edge.startswith("^") for edge in node.input)])
    return proto.GraphDef(node=nodes, library=input_graph.library, versions=input_graph.versions)


def _spliced(nodes: Sequence[proto.NodeDef], removed: Sequence[proto.NodeDef]) -> list[proto.NodeDef]:
    """Copies of the remaining nodes, connected to the first inputs of the removed ones."""
    sources = {node.name: node.input[0] for node in removed}
    left = []
    for node in nodes:
        if node.name not in sources:
            copy = proto.NodeDef()
            copy.CopyFrom(node)
            edges = [edge for edge in node.input if not edge.startswith("^") or edge[1:] not in sources]
            copy.input[:] = [_source(edge, sources) for edge in edges]
            left.append(copy)
    return left


def _source(edge: str, sources: Mapping[str, str]) -> str:
    """Follow an edge through removed nodes (name → first input) to one that remains.  Raises ValueError on a cycle."""
    for _ in range(len(sources) + 1):
        if (name := edge.partition(":")[0]) not in sources:
            return edge
        edge = sources[name]
    raise errors.InvalidValueError(f"a circle of nodes that are to be removed goes through '{name}'")


def tensor_shape_from_node_def_name(graph: Graph, input_name: str) -> Any:
    """`tf.graph_util.tensor_shape_from_node_def_name`: the static shape of the tensor that a NodeDef input names."""
    name = input_name.removeprefix("^")
    return graph.get_tensor_by_name(name if ":" in name else f"{name}:0").shape


__getattr__, __dir__ = namespace(
    __name__,
    {
        "import_graph_def": """aexec:import_graph_def | graph_def input_map return_elements name op_dict!
        producer_op_list!""",
    },
    {
        "must_run_on_cpu": "aexec.Session says where each kernel is: docs/placement.md",
    },
)
