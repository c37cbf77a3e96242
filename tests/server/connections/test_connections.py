"""Which connections give way to others."""

from __future__ import annotations

import asyncio
import random

import pytest
from aexec_server.connections.connections import ConnectionLimits, ConnectionTable, Waiting, refused_connection

from tests.support.virtual_clock import run_virtual

MINE, OTHER, THIRD = "192.0.2.1", "192.0.2.2", "192.0.2.3"


class Line:
    """A connection; `since` is None while its request is being answered."""

    def __init__(self, since: float | None = None) -> None:
        self.since = since
        self.closed = False

    def waiting(self) -> tuple[Waiting, float] | None:
        return None if self.since is None else (Waiting.FOR_REQUEST, self.since)

    def is_overdue(self, now: float) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def table(most: int) -> ConnectionTable:
    return ConnectionTable(ConnectionLimits(most, 1.0, 1.0, 1.0, 1.0))


def opened(of: ConnectionTable, host: str, count: int, since: float | None = None) -> list[Line]:
    """As many as are let in of so many."""
    lines = [Line(since) for _ in range(count)]
    return [line for line in lines if of.admit(line, host) is None]


async def test_address_whose_requests_take_for_ever_keeps_nobody_out() -> None:
    connections = table(640)
    assert len(opened(connections, MINE, 700)) == 560
    assert [len(opened(connections, host, 12)) for host in (OTHER, THIRD)] == [10, 10]
    refusal = connections.admit(Line(), MINE)
    assert refusal is not None
    told = refused_connection(refusal)
    assert told.startswith(b"HTTP/1.1 503 ") and b"560 of the 640 connections" in told


async def test_address_that_has_many_gives_up_its_own_that_has_waited_longest() -> None:
    connections = table(640)
    mine = opened(connections, MINE, 3, since=2.0) + opened(connections, MINE, 557, since=1.0)
    theirs = opened(connections, OTHER, 5, since=0.0)
    assert len(opened(connections, MINE, 4)) == 4
    assert sum(line.closed for line in mine[3:]) == 4 and not any(line.closed for line in (*mine[:3], *theirs))
    assert len(connections) == 565


async def test_addresses_without_connections_are_forgotten() -> None:
    connections = table(640)
    for number in range(20):
        mine = opened(connections, f"198.51.100.{number}", 570, since=1.0)
        for line in mine:
            connections.remove(line)
    assert not len(connections) and not connections._lines


class Waited(Line):
    """A connection whose client may take 10 seconds."""

    def is_overdue(self, now: float) -> bool:
        assert self.since is not None
        return now - self.since > 10


@pytest.mark.parametrize("when", ["before it listens", "while it listens"])
def test_time_in_which_the_loop_did_nothing_is_not_held_against_clients(when: str) -> None:
    async def wait() -> None:
        connections = table(640)
        if when == "before it listens":
            await asyncio.sleep(30)
        sweeping = asyncio.create_task(connections.sweep())
        await asyncio.sleep(0)
        if when == "while it listens":
            asyncio.get_running_loop().now += 30  # type: ignore[attr-defined]
        line = Waited(connections.now)
        assert connections.admit(line, MINE) is None
        await asyncio.sleep(8.5)
        assert not line.closed
        await asyncio.sleep(5)
        assert line.closed
        sweeping.cancel()

    run_virtual(wait())


async def test_client_with_few_replaces_the_longest_waiting_connection() -> None:
    connections = table(8)
    hosts = [f"198.51.100.{number}" for number in range(8)]
    open_ones = [opened(connections, host, 1, since=number)[0] for number, host in enumerate(hosts)]
    assert len(opened(connections, MINE, 1)) == 1
    assert [line.closed for line in open_ones] == [True] + [False] * 7
    for line in open_ones[1:]:
        line.since = None
    assert not opened(connections, OTHER, 1)
    connections._none_waited.clear()  # as it is some milliseconds after it was looked
    open_ones[5].since = 3.0
    assert len(opened(connections, OTHER, 1)) == 1 and open_ones[5].closed


@pytest.mark.parametrize("seed", range(5))
async def test_number_is_bounded_and_one_address_leaves_the_last_share(seed: int) -> None:
    rng = random.Random(seed)
    most = rng.choice([16, 64, 200])
    connections = table(most)
    lines: dict[Line, str] = {}
    for _ in range(2000):
        host = rng.choice([MINE, MINE, MINE, OTHER, THIRD])
        line = Line(rng.choice([None, rng.random()]))
        if rng.random() < 0.3 and lines:
            gone = rng.choice(list(lines))
            connections.remove(gone)
            del lines[gone]
        elif connections.admit(line, host) is None:
            lines[line] = host
        lines = {line: of for line, of in lines.items() if not line.closed}
        assert len(connections) == len(lines) == connections.shares.in_use <= most
        assert connections.shares.held.get(MINE, 0) <= most - most // 8
