"""Sources of served models: a graph, a file, a SavedModel's folder, or a folder with numbered versions of one.

`ModelSource` says what to serve and how; `find_versions` lists the versions that exist, and `load_version` reads one.
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

# A graph to serve from the start: the graph itself, a file, or a function that returns it.
GraphSource = aexec.Graph | str | Path | Callable[[], aexec.Graph | MetaGraph]
# A session can be made from any of these.
LoadedModel = aexec.Graph | MetaGraph | SavedModel | MetaGraphModel

_FIRST_VERSION = 1
# Names in a version's folder that is not itself a SavedModel, in the order in which they are looked for.
_MODEL_FOLDERS = ("model.savedmodel", "saved_model")
_MODEL_FILES = ("model.graphdef", "*.pb", "*.pbtxt", "*.meta")
_WARM_UP = Path("assets.extra", "warm_up.json")
_MAX_DELAY = 60.0
_DEFAULT = "serving_default"


@dataclass(frozen=True, slots=True)
class Batching:
    """Settings for joining requests with the same signature to batches.

    Attributes:
        max_rows: rows of a batch; a request with more rows runs alone.
        max_delay: seconds that a batch waits to be filled.
        sizes: increasing batch sizes; a batch is padded with copies of a row to the next one. Empty: no padding.
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
        source: a graph, a function that returns one, or the path of a graph file, of a `.meta` file with its checkpoint
            beside it, of a SavedModel's folder, or of a folder whose numbered subfolders have versions of these.
        inputs, outputs: name → tensor (`x:0`): the signature of a graph that has none; by default its placeholders, and
            the outputs that no other node takes.
        tags: tags of the meta graph in a SavedModel.
        versions: how many of the newest versions are served, or which; None for all.
        batching: how requests are joined; None: they are not.
        labels: label → version.
        trusted: True for the operator's own model; the graph of an untrusted one, which a client sent, may not use
            files.
        temporary: delete the files once no version needs them any more.
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
            raise errors.InvalidArgumentError(f"versions must be at least 1, got {self.versions}")

    def wanted(self, found: Collection[int]) -> list[int]:
        """Return the versions to serve of those that exist, in increasing order."""
        if self.versions is None:
            return sorted(found)
        if isinstance(self.versions, int):
            return sorted(found)[-self.versions :]
        return sorted(set(found) & set(self.versions))


def find_versions(source: ModelSource) -> dict[int, GraphSource]:
    """Return version → its source for the versions that exist on disk.

    Raises:
        NotFoundError: nothing is at the path, or it is a folder with neither a model nor versions.
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
    """Raise an OpError if a file cannot be served.  Folders are not checked: their content may still come."""
    for version in find_versions(source).values():
        if isinstance(version, str | Path) and Path(version).is_file():
            loaded = load_version(source, version)
            graph = loaded if isinstance(loaded, aexec.Graph) else loaded.graph
            graph.take_apart()


def fingerprint(version: GraphSource) -> tuple[int, int] | None:
    """Return the modification time (ns) of a version's newest file and the sum of the files' sizes.

    Returns None if a file has gone meanwhile, and zeros for what is not a path.
    """
    if not isinstance(version, str | Path):
        return 0, 0
    try:
        facts = [file.stat() for file in _files(Path(version))]
    except OSError:
        return None
    return max(fact.st_mtime_ns for fact in facts), sum(fact.st_size for fact in facts)


def _files(path: Path) -> list[Path]:
    """Return all files and folders of a version."""
    if path.is_dir():
        return [path, *path.rglob("*")]
    if path.suffix == ".meta":  # a meta graph and the files of its checkpoint
        return [path, *(file for file in path.parent.iterdir() if file.name.startswith(path.stem))]
    return [path]


def _content(folder: Path) -> Path:
    """Return the model in a version's folder.  Raises NotFoundError if there is none, InvalidArgumentError if there are
    several.
    """
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
    """Read one of the versions that `find_versions` has found.  The time it takes grows with the graph.

    Raises:
        OpError: it cannot be read or imported, or lacks a tensor that its signature names.
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
    """Return the file with the version's warm-up requests, which run before clients may use it; None if it has none."""
    if not isinstance(version, str | Path):
        return None
    file = Path(version) / _WARM_UP
    return file if file.is_file() else None
