"""Import: adds the nodes and functions of a GraphDef to a graph; on an error the graph does not change.

`nodes/node_import.py` makes the nodes.  This module adds the functions and infers the shapes.
"""

from __future__ import annotations

from google.protobuf.message import Message

from aexec import proto
from aexec.framework import progress, versions
from aexec.framework.memory.garbage_collector import collector_paused
from aexec.framework.progress import Advance, counted, unheard
from aexec.graph.function_body import check_functions
from aexec.graph.nodes.node import Node
from aexec.graph.nodes.node_import import ImportOptions, NodeImport
from aexec.graph.nodes.node_table import NodeTable
from aexec.graph.nodes.node_wire import flatten
from aexec.graph.shape_refiner import infer_shapes

__all__ = ["ImportOptions", "import_graph_def"]

# From this many nodes on, collecting garbage while they are made takes longer than making them.
_MANY_NODES = 1000


def import_graph_def(
    graph: NodeTable,
    graph_def: proto.GraphDef | proto.FlatGraphDef | Message | bytes,
    options: ImportOptions | None = None,
) -> list[Node]:
    """Add the nodes and functions of `graph_def` to `graph`; return the new nodes in order.

    Args:
        graph_def: a GraphDef message, ours or TensorFlow's, or its bytes.

    Raises:
        InvalidArgumentError: a name, attr or input is malformed, types do not match, there is a cycle, shapes are
            inconsistent, or a name is taken.
        NotFoundError: an op is not registered.
        UnimplementedError: an op was removed before the graph's producer version.
    """
    options = options or ImportOptions()
    flat = flatten(graph_def)
    count = len(flat.node)
    if count < _MANY_NODES:
        return _import(graph, flat, options)
    # Each node is looked at twice: when it is made, and when its shapes are inferred.
    steps = 2 if options.infer_shapes else 1
    with collector_paused(), progress.of("importing a graph", lambda: steps * count, "steps") as advance:
        return _import(graph, flat, options, advance)


def _import(
    graph: NodeTable,
    graph_def: proto.FlatGraphDef,
    options: ImportOptions,
    advance: Advance = unheard,
) -> list[Node]:
    versions.check(graph_def.versions)
    library = graph.library
    new_functions: list[str] = []
    if graph_def.HasField("library"):
        library = graph.library.copy()
        new_functions = library.merge(graph_def.library)
    nodes = NodeImport(graph, graph_def, options, library)
    order = nodes.make(advance)
    if new_functions:
        check_functions(library, new_functions, graph_def.versions)
    if options.infer_shapes:
        infer_shapes(counted(order, advance), nodes.node, library, graph_def.versions.producer)
    return nodes.commit()
