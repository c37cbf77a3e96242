"""The limits of memory that a server has, and what it derives them from."""

from __future__ import annotations

import math

import pytest
from aexec_server import ServerConfig
from aexec_server.hosts.host_limits import HostLimits
from aexec_server.settings.memory_limits import memory_limits

GB = 1 << 30


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("settings.memory_limits", "hosts.host_limits"):
        monkeypatch.setattr(f"aexec_server.{module}.total_memory", lambda: 10 * GB)


def test_default_limits_are_parts_of_the_memory() -> None:
    assert memory_limits(ServerConfig()) == (5 * GB, 5 * GB // 2, 5 * GB // 2)


def test_configured_limits_hold() -> None:
    assert memory_limits(ServerConfig(max_memory_bytes=GB)) == (GB, GB // 2, GB // 2)
    assert memory_limits(ServerConfig(max_session_bytes=GB, max_run_bytes=7)) == (5 * GB, GB, 7)


def test_infinity_is_no_limit() -> None:
    assert memory_limits(ServerConfig(max_memory_bytes=math.inf)) == (None, None, None)
    assert memory_limits(ServerConfig(max_run_bytes=math.inf)) == (5 * GB, 5 * GB // 2, None)


def test_unknown_memory_gives_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aexec_server.settings.memory_limits.total_memory", lambda: math.inf)
    assert memory_limits(ServerConfig()) == (None, None, None)


@pytest.mark.parametrize(
    ("config", "limit", "together"),
    [
        (ServerConfig(hosts=4), GB, 4 * GB),  # half of a fourth of 8 GB
        (ServerConfig(hosts=4, max_memory_bytes=2 * GB), GB // 2, 2 * GB),
        (ServerConfig(hosts=4, max_host_bytes=GB), GB // 2, 2 * GB),
        (ServerConfig(hosts=4, max_memory_bytes=math.inf), None, None),
    ],
)
def test_each_of_a_number_of_hosts_has_its_part(config: ServerConfig, limit: int | None, together: int | None) -> None:
    limits = HostLimits.of(config)
    half = None if limit is None else limit // 2
    assert memory_limits(limits.host).server == limit and memory_limits(limits.host).run == half
    assert (limits.own, limits.most, limits.warm, limits.tensor_bytes) == (False, 4, 0, together)
    assert limits.host.max_sessions == 250 and limits.host.max_runs == 250


@pytest.mark.parametrize(
    ("config", "together", "each"),
    [
        (ServerConfig(hosts=None), 4 * GB, 2 * GB),  # half of 8 GB, and of half of that
        (ServerConfig(hosts=None, max_memory_bytes=3 * GB), 3 * GB, 3 * GB),
        (ServerConfig(hosts=None, max_host_bytes=GB), 4 * GB, GB // 2),
        (ServerConfig(hosts=None, max_memory_bytes=math.inf), None, None),
    ],
)
def test_hosts_of_single_sessions_have_limits_together(
    config: ServerConfig, together: int | None, each: int | None
) -> None:
    limits = HostLimits.of(config)
    assert limits.own and limits.tensor_bytes == together and memory_limits(limits.host).server == each
    assert limits.most_bytes == 8 * GB
    assert limits.host.max_sessions == 1000 and limits.host.max_runs == 1000


@pytest.mark.parametrize(
    ("memory", "sessions", "files", "most"),
    [
        (10 * GB, 1000, 1 << 20, 256),  # half of 8 GB, in pieces of 16 MB
        (100 * GB, 1000, 1 << 20, 500),
        (GB // 100, 1000, 1 << 20, 1),
        (10 * GB, 20, 1 << 20, 20),
        (10 * GB, 1000, 1024, 48),
        (math.inf, 1000, 1 << 20, 64),
    ],
)
def test_hosts_are_as_many_as_memory_sessions_and_files_allow(
    memory: float, sessions: int, files: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aexec_server.hosts.host_limits.total_memory", lambda: memory)
    monkeypatch.setattr("aexec_server.settings.file_limit._file_limit", lambda: files)
    limits = HostLimits.of(ServerConfig(hosts=None, max_sessions=sessions))
    assert limits.most == most and 1 <= limits.warm <= most
