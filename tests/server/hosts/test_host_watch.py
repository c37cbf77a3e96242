"""Which hosts are asked and ended, and when: hosts of memory and silence that the test says."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from aexec_server.hosts.host_watch import LOOK_SECONDS, HostWatch


@dataclass(eq=False)
class Host:
    """A host as `HostWatch` sees it."""

    now: list[float]
    client: str | None = None
    own_bytes: int = 0
    busy: bool = False
    silent_for: float = 0.0
    most_bytes: int | None = None
    resident: int = 0
    serves: bool = True
    may_idle: bool = True
    told: bool = False
    busy_until: float = 0.0
    asked_at: float = -100.0
    asked: list[float] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    closed: int = 0

    def ask(self, memory_bytes: int | None) -> None:
        self.asked_at = self.now[0]
        self.asked.append(self.now[0])

    def measure(self) -> int:
        return self.resident

    def close_idle(self, keep: int = 0) -> None:
        self.closed += 1

    def kill(self, why: str) -> None:
        self.killed.append(why)
        self.own_bytes = 0


class Watch:
    def __init__(self, most_bytes: int | None = None) -> None:
        self.now = [1000.0]
        self.watch: HostWatch[Host] = HostWatch(1.0, most_bytes, lambda host: None, lambda: self.now[0])

    async def look(self, hosts: list[Host], seconds: float = LOOK_SECONDS) -> None:
        for _ in range(round(seconds / LOOK_SECONDS)):
            await self.watch.look(hosts)
            self.now[0] += LOOK_SECONDS


async def test_busy_host_is_asked_five_times_a_second_and_an_idle_one_seldom() -> None:
    watch = Watch()
    busy, idle = Host(watch.now, busy=True), Host(watch.now)
    models = Host(watch.now, may_idle=False)
    await watch.look([busy, idle, models], 10.0)
    assert 40 <= len(busy.asked) <= 50 and 2 <= len(idle.asked) <= 3
    assert 18 <= len(models.asked) <= 20
    assert not busy.closed and idle.closed


async def test_host_is_asked_at_once_when_it_gets_to_work() -> None:
    watch = Watch()
    host = Host(watch.now)
    await watch.look([host], 6.0)
    host.busy = True
    began = watch.now[0]
    await watch.look([host], 0.3)
    assert host.asked[-1] >= began
    host.busy = False
    await watch.look([host], 0.8)  # its work may have an end that takes long
    assert host.asked[-1] >= began + 0.8


async def test_hundreds_of_busy_hosts_are_asked_more_seldom() -> None:
    watch = Watch()
    hosts = [Host(watch.now, busy=True) for _ in range(200)]
    await watch.look(hosts, 10.0)
    assert sum(len(host.asked) for host in hosts) / 10.0 <= 150


async def test_silent_host_is_killed() -> None:
    watch = Watch()
    silent, told, other = (Host(watch.now, busy=True) for _ in range(3))
    silent.silent_for = told.silent_for = 1.1
    told.told = True
    await watch.look([silent, told, other])
    assert silent.killed == ["was ended: it did not answer for 1 s"] and not (told.killed or other.killed)


async def test_host_whose_answer_was_only_read_late_is_not_killed() -> None:
    watch = Watch()

    class Late(Host):
        reads = 0

        @property
        def silent_for(self) -> float:  # type: ignore[override]
            self.reads += 1
            return 1.1 if self.reads == 1 else 0.0

        @silent_for.setter
        def silent_for(self, seconds: float) -> None:
            pass

    host = Late(watch.now, busy=True)
    await watch.look([host])
    assert not host.killed and host.reads == 2


async def test_host_with_too_much_memory_is_killed() -> None:
    watch = Watch()
    large, fits = (Host(watch.now, busy=True, most_bytes=100 << 20, resident=n << 20) for n in (101, 100))
    await watch.look([large, fits])
    assert large.killed == ["was ended: it had 101 MB of memory, and may have 100"] and not fits.killed


@pytest.mark.parametrize("most", [None, 1000])
async def test_largest_host_of_the_client_with_most_is_killed(most: int | None) -> None:
    """Not the largest of all: one that has many hosts of some memory harms nobody with one of much."""
    watch = Watch(None if most is None else most << 20)
    victim = Host(watch.now, "victim", 400 << 20)
    many = [Host(watch.now, "many", (100 + n) << 20) for n in range(7)]
    hosts = [victim, *many]
    await watch.look(hosts)
    if most is None:
        assert not any(host.killed for host in hosts)
        return
    (why,) = many[-1].killed
    assert why.startswith("was ended: all hosts had 1121 MB of memory, and may have 1000")
    await watch.look(hosts)
    assert [len(host.killed) for host in hosts] == [0] * 6 + [1, 1]
    await watch.look(hosts, 1.0)
    assert sum(len(host.killed) for host in hosts) == 2
