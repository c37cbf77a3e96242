"""Common subexpressions: merges nodes that compute the same from the same inputs.

Two nodes are equal if op, attrs, device, inputs (in any order for a commutative op) and control inputs are equal.
Nodes with state, or with refs, resources or variants as inputs or outputs, are never merged.
"""

from __future__ import annotations

from typing import Any

from aexec.framework import dtypes
from aexec.framework.waiting.long_work import steadily
from aexec.framework.wire import attr_value
from aexec.framework.wire.attr_value import NameAttrList, TensorAttr
from aexec.graph.nodes import control_flow
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.nodes.prune import PLACEHOLDERS
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["merge_common_subexpressions"]

_NEVER = frozenset(
    {*PLACEHOLDERS, "ControlTrigger", "LoopCond", "FakeParam", "NoOp"}
    | control_flow.SWITCH
    | control_flow.MERGE
    | control_flow.ENTER
    | control_flow.EXIT
    | control_flow.NEXT_ITERATION
)
_VALUES = frozenset({*dtypes.POD, dtypes.string})
# Larger constants, and nodes with longer lists, are not compared, as hashing them takes longer than merging saves.
_MAX_CONSTANT = 64
_MAX_LIST = 1000


def merge_common_subexpressions(working: WorkingGraph) -> None:
    """Make the consumers of equal nodes use the first of them."""
    forward: dict[Endpoint, Endpoint] = {}
    first_of: dict[Any, Node] = {}
    others: dict[Any, dict[Any, Node]] = {}
    waited_for = working.waited_for()
    fed = {node_id for node_id, _ in working.fed}  # a fed node has another value
    for node in steadily(working.producers_first()):
        if node.id in fed or not _may_merge(node):
            continue
        key = _outline(node, forward)
        first = first_of.setdefault(key, node)
        if first is node or not _is_comparable(node):
            continue
        # Attrs are hashed only if everything else is equal.
        same_outline = others.setdefault(key, {_attrs(first): first} if _is_comparable(first) else {})
        first = same_outline.setdefault(_attrs(node), node)
        if first is not node and node.id not in working.pinned and node.id not in waited_for:
            forward.update(((node.id, slot), (first.id, slot)) for slot in range(node.num_outputs))
    working.redirect(forward)


def _may_merge(node: Node) -> bool:
    if node.op_def.is_stateful or node.op in _NEVER or not node.output_types:
        return False
    if not (_VALUES.issuperset(node.input_types) and _VALUES.issuperset(node.output_types)):
        return False
    if node.op == "Const":
        count: int = node.attrs["value"].num_elements
        return count <= _MAX_CONSTANT
    return bool(node.in_edges)


def _outline(node: Node, forward: dict[Endpoint, Endpoint]) -> Any:
    inputs = [forward.get(endpoint, endpoint) for endpoint in node.in_edges]
    if node.op_def.is_commutative:
        inputs.sort()
    value = node.attrs["value"] if node.op == "Const" else None
    return (node.op, tuple(inputs), frozenset(node.control_edges), node.device, value)


def _is_comparable(node: Node) -> bool:
    """True if the attrs are few and small enough to be hashed."""
    return all(map(_is_small, node.attrs.values()))


def _is_small(value: Any) -> bool:
    if type(value) is list:
        return len(value) <= _MAX_LIST and all(map(_is_small, value))
    if type(value) is TensorAttr:
        return value.num_elements <= _MAX_CONSTANT
    if type(value) is NameAttrList:
        return all(map(_is_small, value.attrs.values()))
    return True


def _attrs(node: Node) -> Any:
    return frozenset((name, attr_value.hashable(value)) for name, value in node.attrs.items())
