"""The sessions that the server holds: `HostedSession`, and `SessionStore` that makes, finds and closes them.

Read `sessions.py` and `runs.py` next, whose handlers work on these.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import aexec
from aexec import errors, proto
from aexec.hosting import (
    CallableCache,
    OnCancel,
    collect_garbage,
    collector_paused,
    freeze_heap,
    run_in_thread,
    unfreeze_heap,
)
from aexec.saved_model import ModelSession
from aexec_server.file_access import FileOpGuard, check_no_file_ops
from aexec_server.run_table import RunTable, check_run_id
from aexec_server.served_call import ServedCall
from aexec_server.server_config import GraphSource, ServerConfig

__all__ = ["HostedSession", "NewSession", "SessionStore"]

logger = logging.getLogger(__name__)

_MAX_DEVICES = 64
# Graphs of more bytes have some ten thousands of objects, which the garbage collector need not look at.
_LARGE_GRAPH = 256 * 1024
# Seconds after which the memory of a large session that was closed is freed.
_COLLECT_AFTER = 2.0
_MAX_TTL = 30 * 24 * 3600.0


class HostedSession:
    """A session with what HTTP adds to it.

    Attributes:
        handle: its name in paths.
        session: itself.
        runs: by id.
        graph_version: how often it was extended.
        ttl: seconds without use after which it is closed; None for never.
        requests: those that use it at this moment.
        large: its graph is out of the garbage collector's sight.
        guarded: its graph is the server's own, and clients may not run what reaches for files in it.
        keeps_clients_nodes: what clients add to its graph is not for delegates.
    """

    def __init__(
        self,
        handle: str,
        session: aexec.Session,
        ttl: float | None,
        clock: Callable[[], float],
        *,
        large: bool = False,
        guarded: bool = False,
    ) -> None:
        self.handle = handle
        self.large = large
        self._guard = FileOpGuard() if guarded else None
        self.session = session
        self.runs = RunTable(clock)
        self.graph_version = 0
        self.keeps_clients_nodes = False
        self.ttl = ttl
        self.requests = 0
        self._extending = asyncio.Lock()
        self._clock = clock
        self._used = clock()
        self._served: CallableCache[ServedCall] = CallableCache()

    def acquire(self) -> HostedSession:
        """It does not expire until `release`."""
        self.requests += 1
        return self

    def release(self) -> None:
        """Its age begins anew."""
        self.requests -= 1
        self._used = self._clock()

    @contextmanager
    def in_use(self) -> Iterator[HostedSession]:
        """`acquire` and `release`."""
        self.acquire()
        try:
            yield self
        finally:
            self.release()

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self.requests else self._clock() - self._used

    @property
    def expired(self) -> bool:
        return self.ttl is not None and not self.requests and self.idle_seconds >= self.ttl

    def served_call(self, feeds: tuple[str, ...], fetches: tuple[str, ...], targets: tuple[str, ...]) -> ServedCall:
        """What such a run needs, looked up once.

        Raises:
            NotFoundError, InvalidArgumentError: as `Session.make_callable`.
            PermissionDeniedError: it would reach for files and may not.
        """
        key = (feeds, fetches, targets)
        served = self._served.get(key)
        if served is None:
            served = ServedCall(self.session, *key)
            if self._guard is not None:
                self._guard.check(self.session.graph, served.call.nodes)
            self._served.remember(key, served)
        return served

    async def extend(self, graph_def: proto.GraphDef, version: int) -> int:
        """Add nodes; returns the new version.

        Raises:
            FailedPreconditionError: `version` is not the graph's.
        """
        # Once begun it goes on if the client leaves, so that graph and version stay together.
        return await asyncio.shield(asyncio.create_task(self._extend(graph_def, version)))

    async def _extend(self, graph_def: proto.GraphDef, version: int) -> int:
        async with self._extending:
            if version != self.graph_version:
                raise errors.FailedPreconditionError(
                    f"Current version is {self.graph_version} but caller expected {version}."
                )
            if self.keeps_clients_nodes:
                self.session.stop_delegating()
            await self.session.extend(graph_def)
            self.graph_version += 1
            return self.graph_version

    def __repr__(self) -> str:
        return f"<HostedSession {self.handle} {self.session!r}, {self.runs!r}>"


@dataclass(frozen=True, slots=True)
class NewSession:
    """What a client wishes.

    Attributes:
        graph_def: what to run.
        config: settings.
        ttl: seconds without use after which it is closed; None for the server's default.
    """

    graph_def: proto.GraphDef
    config: proto.ConfigProto
    ttl: float | None


class SessionStore:
    """All sessions of a server, by handle."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._sessions: dict[str, HostedSession] = {}
        self._being_made = 0
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False
        self._collection: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[HostedSession]:
        return iter(list(self._sessions.values()))

    def get(self, handle: str) -> HostedSession:
        """Raises NotFoundError for a handle that was never given out, or whose session was closed."""
        hosted = self._sessions.get(handle)
        if hosted is None:
            raise errors.NotFoundError(f"Session {handle[:80]} is not found.")
        return hosted

    @property
    def live_runs(self) -> int:
        return sum(len(hosted.runs.live) for hosted in self._sessions.values())

    async def create(self, decode: Callable[[], NewSession], size: int) -> HostedSession:
        """Make a session, in a thread: importing a large graph takes seconds.

        Args:
            decode: gives the client's wishes.
            size: bytes of which it makes them.

        Raises:
            ResourceExhaustedError: too many sessions.
            InvalidArgumentError: no graph, or settings that are not possible.
            NotFoundError: an op that is not registered.
            PermissionDeniedError: an op that reads or writes files.
        """
        if len(self._sessions) + self._being_made >= self._config.max_sessions:
            raise errors.ResourceExhaustedError(
                f"This server has {self._config.max_sessions} sessions, the most that it may have: delete one"
            )
        self._being_made += 1
        try:
            large = size > _LARGE_GRAPH
            make = self._make_large if large else self._make
            session, ttl = await run_in_thread(make, decode, on_cancel=OnCancel.WAIT)
        finally:
            self._being_made -= 1
        if self._closed:
            raise errors.UnavailableError("The server is shutting down")
        return self._add(HostedSession(secrets.token_hex(8), session, ttl, self._config.clock, large=large))

    def _add(self, hosted: HostedSession) -> HostedSession:
        self._sessions[hosted.handle] = hosted
        return hosted

    def _make(self, decode: Callable[[], NewSession]) -> tuple[aexec.Session, float | None]:
        """A session and how long it may be unused."""
        new = decode()
        ttl = self._config.session_ttl_s if new.ttl is None else new.ttl
        if new.ttl is not None and not 0 < new.ttl <= _MAX_TTL:
            raise errors.InvalidArgumentError(f'"ttl_s" must be positive and at most {_MAX_TTL:g}, got {new.ttl:g}')
        self._check_config(new.config)
        config = replace(
            aexec.SessionConfig.from_proto(new.config),
            session_tensor_bytes=self._config.max_kept_bytes,
            step_bytes=self._config.max_run_bytes,
            session_bytes=self._config.max_session_bytes,
            delegates=self._config.delegates or (),
        )
        self.check_graph(new.graph_def)
        return aexec.Session(aexec.Graph.from_graph_def(new.graph_def), config=config), ttl

    def _make_large(self, decode: Callable[[], NewSession]) -> tuple[aexec.Session, float | None]:
        with collector_paused():
            made = self._make(decode)
            freeze_heap()
        return made

    def check_graph(self, graph_def: proto.GraphDef) -> None:
        """Raise PermissionDeniedError if clients may not run such a graph."""
        if not self._config.allow_file_ops:
            check_no_file_ops(graph_def)

    def _check_config(self, config: proto.ConfigProto) -> None:
        most = self._config.max_threads
        for name in ("inter_op_parallelism_threads", "intra_op_parallelism_threads"):
            if getattr(config, name) > most:
                raise errors.InvalidArgumentError(f"{name} may be at most {most} here, got {getattr(config, name)}")
        for kind, count in config.device_count.items():
            if count > _MAX_DEVICES:
                raise errors.InvalidArgumentError(f"device_count of {kind} may be at most {_MAX_DEVICES}, got {count}")

    async def open_configured(self) -> None:
        """Open the sessions that the configuration names.  Raises what reading and importing a graph raises."""
        for name, source in self._config.graphs.items():
            check_run_id(name)
            session = await run_in_thread(self._open, source, on_cancel=OnCancel.WAIT)
            if isinstance(session, ModelSession):
                await session.initialize()
            guarded = not self._config.allow_file_ops
            hosted = HostedSession(name, session, None, self._config.clock, guarded=guarded)
            hosted.keeps_clients_nodes = self._config.delegates is None
            self._add(hosted)
            logger.info("session %s has %d nodes", name, len(session.graph))

    def _open(self, source: GraphSource) -> aexec.Session:
        given = source() if callable(source) else source
        delegates = "auto" if self._config.delegates is None else self._config.delegates
        return aexec.Session(aexec.load(given), config=aexec.SessionConfig(delegates=delegates))

    async def delete(self, handle: str) -> None:
        """Cancel the session's runs, wait for them, and free what it holds.  Raises as `get`."""
        # Once begun it goes on, even if who asked for it goes away.
        await asyncio.shield(self._begin_close(self.get(handle)))

    def close_expired(self) -> list[str]:
        """Begin to close what nobody uses any more; returns the handles."""
        expired = [hosted for hosted in self if hosted.expired]
        for hosted in expired:
            logger.info("session %s was not used for %g s and is closed", hosted.handle, hosted.ttl)
            self._begin_close(hosted)
        return [hosted.handle for hosted in expired]

    def _begin_close(self, hosted: HostedSession) -> asyncio.Task[None]:
        del self._sessions[hosted.handle]
        task = asyncio.create_task(hosted.session.close(), name=f"close session {hosted.handle}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        if hosted.large and self._collection is None:
            # Later, when nothing refers to it any more, and once for several.
            self._collection = asyncio.get_running_loop().call_later(_COLLECT_AFTER, self._collect)
        return task

    def _collect(self) -> None:
        self._collection = None
        collect_garbage()

    def cancel_all(self, reason: str) -> None:
        """Cancel every run."""
        for hosted in self:
            hosted.runs.cancel_all(reason)

    async def close(self) -> None:
        """Close all sessions, and wait for those that are closing.  None can be made any more."""
        self._closed = True
        for hosted in self:
            self._begin_close(hosted)
        if self._closing:
            await asyncio.wait(self._closing)
        if self._collection is not None:
            self._collection.cancel()
            unfreeze_heap()
