"""Checks that a model is complete: a missing file must not be mistaken for nothing to read.

A program that copies a model may write its graph first, and its variables and assets later.  Until all are there the
graph has variables without values, or with those of an earlier model.
Next to read: `model_session.py`.
"""

from __future__ import annotations

import os
from typing import Protocol

from aexec.framework import dtypes, errors
from aexec.graph.graph import Graph
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.nodes.node import Node
from aexec.graph.nodes.prune import reachable
from aexec.io.checkpoint_files import check_checkpoint

__all__ = ["RestoredModel", "has_values_to_restore"]


class RestoredModel(Protocol):
    """The part of a model that a session uses; `SavedModel` in `loader.py` is one."""

    @property
    def meta_graph(self) -> MetaGraph:
        """The graph with what belongs to it; its `saver_def` says how to restore the variables."""

    @property
    def variables_prefix(self) -> str:
        """Prefix of the checkpoint that holds the variables."""

    @property
    def init_op(self) -> str | None:
        """Name of the operation to run once the variables are restored, or None."""

    def has_variables(self) -> bool:
        """True if there is a checkpoint, or a part of one.  Reads the disk."""

    def asset_feeds(self) -> dict[str, bytes]:
        """The path of every asset, for the tensor that takes it."""


def has_values_to_restore(model: RestoredModel) -> bool:
    """True if the model's session begins with restoring a checkpoint.  Reads the disk.

    Raises:
        NotFoundError: a file of the checkpoint is missing, or an asset that the model needs at first.
        DataLossError: a file of the checkpoint is truncated or corrupt.
        InvalidArgumentError: an asset's name leads out of the assets directory.
    """
    saver = model.meta_graph.saver_def
    restore = saver.restore_op_name if saver is not None else ""
    needed = _needed(model.meta_graph.graph, [name for name in (restore, model.init_op) if name])
    _check_assets(model, needed)
    if not restore:
        return False
    if not model.has_variables() and not any(map(_keeps_values, _needed(model.meta_graph.graph, [restore]))):
        return False
    check_checkpoint(model.variables_prefix)
    return True


def _needed(graph: Graph, operations: list[str]) -> list[Node]:
    """The nodes that these operations need, with themselves.  Raises NotFoundError if one does not exist."""
    return [graph.nodes[i] for i in reachable(graph, [graph.node(name).id for name in operations], ())]


def _keeps_values(node: Node) -> bool:
    """True if it makes a variable, a table, or another object whose value is restored."""
    return any(dtype.is_ref or dtype is dtypes.resource for dtype in node.output_types)


def _check_assets(model: RestoredModel, needed: list[Node]) -> None:
    names = {node.name for node in needed}
    for tensor, path in model.asset_feeds().items():
        if tensor.partition(":")[0] in names and not os.path.exists(path):
            raise errors.NotFoundError(f"{os.fsdecode(path)}; No such file or directory")
