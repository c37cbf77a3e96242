"""Import: a GraphDef becomes nodes and functions of a graph, or nothing changes and an error says why.

`nodes/node_import.py` makes the nodes; here the functions join them, and shapes are inferred.
"""

from __future__ import annotations

from google.protobuf.message import Message

from aexec import proto
from aexec.framework import versions
from aexec.framework.memory.garbage_collector import collector_paused
from aexec.graph.function_body import check_functions
from aexec.graph.nodes.node import Node
from aexec.graph.nodes.node_import import ImportOptions, NodeImport
from aexec.graph.nodes.node_table import NodeTable
from aexec.graph.nodes.node_wire import flatten
from aexec.graph.shape_refiner import infer_shapes

__all__ = ["ImportOptions", "import_graph_def"]

# From so many nodes on, looking for garbage among what is being made takes longer than making it.
_MANY_NODES = 1000


def import_graph_def(
    graph: NodeTable,
    graph_def: proto.GraphDef | proto.FlatGraphDef | Message | bytes,
    options: ImportOptions | None = None,
) -> list[Node]:
    """Add the nodes and functions of `graph_def` to `graph`; returns the new nodes in order.

    Args:
        graph_def: a GraphDef, ours or TensorFlow's, or the bytes of one.

    Raises:
        InvalidArgumentError: a malformed name, attr or input, a type mismatch, a cycle, an
            inconsistent shape, a name that is taken.
        NotFoundError: an op that is not registered.
        UnimplementedError: an op that was removed before the graph's producer version.
    """
    options = options or ImportOptions()
    flat = flatten(graph_def)
    if len(flat.node) < _MANY_NODES:
        return _import(graph, flat, options)
    with collector_paused():
        return _import(graph, flat, options)


def _import(graph: NodeTable, graph_def: proto.FlatGraphDef, options: ImportOptions) -> list[Node]:
    versions.check(graph_def.versions)
    library = graph.library
    new_functions: list[str] = []
    if graph_def.HasField("library"):
        library = graph.library.copy()
        new_functions = library.merge(graph_def.library)
    nodes = NodeImport(graph, graph_def, options, library)
    order = nodes.make()
    if new_functions:
        check_functions(library, new_functions, graph_def.versions)
    if options.infer_shapes:
        infer_shapes(order, nodes.node, library, graph_def.versions.producer)
    return nodes.commit()
