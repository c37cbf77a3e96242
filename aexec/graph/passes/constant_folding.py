"""Constant folding: computes nodes that depend only on constants once, when a request is planned.

Folded are stateless nodes without control inputs whose inputs and outputs are numbers or strings.  Not folded are
ControlTrigger, which turns dead into alive, nodes that read files, and nodes that fail: these raise their error when
they run.  Size is bounded by inferred shapes, work by the evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aexec.framework import dtypes, errors
from aexec.framework.op_contract import op_registry
from aexec.framework.waiting.long_work import steadily
from aexec.framework.wire.attr_value import TensorAttr
from aexec.graph.nodes import control_flow
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["MAX_BYTES", "Evaluator", "fold_constants"]

# Takes a node and its inputs; returns its outputs as read-only arrays, or None if it cannot or should not run now.
Evaluator = Callable[[Node, Sequence[Any]], Sequence[Any] | None]

# Most bytes of a folded output.
MAX_BYTES = 10 * 2**20

_NEVER = frozenset(
    {"ControlTrigger", "LoopCond", "FakeParam", "ReadFile", "MatchingFiles", "PlaceholderWithDefault", "NoOp"}
    | control_flow.SWITCH
    | control_flow.MERGE
    | control_flow.ENTER
    | control_flow.EXIT
    | control_flow.NEXT_ITERATION
)
_FOLDABLE_TYPES = frozenset({*dtypes.POD, dtypes.string})


def fold_constants(working: WorkingGraph, evaluate: Evaluator) -> None:
    """Replace nodes that depend only on constants by constants."""
    values: dict[Endpoint, Any] = {}
    forward: dict[Endpoint, Endpoint] = {}
    for node in steadily(working.producers_first()):
        if node.op == "Const":
            if not node.control_edges and (node.id, 0) not in working.fed:
                _note_constant(node, values)
        elif node.in_edges and all(endpoint in values for endpoint in node.in_edges) and _may_fold(node, working):
            outputs = evaluate(node, [values[endpoint] for endpoint in node.in_edges])
            if outputs is not None:
                values.update(((node.id, slot), value) for slot, value in enumerate(outputs))
                _fold(node, outputs, working, forward)
    working.redirect(forward)


def _note_constant(node: Node, values: dict[Endpoint, Any]) -> None:
    try:
        values[node.id, 0] = node.attrs["value"].array
    except errors.OpError:
        return  # its value cannot be decoded; the node that uses it raises the error


def _may_fold(node: Node, working: WorkingGraph) -> bool:
    if node.control_edges or node.op_def.is_stateful or node.op in _NEVER:
        return False
    if not working.is_original(node):
        return False  # the evaluator knows kernels and values only for ids of the original graph
    if any(endpoint in working.fed for endpoint in node.in_edges) or not node.output_types:
        return False
    if node.num_outputs > 1 and node.id in working.pinned:
        return False
    if any((node.id, slot) in working.fed for slot in range(node.num_outputs)):
        return False
    types = (*node.input_types, *node.output_types)
    return _FOLDABLE_TYPES.issuperset(types) and _is_small(node)


def _is_small(node: Node) -> bool:
    """True if the inferred shapes show that no output takes more than `MAX_BYTES`."""
    if node.shapes is None:
        return False
    for shape, dtype in zip(node.shapes, node.output_types, strict=True):
        count = shape.num_elements
        if count is None or count * dtype.np.itemsize > MAX_BYTES:
            return False
    return True


def _fold(node: Node, outputs: Sequence[Any], working: WorkingGraph, forward: dict[Endpoint, Endpoint]) -> None:
    if len(outputs) == 1:
        working.replace(_constant(node, node.id, node.name, 0, outputs[0]))
        return
    for slot, value in enumerate(outputs):
        node_id, name = working.new_node(node, f"__cf__{slot}")
        working.replace(_constant(node, node_id, name, slot, value))
        forward[node.id, slot] = (node_id, 0)


def _constant(node: Node, node_id: int, name: str, slot: int, value: Any) -> Node:
    dtype = node.output_types[slot]
    op_def = op_registry.global_registry.lookup("Const").op_def
    attrs = {"dtype": dtype, "value": TensorAttr(value, dtype)}
    constant = Node(node.graph, node_id, name, op_def, attrs, device=node.device, site=node.site)
    constant.shapes = (node.shapes[slot],)
    return constant
