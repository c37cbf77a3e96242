"""A session with an event loop to itself has longer slices while one caller waits for one step."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import aexec
from aexec import ops
from aexec.compat.v1.running.monitored_session import MonitoredSession
from aexec.framework.waiting.loop_budget import SLICE_SECONDS, LoopBudget, current_budget
from aexec.runtime.threads.own_loop import OWN_LOOP_SECONDS, OwnLoopClock
from aexec.runtime.threads.slices import SliceClock
from tests.support.gates import ThreadGate


def lengths(session: aexec.SyncSession) -> Callable[[], float]:
    """Gives the length of the slice that the session would open now."""

    async def opened() -> float:
        session._steps.slices.open(asyncio.get_running_loop())
        return current_budget().slice_seconds

    return lambda: asyncio.run_coroutine_threadsafe(opened(), session._thread._loop).result(60)  # type: ignore[union-attr]


def held(key: int) -> aexec.Graph:
    """`held` is a call in a thread that waits for a gate."""
    with aexec.Graph() as graph:
        ops.test_thread_gate(aexec.constant(1.0), key=key, name="held")
        ops.add(aexec.placeholder("float32", [], name="x"), 1.0, name="y")
    return graph


def test_slices_are_long_for_one_caller_and_short_for_two() -> None:
    gate = ThreadGate()
    with aexec.SyncSession(held(gate.key)) as session, ThreadPoolExecutor(2) as pool:
        length = lengths(session)
        assert length() == OWN_LOOP_SECONDS
        running = pool.submit(session.run, "held:0")
        assert gate.entered.wait(60)
        assert length() == OWN_LOOP_SECONDS
        thread = session._thread
        assert thread is not None
        both = threading.Event()

        async def waits() -> None:
            both.set()
            await asyncio.wrap_future(running)

        second = pool.submit(thread.wait, waits())
        assert both.wait(60) and length() == SLICE_SECONDS
        gate.open.set()
        assert running.result(60) == 1
        second.result(60)
        assert length() == OWN_LOOP_SECONDS


def test_slices_are_short_while_two_steps_are_in_flight() -> None:
    gate = ThreadGate()
    with aexec.SyncSession(held(gate.key)) as session:
        length = lengths(session)
        first = session.start("held:0")
        assert gate.entered.wait(60) and length() == OWN_LOOP_SECONDS
        second = session.start("held:0")
        assert length() == SLICE_SECONDS
        gate.open.set()
        assert first.result() == second.result() == 1
        assert length() == OWN_LOOP_SECONDS


def test_slices_are_short_while_a_dataset_prefetches() -> None:
    with aexec.Graph() as graph:
        numbers = aexec.data.Dataset.range(100).prefetch(2)
        following = numbers.make_one_shot_iterator().get_next()
    with aexec.SyncSession(graph) as session:
        length = lengths(session)
        assert length() == OWN_LOOP_SECONDS
        assert session.run(following) == 0
        assert length() == SLICE_SECONDS


@pytest.mark.parametrize("seconds", [SLICE_SECONDS, 5e-3])
def test_length_that_was_set_stays(seconds: float) -> None:
    config = aexec.SessionConfig(slice_seconds=seconds)
    with aexec.SyncSession(held(0), config=config) as session:
        assert lengths(session)() == seconds


async def test_session_on_the_loop_of_others_has_short_slices() -> None:
    async with aexec.Session(held(0)) as session:
        assert await session.run("y:0", {"x:0": 1}) == 2
        assert type(session._steps.slices) is SliceClock and current_budget().slice_seconds == SLICE_SECONDS


def test_monitored_session_has_its_loop_to_itself() -> None:
    with held(0), MonitoredSession() as session:
        assert session.run("y:0", {"x:0": 1}) == 2
        assert type(session.ours.session._steps.slices) is OwnLoopClock


async def test_clock_changes_its_length_at_the_next_slice() -> None:
    alone = [True]
    clock = OwnLoopClock(SliceClock(LoopBudget(2e-3)), lambda: alone[0])
    loop = asyncio.get_running_loop()
    ends = []
    for alone[0] in (True, False, True):
        await asyncio.sleep(0)
        end = clock.open(loop)
        ends.append(end - clock._turns.began)  # type: ignore[union-attr]
    np.testing.assert_allclose(ends, [OWN_LOOP_SECONDS, 2e-3, OWN_LOOP_SECONDS])
