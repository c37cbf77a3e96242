"""Slices: how long a session has the loop, and which execution is next."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aexec
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.waiting.intra_op import HelperThreads, at_once, use_helpers
from aexec.framework.waiting.loop_budget import LoopBudget, current_budget, use_budget
from aexec.runtime.interpreter import node_runner
from aexec.runtime.threads import slices
from aexec.runtime.threads.slices import LoopTurns, SliceClock
from tests.support.programs.graphs import GraphBuilder

register_op("TestTakesASlicesPart(x: float) -> y: float", stateful=True)


class FakeLoop:
    """An event loop that runs callbacks on request, with a clock that tests advance."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.calls: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        monkeypatch.setattr(slices, "perf_counter", lambda: self.now)

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> None:
        self.calls.append((call, arguments))

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call, arguments in calls:
            call(*arguments)


class Waiter:
    """The part of a future that slices use."""

    def __init__(self, name: str, woken: list[str]) -> None:
        self.name = name
        self.woken = woken
        self.over = False

    def done(self) -> bool:
        return self.over

    def set_result(self, _: None) -> None:
        self.over = True
        self.woken.append(self.name)


class Line:
    """A clock with slices of 1 s, and executions that stand in its line."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop: Any = FakeLoop(monkeypatch)
        self.clock = SliceClock(LoopBudget(1.0))
        self.woken: list[str] = []

    def stand(self, names: str, *, first: bool = False) -> None:
        for name in names:
            waiter: Any = Waiter(name, self.woken)
            self.clock.stand_in_line(self.loop, waiter, first=first)

    def work(self, seconds: float) -> None:
        """Use the loop for this many seconds, then let it turn."""
        self.clock.open(self.loop)
        self.loop.now += seconds
        self.loop.turn()

    def next(self) -> str:
        """The names of those woken since the last call."""
        woken = "".join(self.woken)
        self.woken.clear()
        return woken


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    return Line(monkeypatch)


def test_slice_lasts_until_the_loop_has_its_turn(line: Line) -> None:
    assert line.clock.open(line.loop) == line.clock.open(line.loop) == line.loop.now + 1.0
    line.loop.now += 1.5
    line.loop.turn()
    assert LoopTurns.of(line.loop).worker is None
    assert line.clock.longest == 1.5
    assert line.clock.open(line.loop) == line.loop.now + 1.0


def test_used_up_slice_wakes_the_next_in_line(line: Line) -> None:
    line.clock.open(line.loop)
    line.stand("abc")
    order = []
    for _ in range(3):
        line.work(1.0)
        order.append(line.next())
    assert order == ["a", "b", "c"]
    line.work(1.0)
    assert line.next() == ""


def test_waiter_that_has_gone_is_passed_over(line: Line) -> None:
    gone: Any = Waiter("gone", line.woken)
    gone.over = True
    line.clock.stand_in_line(line.loop, gone, first=False)
    line.stand("a")
    line.loop.turn()
    assert line.next() == "a"


def test_short_work_is_woken_until_the_slice_is_full(line: Line) -> None:
    line.stand("abcdefghijklmno")
    order = []
    for seconds in (0.1, 0.1, 0.2, 0.4, 0.8):
        line.work(seconds)
        order.append(line.next())
    assert order == ["a", "bc", "defg", "hijklmno", ""]
    line.stand("abcdefgh")
    line.work(1.2)
    line.loop.turn()
    assert line.next() == "abcd"  # half of the eight


class TestSliceThatWasUsedUp:
    """Others have several turns of the loop before the next slice."""

    def begin(self, line: Line) -> list[int]:
        """Use a slice up; returns the list of turns, in each of which others work for 0.01 s."""
        turns: list[int] = []

        def work() -> None:
            turns.append(len(turns))
            line.loop.now += 0.01
            line.loop.call_soon(work)

        line.clock.open(line.loop)
        line.stand("a")
        line.loop.now += 1.2
        line.loop.call_soon(work)
        return turns

    def test_others_have_turns_while_they_work(self, line: Line) -> None:
        turns = self.begin(line)
        while not line.woken:
            line.loop.turn()
        assert 4 <= len(turns) <= 9

    def test_turn_without_work_ends_that(self, line: Line) -> None:
        turns = self.begin(line)
        for _ in range(3):
            line.loop.turn()
        line.loop.calls.pop(next(i for i, (call, _) in enumerate(line.loop.calls) if call.__name__ == "work"))
        line.loop.turn()
        line.loop.turn()
        assert line.next() == "a" and len(turns) == 3

    def test_others_have_half_a_slice(self, line: Line) -> None:
        self.begin(line)
        line.loop.turn()
        line.loop.now += 0.5
        line.loop.turn()
        assert line.next() == "a"

    def test_run_that_begins_in_the_meantime_has_no_longer_slice(self, line: Line) -> None:
        self.begin(line)
        line.loop.turn()
        line.clock.open(line.loop)
        line.loop.turn()
        assert line.next() == "a" and LoopTurns.of(line.loop).worker is None


def test_waiters_woken_in_vain_are_next_in_order(line: Line) -> None:
    line.stand("abcdefxyz")
    order = []
    for _ in range(3):
        line.work(0.1)
        order.append(line.next())
    assert order == ["a", "bc", "defx"]
    line.clock.open(line.loop)
    line.stand("efx", first=True)  # d has used the slice up
    line.work(1.0)
    assert line.next() == "ef"
    line.work(0.9)
    assert line.next() == "xy"


def test_runs_that_begin_let_those_go_first_that_have_waited_for_long(line: Line) -> None:
    clock, loop = line.clock, line.loop
    assert clock.enter(loop) == loop.now + 1.0
    line.stand("ab")
    loop.now += 0.5
    assert clock.enter(loop) == loop.now + 0.5
    loop.now += 4.0
    assert clock.enter(loop) == 0.0
    assert clock.open(loop) == loop.now - 3.5
    line.loop.turn()
    line.loop.turn()
    line.stand("a", first=True)  # woken in vain, it has waited since
    assert clock.enter(loop) == 0.0
    line.work(1.0)
    line.work(1.0)
    assert line.next() == "aab"
    assert clock.enter(loop) == loop.now + 1.0


def test_newcomer_waits_behind_the_line_without_patience(line: Line) -> None:
    clock = SliceClock(LoopBudget(1.0), patience=0)
    assert clock.enter(line.loop) == line.loop.now + 1.0
    line.stand("a")
    line.loop.now += 0.1
    assert clock.enter(line.loop) == 0.0
    assert line.clock.enter(line.loop) == line.loop.now + 0.9
    line.loop.turn()
    assert line.next() == "a"
    assert clock.enter(line.loop) == line.loop.now + 1.0


def test_waiter_behind_others_opens_no_slice(line: Line) -> None:
    """The slice would be over before the execution that waited for it began."""
    turns = LoopTurns()
    clock = SliceClock(LoopBudget(1.0), turns=turns, patience=0)
    line.clock = clock
    line.stand("a")
    line.loop.now += 0.1
    assert clock.enter(line.loop) == 0.0 and turns.worker is None
    line.loop.turn()
    assert line.next() == "a"
    line.loop.now += 5.0  # others work
    assert clock.open(line.loop) == line.loop.now + 1.0


def test_sessions_share_a_slice_which_is_as_long_for_each_as_it_says(line: Line) -> None:
    loop, clock, other, idle = line.loop, line.clock, SliceClock(LoopBudget(3.0)), SliceClock(LoopBudget(1.0))
    idle.open(loop)
    loop.turn()
    began = loop.now
    clock.open(loop)
    loop.now += 0.5
    assert other.open(loop) == began + 3.0
    loop.now += 1.0
    assert clock.open(loop) == idle.open(loop) == began + 1.0
    idle_before = idle.longest
    loop.turn()
    assert clock.longest == other.longest == idle.longest == 1.5
    assert idle_before == 0.0
    clock.open(loop)
    loop.now += 2.0
    loop.turn()
    assert (clock.longest, other.longest) == (2.0, 1.5)


def test_sessions_stand_in_one_line(line: Line) -> None:
    clocks = [SliceClock(LoopBudget(1.0)) for _ in range(3)]
    for name, clock in zip("abc", clocks, strict=True):
        waiter: Any = Waiter(name, line.woken)
        clock.stand_in_line(line.loop, waiter, first=False)
    order = []
    for _ in range(3):
        line.work(1.0)
        order.append(line.next())
    assert order == ["a", "b", "c"]
    line.stand("d")
    line.loop.now += 5.0
    assert clocks[0].enter(line.loop) == 0.0


def test_work_in_a_slice_uses_its_budget(line: Line) -> None:
    before = current_budget()
    try:
        other = SliceClock(LoopBudget(2.0))
        line.clock.open(line.loop)
        other.open(line.loop)
        assert current_budget() is other.budget
        line.clock.open(line.loop)
        assert current_budget() is line.clock.budget
    finally:
        use_budget(before)


def test_slice_that_was_used_with_another_line_has_its_helpers_again(line: Line) -> None:
    before, helpers = current_budget(), HelperThreads(3)
    try:
        mine, other = SliceClock(LoopBudget(1.0), helpers), SliceClock(LoopBudget(1.0), turns=LoopTurns())
        mine.open(line.loop)
        assert at_once(8) == 3
        other.open(line.loop)
        assert at_once(8) == 1
        mine.open(line.loop)
        assert (at_once(8), current_budget()) == (3, mine.budget)
    finally:
        use_budget(before)
        use_helpers(None)


def count_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the runtime's clock count processor time, so that a busy machine does not use up slices."""
    for name, module in list(sys.modules.items()):
        if name.startswith("aexec.runtime.") and hasattr(module, "perf_counter"):
            monkeypatch.setattr(module, "perf_counter", lambda: 1000.0 + time.thread_time())


# Who has run, and how much of a slice a call takes.
_ran: list[int] = []


@kernel("TestTakesASlicesPart", cost=0)
def _takes_a_part(_: Any) -> Any:
    def compute(x: Any) -> Any:
        _ran.append(int(x))
        end = slices.perf_counter() + 0.1e-3
        while slices.perf_counter() < end:
            pass
        return x

    return compute


@pytest.mark.parametrize("compile_plans", [True, False])
@pytest.mark.parametrize("calls", [1, 70])  # a line, and one in slices
async def test_clients_that_run_again_and_again_take_turns(
    monkeypatch: pytest.MonkeyPatch, compile_plans: bool, calls: int
) -> None:
    """With slices as long as many runs, a run waits for about one run of each other client."""
    count_processor_time(monkeypatch)
    g = GraphBuilder()
    g.placeholder("x", shape=[])
    g("y0", "TestTakesASlicesPart", "x")
    for i in range(1, calls):
        g(f"y{i}", "Neg", f"y{i - 1}", T=aexec.float32)
    config = aexec.SessionConfig(slice_seconds=50e-3, compile_plans=compile_plans, graph_passes=())
    async with aexec.Session(g.graph(), config=config) as session:
        call = session.make_callable(f"y{calls - 1}:0", ["x:0"])
        for _ in range(5):
            await call(np.array(0.0, np.float32))
        _ran.clear()
        await asyncio.sleep(0)

        async def client(number: int) -> None:
            for _ in range(20):
                await call(np.array(number, np.float32))

        clients = [asyncio.create_task(client(number)) for number in range(8)]
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(session._steps.slices, "_patience", 0.0)
        session._steps.slices.open(loop)
        LoopTurns.of(loop).began = 1.0  # a slice that is over: all begin in line
        await asyncio.gather(*clients)
    counts: Counter[int] = Counter()
    apart = 0
    for number in _ran[:100]:
        counts[number] += 1
        apart = max(apart, max(counts.values()) - min(counts[i] for i in range(8)))
    assert apart <= 4


async def test_values_that_are_taken_when_the_slice_is_over_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 500 fetches would otherwise visit all that are left; 16 384 took 15 s."""
    asked = Counter[str]()
    has_work = node_runner.has_work

    def counting(iteration: Any) -> bool:
        asked["times"] += 1
        return has_work(iteration)

    monkeypatch.setattr(node_runner, "has_work", counting)
    g = GraphBuilder()
    for i in range(500):
        g.const(f"c{i}", float(i))
    names = [f"c{i}:0" for i in range(500)]
    config = aexec.SessionConfig(slice_seconds=1e-5, compile_plans=False)
    async with aexec.Session(g.graph(), config=config) as session:
        for _ in range(2):
            assert await session.run(names) == [float(i) for i in range(500)]
    assert asked["times"] < 250
