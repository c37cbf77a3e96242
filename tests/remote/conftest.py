"""The same session in this process and in a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aexec_server import SERVER, ServerConfig, make_app
from aexec_server.core.server_state import Server
from aiohttp.test_utils import TestServer

import aexec
from tests.server.conftest import ops_of_tests

# Makes sessions of graphs.
Open = Callable[..., Awaitable[Any]]


class Served:
    """A server, and its address."""

    def __init__(self, server: Server, url: str) -> None:
        self.server = server
        self.url = url


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    app = make_app(ServerConfig(allow_ops=ops_of_tests()))
    listening = TestServer(app)
    await listening.start_server()
    yield Served(app[SERVER], str(listening.make_url("")))
    await listening.close()


@pytest.fixture(params=["here", "there"])
async def open_session(request: pytest.FixtureRequest, served: Served) -> AsyncIterator[Open]:
    """Sessions of either kind, closed in the end."""
    url = served.url if request.param == "there" else None
    opened = []

    async def make(graph: Any) -> Any:
        session = await (aexec.Session(graph) if url is None else aexec.connect(url, graph))
        opened.append(session)
        return session

    yield make
    for session in opened:
        await session.close()
