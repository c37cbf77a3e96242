"""Servers in processes of their own, watched from outside while they are sent what should not hurt them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.server_process import ServerProcess

HostileServer = Callable[..., ServerProcess]

# Seconds in which /livez answers, whatever is sent.
# 0.1 s on a machine of its own; where others work beside the tests, a thread may be without the processor for longer.
LIVE_WITHIN = 0.3


@pytest.fixture
def hostile_server(tmp_path: Path) -> Iterator[HostileServer]:
    """Makes servers: `hostile_server(drain="2s", access_log=True)`.  Nothing of them may be left afterwards."""
    servers: list[ServerProcess] = []

    def make(**options: Any) -> ServerProcess:
        folder = tmp_path / f"server-{len(servers)}"
        folder.mkdir()
        servers.append(ServerProcess(folder, **options))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One with default settings, for all tests of a module: a test deletes the sessions that it makes."""
    process = ServerProcess(tmp_path_factory.mktemp("server"))
    yield process
    process.stop()
