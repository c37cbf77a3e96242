"""`max_steps`: a session runs a limited number of steps at a time; others wait in line."""

from __future__ import annotations

import asyncio

import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.virtual_clock import run_virtual

pytestmark = pytest.mark.both_executors


def gated(gate: gates.Gate) -> aexec.Graph:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [])
    g("y", "TestGate", "x", key=gate.key, T=dtypes.float32)
    g("square", "Square", "x", T=dtypes.float32)
    return g.graph()


async def turns(times: int = 20) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def test_max_steps_run_at_a_time_and_others_wait_in_order() -> None:
    gate = gates.Gate()
    async with aexec.Session(gated(gate), config=aexec.SessionConfig(max_steps=2)) as session:
        steps = [session.start("y:0", {"x:0": n}) for n in range(5)]
        await turns()
        assert gate.count == 2
        statistics = session.statistics()
        assert (statistics.in_flight, statistics.waiting) == (5, 3)
        assert steps[2].report() == ["waiting for its turn: of the session's steps 2 may run at a time"]
        gate.open.set()
        assert await asyncio.gather(*steps) == [0, 1, 2, 3, 4]
        assert session.statistics().waiting == 0


async def test_place_is_free_again_however_a_step_ended() -> None:
    gate = gates.Gate()
    async with aexec.Session(gated(gate), config=aexec.SessionConfig(max_steps=1)) as session:
        for _ in range(3):
            with pytest.raises(errors.InvalidArgumentError):
                await session.run("square:0", {"x:0": "no number"})
            assert await session.run("square:0", {"x:0": 3}) == 9
        running, waiting, last = [session.start("y:0", {"x:0": n}) for n in range(3)]
        await gate.entered.wait()
        await turns()
        waiting.cancel("not needed")
        with pytest.raises(errors.CancelledError, match="not needed"):
            await waiting
        running.cancel()
        with pytest.raises(errors.CancelledError):
            await running
        gate.open.set()
        assert await last == 2


async def test_step_cancelled_in_its_turn_passes_the_turn_on() -> None:
    gate = gates.Gate()
    async with aexec.Session(gated(gate), config=aexec.SessionConfig(max_steps=1)) as session:
        first = session.start("y:0", {"x:0": 0})
        tasks = [asyncio.create_task(session.run("y:0", {"x:0": n})) for n in (1, 2)]
        await gate.entered.wait()
        await turns()
        gate.open.set()
        await first  # the second has its turn now, and has not used it yet
        tasks[0].cancel()
        assert await tasks[1] == 2
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]


async def test_step_beyond_the_waiting_limit_is_refused() -> None:
    gate = gates.Gate()
    config = aexec.SessionConfig(max_steps=1, max_waiting_steps=1)
    async with aexec.Session(gated(gate), config=config) as session:
        steps = [session.start("y:0", {"x:0": n}) for n in range(2)]
        await turns()
        with pytest.raises(errors.ResourceExhaustedError, match="1 steps of the session are in flight and 1 wait"):
            await session.run("y:0", {"x:0": 2})
        gate.open.set()
        assert await asyncio.gather(*steps) == [0, 1]


def test_deadline_counts_while_waiting() -> None:
    async def main() -> None:
        gate = gates.Gate()
        async with aexec.Session(gated(gate), config=aexec.SessionConfig(max_steps=1)) as session:
            first = session.start("y:0", {"x:0": 0})
            await gate.entered.wait()
            with pytest.raises(errors.DeadlineExceededError, match="waiting for its turn"):
                await session.run("y:0", {"x:0": 1}, options=aexec.RunOptions(timeout=5))
            gate.open.set()
            assert await first == 0

    run_virtual(main())


async def test_closing_the_session_ends_those_in_line() -> None:
    gate = gates.Gate()
    async with aexec.Session(gated(gate), config=aexec.SessionConfig(max_steps=1)) as session:
        steps = [session.start("y:0", {"x:0": n}) for n in range(3)]
        await gate.entered.wait()
    for step in steps:
        with pytest.raises(errors.CancelledError, match="Session has been closed"):
            await step


async def test_partial_runs_have_a_place_too() -> None:
    gate = gates.Gate()
    async with aexec.Session(gated(gate), config=aexec.SessionConfig(max_steps=1)) as session:
        step = session.start("y:0", {"x:0": 0})
        await gate.entered.wait()
        parts = await session.partial_run_setup(["square:0"], ["x:0"])
        part = asyncio.create_task(session.partial_run(parts, "square:0", {"x:0": 3}))
        await turns()
        assert not part.done()
        gate.open.set()
        assert await part == 9
        assert await step == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
        ({"max_steps": 1, "max_waiting_steps": -1}, "max_waiting_steps must not be negative"),
        ({"max_waiting_steps": 1}, "goes with max_steps"),
    ],
)
def test_wrong_numbers_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        aexec.SessionConfig(**settings)  # type: ignore[arg-type]
