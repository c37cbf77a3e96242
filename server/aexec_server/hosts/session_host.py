"""`SessionHost`: the front's end of one host process: its start, its reports, its end.

`host_watch.py` watches it, `host_places.py` gives it to clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

from aexec import errors
from aexec_server.clients.caller_header import CALLER_HEADER
from aexec_server.hosts.host_channel import HostChannel
from aexec_server.hosts.host_figures import HostFigures
from aexec_server.hosts.host_process import SESSIONS_PATH, failure, run_host
from aexec_server.hosts.relay import Upstream, UpstreamConnection
from aexec_server.settings.server_config import ServerConfig
from aexec_server.watching.metrics import Snapshot

__all__ = ["SessionHost"]

logger = logging.getLogger(__name__)

# Seconds for which a request waits for a host that is being started; longer than a fork takes.
_START_SECONDS = 20.0
_END_SECONDS = 1.0
# The most keys remembered for each host, of requests that made sessions in it.
_MAX_KEYS = 1000
# The bytes of an empty host that it does not share.
_EMPTY_BYTES = 12 << 20
_GIVE_UP = {"give_up": True}


class SessionHost(Upstream):
    """A host process.

    Args:
        name: its name, unique among hosts.
        config: the settings of its application.
        path: the path of its socket.
        on_report: called with the host and each of its reports.

    Attributes:
        client: the client whose sessions it has, which never changes once set; None for a shared or unused host.
        ready: True while it listens.
        was_ready: True if it ever listened.
        serves: True once its models are loaded, by its last report.
        models: the names of the server's own sessions in it, by its last report.
        names: the names that clients gave to sessions in it, by its last report.
        durable: the owners of the durable sessions in it by handle, by its last report.
        keys: the keys of requests that made sessions in it and may come again, oldest first.
        of_callers: name of a caller with a token → (sessions, runs), by its last report.
        ended: why it ended; None while it lives.
        told: True if it ended because it was told to.
        gave_up: True once it has given its durable sessions up.
        gauges: its gauges, by its last report.
        status: its `process_status`, by its last report; None before that.
        own_bytes: the memory that it does not share with other hosts, approximately, at the last measurement.  Memory
            from before the fork is shared until it is written to, though it counts as resident in each host.
        may_idle: True if it need not be asked while it is idle.
        asked_at: when it was asked last, by the monotonic clock.
        busy_until: until when it is looked at often, by the same clock.
    """

    def __init__(
        self, name: str, config: ServerConfig, path: str, on_report: Callable[[SessionHost, dict[str, Any]], object]
    ) -> None:
        super().__init__(path)
        self.name = name
        self.config = config
        self.client: str | None = None
        self.ready = self.was_ready = self.told = self.gave_up = False
        self.serves = not (config.models or config.model_repository)
        self.models: frozenset[str] = frozenset()
        self.names: frozenset[str] = frozenset()
        self.durable: Mapping[str, str] = {}
        self.keys: OrderedDict[bytes, None] = OrderedDict()
        self.of_callers: dict[str, tuple[int, int]] = {}
        self.ended: str | None = None
        self.gauges: Snapshot = {}
        self.status: dict[str, Any] | None = None
        self.own_bytes = 0
        self.may_idle = not (config.graphs or config.models or config.model_repository)
        self.asked_at = self.busy_until = 0.0
        self._requests_before = 0  # when it was asked last
        self._on_report = on_report
        self._sessions = self._operations = 0  # when it was asked last
        self._sent = 0  # requests for sessions sent to it that it has not reported
        self._sent_before = 0  # of those, the ones from before it was asked last
        loop = asyncio.get_running_loop()
        self._started: asyncio.Future[errors.OpError | OSError | None] = loop.create_future()
        self._exited: asyncio.Future[None] = loop.create_future()
        self._process: ForkServerProcess | None = None
        self._figures: HostFigures | None = None
        self._channel = HostChannel(self._hear, lambda: None)
        self._gives_up = False
        self._why: str | None = None  # why it was killed or told to stop
        self._killed = False
        self._asked: tuple[float, float] | None = None  # an unanswered question: when, and `waited` then
        self._first_bytes = 0  # its resident bytes when it became ready

    def __repr__(self) -> str:
        state = self.ended or ("ready" if self.ready else "starting")
        return f"<SessionHost {self.name} {state}, load {self.load}>"

    # Its load

    @property
    def load(self) -> int:
        """The number of its sessions, operations and runs, as far as known."""
        return self.sessions + self._operations + self.runs

    @property
    def sessions(self) -> int:
        """The number of sessions that it has or may have soon, as far as known."""
        return self._sessions + self._sent

    @property
    def runs(self) -> int:
        """The number of runs in flight, by its last report."""
        return 0 if self.status is None else int(self.status["runs_in_flight"])

    @property
    def tensor_bytes(self) -> int:
        """The bytes of its tensors, by its last report."""
        return 0 if self.status is None else int(self.status["tensor_bytes"])

    @property
    def busy(self) -> bool:
        """True if it works for a client, or did since it was asked last, as far as known."""
        return self._works or self.requests != self._requests_before

    @property
    def _works(self) -> bool:
        return bool(self.requests > self.completed or self.connecting or self.runs)

    @property
    def is_empty(self) -> bool:
        """True if it holds nothing, as far as known.

        The host reports each new session before it answers the request for it.  A report may have come that this loop
        has not read yet, so it is certain only if this is true in two turns of the loop.
        """
        return not (self._sessions or self._operations or self._works)

    def count_session(self, key: bytes | None = None) -> None:
        """Count a request for a session that is sent to it, with the key by which it may come again."""
        self._sent += 1
        if key is not None:
            self.keys[key] = None
            if len(self.keys) > _MAX_KEYS:
                self.keys.popitem(last=False)

    # The interface of an upstream

    async def connect(self) -> UpstreamConnection:
        """Return a new connection, once it listens."""
        await self._started_or_exited(_START_SECONDS)
        if not self.ready:
            raise ConnectionRefusedError
        return await super().connect()

    async def why_lost(self) -> errors.OpError:
        """The error for its clients; waits some milliseconds until the cause is known."""
        await asyncio.wait([self._exited], timeout=_END_SECONDS)
        return errors.UnavailableError(f"The host of this session {self.ended or 'closed the connection'}")

    # Its life

    async def started(self) -> None:
        """Wait until it listens.  Raises what its application raised at its start, or UnavailableError."""
        await self._started_or_exited(None)
        error = self._started.result() if self._started.done() else None
        if error is not None:
            raise error
        if not self.ready:
            raise errors.UnavailableError(f"A session host {self.ended or 'did not start'}")

    async def _started_or_exited(self, timeout: float | None) -> None:
        futures: list[asyncio.Future[Any]] = [self._started, self._exited]
        await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    async def run(self, context: ForkServerContext) -> None:
        """Start the process, and wait until it has ended; `ended` says why, also if it could not be started.

        Cancelling this kills it.
        """
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                process = await self._start(context, ours, theirs)
        except (OSError, EOFError) as error:
            self.ended = f"could not be started, with {tempfile.gettempdir()} for temporary files: {error}"
            self._exited.set_result(None)
            return
        try:
            loop = asyncio.get_running_loop()
            loop.add_reader(process.sentinel, self._has_exited)
            await loop.create_unix_connection(lambda: self._channel, sock=ours)
            if self._gives_up:
                self._channel.say(_GIVE_UP)
            if self.told:
                self._channel.say({"stop": True})
            await self._started_or_exited(None)
            if self.ready:
                await self.connect_ahead()
            await asyncio.wait([self._exited])
        finally:
            await self._bury(process)

    async def _start(self, context: ForkServerContext, ours: socket.socket, theirs: socket.socket) -> ForkServerProcess:
        """Start the process with one end of the channel; return it.

        Raises:
            OSError, EOFError: it cannot be started; our end of the channel is closed then.
        """
        level = logging.getLogger().getEffectiveLevel()
        process = context.Process(
            target=run_host, args=(self.config, self.path, theirs, level), name=f"session host {self.name}", daemon=True
        )
        starting = asyncio.get_running_loop().run_in_executor(None, process.start)
        try:
            await asyncio.shield(starting)
        except (OSError, EOFError):
            ours.close()
            raise
        except asyncio.CancelledError:
            ours.close()
            with contextlib.suppress(OSError, EOFError):
                await starting
                process.kill()
            raise
        self._process = process
        assert process.pid is not None
        self._figures = HostFigures(process.pid)
        return process

    def _hear(self, message: dict[str, Any]) -> None:
        """Handle a message of the process."""
        if "report" in message:
            if "asked" in message:
                self._asked = None
                self._sent -= self._sent_before
                self._sent_before = 0
            self._note(message["report"])
        elif "gave_up" in message:
            self.gave_up = True
        elif not self._started.done():
            self.ready = self.was_ready = "listens" in message
            self._first_bytes = self._figures.resident_bytes() if self._figures is not None else 0
            self._started.set_result(None if self.ready else failure(message["failed"]))

    def _has_exited(self) -> None:
        assert self._process is not None
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self.ready = False
        code = self._process.exitcode
        self.ended = self._why or _described(code)
        self._exited.set_result(None)

    async def _bury(self, process: ForkServerProcess) -> None:
        if not self._exited.done():
            process.kill()
            await asyncio.wait([self._exited])
        await asyncio.wait([self._channel.ended], timeout=_END_SECONDS)  # its last messages are read
        self._channel.close()
        if self._figures is not None:
            self._figures.close()
        self.close_idle()
        process.join()  # it has exited
        process.close()
        self._process = None
        await asyncio.to_thread(Path(self.path).unlink, missing_ok=True)

    def tell_to_stop(self, why: str) -> None:
        """Tell it to drain; the second time, to cancel runs."""
        self.told = True
        self._why = self._why or f"was told to stop: {why}"
        self._channel.say({"stop": True})

    def give_up_store(self) -> None:
        """Tell it to give its durable sessions up, and to open no other."""
        self._gives_up = True
        self._channel.say(_GIVE_UP)

    def kill(self, why: str) -> None:
        """Kill it at once."""
        if self._process is not None and not self._killed and not self._exited.done():
            logger.warning("session host %s %s", self.name, why)
            self._killed = True
            self._why = why
            self.own_bytes = 0
            self._process.kill()

    # Asking

    def ask(self, memory_bytes: int | None) -> None:
        """Ask for its state, unless the last question is unanswered.

        Args:
            memory_bytes: the most bytes of its tensors from now on; None for its configuration's.
        """
        if self.ready and self._asked is None and self._figures is not None:
            self.asked_at = time.monotonic()
            self._asked = self.asked_at, self._figures.waited()
            self._sent_before = self._sent
            self._requests_before = self.requests
            self._channel.say({"ask": True} if memory_bytes is None else {"ask": True, "memory_bytes": memory_bytes})

    def _note(self, report: dict[str, Any]) -> None:
        """Take in a report; fields that it lacks have not changed."""
        self._sessions = report.get("sessions", self._sessions)
        self._operations = report.get("operations", self._operations)
        self.status = report.get("status", self.status)
        self.serves = report.get("ready", self.serves)
        if "models" in report:
            self.models = frozenset(report["models"])
        if "names" in report:
            self.names = frozenset(report["names"])
        self.durable = report.get("durable", self.durable)
        if "callers" in report:
            self.of_callers = {name: (sessions, runs) for name, (sessions, runs) in report["callers"].items()}
        self._on_report(self, report)

    async def listed_sessions(self, caller: str | None) -> list[dict[str, Any]]:
        """The sessions that it lists for a caller, given the front's header; none if it does not answer in time."""
        header = "" if caller is None else f"{CALLER_HEADER}: {caller}\r\n"
        # ValueError: it was killed in the middle of its answer.
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(self.config.host_silence_seconds):
                reader, writer = await asyncio.open_unix_connection(self.path)
                try:
                    # HTTP/1.0, so that the end of a large answer is the end of the connection.
                    writer.write(f"GET {SESSIONS_PATH} HTTP/1.0\r\nHost: localhost\r\n{header}\r\n".encode())
                    answer = await reader.read()
                finally:
                    writer.close()
            return list(json.loads(answer.partition(b"\r\n\r\n")[2]).get("sessions", ()))
        return []

    # Its process

    @property
    def most_bytes(self) -> int | None:
        """The most resident bytes that it may have; None for no limit."""
        return self.config.max_host_bytes

    def measure(self) -> int:
        """Measure its memory: returns the resident bytes, and sets `own_bytes`."""
        if self._figures is None or self._why is not None:
            return 0
        resident = self._figures.resident_bytes()
        if self.ready:
            self.own_bytes = max(0, resident - self._first_bytes) + _EMPTY_BYTES
        return resident

    @property
    def silent_for(self) -> float:
        """Seconds since an unanswered question, without those in which the process had no processor."""
        if self._asked is None or self._figures is None:
            return 0.0
        asked, waited = self._asked
        return time.monotonic() - asked - (self._figures.waited() - waited)


def _described(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit status {code}"
