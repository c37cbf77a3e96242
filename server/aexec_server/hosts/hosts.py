"""`Hosts`: all session hosts of a server: those of clients' sessions, and one for its models.

`host_places.py` chooses the host of a new session and the number of hosts, `host_watch.py` kills a host that is silent
or has too much memory, `host_limits.py` has the limits.  The sessions of a host end with it; `why_gone` tells clients
why.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import multiprocessing
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aexec
from aexec import errors
from aexec_server.clients.callers import NO_QUOTAS, Caller, Quotas
from aexec_server.durable.store_opening import give_up_when_wanted
from aexec_server.handles import Handles, check_name
from aexec_server.hosts.host_limits import HostLimits
from aexec_server.hosts.host_names import HostNames
from aexec_server.hosts.host_places import OwnPlaces, Places, SharedPlaces
from aexec_server.hosts.host_totals import HostTotals, largest_shares
from aexec_server.hosts.host_watch import LOOK_SECONDS, HostWatch
from aexec_server.hosts.relay import Upstream
from aexec_server.hosts.session_host import SessionHost
from aexec_server.hosts.spent_keys import SpentKeys
from aexec_server.hosts.stored_later import StoredLater
from aexec_server.hosts.stored_sessions import StoredSessions
from aexec_server.http.idempotency import ForgottenError
from aexec_server.http.not_begun import HandedOverError
from aexec_server.sessions.durable_sessions import make_store
from aexec_server.sessions.session_limits import session_shares
from aexec_server.settings.model_source import GraphSource
from aexec_server.settings.server_config import ServerConfig
from aexec_server.watching.activity import OtherProcesses
from aexec_server.watching.metrics import Snapshot, merged

__all__ = ["Hosts"]

logger = logging.getLogger(__name__)

# The pause before the next host, if one ended before it was ready; it doubles each time.
_RETRY_SECONDS = 0.1
_MAX_RETRY_SECONDS = 10.0
_POLL_SECONDS = 0.02
# Seconds in which hosts may end by themselves, after their runs were cancelled, or if they are empty.
_GRACE_SECONDS = 2.0
_MAX_GONE = 10_000
_PRELOAD = "aexec_server.hosts.host_preload"
_RPC_PRELOAD = "aexec_server.rpc.services"
# No session is made while all hosts together use more than this part of their memory limit.
_FULL_SHARE = 0.9


class Hosts:
    """The session hosts of a server: starts, finds and ends them.

    Args:
        config: the server's settings.
        folder: the folder for their sockets, closed to other users.

    Attributes:
        models: the host of the configured graphs; None if there is none.
        limits: the number of hosts, and their limits.
        stored: the durable sessions; None if there is no store.
    """

    def __init__(self, config: ServerConfig, folder: Path) -> None:
        self.models: SessionHost | None = None
        self.limits = limits = HostLimits.of(config)
        self._config = config
        self._folder = folder
        self._numbers = itertools.count(1)
        self._by_name: dict[str, SessionHost] = {}  # live hosts that were not told to end as idle
        self._places: Places[SessionHost] = (
            OwnPlaces(limits.most, limits.warm, self._new_session_host, self._end, time.monotonic)
            if limits.own
            else SharedPlaces(limits.most, self._new_session_host)
        )
        self._names = HostNames()
        self._handles = Handles("", config.server_run)
        self.stored = (
            None
            if config.state_path is None
            else StoredSessions(
                make_store(config, is_owner=True), config.session_ttl_s, config.clock, waits=config.reuse_port
            )
        )
        self._sweeping: asyncio.Task[None] | None = None
        self._spent = SpentKeys()
        self._shares = session_shares(config)
        self._memory_quotas: dict[str, int] = {}  # by client, for those with a quota
        self._totals = HostTotals()
        self._watch = HostWatch(config.host_silence_seconds, limits.most_bytes, self._tensors_allowed, time.monotonic)
        self._gone: OrderedDict[str, str] = OrderedDict()
        self._lives: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._retry = _RETRY_SECONDS
        self._retrying: asyncio.TimerHandle | None = None
        self._stopping = False
        self._model_config: ServerConfig | None = None
        try:
            self._context = multiprocessing.get_context("forkserver")
        except ValueError:
            raise errors.UnimplementedError("Session hosts need a system that can fork; hosts must be 0") from None
        rpc = [] if config.grpc_port is None else [_RPC_PRELOAD]
        self._context.set_forkserver_preload([_PRELOAD, *rpc])

    # Choosing a host

    def for_new(self, caller: Caller, name: str | None, key: bytes | None) -> SessionHost:
        """The host for a request for a new session; the session is counted for it.

        Args:
            caller: the caller; with hosts of their own, no two clients share one.
            name: the session's name, or None.
            key: the key by which the request may come again, or None.

        Raises:
            InvalidArgumentError: the name is malformed.
            ForgottenError: the request with this key was carried out in a host that has ended.
            AlreadyExistsError: another client's session has the name.
            ResourceExhaustedError, UnavailableError: the client may not have another session now.
        """
        client = caller.client
        if name is not None and self.stored is not None and self.stored.owner_of(name) is not None:
            raise errors.AlreadyExistsError(f"There is a session '{name}' already")
        named = None if name is None else self._names.find(check_name(name))
        if named is not None and named.client not in (None, client):
            raise errors.AlreadyExistsError(f"There is a session '{name}' already")
        known = None if key is None else self._keyed(client, key)
        host = named or known or self._place(caller)
        host.count_session(key)
        if name is not None and named is None:
            self._names.reserve(name, host)
        return host

    def _keyed(self, client: str, key: bytes) -> SessionHost | None:
        """The host that answered an earlier request with this key, or None."""
        if (client, key) in self._spent:
            raise ForgottenError("The request of this Idempotency-Key was carried out, and its session has ended")
        return next((host for host in self._places.of_client(client) if key in host.keys), None)

    def _place(self, caller: Caller) -> SessionHost:
        if self.limits.own:
            self._check_room(caller)
            if caller.quotas.memory_bytes is not None:
                self._memory_quotas[caller.client] = caller.quotas.memory_bytes
        return self._places.take(caller.client)  # a replacement is started when this request no longer waits

    def _check_room(self, caller: Caller) -> None:
        """Raise if the caller may have no further session.  A host cannot tell, as it knows its own client alone."""
        held: Counter[str] = Counter()
        for host in self._places:
            if host.client is not None:
                held[host.client] += host.sessions
        self._shares.held, self._shares.in_use = dict(held), held.total()
        self._shares.check(caller, quota=caller.quotas.sessions)
        most = self.limits.most_bytes
        if most is not None and self._watch.own_bytes > _FULL_SHARE * most:
            raise errors.UnavailableError(
                f"All hosts have {self._watch.own_bytes >> 20} MB of memory, and may have {most >> 20}: try again later"
            )

    def of_stored(self, handle: str, caller: Caller) -> SessionHost | None:
        """The host of a durable session that the caller may use: the one that has it open, or one that is to open it.

        None for any other session.

        Raises:
            HandedOverError: another server takes it over.
            OpError: the client may not have another session now.
        """
        stored = self.stored
        owner = None if stored is None else stored.owner_of(handle)
        if stored is None or owner is None or not caller.sees(owner):
            return None
        if stored.given_up:
            raise HandedOverError
        host = stored.host_of(handle)
        if host is None:
            if self.limits.own:
                self._check_room(caller)
            # The host of the session's owner, also if an admin asks for it.
            host = self._places.take(owner or caller.client)
            host.count_session()
            stored.place(handle, host)
        assert isinstance(host, SessionHost)
        return host

    def of_stored_later(self, handle: str, caller: Caller, here: Upstream) -> Upstream:
        """The upstream of an unknown session, which may be one of a store that is not open yet; `here` otherwise."""
        if self.stored is None or self.stored.opening.done or self.stored.given_up:
            return here
        opening = self.stored.opening
        return StoredLater(opening, partial(opening.find, handle), caller, partial(self._chosen, caller, here))

    def of_operation(self, operation_id: str, caller: Caller, here: Upstream) -> Upstream:
        """The upstream of an operation: its host, or the one of its session if the store keeps it; `here` otherwise."""
        host = self.of(operation_id)
        if self.stored is None or self.stored.given_up:
            return host or here
        if host is not None and not self._handles.is_of_another_run(operation_id):
            return host
        opening = self.stored.opening
        find = partial(opening.find_of_operation, operation_id)
        return StoredLater(opening, find, caller, partial(self._chosen, caller, here))

    def _chosen(self, caller: Caller, here: Upstream, handle: str | None) -> Upstream:
        return (None if handle is None else self.of_stored(handle, caller)) or here

    @property
    def hand_over(self) -> Callable[[Callable[[], bool]], Coroutine[Any, Any, None]] | None:
        """Gives the store up to another server that waits for it; None if there is no store."""
        return None if self.stored is None else partial(give_up_when_wanted, self.stored.store, self.give_up_store)

    def of(self, handle: str) -> SessionHost | None:
        """The host that made a handle, of a session or an operation; None if it is gone or never was."""
        return self._by_name.get(handle.partition("-")[0])

    def of_name(self, name: str) -> SessionHost | None:
        """The host of the client's session with this name, or None."""
        return self._names.find(name)

    def of_client(self, caller: Caller) -> list[SessionHost]:
        """The hosts with sessions of the caller's."""
        return [host for host in self._places.of_client(caller.client) if host.ready]

    def why_gone(self, handle: str) -> str | None:
        """Why a session ended with its host; None if it did not."""
        name, separator, _ = handle.partition("-")
        return (
            f"Session {handle[:80]} is gone: its host {self._gone[name]}" if separator and name in self._gone else None
        )

    def metrics(self, front: Snapshot) -> Snapshot:
        """The metrics of all processes, ended hosts included, as of some tenths of a second ago.

        Args:
            front: the metrics of this process.
        """
        kind = (self._shares.kind,)
        own: Snapshot = {
            "aexec_hosts": {(): sum(host.ready for host in self._by_name.values())},
            "aexec_host_restarts": {(): self._totals.restarts},
            "aexec_shared_refusals": {kind: self._shares.refused},
        }
        hosts = self._by_name.values()
        of_all = merged([front, own, *self._totals.metrics(hosts)])
        # All hosts share one limit of sessions, and each reports it.
        limits = {**of_all.get("aexec_shared_limit", {}), kind: self._shares.most}
        return {**of_all, "aexec_shared_limit": limits, "aexec_shared_largest": largest_shares(front, hosts)}

    def status(self) -> OtherProcesses:
        """The state of each host by its last report."""
        return self._totals.status(self._by_name.values())

    @property
    def _of_models(self) -> list[SessionHost]:
        return [] if self.models is None else [self.models]

    async def sessions(self, header: str | None, caller: Caller) -> list[dict[str, Any]]:
        """The sessions that hosts list for a caller, given its header; those of the models if it has no name."""
        seen = self._places if caller.is_admin else self._places.of_client(caller.client) if caller.name else ()
        asked = [host for host in (*self._of_models, *seen) if host.ready]
        listed = await asyncio.gather(*(host.listed_sessions(header) for host in asked))
        return [session for sessions in listed for session in sessions]

    def part_of(self, caller: Caller, host: Upstream) -> Caller:
        """The caller with the quotas that other hosts leave for one host, by their last reports."""
        quotas = caller.quotas
        if quotas == NO_QUOTAS:
            return caller
        others = [o for o in (*self._places.of_client(caller.client), *self._of_models) if o is not host]
        of_caller = [other.of_callers.get(caller.name, (0, 0)) for other in others]
        sessions = sum(other.sessions if other.client else of[0] for other, of in zip(others, of_caller, strict=True))
        hosts = 1 if self.limits.own else self.limits.most  # `_tensors_allowed` bounds a client's own hosts together
        left = Quotas(
            None if quotas.sessions is None else quotas.sessions - sessions,
            None if quotas.runs is None else quotas.runs - sum(runs for _, runs in of_caller),
            None if quotas.memory_bytes is None else quotas.memory_bytes // hosts,
        )
        return replace(caller, quotas=left)

    def _tensors_allowed(self, host: SessionHost) -> int | None:
        """The bytes that tensors in a host may take, given those in the other hosts, of all clients or of its own."""
        if not self.limits.own or host is self.models:
            return None
        left = []
        if self.limits.tensor_bytes is not None:
            left.append(self.limits.tensor_bytes - self._totals.tensor_bytes)
        quota = self._memory_quotas.get(host.client) if host.client is not None else None
        if quota is not None and host.client is not None:
            left.append(quota - sum(other.tensor_bytes for other in self._places.of_client(host.client)))
        return max(0, min(left)) + host.tensor_bytes if left else None

    # Their lives

    async def start(self) -> None:
        """Start the hosts; return when they listen.  Raises what opening the store or the configured graphs raises."""
        config = self._config
        if self.stored is not None:
            await self.stored.open()
            self._sweeping = asyncio.create_task(self._keep_sweeping(self.stored), name="delete durable sessions")
        some = config.graphs or config.models or config.model_repository or config.allow_model_changes
        if some and not config.models_in_front:
            portable = await asyncio.to_thread(_portable, self._config, self._folder)
            self._model_config = replace(portable, max_host_bytes=None, state_path=None)
        self._fill()
        self._watching = asyncio.create_task(self._keep_watching(), name="watch session hosts")
        for host in list(self._by_name.values()):
            await host.started()

    def _fill(self) -> None:
        """Start the missing hosts, unless one has just failed to start."""
        if self._stopping or self._retrying is not None:
            return
        if self._model_config is not None and (self.models is None or self.models.ended is not None):
            self.models = self._new(self._model_config)
        self._places.fill()

    def _new_session_host(self) -> SessionHost:
        return self._new(self.limits.host)

    def _new(self, config: ServerConfig) -> SessionHost:
        name = f"{next(self._numbers):x}"
        # The front names the callers and stops the hosts; they get no tokens.
        config = replace(
            config,
            hosts=0,
            handle_prefix=f"{name}-",
            access_log=False,
            token_file=None,
            tokens=None,
            jwt_keys=None,
            jwt_issuer=None,
            jwt_audiences=(),
            front_has_tokens=self._config.has_tokens,
            unready_seconds=0.0,
        )
        host = self._by_name[name] = SessionHost(name, config, str(self._folder / name), self._note)
        life = asyncio.create_task(self._live(host), name=f"session host {name}")
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)
        return host

    def _note(self, host: SessionHost, report: dict[str, Any]) -> None:
        self._totals.note(host, report)
        self._names.settle(host)
        if self.stored is not None:
            self.stored.settle(host)

    async def _live(self, host: SessionHost) -> None:
        """Run a host until it ends."""
        await host.run(self._context)
        self._by_name.pop(host.name, None)
        self._places.remove(host, broken=host.was_ready and not host.told)
        self._names.remove(host)
        if self.stored is not None:
            self.stored.remove(host)
        self._totals.remove(host)
        if self._stopping or host.told:
            return
        self._totals.restarts += 1
        self._gone[host.name] = f"{host.ended} ({time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())})"
        if len(self._gone) > _MAX_GONE:
            self._gone.popitem(last=False)
        logger.warning("session host %s %s; another takes its place", host.name, host.ended)
        if host.was_ready:
            self._retry = _RETRY_SECONDS
        elif self._retrying is None:
            self._retrying = asyncio.get_running_loop().call_later(self._retry, self._try_again)
            self._retry = min(2 * self._retry, _MAX_RETRY_SECONDS)
        self._fill()

    def _try_again(self) -> None:
        self._retrying = None
        self._fill()

    def _end(self, host: SessionHost) -> None:
        """Let an empty host end."""
        del self._by_name[host.name]
        if host.client is not None:
            self._spent.add(host.client, host.keys)
        self._names.remove(host)
        host.tell_to_stop("it had no sessions")
        why = "was ended: it did not end when it was told to"
        asyncio.get_running_loop().call_later(_GRACE_SECONDS, host.kill, why)

    async def _keep_sweeping(self, stored: StoredSessions) -> None:
        while True:
            await asyncio.sleep(self._config.sweep_seconds)
            await stored.drop_expired()

    async def _keep_watching(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._watch.look(list(self._by_name.values()))
            self._places.tidy()
            self._fill()

    async def give_up_store(self) -> None:
        """Begin no request for durable sessions any more, and close the store when all hosts have given theirs up."""
        stored = self.stored
        assert stored is not None
        stored.given_up = True
        hosts = [host for host in self._by_name.values() if host is not self.models]
        for host in hosts:
            host.give_up_store()
        while any(host.ended is None and not host.gave_up for host in hosts):
            await asyncio.sleep(_POLL_SECONDS)
        await stored.close()

    async def drain(self, stop: asyncio.Queue[int]) -> None:
        """Let runs end, for the configured time and a little more; an item in `stop` cancels them at once."""
        self._stopping = True
        hosts = list(self._by_name.values())
        for host in hosts:
            host.tell_to_stop("the server is shutting down")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.drain_seconds + _GRACE_SECONDS) as limit:
                while any(host.ended is None for host in hosts):
                    if not stop.empty():
                        stop.get_nowait()
                        limit.reschedule(asyncio.get_running_loop().time() + _GRACE_SECONDS)
                        for host in hosts:
                            host.tell_to_stop("the server is shutting down")
                    await asyncio.sleep(_POLL_SECONDS)

    async def close(self) -> None:
        """Kill the live hosts."""
        self._stopping = True
        if self._retrying is not None:
            self._retrying.cancel()
        tasks = [*self._lives, *(task for task in (self._watching, self._sweeping) if task)]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self.stored is not None:
            await self.stored.close()


def _portable(config: ServerConfig, folder: Path) -> ServerConfig:
    """The configuration for another process: graphs in this process are written to files in the folder."""
    numbers = itertools.count()

    def portable(source: GraphSource) -> GraphSource:
        if not isinstance(source, aexec.Graph):
            return source
        path = folder / f"graph-{next(numbers)}.pb"
        path.write_bytes(source.to_bytes())
        return path

    return replace(
        config,
        graphs={name: portable(source) for name, source in config.graphs.items()},
        models={name: replace(m, source=portable(m.source)) for name, m in config.models.items()},
    )
