"""`SessionStore`: all sessions of a server, by handle: it adds, finds and closes them.

Next to read: `hosted_session.py`, which is one of them, and `session_maker.py`, which makes those of clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Protocol

import aexec
from aexec import errors
from aexec.hosting import LongWork, MemoryAccount, run_in_turns
from aexec_server.clients.callers import Caller
from aexec_server.durable.durable_session import DurableSession
from aexec_server.durable.stored_session import StoredSession, WrittenSession
from aexec_server.handles import Handles, is_made, shortened
from aexec_server.http.lost_handles import HOST_ENDED, LostError, lost_by_restart
from aexec_server.http.not_begun import HandedOverError, ShuttingDownError
from aexec_server.requests.run_table import RunTable
from aexec_server.sessions.graph_reclaimer import GraphReclaimer
from aexec_server.sessions.hosted_session import HostedSession
from aexec_server.sessions.session_limits import session_shares
from aexec_server.sessions.session_maker import MadeSession, NewSession, SessionMaker
from aexec_server.settings.server_config import ServerConfig

__all__ = ["SessionKeeper", "SessionStore"]

logger = logging.getLogger(__name__)

# A graph above this size in bytes consists of tens of thousands of objects, which are kept from the garbage collector.
_LARGE_GRAPH = 256 * 1024


class SessionKeeper(Protocol):
    """Keeps durable sessions, as `sessions/durable_sessions.py` does, where its methods are described."""

    def __contains__(self, handle: str) -> bool: ...

    def check(self, new: NewSession, config: aexec.SessionConfig) -> WrittenSession: ...

    def begin(self, hosted: HostedSession, caller: Caller, written: WrittenSession) -> None: ...

    async def load(self, handle: str) -> StoredSession: ...

    def decoded(self, stored: StoredSession) -> NewSession: ...

    async def fill(self, hosted: HostedSession, stored: StoredSession) -> None: ...

    async def drop(self, durable: DurableSession) -> None: ...

    def drop_later(self, durable: DurableSession) -> None: ...

    def drop_expired(self) -> None: ...

    def is_handed_over(self, handle: str, caller: Caller) -> bool: ...

    async def flush(self) -> None: ...


class SessionStore:
    """All sessions of a server, by handle.

    Attributes:
        why_gone: returns what became of the session of an unknown handle, None if that is not known.
        handles: makes the handles of sessions.
        maker: makes the sessions of clients.
        shares: counts each client's sessions, including those being made.
        durable: the durable sessions; None if there is no store.
        on_change: called when a request for a session ends, when one for a named session comes, and when a session has
            closed.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.why_gone: Callable[[str], str | None] = lambda handle: None
        self._config = config
        self.handles = Handles(config.handle_prefix, config.server_run)
        self.maker = SessionMaker(config)
        self.shares = session_shares(config)
        self._sessions: dict[str, HostedSession] = {}
        self._retired: set[HostedSession] = set()
        self._being_made = 0
        self._asked_for: Counter[str | None] = Counter()  # pending requests for a session, by its name
        self.on_change: Callable[[], object] = lambda: None
        self.durable: SessionKeeper | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False
        self._graphs = GraphReclaimer(lambda: self.idle)

    @property
    def memory(self) -> MemoryAccount:
        """The account of all sessions together."""
        return self.maker.memory

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[HostedSession]:
        return iter(list(self._sessions.values()))

    def __contains__(self, handle: object) -> bool:
        return handle in self._sessions

    def get(self, handle: str, caller: Caller) -> HostedSession:
        """Return a session that the caller may use.

        Raises:
            NotFoundError: the handle is unknown, its session was closed, or the session belongs to another caller.
            HandedOverError: another process has it now.
        """
        hosted = self._sessions.get(handle)
        if hosted is None or not caller.sees(hosted.owner):
            raise self._not_found(handle, caller)
        return hosted

    def _not_found(self, handle: str, caller: Caller) -> errors.OpError:
        if self.durable is not None and self.durable.is_handed_over(handle, caller):
            return HandedOverError()
        lost = lost_by_restart(self.handles, "Session", handle)
        if lost is not None:
            return lost
        why = self.why_gone(handle)
        return (
            errors.NotFoundError(f"Session {handle[:80]} is not found.") if why is None else LostError(why, HOST_ENDED)
        )

    @property
    def kept_bytes(self) -> int:
        """Bytes of tensors that sessions keep under handles."""
        return sum(hosted.session.tensors.num_bytes for hosted in self)

    @property
    def live_runs(self) -> int:
        return sum(len(runs.live) for runs in self._run_tables())

    @property
    def in_use(self) -> bool:
        """True if a request uses a session, also one that is retired."""
        return any(hosted.requests for hosted in (*self._sessions.values(), *self._retired))

    @property
    def held(self) -> int:
        """Number of sessions that are open or closing, and of pending requests for sessions."""
        return len(self._sessions) + self._asked_for.total() + len(self._closing)

    @contextmanager
    def asked_for(self, name: str | None) -> Iterator[None]:
        """Context manager: count a pending request for a session, with its name if it has one."""
        self._asked_for[name] += 1
        try:
            if name is not None:
                self.on_change()
            yield
        finally:
            self._asked_for[name] -= 1
            if not self._asked_for[name]:
                del self._asked_for[name]
            self.on_change()

    @property
    def names(self) -> list[str]:
        """Names that clients gave to sessions or ask for."""
        given = {h.handle for h in self if not h.listed and not is_made(h.handle)}
        return sorted(given.union([name for name in self._asked_for if name is not None]))

    @property
    def idle(self) -> bool:
        """True if no run is in flight and no session is being made."""
        return not (self._being_made or self.live_runs)

    def _run_tables(self) -> set[RunTable]:
        return {hosted.runs for hosted in (*self._sessions.values(), *self._retired)}

    async def create(self, decode: Callable[[], NewSession], size: int, caller: Caller) -> HostedSession:
        """Make a session, in a thread and in turns with other long work: importing a large graph takes seconds.

        The import stops soon after cancellation or after `max_timeout`.

        Args:
            decode: returns what the client asks for.
            size: bytes that it decodes.
            caller: the session's owner.

        Raises:
            ResourceExhaustedError: too many sessions in all or of this caller.
            InvalidArgumentError: the graph or the settings are not valid.
            NotFoundError: an op is not registered.
            PermissionDeniedError: clients may not use an op.
            DeadlineExceededError: `max_timeout` is over.
            AlreadyExistsError: the name is taken.
        """
        async with self._making(caller):
            return self._add(await self._create(decode, size, caller))

    @asynccontextmanager
    async def _making(self, caller: Caller) -> AsyncIterator[None]:
        """Context manager: count a session that is being made for a caller.  Raises ResourceExhaustedError."""
        self.shares.take(caller, quota=caller.quotas.sessions)
        self._being_made += 1
        try:
            yield
        except BaseException:
            self.shares.give_back(caller.client)
            raise
        finally:
            self._being_made -= 1

    async def restore(self, handle: str, caller: Caller) -> HostedSession:
        """Open a durable session of the store, for a caller who may use it.

        Raises:
            ResourceExhaustedError: too many sessions in all or of this caller.
            DataLossError, OpError: it cannot be read, or the server does not allow its graph any more.
        """
        assert self.durable is not None
        async with self._making(caller):
            stored = await self.durable.load(handle)
            hosted = await self._create(partial(self.durable.decoded, stored), stored.size, caller, stored)
            try:
                await self.durable.fill(hosted, stored)
            except BaseException:
                await hosted.session.close()
                self._graphs.free(hosted.session, large=hosted.large)
                raise
            return self._add(hosted)

    async def _create(
        self, decode: Callable[[], NewSession], size: int, caller: Caller, stored: StoredSession | None = None
    ) -> HostedSession:
        large = size > _LARGE_GRAPH
        made: list[MadeSession] = []
        account = self.maker.account_of(caller)
        check_durable = None if self.durable is None else self.durable.check

        def make() -> None:
            made.append((self.maker.make_large if large else self.maker.make)(decode, account, check_durable))

        try:
            async with asyncio.timeout(self._config.max_timeout):
                await run_in_turns(make, LongWork())
        except BaseException as error:
            if made:  # made just as the request was cancelled
                self._graphs.free(made[0].session, large=large)
            if not isinstance(error, TimeoutError):
                raise
            raise errors.DeadlineExceededError(
                f"The session was not made within {self._config.max_timeout:g} s, the most that this server allows"
            ) from None
        new = made[0]
        handle = self.handles.new() if new.name is None else new.name
        taken = handle in self._sessions or (stored is None and self.durable is not None and handle in self.durable)
        if self._closed or taken:
            self._graphs.free(new.session, large=large)
            if self._closed:
                raise ShuttingDownError
            raise errors.AlreadyExistsError(f"There is a session '{handle}' already")
        hosted = HostedSession(
            handle,
            new.session,
            new.ttl,
            self._config.clock,
            large=large,
            owns_graph=True,
            owner=caller.name if stored is None else stored.facts.owner,
        )
        hosted.client = caller.client
        hosted.max_runs = new.limits.max_runs
        if new.written is not None:
            assert self.durable is not None
            self.durable.begin(hosted, caller, new.written)
        return hosted

    def _add(self, hosted: HostedSession) -> HostedSession:
        self._sessions[hosted.handle] = hosted
        return hosted

    # The server's own sessions

    def put(self, handle: str, hosted: HostedSession) -> None:
        """Make a session available under this handle only.  A client's session that has the handle is closed."""
        self._take(hosted)
        other = self._sessions.get(handle)
        if other is not None and other.owns_graph:
            logger.info("session %s is closed: the server has a model of that name now", handle)
            self._drop_later(other)
            self._begin_close(other)
        hosted.handle = handle
        self._sessions[handle] = hosted

    def retire(self, hosted: HostedSession) -> None:
        """Stop offering a session; its runs may go on until `close_retired`."""
        self._take(hosted)
        self._retired.add(hosted)

    async def close_retired(self, hosted: HostedSession) -> None:
        """Cancel a retired session's runs, wait for them, and free what it holds."""
        self._retired.discard(hosted)
        await asyncio.shield(self._begin_close(hosted))

    def _take(self, hosted: HostedSession) -> None:
        if self._sessions.get(hosted.handle) is hosted:
            del self._sessions[hosted.handle]

    async def give_up(self, hosted: HostedSession) -> None:
        """Close a new session that could not be written."""
        self._drop_later(hosted)
        await asyncio.shield(self._begin_close(hosted))

    async def delete(self, hosted: HostedSession) -> None:
        """Cancel the session's runs, wait for them, and free what it holds; a durable one leaves its store first.

        Raises:
            OpError: the store cannot be written; the session stays then.
        """
        if hosted.durable is not None and self.durable is not None:
            await self.durable.drop(hosted.durable)
        # Shielded: once begun, closing goes on even if the request is cancelled.
        await asyncio.shield(self._begin_close(hosted))

    def close_expired(self) -> list[str]:
        """Begin to close the sessions that have expired; return their handles."""
        expired = [hosted for hosted in self if hosted.expired]
        for hosted in expired:
            logger.info("session %s was not used for %g s and is closed", shortened(hosted.handle), hosted.ttl)
            self._drop_later(hosted)
            self._begin_close(hosted)
        if self.durable is not None:
            self.durable.drop_expired()
        return [hosted.handle for hosted in expired]

    def _drop_later(self, hosted: HostedSession) -> None:
        if hosted.durable is not None and self.durable is not None:
            self.durable.drop_later(hosted.durable)

    def _begin_close(self, hosted: HostedSession) -> asyncio.Task[None]:
        self._take(hosted)
        if hosted.client is not None:
            self.shares.give_back(hosted.client)
            hosted.client = None
        task = asyncio.create_task(self._close(hosted), name=f"close session {shortened(hosted.handle)}")
        self._closing.add(task)
        task.add_done_callback(self._forget_closing)
        return task

    def _forget_closing(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        self.on_change()

    async def _close(self, hosted: HostedSession) -> None:
        hosted.forget_calls()
        await hosted.session.close()
        if hosted.owns_graph:
            hosted.when_unused(lambda: self._graphs.free(hosted.session, large=hosted.large))

    def cancel_all(self, reason: str) -> None:
        """Cancel every run."""
        for runs in self._run_tables():
            runs.cancel_all(reason)

    async def close(self) -> None:
        """Close all sessions and wait for those that are closing.  No session can be made afterwards."""
        self._closed = True
        if self.durable is not None:
            await self.durable.flush()
        for hosted in self:
            self._begin_close(hosted)
        if self._closing:
            await asyncio.wait(self._closing)
        self._graphs.close()
