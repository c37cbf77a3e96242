"""Where a served model comes from: a graph, a file, a SavedModel's folder, or a folder with numbered versions of one.

`ModelSource` says what to serve and how; `find_versions` looks what there is, and `load_version` reads one.
Next to read: `models/models.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aexec
from aexec import errors
from aexec.hosting import MetaGraph, Signature
from aexec.saved_model import MetaGraphModel, SavedModel, is_saved_model

__all__ = [
    "Batching",
    "GraphSource",
    "LoadedModel",
    "ModelSource",
    "check_file",
    "find_versions",
    "fingerprint",
    "load_version",
    "warm_up_file",
]

# A graph to serve from the start: itself, a file, or something that makes it.
GraphSource = aexec.Graph | str | Path | Callable[[], aexec.Graph | MetaGraph]
# What a session can be made of.
LoadedModel = aexec.Graph | MetaGraph | SavedModel | MetaGraphModel

_FIRST_VERSION = 1
# What a version's folder may hold if it is no SavedModel itself, in the order in which it is looked for.
_MODEL_FOLDERS = ("model.savedmodel", "saved_model")
_MODEL_FILES = ("model.graphdef", "*.pb", "*.pbtxt", "*.meta")
_WARM_UP = Path("assets.extra", "warm_up.json")
_MAX_DELAY = 60.0
_DEFAULT = "serving_default"


@dataclass(frozen=True, slots=True)
class Batching:
    """How requests by one signature are joined.

    Attributes:
        max_rows: of a batch; a request with more is run alone.
        max_delay: seconds that a batch waits to be filled.
        sizes: increasing sizes, to the next of which batches are padded with copies of a row; empty for none.
        max_running: batches that may run at once.
    """

    max_rows: int = 32
    max_delay: float = 0.002
    sizes: tuple[int, ...] = ()
    max_running: int = 1

    def __post_init__(self) -> None:
        if min(self.max_rows, self.max_running) < 1 or not 0 <= self.max_delay <= _MAX_DELAY:
            raise errors.InvalidArgumentError(
                f"A batch has at least one row, and waits for at most {_MAX_DELAY:g} s, got {self}"
            )
        if self.sizes and (list(self.sizes) != sorted(set(self.sizes)) or self.sizes[-1] != self.max_rows):
            raise errors.InvalidArgumentError(f"sizes must increase and end with {self.max_rows}, got {self.sizes}")


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model to serve.

    Attributes:
        source: a graph, or what makes one; or the path of a graph file, of a `.meta` file with its checkpoint beside
            it, of a SavedModel's folder, or of a folder whose numbered subfolders have versions of these.
        inputs, outputs: name → tensor (`x:0`): the signature of a graph that has none; by default all placeholders,
            and what nothing else takes.
        tags: of the graph in a SavedModel.
        versions: so many of the newest are served, or those that are listed; None for all.
        batching: how requests are joined; None for not at all.
        labels: other names for versions.
        trusted: it is the server's own; of what a client sent, nothing may reach for files.
        temporary: the files are deleted when no version needs them any more.
    """

    source: GraphSource
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ("serve",)
    versions: int | Collection[int] | None = 1
    batching: Batching | None = None
    labels: Mapping[str, int] = field(default_factory=dict)
    trusted: bool = True
    temporary: bool = False

    def __post_init__(self) -> None:
        if bool(self.inputs) != bool(self.outputs):
            raise errors.InvalidArgumentError("A signature needs both inputs and outputs")
        if isinstance(self.versions, int) and self.versions < 1:
            raise errors.InvalidArgumentError(f"versions must be 1 at least, got {self.versions}")

    def wanted(self, found: Collection[int]) -> list[int]:
        """Of the versions that there are, those that are served; the newest is the last."""
        if self.versions is None:
            return sorted(found)
        if isinstance(self.versions, int):
            return sorted(found)[-self.versions :]
        return sorted(set(found) & set(self.versions))


def find_versions(source: ModelSource) -> dict[int, GraphSource]:
    """What there is of a model: version → its source.  Looks at the disk.

    Raises:
        NotFoundError: nothing at that path, or a folder without a model and without versions.
    """
    given = source.source
    if not isinstance(given, str | Path):
        return {_FIRST_VERSION: given}
    path = Path(given)
    if not path.exists():
        raise errors.NotFoundError(f"{path}; No such file or directory")
    if not path.is_dir() or is_saved_model(path):
        return {_FIRST_VERSION: path}
    numbered = {int(p.name): p for p in path.iterdir() if p.name.isascii() and p.name.isdecimal() and p.is_dir()}
    if not numbered:
        raise errors.NotFoundError(f"{path} has neither a saved_model.pb nor a folder whose name is a version's number")
    return dict(numbered)


def check_file(source: ModelSource) -> None:
    """Raise an OpError that says why a file cannot be served.  What is missing of a folder may still come."""
    for version in find_versions(source).values():
        if isinstance(version, str | Path) and Path(version).is_file():
            loaded = load_version(source, version)
            graph = loaded if isinstance(loaded, aexec.Graph) else loaded.graph
            graph.take_apart()


def fingerprint(version: GraphSource) -> tuple[int, int] | None:
    """When the newest file of a version was changed, in nanoseconds, and how many bytes they have together.

    None if one of them has gone meanwhile.
    """
    if not isinstance(version, str | Path):
        return 0, 0
    try:
        facts = [file.stat() for file in _files(Path(version))]
    except OSError:
        return None
    return max(fact.st_mtime_ns for fact in facts), sum(fact.st_size for fact in facts)


def _files(path: Path) -> list[Path]:
    """All files of a version, and its folders."""
    if path.is_dir():
        return [path, *path.rglob("*")]
    if path.suffix == ".meta":  # with its checkpoint
        return [path, *(file for file in path.parent.iterdir() if file.name.startswith(path.stem))]
    return [path]


def _content(folder: Path) -> Path:
    """The model in a version's folder.  Raises NotFoundError."""
    if is_saved_model(folder):
        return folder
    for name in _MODEL_FOLDERS:
        if is_saved_model(folder / name):
            return folder / name
    for pattern in _MODEL_FILES:
        found = sorted(folder.glob(pattern))
        if len(found) > 1:
            raise errors.InvalidArgumentError(f"{folder} has several graphs: {', '.join(p.name for p in found)}")
        if found:
            return found[0]
    raise errors.NotFoundError(f"{folder} has no model: expected saved_model.pb, or one of {', '.join(_MODEL_FILES)}")


def load_version(source: ModelSource, version: GraphSource) -> LoadedModel:
    """Read one version, of those that `find_versions` found.  It takes as long as the graph is large.

    Raises:
        OpError: it cannot be read or imported, or has no such tensors as its signature names.
    """
    path = Path(version) if isinstance(version, str | Path) else None
    if path is not None and path.is_dir():
        path = _content(path)
    loaded: object
    if path is not None and path.suffix == ".meta":
        loaded = MetaGraphModel.load(path)
    else:
        loaded = aexec.load(path or (version() if callable(version) else version), source.tags)
    return _with_signature(loaded, source)


def _with_signature(loaded: object, source: ModelSource) -> LoadedModel:
    assert isinstance(loaded, LoadedModel)
    if not source.inputs:
        return loaded
    graph = loaded if isinstance(loaded, aexec.Graph) else loaded.graph
    inputs = {name: graph.tensor(tensor) for name, tensor in source.inputs.items()}
    outputs = {name: graph.tensor(tensor) for name, tensor in source.outputs.items()}
    signatures = {_DEFAULT: Signature.of(inputs, outputs)}
    if isinstance(loaded, aexec.Graph):
        return MetaGraph(graph, signatures=signatures)
    meta_graph = loaded if isinstance(loaded, MetaGraph) else loaded.meta_graph
    meta_graph.signatures.update(signatures)
    return loaded


def warm_up_file(version: GraphSource) -> Path | None:
    """The file with requests that a version is to answer before clients may ask it; None if it has none."""
    if not isinstance(version, str | Path):
        return None
    file = Path(version) / _WARM_UP
    return file if file.is_file() else None
