"""A server in process, and shorthand for what tests ask of it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, cast

import pytest
from aexec_server import SERVER, ServerConfig, make_app
from aexec_server.clients.callers import Caller, Scope
from aexec_server.connections.connections import ConnectionLimits, ConnectionTable
from aexec_server.connections.guarded_connection import guarded
from aexec_server.core.server_state import Server
from aexec_server.handlers.direct_runs import DirectRuns
from aexec_server.hosts.relay import Relay, Upstream, UpstreamConnection
from aexec_server.sessions.hosted_session import HostedSession
from aiohttp import ClientResponse, ClientSession, TCPConnector, web
from aiohttp.test_utils import TestClient, TestServer

from aexec.framework import dtypes
from aexec.framework.op_contract import op_registry
from tests.server.described import check_exchange
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder

# The tests of this folder hold for what is behind a relay too.
RELAYED = os.environ.get("AEXEC_TEST_RELAYED") == "1"


SEES_ALL = Caller("test", frozenset([Scope.ADMIN]))


def ops_of_tests() -> list[str]:
    """What the program of these tests has registered, which clients may not use by default."""
    return [op for op in op_registry.global_registry.ops() if op.startswith("Test")]


class _Here(Upstream):
    """A test's own server."""

    def __init__(self, port: int) -> None:
        super().__init__("")
        self._port = port

    async def connect(self) -> UpstreamConnection:
        loop, ours = asyncio.get_running_loop(), _small_buffered()
        await loop.sock_connect(ours, ("127.0.0.1", self._port))
        _, connection = await loop.create_connection(lambda: UpstreamConnection(self), sock=ours)
        return connection


def _small_buffered() -> socket.socket:
    """A socket that takes little before it is read, however many of them lie between a client and a server."""
    made = socket.socket()
    made.setblocking(False)
    for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        made.setsockopt(socket.SOL_SOCKET, buffer, 1 << 17)
    return made


class GuardedServer(TestServer):
    """A server with the connections that `aexec serve` has."""

    async def start_server(self, **kwargs: Any) -> None:
        await super().start_server(**kwargs)
        self.table = ConnectionTable(ConnectionLimits.of(ServerConfig(), most=1000))
        connections = guarded(self.handler, self.table, self.app[SERVER].backlog, DirectRuns.of(self.app))
        self._guarding = await self._listen(connections)

    async def _listen(self, connections: Callable[[], asyncio.BaseProtocol]) -> asyncio.Server:
        """Lead the address to these from now on."""
        ours = _small_buffered()
        ours.bind(("127.0.0.1", 0))
        listening = await asyncio.get_running_loop().create_server(connections, sock=ours)
        self.port = listening.sockets[0].getsockname()[1]
        assert self._root is not None
        self._root = self._root.with_port(self.port)
        return listening

    async def close(self) -> None:
        self._guarding.close()
        await super().close()


class RelayedServer(GuardedServer):
    """One behind a relay, to which its address leads."""

    async def start_server(self, **kwargs: Any) -> None:
        await super().start_server(**kwargs)
        assert self.port is not None
        upstream = _Here(self.port)
        self.relay = Relay(lambda head, request, host: (head, upstream), upstream, self.table)
        self._relaying = await self._listen(self.relay)

    async def close(self) -> None:
        self._relaying.close()
        self.relay.table.close_all()
        await super().close()


class Api:
    """A client of one server."""

    def __init__(self, client: TestClient[web.Request, web.Application], server: Server) -> None:
        self.client = client
        self.server = server
        self._connecting = lambda: asyncio.open_connection(client.host, client.port)

    async def call(self, method: str, path: str, body: Any = None, **kwargs: Any) -> tuple[int, Any]:
        """Status and decoded JSON; the text if it is none, None if there is nothing."""
        data = body
        if body is not None and not isinstance(body, bytes):
            data = json.dumps(body).encode()
            kwargs.setdefault("headers", {}).setdefault("Content-Type", "application/json")
        if data is not None:
            data = io.BytesIO(data)  # aiohttp warns of large bytes
        async with self.client.request(method, path, data=data, **kwargs) as response:
            text = await response.text()
            if "json" in response.content_type:
                answer = json.loads(text)
                check_exchange(method, path, body, response.status, answer)
                return response.status, answer
            return response.status, text or None

    async def raw(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[ClientResponse, bytes]:
        """The response and its bytes.  Header names are written with underscores."""
        named = {"Content-Type": "application/json"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.request(method, path, data=io.BytesIO(body), headers=named) as response:
            return response, await response.read()

    async def create(self, graph: GraphBuilder, **fields: Any) -> str:
        """A session; returns its handle."""
        encoded = base64.b64encode(graph.graph_def.SerializeToString()).decode()
        status, answer = await self.call("POST", "/v1/sessions", {"graph_def": encoded, **fields})
        assert status == 201, answer
        return str(answer["session_handle"])

    async def run(self, handle: str, **fields: Any) -> tuple[int, Any]:
        return await self.call("POST", f"/v1/sessions/{handle}:run", fields)

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Bytes as they are."""
        reader, writer = await self._connecting()
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    @contextlib.asynccontextmanager
    async def elsewhere(self, address: str = "127.0.0.2") -> AsyncIterator[Api]:
        """Another client of the server, whose connections come from this address."""
        connector = TCPConnector(local_addr=(address, 0))
        async with ClientSession(self.client.make_url("/"), connector=connector) as client:
            other = Api(cast(Any, client), self.server)
            other._connecting = partial(
                asyncio.open_connection, self.client.host, self.client.port, local_addr=(address, 0)
            )
            yield other

    def hosted(self, handle: str) -> HostedSession:
        return self.server.sessions.get(handle, SEES_ALL)


Start = Callable[..., Awaitable[Api]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Makes servers: `api = await start(max_sessions=2)`."""
    clients = []

    async def make(**settings: Any) -> Api:
        settings.setdefault("allow_ops", ops_of_tests())
        app = make_app(ServerConfig(**settings))
        client = TestClient(RelayedServer(app) if RELAYED else GuardedServer(app))
        await client.start_server()
        clients.append(client)
        return Api(client, app[SERVER])

    yield make
    for client in clients:
        await client.close()


@pytest.fixture
async def api(start: Start) -> Api:
    """A server with default settings."""
    return await start()


def small_graph() -> GraphBuilder:
    """`y` is the square of `x`; `s` and `b` go through as `s_out` and `b_out`; `fails` fails."""
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    g("y", "Square", "x", T=dtypes.float32)
    g.placeholder("m", dtypes.float32)
    g("m_out", "Identity", "m", T=dtypes.float32)
    g.placeholder("s", dtypes.string)
    g("s_out", "Identity", "s", T=dtypes.string)
    g.placeholder("b", dtypes.bool_)
    g("b_out", "Identity", "b", T=dtypes.bool_)
    g.placeholder("i", dtypes.int32)
    g("i_out", "Identity", "i", T=dtypes.int32)
    g("fails", "TestFail", "x", T=dtypes.float32)
    g("nothing", "NoOp")
    return g


def gate_graph(gate: gates.Gate) -> GraphBuilder:
    """`y` waits at the gate."""
    g = GraphBuilder()
    g.const("c", 1.5, dtypes.float32)
    g("y", "TestGate", "c", key=gate.key, T=dtypes.float32)
    return g


@pytest.fixture
async def small(api: Api) -> str:
    """A session with `small_graph`."""
    return await api.create(small_graph())
