"""`rehearse` and `warm_up`: what a session host does for its first client is done before there is one.

`rehearse` serves once what a host serves, in the process from which hosts are forked.  What the first requests import,
compile and remember is then there before a fork, and hosts share its memory.  `warm_up` makes a session in a host
itself, whose pages are its own after that.  So the first session of a client takes no longer than another.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from typing import Any

import aexec
from aexec import ops, proto
from aexec.hosting import end_idle_threads
from aexec_server.app import make_app
from aexec_server.bodies import OCTETS, parse_graph
from aexec_server.callers import ANYONE
from aexec_server.listening import run_on_loop, serve_app
from aexec_server.server_config import ServerConfig
from aexec_server.server_state import Server
from aexec_server.store import NewSession

__all__ = ["rehearse", "warm_up"]

# A plan is compiled at its third run.
_RUNS = 3


def rehearse() -> None:
    """See the module's head.

    A process can be forked safely only without other threads: those that this needs have ended afterwards.

    Raises:
        RuntimeError: it left one.
    """
    before = set(threading.enumerate())
    with tempfile.TemporaryDirectory(prefix="aexec-") as folder:
        run_on_loop(_serve(f"{folder}/0"))
    end_idle_threads()
    left = set(threading.enumerate()) - before
    if left:
        raise RuntimeError(f"These threads were left: {left}")


async def warm_up(server: Server) -> None:
    """See the module's head.  Nothing counts what is done."""
    data = _graph()
    hosted = await server.sessions.create(
        lambda: NewSession(parse_graph(data, server.config.message_limits), proto.ConfigProto(), None),
        len(data),
        ANYONE,
    )
    await server.sessions.delete(hosted)


async def _serve(path: str) -> None:
    app = make_app(ServerConfig(handle_prefix="0-"))
    stop: asyncio.Queue[int] = asyncio.Queue()
    listens = asyncio.Event()
    serving = asyncio.create_task(serve_app(app, stop, lambda _: listens.set(), path=path))
    await listens.wait()
    await _ask(path)
    stop.put_nowait(0)
    await serving


async def _ask(path: str) -> None:
    """What a client asks: a session, some runs, and its end."""
    reader, writer = await asyncio.open_unix_connection(path)

    async def call(method: str, target: str, media: str, body: bytes) -> bytes:
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media}\r\nContent-Length: {len(body)}\r\n"
        )
        writer.write(f"{head}\r\n".encode() + body)
        answered = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = answered.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return await reader.readexactly(int(length or 0))

    session = f"/v1/sessions/{json.loads(await call('POST', '/v1/sessions', OCTETS, _graph()))['session_handle']}"
    run = json.dumps({"feeds": {"x:0": [1.0]}, "fetches": ["y:0"]}).encode()
    for _ in range(_RUNS):
        answer: dict[str, Any] = json.loads(await call("POST", f"{session}:run", "application/json", run))
        assert answer["outputs"] == {"y:0": [3.0]}, answer
    await call("DELETE", session, "application/json", b"")
    writer.close()


def _graph() -> bytes:
    with aexec.Graph() as graph:
        ops.identity(ops.add_v2(aexec.placeholder("float32", [None], name="x"), 2.0), name="y")
    return graph.to_bytes()
