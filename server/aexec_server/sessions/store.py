"""The sessions that the server holds: `HostedSession`, and `SessionStore` that makes, finds and closes them.

Next to read: `handlers/session_calls.py` and `handlers/runs.py`, which work on these.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
# Graphs of more bytes have some ten thousands of objects, which the garbage collector need not look at.
_LARGE_GRAPH = 256 * 1024
# Seconds after which a server that has nothing else to do looks for garbage, when a large session was closed.
_COLLECT_AFTER = 2.0
_MAX_TTL = 30 * 24 * 3600.0


class HostedSession:
    """A session with what HTTP adds to it.

    Attributes:
        handle: its name in paths.
        owner: the name of the caller who made it; None for the server.
        client: in whose share of the sessions it is; None for the server's own, and once it closes.
        session: itself.
        runs: by id; versions of a model share them.
        graph_version: how often it was extended.
        ttl: seconds without use after which it is closed; None for never.
        requests: those that use it at this moment.
        runs_admitted: runs in flight whose body is there.
        max_runs: so many of them there may be; None for what the server takes of any session.
        large: its graph is out of the garbage collector's sight.
        owns_graph: its graph was made for it.
        listed: whoever asks is told that it is there.
        model: name of the model that it is a version of; empty for a client's session.
        batch: makes calls by signature such as are joined with others, told whether they change what the session
            keeps; None for not.
        partial_steps: by the key of their run, those that have not ended, or whose end nobody has been told of.
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
        """It does not expire until `release`."""
        self.requests += 1
        return self

    def release(self) -> None:
        """Its age begins anew."""
        self.requests -= 1
        self._used = self._clock()
        if self.requests:
            return
        if self._unused is not None:
            self._unused.set()
        if self._when_unused is not None:
            self._when_unused()

    def touch(self) -> None:
        """It was used just now, by a request that is over."""
        self._used = self._clock()

    async def unused(self) -> None:
        """Wait until no request uses it."""
        if self.requests:
            self._unused = self._unused or asyncio.Event()
            await self._unused.wait()

    def when_unused(self, call: Callable[[], object]) -> None:
        """Call this when no request uses it any more; nobody finds it any more."""
        if self.requests:
            self._when_unused = call
        else:
            call()

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

    def runs_owner(self, caller: Caller) -> str:
        """To whom the caller's runs belong: where all use the session, to who asks for them."""
        return caller.name if self.owner is None else self.owner

    def served_call(
        self, feeds: frozenset[str], fetches: tuple[str, ...], targets: tuple[str, ...], *, by_admin: bool = False
    ) -> ServedCall:
        """What such a run needs, looked up once: one for all orders in which feeds can be named.

        Args:
            feeds: names of tensors.
            by_admin: what changes what is the server's own is allowed.

        Raises:
            NotFoundError, InvalidArgumentError: as `Session.make_callable`.
            PermissionDeniedError: it would reach for files, or change what is the server's own, and may not.
        """
        key = (feeds, fetches, targets, by_admin)
        return self._served.get(key) or self._remember(
            key, ServedCall(self.session, tuple(sorted(feeds)), fetches, targets), by_admin=by_admin
        )

    def served(self, asked: RunRequest, *, by_admin: bool = False) -> ServedCall:
        """What a request needs; all outputs of a signature are named in it from now on, if it names none."""
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
        """The same by a signature's own names.

        Args:
            name: as `Session.signature` takes it.
            inputs: names of all its inputs.
            outputs: names of some of its outputs, in the order of the answer; None for all.
            by_admin: as of `served_call`.

        Raises:
            NotFoundError, InvalidArgumentError: as `Session.call`.
            PermissionDeniedError: as `served_call`.
        """
        # An extension may change the signature of a graph that has none of its own.
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

    def forget_calls(self) -> None:
        """Its session is about to close: whoever has a call goes on with it, but nobody will find one."""
        self._served.clear()

    async def extend(self, graph_def: proto.FlatGraphDef, version: int | None) -> int:
        """Add nodes to the graph of this version, or of whichever it has; returns the new version.

        Raises:
            FailedPreconditionError: `version` is not the graph's.
        """
        # Once begun it goes on if the client leaves, so that graph and version stay together.
        return await asyncio.shield(asyncio.create_task(self._extend(graph_def, version)))

    async def _extend(self, graph_def: proto.FlatGraphDef, version: int | None) -> int:
        async with self._extending:
            if version not in (None, self.graph_version):
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
    """What a client asks for.

    Attributes:
        graph_def: what to run.
        config: settings.
        ttl: seconds without use after which it is closed; None for the server's default.
        name: what it is to be called; None for a handle that nobody can guess.
        limits: of what it may have.
    """

    graph_def: proto.FlatGraphDef
    config: proto.ConfigProto
    ttl: float | None
    name: str | None = None
    limits: SessionLimits = NO_LIMITS


@dataclass(slots=True)
class _Made:
    """A session as a client asks for it."""

    session: aexec.Session
    ttl: float | None
    name: str | None
    limits: SessionLimits


class SessionStore:
    """All sessions of a server, by handle.

    Attributes:
        why_gone: says of a handle that is not found what became of it, if that is known.
        handles: makes those of sessions.
        memory: of all sessions together.
        shares: of the sessions that clients have, with those that are being made.
        on_change: called when a request for a session has ended, or has come if it names the session, and when a
            session was closed.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.why_gone: Callable[[str], str | None] = lambda handle: None
        self._config = config
        self.handles = Handles(config.handle_prefix, config.server_run)
        self._policy = OpPolicy(config.allow_ops, config.trust_graphs)
        self._limits = memory_limits(config)
        self.shares = session_shares(config)
        self.memory = MemoryAccount("server", "ServerConfig.max_memory_bytes", self._limits.server)
        self._accounts: WeakValueDictionary[str, MemoryAccount] = WeakValueDictionary()  # of owners
        self._sessions: dict[str, HostedSession] = {}
        self._retired: set[HostedSession] = set()
        self._being_made = 0
        self._asked_for: Counter[str | None] = Counter()  # requests for a session of this name
        self.on_change: Callable[[], object] = lambda: None
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
        """A session that the caller may use.

        Raises:
            NotFoundError: a handle that was never given out, whose session was closed, or is another's.
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
        """What sessions keep under handles."""
        return sum(hosted.session.tensors.num_bytes for hosted in self)

    @property
    def live_runs(self) -> int:
        return sum(len(runs.live) for runs in self._run_tables())

    @property
    def held(self) -> int:
        """Sessions that are open or closing, and requests for sessions."""
        return len(self._sessions) + self._asked_for.total() + len(self._closing)

    @contextmanager
    def asked_for(self, name: str | None) -> Iterator[None]:
        """A request asks for a session, of this name if it has one."""
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
        """Those that clients gave to sessions, or ask for."""
        given = {h.handle for h in self if not h.listed and not is_made(h.handle)}
        return sorted(given.union([name for name in self._asked_for if name is not None]))

    @property
    def idle(self) -> bool:
        """Is nothing run, and no session made?"""
        return not (self._being_made or self.live_runs)

    def _run_tables(self) -> set[RunTable]:
        return {hosted.runs for hosted in (*self._sessions.values(), *self._retired)}

    async def create(self, decode: Callable[[], NewSession], size: int, caller: Caller) -> HostedSession:
        """Make a session, in a thread and in turns with others: importing a large graph takes seconds.

        Cancelled, or when `max_timeout` is over, the import ends soon.

        Args:
            decode: gives what the client asks for.
            size: bytes of which it makes them.
            caller: to whom it will belong.

        Raises:
            ResourceExhaustedError: too many sessions, of all or of the caller.
            InvalidArgumentError: no graph, or settings that are not possible.
            NotFoundError: an op that is not registered.
            PermissionDeniedError: an op that clients may not use.
            DeadlineExceededError: it took longer than requests may.
            AlreadyExistsError: the name is taken.
        """
        self.shares.take(caller, quota=caller.quotas.sessions)
        self._being_made += 1
        try:
            hosted = await self._create(decode, size, caller)
        except BaseException:
            self.shares.give_back(caller.client)
            raise
        finally:
            self._being_made -= 1
        return self._add(hosted)

    async def _create(self, decode: Callable[[], NewSession], size: int, caller: Caller) -> HostedSession:
        large = size > _LARGE_GRAPH
        made: list[_Made] = []
        account = self._account_of(caller)

        def make() -> None:
            made.append((self._make_large if large else self._make)(decode, account))

        try:
            async with asyncio.timeout(self._config.max_timeout):
                await run_in_turns(make, LongWork())
        except BaseException as error:
            if made:  # just when nobody wanted it any more
                self._free(made[0].session, large=large)
            if not isinstance(error, TimeoutError):
                raise
            raise errors.DeadlineExceededError(
                f"The session was not made within {self._config.max_timeout:g} s, the most that this server allows"
            ) from None
        new = made[0]
        handle = self.handles.new() if new.name is None else new.name
        if self._closed or handle in self._sessions:
            self._free(new.session, large=large)
            if self._closed:
                raise errors.UnavailableError("The server is shutting down")
            raise errors.AlreadyExistsError(f"There is a session '{handle}' already")
        hosted = HostedSession(
            handle, new.session, new.ttl, self._config.clock, large=large, owns_graph=True, owner=caller.name
        )
        hosted.client = caller.client
        hosted.max_runs = new.limits.max_runs
        return hosted

    def _account_of(self, caller: Caller) -> MemoryAccount:
        """What counts the memory of all of a caller's sessions."""
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
        # A session that has less counts more exactly.
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
        session = aexec.Session(aexec.Graph.from_graph_def(new.graph_def), config=config)
        return _Made(session, ttl, new.name, limits)

    def _make_large(self, decode: Callable[[], NewSession], account: MemoryAccount) -> _Made:
        with collector_paused():
            made = self._make(decode, account)
            keep_large()
        return made

    def limited(self, config: aexec.SessionConfig) -> aexec.SessionConfig:
        """The settings, with the limits of memory that clients' sessions have."""
        return replace(config, step_bytes=self._limits.run, session_bytes=self._limits.session)

    def check_graph(self, graph_def: proto.GraphDef | proto.FlatGraphDef) -> None:
        """Raise PermissionDeniedError if clients may not run such a graph."""
        self._policy.check(graph_def)

    def _check_config(self, config: proto.ConfigProto) -> None:
        most = self._config.max_threads
        for name in ("inter_op_parallelism_threads", "intra_op_parallelism_threads"):
            if getattr(config, name) > most:
                raise errors.InvalidArgumentError(f"{name} may be at most {most} here, got {getattr(config, name)}")
        for kind, count in config.device_count.items():
            if count > _MAX_DEVICES:
                raise errors.InvalidArgumentError(f"device_count of {kind} may be at most {_MAX_DEVICES}, got {count}")

    # The server's own

    def put(self, handle: str, hosted: HostedSession) -> None:
        """Call a session so from now on, and not as it was called before; a client's of that name is closed."""
        self._take(hosted)
        other = self._sessions.get(handle)
        if other is not None and other.owns_graph:
            logger.info("session %s is closed: the server has a model of that name now", handle)
            self._begin_close(other)
        hosted.handle = handle
        self._sessions[handle] = hosted

    def retire(self, hosted: HostedSession) -> None:
        """It is not found any more; what runs in it may go on until `close_retired`."""
        self._take(hosted)
        self._retired.add(hosted)

    async def close_retired(self, hosted: HostedSession) -> None:
        """Cancel what runs in a session, wait for that, and free what it holds."""
        self._retired.discard(hosted)
        await asyncio.shield(self._begin_close(hosted))

    def _take(self, hosted: HostedSession) -> None:
        if self._sessions.get(hosted.handle) is hosted:
            del self._sessions[hosted.handle]

    def rules_for_models(self, *, by_admin: bool) -> list[Rule]:
        """What clients may not run in a graph of the server's own."""
        return self._policy.rules_for_models(by_admin or self._config.allow_model_changes)

    async def delete(self, hosted: HostedSession) -> None:
        """Cancel the session's runs, wait for them, and free what it holds."""
        # Once begun it goes on, even if who asked for it goes away.
        await asyncio.shield(self._begin_close(hosted))

    def close_expired(self) -> list[str]:
        """Begin to close what nobody uses any more; returns the handles."""
        expired = [hosted for hosted in self if hosted.expired]
        for hosted in expired:
            logger.info("session %s was not used for %g s and is closed", shortened(hosted.handle), hosted.ttl)
            self._begin_close(hosted)
        return [hosted.handle for hosted in expired]

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
        """Take a graph apart that was made for a session, which is closed or was never used."""
        dispose(session.graph, nodes=len(session.graph))
        if large:
            drop_large()
            self._collect_later()

    def _collect_later(self) -> None:
        if self._collection is None and not self._closed:
            self._collection = asyncio.get_running_loop().call_later(_COLLECT_AFTER, self._collect)

    def _collect(self) -> None:
        """What little garbage was frozen with large graphs is freed when there are none, and nobody waits."""
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
        """Close all sessions, and wait for those that are closing.  None can be made any more."""
        self._closed = True
        for hosted in self:
            self._begin_close(hosted)
        if self._closing:
            await asyncio.wait(self._closing)
        leave_undisposed()
        if self._collection is not None:
            self._collection.cancel()
