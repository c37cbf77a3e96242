"""Reads a graph from a file, a folder, bytes or a message; recognises other formats, to refuse them with a reason.

`load` makes a graph or a model of it.  `OpeningSession` is the session that `aexec.Session` makes of a source that has
to be read first: a worker thread reads and imports it when the session is entered or awaited, so that the event loop
goes on.
Next to read: `saved_model/loader.py`, `graph/forms/graph_formats.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from aexec import proto
from aexec.framework import errors
from aexec.framework.html_repr import block
from aexec.framework.memory.garbage_collector import collector_paused
from aexec.framework.wire.messages import as_message, message_name
from aexec.graph.graph import Graph
from aexec.graph.meta_graph import MetaGraph
from aexec.runtime.session.session import Session
from aexec.runtime.session.session_classes import class_for_source
from aexec.runtime.session.session_life import SessionLife
from aexec.runtime.session.session_view import SessionView
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread

if TYPE_CHECKING:
    from aexec.saved_model import SavedModel

__all__ = ["OpeningSession", "load"]

_EXPECTED = "a graph, the path of a GraphDef file or of a SavedModel's folder, or a GraphDef as bytes or message"


def load(source: Any, tags: Iterable[str] | str = ("serve",)) -> Graph | MetaGraph | SavedModel:
    """The graph or model in a source.

    Args:
        source: the path of a GraphDef file, named `.pbtxt` for the text form, `.json` for JSON and otherwise for the
            binary one; of a SavedModel's folder, or of the `saved_model.pb` in it; the bytes of a GraphDef; a GraphDef
            or MetaGraphDef message, TensorFlow's own included; a `tf.Graph`.  A graph or a model is returned as it is.
        tags: of the graph in a SavedModel.

    Raises:
        NotFoundError: no such file, or no SavedModel in the folder.
        InvalidArgumentError: another kind of model (the message says how to convert it), or a graph that cannot be
            imported.
    """
    if isinstance(source, Graph | MetaGraph):
        return source
    if isinstance(source, str | os.PathLike):
        return _load_path(Path(source), tags)
    if isinstance(source, bytes | bytearray | memoryview):
        data = bytes(source)
        _check_content(data[:_MAGIC_BYTES], "these bytes")
        return Graph.from_bytes(data)
    name = message_name(source)
    if name == "GraphDef":
        return Graph.from_graph_def(source)
    if name == "MetaGraphDef":
        return MetaGraph.from_proto(as_message(source, proto.MetaGraphDef))
    if name == "SavedModel":
        raise errors.InvalidArgumentError(f"a SavedModel message is {_LONE_MODEL}")
    if callable(getattr(source, "as_graph_def", None)):
        return Graph.from_graph_def(source.as_graph_def())
    from aexec.saved_model import SavedModel

    if isinstance(source, SavedModel):
        return source
    raise errors.InvalidArgumentError(f"expected {_EXPECTED}, got {name or type(source).__name__}")


def _load_path(path: Path, tags: Iterable[str] | str) -> Graph | SavedModel:
    from aexec.saved_model import FILE_NAMES

    if path.is_dir() or path.name in FILE_NAMES:
        from aexec.saved_model import load_saved_model

        return load_saved_model(path if path.is_dir() else path.parent, tags)
    try:
        with path.open("rb") as file:
            head = file.read(_MAGIC_BYTES)
    except OSError:
        pass  # the reader reports what is wrong
    else:
        _check_name(path)
        if path.suffix not in _TEXT_SUFFIXES:
            _check_content(head, str(path), path)
    return Graph.load(path)


# Other formats

_TEXT_SUFFIXES = (".pbtxt", ".json")
_MAGIC_BYTES = 16

_KERAS = "a Keras model: in TensorFlow, model.export('folder') writes a SavedModel, then give that folder"
_TFLITE = "a TensorFlow Lite model: give the SavedModel or GraphDef that it was converted from"
_ONNX = "an ONNX model: onnxruntime runs it; here, give the SavedModel or GraphDef that it was converted from"
_TORCH = "a PyTorch model: torch runs it; here, give a SavedModel or GraphDef"
_META = (
    "a MetaGraph, whose variables are in the checkpoint beside it: MetaGraph.load of aexec.graph.meta_graph reads it, "
    "Saver.from_meta_graph of aexec.training restores it, and aexec.saved_model.freeze makes one graph of both"
)
_CHECKPOINT = "of a checkpoint, which has values and no graph: give the SavedModel or GraphDef that they belong to"
_LONE_MODEL = "without its variables: give the folder that it is in"
_ARCHIVE = "an archive: unpack it, and give what is in it"

_BY_SUFFIX = {
    ".keras": _KERAS,
    ".h5": _KERAS,
    ".hdf5": _KERAS,
    ".tflite": _TFLITE,
    ".onnx": _ONNX,
    ".pt": _TORCH,
    ".pth": _TORCH,
    ".meta": _META,
    ".index": _CHECKPOINT,
    ".ckpt": _CHECKPOINT,
    ".zip": _ARCHIVE,
    ".gz": _ARCHIVE,
    ".tar": _ARCHIVE,
    ".tgz": _ARCHIVE,
}


def _check_name(path: Path) -> None:
    what = _CHECKPOINT if ".data-" in path.name else _BY_SUFFIX.get(path.suffix.lower())
    if what is not None:
        raise errors.InvalidArgumentError(f"{path} is {what}")


def _check_content(head: bytes, name: str, path: Path | None = None) -> None:
    """Refuse content that begins as another format does; a GraphDef begins with a field of its own."""
    what = None
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        what = _KERAS
    elif head[4:8] == b"TFL3":
        what = _TFLITE
    elif head.startswith(b"PK\x03\x04"):
        what = _ARCHIVE if path is None else _kind_of_zip(path)
    elif head.startswith(b"\x1f\x8b"):
        what = _ARCHIVE
    elif head.startswith(b"\x08") and len(head) > 1:
        # The first field of both is a number: the version of the SavedModel's schema, of ONNX's format.
        what = f"a SavedModel {_LONE_MODEL}" if head[1] < 3 else _ONNX
    if what is not None:
        raise errors.InvalidArgumentError(f"{name} {'is' if path is not None else 'are'} {what}")


def _kind_of_zip(path: Path) -> str:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return _ARCHIVE
    if "config.json" in names and any(name.endswith(".h5") for name in names):
        return _KERAS
    return _TORCH if any(name.endswith("/data.pkl") for name in names) else _ARCHIVE


# Attributes that only open sessions have.
_FIELDS = {*SessionView.__annotations__, *Session.__annotations__}


class OpeningSession(Session):
    """A session whose source has to be read first; `aexec.Session` makes it of a path, bytes or a message.

    Entering or awaiting it reads the source in a thread.  From then on the same object is a session of the class for
    what was read. Before, it can be entered, awaited, printed and closed; everything else is refused.

    Args:
        source: as `load` takes it.
        target: "" for a session in this process.
        config: settings of the session.
    """

    def __init__(self, source: Any, target: str = "", config: Any = None) -> None:
        self._source = source
        self._settings = config
        self._life = SessionLife(0)
        # Held while the source is read.
        self._reading = asyncio.Lock()

    async def __aenter__(self) -> Session:
        async with self._reading:
            if isinstance(self, OpeningSession):  # else another task has opened it
                self._check_open()
                await self._open()
        return await self.__aenter__()  # of its new class

    async def _open(self) -> None:
        """Read the source, and become the session of it."""
        source = await run_in_thread(self._load, on_cancel=OnCancel.WAIT)
        self._check_open()
        self._become(class_for_source(source) or Session, source, "", self._settings)
        self.own_graph()

    def _load(self) -> Any:
        with collector_paused():
            return load(self._source)

    def _become(self, kind: type[Any], *arguments: Any) -> None:
        """Become a session of another class, made with these arguments.  If that raises, this object is unchanged."""
        opening, fields = type(self), dict(self.__dict__)
        self.__dict__.clear()
        self.__class__ = kind
        try:
            kind.__init__(self, *arguments)
        except BaseException:
            self.__class__ = opening
            self.__dict__.clear()
            self.__dict__.update(fields)
            raise

    async def close(self, containers: Iterable[str] = ()) -> None:
        """Refuse to be entered from now on, and wait for the end of reading.  Idempotent."""
        self._life.closed = True
        async with self._reading:
            pass

    def _check_open(self) -> None:
        # A forked process may open it, too: it has no threads yet.
        if self.closed:
            raise errors.CancelledError("Session has been closed.")

    def _check_usable(self) -> NoReturn:
        self._refuse()

    def __getattr__(self, name: str) -> NoReturn:
        if name in _FIELDS or (name.startswith("_") and not name.endswith("_")):
            self._refuse()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def _refuse(self) -> NoReturn:
        self._check_open()
        raise errors.FailedPreconditionError(
            f"The session of {self._described()} is not open yet: "
            "use `async with aexec.Session(...) as session`, or `session = await aexec.Session(...)`"
        )

    def _described(self) -> str:
        return repr(str(self._source)) if isinstance(self._source, str | os.PathLike) else type(self._source).__name__

    def _repr_html_(self) -> str:
        return block("OpeningSession", f"of {self._described()}{', closed' if self.closed else ': await it'}")

    def __repr__(self) -> str:
        return f"<OpeningSession of {self._described()}{', closed' if self.closed else ''}>"
