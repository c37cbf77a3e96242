"""Requests whose nodes are on several devices: results, errors, cancellation, partial runs, dumps."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.device_contract.rendezvous import Rendezvous
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape import PartialTensorShape
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.runtime.interpreter.executor import NOTHING, ExecutionStatistics, register_executor
from aexec.runtime.plans.partitioned_plan import PartitionedPlan
from aexec.runtime.plans.plan import Plan
from tests.support import gates
from tests.support.collector import no_collector
from tests.support.programs.functions import calls, function_def
from tests.support.programs.graphs import GraphBuilder, chain_over_devices, counting_loop
from tests.support.waiting import assert_empty

pytestmark = pytest.mark.both_executors

F = dtypes.float32
TASK = "/job:localhost/replica:0/task:0/device:"

register_op("TestSeesArray(x: float) -> y: float")
_seen: list[Any] = []


@kernel("TestSeesArray", cost=0)
def _sees(c: Any) -> Any:
    def compute(x: Any) -> Any:
        _seen.append(x)
        return x

    return compute


register_op("TestSeesCell(x: Ref(float)) -> y: float")


@kernel("TestSeesCell", cost=0)
def _sees_cell(c: Any) -> Any:
    def compute(x: Any) -> Any:
        _seen.append(x)
        return np.float32(0)

    return compute


# Devices of the host, and such as have memory and streams of their own.
KINDS = ("CPU", "SIM")


def config(**settings: Any) -> aexec.SessionConfig:
    return aexec.SessionConfig(device_count={"CPU": 4, "SIM": 3}, graph_passes=(), **settings)


def session(g: GraphBuilder, kind: str = "CPU", **settings: Any) -> aexec.Session:
    """Of a graph for several CPUs; `kind` is what all but the first of these are."""
    for node in g.graph_def.node:
        if kind != "CPU" and node.device.startswith("/cpu:") and node.device != "/cpu:0":
            node.device = f"/device:{kind}:{int(node.device[-1]) - 1}"
    return aexec.Session(g.graph(), config=config(**settings))


async def values(g: GraphBuilder, fetches: Any, feeds: Mapping[str, Any] | None = None, kind: str = "CPU") -> Any:
    async with session(g, kind) as opened:
        return await opened.run(fetches, feeds)


@pytest.mark.parametrize("kind", KINDS)
async def test_values_travel(kind: str, made_rendezvous: list[Rendezvous]) -> None:
    assert await values(chain_over_devices(), ["last:0", "n2:0"], {"x:0": 3.0}, kind) == [-3, -3]
    assert_empty(made_rendezvous)
    if made_rendezvous:  # else it was compiled, and all devices are the host's
        assert made_rendezvous[0].statistics().received == 5 == made_rendezvous[0].statistics().sent


async def test_request_on_one_device_is_not_split() -> None:
    g = chain_over_devices(1)
    for node in g.graph_def.node:
        node.device = "/cpu:2"
    async with session(g) as opened:
        call = opened.make_callable("last:0", ["x:0"])
        assert await call(2.0) == -2
        assert isinstance(call.plan, Plan)
        other = session(chain_over_devices())
        async with other:
            split = other.make_callable("last:0", ["x:0"])
            assert await split(2.0) == -2
            assert isinstance(split.plan, PartitionedPlan)
            assert split.num_plan_nodes == 5 + 2 * 4
            assert (await other.plan_source(split)).count("(Neg)") == 5
            assert await other.regions(split) == []


@pytest.mark.parametrize("places", [{"add": 1}, {"body": 1, "add": 2}, {"less": 1}, {"merge": 3, "cond": 2}])
@pytest.mark.parametrize("iterations", [0, 1, 25])
@pytest.mark.parametrize("kind", KINDS)
async def test_loops_over_devices(
    places: dict[str, int], iterations: int, kind: str, made_rendezvous: list[Rendezvous]
) -> None:
    g = counting_loop(parallel_iterations=3)
    for node in g.graph_def.node:
        node.device = f"/cpu:{places.get(node.name, 0)}"
    assert await values(g, "result:0", {"n:0": iterations}, kind) == iterations
    assert_empty(made_rendezvous)


@pytest.mark.parametrize("iterations", [0, 1, 25])
@pytest.mark.parametrize("kind", KINDS)
async def test_loop_invariant_is_sent_in_every_iteration(iterations: int, kind: str) -> None:
    """The invariant is computed on a device that has no other node of the loop."""
    g = counting_loop(parallel_iterations=3)
    g("doubled", "AddV2", "enter_one", "enter_one", device="/cpu:1", T=dtypes.int32)
    g("again", "Sub", "doubled", "enter_one", device="/cpu:2", T=dtypes.int32)
    for node in g.graph_def.node:
        if node.name == "add":
            node.input[1] = "again"
    assert await values(g, "result:0", {"n:0": iterations}, kind) == iterations


async def test_device_with_an_unfinished_loop_is_done_when_nothing_is_left() -> None:
    """This holds even if its last node ran in the turn of the device that sent the value."""
    g = GraphBuilder()
    g.placeholder("x")
    g.placeholder("p", dtypes.bool_)
    g("switch", "Switch", "x", "p", T=F)
    frame = {"frame_name": b"loop", "T": F}
    g("enter", "Enter", "x", **frame)
    g("enter_dead", "Enter", "switch", **frame)
    g("merge", "Merge", "enter", "next", T=F, N=2)
    g.const("zero", np.float32(0), F, "^merge")
    g("positive", "Greater", "merge", "zero", T=F)
    g("cond", "LoopCond", "positive")
    g("goes_on", "Switch", "merge", "cond", T=F)
    g("negative", "Neg", "goes_on:1", T=F)
    g("next", "NextIteration", "negative", T=F)
    # Whatever died in an iteration before the last never leaves the loop, dead or alive: the other loop waits for it.
    g("exit", "Exit", "enter_dead", T=F)
    g("enter_other", "Enter", "exit", frame_name=b"other", T=F)
    g("enter_live", "Enter", "x", frame_name=b"other", T=F)
    g("sum", "AddV2", "enter_other", "enter_live", T=F)
    g("there", "Neg", "x", device="/cpu:1", T=F)
    g("back", "Neg", "there", device="/cpu:0", T=F)
    async with session(g) as opened:
        assert await asyncio.wait_for(opened.run("back:0", {"x:0": 3.0, "p:0": True}, ["sum", "goes_on"]), 10) == 3


@pytest.mark.default_executor
async def test_loop_that_ends_on_one_device_ends_on_all(made_rendezvous: list[Rendezvous]) -> None:
    """Its predicate is true, but what would enter the next iteration is dead: nobody sends what others wait for.

    What comes of it is what comes of it on one device.
    """
    g = GraphBuilder()
    g.placeholder("x")
    g.placeholder("p", dtypes.bool_)
    g("switch", "Switch", "x", "p", T=F)
    g("enter", "Enter", "x", frame_name=b"loop", T=F)
    g("step", "Enter", "switch", frame_name=b"loop", is_constant=True, T=F)
    g("merge", "Merge", "enter", "next", T=F, N=2)
    g.const("zero", np.float32(0), F, "^merge")
    g("positive", "Greater", "merge", "zero", T=F)
    g("cond", "LoopCond", "positive")
    g("goes_on", "Switch", "merge", "cond", T=F)
    g("there", "Neg", "goes_on:1", device="/cpu:1", T=F)
    g("less", "Sub", "goes_on:1", "step", "^there", T=F)
    g("next", "NextIteration", "less", T=F)
    g("exit", "Exit", "goes_on:0", T=F)
    async with session(g) as opened:
        for _ in range(3):
            with pytest.raises(errors.InvalidArgumentError, match=r"Retval\[0\] does not have value"):
                await asyncio.wait_for(opened.run("exit:0", {"x:0": 1.0, "p:0": True}), 10)
            assert await asyncio.wait_for(opened.run("exit:0", {"x:0": 1.0, "p:0": False}), 10) == 0
    assert_empty(made_rendezvous)


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_untaken_branch_is_dead_on_other_devices(taken: bool, kind: str) -> None:
    g = GraphBuilder()
    g.placeholder("p", dtypes.bool_)
    g.const("x", np.float32(2))
    g("switch", "Switch", "x", "p", T=F)
    g("no", "Neg", "switch", device="/cpu:1", T=F)
    g("yes", "Square", "switch:1", device="/cpu:2", T=F)
    g("merge", "Merge", "no", "yes", device="/cpu:3", T=F, N=2)
    async with session(g, kind) as opened:
        assert await opened.run(["merge:0", "merge:1"], {"p:0": taken}) == ([4, 1] if taken else [-2, 0])
        with pytest.raises(errors.InvalidArgumentError, match=r"Retval\[0\] does not have value"):
            await opened.run("no:0" if taken else "yes:0", {"p:0": taken})


async def test_dead_result_does_not_stop_other_devices() -> None:
    """As on one device, the other fetches are computed before the error is raised."""
    gate = gates.Gate()
    g = GraphBuilder()
    g.placeholder("p", dtypes.bool_)
    g.const("x", np.float32(2))
    g("switch", "Switch", "x", "p", T=F)
    g("gated", "TestGate", "x", device="/cpu:1", key=gate.key, T=F)
    g("v", "VariableV2", device="/cpu:1", shape=PartialTensorShape(()), dtype=F)
    g("assign", "Assign", "v", "gated", device="/cpu:1", T=F)
    async with session(g) as opened:
        step = opened.start("switch:0", {"p:0": True}, ["assign"])
        await gate.entered.wait()
        gate.open.set()
        with pytest.raises(errors.InvalidArgumentError, match="does not have value"):
            await step
        assert await opened.run("v:0") == 2


def failing_beside(gate: Any, op: str = "TestGate") -> GraphBuilder:
    """`fails` on one device while `gated` waits on another, and `after` for both on a third."""
    g = GraphBuilder()
    g.placeholder("x")
    g("fails", "TestFail", "x", device="/cpu:1", T=F)
    g("gated", op, "x", device="/cpu:2", key=gate.key, T=F)
    g("after", "AddV2", "fails", "gated", device="/cpu:3", T=F)
    return g


async def test_error_on_one_device_stops_the_others(made_rendezvous: list[Rendezvous]) -> None:
    gate = gates.Gate()
    async with session(failing_beside(gate)) as opened:
        with pytest.raises(errors.InvalidArgumentError, match="failed on purpose") as caught:
            await opened.run("after:0", {"x:0": 1.0})
    assert (caught.value.node, caught.value.derived) == ("fails", False)
    assert gate.cancelled == gate.count
    assert_empty(made_rendezvous)
    assert made_rendezvous[0].status is not None


async def floats_round_a_loop(kind: str) -> Any:
    """A loop that halves and negates `x` on two devices while a third device finds it above one."""
    g = GraphBuilder()
    frame = {"frame_name": b"w", "T": F}
    g.placeholder("x")
    g.const("half", np.float32(0.5))
    g.const("one", np.float32(1))
    g("enter", "Enter", "x", device="/cpu:1", **frame)
    g("enter_half", "Enter", "half", device="/cpu:1", is_constant=True, **frame)
    g("enter_one", "Enter", "one", device="/cpu:3", is_constant=True, **frame)
    g("merge", "Merge", "enter", "next", device="/cpu:1", T=F, N=2)
    g("large", "Abs", "merge", device="/cpu:3", T=F)
    g("more", "Greater", "large", "enter_one", device="/cpu:3", T=F)
    g("cond", "LoopCond", "more", device="/cpu:3")
    g("switch", "Switch", "merge", "cond", device="/cpu:1", T=F)
    g("halved", "Mul", "switch:1", "enter_half", device="/cpu:1", T=F)
    g("negated", "Neg", "halved", device="/cpu:2", T=F)
    g("next", "NextIteration", "negated", device="/cpu:1", T=F)
    g("result", "Exit", "switch", device="/cpu:1", T=F)
    async with session(g, kind) as opened:
        return [await opened.run("result:0", {"x:0": x}) for x in (100.0, 1.0, 3.0)]


@pytest.mark.parametrize("kind", KINDS)
async def test_values_that_change_place_in_every_iteration(kind: str, made_rendezvous: list[Rendezvous]) -> None:
    assert await floats_round_a_loop(kind) == [-100 / 128, 1, 0.75]
    assert_empty(made_rendezvous)


async def test_failure_ends_the_step_while_another_device_works(made_rendezvous: list[Rendezvous]) -> None:
    g = chain_over_devices(4)
    g("fails", "TestFail", "n0", device="/cpu:0", T=F)
    g("both", "AddV2", "fails", "last", device="/cpu:0", T=F)
    async with session(g, "SIM") as opened:
        with pytest.raises(errors.InvalidArgumentError, match="failed on purpose") as caught:
            await opened.run("both:0", {"x:0": 1.0})
        assert caught.value.node == "fails"
        assert await opened.run("last:0", {"x:0": 1.0}) == 1
    assert_empty(made_rendezvous)


@pytest.mark.parametrize("fails", [["fails:0"], ["fails:0", "fails_too:0"]])
@pytest.mark.default_executor
async def test_failed_step_frees_values_without_the_garbage_collector(fails: list[str]) -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g("fails", "TestFail", "x", device="/cpu:1", T=F)
    g("fails_too", "TestFail", "x", device="/cpu:2", T=F)
    async with session(g) as opened:
        await opened.run("x:0", {"x:0": 1.0})
        gc.collect()
        with no_collector():
            fed = np.ones(100_000, np.float32)
            alive = weakref.ref(fed)
            with suppress(errors.InvalidArgumentError):
                await opened.run(fails, {"x:0": fed})
                pytest.fail("it did not fail")
            del fed
            assert alive() is None


@pytest.mark.parametrize("place", [0, 1, 3])
async def test_cancelling_and_deadlines_reach_every_device(place: int, made_rendezvous: list[Rendezvous]) -> None:
    gate = gates.Gate()
    g = chain_over_devices()
    g("gated", "TestGate", "last", device=f"/cpu:{place}", key=gate.key, T=F)
    g("after", "Neg", "gated", device="/cpu:2", T=F)
    async with session(g) as opened:
        step = opened.start("after:0", {"x:0": 1.0})
        await gate.entered.wait()
        assert "gated" in [running.node.name for running in step.execution.running()]
        assert step.cancel("enough")
        with pytest.raises(errors.CancelledError, match="enough") as caught:
            await step
        assert not caught.value.derived
        gate.entered.clear()
        task = asyncio.create_task(opened.run("after:0", {"x:0": 1.0}))
        await gate.entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(errors.DeadlineExceededError):
            await opened.run("after:0", {"x:0": 1.0}, options=aexec.RunOptions(timeout=0.01))
        assert gate.cancelled == gate.count
        assert not opened.steps
        gate.open.set()
        assert await opened.run("after:0", {"x:0": 1.0}) == 1
    assert_empty(made_rendezvous)
    assert len(made_rendezvous) >= 3  # a deadline may pass before anything is sent


async def test_stateful_kernel_in_a_thread_is_waited_for() -> None:
    gate = gates.ThreadGate()
    async with session(failing_beside(gate, "TestStatefulThreadGate")) as opened:
        step = opened.start("gated:0", {"x:0": 1.0})
        await asyncio.to_thread(gate.entered.wait)
        step.cancel()
        await asyncio.sleep(0)
        assert not step.done
        gate.open.set()
        with pytest.raises(errors.CancelledError):
            await step
        assert gate.left.is_set()


async def test_partial_run_crosses_devices() -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g.placeholder("y")
    g("a", "Neg", "x", device="/cpu:1", T=F)
    g("b", "AddV2", "a", "y", device="/cpu:2", T=F)
    async with session(g) as opened:
        setup = await opened.partial_run_setup(["a:0", "b:0"], ["x:0", "y:0"])
        assert await opened.partial_run(setup, "a:0", {"x:0": 1.0}) == -1
        assert list(setup.execution.unfed()) == [1]
        assert await opened.partial_run(setup, "b:0", {"y:0": 3.0}) == 2
        assert setup.done


async def test_callables_and_functions() -> None:
    g = GraphBuilder()
    body = [("n", "Square", ["x"], {"T": F})]
    g.graph_def.library.function.append(function_def("Squared(x: float) -> y: float", body=body, ret={"y": "n:y:0"}))
    g.placeholder("x")
    g("y", "PartitionedCall", "x", device="/cpu:1", Tin=[F], Tout=[F], f=calls("Squared"))
    g("z", "Neg", "y", device="/cpu:2", T=F)
    for inlined in ((), ("function_inlining",)):
        async with aexec.Session(g.graph(), config=replace(config(), graph_passes=inlined)) as opened:
            call = opened.make_callable("z:0", ["x:0"])
            assert [await call(value) for value in (1.0, 2.0, 3.0)] == [-1, -4, -9]


async def test_dump_and_repr_show_all_partitions() -> None:
    gate = gates.Gate()
    g = GraphBuilder()
    g.placeholder("x")
    g("gated", "TestGate", "x", device="/cpu:1", key=gate.key, T=F)
    g("other", "Neg", "x", device="/cpu:2", T=F)
    g("both", "AddV2", "gated", "other", device="/cpu:2", T=F)
    async with session(g) as opened:
        step = opened.start("both:0", {"x:0": 1.0})
        await gate.entered.wait()
        ops: list[str] = []
        while ops != ["TestGate", "_Recv", "_Recv"]:  # what has come by then is done
            await asyncio.sleep(0)
            ops = sorted(running.node.op for running in step.execution.running())
        assert step.statistics().running == 3
        assert step.statistics().nodes == 3 + 2 * 4
        assert "both" in [waiting.node.name for waiting in step.execution.waiting()]
        assert "gated" in step.dump()
        gate.open.set()
        assert await step == 0


async def test_transfers_are_traced_where_they_are() -> None:
    metadata = aexec.RunMetadata()
    async with session(chain_over_devices()) as opened:
        await opened.run("last:0", {"x:0": 1.0}, options=aexec.RunOptions(trace=True), metadata=metadata)
    assert metadata.step_stats is not None
    labels = {
        stats.device.removeprefix(TASK): [n.timeline_label for n in stats.node_stats if "/_" in n.node_name]
        for stats in metadata.step_stats.dev_stats
    }
    assert set(labels) == {"CPU:0", "CPU:1", "CPU:2", "CPU:3"}
    (sent,) = (label for label in labels["CPU:2"] if " = _Send(" in label)
    assert sent.endswith(f" @{TASK}CPU:3")
    (received,) = (label for label in labels["CPU:3"] if " = _Recv(" in label)
    assert received.endswith(f" @{TASK}CPU:2")


async def test_transfers_share_a_large_value() -> None:
    g = chain_over_devices(2)
    fed = np.ones(100_000, np.float32)
    _seen.clear()
    g("seen", "TestSeesArray", "x", device="/cpu:3")
    await values(g, ["seen:0", "last:0"], {"x:0": fed})
    (found,) = _seen
    assert found is fed


class _Failing:
    """An executor that fails once all of the step's have been started, each on its own."""

    started = 0

    def __init__(self, plan: Plan, environment: Any, cancellation: CancellationManager, on_result: Any = None) -> None:
        self.plan = plan

    async def run(self, feeds: Sequence[Any]) -> list[Any]:
        _Failing.started += 1
        await asyncio.sleep(0)
        device = next((node.device for node in self.plan.nodes if node.device), "").rpartition("/")[2]
        if device == "device:CPU:3":
            raise errors.AbortedError("only follows", derived=True)
        raise errors.InvalidArgumentError(f"on {device}")

    def statistics(self) -> ExecutionStatistics:
        return NOTHING


register_executor("TestFailing", _Failing)  # type: ignore[arg-type]  # as much of one as is asked for


@pytest.mark.default_executor
async def test_several_errors_of_their_own_are_summed_up() -> None:
    async with session(chain_over_devices(), executor_type="TestFailing") as opened:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            await opened.run("last:0", {"x:0": 1.0})
    assert caught.value.message.splitlines() == [
        "3 root error(s) found.",
        "  (0) INVALID_ARGUMENT: on device:CPU:0",
        "  (1) INVALID_ARGUMENT: on device:CPU:1",
        "  (2) INVALID_ARGUMENT: on device:CPU:2",
        "0 successful operations.",
        "1 derived errors ignored.",
    ]


@pytest.mark.default_executor
@pytest.mark.parametrize("kind", KINDS)
async def test_compressed_transfers_drop_the_lower_half_of_the_bits(kind: str) -> None:
    x = np.array([1.0, np.pi, -1e-20, 3e38, np.inf, 1.00390625 + 2**-9], np.float32)
    truncated = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    async with session(chain_over_devices(2), kind, compress_transfers=True) as opened:
        np.testing.assert_array_equal(await opened.run("last:0", {"x:0": x}), truncated)
    async with session(chain_over_devices(1), compress_transfers=True) as opened:  # nothing travels
        np.testing.assert_array_equal(await opened.run("last:0", {"x:0": x}), -x)


async def test_receives_that_are_held_back_change_nothing() -> None:
    g = chain_over_devices(400)
    g("late", "AddV2", "last", "n1", device="/cpu:0", T=F)
    async with session(g, schedule_receives=True) as opened:
        metadata = aexec.RunMetadata()
        options = aexec.RunOptions(output_partition_graphs=True)
        assert await opened.run("late:0", {"x:0": 3.0}, options=options, metadata=metadata) == 6
        assert any(n.op == "ControlTrigger" for graph in metadata.partition_graphs for n in graph.node)
        # What is fed in parts waits for nothing but what it needs.
        setup = await opened.partial_run_setup(["n0:0", "late:0"], ["x:0"])
        assert await opened.partial_run(setup, ["n0:0", "late:0"], {"x:0": 1.0}) == [-1, 2]


async def test_graph_may_have_its_own_sends_and_receives() -> None:
    ends = {"tensor_name": b"e", "send_device": b"/cpu:0", "send_device_incarnation": 1, "recv_device": b"/cpu:0"}
    g = GraphBuilder()
    g.placeholder("x")
    g("send", "Send", "x", T=F, **ends)
    g("received", "Recv", tensor_type=F, **ends)
    g("y", "Neg", "received", T=F)
    async with aexec.Session(g.graph()) as opened:
        call = opened.make_callable("y:0", ["x:0"], ["send"])
        assert [await call(value) for value in (1.0, 2.0, 3.0, 4.0)] == [-1, -2, -3, -4]
        with pytest.raises(errors.UnimplementedError, match="is one end of a transfer between devices"):
            await opened.plan_source(call)


async def test_variable_that_a_thread_writes_is_sent_when_it_is_written() -> None:
    """The Send finds its variable taken, and runs again."""
    g = GraphBuilder()
    g("v", "VariableV2", dtype=F, shape=PartialTensorShape([1]), device="/cpu:0")
    g("init", "Assign", "v", g.const("one", np.ones(1, np.float32)), T=F, device="/cpu:0")
    g("cell", "TestSeesCell", "v", device="/cpu:0")
    g("x", "Placeholder", dtype=F, device="/cpu:0")
    g("other", "Neg", "x", T=F, device="/cpu:0")
    g("sum", "Add", "v", "other", T=F, device="/cpu:1")
    began, go_on = threading.Event(), threading.Event()

    def slow(value: Any, out: Any) -> Any:
        began.set()
        assert go_on.wait(60)
        return np.add(value, np.float32(1), out)

    async with session(g) as opened:
        await opened.run([], targets=["init"])
        await opened.run("cell:0")
        for number in range(3):
            began.clear(), go_on.clear()
            writing = asyncio.create_task(asyncio.to_thread(_seen[-1].update, slow))
            await asyncio.to_thread(began.wait, 30)
            running = asyncio.ensure_future(opened.run("sum:0", {"x:0": np.zeros(1, np.float32)}))
            while not (opened.steps and "postponed" in str(opened.steps[0].dump())):
                await asyncio.sleep(0)
            assert not running.done()
            go_on.set()
            assert (await running).tolist() == [number + 2]
            await writing
