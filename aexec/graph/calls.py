"""Calls: which nodes call a function of the library, and with which attrs.

A node whose op is the name of a function calls it, and so does a PartitionedCall, by its attr `f`.
If, While and the like call functions too, but decide for themselves when: they are run by their kernels.
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
# Ops whose kernels do nothing but call functions: what comes in goes into these, or decides which.
FUNCTIONAL_OPS = _CALLS | {
    *("Case", "For", "If", "RemoteCall", "StatelessCase", "StatelessIf", "StatelessWhile", "SymbolicGradient"),
    *("While", "_If", "_While"),
}


def called_function(node: Node, library: FunctionLibrary) -> NameAttrList | None:
    """The function that a node calls, perhaps one that is not in the library; None if the node is no call."""
    if node.op in _CALLS:
        function: NameAttrList = node.attrs["f"]
        return function
    if node.op in library:
        return NameAttrList(node.op, signature_attrs(node.op_def, node.attrs))
    return None


def is_functional(node: Node, library: FunctionLibrary) -> bool:
    """Does it do nothing but call functions?  Then it has no device of its own to compute on: its functions have."""
    return node.op in FUNCTIONAL_OPS or node.op in library


class FunctionalCallee(NamedTuple):
    """A function that a node calls.

    Attributes:
        offset: argument `i` is the node's input `i + offset`.
        gives_outputs: its results are the node's outputs.
    """

    function: NameAttrList
    offset: int = 0
    gives_outputs: bool = True


def functions_called(node: Node, library: FunctionLibrary) -> list[FunctionalCallee]:
    """The functions that a node may call if it does nothing else, perhaps some that are not in the library."""
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
    """The attrs of a call that are the function's; others are about the node."""
    return {attr.name: attrs[attr.name] for attr in op_def.attrs if attr.name in attrs}
