"""`DurableSession`: the part of a session that makes what is acknowledged durable.

A run that may change the session's state is counted from `begin_change` to `end_change`; its answer then waits in
`settle` until a commit has written what changed.  A run that only reads waits, too, if changes that it may have seen
are not on the disk: what a client has seen survives.  Otherwise `settle` does nothing.

A request with a key that is in flight when the state is written may be a part of what was written.  It is therefore
written with the state that it is in flight, and its answer with the next state.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from aexec.hosting import SessionChanges, SessionRecorder
from aexec_server.durable.stored_session import SessionFacts, SessionWrite
from aexec_server.http.keyed_answer import KeyedAnswer

__all__ = ["Committer", "DurableSession"]


class Committer(Protocol):
    """Writes changes of sessions (`group_commit.py`)."""

    def begin_commit(self, session: DurableSession) -> asyncio.Future[None]:
        """Have the present state of the session written; the future is done once it is on the disk.

        Its error is an OpError if the state could not be written.
        """

    def commit_later(self, session: DurableSession) -> None:
        """Write the state of the session soon, though nobody waits for it."""


class DurableSession:
    """One durable session, as long as this process has it open.

    Args:
        facts: what never changes of it.
        recorder: tells what has changed in its state.
        committer: writes it.

    Attributes:
        facts: as given.
        failed: True if the last write failed.
    """

    def __init__(self, facts: SessionFacts, recorder: SessionRecorder, committer: Committer) -> None:
        self.facts = facts
        self.failed = False
        self._recorder = recorder
        self._committer = committer
        self._changing = 0
        # True if the state may differ from what is on the disk, or being written.
        self._touched = False
        self._writing = False
        self._in_flight: dict[bytes, KeyedAnswer] = {}
        self._marked: set[bytes] = set()  # those that the store knows to be in flight
        self._answers: list[KeyedAnswer] = []
        self._withdrawn: list[tuple[str, bytes]] = []
        self._graphs: list[tuple[int, bytes]] = []
        self._new: tuple[SessionFacts, bytes] | None = None

    # Changes

    @property
    def settled(self) -> bool:
        """True if all that can be seen of the session is on the disk."""
        return not (self._changing or self._touched or self._writing)

    def begin_change(self) -> None:
        """Count a run or a request that may change the state."""
        self._changing += 1

    def end_change(self) -> None:
        """Note that it has ended, in whatever way."""
        self._changing -= 1
        self._touched = True

    def touch(self) -> None:
        """Note that the state may have changed."""
        self._touched = True

    def create(self, config: bytes, graph: bytes) -> None:
        """Write it as a new session, with its ConfigProto and its graph."""
        self._new = self.facts, config
        self.add_graph(0, graph)

    def add_graph(self, version: int, graph: bytes) -> None:
        """Write an extension of its graph, or the graph itself as version 0."""
        self._graphs.append((version, graph))
        self._touched = True

    async def check(self) -> None:
        """Before a change: if the last write failed, try again, so that nothing more is done that may be lost.

        Raises:
            OpError: it fails again.
        """
        if self.failed:
            await self.write()

    async def settle(self) -> None:
        """Return once all changes that an answer may tell of are on the disk; at once for a relaxed session.

        Raises:
            OpError: they could not be written.
        """
        waits = self.begin_settling()
        if waits is not None:
            await waits

    def begin_settling(self) -> asyncio.Future[None] | None:
        """As `settle`, without waiting: what to wait for, or None if all is done."""
        if self.settled:
            return None
        if self.facts.relaxed:
            self._committer.commit_later(self)
            return None
        return self._committer.begin_commit(self)

    async def write(self) -> None:
        """Write the present state.  Raises OpError."""
        await self._committer.begin_commit(self)

    def settle_later(self) -> None:
        """Have changes written for which nobody waits."""
        if not self.settled:
            self._committer.commit_later(self)

    # Requests with keys

    def begin_keyed(self, keyed: KeyedAnswer) -> None:
        """Note that a request with a key is in flight."""
        self._in_flight[keyed.name] = keyed

    def end_keyed(self, keyed: KeyedAnswer) -> None:
        """Note its answer, which is written with the next commit."""
        self._in_flight.pop(keyed.name, None)
        self._marked.discard(keyed.name)
        self._answers.append(keyed)
        self._touched = True

    def forget_keyed(self, keyed: KeyedAnswer) -> None:
        """Note that the answer to a request is not wanted any more."""
        self._in_flight.pop(keyed.name, None)
        self._marked.discard(keyed.name)
        self._answers = [one for one in self._answers if one.name != keyed.name]
        self._withdrawn.append((keyed.client, keyed.name))
        self._touched = True

    def drop_keyed(self, keyed: KeyedAnswer) -> None:
        """Note that a request with a key was not carried out."""
        self._in_flight.pop(keyed.name, None)
        if keyed.name in self._marked or self._writing:
            self._marked.discard(keyed.name)
            self._withdrawn.append((keyed.client, keyed.name))
            self._touched = True

    # For commits

    def collect_if_quick(self) -> SessionWrite | None:
        """As `collect`; None if this has to be done in a thread."""
        changes = self._recorder.look_if_quick()
        if changes is None:
            return None
        self._touched, self._writing = False, True
        return self._write_of(changes)

    async def collect(self) -> SessionWrite:
        """What is to be written now.  Raises UnimplementedError if something of the state cannot be recorded."""
        self._touched, self._writing = False, True
        try:
            return self._write_of(await self._recorder.look())
        except BaseException:
            self._touched, self._writing = True, False
            raise

    def _write_of(self, changes: SessionChanges) -> SessionWrite:
        facts, config = self._new or (None, b"")
        begun = [keyed for name, keyed in self._in_flight.items() if name not in self._marked]
        return SessionWrite(
            self.facts.handle,
            changes,
            facts,
            config,
            tuple(self._graphs),
            (*self._answers, *begun),
            tuple(self._withdrawn),
        )

    def written(self, write: SessionWrite) -> None:
        """Note that the last write is on the disk."""
        self._writing = self.failed = False
        self._recorder.written(write.changes)
        self._new = None
        del self._graphs[: len(write.graphs)]
        del self._withdrawn[: len(write.withdrawn)]
        done = set(map(id, write.answers))
        self._answers = [keyed for keyed in self._answers if id(keyed) not in done]
        self._marked |= {keyed.name for keyed in write.answers if keyed.name in self._in_flight}

    def not_written(self) -> None:
        """Note that the last write failed."""
        self._writing = False
        self._touched = self.failed = True
