"""`FileWriter`: writes an event file from an event loop.

Events wait in a bounded queue; if it is full, the caller waits until a thread has written them.  The event loop never
blocks.
Next to read: `aexec/io/event_file_writer.py`, which writes the file.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from types import TracebackType

from aexec import proto
from aexec.framework import errors
from aexec.graph.graph import Graph
from aexec.graph.meta_graph import MetaGraph
from aexec.io.event_file_writer import EventFileWriter
from aexec.runtime.config import RunMetadata
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread

__all__ = ["FileWriter"]


class FileWriter:
    """An asynchronous context manager; it can be used without the block, and must be closed then.

    Args:
        logdir: the folder; it is created with the first event.
        graph: added at once.
        max_queue: the number of events that may wait in memory.
        flush_secs: an event that comes this many seconds after the last write writes all of them.
        filename_suffix: end of the file's name.
        clock: returns seconds since 1970.

    All `add_` methods raise FailedPreconditionError if it is closed, and an OpError for the system's errors.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        graph: Graph | None = None,
        *,
        max_queue: int = 10,
        flush_secs: float = 120.0,
        filename_suffix: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._logdir = logdir
        self._open = partial(EventFileWriter, logdir, max_queue=max_queue, filename_suffix=filename_suffix, clock=clock)
        self._file: EventFileWriter | None = None
        self._max_queue = max_queue
        self._flush_secs = flush_secs
        self._clock = clock
        self._flushed = clock()
        self._waiting: deque[proto.Event] = deque()
        self._lock = asyncio.Lock()
        self._closed = False
        self._described: set[str] = set()
        self._run_tags: set[str] = set()
        if graph is not None:
            self._waiting.append(self._graph_event(graph, 0))

    @property
    def path(self) -> str | None:
        """The event file; None before the first write."""
        return None if self._file is None else self._file.path

    async def add_event(self, event: proto.Event) -> None:
        """Add an event as it is."""
        if self._closed:
            raise errors.InvalidStateError(f"The writer of {os.fspath(self._logdir)} is closed")
        self._waiting.append(event)
        if len(self._waiting) > self._max_queue or self._clock() - self._flushed > self._flush_secs:
            await self.flush()

    async def add_summary(self, summary: bytes | proto.Summary, global_step: int = 0) -> None:
        """Add the output of a summary op.

        A tag is described with its first value only, as TensorBoard expects it.
        """
        message = proto.Summary()
        message.MergeFromString(summary if isinstance(summary, bytes) else summary.SerializeToString())
        for value in message.value:
            if value.tag in self._described:
                value.ClearField("metadata")
            elif value.HasField("metadata"):
                self._described.add(value.tag)
        await self.add_event(proto.Event(wall_time=self._clock(), step=global_step, summary=message))

    async def add_graph(self, graph: Graph, global_step: int = 0) -> None:
        """Add a graph, for TensorBoard's graph dashboard."""
        await self.add_event(self._graph_event(graph, global_step))

    def _graph_event(self, graph: Graph, global_step: int) -> proto.Event:
        return proto.Event(wall_time=self._clock(), step=global_step, graph_def=graph.to_bytes())

    async def add_meta_graph(self, meta_graph: MetaGraph, global_step: int = 0) -> None:
        """Add a graph with its metadata."""
        data = meta_graph.to_bytes()
        await self.add_event(proto.Event(wall_time=self._clock(), step=global_step, meta_graph_def=data))

    async def add_run_metadata(
        self, run_metadata: RunMetadata | proto.RunMetadata, tag: str, global_step: int = 0
    ) -> None:
        """Add the measurements of a run, which TensorBoard shows beside the graph.

        Raises:
            InvalidArgumentError: the tag was used before.
        """
        if tag in self._run_tags:
            raise errors.InvalidValueError("The provided tag was already used for this event type")
        self._run_tags.add(tag)
        message = run_metadata.to_proto() if isinstance(run_metadata, RunMetadata) else run_metadata
        tagged = proto.TaggedRunMetadata(tag=tag, run_metadata=message.SerializeToString())
        event = proto.Event(wall_time=self._clock(), step=global_step, tagged_run_metadata=tagged)
        await self.add_event(event)

    async def add_session_log(self, session_log: proto.SessionLog, global_step: int = 0) -> None:
        """Record that a session started, stopped or saved a checkpoint."""
        await self.add_event(proto.Event(wall_time=self._clock(), step=global_step, session_log=session_log))

    async def flush(self) -> None:
        """Write all events to the file, so that readers see them."""
        async with self._lock:
            await run_in_thread(self._write, on_cancel=OnCancel.WAIT)

    async def close(self) -> None:
        """Write all events and close the file.  Idempotent."""
        if self._closed:
            return
        self._closed = True
        await self.flush()
        if self._file is not None:
            await run_in_thread(self._file.close, on_cancel=OnCancel.WAIT)

    def _write(self) -> None:
        """Runs in a thread.  The event loop may append meanwhile."""
        self._file = self._file or self._open()
        while self._waiting:
            self._file.add_event(self._waiting.popleft())
        self._file.flush()
        self._flushed = self._clock()

    async def __aenter__(self) -> FileWriter:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<FileWriter to {os.fspath(self._logdir)!r}, {len(self._waiting)} events wait>"
