"""`GroupCommit`: shares each transaction, and its flush to the disk, among all requests that wait for one.

While a transaction is written, further requests wait for the next one.  It takes a snapshot of the sessions only when
the one before has ended, so that it has the changes of all that wait by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from aexec import errors
from aexec_server.durable.durable_session import DurableSession
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

    def _begin(self) -> None:
        if not self._writing:
            self._writing = True
            self._in_background(self._write_all(), "write durable sessions")

    async def _write_all(self) -> None:
        try:
            while self._waiting or self._collecting:
                await self._write()
        finally:
            self._writing = False

    async def _write(self) -> None:
        """Write a transaction with the sessions that wait, except those whose state cannot be taken yet."""
        collected: list[_Collected] = []
        for session in [session for session in self._waiting if session not in self._collecting]:
            waiting = self._waiting.pop(session)
            try:
                write = session.collect_if_quick()
            except Exception as error:
                session.not_written()
                _tell(waiting, _as_op_error(error))
                continue
            if write is None:
                self._collecting[session] = asyncio.ensure_future(session.collect()), waiting
            else:
                collected.append((session, write, waiting))
        if self._collecting:
            collected += await self._collected_in_threads(wait=not collected)
        if not collected:
            return
        outcomes = await self._write_collected([write for _, write, _ in collected])
        for (session, write, waiting), outcome in zip(collected, outcomes, strict=True):
            if outcome is None:
                session.written(write)
            else:
                session.not_written()
            _tell(waiting, outcome)

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
                _tell(waiting, _as_op_error(error))
        return collected

    async def _write_collected(self, writes: Sequence[SessionWrite]) -> list[Outcome]:
        """Write what there is to write; return what became of each write."""
        some = [write for write in writes if write]
        if not some:
            return [None] * len(writes)
        outcomes = iter(await self._store.write(some))
        self.commits += 1
        return [next(outcomes) if write else None for write in writes]


def _as_op_error(error: BaseException) -> errors.OpError:
    if isinstance(error, errors.OpError):
        return error
    wrapped = errors.InternalError(f"what has changed cannot be written: {error}")
    wrapped.__cause__ = error
    return wrapped


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
