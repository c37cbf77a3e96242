"""Replaces Log(Softmax(x)) by LogSoftmax(x), which stays finite if a probability underflows.

Programs that write `log(softmax(logits))` rely on it: TensorFlow's rewriter does the same (`ConvertLogSoftmaxStage` of
its arithmetic optimizer).  The softmax stays if other nodes use it.
"""

from __future__ import annotations

from aexec.framework.waiting.long_work import steadily
from aexec.graph.nodes.node import Node
from aexec.graph.passes.uses import Uses
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["join_log_and_softmax"]


def join_log_and_softmax(working: WorkingGraph) -> None:
    """Compute each logarithm of a softmax from the softmax's input."""
    pairs = [(node, softmax) for node in steadily(working.nodes.values()) if (softmax := _softmax_of(node, working))]
    if not pairs:
        return
    uses = Uses(working)
    for log, softmax in pairs:
        uses.join([log], "LogSoftmax", {"T": softmax.attrs["T"]}, softmax.in_edges)


def _softmax_of(node: Node, working: WorkingGraph) -> Node | None:
    """Return the softmax whose logarithm a node takes; None if it is fed, waits for others or is on another device."""
    if node.op != "Log" or node.in_edges[0] in working.fed:
        return None
    source = working.nodes[node.in_edges[0][0]]
    if source.op != "Softmax" or source.control_edges or not working.on_one_cpu((node, source)):
        return None
    return source
