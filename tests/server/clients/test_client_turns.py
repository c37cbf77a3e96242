"""A lock that clients get in turn."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from aexec_server.clients.client_turns import ClientTurns


class Requests:
    """Requests that hold a lock for a turn of the loop each; `served` says whose, in order."""

    def __init__(self) -> None:
        self.turns = ClientTurns()
        self.served: list[str] = []
        self.holders = 0

    async def ask(self, client: str) -> None:
        async with self.turns.turn(client):
            self.holders += 1
            assert self.holders == 1
            self.served.append(client)
            try:
                await asyncio.sleep(0)
            finally:
                self.holders -= 1


async def test_clients_get_the_lock_in_turn() -> None:
    requests = Requests()
    asked = [requests.ask(client) for client in "aaaaa" + "bb" + "c"]
    await asyncio.gather(*asked)
    assert "".join(requests.served) == "aabcabaa" and not len(requests.turns)


async def test_client_that_comes_again_waits_for_few_requests_of_another() -> None:
    requests = Requests()

    async def ask_again() -> None:
        for _ in range(4):
            await requests.ask("b")

    await asyncio.gather(*(requests.ask("a") for _ in range(20)), ask_again())
    # The lock is passed on before the client asks again.
    assert "".join(requests.served) == 4 * "aab" + 12 * "a"


@pytest.mark.parametrize("seed", range(20))
async def test_cancelled_requests_leave_the_lock_to_others(seed: int) -> None:
    numbers, requests = random.Random(seed), Requests()
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
