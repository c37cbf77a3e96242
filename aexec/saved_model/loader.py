"""Reads a SavedModel: the directory layout, and the choice of a meta graph by its tags.

::

    model = aexec.load_saved_model("model", tags=("serve",))
    async with aexec.Session(model) as session:
        outputs = await session.call("serving_default", x=x)

A directory holds `saved_model.pb` (or `.pbtxt`), `variables/variables.index` with its data
files, and `assets/`.  Next to read: `model_session.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aexec import proto
from aexec.framework import errors
from aexec.framework.html_repr import block
from aexec.framework.memory.garbage_collector import collector_paused
from aexec.framework.wire.message_files import read_message_file
from aexec.graph.graph import Graph
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import Signature, signature_tables
from aexec.io.checkpoint_files import checkpoint_files_exist
from aexec.runtime.session.session import Session
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread
from aexec.saved_model.model_files import FILE_NAMES
from aexec.saved_model.model_session import ModelSession

__all__ = [
    "ASSETS",
    "VARIABLES",
    "SavedModel",
    "load_saved_model",
    "load_saved_model_async",
    "read_saved_model",
    "saved_model_tags",
]

VARIABLES = Path("variables", "variables")
ASSETS = "assets"
INIT_SIGNATURE = "__saved_model_init_op"
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")


@dataclass(frozen=True)
class SavedModel:
    """A meta graph of a SavedModel; `aexec.Session(model)` runs it.

    Attributes:
        directory: its directory.
        meta_graph: its graph with all that belongs to it.
    """

    directory: Path
    meta_graph: MetaGraph

    @property
    def graph(self) -> Graph:
        return self.meta_graph.graph

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The signatures: name → `Signature`.  Internal ones, such as that of initialisation, are left out."""
        return self.meta_graph.public_signatures

    @property
    def tags(self) -> frozenset[str]:
        return self.meta_graph.tags

    @property
    def variables_prefix(self) -> str:
        """Prefix of the checkpoint with the variables."""
        return str(self.directory / VARIABLES)

    @property
    def init_op(self) -> str | None:
        """Name of the operation that fills tables, for example, when the variables are restored, or None.

        Raises:
            FailedPreconditionError: the model names several.
        """
        signature = self.meta_graph.signatures.get(INIT_SIGNATURE)
        if signature is not None and INIT_SIGNATURE in signature.outputs:
            return _operation(signature.outputs[INIT_SIGNATURE].name)
        for name in _INIT_COLLECTIONS:
            items = self.meta_graph.collections.get(name)
            if items is None:
                continue
            if len(items) != 1:
                raise errors.FailedPreconditionError(
                    f"Expected exactly one main op in : {self.directory}, collection {name} has {len(items)}"
                )
            return _operation(str(items[0]))
        return None

    def asset_feeds(self) -> dict[str, bytes]:
        """The path of every asset, for the tensor that takes it.

        Raises:
            InvalidArgumentError: an asset's name leads out of the assets directory.
        """
        feeds = {}
        for tensor, filename in self.meta_graph.assets.items():
            parts = Path(filename).parts
            if not parts or Path(filename).is_absolute() or ".." in parts:
                raise errors.InvalidArgumentError(f"asset {filename!r} is no file of the model's assets directory")
            feeds[tensor] = os.fsencode(self.directory / ASSETS / filename)
        return feeds

    def has_variables(self) -> bool:
        """True if there is a checkpoint, or a part of one.  Reads the disk."""
        return checkpoint_files_exist(self.variables_prefix)

    @property
    def session_class(self) -> type[Session]:
        """The class of `aexec.Session(model)`."""
        return ModelSession

    def _repr_html_(self) -> str:
        return block("SavedModel", str(self.directory), *signature_tables(self.signatures))

    def __repr__(self) -> str:
        return f"<SavedModel {str(self.directory)!r} {sorted(self.tags)}, signatures {sorted(self.signatures)}>"


def _operation(name: str) -> str:
    return name.partition(":")[0].removeprefix("^")


def load_saved_model(directory: str | Path, tags: Iterable[str] | str = ("serve",)) -> SavedModel:
    """Read the meta graph of a SavedModel that has exactly these tags.

    Args:
        directory: its directory.
        tags: the tags, all of them.

    Raises:
        NotFoundError: there is no SavedModel, or it has no such meta graph; the message lists those it has.
        InvalidArgumentError: it cannot be parsed, or its graph is invalid.
    """
    message = read_saved_model(Path(directory))
    wanted = {tags} if isinstance(tags, str) else set(tags)
    for meta_graph in message.meta_graphs:
        if set(meta_graph.meta_info_def.tags) == wanted:
            return SavedModel(Path(directory), MetaGraph.from_proto(meta_graph))
    available = ", ".join(_braces(m.meta_info_def.tags) for m in message.meta_graphs) or "none"
    raise errors.NotFoundError(
        f"Could not find meta graph def matching supplied tags: {_braces(wanted)} in {directory}; there are {available}"
    )


async def load_saved_model_async(directory: str | Path, tags: Iterable[str] | str = ("serve",)) -> SavedModel:
    """`load_saved_model` in a worker thread, so that the event loop goes on.  Arguments and errors as there."""

    def load() -> SavedModel:
        with collector_paused():
            return load_saved_model(directory, tags)

    return await run_in_thread(load, on_cancel=OnCancel.ABANDON)


def saved_model_tags(directory: str | Path) -> list[tuple[str, ...]]:
    """The tags of each meta graph of a SavedModel.  Raises as `load_saved_model` does."""
    return [tuple(sorted(m.meta_info_def.tags)) for m in read_saved_model(Path(directory)).meta_graphs]


def _braces(tags: Iterable[str]) -> str:
    return "{ " + " ".join(sorted(tags)) + " }"


def read_saved_model(directory: Path) -> proto.SavedModel:
    """Read the message in a SavedModel's directory.

    Raises:
        NotFoundError: the directory holds no SavedModel.
        InvalidArgumentError: the file cannot be read, or is damaged.
    """
    for name in FILE_NAMES:
        with suppress(errors.NotFoundError):
            return read_message_file(directory / name, proto.SavedModel, is_text=name.endswith(".pbtxt"))
    raise errors.NotFoundError(
        f"Could not find SavedModel .pb or .pbtxt at supplied export directory path: {directory}"
    )
