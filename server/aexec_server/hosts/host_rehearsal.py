"""`rehearse` and `warm_up`: do the work of a session host's first requests before a client comes.

`rehearse` serves such requests once in the process from which hosts are forked.  So all that the first requests import,
compile and cache exists before a fork, and hosts share its memory.  `warm_up` makes a session in a host
itself, which gives the host its own copies of the pages that it writes to.  So a client's first session takes no longer
than another.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import threading
from functools import cache
from typing import Any

import aexec
from aexec import ops
from aexec.hosting import end_idle_threads
from aexec_server.app import make_app
from aexec_server.clients.caller_header import with_caller
from aexec_server.clients.callers import ANYONE
from aexec_server.connections.listening import run_on_loop, serve_app
from aexec_server.core.server_state import Server
from aexec_server.http.bodies import OCTETS
from aexec_server.settings.server_config import ServerConfig

__all__ = ["WARM_UP_PATH", "rehearse", "warm_up"]

# The path where a host makes the session of `warm_up`; requests for it have no spans.
WARM_UP_PATH = "/warm-up"

# A plan is compiled at its third run; Python specialises code that has run some ten times.
_RUNS = 3
_SESSIONS = 20


def rehearse() -> None:
    """Serve once what a host serves, so that forked hosts share what the first requests import and compile.

    A process can be forked safely only without other threads: those that this needs have ended afterwards.

    Raises:
        RuntimeError: a thread is left.
    """
    before = set(threading.enumerate())
    with tempfile.TemporaryDirectory(prefix="aexec-") as folder:
        run_on_loop(_serve(f"{folder}/0"))
    end_idle_threads()
    left = set(threading.enumerate()) - before
    if left:
        raise RuntimeError(f"These threads were left: {left}")


async def warm_up(server: Server, path: str) -> None:
    """Make a session and close it, unless this process is told to stop meanwhile.  No metric counts it.

    Args:
        server: the server of this process.
        path: the path of its socket, where `WARM_UP_PATH` is served as /v1/sessions is.
    """
    with contextlib.suppress(OSError, EOFError):
        async with _Client(path, server.config.caller_key) as client:
            made = json.loads(await client.call("POST", WARM_UP_PATH, OCTETS, _graph()))
        if "session_handle" in made:
            await server.sessions.delete(server.sessions.get(made["session_handle"], ANYONE))


async def _serve(path: str) -> None:
    app = make_app(ServerConfig(handle_prefix="0-"))
    stop: asyncio.Queue[int] = asyncio.Queue()
    listens = asyncio.Event()
    serving = asyncio.create_task(serve_app(app, stop, lambda _: listens.set(), path=path))
    await listens.wait()
    async with _Client(path) as client:
        for _ in range(_SESSIONS):
            await _ask(client)
    stop.put_nowait(0)
    await serving


async def _ask(client: _Client) -> None:
    """Do what a client does: make a session, run it, and delete it."""
    made = json.loads(await client.call("POST", "/v1/sessions", OCTETS, _graph()))
    session = f"/v1/sessions/{made['session_handle']}"
    run = json.dumps({"feeds": {"x:0": [1.0]}, "fetches": ["y:0"]}).encode()
    for _ in range(_RUNS):
        answer: dict[str, Any] = json.loads(await client.call("POST", f"{session}:run", "application/json", run))
        assert answer["outputs"] == {"y:0": [3.0]}, answer
    await client.call("DELETE", session, "application/json", b"")


class _Client:
    """A connection to a server, on its Unix socket.

    Args:
        path: the socket's path.
        key: the key by which the server knows its front; None if it has none.
    """

    def __init__(self, path: str, key: str | None = None) -> None:
        self._path = path
        self._key = key

    async def __aenter__(self) -> _Client:
        self._reader, self._writer = await asyncio.open_unix_connection(self._path)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._writer.close()

    async def call(self, method: str, target: str, media: str, body: bytes) -> bytes:
        """Send a request; return the body of the answer."""
        lines = [
            f"{method} {target} HTTP/1.1",
            "Host: localhost",
            f"Content-Type: {media}",
            f"Content-Length: {len(body)}",
        ]
        head = "\r\n".join([*lines, "", ""]).encode()
        self._writer.write((head if self._key is None else with_caller(head, self._key, ANYONE)) + body)
        answered = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = answered.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return await self._reader.readexactly(int(length or 0))


@cache
def _graph() -> bytes:
    with aexec.Graph() as graph:
        ops.identity(ops.add_v2(aexec.placeholder("float32", [None], name="x"), 2.0), name="y")
    return graph.to_bytes()
