"""Ref edges: where a variable's cell travels along an edge, and not a value.

What has a cell reads it when it runs, and so sees what was assigned until then; a pass must not let a
node that takes a value read the cell in its place.
"""

from __future__ import annotations

from collections.abc import Container

from aexec.graph.node import Endpoint, GraphView

__all__ = ["gives_cell"]


def gives_cell(graph: GraphView, endpoint: Endpoint, fed: Container[Endpoint]) -> bool:
    """Does a variable's cell come out of an endpoint?  Not if it is fed: feeds are values.

    Identity passes a cell on.  TensorFlow's passes on the variable's buffer, so a consumer sees what was
    assigned between Identity and itself: graphs rely on that (`w.read_value()` after a control dependency).
    """
    while endpoint not in fed:
        source = graph.nodes[endpoint[0]]
        if source.op != "Identity":
            return source.output_types[endpoint[1]].is_ref
        endpoint = source.inputs[0]
    return False
