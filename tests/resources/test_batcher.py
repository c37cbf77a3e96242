"""Joining calls: sizes, padding, leaders that leave, and errors."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import numpy as np
import pytest

from aexec import errors
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.resources.batcher import Batcher

LONG = 3600.0


class Recorder:
    """Doubles its rows, once it may; remembers what it was given."""

    def __init__(self) -> None:
        self.batches: list[list[float]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, inputs: tuple[Any, ...], calls: int) -> list[Any]:
        self.batches.append(inputs[0].tolist())
        await self.gate.wait()
        return [inputs[0] * 2]


def _call(batcher: Batcher, run: Any, *rows: float, manager: CancellationManager | None = None) -> asyncio.Task[Any]:
    return asyncio.ensure_future(batcher.call((np.array(rows, float),), run, manager))


async def _values(*tasks: asyncio.Task[Any]) -> list[list[float]]:
    return [outputs[0].tolist() for outputs in await asyncio.gather(*tasks)]


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_full_batch_runs_at_once() -> None:
    """Each call gets its own rows."""
    run, batcher = Recorder(), Batcher(4, LONG, 10, 1)
    assert await _values(_call(batcher, run, 1), _call(batcher, run, 2, 3), _call(batcher, run, 4)) == [
        [2],
        [4, 6],
        [8],
    ]
    assert run.batches == [[1, 2, 3, 4]]


async def test_batch_runs_when_its_time_is_up() -> None:
    """Padded with copies of its first row to the next allowed size, which nobody sees."""
    run, batcher = Recorder(), Batcher(8, 0.0, 10, 1, [4, 8])
    assert await _values(_call(batcher, run, 1), _call(batcher, run, 2)) == [[2], [4]]
    assert run.batches == [[1, 2, 1, 1]]


async def test_call_that_does_not_fit_begins_a_batch() -> None:
    """The batch before it is due then; as many run at once as may."""
    run, batcher = Recorder(), Batcher(2, LONG, 10, 1)
    run.gate.clear()
    first, second, third = (_call(batcher, run, n, n) for n in (1, 2, 3))
    await _settle()
    assert run.batches == [[1, 1]]
    run.gate.set()
    assert await _values(first, second, third) == [[2, 2], [4, 4], [6, 6]]


@pytest.mark.parametrize("levels", sorted(set(itertools.permutations((1, 100, 100, 1000)))))
async def test_most_urgent_call_leads(levels: tuple[int, ...]) -> None:
    """It runs the batch, in its own turn; when it leaves, the next one does.  Each call gets its own rows."""
    led: list[int] = []
    gate = asyncio.Event()

    def running(level: int) -> Any:
        async def run(inputs: tuple[Any, ...], calls: int) -> list[Any]:
            led.append(level)
            if level == 1:
                await gate.wait()
            return [inputs[0] * 2]

        return run

    batcher = Batcher(len(levels), LONG, 10, 1)
    tasks = {
        asyncio.ensure_future(batcher.call((np.array([row], float),), running(level), None, level)): (row, level)
        for row, level in enumerate(levels)
    }
    await _settle()
    assert led == [1]
    (first,) = [task for task, (_, level) in tasks.items() if level == 1]
    first.cancel()
    await asyncio.wait(tasks)
    assert led == [1, 100]
    assert [task.result()[0].tolist() == [2.0 * row] for task, (row, _) in tasks.items() if task is not first] == [
        True
    ] * 3


async def test_other_call_leads_when_the_leader_leaves() -> None:
    """By cancellation of its task or of its step; the others get their rows all the same."""
    for by_step in (False, True):
        run, batcher, manager = Recorder(), Batcher(2, LONG, 10, 1), CancellationManager()
        run.gate.clear()

        async def cancelled_with_step(inputs: Any, calls: int, run: Any = run, manager: Any = manager) -> Any:
            outputs = await run(inputs, calls)
            if manager.cancel_requested:
                raise errors.CancelledError("the step was cancelled")
            return outputs

        leader = _call(batcher, cancelled_with_step, 1, manager=manager)
        other = _call(batcher, run, 2)
        await _settle()
        manager.start_cancel() if by_step else leader.cancel()
        run.gate.set()
        assert await _values(other) == [[4]]
        with pytest.raises(errors.CancelledError if by_step else asyncio.CancelledError):
            await leader
        assert run.batches == [[1, 2], [2]]
        assert await _values(_call(batcher, run, 5, 6)) == [[10, 12]]


async def test_call_that_left_with_its_outputs_frees_no_extra_batch() -> None:
    run, batcher = Recorder(), Batcher(2, LONG, 10, 1)
    run.gate.clear()
    leader, other = _call(batcher, run, 1), _call(batcher, run, 2)
    await _settle()
    leader.add_done_callback(lambda _: other.cancel())
    run.gate.set()
    await asyncio.wait([leader, other])
    run.gate.clear()
    later = [_call(batcher, run, n, n) for n in (3, 4)]
    await _settle()
    assert run.batches == [[1, 2], [3, 3]]
    run.gate.set()
    await asyncio.gather(*later)


async def test_call_that_leaves_before_the_start_takes_no_room() -> None:
    run, batcher = Recorder(), Batcher(2, LONG, 10, 1)
    gone = _call(batcher, run, 1)
    await _settle()
    gone.cancel()
    await _settle()
    assert await _values(_call(batcher, run, 2), _call(batcher, run, 3)) == [[4], [6]]
    assert run.batches == [[2, 3]]


async def test_error_is_everybodys() -> None:
    async def fail(inputs: Any, calls: int) -> Any:
        raise errors.OutOfRangeError("no more")

    batcher = Batcher(2, LONG, 10, 1)
    for task in [_call(batcher, fail, 1), _call(batcher, fail, 2)]:
        with pytest.raises(errors.OutOfRangeError, match="no more"):
            await task
    assert await _values(_call(batcher, Recorder(), 1, 2)) == [[2, 4]]


async def test_full_queue() -> None:
    run, batcher = Recorder(), Batcher(1, LONG, 1, 1)
    run.gate.clear()
    first, second = _call(batcher, run, 1), _call(batcher, run, 2)
    await _settle()
    with pytest.raises(errors.UnavailableError, match=r"batch scheduling queue .* is full"):
        await _call(batcher, run, 3)
    run.gate.set()
    assert await _values(first, second) == [[2], [4]]


async def _constant(inputs: Any, calls: int) -> Any:
    return [np.float64(1)]


async def _short(inputs: Any, calls: int) -> Any:
    return [inputs[0][:1]]


@pytest.mark.parametrize(
    ("inputs", "run", "words"),
    [
        ((np.float64(1),), _short, "must have at least one dimension"),
        ((np.ones(2), np.ones(1)), _short, "must have equal 0th-dimension size"),
        ((np.ones(3),), _short, r"Batch size \(3\) exceeds maximum batch size \(2\)"),
        ((np.ones(2),), _constant, "Batched output tensor has 0 dimensions"),
        ((np.ones(2),), _short, "0th dimension does not equal the sum"),
    ],
)
async def test_inputs_and_outputs_that_cannot_be_batched_are_refused(inputs: Any, run: Any, words: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=words):
        await Batcher(2, LONG, 10, 1).call(inputs, run, None)


async def test_rows_of_other_shapes() -> None:
    batcher, run = Batcher(2, LONG, 10, 1), Recorder()
    tasks = [asyncio.ensure_future(batcher.call((np.ones((1, n)),), run, None)) for n in (1, 2)]
    for task in tasks:
        with pytest.raises(errors.InvalidArgumentError, match="Dimensions of inputs should match"):
            await task


def test_second_event_loop_is_refused() -> None:
    batcher = Batcher(1, 0.0, 10, 1)

    async def call() -> None:
        await batcher.call((np.ones(1),), Recorder(), None)

    asyncio.run(call())
    with pytest.raises(errors.FailedPreconditionError, match="two event loops"):
        asyncio.run(call())


# Batches that fail, in halves


class Picky(Recorder):
    """As `Recorder`, and fails where a row is negative: with INVALID_ARGUMENT, or as it is told."""

    def __init__(self, error: type[errors.OpError] = errors.InvalidArgumentError) -> None:
        super().__init__()
        self.error = error

    async def __call__(self, inputs: tuple[Any, ...], calls: int) -> list[Any]:
        outputs = await super().__call__(inputs, calls)
        if (inputs[0] < 0).any():
            raise self.error("a row is negative")
        return outputs


async def _fates(*tasks: asyncio.Task[Any]) -> list[Any]:
    """The values of each, or its error's class."""
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    return [type(each) if isinstance(each, BaseException) else each[0].tolist() for each in ended]


BAD = errors.InvalidArgumentError


async def test_only_bad_calls_of_a_failed_batch_fail() -> None:
    halved: list[None] = []
    run, batcher = Picky(), Batcher(8, LONG, 10, 1, max_retries=64, on_halved=lambda: halved.append(None))
    fates = await _fates(*[_call(batcher, run, -n if n == 3 else n) for n in range(8)])
    assert fates == [[0], [2], [4], BAD, [8], [10], [12], [14]]
    assert [len(batch) for batch in run.batches] == [8, 4, 2, 2, 1, 1, 4] and len(halved) == 3
    assert await _values(_call(batcher, run, *range(8))) == [[2 * n for n in range(8)]]


@pytest.mark.parametrize("bad", [{0}, {7}, {0, 7}, {1, 2, 5}, set(range(8))])
@pytest.mark.parametrize("max_running", [1, 3])
async def test_halves_keep_every_call_and_the_limit_of_batches(bad: set[int], max_running: int) -> None:
    running = most = 0

    class Counting(Picky):
        async def __call__(self, inputs: tuple[Any, ...], calls: int) -> list[Any]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                await asyncio.sleep(0)
                return await super().__call__(inputs, calls)
            finally:
                running -= 1

    batcher = Batcher(8, LONG, 10, max_running, max_retries=64)
    run = Counting()
    tasks = [_call(batcher, run, -1 if n % 8 in bad else n + 1) for n in range(24)]
    assert await _fates(*tasks) == [BAD if n % 8 in bad else [2 * n + 2] for n in range(24)]
    assert most <= max_running and not batcher.due


async def test_retries_of_a_batch_are_bounded() -> None:
    run, batcher = Picky(), Batcher(64, LONG, 10, 1, max_retries=6)
    fates = await _fates(*[_call(batcher, run, -1) for n in range(64)])
    assert fates == [BAD] * 64 and len(run.batches) == 1 + 6


@pytest.mark.parametrize(
    "error", [errors.UnavailableError, errors.ResourceExhaustedError, errors.FailedPreconditionError]
)
async def test_error_that_no_values_cause_is_everybodys(error: type[errors.OpError]) -> None:
    run, batcher = Picky(error), Batcher(4, LONG, 10, 1, max_retries=64)
    assert await _fates(*[_call(batcher, run, -n) for n in range(4)]) == [error] * 4
    assert len(run.batches) == 1


async def test_outputs_that_cannot_be_split_are_not_tried_again() -> None:
    count = 0

    async def short(inputs: Any, calls: int) -> Any:
        nonlocal count
        count += 1
        return [inputs[0][:1]]

    batcher = Batcher(4, LONG, 10, 1, max_retries=64)
    assert await _fates(*[_call(batcher, short, n) for n in range(4)]) == [BAD] * 4 and count == 1


async def test_half_of_a_failed_batch_takes_no_other_call() -> None:
    run, batcher = Picky(), Batcher(4, LONG, 10, 1, max_retries=64)
    tasks = [_call(batcher, run, -1), *[_call(batcher, run, n) for n in (1, 2, 3)]]
    await asyncio.sleep(0)
    run.gate.clear()
    await _settle()
    later = [_call(batcher, run, n) for n in (4, 5, 6, 7)]
    await _settle()
    run.gate.set()
    assert await _fates(*tasks, *later) == [BAD, *[[2 * n] for n in range(1, 8)]]
    assert run.batches[-1] == [4, 5, 6, 7]


@pytest.mark.parametrize("victim", range(4))
@pytest.mark.parametrize("by_step", [True, False])
async def test_call_of_a_failed_batch_may_leave(victim: int, by_step: bool) -> None:
    run, batcher, manager = Picky(), Batcher(4, LONG, 10, 1, max_retries=64), CancellationManager()

    async def first_then_wait(inputs: Any, calls: int) -> Any:
        try:
            return await run(inputs, calls)
        finally:
            run.gate.clear()

    values = [1, 2, 3, -1]
    managers = [manager if n == victim else None for n in range(4)]
    pairs = zip(values, managers, strict=True)
    tasks = [_call(batcher, first_then_wait, value, manager=each) for value, each in pairs]
    await _settle()
    manager.start_cancel() if by_step else tasks[victim].cancel()
    await _settle()
    while not all(task.done() for task in tasks):
        run.gate.set()
        await asyncio.sleep(0)
    fates = await _fates(*tasks)
    expected: list[Any] = [[2], [4], [6], BAD]
    assert [f for n, f in enumerate(fates) if n != victim] == [f for n, f in enumerate(expected) if n != victim]
    run.gate.set()
    assert await _values(_call(batcher, run, 1, 2, 3, 4)) == [[2, 4, 6, 8]]


class Threads:
    """Calls functions in threads, once it may; counts them."""

    def __init__(self) -> None:
        self.calls = 0
        self.gate = asyncio.Event()

    async def __call__(self, function: Any) -> Any:
        self.calls += 1
        await self.gate.wait()
        return await asyncio.to_thread(function)


async def test_large_rows_are_joined_in_a_thread_and_small_ones_on_the_loop() -> None:
    run, batcher, threads = Recorder(), Batcher(2, LONG, 10, 1), Threads()
    threads.gate.set()
    for size, joined in ((4, 0), (1 << 20, 1)):
        rows = [np.full((1, size), float(number)) for number in (1, 2)]
        outputs = await asyncio.gather(*[batcher.call((row,), run, None, in_thread=threads) for row in rows])
        assert [output[0].tolist() for output in outputs] == [(2 * row).tolist() for row in rows]
        assert threads.calls == joined
    alone = Batcher(1, LONG, 10, 1)
    await alone.call((rows[0],), run, None, in_thread=threads)  # nothing to join
    assert threads.calls == 1


@pytest.mark.parametrize("cancelled", [0, 1])
async def test_call_that_is_cancelled_while_rows_are_joined_leaves_the_others(cancelled: int) -> None:
    run, batcher, threads = Recorder(), Batcher(2, LONG, 10, 1), Threads()
    managers = [CancellationManager(), CancellationManager()]
    rows = [np.full((1, 1 << 20), float(number)) for number in (1, 2)]
    calls = [
        asyncio.ensure_future(batcher.call((row,), run, manager, in_thread=threads))
        for row, manager in zip(rows, managers, strict=True)
    ]
    await _settle()
    assert threads.calls == 1
    calls[cancelled].cancel()
    threads.gate.set()
    (output,) = await calls[1 - cancelled]
    assert output.tolist() == (2 * rows[1 - cancelled]).tolist()
    with pytest.raises(asyncio.CancelledError):
        await calls[cancelled]
