"""Winograd: marks convolutions of 3 or 5 rows and columns, and their gradients, for fewer multiplications.

Whether that is faster depends on shapes, which are known only when the node runs; nodes that cannot profit by what is
known before get no mark.  The mark is an attr whose name begins with an underscore.  Any node may have such attrs, so
the graph stays valid everywhere.
Next to read: `aexec/kernels/nn/winograd.py` and `winograd_rows.py`, which say what it changes.
"""

from __future__ import annotations

from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from aexec.framework.waiting.long_work import steadily
from aexec.graph.nodes.node import Node
from aexec.graph.passes.uses import Uses
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["mark_for_winograd"]

_CONVOLUTIONS = ("Conv2D", "_FusedConv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")
_SIZES = (3, 5)


def mark_for_winograd(working: WorkingGraph) -> None:
    """Set the attr `_winograd` of convolutions that may be computed this way."""
    nodes = [node for node in working.nodes.values() if node.op in _CONVOLUTIONS]
    uses = Uses(working) if nodes else None
    for node in steadily(nodes):
        if node.output_types[0] is not dtypes.float32 or "_winograd" in node.attrs:
            continue
        if uses is not None and _may_have_fewer(_kernel_shape(working, node)):
            uses.join([node], node.op, {**node.attrs, "_winograd": True}, node.in_edges)


def _kernel_shape(working: WorkingGraph, node: Node) -> PartialTensorShape:
    """Return the inferred shape of a convolution's kernel, or of the kernel's gradient."""
    if node.op == "Conv2DBackpropFilter":
        return working.shape((node.id, 0))
    kernel = working.constant(node.in_edges[1])
    return working.shape(node.in_edges[1]) if kernel is None else PartialTensorShape(kernel.shape)


def _may_have_fewer(kernel: PartialTensorShape) -> bool:
    dims = kernel.dims
    return dims is not None and len(dims) == 4 and dims[0] == dims[1] and dims[0] in _SIZES
