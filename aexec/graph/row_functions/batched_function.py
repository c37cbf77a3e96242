"""Makes a function of one row into one of all rows of a batch, which gives the batch of the results, or fails.

One call in place of many: a call of a kernel takes some microseconds, however little it computes.
Next to read: `aexec/kernels/datasets/row_functions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aexec import proto
from aexec.framework import errors
from aexec.framework.dtypes import int64, resource, variant
from aexec.framework.shape import PartialTensorShape
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.func_graph import FuncGraph
from aexec.graph.function_body import FunctionBody
from aexec.graph.function_def import add_function, free_name
from aexec.graph.graph import Graph
from aexec.graph.nodes.control_flow import EXECUTOR_OPS
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node import Endpoint, Node, Tensor
from aexec.graph.nodes.traversal import producers_first
from aexec.graph.row_functions.rebuilt_body import NotRowWiseError, RebuiltBody, Value, require
from aexec.graph.row_functions.row_rules import ROW_RULES

__all__ = ["batched_function", "may_be_row_wise"]

# Ops whose outputs cannot have rows.
_OF_SHAPES = frozenset({"Rank", "Shape", "Size"})


def may_be_row_wise(body: FunctionBody, num_rows: int) -> bool:
    """False if `batched_function` gives None for certain.  Takes a microsecond or two for each node.

    Args:
        num_rows: the number of arguments, the first ones, that have rows.
    """
    if body.side_effects or not body.results:
        return False
    has_rows = set(body.arguments[:num_rows])
    for node in producers_first(body.graph.nodes, body.graph.nodes.__getitem__):
        if node.control_edges:
            return False
        if has_rows.isdisjoint([source for source, _ in node.in_edges]):
            if node.op != "_Arg" and not _is_the_same(node):
                return False
        elif node.op in ROW_RULES:
            has_rows.add(node.id)
        elif node.op not in _OF_SHAPES:
            return False
    return all(node_id in has_rows for node_id, _ in body.results)


def _is_the_same(node: Node) -> bool:
    """True for a node that gives the same for all rows if its inputs are the same."""
    if node.op_def.is_stateful or node.op in EXECUTOR_OPS:
        return False
    return not any(isinstance(value, NameAttrList) for value in node.attrs.values()) and not any(
        dtype in (resource, variant) for dtype in node.output_types
    )


def batched_function(
    library: FunctionLibrary,
    versions: proto.VersionDef,
    body: FunctionBody,
    rows: Sequence[PartialTensorShape],
    same: Sequence[PartialTensorShape],
) -> NameAttrList | None:
    """Add a function of batches to the library.

    Its arguments are those of the function, the first ones with one more dimension, and int64 [1], the number of rows.

    Args:
        body: of the function of one row.
        rows: the shapes of the arguments that have rows, without that dimension.
        same: the shapes of the other arguments, which are the same for all rows.

    Returns:
        the function; None if its results cannot be computed for all rows at once.
    """
    outer = Graph()
    outer.library, outer.versions = library, versions
    graph = FuncGraph(f"{body.name}/batched", outer)
    try:
        graph.outputs = _results(graph, body, rows, same)
    except (NotRowWiseError, errors.OpError):  # the function by itself raises what is wrong with it
        return None
    return add_function(graph, free_name(library, f"__batched_{body.name}"))


def _results(
    graph: FuncGraph, body: FunctionBody, rows: Sequence[PartialTensorShape], same: Sequence[PartialTensorShape]
) -> list[Tensor]:
    require(may_be_row_wise(body, len(rows)) and len(body.arguments) == len(rows) + len(same))
    known: dict[Endpoint, Value] = {}
    for number, (node_id, dtype) in enumerate(zip(body.arguments, body.argument_types, strict=True)):
        if number < len(rows):
            dims = rows[number].dims
            require(dims is not None)
            shape = PartialTensorShape([None, *(dims or ())])
            known[node_id, 0] = Value(graph.new_argument(dtype, f"rows_{number}", shape), True)
        else:
            shape = same[number - len(rows)]
            known[node_id, 0] = Value(graph.new_argument(dtype, f"same_{number}", shape), False)
    rebuilt = RebuiltBody(graph, graph.new_argument(int64, "number", PartialTensorShape([1])))
    with graph:
        for node in producers_first(_needed(body), body.graph.nodes.__getitem__):
            if node.op != "_Arg":
                values = _outputs(rebuilt, node, [known[source] for source in node.in_edges])
                known.update({(node.id, slot): value for slot, value in enumerate(values)})
    results = [known[endpoint] for endpoint in body.results]
    require(all(value.has_rows for value in results))
    return [value.tensor for value in results]


def _needed(body: FunctionBody) -> list[Node]:
    """The nodes that results need."""
    found: dict[int, Node] = {}
    waiting = [node_id for node_id, _ in body.results]
    while waiting:
        node_id = waiting.pop()
        if node_id not in found:
            found[node_id] = node = body.graph.nodes[node_id]
            waiting += [source for source, _ in node.in_edges]
    return list(found.values())


def _outputs(rebuilt: RebuiltBody, node: Node, inputs: Sequence[Value]) -> list[Value]:
    if not any(value.has_rows for value in inputs):
        require(_is_the_same(node))
        return [Value(tensor, False) for tensor in rebuilt.like(node, [value.tensor for value in inputs])]
    if node.op in _OF_SHAPES:
        return [Value(tensor, False) for tensor in _of_shape(rebuilt, node, inputs[0])]
    require(node.op in ROW_RULES)
    return [Value(tensor, True) for tensor in ROW_RULES[node.op](rebuilt, node, inputs)]


def _of_shape(rebuilt: RebuiltBody, node: Node, value: Value) -> list[Tensor]:
    """The shape, rank or size of a row, a constant.  Raises NotRowWiseError if it is unknown."""
    dims = value.dims
    found: object = len(dims)
    if node.op != "Rank":
        require(None not in dims)
        found = list(dims) if node.op == "Shape" else int(np.prod([size or 0 for size in dims]))
    (dtype,) = node.output_types
    return rebuilt.node("Const", {}, {"dtype": dtype, "value": np.array(found, dtype.np)})
