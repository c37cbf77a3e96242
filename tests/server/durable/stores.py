"""Stores for tests: sessions with a variable each, and files whose disk is full."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from aexec_server.durable.state_errors import NotDurableError
from aexec_server.durable.state_files import StateFiles
from aexec_server.durable.state_store import Outcome, StateLimits, StateStore
from aexec_server.durable.stored_session import SessionFacts, SessionWrite

from aexec import proto
from aexec.framework import dtypes
from aexec.framework.state.resource_manager import ResourceManager
from aexec.framework.state.resource_variable import ResourceVariable
from aexec.framework.state.session_state import SessionState
from aexec.resources.records.session_recorder import SessionRecorder

__all__ = ["MANY", "FullDisk", "HeldDisk", "Kept", "opened"]

MANY = StateLimits(1 << 30, 1 << 30, 1 << 30)


class FullDisk(StateFiles):
    """Files on a disk that is full while `full` is True."""

    full = False

    def sync(self, descriptor: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().sync(descriptor)


class HeldDisk:
    """Makes the writes of a store wait until `open` is set, and fail while `full` is True.

    Attributes:
        writing: set once a write waits.
        writes: the number of writes so far.
    """

    def __init__(self, store: StateStore) -> None:
        self.open, self.writing = asyncio.Event(), asyncio.Event()
        self.full = False
        self.writes = 0
        self._write = store.write
        self._waiting: set[asyncio.Task[None]] = set()
        store.write = self._begin  # type: ignore[method-assign]

    def _begin(self, writes: Sequence[SessionWrite], done: Callable[[list[Outcome]], object]) -> None:
        self.writes += 1
        self.writing.set()
        task = asyncio.create_task(self._write_later(writes, done))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _write_later(self, writes: Sequence[SessionWrite], done: Callable[[list[Outcome]], object]) -> None:
        await self.open.wait()
        if self.full:
            done([NotDurableError("full")] * len(writes))
        else:
            self._write(writes, done)


def opened(
    folder: Path, limits: StateLimits = MANY, files: Callable[[Path], StateFiles] = StateFiles, *, is_owner: bool = True
) -> StateStore:
    """A store that this thread has opened."""
    store = StateStore(folder, limits, files=files, is_owner=is_owner)
    store.open_here()
    return store


class Kept:
    """The state of a session, and its writes.

    Attributes:
        resources, state: its state.
    """

    def __init__(self, store: StateStore, handle: str = "s", client: str = "c") -> None:
        self.resources, self.state = ResourceManager(), SessionState()
        self._recorder = SessionRecorder(self.resources, self.state, None)  # type: ignore[arg-type]
        self._store = store
        self._facts: SessionFacts | None = SessionFacts(handle, "", client, None, False, {}, 0.0)
        self.handle = handle

    def set(self, name: str, value: Any) -> None:
        """Make a value that of a variable."""
        array = np.asarray(value)
        found = self.resources.find("localhost", name, ResourceVariable)
        if found is None:
            self.resources.create("localhost", name, ResourceVariable(dtypes.from_numpy(array.dtype), array))
        else:
            found.value = array

    def write(self) -> Any:
        """Write what has changed; return what became of it."""
        (outcome,) = self._store.write_here([self.take()])
        if outcome is None:
            self.written()
        return outcome

    def take(self) -> SessionWrite:
        """What is to be written; `written` notes that it was."""
        self._changes = self._recorder.look_at_once()
        graphs = [(0, proto.GraphDef().SerializeToString())] if self._facts is not None else []
        return SessionWrite(self.handle, self._changes, self._facts, b"", graphs)

    def written(self) -> None:
        self._facts = None
        self._recorder.written(self._changes)
