"""What a SavedModel's folder holds: its message, the tags of its MetaGraphs, and the one of some tags.

Next to read: `aexec/compat/v1/running/saved_model.py`.
"""

from __future__ import annotations

import os

from google.protobuf import text_format

from aexec import proto

__all__ = ["get_meta_graph_def", "get_saved_model_tag_sets", "read_saved_model"]


def read_saved_model(saved_model_dir: str) -> proto.SavedModel:
    """The message of a folder's `saved_model.pb` or `saved_model.pbtxt`.

    Raises:
        OSError: there is neither.
    """
    message = proto.SavedModel()
    for name in ("saved_model.pb", "saved_model.pbtxt"):
        path = os.path.join(saved_model_dir, name)
        if os.path.exists(path):
            with open(path, "rb") as file:
                data = file.read()
            if name.endswith(".pb"):
                message.ParseFromString(data)
            else:
                text_format.Parse(data, message)
            return message
    raise OSError(f"SavedModel file does not exist at: {saved_model_dir}/{{saved_model.pbtxt|saved_model.pb}}")


def get_saved_model_tag_sets(saved_model_dir: str) -> list[list[str]]:
    """The tags of each of its MetaGraphs, sorted.  Raises OSError if there is no SavedModel."""
    found = read_saved_model(saved_model_dir).meta_graphs
    return sorted(sorted(meta_graph.meta_info_def.tags) for meta_graph in found)


def get_meta_graph_def(saved_model_dir: str, tag_set: str) -> proto.MetaGraphDef:
    """The MetaGraph of these tags, which are between commas.

    Raises:
        OSError: there is no SavedModel.
        RuntimeError: it has no MetaGraph of just these tags.
    """
    wanted = set(tag_set.split(","))
    for meta_graph in read_saved_model(saved_model_dir).meta_graphs:
        if set(meta_graph.meta_info_def.tags) == wanted:
            return meta_graph
    raise RuntimeError(f"MetaGraphDef associated with tag-set {tag_set} could not be found in the SavedModel")
