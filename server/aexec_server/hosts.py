"""All session hosts of a server: as many as asked for, and one for its models.

A host that ends, or is ended because it is silent or has too much memory (`session_host.py`), is replaced at once.  Its
sessions are gone; `why_gone` says why, to those who ask for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import multiprocessing
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aexec
from aexec import errors
from aexec.hosting import total_memory
from aexec_server.callers import NO_QUOTAS, Caller, Quotas
from aexec_server.metrics import Snapshot, merged
from aexec_server.model_source import GraphSource
from aexec_server.relay import Upstream
from aexec_server.server_config import ServerConfig
from aexec_server.session_host import SessionHost

__all__ = ["Hosts"]

logger = logging.getLogger(__name__)

# A host that ended before it was ready is followed by another after so many seconds, twice as many each time.
_RETRY_SECONDS = 0.1
_MAX_RETRY_SECONDS = 10.0
_POLL_SECONDS = 0.02
# After runs were cancelled, how long hosts may take to end by themselves.
_GRACE_SECONDS = 2.0
# Of the machine's memory, for all hosts together.
_MEMORY_SHARE = 0.8
_MAX_GONE = 10_000
_PRELOAD = "aexec_server.host_preload"


class Hosts:
    """See the module's head.

    Args:
        config: of the server.
        folder: for their sockets; nobody else may look into it.

    Attributes:
        models: the host of the configured graphs; None if there is none.
    """

    def __init__(self, config: ServerConfig, folder: Path) -> None:
        self.models: SessionHost | None = None
        self._config = config
        self._folder = folder
        self._past: Snapshot = {}  # counted by hosts that are no more
        self._restarts = 0
        self._numbers = 0
        self._sessions: dict[str, SessionHost] = {}  # by name; as many as asked for
        self._places: list[SessionHost] = []  # the same; who follows another has its place
        self._gone: OrderedDict[str, str] = OrderedDict()
        self._keepers: list[asyncio.Task[None]] = []
        self._stopping = False
        self._portable = config
        try:
            self._context = multiprocessing.get_context("forkserver")
        except ValueError:
            raise errors.UnimplementedError("Session hosts need a system that can fork; hosts must be 0") from None
        self._context.set_forkserver_preload([_PRELOAD])

    # Who does what

    def least_loaded(self) -> SessionHost:
        """For a new session, which is counted for it."""
        host = min(self._sessions.values(), key=lambda host: (not host.ready, host.load))
        host.count_session()
        self._sessions[host.name] = self._sessions.pop(host.name)  # of equals, the one that was chosen longest ago
        return host

    def of(self, handle: str) -> SessionHost | None:
        """The host of a session or an operation whose handle it made; None if it is gone, or never was."""
        name = handle.partition("-")[0]
        if self.models is not None and name == self.models.name:
            return self.models
        return self._sessions.get(name)

    def by_text(self, text: bytes) -> SessionHost:
        """The host for what goes by a text that a client chose: always the same, or who follows it."""
        return self._places[zlib.crc32(text) % len(self._places)]

    def why_gone(self, handle: str) -> str | None:
        """What became of a session with its host."""
        name, separator, _ = handle.partition("-")
        return (
            f"Session {handle[:80]} is gone: its host {self._gone[name]}" if separator and name in self._gone else None
        )

    def metrics(self) -> list[Snapshot]:
        """What hosts have counted, those that are no more included, as of some tenths of a second ago."""
        own: Snapshot = {
            "aexec_hosts": {(): sum(host.ready for host in self._all())},
            "aexec_host_restarts": {(): self._restarts},
        }
        return [own, self._past, *(host.metrics for host in self._all())]

    def statuses(self) -> dict[str, dict[str, Any]]:
        """How each was when it was asked last, by name."""
        return {host.name: host.status for host in self._all() if host.status is not None and host.ended is None}

    async def sessions(self, caller: str | None, *, named: bool) -> list[dict[str, Any]]:
        """Those that hosts list for a caller, whom the front's header tells; without a name the models' host alone."""
        own = [] if self.models is None else [self.models]
        asked = [host for host in (*own, *(self._sessions.values() if named else ())) if host.ready]
        listed = await asyncio.gather(*(host.sessions(caller) for host in asked))
        return [session for sessions in listed for session in sessions]

    def part_of(self, caller: Caller, host: Upstream) -> Caller:
        """The caller, with the quotas that are left for one host beside what the others have, as far as is known."""
        quotas = caller.quotas
        if quotas == NO_QUOTAS:
            return caller
        others = [other.of_callers.get(caller.name, (0, 0)) for other in self._all() if other is not host]
        left = Quotas(
            None if quotas.sessions is None else quotas.sessions - sum(sessions for sessions, _ in others),
            None if quotas.runs is None else quotas.runs - sum(runs for _, runs in others),
            None if quotas.memory_bytes is None else quotas.memory_bytes // self._config.hosts,
        )
        return replace(caller, quotas=left)

    def _all(self) -> list[SessionHost]:
        return [*self._sessions.values(), *([self.models] if self.models else [])]

    # Their lives

    async def start(self) -> None:
        """Start them all; returns when they listen.  Raises what opening the configured graphs raises."""
        places: list[Callable[[], SessionHost]] = [
            partial(self._new_session_host, place) for place in range(self._config.hosts)
        ]
        config = self._config
        some = config.graphs or config.models or config.model_repository or config.allow_model_changes
        if some and not config.models_in_front:
            self._portable = await asyncio.to_thread(self._portable_config)
            places.append(self._new_model_host)
        for place in places:
            host = place()
            self._keepers.append(asyncio.create_task(self._keep(host, place), name=f"keep session host {host.name}"))
        for host in self._all():
            await host.started()

    async def _keep(self, host: SessionHost, new: Callable[[], SessionHost]) -> None:
        """Run a host, and others after it."""
        retry = _RETRY_SECONDS
        while True:
            await host.run(self._context)
            was_ready = host.was_ready
            self._sessions.pop(host.name, None)
            self._past = merged([self._past, host.metrics], lasting=True)
            host.metrics = {}
            if self._stopping:
                return
            self._restarts += 1
            self._gone[host.name] = f"{host.ended} ({time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())})"
            if len(self._gone) > _MAX_GONE:
                self._gone.popitem(last=False)
            logger.warning("session host %s %s; another takes its place", host.name, host.ended)
            host = new()
            if was_ready:
                retry = _RETRY_SECONDS
            else:
                await asyncio.sleep(retry)
                retry = min(2 * retry, _MAX_RETRY_SECONDS)

    def _new_session_host(self, place: int) -> SessionHost:
        config, hosts = self._config, self._config.hosts
        host = self._new(
            replace(
                config,
                graphs={},
                models={},
                model_repository=None,
                max_sessions=math.ceil(config.max_sessions / hosts),
                max_runs=math.ceil(config.max_runs / hosts),
                max_host_bytes=config.max_host_bytes or _share_of_memory(hosts),
                max_memory_bytes=None if config.max_memory_bytes is None else config.max_memory_bytes / hosts,
            )
        )
        self._sessions[host.name] = host
        self._places[place : place + 1] = [host]
        return host

    def _new_model_host(self) -> SessionHost:
        self.models = self._new(replace(self._portable, max_host_bytes=None))
        return self.models

    def _portable_config(self) -> ServerConfig:
        """The configuration as another process can have it: graphs that are here are written to files."""
        numbers = itertools.count()

        def portable(source: GraphSource) -> GraphSource:
            if not isinstance(source, aexec.Graph):
                return source
            path = self._folder / f"graph-{next(numbers)}.pb"
            path.write_bytes(source.to_bytes())
            return path

        return replace(
            self._config,
            graphs={name: portable(source) for name, source in self._config.graphs.items()},
            models={name: replace(m, source=portable(m.source)) for name, m in self._config.models.items()},
        )

    def _new(self, config: ServerConfig) -> SessionHost:
        self._numbers += 1
        name = f"{self._numbers:x}"
        # They hear from the front who it is that asks, and get no tokens; when to stop they hear from it too.
        config = replace(
            config,
            hosts=0,
            handle_prefix=f"{name}-",
            access_log=False,
            token_file=None,
            tokens=None,
            front_has_tokens=self._config.has_tokens,
            unready_seconds=0.0,
        )
        return SessionHost(name, config, str(self._folder / name))

    async def drain(self, stop: asyncio.Queue[int]) -> None:
        """Let runs end, as the configuration says and then a little; something in `stop` cancels them at once."""
        self._stopping = True
        hosts = self._all()
        for host in hosts:
            host.tell_to_stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.drain_seconds + _GRACE_SECONDS) as limit:
                while any(host.ended is None for host in hosts):
                    if not stop.empty():
                        stop.get_nowait()
                        limit.reschedule(asyncio.get_running_loop().time() + _GRACE_SECONDS)
                        for host in hosts:
                            host.tell_to_stop()
                    await asyncio.sleep(_POLL_SECONDS)

    async def close(self) -> None:
        """Kill those that live."""
        self._stopping = True
        for keeper in self._keepers:
            keeper.cancel()
        if self._keepers:
            await asyncio.wait(self._keepers)


def _share_of_memory(hosts: int) -> int | None:
    total = total_memory()
    return None if math.isinf(total) else int(total * _MEMORY_SHARE / hosts)
