"""Step statistics added up: by op, by node, in an order, as text and as data."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from aexec.runtime.interpreter import node_runner
from aexec.runtime.plans.estimate_report import EstimateReport
from aexec.runtime.profiling.profile import ProfileEntry, profile_steps
from aexec.runtime.profiling.step_stats import StepStatsCollector
from tests.support import gates
from tests.support.programs.functions import calls, function_def
from tests.support.programs.graphs import GraphBuilder

US = 1000

register_op("TestBusy(x: float) -> y: float")


@kernel("TestBusy", cost=0.0)
def _busy(c: Any) -> Any:
    return lambda x: x + 1


class Recorder:
    """Collects node runs of one step with given times, in microseconds."""

    def __init__(self) -> None:
        self.collector = StepStatsCollector("/device:CPU:0")

    def ran(self, name: str, op: str, total: int, busy: int | None = None, thread: int = 0, elements: int = 0) -> None:
        outputs = (np.zeros(elements, np.float32),) if elements else ()
        identifier = thread or threading.get_ident()
        own = None if busy is None else busy * US
        self.collector.node_done(name, op, ["x"], 0, 5 * US, (5 + total) * US, outputs, identifier, None, own)

    @property
    def stats(self) -> proto.StepStats:
        return self.collector.to_proto()


@pytest.fixture
def step() -> proto.StepStats:
    recorder = Recorder()
    recorder.ran("a", "MatMul", 300, thread=-7, elements=1000)
    recorder.ran("b", "MatMul", 100, elements=500)
    recorder.ran("c", "PartitionedCall", 500, busy=20)
    recorder.ran("d", "Relu", 50, elements=1)
    recorder.ran("d", "Relu", 30, elements=1)
    return recorder.stats


def test_nodes_of_an_op_are_added_up(step: proto.StepStats) -> None:
    profile = profile_steps([step])
    assert (profile.by, profile.steps) == ("op", 1)
    product, relu, call = profile.entries
    assert (product.name, product.op, product.nodes, product.calls) == ("MatMul", "MatMul", 2, 2)
    assert product.total_seconds == product.self_seconds == pytest.approx(400e-6)
    assert product.requested_bytes == 6000
    assert product.where == {"inline": 1, "thread": 1}
    assert (relu.name, relu.nodes, relu.calls, relu.requested_bytes) == ("Relu", 1, 2, 8)
    assert (call.total_seconds, call.self_seconds) == (pytest.approx(500e-6), pytest.approx(20e-6))
    assert call.where == {"awaited": 1}
    assert profile.self_seconds == pytest.approx(500e-6)


def test_nodes_by_themselves(step: proto.StepStats) -> None:
    profile = profile_steps([step], by="node")
    assert [(e.name, e.op, e.calls) for e in profile.entries] == [
        ("a", "MatMul", 1),
        ("b", "MatMul", 1),
        ("d", "Relu", 2),
        ("c", "PartitionedCall", 1),
    ]


@pytest.mark.parametrize(
    ("order", "names"),
    [("self", "abdc"), ("total", "cabd"), ("calls", "dabc"), ("bytes", "abdc"), ("name", "abcd")],
)
def test_order(step: proto.StepStats, order: str, names: str) -> None:
    assert "".join(e.name for e in profile_steps([step], by="node", order_by=order).entries) == names


def test_several_steps_are_averaged_in_the_table_and_added_in_the_data(step: proto.StepStats) -> None:
    other = Recorder()
    other.ran("d", "Relu", 20)
    profile = profile_steps([step, other.stats])
    relu = next(e for e in profile.entries if e.name == "Relu")
    assert (profile.steps, relu.calls, relu.nodes) == (2, 3, 1)
    assert relu.total_seconds == pytest.approx(100e-6)
    assert (
        profile.table()
        == """
op               nodes  calls  total ms  self ms   share  requested  where
MatMul               2      1     0.200    0.200   76.9%     3.00KB  inline 0.5, thread 0.5
Relu                 1    1.5     0.050    0.050   19.2%         4B  inline
PartitionedCall      1    0.5     0.250    0.010    3.8%         0B  awaited
all                  4      3     0.500    0.260  100.0%     3.00KB  awaited 0.5, inline 2, thread 0.5
""".strip()
    )


def test_table_is_cut_and_the_rest_is_summed(step: proto.StepStats) -> None:
    assert (
        profile_steps([step], by="node").table(top=1)
        == """
node    op      nodes  calls  total ms  self ms   share  requested  where
a       MatMul      1      1     0.300    0.300   60.0%     4.00KB  thread
3 more              3      4     0.680    0.200   40.0%     2.01KB  awaited 1, inline 3
all                 4      5     0.980    0.500  100.0%     6.01KB  awaited 1, inline 3, thread 1
""".strip()
    )


def test_estimates_of_nodes_are_shown_beside_them(step: proto.StepStats) -> None:
    estimates = [
        EstimateReport("a", "MatMul", "heavy", 12.34),
        EstimateReport("b", "MatMul", "unmeasured", 1.0),
        EstimateReport("none", "Relu", "measured", 0.5),
    ]
    assert (
        profile_steps([step], by="node", order_by="name").with_estimates(estimates).table(top=2)
        == """
node    op      nodes  calls  total ms  self ms   share  requested  where                          estimate
a       MatMul      1      1     0.300    0.300   60.0%     4.00KB  thread                         heavy 12x
b       MatMul      1      1     0.100    0.100   20.0%     2.00KB  inline                         unmeasured
2 more              2      3     0.580    0.100   20.0%         8B  awaited 1, inline 2
all                 4      5     0.980    0.500  100.0%     6.01KB  awaited 1, inline 3, thread 1
""".strip()
    )
    by_op = profile_steps([step])
    assert by_op.with_estimates(estimates) == by_op


def test_data_is_plain(step: proto.StepStats) -> None:
    data = profile_steps([step], order_by="bytes").to_dict()
    assert (data["by"], data["steps"]) == ("op", 1)
    assert data["entries"][0] == {
        "name": "MatMul",
        "op": "MatMul",
        "nodes": 2,
        "calls": 2,
        "total_seconds": pytest.approx(400e-6),
        "self_seconds": pytest.approx(400e-6),
        "requested_bytes": 6000,
        "where": {"inline": 1, "thread": 1},
    }


def test_delegated_call_is_self_time() -> None:
    recorder = Recorder()
    recorder.ran("region", "_DelegatedRegion", 900, busy=10)
    (entry,) = profile_steps([recorder.stats]).entries
    assert entry.self_seconds == entry.total_seconds == pytest.approx(900e-6)
    assert entry.where == {"delegate": 1}


@pytest.mark.parametrize("steps", [0, 1])
def test_profile_of_a_run_without_nodes_is_empty(steps: int) -> None:
    profile = profile_steps([Recorder().stats] * steps)
    assert profile.entries == ()
    assert profile.table().splitlines()[1].split() == ["all", "0", "0", "0.000", "0.000", "0.0%", "0B"]


@pytest.mark.parametrize("wrong", [{"by": "scope"}, {"order_by": "size"}])
def test_unknown_grouping_or_order_is_refused(wrong: dict[str, str]) -> None:
    (value,) = wrong.values()
    with pytest.raises(errors.InvalidArgumentError, match=f"must be one of .* got '{value}'"):
        profile_steps([], **wrong)


async def profiled(graph: aexec.Graph, fetch: str, feeds: dict[str, Any], gate: Any = None) -> dict[str, ProfileEntry]:
    """The nodes of a traced run by name; `gate` is opened once its kernel is there."""
    metadata = aexec.RunMetadata()
    async with aexec.Session(graph) as session:
        step = session.start(fetch, feeds, options=aexec.RunOptions(trace=True), metadata=metadata)
        if gate is not None:
            await until(gate.entered.is_set)
            gate.open.set()
        await step
    return {entry.name: entry for entry in metadata.profile(by="node").entries}


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_untraced_run_has_no_profile() -> None:
    with pytest.raises(errors.FailedPreconditionError, match="the run was not traced"):
        aexec.RunMetadata().profile()


async def test_outputs_that_are_inputs_are_no_memory() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [100], name="x")
        aexec.ops.reshape(aexec.ops.square(x, name="made"), [10, 10], name="same")
    found = await profiled(graph, "same:0", {"x:0": np.ones(100)})
    assert found["made"].requested_bytes == 400
    assert found["made"].where == {"inline": 1}
    assert found["same"].requested_bytes == 0


async def test_waiting_is_not_self_time() -> None:
    gate, g = gates.Gate(), GraphBuilder()
    g.placeholder("x", dtypes.float32, [])
    g("y", "TestGate", "x", key=gate.key, T=dtypes.float32)
    waited = (await profiled(g.graph(), "y:0", {"x:0": 1.0}, gate))["y"]
    assert waited.where == {"awaited": 1}
    assert 0 < waited.self_seconds < waited.total_seconds


async def test_profile_says_which_calls_ran_in_a_thread() -> None:
    gate, g = gates.ThreadGate(), GraphBuilder()
    g.placeholder("x", dtypes.float32, [])
    g("y", "TestThreadGate", "x", key=gate.key, T=dtypes.float32)
    offloaded = (await profiled(g.graph(), "y:0", {"x:0": 1.0}, gate))["y"]
    assert offloaded.where == {"thread": 1}
    assert offloaded.self_seconds == offloaded.total_seconds > 0


async def test_self_time_of_a_call_excludes_its_body() -> None:
    gate, g = gates.ThreadGate(), GraphBuilder()
    body = [("inside", "TestStatefulThreadGate", ["x"], {"key": gate.key, "T": dtypes.float32})]
    function = function_def("Held(x: float) -> y: float", body=body, ret={"y": "inside:y:0"}, stateful=True)
    g.graph_def.library.function.append(function)
    g.placeholder("x", dtypes.float32, [])
    g.placeholder("p", dtypes.bool_, [])
    branches = {"then_branch": calls("Held"), "else_branch": calls("Held")}
    g("y", "If", "p", "x", Tcond=dtypes.bool_, Tin=[dtypes.float32], Tout=[dtypes.float32], **branches)
    found = await profiled(g.graph(), "y:0", {"x:0": 1.0, "p:0": True}, gate)
    assert found["inside"].where == {"thread": 1}
    assert found["y"].where == {"awaited": 1}
    assert found["y"].total_seconds >= found["inside"].total_seconds
    assert found["y"].self_seconds < found["y"].total_seconds


async def test_watched_calls_do_not_correct_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    monkeypatch.setattr(node_runner, "correct_estimate", lambda node, inputs, elapsed_ns: measured.append(node.name))
    # Every call is long enough to be looked at.
    monkeypatch.setattr(node_runner, "current_budget", lambda: SimpleNamespace(measured_seconds=-1.0))
    with aexec.Graph() as graph:
        aexec.ops.clip_by_value(aexec.placeholder("float32", None, name="x"), 0.0, 1.0, name="y")
    async with aexec.Session(graph, config=aexec.SessionConfig(compile_plans=False)) as session:
        await session.run("y:0", {"x:0": 1.0}, options=aexec.RunOptions(trace=True))
        assert measured == []
        await session.run("y:0", {"x:0": 1.0})
        assert measured == ["y"]


@pytest.mark.parametrize("executor_type", ["", "SHUFFLED"])
async def test_node_is_scheduled_when_it_becomes_ready(executor_type: str) -> None:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [])
    for name in "ab":
        g(name, "TestBusy", "x")
    metadata = aexec.RunMetadata()
    async with aexec.Session(g.graph(), config=aexec.SessionConfig(executor_type=executor_type)) as session:
        await session.run(["a:0", "b:0"], {"x:0": 1.0}, options=aexec.RunOptions(trace=True), metadata=metadata)
    assert metadata.step_stats is not None
    (device,) = metadata.step_stats.dev_stats
    first, second = (stats for stats in device.node_stats if stats.node_name in "ab")
    first_ended = first.all_start_nanos + first.all_end_rel_nanos
    assert first.scheduled_nanos <= first.all_start_nanos
    assert second.scheduled_nanos <= first.all_start_nanos
    assert second.all_start_nanos >= first_ended
