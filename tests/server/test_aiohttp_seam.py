"""What the server needs of aiohttp beyond its documentation: each part is there, and means what it is used for.

A newer aiohttp of which that is not true fails here.  With `hidden` the installed one lacks a part: the server answers
without it, or refuses to start.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
import logging
import sys
import tomllib
import types
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aexec_server import ServerConfig, aiohttp_seam, make_app, run_server
from aexec_server.handlers.direct_runs import DirectRuns
from aiohttp import web

from aexec import errors
from tests.server.conftest import RELAYED, Start, small_graph
from tests.server.handlers.test_direct_runs import connected, run_request
from tests.support.virtual_clock import run_virtual

ROOT = Path(__file__).parents[2]
PARTS = {part.name: part for part in aiohttp_seam._PARTS}
# Without one of these, a server that others can reach does not start.
GUARDS = {
    "web.RequestHandler._waiter",
    "web.RequestHandler._current_request",
    "http_exceptions.HttpProcessingError",
}
# Without these, aiohttp answers every run.
OF_DIRECT_RUNS = {
    "web.RequestHandler._waiter",
    "web.RequestHandler._messages",
    "web.RequestHandler._next_keepalive_close_time",
    "http_parser.RawRequestMessage",
}
HEAD = b"POST /v1/sessions/m:run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"


# The installed aiohttp has the parts


@pytest.mark.parametrize("name", PARTS)
def test_part_is_there(name: str) -> None:
    assert PARTS[name].is_there


def test_requirement_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert aiohttp_seam.REQUIREMENT in project["dependencies"]


PRIVATE = {name for name in web.RequestHandler.__slots__ if name.startswith("_")}
DOCUMENTED = {"aiohttp.abc", "aiohttp.hdrs", "aiohttp.web"}


def undocumented(node: ast.AST) -> Iterator[str]:
    """What a node uses of aiohttp's modules, or of its connections, that is not documented."""
    imported: list[str] = []
    if isinstance(node, ast.Import):
        imported = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module == "aiohttp":
        imported = [f"aiohttp.{alias.name}" for alias in node.names if f"aiohttp.{alias.name}" in sys.modules]
    elif isinstance(node, ast.ImportFrom):
        imported = [node.module or ""]
    elif isinstance(node, ast.Attribute) and node.attr in PRIVATE and ast.unparse(node.value) != "self":
        yield ast.unparse(node)
    yield from (name for name in imported if name.startswith("aiohttp.") and name not in DOCUMENTED)


def test_seam_alone_uses_undocumented_parts() -> None:
    used = {}
    for path in (*ROOT.glob("server/**/*.py"), *ROOT.glob("aexec/remote/*.py")):
        text = path.read_text("utf-8")
        if "aiohttp" in text and path.stem != "aiohttp_seam":
            used[path.stem] = [name for node in ast.walk(ast.parse(text)) for name in undocumented(node)]
    assert len(used) > 30 and not any(used.values()), used


# They mean what they are used for


class Transport(asyncio.Transport):
    """Keeps what a server writes; `closed` is when it was closed, by the clock of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed: float | None = None

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed is not None

    def close(self) -> None:
        self.closed = asyncio.get_running_loop().time()


class Connection:
    """One of aiohttp's server, whose requests are answered once `go_on` is set."""

    def __init__(self, **settings: Any) -> None:
        self.go_on = asyncio.Event()
        self.server = web.Server(self._answer, **settings)
        self.handler = self.server()
        self.transport = Transport()
        self.handler.connection_made(self.transport)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        await self.go_on.wait()
        return web.Response(text=await request.text())

    async def came(self, data: bytes) -> None:
        """Give it bytes, and let it do with them what it can."""
        self.handler.data_received(data)
        await settled()

    @property
    def state(self) -> tuple[bool, bool, bool]:
        """Whether it awaits a request, awaits a body, and is idle."""
        handler = self.handler
        return (
            aiohttp_seam.awaits_request(handler),
            aiohttp_seam.awaits_body(handler),
            aiohttp_seam.is_idle(handler),
        )


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    made = Connection()
    await settled()
    yield made
    made.go_on.set()
    made.handler.connection_lost(None)
    await settled()


AWAITS_REQUEST, AWAITS_BODY, ANSWERS = (True, False, True), (False, True, False), (False, False, False)


async def test_state_follows_a_request(connection: Connection) -> None:
    assert connection.state == AWAITS_REQUEST
    for data, state in ((HEAD[:30], AWAITS_REQUEST), (HEAD[30:], AWAITS_BODY), (b"{", AWAITS_BODY), (b"}", ANSWERS)):
        await connection.came(data)
        assert connection.state == state, data
    connection.go_on.set()
    await settled()
    assert connection.transport.written.endswith(b"\r\n\r\n{}") and connection.state == AWAITS_REQUEST


async def test_message_is_to_be_seen_when_it_has_been_read(connection: Connection) -> None:
    messages = aiohttp_seam.parsed_messages(connection.handler)
    for _ in range(2):
        assert not messages
        connection.handler.data_received(HEAD + b"{}")
        assert aiohttp_seam.parsed_messages(connection.handler) is messages
        assert not aiohttp_seam.awaits_request(connection.handler) and not aiohttp_seam.is_idle(connection.handler)
        ((message, _),) = messages
        assert isinstance(message, aiohttp_seam.RawRequestMessage)
        assert (message.path, message.headers["Host"], message.version) == (
            "/v1/sessions/m:run",
            "localhost",
            aiohttp.HttpVersion11,
        )
        assert not (message.chunked or message.upgrade or message.should_close or message.compression)
        connection.go_on.set()
        await settled()


@pytest.mark.parametrize("how", [web.RequestHandler.close, web.RequestHandler.force_close])
async def test_closing_connection_is_not_idle(connection: Connection, how: Any) -> None:
    how(connection.handler)
    assert not aiohttp_seam.is_idle(connection.handler)


def test_keep_open_until_puts_closing_off() -> None:
    async def closed_after(seconds: float | None) -> float:
        loop = asyncio.get_running_loop()
        connection = Connection(keepalive_timeout=10)
        connection.go_on.set()
        await connection.came(HEAD + b"{}")
        began = loop.time()
        if seconds is not None:
            aiohttp_seam.keep_open_until(connection.handler, began + seconds)
        await asyncio.sleep(100)
        connection.handler.connection_lost(None)
        assert connection.transport.closed is not None
        return connection.transport.closed - began

    assert run_virtual(closed_after(None)) == 10
    assert run_virtual(closed_after(25)) == 25


async def test_malformed_http_is_logged_with_its_error(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await connection.came(b"GET / HTTP/1.1\r\nno header\r\n\r\n")
    assert connection.transport.written.startswith(b"HTTP/1.0 400 ")
    raised = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert raised and all(isinstance(error, aiohttp_seam.HttpProcessingError) for error in raised)


async def test_headers_are_those_of_other_answers(connection: Connection) -> None:
    connection.go_on.set()
    before = aiohttp_seam.http_date()
    await connection.came(HEAD + b"{}")
    dates = [f"Date: {date}\r\n".encode() for date in (before, aiohttp_seam.http_date())]
    assert any(date in connection.transport.written for date in dates)
    assert f"Server: {aiohttp_seam.SERVER_SOFTWARE}\r\n".encode() in connection.transport.written


# What is without a part


def functions(module: types.ModuleType) -> Iterator[types.FunctionType]:
    """Those of a module and of its classes."""
    for owner in (module, *(one for one in vars(module).values() if isinstance(one, type))):
        if owner is module or owner.__module__ == module.__name__:
            yield from (one for one in vars(owner).values() if isinstance(one, types.FunctionType))


@contextlib.contextmanager
def hidden(name: str) -> Iterator[None]:
    """Context manager: aiohttp has a part under another name, as a newer one might; for servers made within."""
    first, *path = name.split(".")
    owner: Any = importlib.import_module(f"aiohttp.{first}")
    for inner in path[:-1]:
        owner = getattr(owner, inner)
    module, old, new = sys.modules.get(getattr(owner, "__module__", ""), owner), path[-1], f"{path[-1]}_renamed"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, new, vars(owner)[old], raising=False)
        patch.delattr(owner, old)
        for function in functions(module):
            code = function.__code__
            if old in code.co_names:
                names = tuple(new if used == old else used for used in code.co_names)
                patch.setattr(function, "__code__", code.replace(co_names=names))
        importlib.reload(aiohttp_seam)
        try:
            yield
        finally:
            patch.undo()
            importlib.reload(aiohttp_seam)


@pytest.mark.parametrize("name", PARTS)
async def test_every_function_can_be_called_without_a_part(name: str) -> None:
    with hidden(name):
        connection = Connection()
        await settled()
        assert connection.state in (AWAITS_REQUEST, (True, False, False), (False, False, True))
        assert not aiohttp_seam.parsed_messages(connection.handler)
        aiohttp_seam.keep_open_until(connection.handler, asyncio.get_running_loop().time() + 10)
        aiohttp_seam.forget_handlers()
        assert aiohttp_seam.http_date().endswith("GMT") and aiohttp_seam.SERVER_SOFTWARE.startswith("Python/")
        connection.handler.connection_lost(None)
        await settled()


@pytest.mark.skipif(RELAYED, reason="looks at connections of the server")
@pytest.mark.parametrize("name", PARTS)
async def test_runs_are_answered_without_a_part(name: str, start: Start) -> None:
    """One after the other on a connection, and one of which the body comes late."""
    data = run_request()
    with hidden(name):
        api = await start(graphs={"m": small_graph().graph()})
        assert (DirectRuns.of(api.client.app) is None) == (name in OF_DIRECT_RUNS)
        async with connected(api) as client:
            for _ in range(6):
                status, headers, body = await client.ask(data)
                assert status == 200 and b"4" in body
                assert headers["server"].startswith("Python/") and headers["date"].endswith("GMT")
            client.writer.write(data[:-3])
            await client.writer.drain()
            assert (await client.ask(data[-3:]))[0] == 200
        await api.client.close()


@pytest.mark.parametrize("name", PARTS)
def test_missing_part_is_warned_of(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with hidden(name):
        aiohttp_seam.check_parts(exposed=False)
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert f"aiohttp {aiohttp.__version__} has no {name}: {PARTS[name].without}" in record.getMessage()
    caplog.clear()
    aiohttp_seam.check_parts(exposed=True)
    assert not caplog.records


@pytest.mark.parametrize("name", PARTS)
def test_exposed_server_is_refused_without_a_guard(name: str) -> None:
    refused = pytest.raises(errors.FailedPreconditionError) if name in GUARDS else contextlib.nullcontext()
    with hidden(name), refused as caught:
        aiohttp_seam.check_parts(exposed=True)
    if caught is not None:
        for word in (aiohttp.__version__, name, aiohttp_seam.REQUIREMENT):
            assert word in caught.value.message


async def test_server_checks_the_parts_when_it_starts(caplog: pytest.LogCaptureFixture) -> None:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    with hidden("web.RequestHandler._waiter"):
        with pytest.raises(errors.FailedPreconditionError, match=r"has no web\.RequestHandler\._waiter"):
            await run_server(ServerConfig(host="0.0.0.0", port=0, insecure_no_auth=True))
        serving = asyncio.create_task(run_server(app=make_app(ServerConfig(port=0)), on_ready=address.set_result))
        await address
        assert "has no web.RequestHandler._waiter" in caplog.text
        serving.cancel()
        await asyncio.wait([serving])
