"""Calls: which nodes call a function of the library, and with which attrs.

A node whose op is the name of a function calls it, and so does a PartitionedCall, by its attr `f`.
If, While and the like call functions too, but decide for themselves when: they are run by their kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aexec.framework.attr_value import NameAttrList
from aexec.framework.op_def import OpDef
from aexec.graph.function_library import FunctionLibrary
from aexec.graph.node import Node

__all__ = ["called_function", "is_call", "signature_attrs"]

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


def called_function(node: Node, library: FunctionLibrary) -> NameAttrList | None:
    """The function that a node calls, perhaps one that is not in the library; None if the node is no call."""
    if node.op in _CALLS:
        function: NameAttrList = node.attrs["f"]
        return function
    if node.op in library:
        return NameAttrList(node.op, signature_attrs(node.op_def, node.attrs))
    return None


def is_call(node: Node, library: FunctionLibrary) -> bool:
    """Does it do nothing but call a function?"""
    return node.op in _CALLS or node.op in library


def signature_attrs(op_def: OpDef, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attrs of a call that are the function's; others are about the node."""
    return {attr.name: attrs[attr.name] for attr in op_def.attrs if attr.name in attrs}
