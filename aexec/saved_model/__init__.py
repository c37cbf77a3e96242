"""SavedModels: directories with graphs, their variables and files, ready to be used by signature.

`loader.py` reads them, `complete_model.py` checks that all files of one are there, `model_session.py` makes a session
that begins with their variables, `meta_graph_model.py` reads a MetaGraph with its checkpoint, `writer.py` writes
SavedModels, and `freezing.py` makes a graph whose variables are constants.  All are imported when they are first used:
a program that runs plain graphs needs none, and one that runs models needs no modules that build and train graphs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from aexec.saved_model.model_files import FILE_NAMES, is_saved_model

if TYPE_CHECKING:
    from aexec.saved_model.complete_model import has_values_to_restore
    from aexec.saved_model.freezing import freeze
    from aexec.saved_model.loader import SavedModel, load_saved_model, load_saved_model_async, saved_model_tags
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

if not TYPE_CHECKING:
    _MODULES = {
        "complete_model": ("has_values_to_restore",),
        "freezing": ("freeze",),
        "loader": ("SavedModel", "load_saved_model", "load_saved_model_async", "saved_model_tags"),
        "meta_graph_model": ("MetaGraphModel",),
        "model_session": ("ModelSession",),
        "writer": ("save_saved_model",),
    }
    _LATE = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}

    def __getattr__(name):
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        found = globals()[name] = getattr(import_module(_LATE[name]), name)
        return found
