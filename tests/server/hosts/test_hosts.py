"""`Hosts`: whose fault it is when a host does not start, and what is counted; with processes that are none."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aexec_server.clients.callers import anyone_at
from aexec_server.clients.client_shares import ShareError
from aexec_server.hosts.hosts import Hosts
from aexec_server.settings.server_config import ServerConfig

from aexec import errors
from tests.support.stand_ins.fake_hosts import FakeHosts
from tests.support.waiting import until

CLIENT = anyone_at("127.0.0.1")
# What a host tells of a session in it, of 100 that there may be.
_OF_ONE_SESSION = {"aexec_shared_in_use": 1.0, "aexec_shared_largest": 1.0, "aexec_shared_limit": 100.0}
FULL = OSError(errno.EMFILE, "Too many open files")


@pytest.fixture
async def context(monkeypatch: pytest.MonkeyPatch) -> FakeHosts:
    """Of hosts that cannot be started."""
    context = FakeHosts(FULL)
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: context)
    return context


@pytest.fixture
async def make(context: FakeHosts, tmp_path: Path) -> AsyncIterator[Callable[[ServerConfig], Hosts]]:
    """Makes `Hosts` of which all end after the test."""
    made: list[Hosts] = []

    def make(config: ServerConfig) -> Hosts:
        made.append(Hosts(config, tmp_path))
        return made[-1]

    yield make
    for process in context.processes:
        process.may_start.set()
    for hosts in made:
        await hosts.close()


async def test_host_that_cannot_be_started_is_nobodys_fault(
    context: FakeHosts, make: Callable[[ServerConfig], Hosts]
) -> None:
    hosts = make(ServerConfig(hosts=None))
    starting = asyncio.create_task(hosts.start())
    await until(lambda: context.processes)
    host = hosts.for_new(CLIENT, None, None)
    for process in context.processes:
        process.may_start.set()
    with pytest.raises(errors.UnavailableError, match="could not be started"):
        await starting
    await until(lambda: host.ended)
    assert hosts.for_new(CLIENT, None, None) is not host


async def test_refused_sessions_are_counted(make: Callable[[ServerConfig], Hosts]) -> None:
    hosts = make(ServerConfig(hosts=None, max_client_sessions=1))
    hosts.for_new(CLIENT, None, None)
    for _ in range(2):
        with pytest.raises(ShareError):
            hosts.for_new(CLIENT, None, None)
    assert hosts.metrics({})["aexec_shared_refusals"] == {("sessions",): 2}


async def test_shares_of_hosts_are_those_of_their_clients(
    context: FakeHosts, make: Callable[[ServerConfig], Hosts]
) -> None:
    """One limit of sessions for all hosts together, and the largest share is one client's."""
    hosts = make(ServerConfig(hosts=None, max_sessions=100))
    other = anyone_at("192.0.2.2")
    for caller in (CLIENT, CLIENT, other):
        host = hosts.for_new(caller, None, None)
        host.requests += 1
        host.gauges = {name: {("sessions",): held} for name, held in _OF_ONE_SESSION.items()}
    front = {name: {("sessions",): 0.0, ("connections",): 7.0} for name in _OF_ONE_SESSION}
    shares = hosts.metrics(front)
    assert shares["aexec_shared_in_use"] == {("sessions",): 3, ("connections",): 7}
    assert shares["aexec_shared_largest"] == {("sessions",): 2, ("connections",): 7}
    assert shares["aexec_shared_limit"] == {("sessions",): 100, ("connections",): 7}
