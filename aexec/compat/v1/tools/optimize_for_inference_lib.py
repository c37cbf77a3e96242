"""`optimize_for_inference`: cuts a graph to its inputs and outputs, and removes nodes that only training needs.

TensorFlow also folds batch normalisation, resizing and padding into convolutions here.  aexec folds when it plans a
step, so the graph keeps these nodes.  Next to read: `aexec/compat/v1/running/graph_util.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aexec import proto
from aexec.compat.v1.namespace import refuse
from aexec.compat.v1.running.graph_util import remove_training_nodes
from aexec.compat.v1.tools.strip_unused_lib import strip_unused

__all__ = ["optimize_for_inference"]


def optimize_for_inference(
    input_graph_def: proto.GraphDef,
    input_node_names: Sequence[str],
    output_node_names: Sequence[str],
    placeholder_type_enum: int | Sequence[int],
    toco_compatible: bool = False,
    placeholder_to_const_names: Sequence[str] | None = None,
) -> proto.GraphDef:
    """`strip_unused`, then `remove_training_nodes`.

    Args:
        toco_compatible: ignored, since no ops are fused.

    Other arguments, and errors, are those of `strip_unused`.

    Raises:
        UnimplementedError: `placeholder_to_const_names` is given.
    """
    refuse("optimize_for_inference", placeholder_to_const_names=placeholder_to_const_names)
    cut = strip_unused(input_graph_def, input_node_names, output_node_names, placeholder_type_enum)
    return remove_training_nodes(cut, output_node_names)
