"""Many runs, half of them cancelled at random moments, leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from tests.support.programs.graphs import GraphBuilder


class Tracked(np.ndarray[Any, Any]):
    """An array with weak references, which show whether it is freed."""


def tracked(value: float, alive: weakref.WeakSet[Any]) -> Any:
    array = np.full((64,), value, np.float32).view(Tracked)
    alive.add(_Owner(array))
    return array


class _Owner:
    """Lives as long as its array: WeakSet needs hashable members, which arrays are not."""

    def __init__(self, array: Any) -> None:
        array.owner = self


@aexec.op("SoakYield(x: float) -> y: float", stateful=True)
async def soak_yield(x: Any) -> Any:
    await asyncio.sleep(0)
    return x


def graph_with_everything() -> aexec.Graph:
    """Inline nodes, a coroutine, an offloaded node, a loop and a dead branch in one graph."""
    g = GraphBuilder()
    f, i = dtypes.float32, dtypes.int32
    g.placeholder("x", f)
    g("square", "Square", "x", T=f)
    g("waited", "SoakYield", "square")
    g("heavy", "SoakHeavy", "waited")
    g.placeholder("n", i, [])
    g.const("zero", 0, i)
    g.const("one", 1, i)
    frame = {"frame_name": b"loop", "parallel_iterations": 4, "T": i}
    g("enter", "Enter", "zero", **frame)
    g("limit", "Enter", "n", is_constant=True, **frame)
    g("step", "Enter", "one", is_constant=True, **frame)
    g("merge", "Merge", "enter", "next", T=i, N=2)
    g("less", "Less", "merge", "limit", T=i)
    g("cond", "LoopCond", "less")
    g("switch", "Switch", "merge", "cond", T=i)
    g("add", "AddV2", "switch:1", "step", T=i)
    g("next", "NextIteration", "add", T=i)
    g("count", "Exit", "switch:0", T=i)
    return g.graph()


@aexec.op("SoakHeavy(x: float) -> y: float", cost=lambda x: 1e9)
def soak_heavy(x: Any) -> Any:
    return x + 1


async def churn(session: aexec.Session, runs: int, seed: int, alive: weakref.WeakSet[Any]) -> tuple[int, int]:
    """Run `runs` steps, about half of them cancelled; returns how many ended well and how many were cancelled."""
    rng = random.Random(seed)
    good = cancelled = 0

    async def one(number: int) -> None:
        nonlocal good, cancelled
        value = float(number % 7)
        feeds = {"x:0": tracked(value, alive), "n:0": np.int32(number % 20)}
        kind = rng.random()
        if kind < 0.5:
            result, count = await session.run(["heavy:0", "count:0"], feeds)
            np.testing.assert_array_equal(result, value * value + 1)
            assert count == number % 20
            good += 1
            return
        if kind < 0.75:
            step = session.start(["heavy:0", "count:0"], feeds)
            for _ in range(rng.randrange(6)):
                await asyncio.sleep(0)
            step.cancel("soak")
            outcome: Any = step
        else:
            outcome = asyncio.create_task(session.run(["heavy:0", "count:0"], feeds))
            for _ in range(rng.randrange(6)):
                await asyncio.sleep(0)
            outcome.cancel()
        try:
            await outcome
            good += 1
        except (errors.CancelledError, asyncio.CancelledError):
            cancelled += 1

    for start in range(0, runs, 100):
        await asyncio.gather(*(one(n) for n in range(start, min(runs, start + 100))))
    return good, cancelled


def own_threads() -> int:
    """Threads but for those of the loop's own executor, asyncio's or uvloop's, and those that plan for the process."""
    return sum(not thread.name.startswith(("asyncio_", "uvloop_", "planner_")) for thread in threading.enumerate())


async def check_churn(runs: int, seed: int) -> None:
    threads = own_threads()
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    async with aexec.Session(graph_with_everything()) as session:
        good, cancelled = await churn(session, runs, seed, alive)
        assert good + cancelled == runs
        assert cancelled > runs / 5
        assert session.steps == ()
        assert session.statistics().in_flight == 0
        # Still right.
        assert await session.run("count:0", {"n:0": 7}) == 7
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not others
    assert own_threads() <= threads
    gc.collect()
    assert not list(alive), f"{len(alive)} fed tensors are still alive"


async def test_thousands_of_runs_half_of_them_cancelled_leave_nothing() -> None:
    await check_churn(2_500, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 12))
async def test_tens_of_thousands_of_runs_leave_nothing(seed: int) -> None:
    await check_churn(10_000, seed)
