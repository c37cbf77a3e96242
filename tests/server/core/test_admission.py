"""Slots, the line for them, and who is refused: on a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, cast

import pytest
from aexec_server.clients.callers import ANYONE
from aexec_server.core import admission
from aexec_server.core.admission import Admission, AdmissionStatistics, BatchSlot
from aexec_server.requests.run_table import Run
from aexec_server.sessions.hosted_session import HostedSession
from aexec_server.settings.server_config import ServerConfig

from aexec import errors
from tests.support.virtual_clock import run_virtual

USUAL = 100


@pytest.fixture(autouse=True)
def no_more_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_AT_FIRST", 1)


class _Session:
    runs_admitted = 0
    max_runs = None


class _Step:
    """Of a run that waits for others, or does not."""

    def __init__(self, only_waits: bool) -> None:
        self.only_waits = only_waits


class Line:
    """An admission, and the runs that were let in, in order."""

    def __init__(self, **config: Any) -> None:
        self.admission = Admission(ServerConfig(**config), asyncio.get_running_loop().time)
        self.session = cast(HostedSession, _Session())
        self.entered: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.runs: dict[str, Run] = {}

    def arrive(
        self, name: str, *, level: int = USUAL, deadline: float | None = None, since: float | None = None
    ) -> asyncio.Task[None]:
        run = self.runs[name] = Run(name, 0.0)

        async def enter() -> None:
            self.admission.begin(self.session, run, ANYONE)
            try:
                if not self.admission.takes(run):
                    await self.admission.wait(run, level, deadline, since)
            except BaseException:
                self.admission.end(self.session, run)
                raise
            self.entered.append(name)

        task = asyncio.create_task(enter())
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        self.tasks.append(task)
        return task

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def leave(self, name: str) -> None:
        self.admission.end(self.session, self.runs[name])
        await self.settle()

    async def one_by_one(self, runs: int, seconds: float) -> None:
        """So many, each of which has a slot for so long: by then it is known what runs take."""
        for number in range(runs):
            self.arrive(f"first {number}")
            await self.settle()
            await asyncio.sleep(seconds)
            await self.leave(f"first {number}")

    @property
    def statistics(self) -> AdmissionStatistics:
        return self.admission.statistics()


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtual(test(*args, **kwargs))

    return run


@virtually
async def test_runs_begin_in_order_of_arrival() -> None:
    line = Line(run_slots=2, queue_seconds=10)
    for name in "abcd":
        line.arrive(name)
    await line.settle()
    assert line.entered == ["a", "b"]
    assert line.statistics == AdmissionStatistics(in_flight=4, with_slot=2, waiting=2, refused=0)
    line.admission.end(line.session, line.runs["a"])
    line.arrive("e")  # in the same moment in which a slot got free, for which others wait
    await line.settle()
    assert line.entered == ["a", "b", "c"]
    for name in "bcd":
        await line.leave(name)
    assert line.entered == ["a", "b", "c", "d", "e"]
    await line.leave("e")
    assert line.statistics == AdmissionStatistics(0, 0, 0, 0)


@virtually
async def test_runs_that_take_next_to_nothing_have_as_many_slots_as_they_need() -> None:
    line = Line(run_slots=2, queue_seconds=100)
    for number in range(200):
        line.arrive(str(number))
    await line.settle()
    for number in range(80):
        await asyncio.sleep(0.01)
        await line.leave(str(number))
    assert 24 <= line.statistics.with_slot <= 27  # so many end in a quarter of a second
    for number in range(80, 120):
        await asyncio.sleep(0.25)
        await line.leave(str(number))
    assert line.statistics.with_slot == 2 and line.entered == [str(number) for number in range(len(line.entered))]


@virtually
async def test_estimate_of_runs_outlasts_a_pause() -> None:
    line = Line(run_slots=2, queue_seconds=10)
    await line.one_by_one(10, 0.06)
    await asyncio.sleep(100)
    for number in range(20):
        line.arrive(f"then {number}")
    await line.settle()
    assert line.statistics.with_slot == 5  # of 60 ms each


def test_burst_is_let_in_before_anything_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_AT_FIRST", 3)

    @virtually
    async def burst() -> None:
        line = Line(run_slots=2, queue_seconds=10)
        for number in range(10):
            line.arrive(str(number))
        await line.settle()
        assert line.statistics.with_slot == 6

    burst()


@virtually
async def test_higher_priorities_go_first() -> None:
    line = Line(run_slots=1, queue_seconds=10)
    for name, level in [("first", 100), ("usual", 100), ("low", 200), ("high", 1), ("usual too", 100)]:
        line.arrive(name, level=level)
    await line.settle()
    for name in ("first", "high", "usual", "usual too"):
        await line.leave(name)
    assert line.entered == ["first", "high", "usual", "usual too", "low"]


@virtually
async def test_run_that_has_waited_too_long_is_refused() -> None:
    line = Line(run_slots=1, queue_seconds=0.2)
    line.arrive("works")
    waiting = line.arrive("waits")
    began = asyncio.get_running_loop().time()
    with pytest.raises(errors.ResourceExhaustedError, match=r"more to do than it can: .* was not begun, within 0\.2 s"):
        await waiting
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.2)
    assert line.statistics == AdmissionStatistics(in_flight=1, with_slot=1, waiting=0, refused=1)


@virtually
async def test_deadline_that_comes_first() -> None:
    line = Line(run_slots=1, queue_seconds=0.2)
    line.arrive("works")
    waiting = line.arrive("waits", deadline=asyncio.get_running_loop().time() + 0.1)
    with pytest.raises(errors.DeadlineExceededError, match="in line"):
        await waiting
    assert line.statistics.waiting == 0


@virtually
async def test_waiting_run_is_cancelled_or_leaves() -> None:
    line = Line(run_slots=1, queue_seconds=0.2)
    line.arrive("works")
    cancelled, left, last = line.arrive("cancelled"), line.arrive("left"), line.arrive("last")
    await line.settle()
    line.runs["cancelled"].cancel("by hand")
    left.cancel()
    await line.settle()
    with pytest.raises(errors.CancelledError, match="before it began: by hand"):
        await cancelled
    assert left.cancelled() and line.statistics.waiting == 1
    await line.leave("works")
    assert last.done() and line.entered == ["works", "last"]
    await line.leave("last")
    assert line.statistics == AdmissionStatistics(0, 0, 0, 0)


@virtually
async def test_run_that_leaves_as_it_gets_a_slot_gives_it_back() -> None:
    line = Line(run_slots=1, queue_seconds=0.2)
    line.arrive("works")
    left, last = line.arrive("left"), line.arrive("last")
    await line.settle()
    line.admission.end(line.session, line.runs["works"])
    left.cancel()
    await line.settle()
    assert left.cancelled() and last.done() and line.entered == ["works", "last"]


@pytest.mark.parametrize("only_waits", [True, False])
@virtually
async def test_run_that_only_waits_gives_up_its_slot(only_waits: bool) -> None:
    line = Line(run_slots=2, queue_seconds=0.2)
    for name in "abc":
        line.arrive(name)
    await line.settle()
    for name in "ab":
        line.runs[name].step = cast(Any, _Step(only_waits))
    await asyncio.sleep(0.1)
    assert line.entered == (["a", "b", "c"] if only_waits else ["a", "b"])


@virtually
async def test_long_runs_give_up_their_slots_one_by_one() -> None:
    line = Line(run_slots=3, queue_seconds=5)
    for name in "abcdef":
        line.arrive(name)
    await asyncio.sleep(0.99)
    assert len(line.entered) == 3
    await asyncio.sleep(0.02)
    assert line.entered == ["a", "b", "c", "d"]
    await asyncio.sleep(0.2)
    assert line.entered == ["a", "b", "c", "d", "e", "f"]


@virtually
async def test_run_without_a_turn_in_time_is_refused_at_once() -> None:
    line = Line(run_slots=1, queue_seconds=1.0)
    await line.one_by_one(8, 0.4)
    waiting = [line.arrive(str(number)) for number in range(5)]
    await line.settle()
    # One has the slot, and what three others take is more than a second.
    assert [task.done() for task in waiting] == [True, False, False, False, True]
    assert isinstance(waiting[4].exception(), admission.OverloadError)
    before_all = line.arrive("before all", level=USUAL - 1)
    await line.settle()
    assert not before_all.done() and line.statistics.refused == 1


@virtually
async def test_fullness_is_known_before_a_run_waits() -> None:
    line = Line(run_slots=3, queue_seconds=1.0)
    await line.one_by_one(8, 0.4)
    full = line.admission.is_full
    # Three slots are free, and what three others take is more than a second.
    assert [full(more) for more in (0, 5, 6)] == [False, False, True]
    line.arrive("has one")
    await line.settle()
    assert [full(more) for more in (0, 4, 5)] == [False, False, True]
    for name in ("has one too", "and too", "waits"):
        line.arrive(name)
    line.arrive("before all", level=USUAL - 1)
    line.arrive("after all", level=USUAL + 1)
    await line.settle()
    # Of the three in line two come before a run that asks for no priority.
    assert [line.statistics.with_slot, line.statistics.waiting, full(0), full(1)] == [3, 3, False, True]
    line.arrive("waits too")
    await line.settle()
    assert full(0)


@virtually
async def test_earlier_wait_counts_up_to_two_thirds_of_the_allowed_time() -> None:
    line = Line(run_slots=1, queue_seconds=0.9)
    line.arrive("has the slot")
    await line.settle()
    now = asyncio.get_running_loop().time()
    waiting = [line.arrive(name, since=now - waited) for name, waited in (("new", 0.0), ("soon", 0.2), ("late", 5.0))]
    refused = []
    for seconds in (0.29, 0.02, 0.38, 0.02, 0.18, 0.02):
        await asyncio.sleep(seconds)
        refused.append([isinstance(task.done() and task.exception(), admission.OverloadError) for task in waiting])
    assert [sum(each) for each in refused] == [0, 1, 1, 2, 2, 3]
    assert refused[1] == [False, False, True] and refused[3] == [False, True, True]


@pytest.mark.parametrize("called_off", ["left", "cancel_reason", ""])
@virtually
async def test_runs_that_were_called_off_say_nothing_of_how_long_others_take(called_off: str) -> None:
    line = Line(run_slots=1, queue_seconds=1.0)
    for number in range(8):
        line.arrive(f"first {number}")
        await line.settle()
        if called_off:
            setattr(line.runs[f"first {number}"], called_off, "by its client")
        await asyncio.sleep(0.9)
        await line.leave(f"first {number}")
    for name in "abc":
        line.arrive(name)
    await line.settle()
    assert line.admission.is_full(0) is not bool(called_off)


@virtually
async def test_run_that_takes_no_longer_than_others_keeps_its_slot() -> None:
    """With so much to do that all work for long, to let others begin would make all of them slower."""
    line = Line(run_slots=2, queue_seconds=100)
    for number in range(12):
        line.arrive(str(number))
    await line.settle()
    for number in range(4):
        await asyncio.sleep(1.5)
        await line.leave(str(number))
        assert line.statistics.with_slot == 2
    # The next two go on for much longer.
    await asyncio.sleep(8 * 3)
    assert line.statistics.with_slot == 2 and len(line.entered) > 6


@virtually
async def test_runs_in_flight_are_bounded_by_server_and_by_session() -> None:
    line = Line(run_slots=1, queue_seconds=1, max_runs=3, max_session_runs=2)
    for name in "abc":
        line.arrive(name)
    await line.settle()
    with pytest.raises(errors.ResourceExhaustedError, match="2 runs of this session"):
        await line.tasks[2]
    line.session = cast(HostedSession, _Session())
    line.arrive("d")
    line.arrive("e")
    await line.settle()
    with pytest.raises(errors.ResourceExhaustedError, match="3 runs in flight"):
        await line.tasks[4]


@virtually
async def test_batch_takes_one_slot_for_the_run_that_leads_it() -> None:
    line = Line(run_slots=2, queue_seconds=10)
    leader, other = Run("leader", 0.0), Run("other", 0.0)
    for run in (leader, other):
        line.admission.begin(line.session, run, ANYONE)
    slot = BatchSlot(line.admission, leader, USUAL)
    assert line.statistics.with_slot == 0
    assert slot.take(2) and slot.take(1)  # of a batch that is tried again it has it still
    assert line.statistics.with_slot == 1
    for run in (leader, other):
        line.admission.end(line.session, run)
    assert line.statistics == AdmissionStatistics(0, 0, 0, 0)


@virtually
async def test_batch_stands_in_line_with_other_runs() -> None:
    line = Line(run_slots=1, queue_seconds=10)
    line.arrive("first")
    await line.settle()
    leader = Run("leader", 0.0)
    line.admission.begin(line.session, leader, ANYONE)
    slot = BatchSlot(line.admission, leader, USUAL)
    assert not slot.take(3)
    waiting = asyncio.create_task(slot.wait())
    line.arrive("last")
    await asyncio.sleep(0.5)
    assert not waiting.done()
    await line.leave("first")
    await waiting
    assert line.entered == ["first"] and slot.take(3) and leader.queued >= 0
    line.admission.end(line.session, leader)
    await line.settle()
    assert line.entered == ["first", "last"]
    await line.leave("last")


@virtually
async def test_batch_counts_as_many_runs_as_it_joins() -> None:
    """80 runs of a batch that takes 0.8 s take 0.01 s each: there are as many slots as take 0.25 s."""
    line = Line(run_slots=2, queue_seconds=1)
    for number in range(8):
        leader = Run(f"leader {number}", 0.0)
        line.admission.begin(line.session, leader, ANYONE)
        assert BatchSlot(line.admission, leader, USUAL).take(80)
        await asyncio.sleep(0.8)
        line.admission.end(line.session, leader)
    for number in range(30):
        line.arrive(str(number))
    await line.settle()
    assert line.statistics.with_slot in (25, 26)
    for number in range(30):
        await line.leave(str(number))


@virtually
async def test_batches_that_would_wait_for_long_are_refused() -> None:
    line = Line(queue_seconds=0.05)
    line.admission.check_batches(0.3)
    with pytest.raises(errors.ResourceExhaustedError, match="more to do than it can"):
        line.admission.check_batches(0.31)
    assert line.statistics.refused == 1


@virtually
async def test_run_that_only_waits_has_no_slot_though_nobody_is_in_line() -> None:
    """And what it waited for does not count as work: others come in as before."""
    line = Line(run_slots=2, queue_seconds=0.03)
    for number in range(40):
        line.arrive(str(number))
        await line.settle()
        line.runs[str(number)].step = cast(Any, _Step(only_waits=True))
        await asyncio.sleep(0.02)
    assert line.statistics == AdmissionStatistics(in_flight=40, with_slot=0, waiting=0, refused=0)
    await asyncio.sleep(10)
    for number in range(40):
        await line.leave(str(number))
    for number in range(40, 44):
        line.arrive(str(number))
    await asyncio.sleep(0.02)
    for number in range(40, 44):
        await line.leave(str(number))
    assert line.statistics == AdmissionStatistics(0, 0, 0, 0)
