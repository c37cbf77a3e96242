"""SavedModels: directories with graphs, their variables and files, ready to be used by signature.

`loader.py` reads them, `complete_model.py` checks that all files of one are there, `model_session.py` makes a session
that begins with their variables, `meta_graph_model.py` reads a MetaGraph with its checkpoint, `writer.py` writes
SavedModels, and `freeze.py` makes a graph whose variables are constants.  These two are imported when they are first
used, because they need the modules that build and train graphs, which a program that runs models does not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from aexec.saved_model.complete_model import has_values_to_restore
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

if TYPE_CHECKING:
    from aexec.saved_model.freeze import freeze
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

if not TYPE_CHECKING:
    _LATE = {"freeze": "aexec.saved_model.freeze", "save_saved_model": "aexec.saved_model.writer"}

    def __getattr__(name):
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        found = globals()[name] = getattr(import_module(_LATE[name]), name)
        return found
