"""Partial runs: feeds and fetches in several calls, errors, and every way they end."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.runtime.session import partial_run
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder

pytestmark = pytest.mark.both_executors

F = dtypes.float32


def graph(*, gate: gates.Gate | None = None) -> aexec.Graph:
    """r1 = a + b; r2 = r1 * c, behind a gate if one is given."""
    g = GraphBuilder()
    for name in "abc":
        g.placeholder(name, F, [])
    g("r1", "AddV2", "a", "b", T=F)
    source = "r1" if gate is None else g("gated", "TestGate", "r1", key=gate.key, T=F)
    g("r2", "Mul", source, "c", T=F)
    g("failed", "TestFail", "c", T=F)
    return g.graph()


ALL = (["r1:0", "r2:0"], ["a:0", "b:0", "c:0"])


async def test_partial_run_in_two_stages() -> None:
    async with aexec.Session(graph()) as session:
        setup = await session.partial_run_setup(*ALL)
        assert setup.handle.startswith("a:0,b:0,c:0->r1:0,r2:0//1/;")
        assert await session.partial_run(setup, "r1:0", {"a:0": 1, "b:0": 2}) == 3
        assert setup.state.value == "running"
        assert setup.statistics().running == 0
        assert await session.partial_run(setup.handle, ["r2:0"], {"c:0": 10}) == [30]
        assert setup.state.value == "succeeded"
        assert await setup == [3, 30]
        with pytest.raises(errors.InvalidArgumentError, match="Must run 'setup' before performing partial runs!"):
            await session.partial_run(setup, "r2:0")


async def test_call_may_only_feed_or_only_fetch() -> None:
    async with aexec.Session(graph()) as session:
        setup = await session.partial_run_setup(*ALL)
        assert await session.partial_run(setup, [], {"a": 1, "b:0": 2}) == []
        assert await session.partial_run(setup, [], {"c:0": 3}) == []
        assert await session.partial_run(setup, {"second": "r2:0"}) == {"second": 9}
        assert await session.partial_run(setup, ("r1:0",)) == (3,)


async def test_tensors_serve_as_names() -> None:
    with aexec.Graph() as g:
        x = aexec.placeholder("float32", [], name="x")
        y = aexec.ops.square(x, name="y")
    async with aexec.Session(g) as session:
        setup = await session.partial_run_setup(y, [x])
        assert await session.partial_run(setup, y, {x: 3}) == 9


@pytest.mark.parametrize(
    ("fetches", "feeds", "words"),
    [
        ([], {"r1:0": 1}, "The feed r1:0 was not specified in partial_run_setup."),
        ([], {"a:0": 1}, "The feed a:0 has already been fed."),
        (["c:0"], {}, "The fetch c:0 was not specified in partial_run_setup."),
        (["r1:0"], {}, "The fetch r1:0 has already been fetched."),
        (["r2:0"], {}, "Fetch r2:0 can't be computed from the feeds that have been fed so far."),
        (["r2:0"], {"c:0": "no number"}, "c:0"),
        (["r2:0"], {"c:0": 1, "c": 1}, "fed more than once"),
        (["r2"], {"c:0": 1}, r"partial_run\(\) requires empty target_list."),
        (["r2:0"], {7: 1}, "Expected a tensor or its name, got 7"),
    ],
)
async def test_refused_call_leaves_the_partial_run_as_it_was(fetches: Any, feeds: dict[Any, Any], words: str) -> None:
    async with aexec.Session(graph()) as session:
        setup = await session.partial_run_setup(*ALL)
        await session.partial_run(setup, "r1:0", {"a:0": 1, "b:0": 2})
        with pytest.raises(errors.InvalidArgumentError, match=words):
            await session.partial_run(setup, fetches, feeds)
        assert await session.partial_run(setup, "r2:0", {"c:0": 2}) == 6


async def test_refused_set_up_starts_no_step() -> None:
    async with aexec.Session(graph()) as session:
        with pytest.raises(errors.NotFoundError, match="nobody"):
            await session.partial_run_setup(["nobody:0"], ["a:0"])
        assert session.steps == ()


async def test_kernel_error_ends_the_partial_run() -> None:
    async with aexec.Session(graph()) as session:
        setup = await session.partial_run_setup(["r1:0", "failed:0"], ["a:0", "b:0", "c:0"])
        with pytest.raises(errors.InvalidArgumentError, match="failed on purpose"):
            await session.partial_run(setup, "failed:0", {"c:0": 1})
        assert setup.state.value == "failed"
        with pytest.raises(errors.InvalidArgumentError, match="Must run 'setup'"):
            await session.partial_run(setup, "r1:0", {"a:0": 1, "b:0": 2})
        assert session.steps == ()


async def test_error_between_calls_is_raised_by_the_next() -> None:
    async with aexec.Session(graph()) as session:
        setup = await session.partial_run_setup(["r1:0", "failed:0"], ["a:0", "b:0", "c:0"])
        await session.partial_run(setup, [], {"c:0": 1})
        while not setup.done:
            await asyncio.sleep(0)
        with pytest.raises(errors.InvalidArgumentError, match="failed on purpose"):
            await session.partial_run(setup, "r1:0", {"a:0": 1, "b:0": 2})


async def test_dead_fetch_ends_the_partial_run() -> None:
    g = GraphBuilder()
    g.placeholder("x", F, [])
    g.placeholder("p", dtypes.bool_, [])
    g.placeholder("later", F, [])
    g("switch", "Switch", "x", "p", T=F)
    g("never", "Neg", "switch:1", T=F)
    g("other", "Neg", "later", T=F)
    async with aexec.Session(g.graph()) as session:
        setup = await session.partial_run_setup(["never:0", "other:0"], ["x", "p", "later"])
        with pytest.raises(errors.InvalidArgumentError, match=r"Retval\[0\] does not have value"):
            await session.partial_run(setup, "never:0", {"x": 1, "p": False})
        with pytest.raises(errors.InvalidArgumentError, match="does not have value"):
            await setup


@pytest.mark.parametrize("how", ["step", "task", "close"])
async def test_cancelling(how: str) -> None:
    gate = gates.Gate()
    async with aexec.Session(graph(gate=gate)) as session:
        setup = await session.partial_run_setup(*ALL)
        await session.partial_run(setup, "r1:0", {"a:0": 1, "b:0": 2})
        waiting = asyncio.create_task(session.partial_run(setup, "r2:0", {"c:0": 2}))
        await gate.entered.wait()
        await asyncio.sleep(0)
        if how == "step":
            setup.cancel("enough")
        elif how == "task":
            waiting.cancel()
        else:
            await session.close()
        with pytest.raises(asyncio.CancelledError if how == "task" else errors.CancelledError):
            await waiting
        assert setup.state.value == "cancelled"
        assert gate.cancelled == 1


async def test_close_ends_a_run_that_nobody_goes_on_with() -> None:
    async with aexec.Session(graph()) as session:
        setup = await session.partial_run_setup(*ALL)
        await asyncio.sleep(0)
    assert setup.state.value == "cancelled"


async def test_partial_runs_that_nobody_goes_on_with_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_run, "_MAX_KEPT", 2)
    async with aexec.Session(graph()) as session:
        first, second = [await session.partial_run_setup(*ALL) for _ in range(2)]
        with pytest.raises(errors.ResourceExhaustedError, match="2 partial runs have not ended"):
            await session.partial_run_setup(*ALL)
        second.cancel()
        with pytest.raises(errors.CancelledError):
            await second
        third = await session.partial_run_setup(*ALL)
        for setup in (first, third):
            assert await session.partial_run(setup, "r1:0", {"a:0": 1, "b:0": 2}) == 3
        with pytest.raises(errors.InvalidArgumentError, match="Must run 'setup'"):
            await session.partial_run(second, "r1:0", {"a:0": 1, "b:0": 2})


async def test_heavy_values_are_seen_when_they_come_late() -> None:
    with aexec.Graph() as g:
        x = aexec.placeholder("float32", None, name="x")
        aexec.ops.exp(x, name="y")
    async with aexec.Session(g) as session:
        setup = await session.partial_run_setup("y:0", ["x:0"])
        await asyncio.sleep(0)
        out = await session.partial_run(setup, "y:0", {"x:0": np.zeros(2_000_000, np.float32)})
        assert out.sum() == 2_000_000
        assert session.statistics().pool.submitted == 1


async def test_fetches_that_wait_for_a_feed_are_refused() -> None:
    g = GraphBuilder()
    for name in "abc":
        g.placeholder(name, F, [])
    g("behind_a", "Neg", "a", T=F)
    g("fed", "Neg", "behind_a", T=F)
    g("behind_fed", "Neg", "fed", T=F)
    g("waits", "Neg", "b", "^behind_a", T=F)
    g("not_for_c", "Neg", "b", "^c", T=F)
    fetches = ["behind_fed:0", "waits:0", "not_for_c:0", "behind_a:0"]
    async with aexec.Session(g.graph()) as session:
        setup = await session.partial_run_setup(fetches, ["a:0", "b:0", "c:0", "fed:0"])
        assert await session.partial_run(setup, "behind_fed:0", {"fed:0": 3}) == -3
        for late in ("waits:0", "behind_a:0"):
            with pytest.raises(errors.InvalidArgumentError, match=f"Fetch {late} can't be computed"):
                await session.partial_run(setup, [late, "not_for_c:0"], {"b:0": 2})
        assert await session.partial_run(setup, "not_for_c:0", {"b:0": 2}) == -2
        assert await session.partial_run(setup, ["waits:0", "behind_a:0"], {"a:0": 1}) == [-2, -1]
        setup.cancel()


async def test_graph_is_searched_once_per_partial_call() -> None:
    g = GraphBuilder()
    g.placeholder("x", F, [])
    g.placeholder("late", F, [])
    last = "x"
    for number in range(2000):
        last = g(f"n{number}", "Neg", last, T=F)
    g("y", "AddV2", last, "late", T=F)
    fetches = [f"n{number}:0" for number in range(0, 2000, 2)]
    async with aexec.Session(g.graph()) as session:
        began = time.process_time()
        await session.run([*fetches, "y:0"], {"x:0": 1, "late:0": 1})
        whole_step = time.process_time() - began
        setup = await session.partial_run_setup([*fetches, "y:0"], ["x:0", "late:0"])
        began = time.process_time()
        results = await session.partial_run(setup, fetches, {"x:0": 1})
        assert time.process_time() - began < 5 * whole_step  # planning included; a fifth of that is usual
        assert results == [-1] * 1000
        assert await session.partial_run(setup, "y:0", {"late:0": 1}) == 2
