"""`GroupCommit`: shares each transaction, and its flush to the disk, among all requests that wait for one.

While a transaction is written, further requests wait for the next one.  It takes a snapshot of the sessions only when
the one before has ended, so that it has the changes of all that wait by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

from aexec import errors
from aexec_server.durable.durable_session import DurableSession
from aexec_server.durable.state_errors import write_error_of
from aexec_server.durable.state_store import Outcome, StateStore
from aexec_server.durable.stored_session import SessionWrite

__all__ = ["GroupCommit"]

# How long changes wait that no request waits for.
_LATER_SECONDS = 0.2
# How long a transaction waits for a session whose state is being updated in a thread.
_COLLECT_SECONDS = 0.005

InBackground = Callable[[Coroutine[Any, Any, None], str], object]
_Collected = tuple[DurableSession, SessionWrite, list[asyncio.Future[None]]]


class GroupCommit:
    """The commits of a store.

    Args:
        store: the store.
        in_background: starts work that outlives requests.

    Attributes:
        commits: number of transactions so far.
    """

    def __init__(self, store: StateStore, in_background: InBackground) -> None:
        self.commits = 0
        self._store = store
        self._in_background = in_background
        self._waiting: dict[DurableSession, list[asyncio.Future[None]]] = {}
        self._collecting: dict[DurableSession, tuple[asyncio.Task[SessionWrite], list[asyncio.Future[None]]]] = {}
        self._later: dict[DurableSession, asyncio.TimerHandle] = {}
        self._writing = False
        self._idle: asyncio.Future[None] | None = None  # done once nothing is being written

    def begin_commit(self, session: DurableSession) -> asyncio.Future[None]:
        """Have the present state of the session written; the future is done once it is on the disk.

        It is written even if nobody waits for the future.  The future's error is an OpError if it could not be written.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(session, []).append(done)
        self._begin()
        return done

    def commit_later(self, session: DurableSession) -> None:
        """Write the state of the session soon, though nobody waits for it."""
        if session not in self._later:
            loop = asyncio.get_running_loop()
            self._later[session] = loop.call_later(_LATER_SECONDS, self._commit_now, session)

    def _commit_now(self, session: DurableSession) -> None:
        self._later.pop(session).cancel()
        self._waiting.setdefault(session, [])
        self._begin()

    async def flush(self, session: DurableSession) -> None:
        """Write what has changed of the session, if anything has.  Raises OpError."""
        later = self._later.pop(session, None)
        if later is not None:
            later.cancel()
        if not session.settled:
            await self.begin_commit(session)

    def forget(self, session: DurableSession) -> None:
        """Write nothing more of the session."""
        later = self._later.pop(session, None)
        if later is not None:
            later.cancel()
        for done in self._waiting.pop(session, ()):
            _fail(done, errors.CancelledError("Session has been closed."))

    async def idle(self) -> None:
        """Return once nothing is being written."""
        if self._writing:
            self._idle = self._idle or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def _begin(self) -> None:
        if not self._writing:
            self._writing = True
            asyncio.get_running_loop().call_soon(self._write_next)

    def _write_next(self) -> None:
        """Write a transaction with the sessions that wait, or end if there are none."""
        if not (self._waiting or self._collecting):
            self._writing = False
            if self._idle is not None:
                self._idle.set_result(None)
                self._idle = None
            return
        collected = self._collected_at_once()
        if self._collecting:
            self._in_background(self._write_with_others(collected), "write durable sessions")
        else:
            self._write(collected)

    def _collected_at_once(self) -> list[_Collected]:
        """What there is of the sessions that wait; those whose state cannot be taken at once are put aside."""
        collected: list[_Collected] = []
        for session in [session for session in self._waiting if session not in self._collecting]:
            waiting = self._waiting.pop(session)
            try:
                write = session.collect_if_quick()
            except Exception as error:
                session.not_written()
                _tell(waiting, write_error_of(error))
                continue
            if write is None:
                self._collecting[session] = asyncio.ensure_future(session.collect()), waiting
            else:
                collected.append((session, write, waiting))
        return collected

    async def _write_with_others(self, collected: list[_Collected]) -> None:
        self._write(collected + await self._collected_in_threads(wait=not collected))

    async def _collected_in_threads(self, *, wait: bool) -> list[_Collected]:
        """What there is of the sessions whose state is taken in threads, a moment later; with `wait` of at least one,
        unless that fails.
        """
        tasks = [task for task, _ in self._collecting.values()]
        await asyncio.wait(tasks, timeout=_COLLECT_SECONDS)
        if wait and not any(task.done() for task in tasks):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        collected: list[_Collected] = []
        for session, (task, waiting) in list(self._collecting.items()):
            if not task.done():
                continue
            del self._collecting[session]
            error = task.exception()
            if error is None:
                collected.append((session, task.result(), waiting))
            else:
                session.not_written()
                _tell(waiting, write_error_of(error))
        return collected

    def _write(self, collected: Sequence[_Collected]) -> None:
        """Write what there is to write, then go on with what has come meanwhile."""
        writes = [write for _, write, _ in collected if write]
        if writes:
            self._store.write(writes, partial(self._written, collected))
        else:
            self._end(collected, iter(()))

    def _written(self, collected: Sequence[_Collected], outcomes: Sequence[Outcome]) -> None:
        self.commits += 1
        self._end(collected, iter(outcomes))

    def _end(self, collected: Sequence[_Collected], outcomes: Iterator[Outcome]) -> None:
        """Tell those who wait what became of their sessions' writes."""
        for session, write, waiting in collected:
            outcome = next(outcomes) if write else None
            if outcome is None:
                session.written(write)
            else:
                session.not_written()
            _tell(waiting, outcome)
        self._write_next()


def _tell(waiting: list[asyncio.Future[None]], outcome: errors.OpError | None) -> None:
    for done in waiting:
        if outcome is not None:
            _fail(done, outcome)
        elif not done.done():
            done.set_result(None)


def _fail(done: asyncio.Future[None], error: errors.OpError) -> None:
    if not done.done():
        done.set_exception(error)
        done.exception()  # retrieved: nobody may be waiting any more
