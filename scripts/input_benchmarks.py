"""Benchmarks of datasets, for `benchmarks.py`: three figures, each against a baseline of the same run.

* batches: steps of training that take ready batches from a dataset, against feeding the same batches by hand;
* rows: steps that take batches of shuffled rows, against choosing the rows with NumPy and feeding them;
* async: an element of `Dataset.from_async`, in batches of 128, against the bare loop over the asynchronous generator.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import numpy as np
from benchmark_figure import Figure

import aexec
from aexec import ops
from aexec.data import Dataset
from aexec.training import GradientDescentOptimizer

STEPS = 50
ROWS, WIDTH, BATCH, CLASSES = 12_800, 784, 128, 10
ELEMENTS = 12_800


async def measure(repeats: int) -> list[Figure]:
    """Return all three figures, as medians."""
    return [*await training(repeats), await asynchronous(repeats)]


def _model(x: Any, y: Any) -> Any:
    """A step of training of a network with one hidden layer; its variables are shared."""
    with aexec.variable_scope("model", reuse=aexec.AUTO_REUSE):
        w1 = aexec.get_variable("w1", [WIDTH, 256])
        w2 = aexec.get_variable("w2", [256, CLASSES])
    logits = ops.mat_mul(ops.relu(ops.mat_mul(x, w1)), w2)
    loss = aexec.losses.sparse_softmax_cross_entropy(y, logits)
    return GradientDescentOptimizer(0.01).minimize(loss)


def _graph(data: Any, labels: Any) -> tuple[aexec.Graph, dict[str, Any]]:
    """Three steps over the same variables: fed by hand, with batches of a dataset, with rows of one."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [BATCH, WIDTH], name="x")
        y = aexec.placeholder("int64", [BATCH], name="y")
        shape = [ROWS // BATCH, BATCH]
        given = {"data": aexec.placeholder("float32", data.shape), "labels": aexec.placeholder("int64", labels.shape)}
        cut = ops.reshape(given["data"], [*shape, WIDTH]), ops.reshape(given["labels"], shape)
        batches = Dataset.from_tensor_slices(cut).repeat().prefetch(1)
        pairs = Dataset.from_tensor_slices((given["data"], given["labels"]))
        rows = pairs.shuffle(1000, seed=1).repeat().batch(BATCH, drop_remainder=True).prefetch(1)
        iterators = [one.make_initializable_iterator() for one in (batches, rows)]
        steps = [_model(x, y), *(_model(*iterator.get_next()) for iterator in iterators)]
        begin = aexec.group(*(iterator.initializer for iterator in iterators), aexec.global_variables_initializer())
    feeds = {given["data"]: data, given["labels"]: labels}
    return graph, {"x": x, "y": y, "steps": steps, "begin": begin, "feeds": feeds}


async def training(repeats: int) -> list[Figure]:
    rng = np.random.default_rng(0)
    data, labels = rng.random((ROWS, WIDTH), np.float32), rng.integers(0, CLASSES, ROWS)
    graph, made = _graph(data, labels)
    by_hand, of_batches, of_rows = made["steps"]
    starts = range(0, ROWS - BATCH, BATCH)

    async with aexec.Session(graph) as session:
        await session.run([], made["feeds"], [made["begin"]])

        async def ready(number: int) -> None:
            start = starts[number % len(starts)]
            await session.run(
                by_hand, {made["x"]: data[start : start + BATCH], made["y"]: labels[start : start + BATCH]}
            )

        async def chosen(number: int) -> None:
            some = rng.integers(0, ROWS, BATCH)
            await session.run(by_hand, {made["x"]: data[some], made["y"]: labels[some]})

        async def from_batches(_: int) -> None:
            await session.run(of_batches)

        async def from_rows(_: int) -> None:
            await session.run(of_rows)

        figures = []
        for name, ours, theirs in (("ready batches", from_batches, ready), ("shuffled rows", from_rows, chosen)):
            value, baseline = await _alternating(ours, theirs, repeats)
            what, fits = f"step fed by a dataset of {name}", value <= 1.05 * baseline
            figures.append(Figure(what, value * 1e6, "µs", baseline * 1e6, "≤ 1.05 × by hand", fits))
        return figures


async def _alternating(
    ours: Callable[[int], Awaitable[None]], theirs: Callable[[int], Awaitable[None]], repeats: int
) -> tuple[float, float]:
    """Median seconds of a step of each; some steps of one are made, then some of the other, and so on."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for round_ in range(repeats + 2):
        for step, found in zip((ours, theirs), seconds, strict=True):
            for number in range(STEPS):
                began = time.perf_counter()
                await step(number)
                if round_ > 1:  # until plans are compiled
                    found.append(time.perf_counter() - began)
            await asyncio.sleep(0)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


async def _count() -> AsyncIterator[int]:
    for number in range(ELEMENTS):
        yield number


async def asynchronous(repeats: int) -> Figure:
    ours, theirs = [], []
    for _ in range(max(2, repeats // 3)):
        began = time.perf_counter()
        async for _batch in Dataset.from_async(_count, "int64").batch(128):
            pass
        ours.append((time.perf_counter() - began) / ELEMENTS)
        began = time.perf_counter()
        async for _number in _count():
            pass
        theirs.append((time.perf_counter() - began) / ELEMENTS)
    value, baseline = statistics.median(ours) * 1e6, statistics.median(theirs) * 1e6
    aim = "≤ 40 µs over baseline"
    return Figure("element of from_async", value, "µs", baseline, aim, value - baseline <= 40)
