"""Requests for runs that are refused before they are read, and where they end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aexec_server.app import route_table
from aexec_server.connections.connections import ConnectionLimits, ConnectionTable
from aexec_server.connections.guarded_connection import guarded
from aexec_server.core.routes import Route
from aexec_server.core.server_state import Server
from aexec_server.http.backlog import _RUN, Backlog
from aexec_server.settings.server_config import ServerConfig
from aiohttp import web

from tests.support.virtual_clock import VirtualClockLoop, run_virtual

RUN = b"POST /v1/sessions/abc:run HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b"


def run(body: bytes) -> bytes:
    return RUN % (len(body), body)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Served:
    """A server that answers with the length of what came, and a client of it."""

    def __init__(self, backlog: Backlog, clock: Clock) -> None:
        self.backlog, self.clock = backlog, clock
        self.bodies: list[bytes] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.waits = asyncio.Event()

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.bodies.append(await request.read())
        self.waits.set()
        await self.go_on.wait()
        return web.Response(text=request.path)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def __aenter__(self) -> Served:
        self.server = web.Server(self.answer)
        table = ConnectionTable(ConnectionLimits.of(ServerConfig(), most=10))
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(guarded(self.server, table, self.backlog), "127.0.0.1", 0)
        self.port = self._listening.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        self.go_on.set()
        await self.server.shutdown(1)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    clock = Clock()
    async with Served(Backlog(clock), clock) as served:
        yield served


def test_refused_requests_are_counted() -> None:
    written: list[bytes] = []

    class Client(asyncio.Transport):
        def write(self, data: Any) -> None:
            written.append(data)

    server = Server(ServerConfig())
    server.backlog.refuse(Client())
    assert written[0].startswith(b"HTTP/1.1 429 ") and server.backlog.refused == 1
    assert server.metrics.snapshot()["aexec_cancellations"] == {("overload",): 1}


async def status(reader: asyncio.StreamReader) -> int:
    """Of the next answer, which is read to its end."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0])
    await reader.readexactly(length)
    return int(head[9:12])


async def overloaded(served: Served) -> asyncio.StreamWriter:
    """A run is read, and does not begin for long."""
    served.go_on.clear()
    served.waits.clear()
    _, writer = await served.connect()
    writer.write(run(b"first"))
    await served.waits.wait()
    pass_time(served, 1.0)
    return writer


def pass_time(served: Served, seconds: float) -> None:
    """While the loop comes round again and again."""
    for _ in range(round(seconds / 0.05)):
        served.clock.now += 0.05  # more would count as standing still
        served.backlog.is_too_long()


async def test_runs_are_refused_while_the_first_has_waited_for_long(served: Served) -> None:
    first = await overloaded(served)
    reader, writer = await served.connect()
    for pieces in ([run(b"{}")], [run(b"12345678")[:-3], b"6", b"78"]):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        assert await status(reader) == 429
    assert served.backlog.refused == 2 and served.bodies == [b"first"]
    # Other requests are for those that run, or for health.
    served.go_on.set()
    writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await status(reader) == 200
    # The first was answered, although nobody said that it began.
    writer.write(run(b"{}"))
    assert await status(reader) == 200
    first.close()
    writer.close()


async def test_runs_that_begin_are_no_backlog(served: Served) -> None:
    reader, writer = await served.connect()
    for transport in range(3):
        served.backlog.arrived(asyncio.BaseTransport(), lambda: False)
        assert len(served.backlog) == transport + 1
    for transport in list(served.backlog._waiting):
        served.backlog.begun(transport)
    pass_time(served, 1.0)
    writer.write(run(b"{}"))
    assert await status(reader) == 200
    writer.close()


async def test_runs_without_priority_are_refused_unread_while_there_is_no_room(served: Served) -> None:
    before: list[int] = []

    def is_full(more: int) -> bool:
        before.append(more)
        return True

    served.backlog.is_full = is_full
    reader, writer = await served.connect()
    writer.write(run(b"{}"))
    assert await status(reader) == 429 and not served.bodies
    urgent = run(b'{"options": {"priority": 1}}'), run(b"{}").replace(b"Host: x", b"Host: x\r\nPriority: u=1")
    for request in urgent:
        writer.write(request)
        assert await status(reader) == 200
    writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await status(reader) == 200
    assert before[0] == 0 and served.backlog.refused == 1
    writer.close()


@pytest.mark.parametrize(("turn", "after"), [(0.005, 0.25), (0.05, 0.25), (0.5, 1.25), (10.0, 25.0)])
def test_time_in_which_the_loop_stood_still_is_no_waiting(turn: float, after: float) -> None:
    """Where there is too much to do, the loop comes round; a process without a processor could begin nothing."""

    async def waited() -> float:
        """How long a request has waited when others are refused, where each turn of the loop takes so long."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualClockLoop)
        backlog, connection, began = Backlog(loop.time), asyncio.BaseTransport(), loop.now
        backlog.arrived(connection, lambda: False)
        while not backlog.is_too_long():
            loop.now += turn
            await asyncio.sleep(0)
        backlog.begun(connection)
        return loop.now - began

    assert after < run_virtual(waited()) <= 2.5 * after


async def test_arrival_is_when_a_request_was_read() -> None:
    clock = Clock()
    backlog = Backlog(clock)
    connection = asyncio.BaseTransport()
    clock.now = 1.0
    backlog.arrived(connection, lambda: False)
    clock.now = 2.0
    assert backlog.arrival(connection) == 1.0
    assert backlog.arrival(asyncio.BaseTransport()) == backlog.arrival(None) == 2.0
    backlog.begun(connection)
    assert backlog.arrival(connection) == 2.0


async def test_request_inside_a_body_is_not_counted(served: Served) -> None:
    """However it is cut, and whatever came before it."""
    first = await overloaded(served)
    inner = run(b"{}")
    reader, writer = await served.connect()
    writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (2 * len(inner)))
    await writer.drain()
    while len(served.server.connections) < 2:
        await asyncio.sleep(0)
    for _ in range(2):
        writer.write(inner)
        await writer.drain()
    served.go_on.set()
    assert await status(reader) == 200
    assert served.bodies[1:] == [2 * inner] and served.backlog.refused == 0
    first.close()
    writer.close()


async def test_ends_of_requests_are_unknown_after_several_came_together(served: Served) -> None:
    reader, writer = await served.connect()
    ahead = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(run(b"{}"))
    writer.write(run(b"{}") + ahead)
    assert await status(reader) == 200
    first = await overloaded(served)
    served.go_on.set()
    writer.write(run(b"{}"))
    assert await status(reader) == 200
    assert served.bodies == [b"{}", b"first", run(b"{}")] and served.backlog.refused == 0
    first.close()
    writer.close()


async def test_chunks_are_not_followed(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(b"POST /v1/sessions/abc:run HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    assert await status(reader) == 200
    first = await overloaded(served)
    served.go_on.set()
    writer.write(run(b"{}"))
    assert await status(reader) == 200 and served.backlog.refused == 0
    first.close()
    writer.close()


def test_routes_of_runs_are_known_by_their_first_line() -> None:
    """All that begin a run: what is refused unread is told by bytes, not by the table of routes."""
    routes = [route for route in route_table(Server(ServerConfig())) if "{partial}" not in route.path]
    told = {route.path for route in routes if _RUN.match(f"{route.method} {filled(route)} ".encode())}
    assert {route.path for route in routes if route.direct is not None} <= told
    answers = {"RunResponse", "PredictResponse", "ClassifyResponse", "RegressResponse", "InferResponse"}
    answered = {route.path for route in routes if route.method == "POST" and route.response in answers}
    assert told == answered, "a route of runs is to be in `_RUN` of backlog.py"


def filled(route: Route) -> str:
    return re.sub(r"{\w+}", "1", route.path)
