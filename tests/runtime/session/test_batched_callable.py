"""Batched calls: results, cancellation, and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from aexec.runtime.session.batched_callable import BatchedCallable, can_be_batched
from aexec.runtime.session.step_view import StepState
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

LONG = 3600.0


class Batched:
    """A session whose `y` is `x`, after a gate."""

    def __init__(self) -> None:
        self.gate = gates.Gate()
        self.batches: list[int] = []
        g = GraphBuilder()
        g.placeholder("x", dtypes.float32)
        g("y", "TestGate", "x", key=self.gate.key, T=dtypes.float32)
        self.session = aexec.Session(g.graph())

    def callable(self, max_rows: int = 4, max_delay: float = LONG, **options: Any) -> BatchedCallable:
        call = self.session.make_callable(["y:0"], ["x:0"])
        return BatchedCallable(call, max_rows, max_delay, on_batch=lambda rows, _: self.batches.append(rows), **options)


@pytest.fixture
async def batched() -> AsyncIterator[Batched]:
    made = Batched()
    yield made
    await made.session.close()


def start(call: BatchedCallable, *rows: Any, **options: Any) -> tuple[Any, asyncio.Task[Any]]:
    step = call.prepare(list(rows), **options)
    return step, asyncio.ensure_future(step.run())


async def test_full_batch_is_run_at_once(batched: Batched) -> None:
    call = batched.callable()
    batched.gate.open.set()
    tasks = [start(call, *rows)[1] for rows in ((1.0,), (2.0, 3.0), (4.0,))]
    assert [output[0].tolist() for output in await asyncio.gather(*tasks)] == [[1], [2, 3], [4]]
    assert batched.batches == [4] and batched.gate.count == 1


async def test_batch_waits_no_longer_than_its_delay(batched: Batched) -> None:
    call = batched.callable(max_delay=0.001)
    batched.gate.open.set()
    (values,) = await start(call, 1.0, 2.0)[1]
    assert values.tolist() == [1, 2] and batched.batches == [2]


async def test_padding_is_left_out(batched: Batched) -> None:
    call = batched.callable(max_delay=0.001, sizes=[4])
    batched.gate.open.set()
    (values,) = await start(call, 1.0)[1]
    assert values.tolist() == [1] and batched.batches == [4]


async def test_rows_of_another_shape_make_another_batch(batched: Batched) -> None:
    call = batched.callable(max_rows=2)
    batched.gate.open.set()
    tasks = [start(call, row)[1] for row in ([1.0], [1.0, 2.0], [3.0], [3.0, 4.0])]
    assert [output[0].tolist() for output in await asyncio.gather(*tasks)] == [[[1]], [[1, 2]], [[3]], [[3, 4]]]
    assert batched.batches == [2, 2]


async def test_call_with_more_rows_than_a_batch_is_run_alone(batched: Batched) -> None:
    batched.gate.open.set()
    (values,) = await start(batched.callable(max_rows=2), 1.0, 2.0, 3.0)[1]
    assert values.tolist() == [1, 2, 3]


@pytest.mark.parametrize("leader", [True, False])
@pytest.mark.parametrize("how", ["step", "task"])
async def test_cancelled_call_leaves_the_other_calls_of_its_batch(batched: Batched, leader: bool, how: str) -> None:
    call = batched.callable(max_rows=2)
    pairs = [start(call, 1.0), start(call, 2.0)]
    (step, lost), (_, kept) = pairs if leader else reversed(pairs)
    await batched.gate.entered.wait()
    if how == "step":
        assert step.cancel("enough") and not step.cancel("again")
        with pytest.raises(errors.CancelledError, match="The call was cancelled: enough"):
            await lost
        assert step.state is StepState.CANCELLED
    else:
        lost.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lost
    if leader:
        await until(lambda: batched.gate.count == 2)  # the other takes the lead
    batched.gate.open.set()
    (values,) = await kept
    assert values.tolist() == [2 if leader else 1]


async def test_deadline_passes_while_a_batch_is_filled(batched: Batched) -> None:
    with pytest.raises(errors.DeadlineExceededError):
        await batched.callable().prepare([1.0], options=aexec.RunOptions(timeout=0.001)).run()
    assert not batched.batches


async def test_waiting_call_can_be_cancelled(batched: Batched) -> None:
    step, task = start(batched.callable(), 1.0)
    await asyncio.sleep(0)
    assert step.statistics().nodes == 0 and step.id == 0
    step.cancel()
    with pytest.raises(errors.CancelledError, match="The call was cancelled"):
        await task
    assert not batched.batches


async def test_inputs_need_rows(batched: Batched) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"x:0 has shape \(\): inputs of calls that are batched"):
        await batched.callable().prepare(1.0).run()


@pytest.mark.parametrize(("dims", "fine"), [(None, True), ((None, 2), True), ((), False), ((2, None), False)])
def test_inputs_with_a_free_first_dimension_can_be_batched(dims: Any, fine: bool) -> None:
    assert can_be_batched(PartialTensorShape(dims)) is fine


async def test_strings_are_joined() -> None:
    with aexec.Graph() as graph:
        aexec.ops.identity(aexec.placeholder("string", [None], name="x"), name="y")
    async with aexec.Session(graph) as session:
        call = BatchedCallable(session.make_callable(["y:0"], ["x:0"]), 2, LONG)
        outputs = await asyncio.gather(call.prepare(["a"]).run(), call.prepare(np.array([b"b"], object)).run())
    assert [output[0].tolist() for output in outputs] == [[b"a"], [b"b"]]


# Turns


class Turn:
    """A turn that nobody gets before `free` is set; it records who asked."""

    level = 0

    def __init__(self, error: errors.OpError | None = None) -> None:
        self.free = asyncio.Event()
        self.error = error
        self.asked: list[int] = []
        self.waiting = 0

    def take(self, calls: int) -> bool:
        self.asked.append(calls)
        return self.free.is_set()

    async def wait(self) -> None:
        self.waiting += 1
        try:
            await self.free.wait()
        finally:
            self.waiting -= 1
        if self.error is not None:
            raise self.error


async def test_batch_begins_when_its_turn_has_come(batched: Batched) -> None:
    turn, call = Turn(), batched.callable(max_rows=3)
    batched.gate.open.set()
    tasks = [start(call, float(n), turn=turn)[1] for n in range(3)]
    await until(lambda: turn.waiting == 1)
    assert not batched.gate.count
    turn.free.set()
    assert [output[0].tolist() for output in await asyncio.gather(*tasks)] == [[0], [1], [2]]
    assert turn.asked == [3]


async def test_call_that_is_filled_asks_for_no_turn(batched: Batched) -> None:
    turn = Turn()
    step, task = start(batched.callable(), 1.0, turn=turn)
    await asyncio.sleep(0)
    assert not turn.asked
    step.cancel()
    with pytest.raises(errors.CancelledError):
        await task


@pytest.mark.parametrize("how", ["step", "task"])
async def test_leader_that_is_cancelled_before_its_turn_leaves_it_to_another(batched: Batched, how: str) -> None:
    turn, call = Turn(), batched.callable(max_rows=2)
    batched.gate.open.set()
    (step, lost), (_, kept) = start(call, 1.0, turn=turn), start(call, 2.0, turn=turn)
    await until(lambda: turn.waiting == 1)
    step.cancel("enough") if how == "step" else lost.cancel()
    with pytest.raises(errors.CancelledError if how == "step" else asyncio.CancelledError):
        await lost
    await until(lambda: len(turn.asked) == 2 and turn.waiting == 1)
    turn.free.set()
    (values,) = await kept
    assert values.tolist() == [2] and turn.asked == [2, 1]


async def test_refused_turn_is_that_of_the_whole_batch(batched: Batched) -> None:
    turn = Turn(errors.ResourceExhaustedError("too much to do"))
    call = batched.callable(max_rows=2, retries=True)
    tasks = [start(call, float(n), turn=turn)[1] for n in range(2)]
    turn.free.set()
    turn.take = lambda calls: False  # type: ignore[method-assign]
    for task in tasks:
        with pytest.raises(errors.ResourceExhaustedError, match="too much to do"):
            await task
    assert not batched.gate.count


async def test_backlog_is_what_waits_for_batches_that_run(batched: Batched) -> None:
    call = batched.callable(max_rows=1)
    call.count(1, 2_000_000_000)
    assert call.backlog_seconds == 0
    tasks = [start(call, float(n))[1] for n in range(4)]
    await batched.gate.entered.wait()
    assert call.backlog_seconds == pytest.approx(3 * 2.0)
    batched.gate.open.set()
    await asyncio.gather(*tasks)
    assert call.backlog_seconds == 0


# Bad values


async def test_bad_value_fails_by_itself() -> None:
    halved: list[None] = []
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        aexec.ops.check_numerics(x, message="bad", name="y")
    async with aexec.Session(graph) as session:
        inner = session.make_callable(["y:0"], ["x:0"])
        call = BatchedCallable(inner, 8, LONG, retries=True, on_halved=lambda: halved.append(None))
        tasks = [start(call, float("nan") if n == 5 else float(n))[1] for n in range(8)]
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(e) if isinstance(e, BaseException) else e[0].tolist() for e in ended] == [
        errors.InvalidArgumentError if n == 5 else [n] for n in range(8)
    ]
    assert len(halved) == 3
