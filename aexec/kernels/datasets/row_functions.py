"""Functions that give the same for the rows of a batch at once as for each row by itself.

A dataset that maps such a function and then makes batches can make the batch first: one call in place of many.  It is
so for a body that consists of the ops below, which are exact: each element of a result depends only on elements at the
same place of the row, however many rows there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aexec.framework.shape import PartialTensorShape
from aexec.graph.function_body import FunctionBody
from aexec.graph.nodes.node import Node

__all__ = ["is_row_wise"]

_UNARY = frozenset(
    """Abs AsString Cast Ceil Floor Identity LogicalNot Neg Square StringLength StringLower StringStrip
    StringToHashBucket StringToHashBucketFast StringToHashBucketStrong StringToNumber StringUpper""".split()
)
_BINARY = frozenset(
    """Add AddV2 BitwiseAnd BitwiseOr BitwiseXor Div Equal FloorDiv FloorMod Greater GreaterEqual Less LessEqual
    LogicalAnd LogicalOr Maximum Minimum Mul NotEqual RealDiv Sub""".split()
)

# What is known of a value: the rank that it has in each row; or that it is the same for all rows, and whether it is a
# scalar.
_SCALAR, _SAME = "scalar", "same"
_Known = int | str


def is_row_wise(body: FunctionBody, shapes: Sequence[PartialTensorShape], captured: Sequence[Any]) -> bool:
    """True if a call with the rows of a batch gives the batch of what calls with each row give, or fails.

    Args:
        shapes: of the arguments that have rows.
        captured: the other arguments.
    """
    if body.side_effects or not body.results:
        return False
    known: dict[tuple[int, int], _Known] = {}
    for position, node_id in enumerate(body.arguments):
        if position < len(shapes):
            dims = shapes[position].dims
            if dims is None:
                return False
            known[node_id, 0] = len(dims)
        else:
            known[node_id, 0] = _SAME if np.ndim(captured[position - len(shapes)]) else _SCALAR
    nodes = {node.id: node for node in body.graph}
    return all(isinstance(_known_of(edge, nodes, known), int) for edge in body.results)


def _known_of(edge: tuple[int, int], nodes: Mapping[int, Node], known: dict[tuple[int, int], _Known]) -> _Known | None:
    """What is known of a value; None if its node is no op of rows.  Goes through the body without recursion."""
    waiting = [edge]
    while waiting:
        wanted = waiting[-1]
        node = nodes[wanted[0]]
        missing = [source for source in node.in_edges if source not in known]
        if missing and wanted not in known:
            waiting += missing
            continue
        waiting.pop()
        if wanted in known:
            continue
        found = _output(node, wanted[1], [known[source] for source in node.in_edges])
        if found is None:
            return None
        known[wanted] = found
    return known[edge]


def _output(node: Node, slot: int, inputs: Sequence[_Known]) -> _Known | None:
    if node.control_edges:
        return None
    if node.op == "Const":
        return _SAME if node.attrs["value"].shape else _SCALAR
    if node.op in _UNARY:
        return inputs[0]
    if node.op in _BINARY:
        return _broadcast(*inputs)
    if node.op == "DecodeRaw":
        return inputs[0] + 1 if isinstance(inputs[0], int) else None
    if node.op == "ParseExampleV2":
        return _parsed(node, slot, inputs)
    return None


def _broadcast(first: _Known, second: _Known) -> _Known | None:
    """Rows of different ranks would be broadcast along their first dimensions, and a batch along others."""
    if first == second:
        return first
    if _SCALAR in (first, second):
        return second if first == _SCALAR else first
    return None


def _parsed(node: Node, slot: int, inputs: Sequence[_Known]) -> _Known | None:
    """Dense features of fixed length only: others depend on the longest row."""
    if inputs[0] != 0 or any(isinstance(known, int) for known in inputs[1:]):
        return None
    if node.attrs["num_sparse"] or node.attrs["ragged_value_types"]:
        return None
    dims = node.attrs["dense_shapes"][slot].dims
    return None if dims is None or None in dims else len(dims)
