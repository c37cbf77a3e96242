"""`HostedSession`: a session as HTTP clients use it.

Next to read: `handlers/session_calls.py` and `handlers/runs.py`, which work on these.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import aexec
from aexec import errors, proto
from aexec.hosting import BatchedCallable, CallableCache, can_be_batched
from aexec_server.clients.callers import Caller
from aexec_server.durable.durable_rules import check_durable
from aexec_server.durable.durable_session import DurableSession
from aexec_server.requests.partial_step import PartialStep
from aexec_server.requests.run_request import RunRequest
from aexec_server.requests.run_table import RunTable
from aexec_server.requests.served_call import ServedCall
from aexec_server.sessions.model_changes import what_changes_model
from aexec_server.sessions.op_rules import PlanGuard, Rule

__all__ = ["HostedSession"]


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

    def runs_at_once(self, served: ServedCall) -> bool:
        """True if runs of the call begin at once: they wait neither for other requests, nor for an earlier change of a
        durable session that could not be written.
        """
        return served.batched is None and (self.durable is None or not self.durable.failed)

    def ended_at_once(self, served: ServedCall) -> asyncio.Future[None] | None:
        """Note that a run of the call has ended, which began at once; return what its answer has to wait for.

        Returns:
            None if the answer may go out now; else a future that is done once what the answer tells of is on the disk.
            Its error is an OpError.
        """
        if self.durable is None:
            return None
        if self.changes(served):
            self.durable.touch()
        return self.durable.begin_settling()

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
