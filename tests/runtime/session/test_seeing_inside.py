"""What a step shows: its waits, its running calls with places and times, and the story of a node."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.framework import dtypes
from aexec.framework.device_contract.rendezvous import Rendezvous
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from tests.support import gates
from tests.support.programs.functions import calls, function_def
from tests.support.programs.graphs import GraphBuilder, counting_loop
from tests.support.virtual_clock import run_virtual
from tests.support.waiting import until

F = dtypes.float32
SECONDS = r"\d+\.\d{3} s"


def _waiting_graph(consumers: int = 1) -> aexec.Graph:
    """`dequeued` waits for the queue `q`; `sum…` have x and wait for it."""
    with aexec.Graph() as graph:
        queue = ops.fifo_queue_v2(component_types=["float32"], shapes=[[]], name="q")
        (element,) = ops.queue_dequeue_v2(queue, component_types=["float32"], name="dequeued")
        x = aexec.placeholder("float32", [], name="x")
        for i in range(consumers):
            ops.add_v2(x, element, name=f"sum{i}")
    return graph


async def test_dump_lists_running_and_waiting_nodes_with_their_inputs() -> None:
    async with aexec.Session(_waiting_graph()) as session:
        step = session.start("sum0:0", {"x:0": 1})
        await until(lambda: "waiting sum0" in step.dump() and "running dequeued" in step.dump())
        first, running, waiting = step.dump().splitlines()
        assert first == f"<Step {step.id} running, 0 ready, 1 running>"
        assert re.fullmatch(rf"  running dequeued \(QueueDequeueV2\), awaited for {SECONDS}", running)
        assert waiting == "  waiting sum0 (AddV2): has x and waits for dequeued"
        assert "running dequeued" in repr(step)
        await session.queue("q").put(1.0)
        assert await step == 2
        assert step.dump() == repr(step) == f"<Step {step.id} succeeded>"


async def test_dump_lists_calls_in_threads() -> None:
    gate = gates.ThreadGate()
    g = GraphBuilder()
    g.const("c", np.ones(2, np.float32))
    g("slow", "TestThreadGate", "c", key=gate.key, T=F)
    async with aexec.Session(g.graph()) as session:
        step = session.start("slow:0")
        await asyncio.to_thread(gate.entered.wait)
        assert re.search(rf"running slow \(TestThreadGate\), in a thread for {SECONDS}", step.dump())
        gate.open.set()
        await step


async def test_dump_lists_missing_feeds_of_a_partial_run() -> None:
    with aexec.Graph() as graph:
        a, b = (aexec.placeholder("float32", [], name=name) for name in "ab")
        ops.add_v2(a, b, name="sum")
    async with aexec.Session(graph) as session:
        step = await session.partial_run_setup(["sum:0"], ["a:0", "b:0"])
        await asyncio.sleep(0)
        assert [line.strip() for line in step.dump().splitlines()[1:]] == ["to be fed: a:0", "to be fed: b:0"]
        part = asyncio.create_task(session.partial_run(step, [], {"a:0": 1}))
        await part
        await until(lambda: "waiting sum" in step.dump())
        assert [line.strip() for line in step.dump().splitlines()[1:]] == [
            "to be fed: b:0",
            "waiting sum (AddV2): has a and waits for b",
        ]
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step


async def test_repr_says_in_one_line_why_a_step_ended() -> None:
    @aexec.op("InsideFailsToo(x: float) -> y: float", stateful=True)
    def fails(x: Any) -> Any:
        raise ValueError("no")

    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [], name="x")
        fails(x, name="failing")
        ops.unstage(dtypes=["float32"], name="waiting")
    async with aexec.Session(graph) as session:
        failed = session.start("failing:0", {"x:0": 1})
        with pytest.raises(errors.UnknownError):
            await failed
        assert failed.dump() == repr(failed) == f"<Step {failed.id} failed: ValueError: no>"
        step = session.start("waiting:0")
        await until(lambda: "running waiting" in step.dump())
        assert step.dump().splitlines()[0] == f"<Step {step.id} running, 0 ready, 1 running>"
        step.cancel("too late")
        with pytest.raises(errors.CancelledError):
            await step
        assert repr(step) == f"<Step {step.id} cancelled: Step {step.id} was cancelled: too late>"


async def test_dump_includes_loops_and_called_functions() -> None:
    function = function_def(
        "InsideWaits(x: float) -> y: float",
        body=[("inner", "Unstage", [], {"dtypes": [F], "shared_name": b"s"})],
        ret={"y": "inner:values:0"},
        stateful=True,
    )
    g = GraphBuilder()
    g.graph_def.library.function.append(function)
    g.const("x", np.float32(1))
    g.const("p", True)
    branch = calls("InsideWaits")
    g("if", "If", "p", "x", then_branch=branch, else_branch=branch, Tcond=dtypes.bool_, Tin=[F], Tout=[F])
    async with aexec.Session(g.graph()) as session:
        step = session.start("if:0")
        await until(lambda: "running inner" in step.dump())
        assert re.search(r"running if \(If\), awaited", step.dump())
        assert re.search(r"running inner \(Unstage\) in function InsideWaits, awaited", step.dump())
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step

    gate = gates.Gate()
    g = counting_loop()
    g.graph_def.node.remove(next(n for n in g.graph_def.node if n.name == "body"))
    g("body", "TestGate", "switch:1", key=gate.key, T=dtypes.int32)
    async with aexec.Session(g.graph()) as session:
        step = session.start("result:0", {"n:0": 1})
        await gate.entered.wait()
        await asyncio.sleep(0)
        assert re.search(r"running body \(TestGate\) in iteration 0 of '\w+', awaited", step.dump())
        gate.open.set()
        assert await step == 1


def test_deadline_error_has_a_short_dump() -> None:
    async def main() -> str:
        async with aexec.Session(_waiting_graph(consumers=30)) as session:
            fetches = [f"sum{i}:0" for i in range(30)]
            with pytest.raises(errors.DeadlineExceededError) as caught:
                await session.run(fetches, {"x:0": 1}, options=aexec.RunOptions(timeout=60))
        return caught.value.message

    first, running, *rest = run_virtual(main()).splitlines()
    assert first == "Timed out waiting for notification"
    assert re.fullmatch(rf"  running dequeued \(QueueDequeueV2\), awaited for {SECONDS}", running)
    assert all(re.fullmatch(r"  waiting sum\d+ \(AddV2\): has x and waits for dequeued", line) for line in rest[:-1])
    assert len(rest) == 10
    assert rest[-1] == "  and 21 more"


async def test_story_of_a_node_of_a_traced_step() -> None:
    @aexec.op("InsideFails(x: float) -> y: float", stateful=True)
    def fails(x: Any) -> Any:
        raise ValueError("no")

    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [], name="x")
        fails(ops.neg(x, name="neg"), name="failing")
    async with aexec.Session(graph) as session:
        step = session.start("failing:0", {"x:0": 1}, options=aexec.RunOptions(trace=True))
        with pytest.raises(errors.UnknownError):
            await step
        assert [event.event for event in step.story("neg")] == ["ready", "started", "done"]
        ready, started, failed = step.story("failing")
        assert (ready.event, started.event, failed.event) == ("ready", "started", "failed: ValueError: no")
        assert 0 <= ready.seconds <= started.seconds <= failed.seconds
        assert failed.frame_iter == (0, 0)
        assert "failed: ValueError: no (MainThread)" in str(failed)
        assert step.story("nobody") == ()
        untraced = session.start("neg:0", {"x:0": 1})
        await untraced
        with pytest.raises(errors.FailedPreconditionError, match="is not traced"):
            untraced.story("neg")


async def test_story_of_dead_and_waiting_nodes() -> None:
    g = GraphBuilder()
    g.placeholder("x", F, [])
    g.placeholder("p", dtypes.bool_, [])
    g("switch", "Switch", "x", "p", T=F)
    g("no", "Neg", "switch:0", T=F)
    g("yes", "Neg", "switch:1", T=F)
    g("out", "Merge", "no", "yes", T=F, N=2)
    g("waits", "Unstage", "^out", dtypes=[F], shared_name=b"s")
    async with aexec.Session(g.graph()) as session:
        options = aexec.RunOptions(trace=True)
        step = session.start(["out:0", "waits:0"], {"x:0": 1, "p:0": True}, options=options)
        await until(lambda: "running waits" in step.dump())
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step
        assert [event.event for event in step.story("no")] == ["dead"]
        assert [event.event for event in step.story("switch")] == ["passed on"]
        *before, last = (event.event for event in step.story("waits"))
        assert before == ["ready", "started"]
        assert last == "cancelled" or last.startswith("failed: CancelledError")


# The step's rendezvous

register_op("InsideRendezvous(x: float) -> y: float", "fails: bool", stateful=True)
_rendezvous: list[Rendezvous] = []
_received: list[Any] = []


@kernel("InsideRendezvous", cost=0)
def _meet(c: Any) -> Any:
    """Waits for a value that is never sent, or fails."""
    c.need_context()
    fails = c.attr("fails")

    async def compute(context: Any, x: Any) -> Any:
        _rendezvous.append(context.rendezvous)
        if fails:
            raise errors.DataLossError("the cause")
        try:
            await context.rendezvous.recv("nobody sends")
        except errors.OpError as error:
            _received.append(error)
            raise
        return x

    return compute


def _meeting(*fails: bool) -> aexec.Graph:
    with aexec.Graph() as graph:
        for i, each in enumerate(fails):
            ops.inside_rendezvous(aexec.constant(float(i)), fails=each, name=f"n{i}")
    return graph


@pytest.fixture(autouse=True)
def _nothing_met_yet() -> None:
    _rendezvous.clear()
    _received.clear()


async def test_failing_step_aborts_its_rendezvous_with_the_cause() -> None:
    async with aexec.Session(_meeting(False, True)) as session:
        with pytest.raises(errors.DataLossError, match="the cause"):
            await session.run([], targets=["n0", "n1"])
    first, second = _rendezvous
    assert first is second
    assert isinstance(first.status, errors.DataLossError)


async def test_cancelled_step_aborts_its_own_rendezvous() -> None:
    async with aexec.Session(_meeting(False)) as session:
        steps = [session.start([], targets=["n0"]) for _ in range(2)]
        await until(lambda: len(_rendezvous) == 2)
        assert _rendezvous[0] is not _rendezvous[1]
        await until(lambda: all(each.statistics().receivers for each in _rendezvous))
        steps[0].cancel("not wanted")
        with pytest.raises(errors.CancelledError, match="not wanted"):
            await steps[0]
        assert _rendezvous[0].statistics().aborted
        assert not _rendezvous[1].statistics().aborted
        steps[1].cancel()
        with pytest.raises(errors.CancelledError):
            await steps[1]


async def test_values_left_in_a_rendezvous_are_freed_with_the_step() -> None:

    register_op("InsideSends(x: float) -> y: float", stateful=True)

    @kernel("InsideSends", cost=0)
    def sends(c: Any) -> Any:
        c.need_context()

        def compute(context: Any, x: Any) -> Any:
            _rendezvous.append(context.rendezvous)
            context.rendezvous.send("nobody receives", x)
            return x

        return compute

    with aexec.Graph() as graph:
        ops.inside_sends(aexec.constant(1.0), name="y")
    async with aexec.Session(graph) as session:
        step = session.start("y:0")
        assert await step == 1
        assert step.state.value == "succeeded"
    (left,) = _rendezvous
    assert left.statistics().values == 0
