"""The same session in this process and in a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aexec_server import ServerConfig
from aexec_server.core.server_state import Server

import aexec
from tests.server.conftest import ops_of_tests
from tests.support.serving import serving_both

# Makes sessions of graphs.
Open = Callable[..., Awaitable[Any]]


class Served:
    """A server, and its addresses for HTTP and gRPC."""

    def __init__(self, server: Server, url: str, grpc_url: str) -> None:
        self.server = server
        self.url = url
        self.grpc_url = grpc_url


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving_both(ServerConfig(allow_ops=ops_of_tests(), grpc_port=0)) as (server, url, grpc_url):
        yield Served(server, url, grpc_url)


@pytest.fixture(params=["here", "HTTP", "gRPC"])
async def open_session(request: pytest.FixtureRequest, served: Served) -> AsyncIterator[Open]:
    """Sessions of each kind, closed in the end."""
    url = {"here": None, "HTTP": served.url, "gRPC": served.grpc_url}[request.param]
    opened = []

    async def make(graph: Any) -> Any:
        session = await (aexec.Session(graph) if url is None else aexec.connect(url, graph))
        opened.append(session)
        return session

    yield make
    for session in opened:
        await session.close()
