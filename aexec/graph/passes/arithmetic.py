"""Arithmetic simplification that changes no bit of a result.

x*1, x/1 and x-0 are replaced by x, for integers also x+0 (for floats -0.0 + 0 is 0.0); so are a Cast to x's own type,
a Transpose by 0, 1, 2, ..., and a double Neg or LogicalNot.  The number must be a constant scalar, as another shape
could make the result larger than x.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework.waiting.long_work import steadily
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.ordering.ref_edges import RefEdges
from aexec.graph.passes.pass_through import is_removable
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["simplify_arithmetic"]


def simplify_arithmetic(working: WorkingGraph) -> None:
    """Replace each node that returns one of its inputs unchanged by this input."""
    waited_for = working.waited_for()
    refs = RefEdges(working, working.fed)
    forward: dict[Endpoint, Endpoint] = {}
    for node in steadily(working.nodes.values()):
        rule = _RULES.get(node.op)
        if rule is not None and node.id not in waited_for and is_removable(node, working, refs):
            same = rule(node, working)
            if same is not None and same[0] != node.id and not refs.gives_cell(same):
                forward[node.id, 0] = same
    working.redirect(forward)


def _scalar(endpoint: Endpoint, working: WorkingGraph) -> Any:
    """Return the number of a constant scalar, else None."""
    array = working.constant(endpoint)
    return array[()] if array is not None and array.ndim == 0 else None


def _right(number: int) -> Callable[[Node, WorkingGraph], Endpoint | None]:
    """Return a rule for ops with a right neutral element: x op number is x."""
    return lambda node, working: node.in_edges[0] if _scalar(node.in_edges[1], working) == number else None


def _times_one(node: Node, working: WorkingGraph) -> Endpoint | None:
    for this, other in (node.in_edges, node.in_edges[::-1]):
        if _scalar(this, working) == 1:
            return other
    return None


def _minus_zero(node: Node, working: WorkingGraph) -> Endpoint | None:
    value = _scalar(node.in_edges[1], working)
    # x - (-0.0) is x + 0.0, which is not x for x = -0.0.
    return node.in_edges[0] if value is not None and value == 0 and not np.signbit(np.real(value)) else None


def _plus_zero(node: Node, working: WorkingGraph) -> Endpoint | None:
    if not node.output_types[0].is_integer:
        return None
    for this, other in (node.in_edges, node.in_edges[::-1]):
        if _scalar(this, working) == 0:
            return other
    return None


def _same_type(node: Node, working: WorkingGraph) -> Endpoint | None:
    return node.in_edges[0] if node.input_types[0] is node.output_types[0] else None


def _twice(node: Node, working: WorkingGraph) -> Endpoint | None:
    inner = working.nodes[node.in_edges[0][0]]
    if inner.op != node.op or inner.control_edges or node.in_edges[0] in working.fed:
        return None
    return inner.in_edges[0]


def _in_order(node: Node, working: WorkingGraph) -> Endpoint | None:
    rank, order = working.shape(node.in_edges[0]).rank, working.constant(node.in_edges[1])
    if rank is None or order is None or order.shape != (rank,):
        return None
    return node.in_edges[0] if order.tolist() == list(range(rank)) else None


_RULES: dict[str, Callable[[Node, WorkingGraph], Endpoint | None]] = {
    "Mul": _times_one,
    "Div": _right(1),
    "RealDiv": _right(1),
    "Add": _plus_zero,
    "AddV2": _plus_zero,
    "Sub": _minus_zero,
    "Cast": _same_type,
    "Neg": _twice,
    "LogicalNot": _twice,
    "Transpose": _in_order,
}
