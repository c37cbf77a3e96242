"""A dataset of this process fills a queue of a session, here and in a server."""

from __future__ import annotations

import asyncio

import pytest

import aexec
from aexec import errors
from aexec.data import Dataset
from tests.remote.conftest import Open


async def test_dataset_feeds_a_queue(open_session: Open) -> None:
    with aexec.Graph() as graph:
        queue = aexec.ops.fifo_queue_v2(["int64", "float32"], shapes=[[], [2]], capacity=2, name="q")
        aexec.ops.queue_dequeue_v2(queue, ["int64", "float32"], name="take")
    session = await open_session(graph)
    dataset = Dataset.from_tensor_slices(([1, 2, 3], [[1.0, 2.0]] * 3)).map(
        lambda x, y: (aexec.ops.cast(x, DstT="int64"), y)
    )
    feeding = asyncio.create_task(dataset.feed(session.queue("q")))
    assert [int(await session.run("take:0")) for _ in range(3)] == [1, 2, 3]
    await feeding
    with pytest.raises(errors.OutOfRangeError):
        await session.run("take:0")
