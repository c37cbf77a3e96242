"""Executing a plan: order, control flow, frames, where kernels run, devices, sharing, factories."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import BuiltKernel
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape import PartialTensorShape
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Node
from aexec.graph.op_functions import create_node
from aexec.runtime.interpreter import node_runner
from aexec.runtime.interpreter.propagator_state import PropagatorState
from aexec.runtime.plans.plan import Plan, PlanKey
from aexec.runtime.plans.plan_builder import build_plan
from aexec.runtime.session import session_classes
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder, counting_loop

pytestmark = pytest.mark.both_executors

F = dtypes.float32


def switched() -> GraphBuilder:
    """`out` is `-x` if `p`, else `x * x`; the branches meet in a Merge."""
    g = GraphBuilder()
    g.placeholder("x", F, [])
    g.placeholder("p", dtypes.bool_, [])
    g("switch", "Switch", "x", "p", T=F)
    g("no", "Square", "switch:0", T=F)
    g("yes", "Neg", "switch:1", T=F)
    g("out", "Merge", "no", "yes", T=F, N=2)
    g("which", "Identity", "out:1", T=dtypes.int32)
    return g


def nested_loops() -> GraphBuilder:
    """`s = 0; for i in range(n): for j in range(i): s += 1`, as raw frames; feed `n`, fetch `result`."""
    g = GraphBuilder()
    int32 = dtypes.int32
    g.placeholder("n", int32, [])
    g.const("zero", 0, int32)
    g.const("one", 1, int32)

    def enter(name: str, source: str, frame: str, constant: bool = False) -> str:
        return g(name, "Enter", source, frame_name=frame.encode(), is_constant=constant, T=int32)

    enter("i0", "zero", "outer")
    enter("s0", "zero", "outer")
    enter("n0", "n", "outer", constant=True)
    enter("one0", "one", "outer", constant=True)
    enter("zero0", "zero", "outer", constant=True)
    g("i", "Merge", "i0", "i_next", T=int32, N=2)
    g("s", "Merge", "s0", "s_next", T=int32, N=2)
    g("more", "LoopCond", g("i_less", "Less", "i", "n0", T=int32))
    g("i_switch", "Switch", "i", "more", T=int32)
    g("s_switch", "Switch", "s", "more", T=int32)
    g("i_body", "Identity", "i_switch:1", T=int32)
    g("s_body", "Identity", "s_switch:1", T=int32)
    g("zero_body", "Identity", "zero0", "^i_body", T=int32)

    enter("j0", "zero_body", "inner")
    enter("t0", "s_body", "inner")
    enter("i1", "i_body", "inner", constant=True)
    enter("one1", "one0", "inner", constant=True)
    g("j", "Merge", "j0", "j_next", T=int32, N=2)
    g("t", "Merge", "t0", "t_next", T=int32, N=2)
    g("more_inner", "LoopCond", g("j_less", "Less", "j", "i1", T=int32))
    g("j_switch", "Switch", "j", "more_inner", T=int32)
    g("t_switch", "Switch", "t", "more_inner", T=int32)
    g("j_next", "NextIteration", g("j_add", "AddV2", "j_switch:1", "one1", T=int32), T=int32)
    g("t_next", "NextIteration", g("t_add", "AddV2", "t_switch:1", "one1", T=int32), T=int32)
    g("t_out", "Exit", "t_switch:0", T=int32)

    g("i_next", "NextIteration", g("i_add", "AddV2", "i_body", "one0", T=int32), T=int32)
    g("s_next", "NextIteration", "t_out", T=int32)
    g("result", "Exit", "s_switch:0", T=int32)
    return g


def plan_of(graph: Graph, fetches: list[str], feeds: tuple[str, ...] = ()) -> Plan:
    """A plan whose kernels are not called."""

    def no_kernel(_: Node) -> BuiltKernel:
        return BuiltKernel(lambda *inputs: None, False)

    endpoints = [graph.tensor(name).endpoint for name in fetches]
    return build_plan(graph, PlanKey(tuple(graph.tensor(n).endpoint for n in feeds), tuple(endpoints)), no_kernel)


class TestPendingCounts:
    """A node is ready when its last input and its last control edge have come."""

    def test_node_is_ready_when_its_pending_count_is_zero(self) -> None:
        g = GraphBuilder()
        g.placeholder("a")
        g.placeholder("b")
        g("neg", "Neg", "a", T=F)
        g("sum", "AddV2", "neg", "b", "^neg", T=F)
        plan = plan_of(g.graph(), ["sum:0"], ("a:0", "b:0"))
        pending = {n.name: plan.root.pending[n.index] for n in plan.nodes}
        assert pending == {"neg": 1, "sum": 3}

        state = PropagatorState(plan)
        state.feed([np.float32(1), np.float32(2)])
        (root,) = state.active
        (neg,) = root.ready
        assert neg.name == "neg"
        root.ready.clear()
        assert root.take(neg) == [1]
        state.node_done(root, neg, np.float32(-1))
        assert [n.name for n in root.ready] == ["sum"]
        assert root.take(root.ready.pop()) == [-1, 2]
        state.validate()

    def test_plan_has_only_the_needed_nodes(self) -> None:
        g = switched()
        g("aside", "Neg", "x", T=F)
        plan = plan_of(g.graph(), ["no:0"], ("x:0", "p:0"))
        assert {n.name for n in plan.nodes} == {"switch", "no"}

    def test_feeding_an_inner_tensor_cuts_off_what_made_it(self) -> None:
        plan = plan_of(switched().graph(), ["out:0"], ("switch:0", "switch:1"))
        assert {n.name for n in plan.nodes} == {"no", "yes", "out"}


class TestDeadness:
    @pytest.mark.parametrize(("p", "out", "which"), [(True, -3.0, 1), (False, 9.0, 0)])
    async def test_merge_takes_the_branch_that_lives(self, p: bool, out: float, which: int) -> None:
        async with aexec.Session(switched().graph()) as session:
            assert await session.run(["out:0", "which:0"], {"x:0": 3, "p:0": p}) == [out, which]

    async def test_dead_fetch_is_an_error_and_a_dead_target_none(self) -> None:
        async with aexec.Session(switched().graph()) as session:
            feeds = {"x:0": 3, "p:0": True}
            with pytest.raises(errors.InvalidArgumentError, match=r"Retval\[1\] does not have value"):
                await session.run(["yes:0", "no:0"], feeds)
            assert await session.run("yes:0", feeds, targets=["no"]) == -3

    async def test_dead_control_input_makes_a_node_dead(self) -> None:
        g = switched()
        g("after", "Identity", "x", "^no", T=F)
        async with aexec.Session(g.graph()) as session:
            with pytest.raises(errors.InvalidArgumentError, match="does not have value"):
                await session.run("after:0", {"x:0": 3, "p:0": True})
            assert await session.run("after:0", {"x:0": 3, "p:0": False}) == 3


class TestFrames:
    """One node, many values: one per iteration of each instance of its frame."""

    @pytest.mark.parametrize("parallel", [1, 2, 10])
    async def test_loop_counts(self, parallel: int) -> None:
        async with aexec.Session(counting_loop(parallel).graph()) as session:
            assert await session.run("result:0", {"n:0": 37}) == 37

    @pytest.mark.parametrize("n", [0, 1, 6])
    async def test_nested_loops_count(self, n: int) -> None:
        async with aexec.Session(nested_loops().graph()) as session:
            assert await session.run("result:0", {"n:0": n}) == n * (n - 1) // 2

    async def test_inputs_from_different_frames_are_refused(self) -> None:
        g = counting_loop()
        g("mixed", "AddV2", "body", "one", T=dtypes.int32)
        async with aexec.Session(g.graph()) as session:
            with pytest.raises(errors.InvalidArgumentError, match="has inputs from different frames"):
                await session.run("mixed:0", {"n:0": 1})


class TestWhereKernelsRun:
    """Cheap ones inline, heavy ones in a worker thread, coroutines as tasks."""

    @pytest.mark.default_executor
    async def test_kernels_run_inline_or_in_threads_by_their_cost(self) -> None:
        ran_in: dict[str, str] = {}

        def noting(c: Any) -> Any:
            def compute(x: Any) -> Any:
                ran_in[c.name] = threading.current_thread().name
                return x

            return compute

        for op, cost in (("TestCheap", 1.0), ("TestHeavy", lambda x: 1e9), ("TestFree", 0)):
            register_op(f"{op}(x: float) -> y: float")
            kernel(op, cost=cost)(noting)
        g = GraphBuilder()
        g.const("small", np.ones(4, np.float32))
        g.const("large", np.ones(4_000_000, np.float32))
        g("cheap", "TestCheap", "small")
        g("heavy", "TestHeavy", "small")
        g("much", "TestCheap", "large")
        g("free", "TestFree", "large")
        async with aexec.Session(g.graph()) as session:
            await session.run([], targets=["cheap", "heavy", "much", "free"])
        here = threading.current_thread().name
        assert (ran_in["cheap"], ran_in["free"]) == (here, here)
        assert ran_in["heavy"].startswith("aexec-worker")
        assert ran_in["much"].startswith("aexec-worker")

    @pytest.mark.default_executor
    async def test_first_call_is_made_in_a_thread_unless_it_is_very_light(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The estimate may be far too low; so the first call must not hold the loop."""
        monkeypatch.setattr(node_runner, "correct_estimate", lambda *_: None)  # on a busy machine any may look slow
        ran_in: list[bool] = []
        here = threading.current_thread()

        def noting(c: Any) -> Any:
            def compute(x: Any) -> Any:
                ran_in.append(threading.current_thread() is here)
                return x

            return compute

        register_op("TestDoubted(x: float) -> y: float")
        kernel("TestDoubted", cost=1.0)(noting)
        g = GraphBuilder()
        g.placeholder("x", F)
        g("y", "TestDoubted", "x")
        for count, first in ((30_000, True), (300_000, False)):  # 0.03 ms and 0.3 ms, where 0.5 ms are allowed
            ran_in.clear()
            async with aexec.Session(g.graph()) as session:
                for _ in range(2):
                    await session.run("y:0", {"x:0": np.ones(count, np.float32)})
            assert ran_in == [first, True]

    @pytest.mark.parametrize("op", ["Pad", "PadV2", "MirrorPad"])
    async def test_failing_estimate_leaves_the_error_to_the_kernel(self, op: str) -> None:
        """An estimate does not check the inputs; here paddings lack a row for a dimension."""
        with aexec.Graph() as graph:
            x = aexec.placeholder("float32", name="x")
            paddings = aexec.placeholder("int32", name="paddings")
            more = {"Pad": {}, "PadV2": {"constant_values": 1.0}, "MirrorPad": {}}[op]
            attrs = {"mode": "REFLECT"} if op == "MirrorPad" else {}
            create_node(op, {"input": x, "paddings": paddings, **more}, attrs, name="y")
        async with aexec.Session(graph) as session:
            for wrong in ([[1, 1]], [[1, 1]] * 3, np.zeros((0, 2), np.int32)):
                with pytest.raises(errors.InvalidArgumentError, match="paddings must be the rank of inputs") as caught:
                    await session.run("y:0", {"x:0": np.ones((2, 3)), "paddings:0": wrong})
                assert caught.value.node == "y"
            for wrong in ([1, 1], 3, [[1, 1, 1]] * 2):
                with pytest.raises(errors.InvalidArgumentError, match="paddings must be a matrix with 2 columns"):
                    await session.run("y:0", {"x:0": np.ones((2, 3)), "paddings:0": wrong})

    @pytest.mark.default_executor
    async def test_kernel_measured_as_slow_goes_to_a_thread(self) -> None:
        """Measurement overrides the estimate, also for a kernel without inputs."""
        ran_in: dict[str, str] = {}

        def slow(c: Any) -> Any:
            def compute(*inputs: Any) -> Any:
                ran_in[c.name] = threading.current_thread().name
                end = time.perf_counter() + 0.002
                while time.perf_counter() < end:
                    pass
                return np.float32(1)

            return compute

        register_op("TestSlow(x: float) -> y: float")
        register_op("TestSlowSource() -> y: float", stateful=True)
        kernel("TestSlow")(slow)
        kernel("TestSlowSource")(slow)
        g = GraphBuilder()
        g.const("c", np.float32(1))
        g("slow", "TestSlow", "c")
        g("source", "TestSlowSource")
        async with aexec.Session(g.graph()) as session:
            for name in ("slow", "source"):
                await session.run(f"{name}:0")
                assert ran_in[name] == threading.current_thread().name
                # How many runs that takes depends on how long the calls took by the clock.
                for _ in range(30):
                    await session.run(f"{name}:0")
                assert ran_in[name].startswith("aexec-worker")

    @pytest.mark.default_executor
    async def test_interrupted_call_makes_few_detours_through_threads(self) -> None:
        """The call was slow because the machine was busy; later calls show that."""
        ran_in: list[str] = []

        def interrupted(c: Any) -> Any:
            def compute(x: Any) -> Any:
                ran_in.append(threading.current_thread().name)
                end = time.perf_counter() + 0.02
                while len(ran_in) == 1 and time.perf_counter() < end:
                    pass
                return x

            return compute

        register_op("TestInterrupted(x: float) -> y: float")
        kernel("TestInterrupted")(interrupted)
        g = GraphBuilder()
        g.const("c", np.float32(1))
        g("y", "TestInterrupted", "c")
        async with aexec.Session(g.graph()) as session:
            for _ in range(30):
                await session.run("y:0")
        assert 1 <= sum(name.startswith("aexec-worker") for name in ran_in) <= 8

    @pytest.mark.default_executor
    async def test_waiting_for_a_thread_does_not_count_as_work(self) -> None:
        """The time that kernels wait for a thread does not raise their estimates."""
        first, second = gates.ThreadGate(), gates.ThreadGate()
        g = GraphBuilder()
        g.const("c", np.float32(1))
        g("one", "TestThreadGate", "c", key=first.key, T=F)
        g("two", "TestThreadGate", "c", key=second.key, T=F)
        g("heavy", "TestQueued", "c")
        register_op("TestQueued(x: float) -> y: float")
        kernel("TestQueued", cost=lambda x: 1e6)(lambda c: lambda x: x)
        config = aexec.SessionConfig(inter_op_threads=2)
        async with aexec.Session(g.graph(), config=config) as session:
            held = session.start(["one:0", "two:0"])
            await asyncio.to_thread(first.entered.wait)
            await asyncio.to_thread(second.entered.wait)
            queued = session.start("heavy:0")
            while session.statistics().pool.submitted < 3:
                await asyncio.sleep(0)
            began = time.perf_counter()
            while time.perf_counter() < began + 0.02:
                await asyncio.sleep(0)
            first.open.set()
            second.open.set()
            await asyncio.gather(held, queued)
            plan = session.make_callable("heavy:0").prepared(session._planner)
            assert plan is not None
            assert next(n for n in plan.plan.nodes if n.name == "heavy").estimate.scale < 1

    async def test_cost_of_a_variable_is_that_of_its_value(self) -> None:
        """A cost function gets the matrix, not the cell that a ref edge carries."""
        g = GraphBuilder()
        g("v", "VariableV2", shape=PartialTensorShape([2, 2]), dtype=F)
        g.const("value", np.eye(2, dtype=np.float32))
        g("set", "Assign", "v", "value", T=F)
        g("product", "MatMul", "v", "v", T=F)
        async with aexec.Session(g.graph()) as session:
            with pytest.raises(errors.FailedPreconditionError, match="uninitialized value v"):
                await session.run("product:0")
            await session.run([], targets=["set"])
            assert (await session.run("product:0")).tolist() == [[1, 0], [0, 1]]

    async def test_kernels_that_wait_overlap_and_take_no_thread(self) -> None:
        one, two = gates.Gate(), gates.Gate()
        g = GraphBuilder()
        g.const("c", np.float32(1))
        g("one", "TestGate", "c", key=one.key, T=F)
        g("two", "TestGate", "c", key=two.key, T=F)
        async with aexec.Session(g.graph()) as session:
            step = session.start(["one:0", "two:0"])
            await asyncio.gather(one.entered.wait(), two.entered.wait())
            assert session.statistics().pool.submitted == 0
            two.open.set()
            one.open.set()
            assert await step == [1, 1]

    @pytest.mark.default_executor
    async def test_several_kernels_serve_one_op(self) -> None:
        """A label chooses; the graph that asks for none gets the plain kernel."""
        register_op("TestLabelled(x: float) -> y: float")
        kernel("TestLabelled", cost=0)(lambda c: lambda x: x + 1)
        kernel("TestLabelled", cost=0, label="double")(lambda c: lambda x: x * 2)
        g = GraphBuilder()
        g.const("c", np.float32(5))
        g("plain", "TestLabelled", "c")
        g("labelled", "TestLabelled", "c", _kernel=b"double")
        async with aexec.Session(g.graph()) as session:
            assert await session.run(["plain:0", "labelled:0"]) == [6, 10]


class TestSharing:
    async def test_variables_are_kept_between_runs_but_not_between_sessions(self) -> None:
        g = GraphBuilder()
        g("v", "VarHandleOp", dtype=F, shape=PartialTensorShape([]), shared_name=b"v")
        g.const("start", np.float32(1))
        g("init", "AssignVariableOp", "v", "start", dtype=F)
        g("read", "ReadVariableOp", "v", dtype=F)
        graph = g.graph()
        async with aexec.Session(graph) as one, aexec.Session(graph) as two:
            await one.run([], targets=["init"])
            assert await one.run("read:0") == 1
            with pytest.raises(errors.FailedPreconditionError, match="Could not find variable v"):
                await two.run("read:0")
            assert [resource.name for resource in one.resources.resources()] == ["v"]
            assert two.resources.resources() == []

    async def test_signatures_are_planned_once(self) -> None:
        async with aexec.Session(switched().graph()) as session:
            for _ in range(3):
                await session.run("out:0", {"x:0": 3, "p:0": True})
            assert session.statistics().plans == 1
            await session.run("out:1", {"x:0": 3, "p:0": True})
            assert session.statistics().plans == 2


class TestFactories:
    async def test_target_chooses_the_factory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(session_classes, "_session_classes", {})
        made: list[str] = []

        class Local(aexec.Session):
            def __init__(self, graph: Any = None, target: str = "", config: Any = None) -> None:
                made.append(target)
                super().__init__(graph, target, config)

        class Remote:
            def __init__(self, graph: Any, target: str, config: Any) -> None:
                made.append(target)

        session_classes.register_session_class("test", Local)
        session_classes.register_session_class("far", Remote)
        with pytest.raises(errors.AlreadyExistsError, match="registered already"):
            session_classes.register_session_class("test", Local)
        with pytest.raises(errors.InvalidArgumentError, match="must be a class"):
            session_classes.register_session_class("other", lambda *_: None)  # type: ignore[arg-type]
        async with aexec.Session(switched().graph(), "test://here") as session:
            assert type(session) is Local
            assert await session.run("out:0", {"x:0": 2, "p:0": False}) == 4
        far: object = aexec.Session(switched().graph(), "far://there")
        assert type(far) is Remote
        assert made == ["test://here", "far://there"]
        assert type(aexec.Session(switched().graph())) is aexec.Session
        assert type(Local(switched().graph())) is Local
        assert made[2:] == [""]


class TestDevices:
    async def test_names_with_a_job_and_old_forms_are_understood(self) -> None:
        g = GraphBuilder()
        g.const("c", np.float32(4))
        for i, device in enumerate(["/job:localhost/device:cpu:0", "/cpu:1", "/device:CPU:*", "/CPU:0", ""]):
            g(f"n{i}", "Sqrt", "c", device=device, T=F)
        config = aexec.SessionConfig(device_count={"CPU": 2})
        async with aexec.Session(g.graph(), config=config) as session:
            assert await session.run([f"n{i}:0" for i in range(5)]) == [2] * 5
            assert [d.name for d in session.devices()] == [
                "/job:localhost/replica:0/task:0/device:CPU:0",
                "/job:localhost/replica:0/task:0/device:CPU:1",
            ]

    async def test_missing_device_is_refused(self) -> None:
        g = GraphBuilder()
        g.const("c", np.float32(4))
        g("n", "Sqrt", "c", device="/job:worker/task:17/device:GPU:3", T=F)
        with pytest.raises(errors.InvalidArgumentError, match="Cannot assign a device for operation"):
            await aexec.Session(g.graph())

    @pytest.mark.default_executor
    async def test_kernel_knows_its_device(self) -> None:
        register_op("TestWhichDevice() -> name: string")
        kernel("TestWhichDevice", cost=0)(lambda c: lambda: np.array(c.device.encode(), object))
        g = GraphBuilder()
        g("n", "TestWhichDevice", device="/cpu:1")
        config = aexec.SessionConfig(device_count={"CPU": 2})
        async with aexec.Session(g.graph(), config=config) as session:
            assert await session.run("n:0") == b"/job:localhost/replica:0/task:0/device:CPU:1"


def test_error_names_the_line_that_made_the_node() -> None:
    with aexec.Graph() as graph:
        aexec.ops.test_fail(aexec.constant(1.0), name="bad")  # this line

    async def main() -> errors.OpError:
        async with aexec.Session(graph) as session:
            with pytest.raises(errors.InvalidArgumentError) as caught:
                await session.run("bad:0")
        return caught.value

    path, _, line = (asyncio.run(main()).site or "").rpartition(":")
    assert path.endswith("test_execution.py")
    assert "# this line" in Path(__file__).read_text().splitlines()[int(line) - 1]
