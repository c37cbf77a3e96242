"""Batches of many small elements, which are joined in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.data import Dataset
from aexec.framework.memory.memory_account import MemoryAccount
from aexec.framework.shape import PartialTensorShape
from aexec.kernels.datasets import batch_dataset_ops
from tests.kernels.datasets.dataset_graphs import DatasetGraph
from tests.kernels.datasets.test_cancelled_pipelines import SLOW


@pytest.fixture(autouse=True)
def parts_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_dataset_ops, "_PACKED_AT_ONCE", 10)


def rows_of(*sizes: int) -> Callable[[], Iterator[Any]]:
    """A generator of vectors of these sizes, each full of its number."""
    return lambda: (np.full(size, number, np.int64) for number, size in enumerate(sizes))


def vectors(*sizes: int) -> Dataset:
    return Dataset.from_generator(rows_of(*sizes), output_types=aexec.int64, output_shapes=[None])


async def test_batches_have_the_elements_in_their_order() -> None:
    parts = [np.asarray(batch).tolist() async for batch in Dataset.range(64).batch(25)]
    assert parts == [list(range(25)), list(range(25, 50)), list(range(50, 64))]


async def test_components_are_joined_one_by_one() -> None:
    column = np.arange(25)
    pairs = Dataset.from_tensor_slices((column, np.stack([column, column], 1)))
    ((numbers, rows),) = [pair async for pair in pairs.batch(25)]
    assert np.asarray(numbers).tolist() == list(range(25))
    assert np.asarray(rows).tolist() == [[number, number] for number in range(25)]


async def test_strings_are_joined_too() -> None:
    texts = Dataset.from_tensor_slices(np.array([b"a", b"bc"] * 15, object))
    (batch,) = [batch async for batch in texts.batch(30)]
    assert np.asarray(batch).tolist() == [b"a", b"bc"] * 15


@pytest.mark.parametrize("odd", [5, 14, 23, 27])
async def test_element_of_another_shape_is_named_and_its_batch_left_out(odd: int) -> None:
    """It may be in the first part, in a later one, or in the rest."""
    sizes = [2] * 60
    sizes[odd] = 3
    with aexec.Graph() as graph:
        batch = vectors(*sizes).batch(28).make_one_shot_iterator().get_next()
    async with aexec.Session(graph) as session:
        with pytest.raises(errors.InvalidArgumentError, match=rf"shape \[2\] and element {odd} had shape \[3\]"):
            await session.run(batch)
        assert (await session.run(batch))[:, 0].tolist() == list(range(28, 56))


@pytest.mark.parametrize("sizes", [[2] * 10 + [3] * 10, [2] * 20 + [3]])
async def test_parts_of_other_shapes_are_found(sizes: list[int]) -> None:
    number = sizes.index(3)
    with pytest.raises(errors.InvalidArgumentError, match=f"element {number} had shape"):
        async for _ in vectors(*sizes).batch(30):
            pass


async def test_cancelled_steps_lose_no_element() -> None:
    g = DatasetGraph()
    slow = g.mapped("slow", g.numbers(60), SLOW)
    graph = g.iterated(g.batched("batched", slow, 25), shape=PartialTensorShape([None]))
    taken: list[int] = []
    async with aexec.Session(graph) as session:
        await session.run([], targets=["begin"])
        for turns in range(1, 30):
            step = asyncio.create_task(session.run("next:0"))
            for _ in range(turns):
                await asyncio.sleep(0)
            step.cancel()
            await asyncio.wait([step])
            if not step.cancelled():
                taken += step.result().tolist()
                break
        while len(taken) < 60:
            taken += (await session.run("next:0")).tolist()
        with pytest.raises(errors.OutOfRangeError):
            await session.run("next:0")
    assert taken == list(range(60))


async def test_parts_count_as_memory_of_the_session() -> None:
    with aexec.Graph() as graph:
        batch = Dataset.range(10**9).batch(10**8).make_one_shot_iterator().get_next()
    config = aexec.SessionConfig(memory_account=MemoryAccount("test", limit=100_000))
    async with aexec.Session(graph, config=config) as session:
        with pytest.raises(errors.ResourceExhaustedError):
            await session.run(batch)
