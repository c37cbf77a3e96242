"""Gradients of broadcasts: replaces the nodes that sum a gradient to the shape of an operand by one `_SumToShape`.

The gradient function of a binary op does not know which operand was broadcast if sizes are unknown while the graph is
built.  It leaves the question to each step: Reshape(Sum(dy, BroadcastGradientArgs(shape_x, shape_y)[i]), shape).  In
most steps neither was, and dy itself is the result.  Next to read: `aexec/kernels/math/sum_to_shape_ops.py`.
"""

from __future__ import annotations

from aexec.framework.waiting.long_work import steadily
from aexec.graph.nodes.node import Node
from aexec.graph.passes.uses import Uses
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["sum_to_shapes"]


def sum_to_shapes(working: WorkingGraph) -> None:
    """Join each Sum over the axes of a broadcast with the Reshape after it."""
    rows = [(node, axes) for node in steadily(working.nodes.values()) if (axes := _axes_of(node, working)) is not None]
    if not rows:
        return
    uses = Uses(working)
    for reshape, axes in steadily(rows):
        total = working.nodes[reshape.in_edges[0][0]]
        if uses.then(total) is not reshape or not working.on_one_cpu((axes, total)):
            continue
        dy, (_, second) = total.in_edges
        shape, other = axes.in_edges[second], axes.in_edges[1 - second]
        attrs = {"T": total.attrs["T"], "Tshape": axes.attrs["T"], "second": bool(second)}
        uses.join([total, reshape], "_SumToShape", attrs, (dy, shape, other))


def _axes_of(reshape: Node, working: WorkingGraph) -> Node | None:
    """Return the BroadcastGradientArgs of a Reshape that gives a summed gradient the shape of an operand, else None."""
    if reshape.op != "Reshape" or reshape.in_edges[0] in working.fed:
        return None
    total = working.nodes[reshape.in_edges[0][0]]
    if total.op != "Sum" or total.attrs["keep_dims"] or total.in_edges[1] in working.fed:
        return None
    axes, output = working.nodes[total.in_edges[1][0]], total.in_edges[1][1]
    if axes.op != "BroadcastGradientArgs" or axes.control_edges or axes.in_edges[output] != reshape.in_edges[1]:
        return None
    return axes
