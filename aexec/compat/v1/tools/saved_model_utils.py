"""Reads a SavedModel's message, the tags of its MetaGraphs, and the MetaGraph with given tags.

Next to read: `aexec/compat/v1/running/saved_model.py`.
"""

from __future__ import annotations

from pathlib import Path

from aexec import proto
from aexec.framework import errors
from aexec.saved_model import loader

__all__ = ["get_meta_graph_def", "get_saved_model_tag_sets", "read_saved_model"]


def read_saved_model(saved_model_dir: str) -> proto.SavedModel:
    """Read the message in a folder's `saved_model.pb` or `saved_model.pbtxt`.

    Raises:
        OSError: the folder has neither.
        InvalidArgumentError: the file cannot be read, or is damaged.
    """
    try:
        return loader.read_saved_model(Path(saved_model_dir))
    except errors.NotFoundError:
        raise OSError(
            f"SavedModel file does not exist at: {saved_model_dir}/{{saved_model.pbtxt|saved_model.pb}}"
        ) from None


def get_saved_model_tag_sets(saved_model_dir: str) -> list[list[str]]:
    """The sorted tags of each MetaGraph.  Raises as `read_saved_model`."""
    found = read_saved_model(saved_model_dir).meta_graphs
    return sorted(sorted(meta_graph.meta_info_def.tags) for meta_graph in found)


def get_meta_graph_def(saved_model_dir: str, tag_set: str) -> proto.MetaGraphDef:
    """Return the MetaGraph whose tags are exactly those in `tag_set`, separated by commas.

    Raises:
        RuntimeError: there is no such MetaGraph.  Also raises as `read_saved_model`.
    """
    wanted = set(tag_set.split(","))
    for meta_graph in read_saved_model(saved_model_dir).meta_graphs:
        if set(meta_graph.meta_info_def.tags) == wanted:
            return meta_graph
    raise RuntimeError(f"MetaGraphDef associated with tag-set {tag_set} could not be found in the SavedModel")
