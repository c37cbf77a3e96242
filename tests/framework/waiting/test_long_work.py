"""Long work ends when it is called off, and has its turns with other long work."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import nullcontext
from itertools import count

import pytest

from aexec import errors
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.framework.waiting.long_work import (
    CalledOffError,
    LongWork,
    ShortWork,
    _Turns,
    drained,
    expect,
    go_on,
    holding,
    steadily,
    taken_from,
    to_the_end,
    work_owner,
)
from aexec.framework.waiting.loop_budget import let_others_run
from aexec.runtime.threads.worker_pool import run_in_turns
from tests.support.waiting import until


def test_elsewhere_it_does_nothing() -> None:
    go_on()
    expect(1e12)
    assert list(steadily(range(100))) == list(range(100))
    assert list(taken_from([1, 2, 3])) == [3, 2, 1]


def test_work_called_off_before_does_not_begin() -> None:
    work = LongWork()
    work.call_off()
    with pytest.raises(CalledOffError):
        work.do(lambda: pytest.fail("it began"))


async def test_cancelled_waiter_calls_the_work_off() -> None:
    begun = threading.Event()

    def forever() -> None:
        for _ in steadily(count()):
            begun.set()

    running = asyncio.create_task(run_in_turns(forever, LongWork()))
    await until(begun.is_set)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_called_off_by_another_it_says_so() -> None:
    work, begun = LongWork(), threading.Event()

    def forever() -> None:
        for _ in steadily(count()):
            begun.set()

    running = asyncio.create_task(run_in_turns(forever, work))
    await until(begun.is_set)
    work.call_off()
    with pytest.raises(errors.CancelledError):
        await running


async def test_short_work_is_done_beside_endless_work() -> None:
    """Those that wait have their turns, in order, and may be called off while they wait."""

    def forever() -> None:
        for _ in steadily(count()):
            pass

    endless = [asyncio.create_task(run_in_turns(forever, LongWork())) for _ in range(4)]
    done = await asyncio.gather(*(run_in_turns(lambda i=i: i, LongWork()) for i in range(4)))  # type: ignore[misc]
    assert done == [0, 1, 2, 3]
    for task in endless:
        task.cancel()
    await asyncio.wait(endless)
    assert all(task.cancelled() for task in endless)


async def test_lock_is_waited_for_by_whoever_has_the_turn_of_its_holder() -> None:
    """The holder goes on when the other has the turn, and waits for the lock."""
    lock, held, asked = threading.Lock(), threading.Event(), threading.Event()

    def hold() -> str:
        with holding(lock):
            for _ in steadily(count()):
                held.set()
                if asked.is_set():
                    break
        return "held"

    def ask() -> str:
        asked.set()
        with holding(lock):
            return "asked"

    first = asyncio.create_task(run_in_turns(hold, LongWork()))
    await until(held.is_set)
    second = asyncio.create_task(run_in_turns(ask, LongWork()))
    assert await asyncio.gather(first, second) == ["held", "asked"]
    assert not lock.locked()


async def test_lock_is_not_waited_for_by_work_that_was_called_off() -> None:
    lock, asked = threading.Lock(), threading.Event()

    def ask() -> None:
        asked.set()
        with holding(lock):
            pytest.fail("it is held by another")

    with lock:
        asking = asyncio.create_task(run_in_turns(ask, LongWork()))
        await until(asked.is_set)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_long_work_ends_also_where_other_work_in_threads_asks() -> None:
    begun, work = threading.Event(), LongWork()

    def forever() -> None:
        for _ in count():
            begun.set()
            let_others_run()

    running = asyncio.create_task(run_in_turns(forever, work))
    await until(begun.is_set)
    work.call_off()
    with pytest.raises(errors.CancelledError):
        await running


def test_short_work_is_done() -> None:
    assert ShortWork(1.0).do(lambda: list(steadily(range(100)))) == list(range(100))


def test_short_work_that_takes_long_ends() -> None:
    passed = count()

    def forever() -> None:
        try:
            for _ in steadily(count()):
                next(passed)
        except Exception:
            pytest.fail("what copes with errors copes with its end")

    with pytest.raises(NeedsThreadError):
        ShortWork(0.001).do(forever)
    assert next(passed)
    go_on()  # it has left nothing behind


def test_short_work_that_takes_long_ends_at_the_first_item_after() -> None:
    passed = count()

    def work() -> None:
        for _ in steadily(range(3)):
            next(passed)
            end = time.thread_time() + 0.01
            while time.thread_time() < end:
                pass

    with pytest.raises(NeedsThreadError):
        ShortWork(0.001).do(work)
    assert next(passed) == 1


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000])
def test_finaliser_runs_to_its_end_within_short_work(size: int) -> None:
    """A finaliser may run amid any work, and would leave half of what it is to free."""
    passed: list[int] = []

    def work() -> None:
        with pytest.raises(CalledOffError):
            list(steadily(count()))
        passed.extend(to_the_end(range(size)))
        passed.extend(drained(list(range(size))))

    ShortWork(0.0).do(work)
    assert passed == [*range(size), *reversed(range(size))]


def test_short_work_does_not_begin_what_takes_long() -> None:
    def work() -> None:
        expect(1e3)
        expect(1e9)
        pytest.fail("it began")

    with pytest.raises(NeedsThreadError):
        ShortWork(0.5).do(work)


@pytest.mark.parametrize(("pieces", "fits"), [(4, True), (5, False)])
def test_announced_pieces_of_short_work_are_added_up(pieces: int, fits: bool) -> None:
    begun = []

    def work() -> None:
        for piece in range(pieces):
            expect(1e9)  # of a second, of which nothing is spent here
            begun.append(piece)

    with nullcontext() if fits else pytest.raises(NeedsThreadError):
        ShortWork(16.5).do(work)
    assert begun == [*range(4)]


def test_short_work_within_short_work_has_its_own_time() -> None:
    def inner() -> None:
        expect(1e9)

    def outer() -> str:
        with pytest.raises(NeedsThreadError):
            ShortWork(0.1).do(inner)
        expect(1e9)
        return "done"

    assert ShortWork(10.0).do(outer) == "done"


def test_short_work_does_not_wait_for_a_lock() -> None:
    lock = threading.Lock()

    def take() -> None:
        with holding(lock):
            pass

    ShortWork(1.0).do(take)
    with lock, pytest.raises(NeedsThreadError):
        ShortWork(1.0).do(take)


@pytest.mark.parametrize("length", [1, 3, 7, 8, 20])
def test_many_short_loops_end_when_they_are_called_off(length: int) -> None:
    """As when the shapes of a function of three nodes are inferred for each of a million calls."""
    work, done = LongWork(), 0

    def call() -> None:
        nonlocal done
        for _ in range(1000):
            for item in steadily(range(length)):
                done += 1
                if item == length - 1 and done >= 100:
                    work.call_off()

    with pytest.raises(CalledOffError):
        work.do(call)
    assert 100 <= done < 140


def test_short_loops_within_one_another_are_called_off() -> None:
    work, done = LongWork(), 0

    def nested(depth: int) -> None:
        nonlocal done
        done += 1
        if done == 1000:
            work.call_off()
        if depth:
            for _ in steadily(range(2)):
                nested(depth - 1)

    with pytest.raises(CalledOffError):
        work.do(lambda: nested(20))
    assert 1000 <= done < 1100


def test_owners_have_turns_one_after_another() -> None:
    """However much work of each waits."""
    turns, works, served = _Turns(), {}, []
    for name in ("a0", "a1", "a2", "a3", "b0", "b1", "c0"):
        work_owner.set(name[0])
        works[name] = LongWork()
    work_owner.set("")
    first = LongWork()
    turns.take(first)

    def work(name: str) -> None:
        turns.take(works[name])
        served.append(name)
        turns.give_up(works[name])

    threads = [threading.Thread(target=work, args=(name,)) for name in works]
    for number, thread in enumerate(threads, 1):
        thread.start()
        while sum(map(len, turns._waiting.values())) < number:
            time.sleep(0)
    turns.give_up(first)
    for thread in threads:
        thread.join()
    assert served == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]
    assert not turns._waiting
