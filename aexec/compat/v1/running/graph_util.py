"""`tf.graph_util`: graphs without variables, and parts of graphs.

Next to read: `aexec/saved_model/freeze.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aexec import proto
from aexec.compat.v1.namespace import namespace, refuse
from aexec.compat.v1.running.session import Session, in_session
from aexec.framework import errors
from aexec.graph.graph import Graph
from aexec.saved_model.freeze import freeze

__all__ = ["convert_variables_to_constants", "extract_sub_graph"]


def convert_variables_to_constants(
    sess: Any,
    input_graph_def: proto.GraphDef,
    output_node_names: Sequence[str],
    variable_names_whitelist: Any = None,
    variable_names_blacklist: Any = None,
) -> proto.GraphDef:
    """`tf.graph_util.convert_variables_to_constants`: the part of the session's graph that the outputs need.

    Raises:
        UnimplementedError: with an `AsyncSession`: await `aexec.saved_model.freeze`.
    """
    refuse("convert_variables_to_constants", variable_names_whitelist=variable_names_whitelist)
    refuse("convert_variables_to_constants", variable_names_blacklist=variable_names_blacklist)
    if not isinstance(sess, Session):
        raise errors.UnsupportedError("convert_variables_to_constants waits: await aexec.saved_model.freeze instead")
    frozen: Graph = in_session(sess, freeze, list(output_node_names))
    return frozen.to_graph_def()


def extract_sub_graph(graph_def: proto.GraphDef, dest_nodes: Sequence[str]) -> proto.GraphDef:
    """`tf.graph_util.extract_sub_graph`: the nodes that these need.

    Raises:
        NotFoundError: there is no node of that name.
    """
    nodes = {node.name: node for node in graph_def.node}
    pending, needed = list(dest_nodes), set[str]()
    while pending:
        name = pending.pop().removeprefix("^").partition(":")[0]
        if name not in nodes:
            raise errors.UnknownKeyError(f"{name} is not in graph")
        if name not in needed:
            needed.add(name)
            pending.extend(nodes[name].input)
    part = proto.GraphDef(library=graph_def.library, versions=graph_def.versions)
    part.node.extend(node for node in graph_def.node if node.name in needed)
    return part


__getattr__, __dir__ = namespace(
    __name__,
    {},
    {
        "remove_training_nodes": "sessions leave out what a run does not need: docs/graph-passes.md",
        "must_run_on_cpu": "aexec.Session says where each kernel is: docs/placement.md",
    },
)
