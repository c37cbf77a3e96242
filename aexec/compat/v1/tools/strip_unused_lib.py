"""`strip_unused`: cuts a graph to the part between inputs and outputs; inputs become placeholders.

Next to read: `optimize_for_inference_lib.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from aexec import proto
from aexec.compat.v1.running.graph_util import extract_sub_graph
from aexec.framework import errors

__all__ = ["strip_unused"]

# The attributes that a placeholder takes over from the node that it replaces.
_KEPT = ("shape", "_output_shapes")


def strip_unused(
    input_graph_def: proto.GraphDef,
    input_node_names: Sequence[str],
    output_node_names: Sequence[str],
    placeholder_type_enum: int | Sequence[int],
) -> proto.GraphDef:
    """Return the part of a graph that computes the outputs from the inputs.

    Args:
        input_node_names: names of the nodes to replace by placeholders.
        output_node_names: names of the outputs.
        placeholder_type_enum: the placeholders' DataType, or a list with one per input.

    Raises:
        ValueError: an input is the name of a tensor, or the lists differ in length.
        KeyError: the graph has no node of an input's name.
        NotFoundError: the graph has no node of an output's name.
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
