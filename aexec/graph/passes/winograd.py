"""Winograd: 3×3 convolutions with constant kernels are marked, so that their kernels may do fewer multiplications.

The shapes, which decide whether that is faster, are known only when the node runs.  The mark is an attr whose name
begins with an underscore, which any node may have: a graph with it means the same everywhere.
Next to read: `aexec/kernels/nn/winograd.py`, which says what it changes.
"""

from __future__ import annotations

from aexec.framework import dtypes
from aexec.framework.long_work import steadily
from aexec.graph.passes.uses import Uses
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["mark_for_winograd"]

_CONVOLUTIONS = ("Conv2D", "_FusedConv2D")


def mark_for_winograd(working: WorkingGraph) -> None:
    """Give the convolutions that may be computed so the attr `_winograd`."""
    nodes = [node for node in working.nodes.values() if node.op in _CONVOLUTIONS]
    uses = Uses(working) if nodes else None
    for node in steadily(nodes):
        if node.output_types[0] is not dtypes.float32 or "_winograd" in node.attrs:
            continue
        kernel = working.constant(node.inputs[1])
        if uses is not None and kernel is not None and kernel.ndim == 4 and kernel.shape[:2] == (3, 3):
            uses.join([node], node.op, {**node.attrs, "_winograd": True}, node.inputs)
