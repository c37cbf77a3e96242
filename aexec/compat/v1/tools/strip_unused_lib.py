"""`strip_unused`: the part of a graph between its inputs, which become placeholders, and its outputs.

Next to read: `optimize_for_inference_lib.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from aexec import proto
from aexec.compat.v1.running.graph_util import extract_sub_graph
from aexec.framework import errors

__all__ = ["strip_unused"]

# A placeholder has the shape that its node has.
_KEPT = ("shape", "_output_shapes")


def strip_unused(
    input_graph_def: proto.GraphDef,
    input_node_names: Sequence[str],
    output_node_names: Sequence[str],
    placeholder_type_enum: int | Sequence[int],
) -> proto.GraphDef:
    """The nodes that the outputs need if the inputs are fed.

    Args:
        placeholder_type_enum: the inputs' type, or one for each.

    Raises:
        ValueError: an input is the name of a tensor.
        KeyError: there is no node of an input's name.
        NotFoundError: there is none of an output's name.
    """
    if tensor := next((name for name in input_node_names if ":" in name), None):
        raise errors.InvalidValueError(f"Name '{tensor}' appears to refer to a Tensor, not an Operation.")
    given = placeholder_type_enum
    types = [given] * len(input_node_names) if isinstance(given, int) else list(given)
    wanted = dict(zip(input_node_names, types, strict=True))
    cut = proto.GraphDef(library=input_graph_def.library, versions=input_graph_def.versions)
    for node in input_graph_def.node:
        if node.name in wanted:
            cut.node.append(_placeholder(node, wanted.pop(node.name)))
        else:
            cut.node.append(node)
    if wanted:
        raise errors.UnknownKeyError(f"The following input nodes were not found: {set(wanted)}.")
    return extract_sub_graph(cut, output_node_names)


def _placeholder(node: proto.NodeDef, dtype: int) -> proto.NodeDef:
    made = proto.NodeDef(name=node.name, op="Placeholder")
    made.attr["dtype"].type = cast("proto.DataType", dtype)
    for name in _KEPT:
        if name in node.attr:
            made.attr[name].CopyFrom(node.attr[name])
    return made
