"""Coordinator and queue runners: stopping together, reporting the first error, starting again."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops, proto
from aexec.queues.coordinator import Coordinator
from aexec.queues.queue_runner import QueueRunner, add_queue_runner, queue_runners, start_queue_runners
from tests.support import gates  # noqa: F401  registers TestFail
from tests.support.virtual_clock import run_virtual


async def forever() -> None:
    await asyncio.Event().wait()


class TestCoordinator:
    async def test_block_waits_for_its_tasks_and_stops_them(self) -> None:
        seen = []

        async def work(coordinator: Coordinator) -> None:
            await coordinator.wait_for_stop()
            seen.append("stopped")

        async with Coordinator() as coordinator:
            coordinator.create_task(work(coordinator))
            await asyncio.sleep(0)
            assert len(coordinator.tasks) == 1
        assert seen == ["stopped"]
        assert coordinator.joined and not coordinator.tasks

    async def test_first_error_is_raised_and_others_are_not(self) -> None:
        async def fail(coordinator: Coordinator, message: str) -> None:
            with coordinator.stop_on_exception():
                raise errors.InternalError(message)

        coordinator = Coordinator()

        async def main() -> None:
            async with coordinator:
                coordinator.create_task(fail(coordinator, "first"))
                coordinator.create_task(fail(coordinator, "second"))
                await coordinator.wait_for_stop()

        with pytest.raises(errors.InternalError, match="first"):
            await main()
        with pytest.raises(errors.InternalError, match="late"):
            coordinator.request_stop(errors.InternalError("late"))
        coordinator.clear_stop()
        assert not coordinator.should_stop()
        coordinator.raise_requested_exception()

    async def test_end_of_the_input_is_a_clean_stop(self) -> None:
        async with Coordinator() as coordinator:
            raise errors.OutOfRangeError("no more")
        assert coordinator.should_stop()
        with pytest.raises(errors.OutOfRangeError):
            async with Coordinator(clean_stop_exception_types=()):
                raise errors.OutOfRangeError("no more")

    async def test_error_of_the_block_is_raised(self) -> None:
        async def main() -> None:
            async with Coordinator() as coordinator:
                coordinator.create_task(forever_until_stop(coordinator))
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            await main()

    def test_tasks_that_do_not_stop_are_cancelled_after_the_grace_period(self) -> None:
        async def main(ignore: bool) -> None:
            coordinator = Coordinator()
            task = coordinator.create_task(forever(), name="stubborn")
            coordinator.request_stop()
            began = asyncio.get_running_loop().time()
            await coordinator.join(stop_grace_period=60, ignore_live_tasks=ignore)
            assert asyncio.get_running_loop().time() - began == pytest.approx(60)
            assert task.cancelled()

        run_virtual(main(True))
        with pytest.raises(RuntimeError, match="stubborn"):
            run_virtual(main(False))

    async def test_cancelling_the_block_cancels_the_tasks(self) -> None:
        inner: list[asyncio.Task[Any]] = []

        async def main() -> None:
            async with Coordinator() as coordinator:
                inner.append(coordinator.create_task(forever()))
                await forever()

        task = asyncio.create_task(main())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert inner[0].cancelled()

    def test_every_calls_again_and_again(self) -> None:
        async def main() -> list[float]:
            loop = asyncio.get_running_loop()
            times: list[float] = []

            async with Coordinator() as coordinator:

                async def tick() -> None:
                    times.append(loop.time())
                    if len(times) == 3:
                        raise errors.OutOfRangeError("enough")

                coordinator.every(10, tick)
                await coordinator.wait_for_stop()
            assert not await Coordinator().wait_for_stop(5)
            return times

        times = run_virtual(main())
        assert [t - times[0] for t in times] == [0, 10, 20]


async def forever_until_stop(coordinator: Coordinator) -> None:
    await coordinator.wait_for_stop()


def counting_graph(limit: int = 5) -> aexec.Graph:
    """`count` goes up to a limit, then fails with OutOfRange; `put` puts it into the queue, `get` takes it out."""
    with aexec.Graph() as graph:
        handle = ops.fifo_queue_v2(component_types=["int32"], shapes=[[]], capacity=2, name="q")
        source = ops.fifo_queue_v2(component_types=["int32"], shapes=[[]], name="source")
        put = ops.queue_enqueue_v2(handle, ops.queue_dequeue_v2(source, component_types=["int32"]), name="put")
        ops.queue_dequeue_v2(handle, component_types=["int32"], name="get")
        ops.queue_enqueue_v2(handle, [ops.test_fail(aexec.constant(1))], name="bad")
        ops.queue_close_v2(handle, name="close")
        ops.queue_close_v2(handle, cancel_pending_enqueues=True, name="cancel")
        add_queue_runner(QueueRunner("q", [put], close_op="close", cancel_op="cancel"))
    return graph


async def fill(session: aexec.Session, count: int = 5) -> None:
    source = session.queue("source")
    await source.put_many(np.arange(count, dtype=np.int32))
    await source.close()


class TestQueueRunner:
    async def test_runner_fills_the_queue_and_closes_it_at_the_end(self) -> None:
        seen = []
        async with aexec.Session(counting_graph()) as session:
            await fill(session)
            async with Coordinator() as coordinator:
                start_queue_runners(session, coordinator)
                while not coordinator.should_stop():
                    seen.append(await session.run("get:0"))
        assert seen == [0, 1, 2, 3, 4]

    async def test_blocked_runner_is_stopped(self) -> None:
        async with aexec.Session(counting_graph()) as session:
            await fill(session)
            async with Coordinator() as coordinator:
                tasks = start_queue_runners(session, coordinator)
                assert start_queue_runners(session, coordinator) == []  # they run already
                assert await session.run("get:0") == 0
            assert all(task.done() for task in tasks)
            assert session.queue("q").closed

    async def test_errors_are_reported(self) -> None:
        async def main(session: aexec.Session) -> None:
            async with Coordinator() as coordinator:
                QueueRunner("q", ["bad"]).start(session, coordinator)
                await coordinator.wait_for_stop()

        async with aexec.Session(counting_graph()) as session:
            with pytest.raises(errors.InvalidArgumentError, match="failed on purpose"):
                await main(session)

    async def test_runner_without_a_coordinator_keeps_errors_and_can_start_again(self) -> None:
        runner = QueueRunner("q", ["bad"])
        async with aexec.Session(counting_graph()) as session:
            for _ in range(2):
                (task,) = runner.start(session)
                with pytest.raises(errors.InvalidArgumentError):
                    await task
                assert [type(e) for e in runner.exceptions_raised] == [errors.InvalidArgumentError]

    async def test_runner_cancelled_before_its_first_turn_can_start_again(self) -> None:
        runner = QueueRunner("q", ["bad"])
        async with aexec.Session(counting_graph()) as session:
            (task,) = runner.start(session)
            task.cancel()
            await asyncio.wait([task])
            (task,) = runner.start(session)
            with pytest.raises(errors.InvalidArgumentError):
                await task

    async def test_last_one_closes_the_queue(self) -> None:
        async with aexec.Session(counting_graph()) as session:
            await fill(session, 1)
            tasks = QueueRunner("q", ["put", "put"]).start(session)
            await asyncio.gather(*tasks)
            queue = session.queue("q")
            assert queue.closed and len(queue) == 1

    def test_round_trip_and_collections(self) -> None:
        runner = QueueRunner(
            "q", ["a", "b"], close_op="c", queue_closed_exception_types=(errors.OutOfRangeError, errors.CancelledError)
        )
        meta = proto.MetaGraphDef()
        meta.collection_def["queue_runners"].bytes_list.value.append(runner.to_proto().SerializeToString())
        (read,) = queue_runners(meta)
        assert read.to_proto() == runner.to_proto()
        scoped = QueueRunner.from_proto(runner.to_proto(), import_scope="s")
        assert (scoped.queue, scoped.enqueue_ops, scoped.close_op, scoped.cancel_op) == (
            "s/q",
            ["s/a", "s/b"],
            "s/c",
            "",
        )
        assert queue_runners(proto.MetaGraphDef()) == []
        assert len(queue_runners(counting_graph())) == 1

    @pytest.mark.parametrize("data", [b"\xff\xff", b""])
    def test_collection_of_other_things_is_refused(self, data: bytes) -> None:
        meta = proto.MetaGraphDef()
        meta.collection_def["queue_runners"].bytes_list.value.append(data)
        with pytest.raises(errors.InvalidArgumentError):
            queue_runners(meta)
