"""Which host a client's session goes to: no two clients ever share one, whatever happens in whichever order."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from aexec_server.hosts.client_penalties import PenaltyError
from aexec_server.hosts.host_places import NoPlaceError, OwnPlaces, SharedPlaces

from aexec import errors


@dataclass(eq=False)
class Host:
    """What a place knows of a host, and the sessions that are in it."""

    client: str | None = None
    ready: bool = True
    own_bytes: int = 0
    sessions: list[str] = field(default_factory=list)  # whose they are

    @property
    def load(self) -> int:
        return len(self.sessions)

    @property
    def is_empty(self) -> bool:
        return not self.sessions


class Machine:
    """Hosts of `OwnPlaces`, with a clock that is set by hand."""

    def __init__(self, most: int, warm: int = 2) -> None:
        self.now = 0.0
        self.most = most
        self.hosts: list[Host] = []
        self.places: OwnPlaces[Host] = OwnPlaces(most, warm, self._start, self._end, lambda: self.now)
        self.places.fill()

    def _start(self) -> Host:
        self.hosts.append(Host())
        return self.hosts[-1]

    def _end(self, host: Host) -> None:
        assert not host.sessions, "it was ended with sessions in it"
        self.hosts.remove(host)

    def create(self, client: str) -> Host:
        host = self.places.take(client)
        host.sessions.append(client)
        self.places.fill()
        return host

    def lose(self, host: Host) -> None:
        """It is killed."""
        self.hosts.remove(host)
        host.sessions.clear()
        self.places.remove(host, broken=True)
        self.places.fill()

    def check(self) -> None:
        assert sorted(map(id, self.places)) == sorted(map(id, self.hosts))
        assert len(self.hosts) <= self.most
        for host in self.hosts:
            assert set(host.sessions) <= {host.client}, "two clients share a host"
            assert host in self.places.of_client(host.client) if host.client else not host.sessions


def some_steps(seed: int, steps: int) -> None:
    """Clients make and delete sessions, hosts are killed, time passes."""
    chance = random.Random(seed)
    machine = Machine(most=chance.randint(1, 12), warm=chance.randint(1, 3))
    clients = [f"client {n}" for n in range(chance.randint(1, 8))]
    for _ in range(steps):
        action = chance.random()
        if action < 0.5:
            client = chance.choice(clients)
            try:
                machine.create(client)
            except NoPlaceError:
                assert len(machine.hosts) == machine.most
                assert client not in {host.client for host in machine.hosts}
            except PenaltyError:
                pass
        elif action < 0.8:
            used = [host for host in machine.hosts if host.sessions]
            if used:
                chance.choice(used).sessions.pop()
        elif action < 0.88 and machine.hosts:
            machine.lose(chance.choice(machine.hosts))
        elif action < 0.9 and machine.hosts:
            chance.choice(machine.hosts).own_bytes = 1 << 30
        else:
            machine.now += chance.expovariate(0.2)
            machine.places.tidy()
            machine.places.fill()
        machine.check()


@pytest.mark.parametrize("seed", range(40))
def test_clients_never_share_a_host_in_random_sequences(seed: int) -> None:
    some_steps(seed, 150)


@pytest.mark.soak
def test_clients_never_share_a_host_in_many_random_sequences() -> None:
    for seed in range(1000, 6000):
        some_steps(seed, 200)


def test_sessions_have_hosts_of_their_own_while_there_are_places() -> None:
    machine = Machine(most=10)
    assert len({id(machine.create("a")) for _ in range(4)}) == 4


def test_hosts_are_started_ahead_of_need() -> None:
    machine = Machine(most=10, warm=2)
    assert len(machine.hosts) == 2
    ahead = list(machine.hosts)
    assert machine.create("a") is ahead[0] and machine.create("b") is ahead[1]
    assert len(machine.hosts) == 4


def test_host_that_listens_is_taken_first() -> None:
    machine = Machine(most=10, warm=2)
    machine.hosts[0].ready = False
    assert machine.create("a") is machine.hosts[1]


def test_client_with_many_sessions_leaves_places_for_others() -> None:
    machine = Machine(most=8)
    for _ in range(100):
        machine.create("many")
    assert len(list(machine.places.of_client("many"))) == 4
    assert Counter(host.load for host in machine.places.of_client("many")) == {25: 4}
    for client in "abcd":
        assert machine.create(client).sessions == [client]
    with pytest.raises(NoPlaceError) as info:
        machine.create("e")
    assert info.value.code is errors.Code.UNAVAILABLE and int(info.value.headers["Retry-After"]) > 0
    assert machine.create("many").client == "many"


def test_refused_client_gets_the_place_of_a_host_that_became_empty() -> None:
    machine = Machine(most=2)
    first = machine.create("a")
    machine.create("b")
    with pytest.raises(NoPlaceError):
        machine.create("c")
    first.sessions.clear()
    for _ in range(2):  # it may be that a session is in it of which it is not known
        with pytest.raises(NoPlaceError):
            machine.create("c")
        machine.places.tidy()
    assert machine.create("c") is not first
    assert first not in machine.hosts
    machine.check()


def test_empty_host_is_used_again_by_its_client_alone() -> None:
    machine = Machine(most=10)
    host = machine.create("a")
    host.sessions.clear()
    assert machine.create("b") is not host
    assert machine.create("a") is host


def test_empty_host_that_was_given_for_a_session_is_not_ended_for_another_client() -> None:
    machine = Machine(most=1)
    host = machine.create("a")
    host.sessions.clear()
    for _ in range(2):
        machine.places.tidy()
    assert machine.places.take("a") is host  # the request for its session is on the way
    with pytest.raises(NoPlaceError):
        machine.create("b")
    assert host in machine.hosts


def test_empty_host_is_kept_for_some_seconds() -> None:
    machine = Machine(most=10)
    host = machine.create("a")
    host.sessions.clear()
    for seconds in (0, 9):
        machine.now += seconds
        machine.places.tidy()
        assert host in machine.hosts
    machine.now += 2
    machine.places.tidy()
    assert host not in machine.hosts
    machine.check()


def test_client_keeps_one_empty_host() -> None:
    machine = Machine(most=20)
    hosts = [machine.create("a") for _ in range(3)]
    for host in hosts:
        host.sessions.clear()
    machine.places.tidy()
    assert len(list(machine.places.of_client("a"))) == 3
    machine.places.tidy()
    assert len(list(machine.places.of_client("a"))) == 1
    machine.check()


def test_empty_host_with_much_memory_is_ended() -> None:
    machine = Machine(most=10)
    host = machine.create("a")
    host.sessions.clear()
    host.own_bytes = 1 << 30
    machine.places.tidy()
    machine.places.tidy()
    assert host not in machine.hosts


def test_empty_host_is_kept_where_one_with_much_memory_is_ended() -> None:
    machine = Machine(most=10)
    older, newer = machine.create("a"), machine.create("a")
    older.sessions.clear()
    machine.places.tidy()
    machine.now += 1
    newer.sessions.clear()
    newer.own_bytes = 1 << 30
    for _ in range(2):
        machine.places.tidy()
    assert list(machine.places.of_client("a")) == [older]


def test_client_that_breaks_hosts_waits_longer_each_time() -> None:
    machine = Machine(most=10)
    waits = []
    for _ in range(9):
        machine.lose(machine.create("a"))
        with pytest.raises(PenaltyError) as info:
            machine.create("a")
        assert machine.create("b").client == "b"
        waits.append(int(info.value.headers["Retry-After"]))
        machine.now += waits[-1]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert "ended 9 session hosts lately" in str(info.value) and "in 60 s" in str(info.value)
    machine.now += 601
    machine.lose(machine.create("a"))
    machine.now += 1
    assert machine.create("a")


def test_host_that_dies_before_it_is_used_is_nobodys_fault() -> None:
    machine = Machine(most=3, warm=2)
    machine.lose(machine.hosts[0])
    assert len(machine.hosts) == 2
    assert machine.create("a")


def test_shared_hosts_take_turns_by_load() -> None:
    started: list[Host] = []

    def start() -> Host:
        started.append(Host())
        return started[-1]

    places: SharedPlaces[Host] = SharedPlaces(3, start)
    places.fill()
    for client in "abcabc":
        places.take(client).sessions.append(client)
    assert [host.load for host in started] == [2, 2, 2] and {host.client for host in started} == {None}
    started[1].ready = False
    started[2].sessions.clear()
    assert places.take("a") is started[2]
    places.remove(started[2], broken=True)
    places.fill()
    assert len(started) == 4 and places.take("a") is started[3]


def test_shared_hosts_that_are_all_gone_refuse() -> None:
    places: SharedPlaces[Host] = SharedPlaces(1, Host)
    with pytest.raises(errors.UnavailableError, match="another is being started"):
        places.take("a")
