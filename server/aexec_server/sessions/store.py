"""`HostedSession`: a session as HTTP clients use it; `SessionStore`: makes, finds and closes the server's sessions.

Next to read: `handlers/session_calls.py` and `handlers/runs.py`, which work on these.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol
from weakref import WeakValueDictionary

import aexec
from aexec import errors, proto
from aexec.hosting import (
    BatchedCallable,
    CallableCache,
    LongWork,
    MemoryAccount,
    can_be_batched,
    collect_garbage,
    collector_paused,
    dispose,
    drop_large,
    keep_large,
    leave_undisposed,
    run_in_turns,
)
from aexec_server.clients.callers import Caller
from aexec_server.durable.durable_rules import NO_STORE, Durability, check_durable
from aexec_server.durable.durable_session import DurableSession
from aexec_server.durable.stored_session import StoredSession, WrittenSession
from aexec_server.handles import Handles, is_made, shortened
from aexec_server.http.lost_handles import HOST_ENDED, LostError, lost_by_restart
from aexec_server.requests.partial_step import PartialStep
from aexec_server.requests.run_request import RunRequest
from aexec_server.requests.run_table import RunTable
from aexec_server.requests.served_call import ServedCall
from aexec_server.sessions.model_changes import what_changes_model
from aexec_server.sessions.op_policy import OpPolicy
from aexec_server.sessions.op_rules import PlanGuard, Rule
from aexec_server.sessions.session_limits import NO_LIMITS, SessionLimits, session_shares
from aexec_server.settings.memory_limits import memory_limits
from aexec_server.settings.server_config import ServerConfig

__all__ = ["HostedSession", "NewSession", "SessionStore"]

logger = logging.getLogger(__name__)

_MAX_DEVICES = 64
# A graph above this size in bytes consists of tens of thousands of objects, which are kept from the garbage collector.
_LARGE_GRAPH = 256 * 1024
# Delay in seconds between closing a large session and collecting garbage, if the server is idle then.
_COLLECT_AFTER = 2.0
_MAX_TTL = 30 * 24 * 3600.0


class HostedSession:
    """A session with what the server knows of it besides.

    Attributes:
        handle: its name in paths.
        owner: name of the caller who made it; None for the server's own.
        client: the client whose share of sessions it counts in; None for the server's own, and once it closes.
        session: the session itself.
        runs: its runs by id; the versions of a model share one table.
        graph_version: number of times the graph was extended.
        ttl: seconds without use after which it is closed; None for never.
        requests: number of requests that are using it now.
        runs_admitted: number of runs in flight whose body has arrived.
        max_runs: limit of `runs_admitted`; None for the server's limit.
        large: True if its graph is kept from the garbage collector.
        owns_graph: True if its graph was made for it, and is freed with it.
        listed: True if every client may know that it exists.
        model: name of the model that it is a version of; empty for a client's session.
        durable: makes what is acknowledged durable; None for a session that ends with its process.
        batch: makes the batched form of a callable; its second argument says whether the call changes the session's
            state. None if requests are not batched.
        partial_steps: by key of their run, the steps that have not ended or whose end no client has been told.
        keeps_clients_nodes: True if nodes that clients add must not go to delegates.
    """

    def __init__(
        self,
        handle: str,
        session: aexec.Session,
        ttl: float | None,
        clock: Callable[[], float],
        *,
        large: bool = False,
        owns_graph: bool = False,
        owner: str | None = None,
        rules: Sequence[Rule] = (),
        rules_for_admins: Sequence[Rule] = (),
        runs: RunTable | None = None,
    ) -> None:
        self.handle = handle
        self.owner = owner
        self.client: str | None = None
        self.large = large
        self.owns_graph = owns_graph
        self._guard = PlanGuard(rules)
        self._guard_for_admins = PlanGuard(rules_for_admins)
        self.session = session
        self.runs = RunTable(clock) if runs is None else runs
        self.graph_version = 0
        self.listed = False
        self.model = ""
        self.durable: DurableSession | None = None
        self.batch: Callable[[aexec.SessionCallable, bool], BatchedCallable] | None = None
        self._change_guard = PlanGuard([what_changes_model])
        self.partial_steps: dict[str, PartialStep] = {}
        self.keeps_clients_nodes = False
        self.ttl = ttl
        self.requests = 0
        self._when_unused: Callable[[], object] | None = None
        self.runs_admitted = 0
        self.max_runs: int | None = None
        self._extending = asyncio.Lock()
        self._clock = clock
        self._used = clock()
        self._unused: asyncio.Event | None = None
        self._served: CallableCache[ServedCall] = CallableCache()

    def acquire(self) -> HostedSession:
        """Count a request: the session does not expire until `release`."""
        self.requests += 1
        return self

    def release(self) -> None:
        """End a request: the session's idle time starts anew."""
        self.requests -= 1
        self._used = self._clock()
        if self.requests:
            return
        if self._unused is not None:
            self._unused.set()
        if self._when_unused is not None:
            self._when_unused()

    def touch(self) -> None:
        """Restart the idle time, for a request that has ended."""
        self._used = self._clock()

    async def unused(self) -> None:
        """Wait until no request uses the session."""
        if self.requests:
            self._unused = self._unused or asyncio.Event()
            await self._unused.wait()

    def when_unused(self, call: Callable[[], object]) -> None:
        """Call `call` once no request uses the session, at once if none does now.  It must no longer be in the
        store.
        """
        if self.requests:
            self._when_unused = call
        else:
            call()

    @contextmanager
    def in_use(self) -> Iterator[HostedSession]:
        """Context manager of `acquire` and `release`."""
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

    def runs_owner(self, caller: Caller) -> str:
        """Return the owner of the caller's runs here: the caller in a session that all use, else the session's
        owner.
        """
        return caller.name if self.owner is None else self.owner

    def served_call(
        self, feeds: frozenset[str], fetches: tuple[str, ...], targets: tuple[str, ...], *, by_admin: bool = False
    ) -> ServedCall:
        """Return the resolved call for these names, from a cache; the order of the feeds does not matter.

        Args:
            feeds: names of tensors.
            by_admin: allow changes of the server's own state.

        Raises:
            NotFoundError, InvalidArgumentError: as `Session.make_callable`.
            PermissionDeniedError: it would reach for files or change the server's own state, which the caller may not.
        """
        key = (feeds, fetches, targets, by_admin)
        return self._served.get(key) or self._remember(
            key, ServedCall(self.session, tuple(sorted(feeds)), fetches, targets), by_admin=by_admin
        )

    def served(self, asked: RunRequest, *, by_admin: bool = False) -> ServedCall:
        """Return the resolved call for a request.  If it names no outputs, they are set to all outputs of the
        signature.
        """
        if asked.by_signature:
            served = self.served_signature(asked.signature, frozenset(asked.feeds), asked.fetches, by_admin=by_admin)
        else:
            served = self.served_call(frozenset(asked.feeds), asked.fetches or (), asked.targets, by_admin=by_admin)
        if asked.fetches is None:
            asked.name_outputs(served.names)
        return served

    def served_signature(
        self,
        name: str | None,
        inputs: frozenset[str],
        outputs: tuple[str, ...] | None,
        *,
        by_admin: bool = False,
    ) -> ServedCall:
        """Like `served_call`, with the names of a signature.

        Args:
            name: as `Session.signature` takes it.
            inputs: names of all its inputs.
            outputs: names of some of its outputs, in the order of the answer; None for all.
            by_admin: as of `served_call`.

        Raises:
            NotFoundError, InvalidArgumentError: as `Session.call`.
            PermissionDeniedError: as `served_call`.
        """
        # The version is part of the key because an extension may change the signature of a graph that has none of its
        # own.
        key = (self.graph_version, name, inputs, outputs, by_admin)
        served = self._served.get(key)
        if served is None and outputs is None:
            names = tuple(self.session.signature(name).outputs)
            served = self._served.remember(key, self.served_signature(name, inputs, names, by_admin=by_admin))
        return served or self._remember(key, self._signature_call(name, inputs, outputs or ()), by_admin=by_admin)

    def _signature_call(self, name: str | None, inputs: frozenset[str], names: tuple[str, ...]) -> ServedCall:
        signature = self.session.signature(name)
        fetches = signature.fetches(names)
        feeds = tuple(signature.feeds(dict.fromkeys(inputs)))
        tensors = tuple([fetches[name] for name in names])
        served = ServedCall(self.session, feeds, tensors, (), tuple(signature.inputs), names)
        if self.batch is not None and signature.inputs:
            infos = (*signature.inputs.values(), *[signature.outputs[n] for n in names])
            if all(can_be_batched(info.shape) for info in infos):
                changes = self._change_guard.refusal(self.session.graph, served.call) is not None
                served.batched = self.batch(served.call, changes)
        return served

    def _remember(self, key: Hashable, served: ServedCall, *, by_admin: bool) -> ServedCall:
        guard = self._guard_for_admins if by_admin else self._guard
        guard.check(self.session.graph, served.call)
        self._served.remember(key, served)
        return served

    def changes(self, served: ServedCall) -> bool:
        """True if runs of the call may change the session's state."""
        if served.changes is None:
            served.changes = self._change_guard.refusal(self.session.graph, served.call) is not None
        return served.changes

    def answers_at_once(self, served: ServedCall) -> bool:
        """True if answers to runs of the call wait neither for other requests nor for the disk."""
        if served.batched is not None:
            return False
        return self.durable is None or (self.durable.settled and not self.changes(served))

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Context manager of a request that changes the session's state: a durable one is written at its end.

        Raises:
            OpError: the state cannot be written.
        """
        durable = self.durable
        if durable is None:
            yield
            return
        await durable.check()
        durable.begin_change()
        try:
            yield
        except BaseException:
            durable.end_change()
            durable.settle_later()
            raise
        durable.end_change()
        await durable.settle()

    @asynccontextmanager
    async def taking(self) -> AsyncIterator[None]:
        """Context manager of a request that takes elements: within it they are taken and written, and put back if that
        fails.  Raises OpError if the last write failed, and fails again.
        """
        durable = self.durable
        if durable is not None:
            await durable.check()
        try:
            yield
        except BaseException:
            if durable is not None:
                durable.touch()
                durable.settle_later()
            raise

    async def settled(self) -> None:
        """Return once what can be seen of a durable session is on the disk; at once for another.  Raises OpError."""
        if self.durable is not None:
            await self.durable.settle()

    def forget_calls(self) -> None:
        """Clear the cache of calls before the session closes; runs that have one go on with it."""
        self._served.clear()

    async def extend(self, graph_def: proto.FlatGraphDef, version: int | None) -> int:
        """Add nodes to the graph and return its new version.

        Raises:
            FailedPreconditionError: `version` is not None and not the graph's version.
        """
        # Shielded: if the client leaves, the extension still completes, so that graph and version stay together.
        return await asyncio.shield(asyncio.create_task(self._extend(graph_def, version)))

    async def _extend(self, graph_def: proto.FlatGraphDef, version: int | None) -> int:
        async with self._extending:
            if version not in (None, self.graph_version):
                raise errors.FailedPreconditionError(
                    f"Current version is {self.graph_version} but caller expected {version}."
                )
            if self.keeps_clients_nodes:
                self.session.stop_delegating()
            written = None
            if self.durable is not None:
                check_durable(graph_def)
                written = await asyncio.to_thread(graph_def.SerializeToString)
            await self.session.extend(graph_def)
            self.graph_version += 1
            if self.durable is not None and written is not None:
                self.durable.add_graph(self.graph_version, written)
            return self.graph_version

    def __repr__(self) -> str:
        return f"<HostedSession {self.handle} {self.session!r}, {self.runs!r}>"


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session that a client asks for.

    Attributes:
        graph_def: its graph.
        config: its settings.
        ttl: seconds without use after which it is closed; None for the server's default.
        name: its name; None for a handle that nobody can guess.
        limits: limits of the session within the server's.
        durability: whether answers wait until changes are on the disk; None for a session that is not durable.
    """

    graph_def: proto.FlatGraphDef
    config: proto.ConfigProto
    ttl: float | None
    name: str | None = None
    limits: SessionLimits = NO_LIMITS
    durability: Durability | None = None


@dataclass(slots=True)
class _Made:
    """A session that has been made, before it has a handle."""

    session: aexec.Session
    ttl: float | None
    name: str | None
    limits: SessionLimits
    written: WrittenSession | None


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

    async def flush(self) -> None: ...


class SessionStore:
    """All sessions of a server, by handle.

    Attributes:
        why_gone: returns what became of the session of an unknown handle, None if that is not known.
        handles: makes the handles of sessions.
        memory: account of all sessions together.
        shares: counts each client's sessions, including those being made.
        durable: the durable sessions; None if there is no store.
        on_change: called when a request for a session ends, when one for a named session comes, and when a session has
            closed.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.why_gone: Callable[[str], str | None] = lambda handle: None
        self._config = config
        self.handles = Handles(config.handle_prefix, config.server_run)
        self._policy = OpPolicy(config.allow_ops, config.trust_graphs)
        self._limits = memory_limits(config)
        self.shares = session_shares(config)
        self.memory = MemoryAccount("server", "ServerConfig.max_memory_bytes", self._limits.server)
        self._accounts: WeakValueDictionary[str, MemoryAccount] = WeakValueDictionary()  # by name of their owner
        self._sessions: dict[str, HostedSession] = {}
        self._retired: set[HostedSession] = set()
        self._being_made = 0
        self._asked_for: Counter[str | None] = Counter()  # pending requests for a session, by its name
        self.on_change: Callable[[], object] = lambda: None
        self.durable: SessionKeeper | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False
        self._collection: asyncio.TimerHandle | None = None

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
        """
        hosted = self._sessions.get(handle)
        if hosted is None or not caller.sees(hosted.owner):
            raise self._not_found(handle)
        return hosted

    def _not_found(self, handle: str) -> errors.NotFoundError:
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
                self._free(hosted.session, large=hosted.large)
                raise
            return self._add(hosted)

    async def _create(
        self, decode: Callable[[], NewSession], size: int, caller: Caller, stored: StoredSession | None = None
    ) -> HostedSession:
        large = size > _LARGE_GRAPH
        made: list[_Made] = []
        account = self._account_of(caller)

        def make() -> None:
            made.append((self._make_large if large else self._make)(decode, account))

        try:
            async with asyncio.timeout(self._config.max_timeout):
                await run_in_turns(make, LongWork())
        except BaseException as error:
            if made:  # made just as the request was cancelled
                self._free(made[0].session, large=large)
            if not isinstance(error, TimeoutError):
                raise
            raise errors.DeadlineExceededError(
                f"The session was not made within {self._config.max_timeout:g} s, the most that this server allows"
            ) from None
        new = made[0]
        handle = self.handles.new() if new.name is None else new.name
        taken = handle in self._sessions or (stored is None and self.durable is not None and handle in self.durable)
        if self._closed or taken:
            self._free(new.session, large=large)
            if self._closed:
                raise errors.UnavailableError("The server is shutting down")
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

    def _account_of(self, caller: Caller) -> MemoryAccount:
        """Return the account that counts the memory of all of a caller's sessions."""
        most = caller.quotas.memory_bytes
        if most is None:
            return self.memory
        account = self._accounts.get(caller.name)
        if account is None:
            account = self._accounts[caller.name] = MemoryAccount("token", "max_memory_mb", most, self.memory)
        account.limit = most
        return account

    def _add(self, hosted: HostedSession) -> HostedSession:
        self._sessions[hosted.handle] = hosted
        return hosted

    def _make(self, decode: Callable[[], NewSession], account: MemoryAccount) -> _Made:
        new = decode()
        ttl = self._config.session_ttl_s if new.ttl is None else new.ttl
        if new.ttl is not None and not 0 < new.ttl <= _MAX_TTL:
            raise errors.InvalidArgumentError(f'"ttl_s" must be positive and at most {_MAX_TTL:g}, got {new.ttl:g}')
        self._check_config(new.config)
        most = SessionLimits(
            self._config.max_session_runs or self._config.max_runs,
            self._limits.session,
            self._limits.run,
            self._config.max_kept_bytes,
        )
        limits = new.limits.within(most)
        # A limit of the session counts more exactly than those of all sessions.
        own = [n for n in (limits.max_memory_bytes, None if account is self.memory else account.limit) if n is not None]
        config = replace(
            aexec.SessionConfig.from_proto(new.config),
            check_feed_shapes=False,
            session_tensor_bytes=limits.max_kept_bytes,
            step_bytes=limits.max_run_bytes,
            session_bytes=min(own, default=None),
            memory_account=account,
            max_image_pixels=self._config.max_image_pixels,
            printed_bytes=self._config.print_rate,
            log_device_placement=False,
            delegates=self._config.delegates or (),
        )
        self.check_graph(new.graph_def)
        written = None
        if new.durability is not None:
            if self.durable is None:
                raise errors.FailedPreconditionError(NO_STORE)
            written = self.durable.check(new, config)
        session = aexec.Session(aexec.Graph.from_graph_def(new.graph_def), config=config)
        return _Made(session, ttl, new.name, limits, written)

    def _make_large(self, decode: Callable[[], NewSession], account: MemoryAccount) -> _Made:
        with collector_paused():
            made = self._make(decode, account)
            keep_large()
        return made

    def limited(self, config: aexec.SessionConfig) -> aexec.SessionConfig:
        """Return the settings with the memory limits of clients' sessions."""
        return replace(config, step_bytes=self._limits.run, session_bytes=self._limits.session)

    def check_graph(self, graph_def: proto.GraphDef | proto.FlatGraphDef) -> None:
        """Raise PermissionDeniedError if clients may not run a graph."""
        self._policy.check(graph_def)

    def _check_config(self, config: proto.ConfigProto) -> None:
        most = self._config.max_threads
        for name in ("inter_op_parallelism_threads", "intra_op_parallelism_threads"):
            if getattr(config, name) > most:
                raise errors.InvalidArgumentError(f"{name} may be at most {most} here, got {getattr(config, name)}")
        for kind, count in config.device_count.items():
            if count > _MAX_DEVICES:
                raise errors.InvalidArgumentError(f"device_count of {kind} may be at most {_MAX_DEVICES}, got {count}")

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

    def rules_for_models(self, *, by_admin: bool) -> list[Rule]:
        """Return the rules for runs of clients in the server's own graphs."""
        return self._policy.rules_for_models(by_admin or self._config.allow_model_changes)

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
            hosted.when_unused(lambda: self._free(hosted.session, large=hosted.large))

    def _free(self, session: aexec.Session, *, large: bool) -> None:
        """Free the graph that was made for a session, which is closed or was never used."""
        dispose(session.graph, nodes=len(session.graph))
        if large:
            drop_large()
            self._collect_later()

    def _collect_later(self) -> None:
        if self._collection is None and not self._closed:
            self._collection = asyncio.get_running_loop().call_later(_COLLECT_AFTER, self._collect)

    def _collect(self) -> None:
        """Collect the garbage that was frozen with large graphs, once the server is idle."""
        self._collection = None
        if self.idle:
            collect_garbage()
        else:
            self._collect_later()

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
        leave_undisposed()
        if self._collection is not None:
            self._collection.cancel()
