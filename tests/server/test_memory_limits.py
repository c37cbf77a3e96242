"""The limits of memory that a server has, and what it derives them from."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from aexec_server import ServerConfig
from aexec_server.hosts import Hosts
from aexec_server.memory_limits import memory_limits

GB = 1 << 30


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("memory_limits", "hosts"):
        monkeypatch.setattr(f"aexec_server.{module}.total_memory", lambda: 10 * GB)


def test_they_are_parts_of_what_there_is() -> None:
    assert memory_limits(ServerConfig()) == (5 * GB, 5 * GB // 2, 5 * GB // 2)


def test_those_that_are_set_stay() -> None:
    assert memory_limits(ServerConfig(max_memory_bytes=GB)) == (GB, GB // 2, GB // 2)
    assert memory_limits(ServerConfig(max_session_bytes=GB, max_run_bytes=7)) == (5 * GB, GB, 7)


def test_infinity_is_no_limit() -> None:
    assert memory_limits(ServerConfig(max_memory_bytes=math.inf)) == (None, None, None)
    assert memory_limits(ServerConfig(max_run_bytes=math.inf)) == (5 * GB, 5 * GB // 2, None)


def test_nobody_knows_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aexec_server.memory_limits.total_memory", lambda: math.inf)
    assert memory_limits(ServerConfig()) == (None, None, None)


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        (ServerConfig(hosts=4), GB),  # half of a fourth of 8 GB
        (ServerConfig(hosts=4, max_memory_bytes=2 * GB), GB // 2),
        (ServerConfig(hosts=4, max_host_bytes=GB), GB // 2),
    ],
)
async def test_a_host_has_its_part(config: ServerConfig, limit: int, tmp_path: Path) -> None:
    host = Hosts(config, tmp_path)._new_session_host(0)
    assert memory_limits(host.config).server == limit
    assert memory_limits(replace(host.config)).run == limit // 2
