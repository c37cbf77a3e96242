"""Calls in threads, and their fate when the awaiting task is cancelled."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from aexec import errors
from aexec.framework.waiting.inline_call import NeedsThreadError, on_event_loop
from aexec.framework.waiting.worker_threads import OnCancel
from aexec.runtime.threads.worker_pool import WorkerPool, any_thread_busy, run_in_thread
from tests.support.collector import no_collector
from tests.support.waiting import until

Run = Callable[..., Any]


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(1)
    yield pool
    await pool.close()


@pytest.fixture(params=["of a session", "of the loop"])
def run(request: pytest.FixtureRequest, pool: WorkerPool) -> Run:
    return pool.run if request.param == "of a session" else run_in_thread


class Held:
    """A call that announces that it runs, and waits until it may return."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = threading.Event()
        self.returned = False
        self._loop = asyncio.get_running_loop()

    def __call__(self) -> str:
        self._loop.call_soon_threadsafe(self.entered.set)
        assert self.open.wait(60)
        self.returned = True
        return "result"


@pytest.mark.parametrize("on_cancel", OnCancel)
async def test_call_returns_its_result_or_raises(run: Run, on_cancel: OnCancel) -> None:
    assert await run(divmod, 7, 2, on_cancel=on_cancel) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await run(divmod, 7, 0, on_cancel=on_cancel)
    assert not any_thread_busy()


async def test_abandoned_call_keeps_nobody_waiting(run: Run) -> None:
    call = Held()
    task = asyncio.create_task(run(call, on_cancel=OnCancel.ABANDON))
    await call.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not call.returned
    assert any_thread_busy()
    call.open.set()


async def test_stateful_call_is_waited_for_through_repeated_cancellations(run: Run) -> None:
    call = Held()
    task = asyncio.create_task(run(call, on_cancel=OnCancel.WAIT))
    await call.entered.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    call.open.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert call.returned


@pytest.mark.parametrize("on_cancel", OnCancel)
async def test_waiting_call_is_withdrawn(pool: WorkerPool, on_cancel: OnCancel) -> None:
    first, called = Held(), []
    held = asyncio.create_task(pool.run(first))
    await first.entered.wait()
    task = asyncio.create_task(pool.run(called.append, 1, on_cancel=on_cancel))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    first.open.set()
    assert await held == "result"
    await pool.run(int)
    assert called == []


async def test_waiting_call_of_the_loops_executor_is_withdrawn() -> None:
    loop = asyncio.get_running_loop()
    first, called = Held(), []
    loop.set_default_executor(ThreadPoolExecutor(1))
    held = asyncio.create_task(run_in_thread(first, on_cancel=OnCancel.ABANDON))
    await first.entered.wait()
    task = asyncio.create_task(run_in_thread(partial(called.append, 1), on_cancel=OnCancel.WAIT))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    first.open.set()
    assert await held == "result"
    await run_in_thread(int, on_cancel=OnCancel.WAIT)
    assert called == []


async def test_completed_future_withdraws_its_call(pool: WorkerPool) -> None:
    first, called = Held(), []
    held = pool.start(first)
    await first.entered.wait()
    second, third = pool.start(called.append, 2), pool.start(called.append, 3)
    second.cancel()
    third.set_result(None)
    await asyncio.sleep(0)
    first.open.set()
    assert await held == "result"
    await pool.run(int)
    assert called == []


async def test_closing_the_pool_fails_waiting_calls() -> None:
    pool = WorkerPool(1)
    first = Held()
    held = asyncio.create_task(pool.run(first))
    await first.entered.wait()
    queued = asyncio.create_task(pool.run(int))
    await asyncio.sleep(0)
    closing = asyncio.create_task(pool.close())
    with pytest.raises(errors.CancelledError, match="Session has been closed"):
        await queued
    first.open.set()
    assert await held == "result"
    await closing


async def test_call_is_made_inline_unless_it_asks_for_a_thread(pool: WorkerPool) -> None:
    calls = []

    def call(heavy: bool) -> bool:
        calls.append(heavy)
        if heavy and on_event_loop():
            raise NeedsThreadError
        return on_event_loop()

    assert await pool.run_here_or_in_thread(call, False)
    assert pool.statistics().submitted == 0
    assert not await pool.run_here_or_in_thread(call, True)
    assert pool.statistics().submitted == 1
    assert calls == [False, True, True]


async def test_failed_call_keeps_nothing_alive(run: Run) -> None:
    class Something:
        pass

    kept = Something()
    found = weakref.ref(kept)

    def fail(_: Something) -> None:
        raise ValueError

    async def fails(argument: Something) -> None:
        with pytest.raises(ValueError):
            await run(fail, argument, on_cancel=OnCancel.ABANDON)

    with no_collector():
        await fails(kept)
        del kept
        await run(int, on_cancel=OnCancel.ABANDON)  # a thread lets go of its last call with the next,
        await until(lambda: found() is None)  # or soon after it has told the outcome
