"""What each client holds of what all share, and may hold."""

from __future__ import annotations

import random

import pytest
from aexec_server.clients.callers import Caller, Scope, anyone_at
from aexec_server.clients.client_shares import ClientShares, ShareError


def client(number: int) -> Caller:
    return anyone_at(f"192.0.2.{number}")


def taken(shares: ClientShares, who: Caller, amount: int = 1) -> int:
    """How often the client may take so much, until it is refused."""
    for times in range(shares.most + 1):
        if shares.refusal(who, amount) is not None:
            return times
        shares.take(who, amount)
    raise AssertionError("there is no end of it")


@pytest.mark.parametrize(("most", "alone"), [(1000, 875), (10, 9), (4, 3), (3, 3), (2, 2), (1, 1)])
def test_single_client_may_have_all_but_the_last_share(most: int, alone: int) -> None:
    shares = ClientShares("runs", "runs in flight", most)
    assert taken(shares, client(1)) == alone == shares.most_of_one
    assert not shares.roomy
    assert bool(taken(shares, client(2))) == (alone < most)


def test_last_share_is_for_those_who_have_none_one_by_one() -> None:
    shares = ClientShares("runs", "runs in flight", 80)
    assert taken(shares, client(1)) == 70
    assert [taken(shares, client(number)) for number in range(2, 14)] == [1] * 10 + [0] * 2
    with pytest.raises(ShareError, match="This server has 80 runs in flight, and takes 80 at most: try again later"):
        shares.take(client(99))
    shares.give_back(client(1).client)
    assert taken(shares, client(2)) == 0 and taken(shares, client(99)) == 1
    shares.give_back(client(1).client, 69)
    assert client(1).client not in shares.held and shares.in_use == 11


def test_last_share_is_for_few_of_each_and_then_for_one_of_each() -> None:
    shares = ClientShares("sessions", "sessions", 1000)
    assert taken(shares, client(1)) == 875
    counts = [taken(shares, client(number)) for number in range(2, 90)]
    assert counts == [15, 15, 15, 15, 2, *[1] * 63, *[0] * 20]


def test_last_share_holds_one_unit_of_each() -> None:
    shares = ClientShares("body_bytes", "bytes of bodies", 800, unit=100)
    assert taken(shares, client(1), 30) == 700 // 30
    assert taken(shares, client(2), 50) == 2 and taken(shares, client(3), 50) == 0
    shares.give_back(client(1).client, 60)
    assert taken(shares, client(3), 50) == 1  # what is free is not enough for a whole one


def test_limit_of_one_client_and_quota_of_a_token_come_first() -> None:
    shares = ClientShares("sessions", "sessions", 100, 5, hint="delete one")
    assert taken(shares, client(1)) == 5 == shares.most_of_one
    alice = Caller("alice", frozenset([Scope.RUN]))
    shares.take(alice, quota=1)
    with pytest.raises(ShareError, match="The token of 'alice' has as many sessions as it may have, 1 of 1: delete"):
        shares.take(alice, quota=1)
    assert shares.refused == 1 and shares.held == {"192.0.2.1": 5, "alice": 1}


def test_words_say_who_has_how_many_of_how_many() -> None:
    shares = ClientShares("runs", "runs in flight", 16)
    taken(shares, client(1))
    assert str(shares.refusal(client(1))) == (
        "Whoever asks from 192.0.2.1 has 14 of the 16 runs in flight that this server takes, of which 14 are taken, "
        "and the last 2 are kept for clients that have fewer, or none: try again later"
    )
    assert repr(shares) == "<ClientShares of runs: 14 of 16, with 1 clients>"


def test_client_with_nothing_gets_a_unit_whatever_another_does() -> None:
    rng = random.Random(5)
    for _ in range(300):
        unit = rng.choice([1, 1, 7, 100])
        most = unit * rng.randint(4, 300) + rng.randrange(unit)
        of_one = rng.choice([None, None, rng.randint(1, most)])
        shares = ClientShares("x", "x", most, of_one, unit=unit)
        held: list[int] = []
        for _ in range(rng.randint(1, 400)):
            amount = rng.randint(1, unit)
            if held and rng.random() < 0.3:
                shares.give_back(client(1).client, held.pop(rng.randrange(len(held))))
            elif shares.refusal(client(1), amount) is None:
                shares.take(client(1), amount)
                held.append(amount)
            assert shares.in_use == sum(held) <= min(most, of_one or most)
            assert shares.refusal(client(2), min(unit, of_one or unit)) is None
            if shares.roomy and of_one is None:
                assert shares.refusal(client(1), unit) is None
