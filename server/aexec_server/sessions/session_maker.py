"""`SessionMaker`: makes the sessions that clients ask for, within the limits and the policy of the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

import aexec
from aexec import errors, proto
from aexec.hosting import MemoryAccount, collector_paused, keep_large
from aexec_server.clients.callers import Caller
from aexec_server.durable.durable_rules import NO_STORE, Durability
from aexec_server.durable.stored_session import WrittenSession
from aexec_server.sessions.op_policy import OpPolicy
from aexec_server.sessions.op_rules import Rule
from aexec_server.sessions.session_limits import NO_LIMITS, SessionLimits
from aexec_server.settings.memory_limits import memory_limits
from aexec_server.settings.server_config import ServerConfig

__all__ = ["MadeSession", "NewSession", "SessionMaker"]

_MAX_DEVICES = 64
_MAX_TTL = 30 * 24 * 3600.0

CheckDurable = Callable[["NewSession", aexec.SessionConfig], WrittenSession]


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
class MadeSession:
    """A session that has been made, before it has a handle.

    Attributes:
        session: the session, which is open.
        ttl: seconds without use after which it is closed.
        name: its name; None for a handle that nobody can guess.
        limits: its limits, within the server's.
        written: what the store has to write of it; None for a session that is not durable.
    """

    session: aexec.Session
    ttl: float | None
    name: str | None
    limits: SessionLimits
    written: WrittenSession | None


class SessionMaker:
    """Makes the sessions of clients.

    Attributes:
        memory: account of all sessions together.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._policy = OpPolicy(config.allow_ops, config.trust_graphs)
        self._limits = memory_limits(config)
        self.memory = MemoryAccount("server", "ServerConfig.max_memory_bytes", self._limits.server)
        self._accounts: WeakValueDictionary[str, MemoryAccount] = WeakValueDictionary()  # by name of their owner

    def make(
        self, decode: Callable[[], NewSession], account: MemoryAccount, check_durable: CheckDurable | None
    ) -> MadeSession:
        """Make a session; this takes seconds for a large graph.

        Args:
            decode: returns what the client asks for.
            account: counts the session's memory.
            check_durable: returns what the store has to write of a durable session; None if there is no store.

        Raises:
            InvalidArgumentError: the graph or the settings are not valid.
            NotFoundError: an op is not registered.
            PermissionDeniedError: clients may not use an op.
            FailedPreconditionError: it shall be durable, and there is no store.
        """
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
            cache_files=self._config.trust_graphs,
            printed_bytes=self._config.print_rate,
            log_device_placement=False,
            delegates=self._config.delegates or (),
        )
        self.check_graph(new.graph_def)
        written = None
        if new.durability is not None:
            if check_durable is None:
                raise errors.FailedPreconditionError(NO_STORE)
            written = check_durable(new, config)
        session = aexec.Session(aexec.Graph.from_graph_def(new.graph_def), config=config)
        return MadeSession(session, ttl, new.name, limits, written)

    def make_large(
        self, decode: Callable[[], NewSession], account: MemoryAccount, check_durable: CheckDurable | None
    ) -> MadeSession:
        """Like `make`, and keep the graph's many objects from the garbage collector."""
        with collector_paused():
            made = self.make(decode, account, check_durable)
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

    def rules_for_models(self, *, by_admin: bool) -> list[Rule]:
        """Return the rules for runs of clients in the server's own graphs."""
        return self._policy.rules_for_models(by_admin or self._config.allow_model_changes)

    def account_of(self, caller: Caller) -> MemoryAccount:
        """Return the account that counts the memory of all of a caller's sessions."""
        most = caller.quotas.memory_bytes
        if most is None:
            return self.memory
        account = self._accounts.get(caller.name)
        if account is None:
            account = self._accounts[caller.name] = MemoryAccount("token", "max_memory_mb", most, self.memory)
        account.limit = most
        return account
