"""`DurableSessions`: opens the sessions of a store, and makes new sessions durable.

A session of the store is opened at the first request for it.  Next to read: `durable/durable_session.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aexec
from aexec import errors, proto
from aexec.hosting import recorder_of, restore_session
from aexec_server.clients.callers import Caller
from aexec_server.durable.durable_rules import Durability, check_durable
from aexec_server.durable.durable_session import DurableSession
from aexec_server.durable.group_commit import GroupCommit
from aexec_server.durable.state_store import StateLimits, StateStore
from aexec_server.durable.store_opening import StoreOpening
from aexec_server.durable.stored_session import SessionFacts, StoredSession, WrittenSession
from aexec_server.handles import shortened
from aexec_server.http.idempotency import AnsweredOnce
from aexec_server.http.keyed_answer import OPERATIONS, KeyedAnswer, operation_name
from aexec_server.http.not_begun import HandedOverError
from aexec_server.sessions.hosted_session import HostedSession
from aexec_server.sessions.session_limits import SessionLimits
from aexec_server.sessions.session_maker import NewSession
from aexec_server.sessions.store import SessionStore
from aexec_server.settings.server_config import ServerConfig

__all__ = ["DurableSessions", "make_store"]

logger = logging.getLogger(__name__)

# How long runs may take to end that were cancelled.
_CANCEL_SECONDS = 3.0

InBackground = Callable[[Coroutine[Any, Any, Any], str], "asyncio.Task[Any]"]


def make_store(config: ServerConfig, *, is_owner: bool) -> StateStore:
    """The store of a server with a `state_path`, for its first process or for a session host."""
    assert config.state_path is not None
    most = config.max_state_bytes
    client = most - most // 8 if config.max_client_state_bytes is None else config.max_client_state_bytes
    limits = StateLimits(most, client, config.max_session_state_bytes)
    return StateStore(Path(config.state_path), limits, is_owner=is_owner, run=config.server_run)


class DurableSessions:
    """The durable sessions of a server.

    Args:
        config: the server's settings, with a `state_path`.
        sessions: all sessions of the server.
        answered_once: the stored answers.
        in_background: starts work that outlives requests.
    """

    def __init__(
        self,
        config: ServerConfig,
        sessions: SessionStore,
        answered_once: AnsweredOnce,
        in_background: InBackground,
        store: StateStore,
    ) -> None:
        self._sessions = sessions
        self._answered_once = answered_once
        self._in_background = in_background
        self._default_ttl = config.session_ttl_s
        self._clock = config.clock
        self._in_host = bool(config.handle_prefix)
        self._opened_at = 0.0
        self._drain_seconds = config.drain_seconds
        self._handed_over: dict[str, str] | None = None  # owners by handle, once the store is given up
        self._giving_up: asyncio.Task[None] | None = None
        self._opening: dict[str, asyncio.Task[HostedSession]] = {}
        self._open: dict[str, DurableSession] = {}
        self.store = store
        self.commits = GroupCommit(store, in_background)
        self._of_store = StoreOpening(store, self._learn, waits=config.reuse_port)

    @classmethod
    def of(
        cls, config: ServerConfig, sessions: SessionStore, answered_once: AnsweredOnce, in_background: InBackground
    ) -> DurableSessions | None:
        """The durable sessions by a server's settings; None if it has no store, or sessions are in its hosts."""
        if config.state_path is None or config.has_hosts:
            return None
        store = make_store(config, is_owner=not config.handle_prefix)
        made = cls(config, sessions, answered_once, in_background, store)
        sessions.durable = made
        return made

    def __contains__(self, handle: str) -> bool:
        """True if the store has, or is about to have, a session with this handle."""
        return handle in self.store.facts or handle in self._open

    @property
    def owners(self) -> dict[str, str]:
        """The owners of the durable sessions that are open here, by handle."""
        return {handle: durable.facts.owner for handle, durable in self._open.items()}

    async def open(self) -> None:
        """Open the store, unless this is a session host, which opens it at its first use.

        With `reuse_port` it is opened later if another server has it: then its sessions wait for it.

        Raises:
            StateStoreError: it cannot be opened.
        """
        if self._in_host:
            self._answered_once.look_up = self.store.answer
            return
        await self._of_store.begin()

    async def _learn(self) -> None:
        self._opened_at = self._clock()
        for keyed in await self.store.answers():
            if keyed.client != OPERATIONS:  # these are looked up when somebody asks for them
                self._answered_once.know(keyed)

    async def flush(self) -> None:
        """Write what has changed in all sessions; an error is logged."""
        for durable in list(self._open.values()):
            try:
                await self.commits.flush(durable)
            except errors.OpError as error:
                logger.error("session %s: %s", shortened(durable.facts.handle), error.message)

    async def close(self) -> None:
        await self.commits.idle()
        await self._of_store.close()
        await self.store.close()

    # Operations

    async def operation(self, operation_id: str) -> KeyedAnswer | None:
        """An operation that the store keeps, or None.  Raises HandedOverError if the store is not open."""
        if self._handed_over is not None:
            raise HandedOverError
        if not (self._in_host or self._of_store.done):
            if await self._of_store.find_of_operation(operation_id) is None:
                return None
            await self._of_store.wait()
        return await self.store.answer(OPERATIONS, operation_name(operation_id))

    async def forget_operation(self, operation_id: str, caller: Caller) -> None:
        """Delete an operation that the store keeps.  Raises OpError."""
        if self._handed_over is not None or not (self._in_host or self._of_store.done):
            return
        try:
            facts = await self.store.find_of_operation(operation_id)
        except HandedOverError:  # of a host whose front does not have the store yet
            return
        if facts is not None:
            await self.open_if_stored(facts.handle, caller)
            durable = self._open[facts.handle]
            durable.forget_keyed(KeyedAnswer(OPERATIONS, operation_name(operation_id), b"", 0.0))
            await durable.settle()

    # Another process

    async def until_open(self) -> None:
        """Return when the store is open, if this process opens it at its start.  Raises HandedOverError."""
        if not self._in_host:
            await self._of_store.wait()

    def is_handed_over(self, handle: str, caller: Caller) -> bool:
        """True for a session of the caller's that went to another process with the store."""
        owner = None if self._handed_over is None else self._handed_over.get(handle)
        return owner is not None and caller.sees(owner)

    async def give_up(self) -> None:
        """Begin no request for durable sessions any more, let those in flight end, write what is left, and close the
        store, for another process.

        Runs are cancelled that have not ended within `drain_seconds`.  A session host may be told twice, by its front
        and by the process that waits: a second call waits for the end of the first.
        """
        if self._giving_up is None:
            self._giving_up = self._in_background(self._give_up(), "give the store up")
        await asyncio.shield(self._giving_up)

    async def _give_up(self) -> None:
        self._handed_over = {handle: facts.owner for handle, facts in self.store.facts.items()}
        given: list[HostedSession] = []
        while taken := [hosted for hosted in self._sessions if hosted.durable is not None]:
            for hosted in taken:
                self._handed_over[hosted.handle] = hosted.owner or ""
                self._sessions.retire(hosted)
            given += taken
            await self._until_unused(taken)  # meanwhile sessions may come that were being made
        await self.flush()
        for durable in list(self._open.values()):
            self.commits.forget(durable)
        self._open.clear()
        await self.store.close()
        for hosted in given:
            await self._sessions.close_retired(hosted)

    async def _until_unused(self, taken: Sequence[HostedSession]) -> None:
        unused = asyncio.gather(*(hosted.unused() for hosted in taken))
        try:
            async with asyncio.timeout(self._drain_seconds):
                await asyncio.shield(unused)
        except TimeoutError:
            for hosted in taken:
                hosted.runs.cancel_all("shutdown")
            await asyncio.wait([unused], timeout=_CANCEL_SECONDS)

    # New sessions

    def check(self, new: NewSession, config: aexec.SessionConfig) -> WrittenSession:
        """What is written of a new session.

        Raises:
            UnimplementedError: its state cannot be recorded.
            HandedOverError: the store is not open.
        """
        if self._handed_over is not None or not (self._in_host or self._of_store.done):
            raise HandedOverError
        check_durable(new.graph_def)
        if config.share:
            raise errors.UnimplementedError('"durable": a session that shares containers cannot be durable')
        limits = {name: most for name, most in asdict(new.limits).items() if most is not None}
        return WrittenSession(
            new.config.SerializeToString(),
            new.graph_def.SerializeToString(),
            new.ttl,
            limits,
            new.durability is Durability.RELAXED,
        )

    def begin(self, hosted: HostedSession, caller: Caller, written: WrittenSession) -> None:
        """Make a session durable that has been made; it is written with the next commit."""
        facts = SessionFacts(
            hosted.handle, caller.name, caller.client, written.ttl, written.relaxed, written.limits, time.time()
        )
        durable = self._attach(hosted, facts)
        durable.create(written.config, written.graph)

    def _attach(self, hosted: HostedSession, facts: SessionFacts) -> DurableSession:
        durable = DurableSession(facts, recorder_of(hosted.session), self.commits)
        hosted.durable = self._open[hosted.handle] = durable
        return durable

    # Sessions of the store

    async def open_if_stored(self, handle: str, caller: Caller) -> None:
        """Open a session of the store, if the caller may use it and it is not open.

        Raises:
            OpError: it cannot be opened.
        """
        if handle in self._sessions or self._handed_over is not None:
            return
        if not (self._in_host or self._of_store.done):
            facts = await self._of_store.find(handle)
            if facts is None or not caller.sees(facts.owner):
                return
            await self._of_store.wait()
        facts = await self.store.find(handle) if self._in_host else self.store.facts.get(handle)
        if facts is None or handle in self._sessions or not caller.sees(facts.owner):
            return
        opening = self._opening.get(handle)
        if opening is None:
            opening = self._in_background(self._sessions.restore(handle, caller), f"open {shortened(handle)}")
            self._opening[handle] = opening
            opening.add_done_callback(lambda _: self._opening.pop(handle))
        await asyncio.shield(opening)

    async def load(self, handle: str) -> StoredSession:
        """Read a session.  Raises NotFoundError, DataLossError."""
        return await self.store.load(handle)

    def decoded(self, stored: StoredSession) -> NewSession:
        """A stored session as its creator asked for it, without its extensions and its state."""
        facts = stored.facts
        graph = proto.FlatGraphDef.FromString(stored.graphs[0])
        config = proto.ConfigProto.FromString(stored.config)
        check_durable(graph)
        return NewSession(graph, config, facts.ttl, facts.handle, SessionLimits(**facts.limits))

    async def fill(self, hosted: HostedSession, stored: StoredSession) -> None:
        """Put extensions and state into an opened session.

        Raises:
            OpError: they do not fit.
        """
        for graph in stored.graphs[1:]:
            extension = proto.FlatGraphDef.FromString(graph)
            await asyncio.to_thread(self._sessions.maker.check_graph, extension)
            await hosted.extend(extension, None)
        try:
            await asyncio.to_thread(restore_session, hosted.session, stored.records, stored.kept, stored.next_tensor)
        except (KeyError, ValueError, TypeError) as error:
            raise errors.DataLossError(
                f"The state of session {shortened(hosted.handle)} does not fit what this version reads: {error!r}"
            ) from None
        recorder = recorder_of(hosted.session)
        recorder.written(await recorder.look())
        if self._handed_over is not None:
            raise HandedOverError
        hosted.durable = self._open[hosted.handle] = DurableSession(stored.facts, recorder, self.commits)

    async def drop(self, durable: DurableSession) -> None:
        """Delete a session from the store.  Raises OpError; the session stays then."""
        self.commits.forget(durable)
        await self.store.drop([durable.facts.handle])
        self._open.pop(durable.facts.handle, None)

    def drop_later(self, durable: DurableSession) -> None:
        """Delete a session from the store; an error is logged."""
        self.commits.forget(durable)
        self._open.pop(durable.facts.handle, None)
        self._in_background(self._drop_all([durable.facts.handle]), "drop a durable session")

    def drop_expired(self) -> None:
        """Delete the sessions that nobody has asked for since the server began, for as long as they live unused."""
        if self._in_host or self._handed_over is not None or not self._of_store.done:
            return  # the front does this, or another server
        unused = self._clock() - self._opened_at
        expired = []
        for handle, facts in self.store.facts.items():
            ttl = self._default_ttl if facts.ttl is None else facts.ttl
            if ttl is not None and unused >= ttl and handle not in self._open and handle not in self._opening:
                expired.append(handle)
        if expired:
            for handle in expired:
                logger.info("durable session %s was not used and is deleted", shortened(handle))
                del self.store.facts[handle]
            self._in_background(self._drop_all(expired), "drop durable sessions")

    async def _drop_all(self, handles: list[str]) -> None:
        try:
            await self.store.drop(handles)
        except errors.OpError as error:
            logger.error("durable sessions are not deleted from the store: %s", error.message)
