"""`SessionHost`: one host process, seen from the process that starts it: its start, its pings, its memory, its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

from aexec import errors
from aexec_server.caller_header import CALLER_HEADER
from aexec_server.host_process import LOAD_PATH, READY, SESSIONS_PATH, STOP, run_host
from aexec_server.metrics import Snapshot, snapshot_from_json
from aexec_server.relay import Upstream, UpstreamConnection
from aexec_server.server_config import ServerConfig

__all__ = ["SessionHost"]

logger = logging.getLogger(__name__)

_CHECK_SECONDS = 0.05
_PING_SECONDS = 0.2
# A request for a host that is being started waits for it; longer than forking one takes.
_START_SECONDS = 20.0
_END_SECONDS = 1.0


class SessionHost(Upstream):
    """A host process.

    Args:
        name: what tells it from all others.
        config: of its application.
        path: of its socket.

    Attributes:
        ready: it listens.
        was_ready: it listened at some time.
        serves: what it had to load is there, as far as is known.
        models: names of its sessions that are the server's own, as far as is known.
        of_callers: sessions and runs of those who have a token, by name, when it was asked last.
        ended: what became of it; None while it lives.
        metrics: what it counts, as it said last.
        status: as `process_status` gave it when it was asked last; None before that.
    """

    def __init__(self, name: str, config: ServerConfig, path: str) -> None:
        super().__init__(path)
        self.name = name
        self.config = config
        self._reported = 0  # sessions and runs that it had when it was asked last
        self._sent = 0  # sessions that were sent to it since
        self.ready = self.was_ready = False
        self.serves = not (config.models or config.model_repository)
        self.models: frozenset[str] = frozenset()
        self.of_callers: dict[str, tuple[int, int]] = {}
        self.ended: str | None = None
        self.metrics: Snapshot = {}
        self.status: dict[str, Any] | None = None
        loop = asyncio.get_running_loop()
        self._started: asyncio.Future[errors.OpError | OSError | None] = loop.create_future()
        self._exited: asyncio.Future[None] = loop.create_future()
        self._process: ForkServerProcess | None = None
        self._pipe: Connection | None = None
        self._why: str | None = None  # it was killed
        self._ping_sent: tuple[float, float] | None = None  # that was not answered: when, and `_Figures.waited` then

    def __repr__(self) -> str:
        state = self.ended or ("ready" if self.ready else "starting")
        return f"<SessionHost {self.name} {state}, load {self.load}>"

    @property
    def load(self) -> int:
        """Sessions and runs that it has, as far as is known."""
        return self._reported + self._sent

    def count_session(self) -> None:
        """One more is sent to it."""
        self._sent += 1

    # As an upstream

    async def connect(self) -> UpstreamConnection:
        """A new connection, once it listens."""
        await self._started_or_exited(_START_SECONDS)
        if not self.ready:
            raise ConnectionRefusedError
        return await super().connect()

    async def why_lost(self) -> errors.OpError:
        """What its clients are told: it waits until that is known, for some milliseconds."""
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
        """Start the process, and watch it until it has ended.  Cancelling this kills it."""
        process = await self._start(context)
        if process is None:
            return
        loop = asyncio.get_running_loop()
        assert self._pipe is not None
        try:
            loop.add_reader(process.sentinel, self._has_exited)
            loop.add_reader(self._pipe.fileno(), self._hear)
            await self._watch(process)
        finally:
            await self._bury(process)

    async def _start(self, context: ForkServerContext) -> ForkServerProcess | None:
        """The process, or None if it cannot be started; `ended` says why."""
        pipe, theirs = context.Pipe()
        level = logging.getLogger().getEffectiveLevel()
        process = context.Process(
            target=run_host, args=(self.config, self.path, theirs, level), name=f"session host {self.name}", daemon=True
        )
        starting = asyncio.get_running_loop().run_in_executor(None, process.start)
        try:
            await asyncio.shield(starting)
        except OSError as error:
            pipe.close()
            self.ended = f"could not be started, with {tempfile.gettempdir()} for temporary files: {error}"
            self._exited.set_result(None)
            return None
        except asyncio.CancelledError:
            pipe.close()
            with contextlib.suppress(OSError):
                await starting
                process.kill()
            raise
        finally:
            theirs.close()
        self._pipe, self._process = pipe, process
        return process

    def _hear(self) -> None:
        """What the process says about its start."""
        assert self._pipe is not None
        try:
            said = self._pipe.recv_bytes()
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            return
        self.ready = self.was_ready = said == READY
        if not self._started.done():
            self._started.set_result(None if self.ready else _unpickled(said))

    def _has_exited(self) -> None:
        assert self._process is not None
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self.ready = False
        code = self._process.exitcode
        self.ended = self._why or _described(code)
        self._exited.set_result(None)

    async def _watch(self, process: ForkServerProcess) -> None:
        assert process.pid is not None
        with _figures(process.pid) as figures:
            pinging: asyncio.Task[None] | None = None
            try:
                while not self._exited.done():
                    if self.ready and pinging is None:
                        pinging = asyncio.create_task(self._ping(figures), name=f"ping session host {self.name}")
                    await asyncio.wait([self._exited], timeout=_CHECK_SECONDS)
                    self._check_memory(figures)
                    await self._check_silence(figures)
            finally:
                if pinging is not None:
                    pinging.cancel()
                    await asyncio.wait([pinging])

    async def _bury(self, process: ForkServerProcess) -> None:
        assert self._pipe is not None
        loop = asyncio.get_running_loop()
        if not self._exited.done():
            process.kill()
            await asyncio.wait([self._exited])
        loop.remove_reader(self._pipe.fileno())
        self._pipe.close()
        self._pipe = None
        self.close_idle()
        process.join()  # it has exited
        process.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def tell_to_stop(self) -> None:
        """Drain; told again: cancel what runs."""
        if self._pipe is not None:
            self._why = self._why or "was told to stop: the server is shutting down"
            with contextlib.suppress(OSError):
                self._pipe.send_bytes(STOP)

    def kill(self, why: str) -> None:
        """End it at once."""
        if self._process is not None and not self._exited.done():
            logger.warning("session host %s %s", self.name, why)
            self._why = why
            self._process.kill()

    # Asking

    async def sessions(self, caller: str | None) -> list[dict[str, Any]]:
        """Those that it lists for a caller, whom the front's header names; none if it does not answer in time."""
        header = "" if caller is None else f"{CALLER_HEADER}: {caller}\r\n"
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(self.config.host_silence_seconds):
                reader, writer = await asyncio.open_unix_connection(self.path)
                try:
                    answer = await _asked(reader, writer, SESSIONS_PATH, f"{header}Connection: close\r\n", "1.0")
                finally:
                    writer.close()
            return list(answer.get("sessions", ()))
        return []

    # Watching

    async def _ping(self, figures: _Figures) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_unix_connection(self.path)
            try:
                while True:
                    self._ping_sent = time.monotonic(), figures.waited()
                    sent = self._sent
                    load = await _asked(reader, writer, LOAD_PATH, "")
                    self._ping_sent = None
                    self.status = load["status"]
                    self._reported = self.status["sessions"] + self.status["runs_in_flight"]
                    self.serves = load["ready"]
                    self.models = frozenset(load["models"])
                    self.metrics = snapshot_from_json(load["metrics"])
                    self.of_callers = load["callers"]
                    self._sent -= sent
                    await asyncio.sleep(_PING_SECONDS)
            finally:
                writer.close()

    def _silent_for(self, figures: _Figures) -> float:
        """Seconds since a ping that is not answered, without those in which the process had no processor."""
        if self._ping_sent is None:
            return 0.0
        sent, waited = self._ping_sent
        return time.monotonic() - sent - (figures.waited() - waited)

    async def _check_silence(self, figures: _Figures) -> None:
        most = self.config.host_silence_seconds
        if self._silent_for(figures) > most:
            await asyncio.sleep(0)  # was it this loop that was late, and the answer is there?
            await asyncio.sleep(0)
            if self._silent_for(figures) > most and self._why is None:
                self.kill(f"was ended: it did not answer for {most:g} s")

    def _check_memory(self, figures: _Figures) -> None:
        most = self.config.max_host_bytes
        if most is not None and self._why is None:
            has = figures.resident_bytes()
            if has > most:
                self.kill(f"was ended: it had {has >> 20} MB of memory, and may have {most >> 20}")


class _Figures:
    """What the kernel says about a process, where it does (Linux): else nothing is ever too much."""

    def __init__(self, memory: int | None, schedule: int | None) -> None:
        self._memory = memory
        self._schedule = schedule

    def resident_bytes(self) -> int:
        return _field(self._memory) * os.sysconf("SC_PAGE_SIZE")

    def waited(self) -> float:
        """Seconds in which its main thread could have run, and there was no processor for it."""
        return _field(self._schedule) * 1e-9


def _field(file: int | None) -> int:
    """The second number of a file of the kernel's."""
    if file is not None:
        with contextlib.suppress(OSError, IndexError):
            return int(os.pread(file, 200, 0).split()[1])
    return 0


@contextlib.contextmanager
def _figures(pid: int) -> Iterator[_Figures]:
    files: list[int | None] = []
    for name in ("statm", "schedstat"):
        try:
            files.append(os.open(f"/proc/{pid}/{name}", os.O_RDONLY))
        except OSError:
            files.append(None)
    try:
        yield _Figures(*files)
    finally:
        for file in files:
            if file is not None:
                os.close(file)


async def _asked(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, header: str, version: str = "1.1"
) -> dict[str, Any]:
    """What a host answers, in JSON.

    Args:
        version: of HTTP: 1.0 for an answer that may be large, whose end is that of the connection.
    """
    writer.write(f"GET {path} HTTP/{version}\r\nHost: localhost\r\n{header}\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if version == "1.0":
        return dict(json.loads(await reader.read()))
    length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
    return dict(json.loads(await reader.readexactly(length)))


def _described(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit status {code}"


def _unpickled(data: bytes) -> errors.OpError | OSError:
    """An error that a host sent.  It comes from our own process, at its start, before any client's graph is there."""
    import pickle

    error = pickle.loads(data)
    assert isinstance(error, errors.OpError | OSError)
    return error
