"""What each kind of queue does, as TensorFlow was observed to do it."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import numpy as np
import pytest

from aexec import errors
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from aexec.queues import batching
from aexec.queues.attempts import Attempt, settled
from aexec.queues.kinds import queue_class, queue_kinds
from aexec.queues.kinds.fifo_queue import FIFOQueue
from aexec.queues.kinds.padding_fifo_queue import PaddingFIFOQueue
from aexec.queues.kinds.priority_queue import PriorityQueue
from aexec.queues.kinds.random_shuffle_queue import RandomShuffleQueue
from aexec.queues.queue_base import QueueBase, QueueSpec
from tests.support.stand_ins.replacing import replace_in

KINDS = tuple(queue for kind in queue_kinds() if (queue := queue_class(kind)) is not None)
SCALAR = PartialTensorShape([])


def make(kind: type[QueueBase] = FIFOQueue, capacity: int = 10, **extra: Any) -> QueueBase:
    return kind("q", QueueSpec((dtypes.int64,), (SCALAR,), capacity, **extra))


def put(queue: QueueBase, *values: int) -> Attempt | None:
    return queue.enqueue_many([np.array(values, np.int64)])


def many(queue: QueueBase, count: int, *, up_to: bool = False) -> Any:
    return queue.dequeue_many(count, up_to=up_to)


def values(outcome: Any) -> list[int]:
    return [int(value) for value in outcome[0]]


@pytest.mark.parametrize("kind", KINDS)
class TestEveryKind:
    async def test_operations_that_need_not_wait_make_no_future(self, kind: type[QueueBase]) -> None:
        queue = make(kind)
        assert queue.enqueue((np.int64(1),)) is None
        assert put(queue, 2, 3) is None
        assert len(queue) == 3
        assert isinstance(queue.dequeue(), tuple)
        assert sorted(values(many(queue, 2)))[0] in (1, 2)
        assert queue.request_close() is None

    async def test_queue_that_leaves_its_container_frees_its_elements(self, kind: type[QueueBase]) -> None:
        """Whoever still holds the queue, such as a kernel of a session that was closed, does not hold those."""
        queue = make(kind)
        row = np.array(1, np.int64)
        element = weakref.ref(row)
        queue.enqueue((row,))
        del row
        assert element() is not None
        queue.close()
        assert len(queue) == 0
        assert element() is None

    async def test_batch_of_none(self, kind: type[QueueBase]) -> None:
        queue = make(kind)
        assert values(many(queue, 0)) == []
        queue.request_close()
        assert put(queue) is None  # also when it is closed

    async def test_waiting_is_served_in_order_of_arrival(self, kind: type[QueueBase]) -> None:
        """A large dequeue that waits holds up a small one behind it."""
        queue = make(kind)
        large, small = many(queue, 3), queue.dequeue()
        put(queue, 1)
        put(queue, 1)
        assert len(queue) == (2 if kind.takes_whole_batches else 0)
        assert not large.done() and not small.done()
        put(queue, 1, 1)
        assert values(await large) == [1, 1, 1]
        assert await small == (1,)

    async def test_large_put_that_waits_goes_in_piece_by_piece(self, kind: type[QueueBase]) -> None:
        queue = make(kind, capacity=3)
        attempt = put(queue, 1, 1, 1, 1, 1)
        assert attempt is not None and len(queue) == 3
        queue.dequeue()
        assert len(queue) == 3 and not attempt.done()
        attempt.cancel()
        assert queue.statistics().enqueued == 4  # what was put stays
        assert queue.enqueue((np.int64(1),)) is not None

    async def test_closing_ends_a_dequeue_that_has_too_little(self, kind: type[QueueBase]) -> None:
        queue = make(kind)
        put(queue, 1, 2)
        attempt = many(queue, 5)
        left = 2 if kind.takes_whole_batches else 0
        assert len(queue) == left
        queue.request_close()
        words = rf"closed and has insufficient elements \(requested {3 + left}, current size {left}\)"
        with pytest.raises(errors.OutOfRangeError, match=words):
            await attempt
        assert len(queue) == 2
        assert sorted(values(many(queue, 5, up_to=True))) == [1, 2]
        with pytest.raises(errors.OutOfRangeError, match=r"\(requested 1, current size 0\)"):
            queue.dequeue()

    async def test_smaller_batch_at_the_end(self, kind: type[QueueBase]) -> None:
        queue = make(kind)
        put(queue, 1, 1)
        attempt = many(queue, 5, up_to=True)
        queue.request_close()
        assert values(await attempt) == [1, 1]

    async def test_closing_waits_for_enqueues_before_it(self, kind: type[QueueBase]) -> None:
        queue = make(kind, capacity=1)
        put(queue, 1)
        before, closing = put(queue, 1), queue.request_close()
        after, again = put(queue, 1), queue.request_close()
        assert before and closing and after and again and not queue.closed
        queue.dequeue()
        assert await before is None and await closing is None
        with pytest.raises(errors.CancelledError, match=rf"{kind.kind} 'q' is closed\."):
            await after
        with pytest.raises(errors.CancelledError, match=r"Queue 'q' is already closed\."):
            await again

    async def test_closing_and_cancelling(self, kind: type[QueueBase]) -> None:
        queue = make(kind, capacity=1)
        put(queue, 1)
        waiting = put(queue, 1)
        queue.request_close(cancel_pending_enqueues=True)
        queue.request_close(cancel_pending_enqueues=True)
        assert waiting
        with pytest.raises(errors.CancelledError, match="Enqueue operation was cancelled"):
            await waiting
        assert len(queue) == 1 and queue.closed

    async def test_cancelled_dequeue_has_taken_nothing(self, kind: type[QueueBase]) -> None:
        queue = make(kind, capacity=3)
        put(queue, 1, 2)
        attempt = many(queue, 4)
        behind = queue.dequeue()
        attempt.cancel()
        assert sorted([*await behind, *queue.dequeue()]) == [1, 2]

    async def test_statistics_and_text(self, kind: type[QueueBase]) -> None:
        queue = make(kind, capacity=2)
        put(queue, 1, 2)
        waiting = put(queue, 3)
        statistics = queue.statistics()
        assert (statistics.kind, statistics.peak, statistics.waiting_enqueues) == (kind.kind, 2, 1)
        assert repr(queue) == f"<{kind.kind} 'q' 2 of 2, 1 enqueues and 0 dequeues waiting>"
        assert waiting and waiting.cancel() and not waiting.cancel()

    async def test_element_that_nobody_fetched_is_given_back(self, kind: type[QueueBase]) -> None:
        queue = make(kind)
        getting = asyncio.create_task(settled(queue.dequeue()))
        await asyncio.sleep(0)
        put(queue, 5)
        getting.cancel()
        await asyncio.wait([getting])
        assert queue.dequeue() == (5,)


class TestOrder:
    async def test_shuffling_gives_tensorflows_order(self) -> None:
        queue = make(RandomShuffleQueue, 50, seed=1, seed2=2)
        put(queue, *range(10))
        assert [*map(int, queue.dequeue()), *values(many(queue, 9))] == [9, 8, 6, 3, 5, 1, 4, 7, 2, 0]
        put(queue, *range(10))
        assert values(many(queue, 10)) == [4, 2, 8, 7, 9, 3, 0, 6, 1, 5]

    async def test_minimum_of_elements_stays_until_the_queue_is_closed(self) -> None:
        queue = make(RandomShuffleQueue, 50, seed=7, min_after_dequeue=3)
        put(queue, *range(10))
        assert values(many(queue, 7)) == [7, 4, 2, 8, 3, 1, 5]
        waiting = queue.dequeue()
        assert not waiting.done()
        queue.request_close()
        assert await waiting == (0,)
        assert values(many(queue, 7, up_to=True)) == [9, 6]

    async def test_order_differs_without_seeds(self) -> None:
        orders = set()
        for _ in range(5):
            queue = make(RandomShuffleQueue, 50)
            put(queue, *range(20))
            orders.add(tuple(values(many(queue, 20))))
        assert len(orders) > 1

    async def test_priorities(self) -> None:
        queue = PriorityQueue("q", QueueSpec((dtypes.int64, dtypes.string), (SCALAR, SCALAR), 10))
        words = np.array([b"b", b"x", b"a", b"c"], object)
        queue.enqueue_many([np.array([2, 9, 1, 2]), words])
        priorities, taken = queue.dequeue_many(4)
        assert priorities.tolist() == [1, 2, 2, 9]
        assert taken.tolist() == [b"a", b"b", b"c", b"x"]

    async def test_batch_that_waits_is_of_the_smallest_there_are_when_it_is_complete(self) -> None:
        queue = make(PriorityQueue)
        first, second = many(queue, 4), many(queue, 1)
        put(queue, 5, 3)
        put(queue, 4, 1, 2)
        assert values(await first) == [1, 2, 3, 4] and values(await second) == [5]

    async def test_batch_taken_in_several_turns_of_the_loop_is_in_order_with_what_came_in_between(self) -> None:
        queue = make(PriorityQueue, capacity=20_000)
        await settled(put(queue, *range(0, 20_000, 2)))
        attempt = many(queue, 9000)
        while len(queue) > 9000:  # a part is taken
            await asyncio.sleep(0)
        assert not attempt.done()
        put(queue, 7, 9001, -3, 20_001)
        smallest = sorted([*range(0, 20_000, 2), 7, 9001, -3, 20_001])
        assert values(await attempt) == smallest[:9000]
        assert sorted(values(await settled(many(queue, 1004)))) == smallest[9000:]

    async def test_batch_larger_than_an_ordered_queue_waits_and_takes_nothing(self) -> None:
        queue = make(PriorityQueue, capacity=2)
        attempt = many(queue, 3)
        waiting = put(queue, 1, 2, 3)
        assert waiting and len(queue) == 2 and not attempt.done()
        attempt.cancel()
        assert values(many(queue, 2)) == [1, 2] and waiting.done()

    async def test_padding(self) -> None:
        shapes = (PartialTensorShape([None, 2]), PartialTensorShape([None]))
        queue = PaddingFIFOQueue("q", QueueSpec((dtypes.int32, dtypes.string), shapes, 10))
        queue.enqueue((np.array([[1, 2]], np.int32), np.array([b"a", b"b"], object)))
        queue.enqueue((np.array([[3, 4], [5, 6]], np.int32), np.array([], object)))
        numbers, words = queue.dequeue_many(2)
        assert numbers.tolist() == [[[1, 2], [0, 0]], [[3, 4], [5, 6]]]
        assert words.tolist() == [[b"a", b"b"], [b"", b""]]


def test_batch_is_joined_by_one_copy_of_each_component(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    concatenate = np.concatenate

    def counted(arrays: Any) -> Any:
        calls.append(len(arrays))
        return concatenate(arrays)

    replace_in(monkeypatch, batching, "np", concatenate=counted)
    shape = PartialTensorShape([4])
    queue = FIFOQueue("q", QueueSpec((dtypes.float32, dtypes.float32), (shape, shape), -1))
    for i in range(1000):
        queue.enqueue((np.full(4, i, np.float32), np.full(4, -i, np.float32)))
    first, second = queue.dequeue_many(1000)
    assert calls == [1000, 1000]
    assert first[:, 0].tolist() == (-second[:, 3]).tolist() == list(range(1000))


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,), (2, 0)])
@pytest.mark.parametrize("dtype", [dtypes.int16, dtypes.string])
async def test_batch_of_very_many(shape: tuple[int, ...], dtype: dtypes.DType) -> None:
    """It is joined in pieces, so that other threads get their turn."""
    rows = np.arange(9000 * int(np.prod(shape)), dtype=np.int16).reshape(9000, *shape).astype(dtype.np)
    for kind in (FIFOQueue, PaddingFIFOQueue):
        queue = kind("q", QueueSpec((dtype,), (PartialTensorShape(shape),), -1))
        await settled(queue.enqueue_many([rows]))
        (batch,) = await settled(queue.dequeue_many(9000))
        assert batch.dtype == rows.dtype and (batch == rows).all()


@pytest.mark.parametrize("kind", KINDS)
async def test_very_many_elements_are_moved_a_part_in_each_turn_of_the_loop(kind: type[QueueBase]) -> None:
    spec = QueueSpec((dtypes.int64,), (SCALAR,), 20_000, 0, 1, 2)
    queue = kind("q", spec)
    put = queue.enqueue_many([np.arange(12_000)])
    get = queue.dequeue_many(12_000)
    assert isinstance(put, Attempt) and isinstance(get, Attempt)
    turns = 0
    while not get.done():
        turns += 1
        before = queue.statistics()
        await asyncio.sleep(0)
        after = queue.statistics()
        assert after.enqueued - before.enqueued + after.dequeued - before.dequeued <= 4000
    assert turns > 4 and put.done()
    assert sorted(get.result()[0]) == list(range(12_000))
    assert len(queue) == 0


async def test_part_of_very_many_elements_that_was_moved_goes_back() -> None:
    queue = FIFOQueue("q", QueueSpec((dtypes.int64,), (SCALAR,), -1))
    await settled(queue.enqueue_many([np.arange(12_000)]))
    waiting = asyncio.ensure_future(settled(queue.dequeue_many(12_000)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 0 < len(queue) < 12_000
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (await settled(queue.dequeue_many(12_000)))[0].tolist() == list(range(12_000))


def test_elements_are_moved_at_once_without_an_event_loop() -> None:
    queue = FIFOQueue("q", QueueSpec((dtypes.int64,), (SCALAR,), -1))
    assert queue.enqueue_many([np.arange(12_000)]) is None
    assert len(queue) == 12_000
    assert len(queue.dequeue_many(12_000)[0]) == 12_000


@pytest.mark.parametrize("empty", [(0,), (3, 0), (0, 3)])
async def test_elements_without_elements(empty: tuple[int, ...]) -> None:
    queue = FIFOQueue("q", QueueSpec((dtypes.float32,), (PartialTensorShape(empty),), -1))
    queue.enqueue((np.empty(empty, np.float32),))
    queue.enqueue((np.empty(empty, np.float32),))
    assert queue.dequeue_many(2)[0].shape == (2, *empty)
