"""Copies of the nodes that make a dataset: as a function in the graph's library, or as a separate graph.

A copy cannot contain state of a session, such as variables, or of a run, such as placeholders.
"""

from __future__ import annotations

from aexec.control_flow.function_call import finished
from aexec.framework import dtypes, errors
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.func_graph import FuncGraph, copy_nodes
from aexec.graph.function_def import free_name
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Node, Tensor

__all__ = ["as_function", "as_graph"]

# Stateful ops that behave alike in every session.
_HARMLESS = frozenset({"Assert"})


def _needed(variant: Tensor) -> set[int]:
    """The ids of all nodes that a dataset depends on.

    Raises:
        InvalidArgumentError: a node is a placeholder, or has state other than that of datasets.
    """
    graph = variant.graph
    found = {variant.node.id}
    waiting = [variant.node]
    while waiting:
        node = waiting.pop()
        _check(node)
        for source in (*(source for source, _ in node.in_edges), *node.control_edges):
            if source not in found:
                found.add(source)
                waiting.append(graph.nodes[source])
    return found


def _check(node: Node) -> None:
    if node.op.startswith("Placeholder") and node.op != "PlaceholderWithDefault":
        raise errors.InvalidValueError(f"Cannot capture a placeholder (name:{node.name}, type:{node.op}) by value.")
    makes_datasets = any(tensor.dtype.base is dtypes.variant for tensor in node.outputs)
    if node.op_def.is_stateful and not makes_datasets and node.op not in _HARMLESS:
        raise errors.InvalidValueError(
            f"Cannot capture a stateful node (name:{node.name}, type:{node.op}) by value: "
            "use an initializable iterator, which is initialised in a session"
        )


def as_function(graph: Graph, variant: Tensor) -> NameAttrList:
    """Add a function without arguments to the graph's library that returns a copy of a dataset.

    Raises:
        InvalidArgumentError: the dataset uses what belongs to a session or a run.
    """
    made = FuncGraph(free_name(graph.library, "Dataset_make"), graph)
    made.outputs = [copy_nodes(graph, _needed(variant), made, {})(variant.endpoint)]
    return finished(made, made.name)


def as_graph(graph: Graph, variant: Tensor) -> tuple[Graph, Tensor]:
    """Copy the nodes that a dataset depends on to a new graph; return it, and the dataset's tensor there.

    Raises:
        InvalidArgumentError: the dataset uses what belongs to a session or a run.
    """
    made = Graph()
    made.node_class = graph.node_class
    made.library, made.versions = graph.library, graph.versions
    return made, copy_nodes(graph, _needed(variant), made, {})(variant.endpoint)
