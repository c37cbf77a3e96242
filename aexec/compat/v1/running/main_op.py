"""`tf.saved_model.main_op`: operations that a SavedModel runs when it is loaded.

Next to read: `saved_model.py`.
"""

from __future__ import annotations

from typing import Any

from aexec.client.building import control_dependencies, group
from aexec.compat.v1.values.tensors import get_default_graph
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Node
from aexec.variables.initialization import global_variables_initializer, local_variables_initializer

__all__ = ["main_op", "main_op_with_restore"]


def main_op() -> Node:
    """`tf.saved_model.main_op.main_op`: an operation that initialises all variables and tables."""
    tables = get_default_graph().collections.get(GraphKeys.TABLE_INITIALIZERS)
    return group(global_variables_initializer(), local_variables_initializer(), *tables)


def main_op_with_restore(restore_op_name: Any) -> Node:
    """`tf.saved_model.main_op_with_restore`: an operation that runs `main_op`, then another one.

    Args:
        restore_op_name: the operation that restores variables.
    """
    with control_dependencies([main_op()]):
        return group(restore_op_name)
