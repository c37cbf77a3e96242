"""`import_graph_def`: adds the nodes of a GraphDef to the graph that is being built, in a scope of their own.

`aexec/graph/graph_import.py` handles names and inputs; this module converts tensors of the graph to its options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from aexec import proto
from aexec.framework import errors
from aexec.framework.wire.node_def import CONTROL_PORT, parse_tensor_name
from aexec.graph import graph_import
from aexec.graph.graph import Graph
from aexec.graph.graph_import import ImportOptions
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.nodes.node_import import without_mapped
from aexec.graph.nodes.node_wire import flatten
from aexec.graph.op_functions import convert_to_tensor, require_graph
from aexec.graph.tensor_proxy import TensorProxy

__all__ = ["import_graph_def"]


def import_graph_def(
    graph_def: Graph | proto.GraphDef | Message | bytes,
    input_map: Mapping[str, Any] | None = None,
    return_elements: Sequence[str] | None = None,
    name: str = "import",
    *,
    uniquify_prefix: bool = True,
    skip_mapped_nodes: bool = False,
) -> list[Tensor | Node] | None:
    """Add the nodes and functions of a GraphDef to the graph that is being built.

    Args:
        graph_def: a graph, a GraphDef, ours or TensorFlow's, or the bytes of one.
        input_map: what imported nodes get in place of an input of theirs: `node:k` or `node` → a tensor or value,
            `^node` → an operation.
        return_elements: names of imported operations, `node`, and tensors, `node:k`, to be returned.
        name: put before all names, with a `/`, within the scope in force; "" for nothing.
        uniquify_prefix: append `_1`, `_2`, … to `name` if it is taken.
        skip_mapped_nodes: nodes all of whose outputs `input_map` replaces are not imported.

    Returns:
        the elements that `return_elements` names, or None if there are no names.

    Raises:
        InvalidArgumentError: no node uses an entry of `input_map`, a return element does not exist; or what
            `Graph.from_graph_def` raises.
        NotFoundError: an op is not registered.
    """
    try:
        return _import_graph_def(graph_def, input_map, return_elements, name, uniquify_prefix, skip_mapped_nodes)
    except errors.OpError as error:
        errors.as_python(error, ValueError)
        raise


def _import_graph_def(
    graph_def: Graph | proto.GraphDef | Message | bytes,
    input_map: Mapping[str, Any] | None,
    return_elements: Sequence[str] | None,
    name: str,
    uniquify_prefix: bool,
    skip_mapped_nodes: bool,
) -> list[Tensor | Node] | None:
    graph = require_graph()
    state = graph.build_state
    flat = flatten(graph_def.to_graph_def() if isinstance(graph_def, Graph) else graph_def)
    mapped = {key: _mapped(key, value) for key, value in (input_map or {}).items()}
    wanted = list(return_elements or ())
    _check_used(flat, set(mapped), wanted)
    if skip_mapped_nodes and any(":" not in element for element in wanted):
        raise errors.InvalidValueError("operations cannot be returned where nodes that are mapped are skipped")
    prefix = state.scope
    if name:
        scoped = f"{state.scope}/{name}" if state.scope else name
        prefix = name[:-1] if name.endswith("/") else state.unique_name(name) if uniquify_prefix else scoped
    options = ImportOptions(
        prefix=prefix,
        uniquify_names=True,
        input_map=mapped,
        skip_mapped_nodes=skip_mapped_nodes,
        control_dependencies=[graph.nodes[i].name for i in state.control_inputs([])],
    )
    made = graph_import.import_graph_def(graph, flat, options)
    for node in made:
        state.request_device(node)
        state.note_made(node)
    if not wanted:
        return None
    kept = without_mapped(flat.node, options, graph.library) if skip_mapped_nodes else flat.node
    nodes = {node_def.name: node for node_def, node in zip(kept, made, strict=True)}
    return [_element(text, nodes, mapped, graph) for text in wanted]


def _mapped(key: str, value: Any) -> str:
    """An entry of the map, with the value replaced by its name."""
    if parse_tensor_name(key).port == CONTROL_PORT:
        if not isinstance(value, Node):
            raise errors.InvalidValueError(f"input_map['{key}'] must be an operation, got {value!r}")
        return f"^{value.name}"
    graph = require_graph()
    tensor = value.element if isinstance(value, TensorProxy) else convert_to_tensor(value)
    return graph.capture(tensor).name


def _check_used(flat: proto.FlatGraphDef, mapped: set[str], wanted: Sequence[str]) -> None:
    """Refuse names that do not occur in the imported graph."""
    used = {parse_tensor_name(text) for node_def in flat.node for text in node_def.input}
    names = {node_def.name for node_def in flat.node}
    unused = sorted(
        key for key in mapped if parse_tensor_name(key) not in used and parse_tensor_name(key).node not in names
    )
    if unused:
        raise errors.InvalidValueError(
            f"Attempted to map inputs that were not found in graph_def: [{', '.join(unused)}]"
        )
    missing = sorted(text for text in wanted if parse_tensor_name(text).node not in names)
    if missing:
        raise errors.InvalidValueError(f"Requested return_element '{missing[0]}' not found in graph_def.")


def _element(text: str, nodes: Mapping[str, Node], mapped: Mapping[str, str], graph: Graph) -> Tensor | Node:
    source = parse_tensor_name(text)
    if ":" not in text:
        return nodes[text]
    for key, value in mapped.items():
        if parse_tensor_name(key) == source:
            return graph.tensor(value)
    node = nodes[source.node]
    if source.port >= node.num_outputs:
        raise errors.InvalidValueError(
            f"Invalid return output {source.port} of node '{source.node}', which has {node.num_outputs} output(s)"
        )
    return node.output(source.port)
