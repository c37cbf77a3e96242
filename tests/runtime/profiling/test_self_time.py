"""Self time of watched calls, on a clock that tests advance."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aexec.runtime.profiling import self_time
from aexec.runtime.profiling.self_time import SelfTime, awaited


class Clock:
    now = 0

    def passes(self, nanoseconds: int) -> None:
        self.now += nanoseconds

    def fails_after(self, nanoseconds: int) -> None:
        self.now += nanoseconds
        raise OverflowError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(self_time, "perf_counter_ns", lambda: clock.now)
    return clock


def test_stretches_are_added(clock: Clock) -> None:
    watched = SelfTime()
    for taken in (5, 7):
        with watched:
            clock.passes(taken)
        clock.passes(100)
    assert (watched.nanoseconds, watched.nested) == (12, False)


def test_self_time_excludes_nested_calls(clock: Clock) -> None:
    outer, inner, innermost = SelfTime(), SelfTime(), SelfTime()
    with outer:
        clock.passes(1)
        for _ in range(2):
            with inner:
                clock.passes(10)
                with innermost:
                    clock.passes(100)
                clock.passes(20)
        clock.passes(2)
    assert (outer.nanoseconds, inner.nanoseconds, innermost.nanoseconds) == (3, 60, 200)
    assert outer.nested and inner.nested and not innermost.nested


def test_failed_call_stops_its_clock(clock: Clock) -> None:
    outer, inner = SelfTime(), SelfTime()
    with outer:
        with pytest.raises(OverflowError), inner:
            clock.fails_after(5)
        clock.passes(1)
    assert (outer.nanoseconds, inner.nanoseconds) == (1, 5)


async def test_waiting_is_not_computing(clock: Clock) -> None:
    opened = asyncio.get_running_loop().create_future()

    async def call() -> str:
        clock.passes(3)
        got = await opened
        clock.passes(4)
        return str(got)

    watched = SelfTime()
    task = asyncio.create_task(awaited(call(), watched))
    await asyncio.sleep(0)
    clock.passes(1000)
    opened.set_result("it")
    assert await task == "it"
    assert watched.nanoseconds == 7


async def _raises(clock: Clock) -> None:
    clock.passes(2)
    await asyncio.sleep(0)
    clock.passes(3)
    raise KeyError("why")


async def test_errors_of_the_call_are_its_own(clock: Clock) -> None:
    watched = SelfTime()
    with pytest.raises(KeyError, match="why"):
        await awaited(_raises(clock), watched)
    assert watched.nanoseconds == 5


@pytest.mark.parametrize("swallows", [False, True])
async def test_cancellation_reaches_the_call(clock: Clock, swallows: bool) -> None:
    ended: list[str] = []

    async def call() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            clock.passes(9)
            ended.append("cancelled")
            if not swallows:
                raise
        return "went on"

    watched = SelfTime()
    task: asyncio.Task[Any] = asyncio.create_task(awaited(call(), watched))
    await asyncio.sleep(0)
    task.cancel()
    if swallows:
        assert await task == "went on"
    else:
        with pytest.raises(asyncio.CancelledError):
            await task
    assert ended == ["cancelled"]
    assert watched.nanoseconds == 9


async def test_dropped_coroutine_is_closed(clock: Clock) -> None:
    closed = []

    async def call() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            closed.append(True)

    coroutine = awaited(call(), SelfTime())
    coroutine.send(None)
    coroutine.close()
    assert closed == [True]
