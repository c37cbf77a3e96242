"""Benchmarks of queues, for `benchmarks.py`: three figures, each against a baseline of the same run.

* pair: an enqueue and a dequeue inside a step, against `put` and `get` of an `asyncio.Queue`;
* prefetch: steps fed by `aexec.prefetch` from a source as slow as a step, against reading and running in turn;
* batch: `dequeue_many` of a thousand rows, against one `np.stack` of them.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
from benchmark_figure import Figure

import aexec
from aexec import ops

PAIRS = 200
ROWS = 1000


async def measure(repeats: int) -> list[Figure]:
    """Return all three figures, as medians."""
    return [await pair(repeats), await overlap(max(2, repeats // 3)), await batch(repeats)]


def _laps() -> Iterator[float]:
    """Iterate over the seconds since the previous item; the first is meaningless."""
    last = time.perf_counter()
    while True:
        before, last = last, time.perf_counter()
        yield last - before


async def pair(repeats: int) -> Figure:
    with aexec.Graph() as graph:
        handle = ops.fifo_queue_v2(component_types=["float32"], shapes=[[]], capacity=10, name="q")
        x = aexec.constant(1.0)
        before: list[Any] = []
        for _ in range(PAIRS):
            with aexec.control_dependencies(before):
                put = ops.queue_enqueue_v2(handle, [x])
            with aexec.control_dependencies([put]):
                (taken,) = ops.queue_dequeue_v2(handle, component_types=["float32"])
            before = [taken.node]
        aexec.group(*before, name="last")
    plain: asyncio.Queue[int] = asyncio.Queue()
    ours, theirs = [], []
    clock = _laps()
    async with aexec.Session(graph) as session:
        for _ in range(20):  # until the plan is compiled, perhaps by a thread
            await session.run([], targets=["last"])
            await asyncio.sleep(0)
        for _ in range(repeats):
            next(clock)
            await session.run([], targets=["last"])
            ours.append(next(clock) / PAIRS)
            for _ in range(PAIRS):
                await plain.put(1)
                await plain.get()
            theirs.append(next(clock) / PAIRS)
            await asyncio.sleep(0)
    value, baseline = statistics.median(ours) * 1e6, statistics.median(theirs) * 1e6
    return Figure("enqueue and dequeue in a step", value, "µs", baseline, "≤ 6 µs over baseline", value - baseline <= 6)


@aexec.op("BenchQueueStep(x: float) -> y: float", stateful=True)
async def bench_queue_step(x: Any) -> Any:
    await asyncio.sleep(0.005)
    return x


async def overlap(repeats: int) -> Figure:
    items = 40

    async def source() -> AsyncIterator[float]:
        for i in range(items):
            await asyncio.sleep(0.005)
            yield float(i)

    with aexec.Graph() as graph:
        handle = ops.fifo_queue_v2(component_types=["float32"], shapes=[[]], capacity=4, name="q")
        (x,) = ops.queue_dequeue_v2(handle, component_types=["float32"])
        bench_queue_step(x, name="step")
    in_turn, prefetched = [], []
    clock = _laps()
    for _ in range(repeats):
        async with aexec.Session(graph) as session:
            next(clock)
            async for value in source():
                await session.run("step:0", {x: value})
            in_turn.append(items / next(clock))
            async with aexec.prefetch(source(), session.queue("q"), depth=4):
                for _ in range(items):
                    await session.run("step:0")
            prefetched.append(items / next(clock))
    value, baseline = statistics.median(prefetched), statistics.median(in_turn)
    return Figure("steps with prefetching", value, "1/s", baseline, "≥ 1.8 times baseline", value / baseline >= 1.8)


async def batch(repeats: int) -> Figure:
    rows = [np.full(256, i, np.float32) for i in range(ROWS)]
    for row in rows:
        row.flags.writeable = False
    with aexec.Graph() as graph:
        handle = ops.fifo_queue_v2(component_types=["float32"], shapes=[[256]], capacity=-1, name="q")
        ops.queue_dequeue_many_v2(handle, ROWS, component_types=["float32"], name="get")
    ours, theirs = [], []
    clock = _laps()
    async with aexec.Session(graph) as session:
        queue = session.queue("q").resource
        for _ in range(repeats + 1):
            for row in rows:
                queue.enqueue((row,))
            await asyncio.sleep(0)
            next(clock)
            await session.run("get:0")
            ours.append(next(clock))
            np.stack(rows)
            theirs.append(next(clock))
    value, baseline = statistics.median(ours[1:]) * 1e6, statistics.median(theirs[1:]) * 1e6
    return Figure("dequeue_many of 1000 rows", value, "µs", baseline, "≤ 3 times baseline", value / baseline <= 3)
