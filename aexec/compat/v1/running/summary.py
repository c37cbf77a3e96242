"""`tf.summary`: aexec's summary ops, and a writer whose methods block.

Next to read: `aexec/summary/`.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, ClassVar

from aexec import proto, summary
from aexec.compat.v1.namespace import namespace, renamed
from aexec.compat.v1.values.tensors import get_default_graph
from aexec.framework import errors
from aexec.graph.graph import Graph
from aexec.runtime.threads.loop_thread import LoopThread

__all__ = ["FileWriter", "FileWriterCache", "merge"]

merge = renamed(summary.merge, "inputs collections name", "merge")


class FileWriter:
    """`tf.summary.FileWriter`: writes events to a file in a folder.  Its methods block.

    Args:
        logdir: the folder; it is created with the first event.
        graph: written as the first event.
        max_queue: number of events that may wait in memory.
        flush_secs: an event that comes this many seconds after the last write writes all of them.
        filename_suffix: end of the file's name.
        graph_def, session: ignored.

    Attributes:
        ours: the `aexec.summary.FileWriter`.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        graph: Graph | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        graph_def: Any = None,
        filename_suffix: str | None = None,
        session: Any = None,
    ) -> None:
        self._logdir = os.fspath(logdir)
        self._settings: dict[str, Any] = {
            "max_queue": max_queue,
            "flush_secs": flush_secs,
            "filename_suffix": filename_suffix or "",
        }
        self._open(graph)

    def _open(self, graph: Graph | None = None) -> None:
        self._thread = LoopThread("aexec.compat.writer")
        self._closed = False
        self.ours = summary.FileWriter(self._logdir, graph, **self._settings)

    def reopen(self) -> None:
        """Open a new file in the folder if the writer is closed."""
        if self._closed:
            self._open()

    def is_deleted(self) -> bool:
        """Whether the event file was written once and no longer exists."""
        return self.ours.path is not None and not os.path.exists(self.ours.path)

    def get_logdir(self) -> str:
        """The folder."""
        return self._logdir

    def add_summary(self, summary: bytes | proto.Summary, global_step: int | None = None) -> None:
        """Add the output of a summary op.  Raises FailedPreconditionError if the writer is closed."""
        self._thread.wait(self.ours.add_summary(summary, int(global_step or 0)))

    def add_event(self, event: proto.Event) -> None:
        """Add an event as it is."""
        self._thread.wait(self.ours.add_event(event))

    def add_graph(self, graph: Graph, global_step: int | None = None, graph_def: Any = None) -> None:
        """Add a graph."""
        self._thread.wait(self.ours.add_graph(graph, int(global_step or 0)))

    def add_meta_graph(self, meta_graph_def: proto.MetaGraphDef, global_step: int | None = None) -> None:
        """Add a MetaGraph.

        Raises:
            TypeError: the argument is not a MetaGraphDef.
        """
        if not isinstance(meta_graph_def, proto.MetaGraphDef):
            raise errors.InvalidTypeError(f"meta_graph_def must be type MetaGraphDef, saw type: {type(meta_graph_def)}")
        data = meta_graph_def.SerializeToString()
        self.add_event(proto.Event(wall_time=time.time(), step=int(global_step or 0), meta_graph_def=data))

    def add_run_metadata(self, run_metadata: Any, tag: str, global_step: int | None = None) -> None:
        """Add the RunMetadata of a run.  Raises ValueError if the tag was used before."""
        self._thread.wait(self.ours.add_run_metadata(run_metadata, tag, int(global_step or 0)))

    def add_session_log(self, session_log: proto.SessionLog, global_step: int | None = None) -> None:
        """Add a SessionLog: that a session started, stopped or wrote a checkpoint."""
        event = proto.Event(wall_time=time.time(), step=int(global_step or 0), session_log=session_log)
        self.add_event(event)

    def flush(self) -> None:
        """Write all events to the file, so that readers see them."""
        self._thread.wait(self.ours.flush())

    def close(self) -> None:
        """Write all events and close the file.  Idempotent."""
        if not self._closed:
            self._closed = True
            try:
                self._thread.wait(self.ours.close())
            finally:
                self._thread.stop()

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class FileWriterCache:
    """`tf.summary.FileWriterCache`: one open writer per folder and process.  Safe to use from any thread."""

    _writers: ClassVar[dict[str, FileWriter]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def get(cls, logdir: str) -> FileWriter:
        """Return the writer of a folder.

        The first call opens it and adds the default graph.  So does the first call after the event file was deleted.
        """
        with cls._lock:
            writer = cls._writers.get(logdir)
            if writer is not None and writer.is_deleted():
                writer.close()
                writer = None
            if writer is None:
                writer = cls._writers[logdir] = FileWriter(logdir, graph=get_default_graph())
            return writer

    @classmethod
    def clear(cls) -> None:
        """Close all writers, and forget them."""
        with cls._lock:
            while cls._writers:
                cls._writers.popitem()[1].close()


__getattr__, __dir__ = namespace(
    __name__,
    {
        **{
            name: f"aexec.summary:{name}"
            for name in "audio histogram image merge_all scalar tensor_summary text".split()
        },
        "Event": "aexec.proto:Event",
        "SessionLog": "aexec.proto:SessionLog",
        "Summary": "aexec.proto:Summary",
        "TaggedRunMetadata": "aexec.proto:TaggedRunMetadata",
        "tensor_summary": """aexec.summary:tensor_summary | name tensor summary_description! collections
        summary_metadata=metadata family display_name!""",
    },
)
