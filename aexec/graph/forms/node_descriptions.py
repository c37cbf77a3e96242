"""Nodes of graphs and functions as plain data, for drawing: names, ops, edges and shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from aexec import proto
from aexec.framework.datatypes import datatype_of
from aexec.framework.wire.attr_value import NameAttrList, summarize
from aexec.graph.nodes.node import Node

__all__ = ["describe_function", "describe_node"]

# Most characters of an attr.
_MOST_TEXT = 400


def describe_node(node: Node, *, with_attrs: bool = False) -> dict[str, Any]:
    """Describe a node: name, op, device, inputs as in a NodeDef, outputs with datatype and shape.

    `calls` names the functions that it calls, if there are any.

    Args:
        with_attrs: True to add `attrs`, as texts of bounded length.
    """
    described = {
        "name": node.name,
        "op": node.op,
        "device": node.device,
        "inputs": node.input_names(),
        "outputs": [
            {
                "datatype": datatype_of(output.dtype),
                "shape": None if output.shape.dims is None else [-1 if d is None else d for d in output.shape.dims],
            }
            for output in node.outputs
        ],
    }
    return described | _calls(node.attrs) | ({"attrs": _texts(node.attrs)} if with_attrs else {})


def _calls(attrs: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return `{"calls": names}` with the functions that a node's attrs name; {} if there are none."""
    values = chain.from_iterable(value if isinstance(value, list | tuple) else (value,) for value in attrs.values())
    names = {value.name: None for value in values if isinstance(value, NameAttrList)}
    return {"calls": list(names)} if names else {}


def describe_function(definition: proto.FunctionDef, *, with_attrs: bool = False) -> Iterator[dict[str, Any]]:
    """Describe arguments, nodes and results of a function.  Their types and shapes depend on the call, and are left
    out.

    Args:
        with_attrs: as of `describe_node`.
    """

    def node(name: str, op: str, inputs: list[str], device: str = "", attrs: Any = None) -> dict[str, Any]:
        described = {"name": name, "op": op, "device": device, "inputs": inputs, "outputs": []}
        return described | ({"attrs": _texts(attrs or {})} if with_attrs else {})

    for arg in definition.signature.input_arg:
        yield node(arg.name, "_Arg", [])
    for n in definition.node_def:
        yield node(n.name, n.op, list(n.input), n.device, n.attr)
    for arg in definition.signature.output_arg:
        yield node(f"{arg.name}_RetVal", "_Retval", [definition.ret[arg.name]])


def _texts(attrs: Mapping[str, Any]) -> dict[str, str]:
    return {name: summarize(attrs[name])[:_MOST_TEXT] for name in sorted(attrs)}
