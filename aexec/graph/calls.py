"""Calls of library functions: which nodes call one, and with which attrs.

A node calls a function if its op is the function's name, or if it is a PartitionedCall whose attr `f` names it.
If, While and similar ops call functions too, but their kernels decide when.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from aexec.framework.wire.attr_value import NameAttrList
from aexec.framework.wire.op_def import OpDef
from aexec.graph.nodes.function_library import FunctionLibrary
from aexec.graph.nodes.node import Node

__all__ = [
    "FUNCTIONAL_OPS",
    "FunctionalCallee",
    "called_function",
    "functions_called",
    "is_functional",
    "signature_attrs",
]

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
# Ops whose kernels only call functions: their inputs are arguments, or choose the function.
FUNCTIONAL_OPS = _CALLS | {
    *("Case", "For", "If", "RemoteCall", "StatelessCase", "StatelessIf", "StatelessWhile", "SymbolicGradient"),
    *("While", "_If", "_While"),
}


def called_function(node: Node, library: FunctionLibrary) -> NameAttrList | None:
    """Return the function that a node calls, or None if the node is no call.

    The library may not have the function.
    """
    if node.op in _CALLS:
        function: NameAttrList = node.attrs["f"]
        return function
    if node.op in library:
        return NameAttrList(node.op, signature_attrs(node.op_def, node.attrs))
    return None


def is_functional(node: Node, library: FunctionLibrary) -> bool:
    """True if a node only calls functions.

    Such a node needs no device of its own to compute on; the nodes of the functions do.
    """
    return node.op in FUNCTIONAL_OPS or node.op in library


class FunctionalCallee(NamedTuple):
    """A function that a node calls.

    Attributes:
        offset: argument `i` of the function is input `i + offset` of the node.
        gives_outputs: True if the function's results are the node's outputs.
    """

    function: NameAttrList
    offset: int = 0
    gives_outputs: bool = True


def functions_called(node: Node, library: FunctionLibrary) -> list[FunctionalCallee]:
    """Return the functions that a functional node may call; empty for other nodes.

    The library may not have some of them.
    """
    attrs = node.attrs
    called = called_function(node, library)
    if called is not None:
        return [FunctionalCallee(called)]
    match node.op:
        case "If" | "StatelessIf" | "_If":
            return [FunctionalCallee(attrs[branch], 1) for branch in ("then_branch", "else_branch")]
        case "Case" | "StatelessCase":
            return [FunctionalCallee(branch, 1) for branch in attrs["branches"]]
        case "While" | "StatelessWhile" | "_While":
            return [FunctionalCallee(attrs["cond"], 0, gives_outputs=False), FunctionalCallee(attrs["body"])]
        case "For":
            return [FunctionalCallee(attrs["body"], 2)]  # the first argument is the loop's index
        case "RemoteCall":
            return [FunctionalCallee(attrs["f"], 1)]
    return []


def signature_attrs(op_def: OpDef, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attrs of a call that belong to the function, without those of the calling node itself."""
    return {attr.name: attrs[attr.name] for attr in op_def.attrs if attr.name in attrs}
