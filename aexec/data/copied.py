"""Copies of the nodes that make a dataset: as a function of the library, and as a graph of its own.

A copy has nothing that belongs to a session, as variables do, or to a run, as placeholders.
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

# Stateful ops that do the same in every session.
_HARMLESS = frozenset({"Assert"})


def _needed(variant: Tensor) -> set[int]:
    """The ids of all nodes that make a dataset.

    Raises:
        InvalidArgumentError: one is fed, or has state besides that of datasets.
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
    """A function of a graph's library that takes nothing and gives a dataset of the graph.

    Raises:
        InvalidArgumentError: the dataset uses what belongs to a session or a run.
    """
    made = FuncGraph(free_name(graph.library, "Dataset_make"), graph)
    made.outputs = [copy_nodes(graph, _needed(variant), made, {})(variant.endpoint)]
    return finished(made, made.name)


def as_graph(graph: Graph, variant: Tensor) -> tuple[Graph, Tensor]:
    """A new graph with only the nodes that make a dataset of a graph, and the dataset's tensor in it.

    Raises:
        InvalidArgumentError: the dataset uses what belongs to a session or a run.
    """
    made = Graph()
    made.node_class = graph.node_class
    made.library, made.versions = graph.library, graph.versions
    return made, copy_nodes(graph, _needed(variant), made, {})(variant.endpoint)
