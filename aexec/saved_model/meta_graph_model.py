"""`MetaGraphModel`: a MetaGraph with the checkpoint that was written beside it, ready to be used.

`saver.save(session, "model")` writes `model.meta`, and the variables as `model.index` with its data files.
Next to read: `model_session.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aexec.graph.graph import Graph
from aexec.graph.meta_graph import MetaGraph
from aexec.io.checkpoint_files import checkpoint_files_exist
from aexec.runtime.session.session import Session
from aexec.saved_model.model_session import ModelSession

__all__ = ["MetaGraphModel"]


@dataclass(frozen=True)
class MetaGraphModel:
    """A MetaGraph and its variables; `aexec.Session(model)` runs it.

    Attributes:
        meta_graph: the graph with all that belongs to it.
        variables_prefix: of the checkpoint with its variables.
    """

    meta_graph: MetaGraph
    variables_prefix: str

    @classmethod
    def load(cls, path: str | Path) -> MetaGraphModel:
        """Read a `.meta` file.  Raises as `MetaGraph.load`."""
        return cls(MetaGraph.load(path), str(Path(path).with_suffix("")))

    @property
    def graph(self) -> Graph:
        return self.meta_graph.graph

    @property
    def init_op(self) -> str | None:
        """None: a checkpoint has the values that initialisers would make."""
        return None

    def has_variables(self) -> bool:
        """True if the checkpoint is there.  Reads the disk."""
        return checkpoint_files_exist(self.variables_prefix)

    def asset_feeds(self) -> dict[str, bytes]:
        """No feeds: a MetaGraph outside a SavedModel has no folder of assets."""
        return {}

    @property
    def session_class(self) -> type[Session]:
        """The class of `aexec.Session(model)`."""
        return ModelSession
