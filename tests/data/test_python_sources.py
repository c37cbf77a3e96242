"""Datasets of asynchronous iterators and of generators: nothing is lost, and nothing is left behind.

They use "data.pulled".
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import TensorSpec, errors
from aexec.data import Dataset, SparseTensorSpec
from aexec.framework.waiting.inline_call import check_inline
from tests.support.waiting import until

COUNT = 20


class Source:
    """An async generator that waits at a gate before each element, and tells when it is closed.

    Attributes:
        asked: how often it came to the gate.
        closed: how often it ended.
    """

    def __init__(self, count: int = COUNT, *, is_open: bool = False) -> None:
        self.asked = self.closed = 0
        self.open = asyncio.Semaphore(1 << 30 if is_open else 0)
        self._count = count

    async def __call__(self) -> AsyncIterator[int]:
        try:
            for number in range(self._count):
                self.asked += 1
                await self.open.acquire()
                yield number
        finally:
            await asyncio.sleep(0)  # as closing a connection
            self.closed += 1


def graph_of(make: Callable[[], Any]) -> tuple[aexec.Graph, Any, Any]:
    """A graph with a dataset, its initializer, and what its iterator has next."""
    with aexec.Graph() as graph:
        iterator = make().make_initializable_iterator()
        return graph, iterator.initializer, iterator.get_next()


async def all_of(dataset: Any) -> list[Any]:
    return [element async for element in dataset]


# Elements


async def test_elements_have_the_structure_of_the_signature() -> None:
    signature = {"a": TensorSpec([None], "float32"), "b": ("string", SparseTensorSpec([3], "int32"))}

    async def rows() -> AsyncIterator[Any]:
        yield {"a": [1, 2], "b": ("x", aexec.SparseTensor([[1]], [7], [3]))}
        yield {"b": (b"y", aexec.SparseTensor([[0], [2]], [8, 9], [3])), "a": np.zeros(0)}

    first, second = await all_of(Dataset.from_async(rows, signature))
    assert (first["a"].dtype, first["a"].tolist(), first["b"][0]) == (np.float32, [1, 2], b"x")
    assert second["a"].shape == (0,)
    indices, values, shape = second["b"][1]
    assert (indices.tolist(), values.tolist(), shape.tolist()) == ([[0], [2]], [8, 9], [3])


async def test_function_gets_the_values_of_tensors() -> None:
    async def count(start: int, names: Any) -> AsyncIterator[Any]:
        for number in range(start, start + 2):
            yield names[number]

    dataset = Dataset.range(2).flat_map(lambda x: Dataset.from_async(count, "string", [x, ["a", "b", "c"]]))
    assert await all_of(dataset) == [b"a", b"b", b"b", b"c"]


async def test_function_may_be_a_coroutine_function() -> None:
    async def connected() -> Any:
        return Source(2, is_open=True)()

    assert await all_of(Dataset.from_async(connected, "int32")) == [0, 1]


async def test_buffer_that_is_written_to_again_is_copied() -> None:
    async def rows() -> AsyncIterator[Any]:
        buffer = np.zeros(2)
        for number in range(3):
            buffer[:] = number
            yield buffer

    batches = await all_of(Dataset.from_async(rows, TensorSpec([2], "float64")).batch(3))
    assert batches[0].tolist() == [[0, 0], [1, 1], [2, 2]]


async def test_large_element_is_copied_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def noted(nanoseconds: float) -> None:
        threads.append(threading.get_ident())
        check_inline(nanoseconds)

    monkeypatch.setattr("aexec.data.python_sources.check_inline", noted)
    large = np.zeros(1 << 20)

    async def rows() -> AsyncIterator[Any]:
        yield large

    found = await all_of(Dataset.from_async(rows, TensorSpec([1 << 20], "float64")))
    assert found[0].shape == large.shape and not np.shares_memory(found[0], large)
    assert threads[0] == threading.get_ident() != threads[1]


class OfAnotherLibrary(np.ndarray[Any, Any]):
    """An array that is a kind of NumPy's, and shares its memory with what is made of it."""


async def test_array_of_another_kind_is_copied_too() -> None:
    other = np.zeros(3).view(OfAnotherLibrary)

    async def rows() -> AsyncIterator[Any]:
        yield other

    (found,) = await all_of(Dataset.from_async(rows, TensorSpec([3], "float64")))
    assert not np.shares_memory(found, other)


async def test_each_pass_calls_the_function() -> None:
    source = Source(2, is_open=True)
    assert await all_of(Dataset.from_async(source, "int64").repeat(2)) == [0, 1, 0, 1]
    assert source.closed == 2


async def test_iterator_without_a_function_is_gone_through_once() -> None:
    dataset = Dataset.from_async(Source(2, is_open=True)(), "int64")
    assert await all_of(dataset) == [0, 1]
    with pytest.raises(errors.FailedPreconditionError, match=r"FromAsync, element 0: .* has been used"):
        await all_of(dataset)


# Errors


async def test_errors_name_the_dataset_and_the_number_of_the_element() -> None:
    async def rows() -> AsyncIterator[Any]:
        yield 1
        yield "two"
        yield [3]
        raise LookupError("no more")

    with aexec.Graph() as graph:
        following = Dataset.from_async(rows, TensorSpec([], "int32"), name="rows").make_one_shot_iterator().get_next()
    async with aexec.Session(graph) as session:
        assert await session.run(following) == 1
        with pytest.raises(errors.InvalidArgumentError, match=r"rows, element 1: .*int32 but string"):
            await session.run(following)
        with pytest.raises(errors.InvalidArgumentError, match=r"rows, element 2: .*shape"):
            await session.run(following)
        with pytest.raises(errors.UnknownError, match="rows, element 3: LookupError: no more"):
            await session.run(following)
        for _ in range(2):
            with pytest.raises(errors.OutOfRangeError):
                await session.run(following)


async def test_source_that_cannot_be_opened_is_one_error_and_has_no_elements() -> None:
    async def connect() -> Any:
        raise ConnectionRefusedError("nobody there")

    graph, begin, following = graph_of(lambda: Dataset.from_async(connect, "int32"))
    async with aexec.Session(graph) as session:
        await session.run([], targets=[begin])
        with pytest.raises(errors.UnavailableError, match="element 0: ConnectionRefusedError: nobody there"):
            await session.run(following)
        with pytest.raises(errors.OutOfRangeError):
            await session.run(following)


async def test_source_that_cancels_itself_is_an_error() -> None:
    async def rows() -> AsyncIterator[Any]:
        yield 0
        raise asyncio.CancelledError

    async with aclosing(aiter(Dataset.from_async(rows, "int32"))) as elements:
        assert await anext(elements) == 0
        with pytest.raises(errors.UnknownError, match="element 1: CancelledError"):
            await anext(elements)


async def test_source_that_fails_while_it_is_closed_is_reported() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def rows() -> AsyncIterator[Any]:
        try:
            yield 0
            yield 1
        finally:
            raise LookupError("half closed")

    async with aclosing(aiter(Dataset.from_async(rows, "int32"))) as elements:
        assert await anext(elements) == 0
    assert [str(context["exception"]) for context in reported] == ["half closed"]
    assert "FromAsync" in reported[0]["message"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Dataset.from_async([1, 2], "int32"), "asynchronous iterable or a function"),
        (lambda: Dataset.from_async(Source, "no type"), "no type"),
        (lambda: Dataset.from_generator(iter, "int32", output_signature=TensorSpec()), "Provide either"),
        (lambda: Dataset.from_generator(iter), "Provide either"),
        (lambda: Dataset.from_generator(iter, output_shapes=[], output_signature=TensorSpec()), "Provide either"),
        (lambda: Dataset.from_generator([1], "int32"), "must be a Python callable"),
    ],
)
def test_what_is_no_source_is_refused(make: Any, words: str) -> None:
    with aexec.Graph(), pytest.raises(errors.InvalidArgumentError, match=words):
        make()


async def test_function_that_returns_no_iterable_is_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="must return an asynchronous iterable, got 3"):
        await all_of(Dataset.from_async(lambda: 3, "int32"))


# Cancellation


async def test_cancelled_step_ends_at_once_and_the_next_one_gets_the_element() -> None:
    source = Source()
    graph, begin, following = graph_of(lambda: Dataset.from_async(source, "int64"))
    async with aexec.Session(graph) as session:
        await session.run([], targets=[begin])
        for _ in range(3):
            step = asyncio.create_task(session.run(following))
            await until(lambda: source.asked)
            step.cancel()
            await asyncio.wait([step])
            assert step.cancelled() and (source.asked, source.closed) == (1, 0)
        source.open.release()
        assert await session.run(following) == 0
    assert source.closed == 1


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["async", "generator"])
async def test_no_element_is_lost_or_doubled_by_cancelled_steps(seed: int, kind: str) -> None:
    chance = random.Random(seed)

    async def rows() -> AsyncIterator[int]:
        for number in range(COUNT):
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            yield number

    def make() -> Any:
        if kind == "async":
            return Dataset.from_async(rows, "int64").map(lambda x: x + 1)
        return Dataset.from_generator(lambda: range(COUNT), "int64").map(lambda x: x + 1)

    graph, begin, following = graph_of(make)
    found: list[int] = []
    cancelled = 0
    async with aexec.Session(graph) as session:
        await session.run([], targets=[begin])
        while True:
            step = session.start(following)
            if cancelled < 60 and chance.random() < 0.7:
                for _ in range(chance.randrange(12)):
                    await asyncio.sleep(0)
                step.cancel()
                cancelled += 1
            try:
                found.append(int(await step))
            except errors.CancelledError:
                continue
            except errors.OutOfRangeError:
                break
    assert found == list(range(1, COUNT + 1)) and cancelled > 5


async def test_element_that_no_step_took_goes_to_the_next_one() -> None:
    source = Source(3)
    graph, begin, following = graph_of(lambda: Dataset.from_async(source, "int64"))
    async with aexec.Session(graph) as session:
        await session.run([], targets=[begin])
        step = asyncio.create_task(session.run(following))
        await until(lambda: source.asked)
        step.cancel()
        await asyncio.wait([step])
        source.open.release()  # comes while nobody waits
        for _ in range(5):
            await asyncio.sleep(0)
        source.open.release()
        source.open.release()
        assert [int(await session.run(following)) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(errors.OutOfRangeError):
            await session.run(following)


# The end


def tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def test_session_that_closes_closes_the_source() -> None:
    before, source = tasks(), Source()
    graph, begin, following = graph_of(lambda: Dataset.from_async(source, "int64", name="rows"))
    async with aexec.Session(graph) as session:
        await session.run([], targets=[begin])
        step = asyncio.create_task(session.run(following))
        await until(lambda: source.asked)
        assert any("rows: ask the source" in name for name in tasks())
    assert source.closed == 1
    await asyncio.wait([step])
    assert isinstance(step.exception(), errors.CancelledError)
    assert tasks() == before


async def test_new_pass_closes_the_source_of_the_old_one() -> None:
    source = Source(is_open=True)
    graph, begin, following = graph_of(lambda: Dataset.from_async(source, "int64"))
    async with aexec.Session(graph) as session:
        for number in range(3):
            await session.run([], targets=[begin])
            assert [int(await session.run(following)) for _ in range(2)] == [0, 1]
            await until(lambda number=number: source.closed == number)


async def test_pass_and_session_that_end_together_let_the_source_close() -> None:
    """It is cancelled once, though both ask for it."""
    source = Source(is_open=True)
    graph, begin, following = graph_of(lambda: Dataset.from_async(source, "int64"))
    async with aexec.Session(graph) as session:
        await session.run([], targets=[begin])
        await session.run(following)
        await session.run([], targets=[begin])
    assert source.closed == 1


async def test_loop_that_is_left_closes_the_source() -> None:
    before, source = tasks(), Source(is_open=True)
    async with aclosing(aiter(Dataset.from_async(source, "int64"))) as elements:
        async for element in elements:
            if element == 3:
                break
    assert (source.asked, source.closed) == (4, 1)
    assert tasks() == before


async def test_source_may_hold_a_task_group_and_a_timeout() -> None:
    async def rows() -> AsyncIterator[int]:
        queue: asyncio.Queue[int] = asyncio.Queue()

        async def produce() -> None:
            for number in range(3):
                await queue.put(number)

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(produce())
            for _ in range(3):
                yield await queue.get()

    assert await all_of(Dataset.from_async(rows, "int64")) == [0, 1, 2]


async def test_dataset_that_needs_a_session_is_refused_by_async_for() -> None:
    with aexec.Graph():
        dataset = Dataset.range(aexec.placeholder("int64", []))
    with pytest.raises(errors.InvalidArgumentError, match="Cannot capture a placeholder"):
        await all_of(dataset)


# Generators


async def test_generator_is_advanced_in_a_thread_while_its_calls_are_long() -> None:
    threads: list[int] = []
    gate = threading.Event()

    def rows() -> Iterator[int]:
        for number in range(8):
            threads.append(threading.get_ident())
            if number == 0:
                gate.wait()
            yield number

    dataset = Dataset.from_generator(rows, "int64")
    async with aclosing(aiter(dataset)) as elements:
        first = asyncio.ensure_future(anext(elements))
        await until(lambda: threads)  # the loop goes on
        gate.set()
        found = [await first] + [element async for element in elements]
    assert found == list(range(8))
    here = threading.get_ident()
    assert threads[0] != here and threads[-1] == here


async def test_generator_is_closed_with_its_session() -> None:
    closed = []

    def rows() -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            closed.append(True)

    async with aclosing(aiter(Dataset.from_generator(rows, "int64"))) as elements:
        assert await anext(elements) == 0
    assert closed == [True]


# Queues


def queue_graph(types: list[Any], shapes: list[Any]) -> aexec.Graph:
    with aexec.Graph() as graph:
        queue = aexec.ops.fifo_queue_v2(types, shapes=shapes, capacity=4, name="q")
        aexec.ops.queue_dequeue_v2(queue, types, name="take")
    return graph


async def test_dataset_feeds_a_queue_and_closes_it() -> None:
    dataset = Dataset.range(10).map(lambda x: {"b": x * 2, "a": x})
    async with aexec.Session(queue_graph(["int64", "int64"], [[], []])) as session:
        feeding = asyncio.create_task(dataset.feed(session.queue("q")))
        assert [await session.run(["take:0", "take:1"]) for _ in range(10)] == [[x, 2 * x] for x in range(10)]
        await feeding
        with pytest.raises(errors.OutOfRangeError):
            await session.run("take:0")


async def test_queue_is_closed_by_an_error_of_an_element() -> None:
    async def rows() -> AsyncIterator[int]:
        yield 1
        raise ValueError("bad row")

    async with aexec.Session(queue_graph(["int64"], [[]])) as session:
        with pytest.raises(errors.InvalidArgumentError, match="bad row"):
            await Dataset.from_async(rows, "int64").feed(session.queue("q"))
        assert await session.run("take:0") == 1
        with pytest.raises(errors.OutOfRangeError):
            await session.run("take:0")


async def test_cancelled_feed_closes_the_source_and_not_the_queue() -> None:
    before, source = tasks(), Source(is_open=True)
    async with aexec.Session(queue_graph(["int64"], [[]])) as session:
        queue = session.queue("q")
        feeding = asyncio.create_task(Dataset.from_async(source, "int64").feed(queue))
        await until(lambda: len(queue) == 4)
        feeding.cancel()
        await asyncio.wait([feeding])
        assert source.closed == 1 and not queue.closed and len(queue) == 4
        await Dataset.range(0).feed(queue)
        assert queue.closed
    assert tasks() == before
