"""SavedModels: directories with graphs, their variables and files, ready to be used by signature.

`loader.py` reads them, `complete_model.py` checks that all files of one are there, `model_session.py` makes a session
that begins with their variables, `meta_graph_model.py` reads a MetaGraph with its checkpoint, `writer.py` writes
SavedModels, and `freeze.py` makes a graph whose variables are constants.
"""

from aexec.saved_model.complete_model import has_values_to_restore
from aexec.saved_model.freeze import freeze
from aexec.saved_model.loader import (
    FILE_NAMES,
    SavedModel,
    is_saved_model,
    load_saved_model,
    load_saved_model_async,
    saved_model_tags,
)
from aexec.saved_model.meta_graph_model import MetaGraphModel
from aexec.saved_model.model_session import ModelSession
from aexec.saved_model.writer import save_saved_model

__all__ = [
    "FILE_NAMES",
    "MetaGraphModel",
    "ModelSession",
    "SavedModel",
    "freeze",
    "has_values_to_restore",
    "is_saved_model",
    "load_saved_model",
    "load_saved_model_async",
    "save_saved_model",
    "saved_model_tags",
]
