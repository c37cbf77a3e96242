"""Queues from Python, and prefetching into them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.queues.prefetch import prefetch


def graph(capacity: int = 4, **attrs: Any) -> aexec.Graph:
    with aexec.Graph() as built:
        handle = ops.fifo_queue_v2(
            component_types=["float32", "string"], shapes=[[2], []], capacity=capacity, name="q", **attrs
        )
        ops.queue_dequeue_v2(handle, component_types=["float32", "string"], name="get")
        ops.fifo_queue_v2(component_types=["int64"], shapes=[[]], capacity=capacity, name="n")
        aexec.constant(1, name="c")
    return built


class TestQueue:
    async def test_elements_go_in_and_out(self) -> None:
        async with aexec.Session(graph()) as session:
            queue = session.queue("q")
            buffer = np.array([1, 2], np.float32)
            await queue.put((buffer, "a"))
            buffer[:] = 0
            await queue.put_many(([[3, 4], [5, 6]], ["b", "c"]))
            numbers, text = await queue.get()
            assert numbers.tolist() == [1, 2] and text == b"a"
            assert (await session.run(["get:0", "get:1"]))[1] == b"b"
            numbers, texts = await queue.get_many(1)
            assert numbers.tolist() == [[5, 6]] and texts.tolist() == [b"c"]
            statistics = queue.statistics()
            assert (statistics.enqueued, statistics.dequeued, statistics.peak) == (3, 3, 3)
            assert "FIFOQueue" in repr(queue)

    async def test_iterating_ends_when_it_is_closed(self) -> None:
        async with aexec.Session(graph()) as session:
            queue = session.queue("n")
            await queue.put_many([1, 2, 3])
            await queue.close()
            assert [value async for value in queue] == [1, 2, 3]
            with pytest.raises(errors.CancelledError, match="already closed"):
                await queue.close()
            await queue.close(cancel_pending=True)
            with pytest.raises(errors.OutOfRangeError):
                await queue.get()
            with pytest.raises(errors.CancelledError, match="is closed"):
                await queue.put(1)

    async def test_close_waits_for_puts_or_fails_them(self) -> None:
        async with aexec.Session(graph(capacity=1)) as session:
            queue = session.queue("n")
            await queue.put(1)
            put = asyncio.create_task(queue.put(2))
            await asyncio.sleep(0)
            close = asyncio.create_task(queue.close())
            await asyncio.sleep(0)
            assert not queue.closed
            close.cancel()
            await asyncio.wait([close])
            await queue.close(cancel_pending=True)
            with pytest.raises(errors.CancelledError, match="Enqueue operation was cancelled"):
                await put

    async def test_invalid_elements_and_names_are_refused(self) -> None:
        async with aexec.Session(graph()) as session:
            queue = session.queue("q")
            for bad in (1, ([1, 2],), ([1, 2, 3], "a"), (["x", "y"], "a"), ([1, 2], 3)):
                with pytest.raises(errors.InvalidArgumentError):
                    await queue.put(bad)
            assert not len(queue)
            with pytest.raises(errors.NotFoundError):
                session.queue("nothing")
            with pytest.raises(errors.InvalidArgumentError, match="makes no queue"):
                session.queue("c")

    async def test_cancelled_put_has_put_nothing_even_if_it_was_just_done(self) -> None:
        async with aexec.Session(graph(capacity=1)) as session:
            queue = session.queue("n")
            await queue.put(1)
            put = asyncio.create_task(queue.put(2))
            await asyncio.sleep(0)
            assert queue.resource.dequeue() == (1,)
            assert len(queue) == 1  # the put is done, its task does not know yet
            put.cancel()
            await asyncio.wait([put])
            assert len(queue) == 0 and put.cancelled()

    async def test_closing_the_session_ends_the_waiting(self) -> None:
        async with aexec.Session(graph(capacity=1)) as session:
            queue = session.queue("n")
            waiting = [asyncio.create_task(queue.get()), asyncio.create_task(queue.get_many(2))]
            await asyncio.sleep(0)
        for task in waiting:
            with pytest.raises(errors.CancelledError, match="Dequeue operation was cancelled"):
                await task
        with pytest.raises(errors.CancelledError):
            session.queue("n")

    async def test_clearing_the_container_ends_the_waiting(self) -> None:
        async with aexec.Session(graph(capacity=1)) as session:
            waiting = asyncio.create_task(session.queue("n").get())
            await asyncio.sleep(0)
            session.resources.clear()
            with pytest.raises(errors.CancelledError):
                await waiting

    async def test_two_threads_share_a_queue(self) -> None:
        """Its lock and its futures do not mind which thread completes what."""
        async with aexec.Session(graph()) as session:
            queue = session.queue("n")
            waiting = asyncio.create_task(queue.get())
            await asyncio.sleep(0)
            await asyncio.to_thread(queue.resource.enqueue, (np.int64(7),))
            assert await waiting == 7

            def take() -> Any:
                return queue.resource.dequeue()

            with pytest.raises(errors.FailedPreconditionError, match="no event loop"):
                await asyncio.to_thread(take)


class TestPrefetch:
    async def test_asynchronous_generator(self) -> None:
        closed = []

        async def source() -> AsyncIterator[int]:
            try:
                for i in range(10):
                    yield i
            finally:
                closed.append(True)

        async with aexec.Session(graph()) as session:
            queue = session.queue("n")
            async with prefetch(source(), queue, depth=2) as prefetching:
                assert [value async for value in queue] == list(range(10))
            statistics = prefetching.statistics()
            assert statistics.items == 10
            assert 0 <= statistics.overlap <= 1
            assert queue.statistics().peak <= 2
        assert closed == [True]

    async def test_plain_iterator_is_read_in_a_thread(self) -> None:
        async with aexec.Session(graph()) as session:
            queue = session.queue("n")
            async with prefetch(iter(range(5)), queue):
                assert [value async for value in queue] == list(range(5))

    async def test_error_of_the_source_is_raised_at_the_end(self) -> None:
        def source() -> Iterator[int]:
            yield 1
            raise ValueError("broken")

        async with aexec.Session(graph()) as session:
            queue = session.queue("n")
            with pytest.raises(ValueError, match="broken"):
                async with prefetch(source(), queue):
                    assert [value async for value in queue] == [1]

    async def test_leaving_early_stops_the_source(self) -> None:
        closed = []

        async def source() -> AsyncIterator[int]:
            try:
                while True:
                    yield 1
            finally:
                closed.append(True)

        async with aexec.Session(graph()) as session:
            queue = session.queue("n")
            async with prefetch(source(), queue):
                assert await queue.get() == 1
            assert queue.closed
        assert closed == [True]

    async def test_depth_of_nothing_is_refused(self) -> None:
        async with aexec.Session(graph()) as session:
            with pytest.raises(errors.InvalidArgumentError):
                prefetch([1], session.queue("n"), depth=0)


async def test_block_that_is_left_at_once_closes_queue_and_source() -> None:
    class Source:
        closed = False

        def __iter__(self) -> Iterator[int]:
            return iter([1, 2, 3])

        def close(self) -> None:
            self.closed = True

    source = Source()
    async with aexec.Session(graph()) as session:
        queue = session.queue("n")
        async with prefetch(source, queue):
            pass
        assert queue.closed and source.closed
