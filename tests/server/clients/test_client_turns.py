"""A lock, or a few places, that clients get in turn."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter

import pytest
from aexec_server.clients.client_turns import ClientTurns


class Requests:
    """Requests that have a place for a turn of the loop each; `served` says whose, in order.

    By the clock each turn takes a second, or as many as a client's entry in `seconds`.
    """

    def __init__(self, places: int = 1, of_one: int = 1, **seconds: float) -> None:
        self.now = 0.0
        self.seconds = seconds
        self.turns = ClientTurns(places, of_one, lambda: self.now)
        self.served: list[str] = []
        self.holders: Counter[str] = Counter()
        self._places, self._of_one = places, of_one

    async def ask(self, client: str) -> None:
        async with self.turns.turn(client):
            self.holders[client] += 1
            assert self.holders.total() <= self._places and self.holders[client] <= self._of_one
            self.served.append(client)
            self.now += self.seconds.get(client, 1.0)
            try:
                await asyncio.sleep(0)
            finally:
                self.holders[client] -= 1


async def test_clients_get_the_lock_in_turn() -> None:
    requests = Requests()
    asked = [requests.ask(client) for client in "aaaaa" + "bb" + "c"]
    await asyncio.gather(*asked)
    assert "".join(requests.served) == "abcabaaa" and not len(requests.turns)


async def test_clients_have_the_lock_for_equal_times() -> None:
    requests = Requests(a=10.0)
    await asyncio.gather(*(requests.ask(client) for client in 4 * "a" + 25 * "b"))
    assert "".join(requests.served) == "a" + 10 * "b" + "a" + 10 * "b" + "a" + 5 * "b" + "a"
    # Somebody new is not asked to wait until the others' times are made up for, and neither are they.
    requests.served.clear()
    await asyncio.gather(*(requests.ask(client) for client in "bbbc"))
    assert "".join(requests.served).index("c") <= 1


async def test_times_of_clients_that_left_are_dropped() -> None:
    requests = Requests()
    for number in range(1000):
        await requests.ask(f"{number}")
    await asyncio.gather(*(requests.ask(f"{number % 100}") for number in range(500)))
    assert not requests.turns._times


async def test_client_that_comes_again_waits_for_few_requests_of_another() -> None:
    requests = Requests()

    async def ask_again() -> None:
        for _ in range(4):
            await requests.ask("b")

    await asyncio.gather(*(requests.ask("a") for _ in range(20)), ask_again())
    # The lock is passed on before the client asks again.
    assert "".join(requests.served) == 4 * "ab" + 16 * "a"


async def test_client_leaves_places_to_others() -> None:
    requests = Requests(4, 2)
    async with contextlib.AsyncExitStack() as stack:
        for client in "aabb":
            await stack.enter_async_context(requests.turns.turn(client))
        waiting = [asyncio.create_task(requests.ask(client)) for client in "aac"]
        await asyncio.sleep(0)
        assert len(requests.turns) == 3
    await asyncio.gather(*waiting)
    assert sorted(requests.served) == ["a", "a", "c"]
    requests = Requests(4, 2)
    async with requests.turns.turn("a"), requests.turns.turn("a"):
        late = asyncio.create_task(requests.ask("a"))
        await asyncio.sleep(0)
        await requests.ask("b")
        assert requests.served == ["b"] and not late.done()
    await late


@pytest.mark.parametrize("places", [(1, 1), (4, 2), (3, 3)])
@pytest.mark.parametrize("seed", range(20))
async def test_cancelled_requests_leave_places_to_others(seed: int, places: tuple[int, int]) -> None:
    numbers, requests = random.Random(seed), Requests(*places)
    asked = []
    for _ in range(100):
        asked.append(asyncio.create_task(requests.ask(numbers.choice("abc"))))
        if numbers.random() < 0.4:
            numbers.choice(asked).cancel()
        if numbers.random() < 0.3:
            await asyncio.sleep(0)
    for task in asked:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, 10)
    assert not len(requests.turns)
    await asyncio.wait_for(requests.ask("d"), 10)
    assert requests.served[-1] == "d"
