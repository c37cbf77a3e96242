"""`QueueSizes`: what metrics and lists say of queues, however many there are."""

from __future__ import annotations

import numpy as np
import pytest
from aexec_server.sessions import queue_sizes

import aexec
from aexec.queues.kinds.fifo_queue import FIFOQueue
from aexec.queues.queue_base import QueueBase, QueueSpec
from tests.server.conftest import Api, small_graph
from tests.server.watching.test_metrics import scrape
from tests.support.turns import polite_threads, turns_during

MANY = 100_000
SPEC = QueueSpec((aexec.float32,))
ELEMENT = (np.float32(1.0),)


def fill(api: Api, handle: str, count: int, first: int = 0) -> None:
    """Give a session as many queues with an element: one that has as many names, which is made faster."""
    resources = api.hosted(handle).session.resources
    queue = FIFOQueue("q", SPEC)
    queue.enqueue(ELEMENT)
    for number in range(first, first + count):
        resources.create("c", f"q{number}", queue, QueueBase)


async def test_scrape_of_very_many_queues_does_not_hold_the_loop(api: Api, small: str) -> None:
    fill(api, small, MANY // 2)
    fill(api, await api.create(small_graph()), MANY // 2)
    sizes = api.server.queue_sizes
    with polite_threads():
        turns, _ = await turns_during(sizes.wait())
    assert turns > 20
    assert sizes.latest == {("",): MANY}


async def test_many_queues_are_not_looked_at_all_the_time(
    api: Api, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_sizes.loop_budget, "SLICE_SECONDS", 0.0)
    fill(api, small, 1000)
    sizes = api.server.queue_sizes
    await sizes.wait()
    sizes._next_look += 3600
    fill(api, small, 1, first=1000)
    assert (await scrape(api))("aexec_queue_size", queue="") == 1000
    sizes._next_look = 0.0
    assert (await scrape(api))("aexec_queue_size", queue="") == 1001


async def test_list_of_very_many_queues_does_not_hold_the_loop(api: Api, small: str) -> None:
    fill(api, small, MANY // 5)
    turns, (status, answer) = await turns_during(api.call("GET", f"/v1/sessions/{small}/queues"))
    assert status == 200 and len(answer["queues"]) == MANY // 5
    assert turns > 20


async def test_sizes_of_a_closed_session_are_gone(api: Api, small: str) -> None:
    fill(api, small, 10)
    assert (await scrape(api))("aexec_queue_size", queue="") == 10
    assert (await api.call("DELETE", f"/v1/sessions/{small}"))[0] == 204
    api.server.queue_sizes.look()
    assert api.server.queue_sizes.latest == {}
