"""Values of a step are freed when nothing refers to them, without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from aexec.runtime.plans.compilation_policy import COMPILE_AT
from tests.support.gates import Gate
from tests.support.programs.graphs import GraphBuilder, counting_loop

f32 = dtypes.float32
made: list[weakref.ref[Any]] = []

register_op("TestWatched(x: float) -> y: float")
register_op("TestInThread(x: float) -> y: float")
register_op("TestFailInThread(x: float) -> y: float")


@kernel("TestWatched")
def _watched(c: Any) -> Any:
    def compute(x: Any) -> Any:
        made.append(weakref.ref(y := x + 1))
        return y

    return compute


# A cost beyond any threshold: always in a thread.
@kernel("TestInThread", cost=lambda x: 1e12)
def _in_thread(c: Any) -> Any:
    return lambda x: x + 1


@kernel("TestFailInThread", cost=lambda x: 1e12)
def _fail_in_thread(c: Any) -> Any:
    def compute(x: Any) -> Any:
        raise errors.InvalidArgumentError("failed in a thread")

    return compute


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    made.clear()
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def watched_graph(end: str, **attrs: Any) -> aexec.Graph:
    """x → TestWatched → an op that ends, fails or waits, beside a watched value that is fetched."""
    g = GraphBuilder()
    g.placeholder("x", f32)
    g("watched", "TestWatched", "x")
    g("y", end, "watched", T=f32, **attrs)
    return g.graph()


def in_thread(end: str) -> aexec.Graph:
    """x → TestWatched → an op whose kernel runs in a thread."""
    g = GraphBuilder()
    g.placeholder("x", f32)
    g("watched", "TestWatched", "x")
    g("y", end, "watched")
    return g.graph()


def alive() -> int:
    return sum(ref() is not None for ref in made)


X = np.ones(10, np.float32)


async def test_fetched_values_are_the_callers_alone() -> None:
    async with aexec.Session(watched_graph("Neg")) as session:
        value = await session.run("watched:0", {"x:0": X})
        assert alive() == 1
        del value
        assert alive() == 0


async def test_step_that_waited_leaves_no_value() -> None:
    gate = Gate()
    async with aexec.Session(watched_graph("TestGate", key=gate.key)) as session:
        step = session.start(["y:0", "watched:0"], {"x:0": X})
        await gate.entered.wait()
        gate.open.set()
        await step
        del step
        await asyncio.sleep(0)
        assert alive() == 0


async def test_failed_step_leaves_no_value_once_its_error_is_dropped() -> None:
    async with aexec.Session(watched_graph("TestFail")) as session:
        with pytest.raises(errors.InvalidArgumentError):
            await session.run(["y:0", "watched:0"], {"x:0": X})
        assert alive() == 0


async def test_failed_step_of_its_own_task_leaves_no_value() -> None:
    async with aexec.Session(watched_graph("TestFail")) as session:
        step = session.start(["y:0", "watched:0"], {"x:0": X})
        with pytest.raises(errors.InvalidArgumentError):
            await step
        del step
        await asyncio.sleep(0)
        assert alive() == 0


async def test_cancelled_step_leaves_no_value() -> None:
    gate = Gate()
    async with aexec.Session(watched_graph("TestGate", key=gate.key)) as session:
        step = session.start(["y:0", "watched:0"], {"x:0": X})
        await gate.entered.wait()
        step.cancel("enough")
        with pytest.raises(errors.CancelledError, match="enough"):
            await step
        del step
        await asyncio.sleep(0)
        assert alive() == 0


async def test_unawaited_step_leaves_no_value() -> None:
    async with aexec.Session(watched_graph("TestFail")) as session:
        step = session.start(["y:0", "watched:0"], {"x:0": X})
        while not step.done:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        del step
        assert alive() == 0


@pytest.mark.parametrize("end", ["TestInThread", "TestFailInThread"])
async def test_values_computed_in_a_thread_are_freed_with_the_step(end: str) -> None:
    async with aexec.Session(in_thread(end)) as session:
        outcome = await asyncio.gather(session.run(["y:0", "watched:0"], {"x:0": X}), return_exceptions=True)
        assert session.statistics().pool.submitted == 1
    del outcome
    assert alive() == 0  # once the thread has ended: until then it may hold its last call


async def test_runs_make_no_work_for_the_collector() -> None:
    """This includes runs whose kernels go to a thread."""
    async with (
        aexec.Session(watched_graph("Neg")) as session,
        aexec.Session(watched_graph("TestFail")) as failing,
        aexec.Session(counting_loop().graph()) as loop,
        aexec.Session(in_thread("TestInThread")) as threads,
        aexec.Session(in_thread("TestFailInThread")) as failing_threads,
    ):

        async def each() -> None:
            await session.run("y:0", {"x:0": X})
            await session.start("y:0", {"x:0": X})
            await loop.run("result:0", {"n:0": 30})
            await threads.run("y:0", {"x:0": X})
            for one in (failing, failing_threads):
                with pytest.raises(errors.InvalidArgumentError):
                    await one.run("y:0", {"x:0": X})

        for _ in range(COMPILE_AT):  # the first plan of a process that is compiled leaves classes behind
            await each()
        gc.collect()
        for _ in range(10):
            await each()
        await asyncio.sleep(0)
        assert gc.collect() == 0


async def test_converted_feed_is_freed_with_its_last_consumer() -> None:
    gate = Gate()
    g = GraphBuilder()
    g.placeholder("x", f32)
    g("size", "Size", "x", T=f32, out_type=dtypes.int32)
    g("y", "TestGate", "size", key=gate.key, T=dtypes.int32)
    converted: list[weakref.ref[Any]] = []

    class Source:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            array = np.ones(10, dtype)
            converted.append(weakref.ref(array))
            return array

    async with aexec.Session(g.graph()) as session:
        step = session.start("y:0", {"x:0": Source()})
        await gate.entered.wait()
        assert converted
        assert converted[-1]() is None
        gate.open.set()
        assert await step == 10
