"""A session host: a process that serves the application on a Unix socket, within limits of memory, files and threads.

It is forked from a process that has imported all of aexec (`host_preload.py`), so it starts in hundredths of a second
and shares the memory of modules.  The front starts and watches it (`session_host.py`), and talks with it over a channel
(`host_channel.py`).  It ends with the process that started it.
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

# The path of a host's list of sessions, for the front; clients cannot reach it.
SESSIONS_PATH = "/sessions"

_PR_SET_PDEATHSIG = 1
_MAX_FILES = 8192
_MAX_PROCESSES = 4096
# Stacks and arenas reserve address space that is never used: it may be the memory limit plus this.
_RESERVED = 2**30


def run_host(config: ServerConfig, path: str, sock: socket.socket, log_level: int) -> None:
    """The main function of the process.

    Args:
        config: the settings of its application.
        path: the path of its socket.
        sock: its end of the channel to the front.
        log_level: the level of its log, on standard error.
    """
    _end_with_parent(os.getppid())
    for number in (signal.SIGINT, signal.SIGHUP):  # from the terminal: the front says when to stop
        signal.signal(number, signal.SIG_IGN)
    limit_resources(config.max_host_bytes)
    begin_log(log_level, config.log_format)
    run_on_loop(_serve(config, path, sock))


def _end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def limit_resources(max_bytes: int | None) -> None:
    """Bound this process's files, threads and address space.  `host_watch.py` watches its memory from outside."""
    try:
        import resource
    except ImportError:  # Windows
        return
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, _MAX_FILES)
    if max_bytes is not None and sys.platform == "linux":
        _limit(resource.RLIMIT_NPROC, _MAX_PROCESSES)
        _limit(resource.RLIMIT_DATA, 2 * max_bytes + _RESERVED)
        # If the machine runs out of memory, this process is killed before others.
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
    """Handles the front's messages.

    Attributes:
        channel: to the front.
        stop: gets an item each time the host is told to stop: first to drain, then to cancel runs.
    """

    def __init__(self, server: Server) -> None:
        self.channel = HostChannel(self._hear, lambda: os._exit(1))  # the front is gone
        self.stop: asyncio.Queue[int] = asyncio.Queue()
        self._memory = server.sessions.memory
        self._own_limit = self._memory.limit
        self._report = HostReport(server)
        self._server = server
        self._sessions = server.sessions

    def begin(self) -> None:
        """Report that this host listens, and from now on its sessions."""
        self.channel.say({"listens": True})
        self._sessions.on_change = self.report

    def _hear(self, message: dict[str, Any]) -> None:
        if "stop" in message:
            self.stop.put_nowait(0)
            return
        if "give_up" in message:
            self._server.in_background(self._give_up(), "hand durable sessions over")
            return
        allowed = message.get("memory_bytes")  # what other hosts leave of the limit of all
        if allowed is not None:
            self._memory.limit = allowed if self._own_limit is None else min(allowed, self._own_limit)
        self.channel.say({"report": self._report.changes(counted=True), "asked": True})

    async def _give_up(self) -> None:
        try:
            if self._server.durable is not None:
                await self._server.durable.give_up()
        finally:  # otherwise the front would wait for this host for ever
            self.channel.say({"gave_up": True})

    def report(self, *, counted: bool = False) -> None:
        """Send the front what has changed, without being asked; with `counted` also metrics and errors."""
        self.channel.say({"report": self._report.changes(counted=counted)})


def _described(error: errors.OpError | OSError) -> dict[str, Any]:
    """An error at a host's start, in the form that `failure` reads."""
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
    """Add the routes that only the front uses, which have no spans."""
    server = app[SERVER]
    paths = {"GET": SESSIONS_PATH, "POST": WARM_UP_PATH}
    of_all = [route for route in session_calls.routes(server) if route.path == "/v1/sessions"]
    own = [replace(route, path=paths[route.method], traced=False) for route in of_all]
    add_routes(app, own, server.access.guard)
