"""A session host: a process that serves the application on a Unix socket, within limits of memory, files and threads.

It is forked from a process that has imported all of aexec (`host_preload.py`): so it begins in hundredths of a second,
and shares the memory of what was imported.  `hosts.py` starts and watches it, and tells it through a pipe when to stop.
It ends with the process that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from dataclasses import replace
from multiprocessing.connection import Connection

from aiohttp import web

from aexec import errors
from aexec_server import sessions
from aexec_server.app import make_app
from aexec_server.bodies import json_response
from aexec_server.callers import Scope
from aexec_server.listening import run_on_loop, serve_app
from aexec_server.metrics import snapshot_to_json
from aexec_server.routes import Route, add_routes
from aexec_server.server_config import ServerConfig
from aexec_server.server_log import begin_log
from aexec_server.server_state import SERVER
from aexec_server.status import process_status

__all__ = ["LOAD_PATH", "READY", "SESSIONS_PATH", "STOP", "run_host"]

# What a host has to do, and how it is; and the sessions that it lists.  The front asks for these, clients cannot.
LOAD_PATH = "/load"
SESSIONS_PATH = "/sessions"
STOP = b"stop"
READY = b"ready"

_PR_SET_PDEATHSIG = 1
_MAX_FILES = 8192
_MAX_PROCESSES = 4096
# Address space is reserved (stacks, arenas) that is never used: as much as memory may be used, and this.
_RESERVED = 2**30


def run_host(config: ServerConfig, path: str, pipe: Connection, log_level: int) -> None:
    """The process.

    Args:
        config: of the application.
        path: of its socket.
        pipe: gets READY, or a pickled error, when it listens or cannot; gives STOP, once to drain and once more to
            cancel what runs.
        log_level: for its log, on standard error.
    """
    _end_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's: who started it says when to stop
    limit_resources(config.max_host_bytes)
    begin_log(log_level, config.log_format)
    run_on_loop(_serve(config, path, pipe))


def _end_with_parent(parent: int) -> None:
    """Be killed when the parent dies, however it does, and even if nothing here is able to notice."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def limit_resources(max_bytes: int | None) -> None:
    """Bound what this process may take.  Memory beyond `max_bytes` is watched from outside; see `hosts.py`."""
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


async def _serve(config: ServerConfig, path: str, pipe: Connection) -> None:
    app = make_app(config)
    _add_own_routes(app)
    stop: asyncio.Queue[int] = asyncio.Queue()

    def told() -> None:
        try:
            assert pipe.recv_bytes() == STOP
        except (EOFError, OSError):  # who started it is gone
            os._exit(1)
        stop.put_nowait(0)

    asyncio.get_running_loop().add_reader(pipe.fileno(), told)
    try:
        await serve_app(app, stop, lambda _: pipe.send_bytes(READY), path=path)
        spans = app[SERVER].spans
        if spans is not None:
            await asyncio.to_thread(spans.flush)
    except (errors.OpError, OSError) as error:
        pipe.send(error)


def _add_own_routes(app: web.Application) -> None:
    """Calls of the front, of which there are no spans: it answers a client's request with them, or nobody's."""
    server = app[SERVER]
    listed = next(route for route in sessions.routes(server) if (route.method, route.path) == ("GET", "/v1/sessions"))
    load = Route("GET", LOAD_PATH, _load, "What the host has to do", traced=False, scope=Scope.OPEN)
    add_routes(app, [load], lambda route: route.handler)  # asked without a caller
    add_routes(app, [replace(listed, path=SESSIONS_PATH, traced=False)], server.access.guard)


async def _load(request: web.Request) -> web.Response:
    server = request.app[SERVER]
    return json_response(
        {
            "ready": server.ready,
            "models": [hosted.handle for hosted in server.sessions if hosted.listed],
            "metrics": snapshot_to_json(server.metrics.snapshot()),
            "status": process_status(server),
            "callers": server.of_callers(),
        }
    )
