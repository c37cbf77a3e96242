"""Common parts of everything that is built of functions: building a body, sharing arguments, calling.

Next to read: `function.py`, then `functional.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec.client.building import control_dependencies
from aexec.framework.shape import UNKNOWN_RANK, PartialTensorShape
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.func_graph import FuncGraph
from aexec.graph.function_def import add_function, free_name
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, create_node
from aexec.graph.side_effects import order_side_effects

__all__ = ["add_call", "built", "common_shape", "finished", "share_captures"]


def built(graph: FuncGraph, function: Callable[[], Sequence[Any]]) -> list[Tensor]:
    """Call a function to build a body; the leaves that it returns are the results."""
    with graph:
        graph.outputs = [graph.capture(convert_to_tensor(leaf)) for leaf in function()]
    return graph.outputs


def share_captures(graphs: Sequence[FuncGraph]) -> list[Tensor]:
    """Give bodies the same arguments: their own first, then all tensors that any of them captures.

    Returns:
        the captured tensors, in the order of the arguments.
    """
    captured = list(dict.fromkeys(tensor for graph in graphs for tensor in graph.captures))
    for graph in graphs:
        for tensor in captured:
            graph.capture(tensor)
        mine = set(graph.captures.values())
        own = [tensor for tensor in graph.inputs if tensor not in mine]
        graph.inputs = own + [graph.captures[tensor] for tensor in captured]
    return captured


def finished(graph: FuncGraph, name: str | None = None) -> NameAttrList:
    """Add a body to the library, its side effects in order."""
    order_side_effects(graph)
    return add_function(graph, name or free_name(graph.library, graph.name))


def add_call(
    op: str, graphs: Sequence[FuncGraph], inputs: dict[str, Any], attrs: dict[str, Any], name: str | None = None
) -> Node:
    """Add a node that calls functions, after the outside nodes that their bodies wait for."""
    with control_dependencies([node for graph in graphs for node in graph.awaited]):
        return create_node(op, inputs, attrs, name=name)


def common_shape(shapes: Sequence[PartialTensorShape]) -> PartialTensorShape:
    """The known shape of a tensor that has one of several shapes."""
    first = shapes[0]
    if first.rank is None or any(shape.rank != first.rank for shape in shapes):
        return UNKNOWN_RANK
    sizes = zip(*(list(shape) for shape in shapes), strict=True)
    return PartialTensorShape([same[0] if len(set(same)) == 1 else None for same in sizes])
