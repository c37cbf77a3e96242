"""Writes event files: records of Event messages, the first of which gives the format's version.

    with EventFileWriter("logs") as writer:
        writer.add_summary(summary, step=7)

A file is named `events.out.tfevents.<seconds>.<host><suffix>`, so that the files of a folder sort by age and writers on
several machines do not collide.  If the name exists, a number is added before the suffix.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType

from aexec import proto
from aexec.framework import errors
from aexec.io.files import make_directories, text_path
from aexec.io.record import RecordWriter

__all__ = ["EventFileWriter"]

_VERSION = "brain.Event:2"


def _unused(start: str, suffix: str) -> str:
    """The path `start` + `suffix`; with the first unused number between them if that file exists."""
    path, number = start + suffix, 0
    while os.path.exists(path):
        number += 1
        path = f"{start}.{number}{suffix}"
    return path


class EventFileWriter:
    """Appends events to a new file in a folder.  Safe to use from any thread.

    Args:
        logdir: the folder; it is created if missing.
        max_queue: number of events that may wait in memory; one more event writes them all.
        flush_seconds: an event that comes this many seconds after the last write also writes them all.
        filename_suffix: end of the file's name.
        clock: returns seconds since 1970.

    Raises:
        OpError: a file operation failed, here or when events are written; the class follows from the system's error.
    """

    def __init__(
        self,
        logdir: str | bytes | os.PathLike[str],
        *,
        max_queue: int = 10,
        flush_seconds: float = 120.0,
        filename_suffix: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        folder = text_path(logdir)
        make_directories(folder)
        started = clock()
        name = f"events.out.tfevents.{int(started):010d}.{socket.gethostname()}"
        self.path = _unused(os.path.join(folder, name), filename_suffix)
        self._clock = clock
        self._max_queue = max_queue
        self._flush_seconds = flush_seconds
        self._lock = threading.Lock()
        self._queue: list[bytes] = []
        self._flushed = started
        self._closed = False
        self._file = RecordWriter(self.path)
        self.add_event(proto.Event(wall_time=started, file_version=_VERSION))
        self.flush()

    def add_event(self, event: proto.Event) -> None:
        """Add an event as it is.  Raises FailedPreconditionError if the writer is closed."""
        data = event.SerializeToString()
        with self._lock:
            if self._closed:
                raise errors.FailedPreconditionError(f"The writer of {self.path} is closed")
            self._queue.append(data)
            if len(self._queue) > self._max_queue or self._clock() - self._flushed > self._flush_seconds:
                self._write()

    def add_summary(self, summary: proto.Summary, step: int) -> None:
        """Add a summary with the present time.  Raises as `add_event`."""
        self.add_event(proto.Event(wall_time=self._clock(), step=step, summary=summary))

    def add_graph(self, graph_def: bytes, step: int = 0) -> None:
        """Add a serialised GraphDef.  Raises as `add_event`."""
        self.add_event(proto.Event(wall_time=self._clock(), step=step, graph_def=graph_def))

    def flush(self) -> None:
        """Write all events to the file, so that readers see them.  Does nothing once the writer is closed."""
        with self._lock:
            if not self._closed:
                self._write()

    def close(self) -> None:
        """Write all events and close the file.  Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._write()
            finally:
                self._file.close()

    def _write(self) -> None:
        queue, self._queue = self._queue, []
        for data in queue:
            self._file.write(data)
        self._file.flush()
        self._flushed = self._clock()

    def __enter__(self) -> EventFileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<EventFileWriter of {self.path}>"
