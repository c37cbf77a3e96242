"""Everything about the loop's time follows from the slice."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from aexec.framework.waiting import loop_budget
from aexec.framework.waiting.inline_call import NeedsThreadError, check_inline
from aexec.framework.waiting.loop_budget import (
    DEFAULT,
    HOP_NS,
    LoopBudget,
    Pace,
    current_budget,
    giving_way,
    let_lock_go,
    let_others_run,
    use_budget,
)
from tests.support.stand_ins.replacing import replace_in


def test_budget_grows_with_the_slice() -> None:
    short, long = LoopBudget(1e-3), LoopBudget(10e-3)
    assert long.inline_ns == 10 * short.inline_ns
    assert long.pieces(1000.0) == 10 * short.pieces(1000.0)
    assert long.plan_nodes == 10 * short.plan_nodes
    assert long.small_elements == pytest.approx(10 * short.small_elements, rel=0.01)
    assert long.measured_seconds == pytest.approx(10 * short.measured_seconds)
    assert long.allows(2e6) and not short.allows(2e6)


def test_work_shorter_than_a_hop_never_goes_to_a_thread() -> None:
    tiny = LoopBudget(1e-6)
    assert tiny.allows(HOP_NS)
    assert tiny.pieces(1e9) == tiny.plan_nodes == 1


def test_long_slice_may_end_later() -> None:
    assert LoopBudget(1e-3).as_usual(4e-4) == LoopBudget(1e-5).as_usual(4e-4) == 4e-4
    assert LoopBudget(20e-3).as_usual(8e-3) == pytest.approx(4e-4)


async def test_check_asks_the_budget_of_the_slice_that_the_loop_is_in() -> None:
    before = current_budget()
    try:
        use_budget(LoopBudget(10e-3))
        check_inline(2e6)
        use_budget(LoopBudget(1e-3))
        with pytest.raises(NeedsThreadError):
            check_inline(2e6)
    finally:
        use_budget(before)


async def test_thread_has_the_default_budget_and_may_take_its_time() -> None:
    before = current_budget()
    try:
        use_budget(LoopBudget(1e-6))
        assert await asyncio.to_thread(current_budget) is DEFAULT
        await asyncio.to_thread(check_inline, 1e12)
    finally:
        use_budget(before)


class Clock:
    """Time that passes where the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        replace_in(monkeypatch, loop_budget, "time", perf_counter=lambda: self.now)


def test_piece_is_as_long_as_those_before_it_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pace = Pace(10_000)
    sizes = []
    for unit in [2.0**-24] * 6 + [2.0**-13] * 3 + [1.0] + [2.0**-24] * 2:
        sizes.append(pace.size)
        clock.now += unit * pace.size
        pace.rest()
    assert sizes == [16, 128, 1024, 8192, 10_000, 10_000, 10_000, 8, 8, 8, 1, 8]


def test_worker_gives_way_once_a_slice_however_long_an_item_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, gave_way = Clock(monkeypatch), list[float]()
    monkeypatch.setattr(loop_budget, "let_others_run", lambda: gave_way.append(clock.now))
    for _ in giving_way(range(100), 1e3):  # it is said to be a microsecond
        clock.now += 0.01
    assert gave_way == pytest.approx([0.01 * n for n in range(16, 100)])


def test_worker_that_has_just_given_way_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, gave_way = Clock(monkeypatch), list[float]()
    monkeypatch.setattr(loop_budget, "let_others_run", lambda: gave_way.append(clock.now))
    monkeypatch.setattr(loop_budget._here, "rested", 0.0)
    for _ in giving_way(range(100), 1e3):
        clock.now += 1e-6
    assert not gave_way
    for _ in giving_way(range(1000), 1e3):
        clock.now += 1e-5
    assert gave_way and gave_way[0] <= 2e-3


async def test_work_on_the_event_loop_does_not_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would do nothing there, and small calls are not to pay for looking at the clock."""
    clock, gave_way = Clock(monkeypatch), list[float]()
    monkeypatch.setattr(loop_budget, "let_others_run", lambda: gave_way.append(clock.now))
    seen = []
    for item in giving_way(range(100), 1e3):
        clock.now += 0.01
        seen.append(item)
    assert seen == [*range(100)] and not gave_way


def test_waiting_thread_gets_the_interpreter_between_two_pieces() -> None:
    """Although the interpreter, left to itself, would not switch threads for an hour."""
    events: list[str] = []
    ready = threading.Event()

    def work() -> None:
        ready.wait()
        for _ in range(500):
            events.append("piece")
            let_others_run()
        events.append("end")

    worker = threading.Thread(target=work)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(3600.0)
    try:
        worker.start()
        ready.set()
        while "end" not in events:
            events.append("other")
            let_others_run()
        worker.join()
    finally:
        sys.setswitchinterval(interval)
    assert "other" in events[events.index("piece") : events.index("end")]


def test_lock_is_let_go_only_while_another_thread_runs_python(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    replace_in(monkeypatch, loop_budget, "time", sleep=slept.append)
    replace_in(monkeypatch, loop_budget, "sys", _current_frames=lambda: {1: None})
    let_lock_go()
    assert not slept
    replace_in(monkeypatch, loop_budget, "sys", _current_frames=lambda: {1: None, 2: None})
    let_lock_go()
    assert slept == [1e-6]
