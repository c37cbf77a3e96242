"""Input pipelines of queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.client import data_flow, input
from aexec.queues.queue_runner import queue_runners


async def run_all(build: Callable[[], Any], limit: int | None = None) -> list[Any]:
    """Build a pipeline and run what it gives until it ends."""
    with aexec.Graph() as graph:
        fetches = build()
    results: list[Any] = []
    async with aexec.Session(graph) as session:
        await input.initialize(session)
        async with aexec.Coordinator() as coordinator:
            aexec.start_queue_runners(session, coordinator)
            while limit is None or len(results) < limit:
                results.append(await session.run(fetches))
    return results


async def test_string_input_producer() -> None:
    names = await run_all(lambda: input.string_input_producer(["a", "b"], 2, shuffle=False).dequeue())
    assert names == [b"a", b"b", b"a", b"b"]


async def test_producer_without_a_limit_repeats_for_ever() -> None:
    names = await run_all(lambda: input.string_input_producer(["a", "b"], shuffle=False).dequeue(), limit=5)
    assert names == [b"a", b"b", b"a", b"b", b"a"]


async def test_shuffling_takes_each_once_per_epoch() -> None:
    values = await run_all(lambda: input.range_input_producer(10, num_epochs=2, seed=1).dequeue())
    assert sorted(values[:10]) == sorted(values[10:]) == list(range(10))
    assert values[:10] != list(range(10))


async def test_slice_input_producer() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    labels = np.array(["x", "y", "z"])
    taken = await run_all(lambda: input.slice_input_producer([rows, labels], num_epochs=1, shuffle=False))
    assert [row.tolist() for row, _ in taken] == rows.tolist()
    assert [label for _, label in taken] == [b"x", b"y", b"z"]


def counting(limit: int) -> aexec.Tensor:
    return input.range_input_producer(limit, num_epochs=1, shuffle=False).dequeue()


async def test_batch() -> None:
    taken = await run_all(lambda: input.batch(counting(7), 3))
    assert [b.tolist() for b in taken] == [[0, 1, 2], [3, 4, 5]]
    taken = await run_all(lambda: input.batch(counting(7), 3, allow_smaller_final_batch=True))
    assert [b.tolist() for b in taken] == [[0, 1, 2], [3, 4, 5], [6]]


async def test_batch_keeps_the_form_of_its_tensors() -> None:
    def build() -> Any:
        value = counting(2)
        return input.batch({"b": value, "a": ops.square(value)}, 2)

    ((batch),) = await run_all(build)
    assert {key: value.tolist() for key, value in batch.items()} == {"a": [0, 1], "b": [0, 1]}


async def test_batch_of_rows() -> None:
    def build() -> Any:
        rows = input.limit_epochs(np.arange(4, dtype=np.int32), 2)
        return input.batch([rows, ops.neg(rows)], 4, enqueue_many=True)

    taken = await run_all(build)
    assert [(a.tolist(), b.tolist()) for a, b in taken] == [([0, 1, 2, 3], [0, -1, -2, -3])] * 2


async def test_counters_of_epochs_are_local_variables_to_initializers() -> None:
    with aexec.Graph() as graph:
        row = input.limit_epochs(aexec.constant(5), 1)
        init = aexec.local_variables_initializer()
    async with aexec.Session(graph) as session:
        for _ in range(2):
            await session.run(init)
            assert await session.run(row) == 5
            with pytest.raises(errors.OutOfRangeError):
                await session.run(row)


async def test_dynamic_padding() -> None:
    def build() -> Any:
        value = counting(4)
        return input.batch(ops.fill(ops.reshape(value, [1]), value), 2, dynamic_pad=True, shapes=[[None]])

    taken = await run_all(build)
    assert [b.tolist() for b in taken] == [[[0], [1]], [[2, 2, 0], [3, 3, 3]]]


async def test_shuffle_batch_gives_everything_once() -> None:
    taken = await run_all(lambda: input.shuffle_batch(counting(40), 4, capacity=30, min_after_dequeue=10, seed=2))
    values = np.concatenate(taken).tolist()
    assert sorted(values) == list(range(40))
    assert values != sorted(values)


@pytest.mark.parametrize("shuffle", [False, True])
async def test_joins(shuffle: bool) -> None:
    def build() -> Any:
        sources = [[counting(6)], [ops.add_v2(counting(6), 100)]]
        if shuffle:
            return input.shuffle_batch_join(sources, 4, capacity=10, min_after_dequeue=3)
        return input.batch_join(sources, 4)

    values = np.concatenate(await run_all(build)).tolist()
    assert sorted(values) == [*range(6), *range(100, 106)]


async def test_several_tasks_put_what_is_there_once() -> None:
    values = np.concatenate(await run_all(lambda: input.batch(counting(12), 3, num_threads=4))).tolist()
    assert sorted(values) == list(range(12))


async def test_keep_input() -> None:
    def even() -> Any:
        value = counting(6)
        return input.batch(value, 3, keep_input=ops.equal(ops.floor_mod(value, 2), 0))

    (batch,) = await run_all(even)
    assert batch.tolist() == [0, 2, 4]

    def chosen() -> Any:
        rows = input.limit_epochs(np.arange(6, dtype=np.int32), 1)
        return input.batch(rows, 2, enqueue_many=True, keep_input=ops.greater(rows, 3))

    (batch,) = await run_all(chosen)
    assert batch.tolist() == [4, 5]


def test_shapes_and_names_are_tensorflows() -> None:
    with aexec.Graph() as graph:
        value = aexec.constant([[1.0, 2.0]])
        fixed = input.batch([value], 5)
        upto = input.batch([value], 5, allow_smaller_final_batch=True, name="b")
        assert (str(fixed.shape), str(upto.shape)) == ("[5,1,2]", "[?,1,2]")
        assert fixed.name == "batch:0"
        assert {"batch/fifo_queue", "batch/fifo_queue_enqueue", "batch/fifo_queue_Close"} <= {
            node.name for node in graph.nodes
        }
    assert [r.queue for r in queue_runners(graph)] == ["batch/fifo_queue", "b/fifo_queue"]


@pytest.mark.parametrize(
    "build",
    [
        lambda: input.string_input_producer([]),
        lambda: input.limit_epochs(1.0, 0),
        lambda: input.slice_input_producer([]),
        lambda: input.batch([], 3),
        lambda: input.batch_join([], 3),
        lambda: input.input_producer(aexec.placeholder("float32", None)),
        lambda: input.input_producer(1.0),
        lambda: data_flow.fifo_queue(3, ["float32"] * 2).enqueue([1.0]),
    ],
)
def test_refused_while_building(build: Callable[[], Any]) -> None:
    with aexec.Graph(), pytest.raises(errors.InvalidArgumentError):
        build()


async def test_empty_strings_are_refused_when_running() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="non-null input tensor"):
        await run_all(lambda: input.string_input_producer(ops.identity(np.empty(0, object))).dequeue())


async def test_queues_of_all_kinds() -> None:
    with aexec.Graph() as graph:
        queues = [
            data_flow.fifo_queue(5, "int32", [[]]),
            data_flow.padding_fifo_queue(5, ["int32"], [[None]]),
            data_flow.random_shuffle_queue(5, 0, ["int32"], [[]], seed=1),
        ]
        priority = data_flow.priority_queue(5, ["int32"], [[]], name="priority")
        put = [queues[0].enqueue(1), queues[1].enqueue_many([[[1], [2]]]), queues[2].enqueue_many([[3, 3]])]
        put += [priority.enqueue([ops.cast(2, DstT="int64"), 20]), priority.enqueue([ops.cast(1, DstT="int64"), 10])]
        sizes = [queue.size() for queue in (*queues, priority)]
        taken = [queues[0].dequeue(), queues[1].dequeue_up_to(2), queues[2].dequeue_many(2), priority.dequeue()]
        close = queues[0].close()
        closed = queues[0].is_closed()
    async with aexec.Session(graph) as session:
        await session.run([], targets=put)
        assert await session.run(sizes) == [1, 2, 2, 2]
        one, two, three, four = await session.run(taken)
        assert (one, two.tolist(), three.tolist(), four) == (1, [[1], [2]], [3, 3], [1, 10])
        await session.run([], targets=[close])
        assert await session.run(closed)
        assert session.queue("priority").name.endswith("priority")
