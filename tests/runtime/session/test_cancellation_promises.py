"""What docs/cancellation.md promises beyond what test_session.py shows: first errors, shields, deadlines of zero."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder

F = dtypes.float32


def gated(gate: Any, op: str = "TestGate") -> GraphBuilder:
    g = GraphBuilder()
    g.const("c", np.ones(2, np.float32))
    g("gated", op, "c", key=gate.key, T=F)
    g("after", "Neg", "gated", T=F)
    return g


async def test_caller_sees_the_first_of_two_causes() -> None:
    gate = gates.ThreadGate()
    async with aexec.Session(gated(gate, "TestStatefulThreadGate").graph()) as session:
        task = asyncio.create_task(session.run("after:0"))
        await asyncio.to_thread(gate.entered.wait)
        (step,) = session.steps
        assert step.cancel("first")
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()  # the kernel touches state, so the step waits for it
        gate.open.set()
        with pytest.raises(errors.CancelledError, match="first"):
            await task


async def test_later_errors_do_not_hide_the_first() -> None:
    """The gate's kernel turns its cancellation into an error of its own."""
    gate = gates.Gate()

    @aexec.op("PromisesSoreLoser(x: float) -> y: float", stateful=True)
    async def sore_loser(x: Any) -> Any:
        try:
            await gate.open.wait()
        except asyncio.CancelledError:
            raise errors.InternalError("cancelled, and cross about it") from None

    with aexec.Graph() as graph:
        sore_loser(aexec.constant(1.0), name="loser")
        aexec.ops.test_fail(aexec.constant(1.0), message="the cause", name="cause")
    async with aexec.Session(graph) as session:
        with pytest.raises(errors.InvalidArgumentError, match="the cause") as caught:
            await session.run([], targets=["loser", "cause"])
    assert caught.value.node == "cause"
    assert not caught.value.derived


async def test_shield_keeps_the_step_when_a_waiter_is_cancelled() -> None:
    gate = gates.Gate()
    async with aexec.Session(gated(gate).graph()) as session:
        step = session.start("after:0")

        async def look() -> Any:
            return await asyncio.shield(step)

        onlooker = asyncio.create_task(look())
        await gate.entered.wait()
        onlooker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await onlooker
        assert step.state.value == "running"
        gate.open.set()
        np.testing.assert_array_equal(await step, [-1, -1])


async def test_step_of_one_slice_does_not_see_its_deadline() -> None:
    gate = gates.Gate()
    async with aexec.Session(gated(gate).graph()) as session:
        options = aexec.RunOptions(timeout=0)
        assert (await session.run("c:0", options=options)).tolist() == [1, 1]
        with pytest.raises(errors.DeadlineExceededError):
            await session.run("after:0", options=options)


async def test_step_that_nobody_awaits_runs_to_its_end() -> None:
    async with aexec.Session(gated(gates.Gate()).graph()) as session:
        step = session.start("c:0")
        while not step.done:
            await asyncio.sleep(0)
        assert step.state.value == "succeeded"
        assert not step.cancel()


async def test_assignment_runs_completely_or_not_at_all() -> None:
    """The step is cancelled between two assignments: the first stays, the second never happens."""
    gate = gates.Gate()
    g = gated(gate)
    for name in ("first", "second"):
        g(name, "VarHandleOp", dtype=F, shape=PartialTensorShape([2]), shared_name=name.encode())
        g(f"read_{name}", "ReadVariableOp", name, dtype=F)
    g("assign_first", "AssignVariableOp", "first", "c", dtype=F)
    g("held", "TestGate", "c", "^assign_first", key=gate.key, T=F)
    g("assign_second", "AssignVariableOp", "second", "held", dtype=F)
    async with aexec.Session(g.graph()) as session:
        step = session.start([], targets=["assign_second"])
        await gate.entered.wait()
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step
        np.testing.assert_array_equal(await session.run("read_first:0"), [1, 1])
        with pytest.raises(errors.FailedPreconditionError):
            await session.run("read_second:0")


def _takers() -> aexec.Graph:
    with aexec.Graph() as graph:
        handle = ops.fifo_queue_v2(component_types=["float32"], shapes=[[]], name="q")
        ops.queue_dequeue_v2(handle, component_types=["float32"], name="one")
        ops.queue_dequeue_many_v2(handle, 1, component_types=["float32"], name="many")
        ops.stage([aexec.constant(1.0)], shared_name="s", name="stage")
        ops.unstage(dtypes=["float32"], shared_name="s", name="unstage")
        ops.stage_size(dtypes=["float32"], shared_name="s", name="staged")
    return graph


@pytest.mark.parametrize("fetch", ["one:0", "many:0", "unstage:0"])
@pytest.mark.parametrize("turns", range(6))
async def test_value_delivered_to_a_cancelled_step_is_not_lost(fetch: str, turns: int) -> None:
    """Cancelled in each turn of the loop after the delivery: the step has the value, or it was not taken."""
    async with aexec.Session(_takers()) as session:
        step = session.start(fetch)
        for _ in range(5):
            await asyncio.sleep(0)
        if fetch == "unstage:0":
            await session.run([], targets=["stage"])
        else:
            await session.queue("q").put(1.0)
        for _ in range(turns):
            await asyncio.sleep(0)
        step.cancel()
        try:
            taken = [float(np.max(await step))]
        except errors.CancelledError:
            taken = []
        left = len(session.queue("q")) + int(await session.run("staged:0"))
        assert len(taken) + left == 1


async def test_cancelled_waiting_step_ends_in_the_same_turn() -> None:
    """A thousand steps that are cancelled at once are visited once each."""
    async with aexec.Session(_takers()) as session:
        tasks = [asyncio.create_task(session.run("one:0")) for _ in range(3)]
        await asyncio.sleep(0)
        queue = session.queue("q")
        while queue.statistics().waiting_dequeues < 3:
            await asyncio.sleep(0)
        for task in (tasks[1], tasks[0]):
            task.cancel()
            await asyncio.sleep(0)
            assert task.cancelled()
        await queue.put(1.0)
        assert await tasks[2] == 1.0


def _cleaning_up(gate: Any, name: str) -> aexec.Graph:
    """The node `slow` waits for the gate, and once more when it is cancelled."""
    opened = asyncio.Event()

    @aexec.op(f"{name}(x: float) -> y: float", stateful=True)
    async def cleaning_up(x: Any) -> Any:
        gate.entered.set()
        try:
            await opened.wait()
        finally:
            await gate.open.wait()
        return x

    with aexec.Graph() as graph:
        cleaning_up(aexec.placeholder("float32", [], name="x"), name="slow")
    return graph


async def test_waiter_cancelled_again_still_waits_for_the_end_of_the_step() -> None:
    gate = gates.Gate()
    async with aexec.Session(_cleaning_up(gate, "PromisesCleaningUp")) as session:
        step = session.start("slow:0", {"x:0": 1})

        async def look() -> Any:
            return await step

        onlooker = asyncio.create_task(look())
        await gate.entered.wait()
        try:
            for _ in range(3):
                onlooker.cancel()
                for _ in range(3):
                    await asyncio.sleep(0)
                assert not onlooker.done()
        finally:
            gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await onlooker
        assert step.done


async def test_waiter_of_a_partial_run_cancelled_again_waits_for_its_end() -> None:
    gate = gates.Gate()
    async with aexec.Session(_cleaning_up(gate, "PromisesCleaningUpPart")) as session:
        step = await session.partial_run_setup(["slow:0"], ["x:0"])
        part = asyncio.create_task(session.partial_run(step, "slow:0", {"x:0": 1}))
        await gate.entered.wait()
        try:
            for _ in range(3):
                part.cancel()
                for _ in range(3):
                    await asyncio.sleep(0)
                assert not part.done()
        finally:
            gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await part
        assert step.done
