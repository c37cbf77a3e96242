"""Many producers and consumers, a third of their operations cancelled at random moments."""

from __future__ import annotations

import asyncio
import collections
import random
import resource
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.queues.batching import Element
from aexec.queues.session_queue import Queue

ENDED = (errors.CancelledError, asyncio.CancelledError)


def graph(kind: str) -> aexec.Graph:
    make = {"fifo": ops.fifo_queue_v2, "shuffle": ops.random_shuffle_queue_v2}[kind]
    attrs = {"seed": 5} if kind == "shuffle" else {}
    with aexec.Graph() as built:
        handle = make(component_types=["int64"], shapes=[[2]], capacity=32, name="q", **attrs)
        x = aexec.placeholder("int64", [2], name="x")
        ops.queue_enqueue_v2(handle, [x], name="put")
        ops.queue_dequeue_v2(handle, component_types=["int64"], name="get")
    return built


class Soak:
    """Producer p puts (p, 0), (p, 1), …; what was put and what was taken is written down.

    Half of the operations are steps of the graph, the others are calls from Python.
    """

    def __init__(self, session: aexec.Session, pairs: int, workers: int, seed: int) -> None:
        self.session = session
        self.queue: Queue = session.queue("q")
        self.random = random.Random(seed)
        self.each = pairs // workers
        self.workers = workers
        self.put: set[tuple[int, int]] = set()
        self.tried: set[tuple[int, int]] = set()
        self.taken: list[tuple[int, int]] = []
        self.by_consumer: list[list[tuple[int, int]]] = []
        self.cancelled = 0
        self.given_back: set[tuple[int, int]] = set()
        self._watch_what_is_given_back()

    def _watch_what_is_given_back(self) -> None:
        restore = self.queue.resource.restore_locked

        def watched(elements: Sequence[Element]) -> None:
            self.given_back.update((int(e[0][0]), int(e[0][1])) for e in elements)
            restore(elements)

        self.queue.resource.restore_locked = watched  # type: ignore[method-assign]

    async def attempt(self, operation: Callable[[], Awaitable[Any]]) -> Any:
        """The operation's result; None if it was cancelled after a random number of turns."""
        turns = self.random.choice((0, 1, 2, 3, 5)) if self.random.random() < 1 / 3 else None
        if turns is None:
            return await operation()
        task = asyncio.ensure_future(operation())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            return await task
        except ENDED:
            self.cancelled += 1
            return None

    async def produce(self, producer: int) -> None:
        for number in range(self.each):
            element = np.array([producer, number])
            self.tried.add((producer, number))

            async def put(element: Any = element) -> bool:
                if self.random.random() < 0.5:
                    await self.queue.put(element)
                else:
                    await self.session.run([], {"x:0": element}, targets=["put"])
                return True

            if await self.attempt(put):
                self.put.add((producer, number))

    async def consume(self) -> None:
        taken: list[tuple[int, int]] = []
        self.by_consumer.append(taken)

        async def get() -> Any:
            return await (self.queue.get() if self.random.random() < 0.5 else self.session.run("get:0"))

        while True:
            try:
                element = await self.attempt(get)
            except errors.OutOfRangeError:
                return
            if element is not None:
                taken.append((int(element[0]), int(element[1])))

    async def run(self) -> None:
        consumers = [asyncio.create_task(self.consume()) for _ in range(self.workers)]
        await asyncio.gather(*(self.produce(p) for p in range(self.workers)))
        await self.queue.close()
        await asyncio.gather(*consumers)
        self.taken = [element for taken in self.by_consumer for element in taken]

    def check(self) -> None:
        counts = collections.Counter(self.taken)
        assert max(counts.values()) == 1, "an element was doubled"
        assert self.put <= set(counts), "an element was lost"
        assert set(counts) <= self.tried
        statistics = self.queue.statistics()
        assert statistics.size == statistics.waiting_enqueues == statistics.waiting_dequeues == 0
        assert statistics.enqueued == statistics.dequeued == len(self.taken)

    def check_order(self) -> None:
        """Each consumer gets a producer's elements in order, but for those that somebody gave back."""
        for taken in self.by_consumer:
            latest = [-1] * self.workers
            for producer, number in taken:
                if (producer, number) not in self.given_back:
                    assert number > latest[producer]
                    latest[producer] = number


async def soak(kind: str, pairs: int, workers: int) -> Soak:
    async with aexec.Session(graph(kind)) as session:
        state = Soak(session, pairs, workers, seed=pairs)
        await state.run()
        state.check()
        assert not session.steps
    return state


async def test_no_element_is_lost_or_doubled_and_order_is_kept() -> None:
    state = await soak("fifo", 2000, 20)
    state.check_order()
    assert state.cancelled > 300


async def test_shuffling_loses_nothing_either() -> None:
    await soak("shuffle", 2000, 20)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["fifo", "shuffle"])
async def test_soak(kind: str) -> None:
    await soak(kind, 20_000, 100)  # grow to full size first
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    state = await soak(kind, 100_000, 100)
    if kind == "fifo":
        state.check_order()
    # What grows is the test's own record of a hundred thousand elements.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


async def test_shuffling_is_uniform() -> None:
    """Of the ten elements there each is taken as often as any other."""
    from scipy import stats  # takes a second to import

    with aexec.Graph() as built:
        ops.random_shuffle_queue_v2(component_types=["int64"], shapes=[[]], capacity=100, seed=3, name="q")
    counts = np.zeros((10, 10), int)
    async with aexec.Session(built) as session:
        queue = session.queue("q")
        for _ in range(2000):
            await queue.put_many(np.arange(10))
            for position, value in enumerate(await queue.get_many(10)):
                counts[position, value] += 1
    assert stats.chisquare(counts.ravel()).pvalue > 1e-3
