"""`optimize_for_inference`: a graph cut to its inputs and outputs, without what only training needs.

Batch normalisations are folded into convolutions, and sizes and paddings into them, when a plan is made, and not in
the file.  Next to read: `aexec/compat/v1/running/graph_util.py`.
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
    """The nodes between inputs and outputs, without checks and identities.  Arguments and errors as of `strip_unused`.

    Args:
        toco_compatible: changes nothing, since no ops are fused.
    """
    refuse("optimize_for_inference", placeholder_to_const_names=placeholder_to_const_names)
    cut = strip_unused(input_graph_def, input_node_names, output_node_names, placeholder_type_enum)
    return remove_training_nodes(cut, output_node_names)
