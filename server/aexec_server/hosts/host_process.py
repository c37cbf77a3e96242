"""A session host: a process that serves the application on a Unix socket, within limits of memory, files and threads.

It is forked from a process that has imported all of aexec (`host_preload.py`): so it begins in hundredths of a second,
and shares the memory of what was imported.  The front starts and watches it (`session_host.py`), and talks with it over
a channel (`host_channel.py`).  It ends with the process that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
from dataclasses import replace
from typing import Any

from aiohttp import web

from aexec import errors
from aexec.errors import Code
from aexec_server.app import make_app
from aexec_server.connections.listening import run_on_loop, serve_app
from aexec_server.core.routes import add_routes
from aexec_server.core.server_state import SERVER, Server
from aexec_server.handlers import session_calls
from aexec_server.hosts.host_channel import HostChannel
from aexec_server.hosts.host_rehearsal import WARM_UP_PATH, warm_up
from aexec_server.hosts.host_report import HostReport
from aexec_server.settings.server_config import ServerConfig
from aexec_server.watching.server_log import begin_log

__all__ = ["SESSIONS_PATH", "failure", "run_host"]

# The sessions that a host lists.  The front asks for them, clients cannot.
SESSIONS_PATH = "/sessions"

_PR_SET_PDEATHSIG = 1
_MAX_FILES = 8192
_MAX_PROCESSES = 4096
# Address space is reserved (stacks, arenas) that is never used: as much as memory may be used, and this.
_RESERVED = 2**30


def run_host(config: ServerConfig, path: str, sock: socket.socket, log_level: int) -> None:
    """The process.

    Args:
        config: of the application.
        path: of its socket.
        sock: the channel to its front.
        log_level: for its log, on standard error.
    """
    _end_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's: who started it says when to stop
    limit_resources(config.max_host_bytes)
    begin_log(log_level, config.log_format)
    run_on_loop(_serve(config, path, sock))


def _end_with_parent(parent: int) -> None:
    """Be killed when the parent dies, however it does, and even if nothing here is able to notice."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def limit_resources(max_bytes: int | None) -> None:
    """Bound what this process may take.  Memory beyond `max_bytes` is watched from outside; see `host_watch.py`."""
    try:
        import resource
    except ImportError:  # Windows
        return
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, _MAX_FILES)
    if max_bytes is not None and sys.platform == "linux":
        _limit(resource.RLIMIT_NPROC, _MAX_PROCESSES)
        _limit(resource.RLIMIT_DATA, 2 * max_bytes + _RESERVED)
        # Should the machine's memory end, this goes before other processes.
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")


def _limit(kind: int, most: int) -> None:
    import resource

    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


async def _serve(config: ServerConfig, path: str, sock: socket.socket) -> None:
    app = make_app(config)
    _add_own_routes(app)
    server = app[SERVER]
    server.tensor_bytes_limit = None
    told = _Told(server)

    async def begin() -> None:
        try:
            await warm_up(server, path)
        finally:
            told.begin()

    await asyncio.get_running_loop().create_unix_connection(lambda: told.channel, sock=sock)
    try:
        await serve_app(app, told.stop, lambda _: server.in_background(begin(), "warm up"), path=path)
        if server.spans is not None:
            await asyncio.to_thread(server.spans.flush)
        told.report(counted=True)
    except (errors.OpError, OSError) as error:
        told.channel.say({"failed": _described(error)})
    told.channel.close()
    await told.channel.ended


class _Told:
    """What the front says, and is answered.

    Attributes:
        channel: to the front.
        stop: gets an item each time the host is told to stop: first to drain, then to cancel what runs.
    """

    def __init__(self, server: Server) -> None:
        self.channel = HostChannel(self._hear, lambda: os._exit(1))  # who started this process is gone
        self.stop: asyncio.Queue[int] = asyncio.Queue()
        self._memory = server.sessions.memory
        self._own_limit = self._memory.limit
        self._report = HostReport(server)
        self._sessions = server.sessions

    def begin(self) -> None:
        """It listens: say so, and from now on of what sessions there are."""
        self.channel.say({"listens": True})
        self._sessions.on_change = self.report

    def _hear(self, message: dict[str, Any]) -> None:
        if "stop" in message:
            self.stop.put_nowait(0)
            return
        allowed = message.get("memory_bytes")  # of all hosts together, what is left for this one
        if allowed is not None:
            self._memory.limit = allowed if self._own_limit is None else min(allowed, self._own_limit)
        self.channel.say({"report": self._report.changes(counted=True), "asked": True})

    def report(self, *, counted: bool = False) -> None:
        """Tell the front unasked what has changed; with `counted` also what was counted."""
        self.channel.say({"report": self._report.changes(counted=counted)})


def _described(error: errors.OpError | OSError) -> dict[str, Any]:
    """An error at a host's start, as `failure` reads it."""
    if isinstance(error, errors.OpError):
        return {"code": error.code.name, "message": error.message}
    return {"errno": error.errno, "message": error.strerror or str(error)}


def failure(described: dict[str, Any]) -> errors.OpError | OSError:
    """The error of a host that could not start."""
    message = str(described["message"])
    if "code" in described:
        return errors.from_code(Code[described["code"]], message)
    return OSError(described["errno"], message)


def _add_own_routes(app: web.Application) -> None:
    """What is not asked by a client, and of which there are no spans."""
    server = app[SERVER]
    paths = {"GET": SESSIONS_PATH, "POST": WARM_UP_PATH}
    of_all = [route for route in session_calls.routes(server) if route.path == "/v1/sessions"]
    own = [replace(route, path=paths[route.method], traced=False) for route in of_all]
    add_routes(app, own, server.access.guard)
