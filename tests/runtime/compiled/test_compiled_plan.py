"""Compiled plans: results are those of the interpreter, wherever it takes over."""

from __future__ import annotations

import asyncio
import gc
import linecache
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aexec
from aexec.framework import errors
from aexec.framework.dtypes import DType, float32, float64, int32, int64, resource
from aexec.framework.kernel_contract.op_kernel import of_shapes
from aexec.framework.memory.freed_memory import FreedMemory
from aexec.framework.shape import PartialTensorShape
from aexec.runtime.compiled import compiled_execution, line_layout, line_writer
from aexec.runtime.compiled.compiled_plan import CompiledPlan
from aexec.runtime.compiled.line_calls import TakeOverError
from aexec.runtime.interpreter import node_runner
from aexec.runtime.plans import call_estimates, compilation_policy
from tests.support.compilation_policies import write_anew
from tests.support.node_estimates import begin, set_scale
from tests.support.programs.graphs import GraphBuilder
from tests.support.turns import assert_gives_way

X = np.arange(4, dtype=np.float32)


@pytest.fixture(autouse=True)
def compiled_at_once(monkeypatch: pytest.MonkeyPatch, plans_compile: None) -> None:
    monkeypatch.setattr(compilation_policy, "COMPILE_AT", 1)


def compiled(call: aexec.SessionCallable) -> CompiledPlan | None:
    assert call.plan is not None
    return call.plan.compilation.compiled


def chain(length: int) -> aexec.Graph:
    with aexec.Graph() as graph:
        y = aexec.placeholder("float32", [None], name="x")
        for _ in range(length):
            y = aexec.ops.add_v2(y, 1.0)
        aexec.ops.identity(y, name="y")
    return graph


def diamond() -> aexec.Graph:
    """Several outputs, one of them unused, a control edge, and a value that is fetched and used."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        low, _, high = aexec.ops.split(0, aexec.ops.concat_v2([x, x, x], 0), 3)
        with aexec.control_dependencies([low]):
            middle = aexec.ops.mul(low, high, name="middle")
        aexec.ops.sub(middle, x, name="y")
    return graph


def fan() -> aexec.Graph:
    """A call of many arguments: feeds, constants, one output of several, some of them twice, one that is used later."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        one = aexec.constant(np.ones(4, np.float32))
        low, high = aexec.ops.split(0, aexec.ops.concat_v2([x, x], 0), 2)
        middle = aexec.ops.square(x, name="middle")
        parts = [aexec.ops.add_v2(x, float(i)) for i in range(40)]
        every = aexec.ops.add_n([x, one, *(low, high, middle, *parts, one) * 6, x], name="every")
        aexec.ops.sub(aexec.ops.sub(every, middle), parts[7], name="y")
    return graph


def counting_loop(*, nested: bool = False) -> aexec.Graph:
    return counting_loop_builder(nested=nested).graph()


def counting_loop_builder(*, nested: bool = False) -> GraphBuilder:
    """Counts to `n` and sums the counter; nested: with an inner loop of three iterations."""
    g = GraphBuilder()
    g("n", "Placeholder", dtype=int32)
    g.const("zero", 0, int32)
    g.const("one", 1, int32)
    frame = {"frame_name": "outer", "parallel_iterations": 10}
    for name in ("i", "sum"):
        g(f"{name}/enter", "Enter", "zero", T=int32, **frame)
        g(f"{name}/merge", "Merge", f"{name}/enter", f"{name}/next", T=int32, N=2)
    g("limit", "Enter", "n", T=int32, is_constant=True, **frame)
    g("step", "Enter", "one", T=int32, is_constant=True, **frame)
    g("less", "Less", "i/merge", "limit", T=int32)
    g("cond", "LoopCond", "less")
    for name in ("i", "sum"):
        g(f"{name}/switch", "Switch", f"{name}/merge", "cond", T=int32)
        g(f"{name}/exit", "Exit", f"{name}/switch", T=int32)
    g("i/add", "AddV2", "i/switch:1", "step", T=int32)
    added = "i/add"
    if nested:
        inner = {"frame_name": "inner", "parallel_iterations": 10}
        g("j/zero", "Sub", "i/add", "i/add", T=int32)
        g.const("three", 3, int32, "^i/add")
        g("j/enter", "Enter", "j/zero", T=int32, **inner)
        g("j/merge", "Merge", "j/enter", "j/next", T=int32, N=2)
        g("j/limit", "Enter", "three", T=int32, is_constant=True, **inner)
        g("j/step", "Enter", "step", T=int32, is_constant=True, **inner)
        g("j/less", "Less", "j/merge", "j/limit", T=int32)
        g("j/cond", "LoopCond", "j/less")
        g("j/switch", "Switch", "j/merge", "j/cond", T=int32)
        g("j/add", "AddV2", "j/switch:1", "j/step", T=int32)
        g("j/next", "NextIteration", "j/add", T=int32)
        g("j/exit", "Exit", "j/switch", T=int32)
        g("with_inner", "AddV2", "i/add", "j/exit", T=int32)
        added = "with_inner"
    g("sum/add", "AddV2", "sum/switch:1", added, T=int32)
    g("i/next", "NextIteration", "i/add", T=int32)
    g("sum/next", "NextIteration", "sum/add", T=int32)
    return g


def loop_entered_in_parts() -> aexec.Graph:
    """A variable enters the loop, and is read then, before another value that enters is computed."""
    g = counting_loop_builder()
    frame = {"frame_name": "outer", "parallel_iterations": 10}
    g("variable", "VariableV2", dtype=int32, shape=PartialTensorShape([]))
    g("start", "Assign", "variable", "n", T=int32)
    g("early/enter", "Enter", "start", T=int32, **frame)
    g("early/merge", "Merge", "early/enter", "early/next", T=int32, N=2)
    g("early/switch", "Switch", "early/merge", "cond", T=int32)
    g("early/add", "AddV2", "early/switch:1", "i/switch:1", T=int32)
    g("early/next", "NextIteration", "early/add", T=int32)
    g("early/exit", "Exit", "early/switch", T=int32)
    g("late", "Neg", "n", T=int32)
    g("late/enter", "Enter", "late", T=int32, **frame)
    g("late/merge", "Merge", "late/enter", "late/next", T=int32, N=2)
    g("late/switch", "Switch", "late/merge", "cond", T=int32)
    g("late/add", "AddV2", "late/switch:1", "i/switch:1", T=int32)
    g("late/next", "NextIteration", "late/add", T=int32)
    g("late/exit", "Exit", "late/switch", T=int32)
    return g.graph()


def loop_with_effects() -> aexec.Graph:
    """Writes to a TensorArray, a stack and a variable in every iteration; returns their final content."""
    g = counting_loop_builder()
    frame = {"frame_name": "outer", "parallel_iterations": 10}
    g("array", "TensorArrayV3", "n", dtype=int32, element_shape=PartialTensorShape(None))
    g("stack", "StackV2", "n", elem_type=int32)
    g("variable", "VarHandleOp", dtype=int32, shape=PartialTensorShape([]), shared_name="v")
    g("start", "AssignVariableOp", "variable", "zero", dtype=int32)
    g("flow/enter", "Enter", "array:1", T=float32, **frame)
    g("flow/merge", "Merge", "flow/enter", "flow/next", T=float32, N=2)
    g("flow/switch", "Switch", "flow/merge", "cond", T=float32)
    g("flow/exit", "Exit", "flow/switch", T=float32)
    for name, source in (("array", "array:0"), ("stack", "stack"), ("variable", "variable")):
        controls = ["^start"] if name == "variable" else []
        g(f"{name}/enter", "Enter", source, *controls, T=resource, is_constant=True, **frame)
    g("write", "TensorArrayWriteV3", "array/enter", "i/switch:1", "sum/add", "flow/switch:1", T=int32)
    g("push", "StackPushV2", "stack/enter", "i/add", T=int32)
    g("assign", "AssignAddVariableOp", "variable/enter", "push", dtype=int32)
    g("flow/done", "Identity", "write", "^assign", T=float32)
    g("flow/next", "NextIteration", "flow/done", T=float32)
    g("all", "Range", "zero", "n", "one", Tidx=int32)
    g("gathered", "TensorArrayGatherV3", "array:0", "all", "flow/exit", dtype=int32)
    g("popped", "StackPopV2", "stack", "^i/exit", "^flow/exit", elem_type=int32)
    g("read", "ReadVariableOp", "variable", "^flow/exit", dtype=int32)
    return g.graph()


CASES: dict[str, tuple[Callable[[], aexec.Graph], list[str], dict[str, object]]] = {
    "chain": (lambda: chain(5), ["y:0"], {"x:0": X}),
    "chain in parts": (lambda: chain(150), ["y:0"], {"x:0": X}),
    "diamond": (diamond, ["y:0", "middle:0"], {"x:0": X}),
    "fan": (fan, ["y:0", "middle:0"], {"x:0": X}),
    "loop": (counting_loop, ["i/exit:0", "sum/exit:0"], {"n:0": 5}),
    "loop without a turn": (counting_loop, ["i/exit:0", "sum/exit:0"], {"n:0": 0}),
    "loop that is entered in parts": (loop_entered_in_parts, ["early/exit:0", "late/exit:0"], {"n:0": 3}),
    "loop with effects": (loop_with_effects, ["gathered:0", "popped:0", "read:0"], {"n:0": 5}),
    "nested loops": (lambda: counting_loop(nested=True), ["sum/exit:0"], {"n:0": 4}),
}


async def answers(graph: aexec.Graph, fetches: list[str], feeds: dict[str, object], **config: object) -> list[object]:
    async with aexec.Session(graph, config=aexec.SessionConfig(**config)) as session:
        return await session.run(fetches, feeds)


def assert_equal(values: list[object], wanted: list[object]) -> None:
    for value, expected in zip(values, wanted, strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.fixture(params=[250, 0], ids=["", "arguments in lists"])
def arguments_in_lists(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the test also with the arguments of every call in a list."""
    monkeypatch.setattr(line_layout, "_WIDE", request.param)


@pytest.mark.parametrize("case", CASES)
async def test_answers_are_those_of_the_interpreter(case: str, arguments_in_lists: None) -> None:
    make, fetches, feeds = CASES[case]
    wanted = await answers(make(), fetches, feeds, compile_plans=False)
    async with aexec.Session(make()) as session:
        call = session.make_callable(fetches, list(feeds))
        for _ in range(3):
            assert_equal(await call(*feeds.values()), wanted)
        plan = compiled(call)
        assert plan is not None, call.plan.compilation.refused
        assert plan.is_line is (case in ("chain", "diamond", "fan"))


@pytest.mark.parametrize("case", CASES)
async def test_interpreter_takes_over_before_any_call(
    case: str, monkeypatch: pytest.MonkeyPatch, arguments_in_lists: None
) -> None:
    make, fetches, feeds = CASES[case]
    wanted = await answers(make(), fetches, feeds, compile_plans=False)
    calls = 0
    stop_at = -1

    def interrupt() -> None:
        nonlocal calls
        calls += 1
        if calls == stop_at:
            raise TakeOverError("here")

    monkeypatch.setattr(line_writer, "INTERRUPT", interrupt)
    monkeypatch.setattr(compilation_policy, "GIVE_UP_AT", 10_000)
    monkeypatch.setattr(compilation_policy, "OVERRUN", 1e9)
    # On a busy machine any call may look slow, and a slow one interrupts the line, too.
    monkeypatch.setattr(node_runner, "correct_estimate", lambda *_: None)
    async with aexec.Session(make()) as session:
        await session.run(fetches, feeds)
        total = calls
        assert total
        for stop_at in range(1, total + 1):
            calls = 0
            assert_equal(await session.run(fetches, feeds), wanted)
            assert calls == stop_at


async def test_large_values_are_left_to_the_interpreter() -> None:
    with aexec.Graph() as graph:
        n = aexec.placeholder("int32", [1], name="n")
        aexec.ops.add_v2(aexec.ops.fill(n, 1.0), 1.0, name="y")
    async with aexec.Session(graph) as session:
        assert (await session.run("y:0", {"n:0": [10]})).tolist() == [2.0] * 10
        large = await session.run("y:0", {"n:0": [100_000]})
        assert large.shape == (100_000,) and (large == 2).all()


async def test_error_names_its_node_and_shows_the_line() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", None, name="x")
        aexec.ops.mat_mul(x, x, name="product")
    async with aexec.Session(graph) as session:
        await session.run("product:0", {"x:0": np.eye(2, dtype=np.float32)})
        with pytest.raises(errors.InvalidArgumentError) as caught:
            await session.run("product:0", {"x:0": np.ones((2, 3), np.float32)})
    assert caught.value.node == "product"
    async with aexec.Session(graph, config=aexec.SessionConfig(compile_plans=False)) as session:
        with pytest.raises(errors.InvalidArgumentError) as interpreted:
            await session.run("product:0", {"x:0": np.ones((2, 3), np.float32)})
    assert str(caught.value) == str(interpreted.value)


async def test_source_names_each_node() -> None:
    async with aexec.Session(chain(2)) as session:
        source = await session.plan_source(session.make_callable("y:0", ["x:0"]))
    calls = [line.split("#")[1].strip() for line in source.splitlines() if "#" in line]
    assert calls == ["AddV2 (AddV2)", "AddV2_1 (AddV2)"]


async def test_asynchronous_kernel_is_left_to_the_interpreter() -> None:
    @aexec.op("TestCompiledWait(x: float) -> y: float")
    async def wait(x: np.ndarray) -> np.ndarray:
        return x

    with aexec.Graph() as graph:
        wait(aexec.placeholder("float32", [], name="x"), name="y")
    async with aexec.Session(graph) as session:
        with pytest.raises(errors.UnimplementedError, match=r"'y' \(TestCompiledWait\) may wait"):
            await session.plan_source(session.make_callable("y:0", ["x:0"]))


async def test_kernel_that_may_wait_is_awaited() -> None:
    with aexec.Graph() as graph:
        queue = aexec.ops.fifo_queue_v2(component_types=["float32"])
        x = aexec.placeholder("float32", [], name="x")
        aexec.ops.queue_enqueue_v2(queue, [x], name="put")
        taken = aexec.ops.queue_dequeue_v2(queue, component_types=["float32"])
        aexec.ops.neg(taken[0], name="y")
    async with aexec.Session(graph) as session:
        step = session.start("y:0")
        while not step.statistics().running:
            await asyncio.sleep(0)
        await session.run([], {"x:0": 3.0}, "put")
        assert await step == -3
        await session.run([], {"x:0": 4.0}, "put")
        assert await session.run("y:0") == -4


async def test_long_loop_gives_way_and_is_cancelled() -> None:
    async with aexec.Session(counting_loop()) as session:
        await session.run("sum/exit:0", {"n:0": 3})
        await assert_gives_way(session.start("sum/exit:0", {"n:0": 1 << 30}))


async def test_tracebacks_show_the_line_as_long_as_the_plan_lives() -> None:
    async with aexec.Session(chain(1)) as session:
        call = session.make_callable("y:0", ["x:0"])
        await call(X)
        plan = compiled(call)
        assert plan is not None
        filename = plan.function.__code__.co_filename
        assert "AddV2" in linecache.getline(filename, 3)
    del call, plan, session
    gc.collect()
    assert linecache.getline(filename, 2) == ""


async def test_plan_is_compiled_after_several_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation_policy, "COMPILE_AT", 3)
    async with aexec.Session(chain(1)) as session:
        call = session.make_callable("y:0", ["x:0"])
        for runs in (1, 2, 3):
            await call(X)
            assert (compiled(call) is not None) == (runs == 3)


async def test_large_plan_is_compiled_in_a_thread() -> None:
    async with aexec.Session(chain(1000)) as session:
        call = session.make_callable("y:0", ["x:0"])
        while not (call.plan is not None and call.plan.compilation.compiled):
            np.testing.assert_array_equal(await call(X), X + 1000)
            await asyncio.sleep(0)
        np.testing.assert_array_equal(await call(X), X + 1000)


async def test_compiling_can_be_turned_off() -> None:
    async with aexec.Session(chain(1), config=aexec.SessionConfig(compile_plans=False)) as session:
        call = session.make_callable("y:0", ["x:0"])
        for _ in range(5):
            await call(X)
        assert compiled(call) is None


def negated() -> aexec.Graph:
    with aexec.Graph() as graph:
        aexec.ops.neg(aexec.placeholder("float32", None, name="x"), name="y")
    return graph


async def test_cost_is_asked_for_only_where_it_matters() -> None:
    """One slow call on small values may have been interrupted; its estimate decides whether the cost is asked for."""
    heads = {1.0: "if f0.size > SMALL: heavy", 100.0: "if f0.size > 2500: heavy", 1e4: "v0 = measured"}
    for scale, head in heads.items():
        async with aexec.Session(negated()) as session:
            call = session.make_callable("y:0", ["x:0"])
            await call(X)
            assert call.plan is not None
            (node,) = call.plan.nodes
            begin(node, 1.0, 2, scale)
            plan = compiled(call)
            assert plan is not None and plan.outdated is (scale > 1)
            source = await session.plan_source(call)
            assert source.splitlines()[1].strip().startswith(f"{head}(")


async def test_once_slow_call_is_measured_until_it_is_known_to_be_quick() -> None:
    async with aexec.Session(negated()) as session:
        call = session.make_callable("y:0", ["x:0"])
        await call(X)
        assert call.plan is not None
        (node,) = call.plan.nodes
        begin(node, 1.0, 2, 400.0)  # an interruption of 4 ms does that
        write_anew(call.plan.compilation)
        await call(X)
        suspicious = compiled(call)
        assert suspicious is not None
        assert "measured" in suspicious.source
        for _ in range(3):
            np.testing.assert_array_equal(await call(X), -X)
        relieved = compiled(call)
        assert relieved is not None
        assert "measured" not in relieved.source
        for _ in range(3):
            await call(X)
        assert compiled(call) is relieved


async def test_shape_cost_is_asked_for_once_per_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    # A call that lost the processor seems slow: it is asked about anew, its line is late, a delegate may be worth it.
    monkeypatch.setattr(call_estimates, "_learn", lambda *_: None)
    monkeypatch.setattr(compilation_policy, "OVERRUN", math.inf)
    asked = []

    @of_shapes
    def cost(x: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> float:
        asked.append(x.shape)
        return 1e6 * (x.size > 1000)

    async with aexec.Session(negated(), config=aexec.SessionConfig(delegates=())) as session:
        call = session.make_callable("y:0", ["x:0"])
        await call(X)
        assert call.plan is not None
        (node,) = call.plan.nodes
        begin(node, cost, 2)
        write_anew(call.plan.compilation)
        await call(X)
        del asked[:]
        small, other, large = X, X[:3], np.ones(2000, np.float32)
        for value in (small, small, small, other, other, small):
            np.testing.assert_array_equal(await call(value), -value)
        assert set(asked) == {(3,)}  # the first run asked for the other
        submitted = session.statistics().pool.submitted
        for _ in range(2):
            np.testing.assert_array_equal(await call(large), -large)
            assert (2000,) in asked  # it went to a thread, and does so again
            del asked[:]
        assert session.statistics().pool.submitted == submitted + 2

        line = compiled(call)
        assert line is not None
        assert not line.outdated
        set_scale(node, 3.0)  # it was measured: what was light may be heavy
        assert line.outdated


async def test_each_loop_is_a_function_of_its_own() -> None:
    """The number of loops does not matter, and no loop's variables are lost behind the next."""

    def body(i: Any, y: Any) -> tuple[Any, Any]:
        for _ in range(100):
            y = aexec.ops.tanh(aexec.ops.square(y))
        return i + 1, y

    with aexec.Graph() as graph:
        y: Any = aexec.placeholder("float32", [2], name="x")
        ends = []
        for number in range(4):
            i, y = aexec.while_loop(lambda i, _, most=number: i < most, body, (0, y))
            ends += [i, y]
        fetches = [aexec.ops.identity(end, name=f"end{number}").name for number, end in enumerate(ends)]
    answers = []
    for compile_plans in (False, True):
        config = aexec.SessionConfig(compile_plans=compile_plans, graph_passes=())
        async with aexec.Session(graph, config=config) as session:
            call = session.make_callable(fetches, ["x:0"])
            answers = [*answers, *[await call(np.array([0.3, 2.0], np.float32)) for _ in range(4)]]
            if compile_plans:
                source = await session.plan_source(call)
                assert source.count("yield from part") == source.count("while True:") == 4
    for answer in answers:
        np.testing.assert_equal(answer, answers[0])


async def test_long_loop_is_left_to_the_interpreter() -> None:
    def body(i: Any, y: Any) -> tuple[Any, Any]:
        for _ in range(600):
            y = aexec.ops.tanh(y)
        return i + 1, y

    with aexec.Graph() as graph:
        x: Any = aexec.placeholder("float32", [2], name="x")
        aexec.ops.identity(aexec.while_loop(lambda i, _: i < 2, body, (0, x))[1], name="y")
    async with aexec.Session(graph, config=aexec.SessionConfig(graph_passes=())) as session:
        call = session.make_callable("y:0", ["x:0"])
        with pytest.raises(errors.OpError, match="a loop of it is long"):
            await session.plan_source(call)


class TestScalars:
    """Counters of loops are added and compared by Python's operators."""

    @staticmethod
    def graph(dtype: DType, update: str, start: object, step: object) -> aexec.Graph:
        """`y` is `start` after `n` iterations of `y = update(y, step)`; `n` and `step` may be arrays."""
        g = GraphBuilder()
        g("n", "Placeholder", dtype=int32)
        g("step", "Placeholder", dtype=dtype)
        g.const("zero", 0, int32)
        g.const("one", 1, int32)
        g.const("start", start, dtype)
        frame = {"frame_name": "loop", "parallel_iterations": 10}
        g("i/enter", "Enter", "zero", T=int32, **frame)
        g("y/enter", "Enter", "start", T=dtype, **frame)
        g("limit", "Enter", "n", T=int32, is_constant=True, **frame)
        g("one/enter", "Enter", "one", T=int32, is_constant=True, **frame)
        g("step/enter", "Enter", "step", T=dtype, is_constant=True, **frame)
        for name, kind in (("i", int32), ("y", dtype)):
            g(f"{name}/merge", "Merge", f"{name}/enter", f"{name}/next", T=kind, N=2)
            g(f"{name}/switch", "Switch", f"{name}/merge", "cond", T=kind)
        g("less", "Less", "i/merge", "limit", T=int32)
        g("cond", "LoopCond", "less")
        g("i/add", "AddV2", "i/switch:1", "one/enter", T=int32)
        g("y/update", update, "y/switch:1", "step/enter", T=dtype)
        g("i/next", "NextIteration", "i/add", T=int32)
        g("y/next", "NextIteration", "y/update", T=dtype)
        g("y", "Exit", "y/switch", T=dtype)
        return g.graph()

    @pytest.mark.parametrize("update", ["AddV2", "Sub", "Mul"])
    @pytest.mark.parametrize(
        ("dtype", "start", "step"),
        [
            (int32, 2**31 - 5, 3),
            (int64, 2**62, -(2**61) - 7),
            (float32, 1e-3, 1.1),
            (float32, 3e38, 2.5),
            (float32, 1e-38, 1e-7),
            (float64, 0.1, 0.3),
            (int32, 5, [1, 2, 3]),
            (float32, 5.0, [[1.5], [2.5]]),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("turns", [0, 1, 40])
    @pytest.mark.filterwarnings("error")
    async def test_bits_and_types_are_those_of_the_interpreter(
        self, dtype: DType, update: str, start: object, step: object, turns: int
    ) -> None:
        graph = self.graph(dtype, update, start, step)
        feeds = {"n:0": turns, "step:0": np.asarray(step, dtype.np)}
        found = []
        for config in (aexec.SessionConfig(compile_plans=False), aexec.SessionConfig()):
            async with aexec.Session(graph, config=config) as session:
                for _ in range(3):
                    value = np.asarray(await session.run("y:0", feeds))
                found.append((value.dtype, value.shape, value.tobytes()))
        assert found[0] == found[1]

    async def test_fed_arrays_are_scalars_in_the_loop(self) -> None:
        graph = self.graph(int32, "AddV2", 1, 2)
        async with aexec.Session(graph) as session:
            call = session.make_callable("y:0", ["n:0", "step:0"])
            for _ in range(3):
                assert await call(10, 2) == 21
            source = await session.plan_source(call)
        for line in ("u_f0 = f0[()]", "if type(m0) is t_int32 and type(u_f0) is t_int32:", " = m0 + k"):
            assert line in source

    async def test_interpreter_takes_over_before_any_scalar_operation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        count = 0

        def interrupt() -> None:
            nonlocal count
            count -= 1
            if count == 0:
                raise TakeOverError("now")

        monkeypatch.setattr(line_writer, "INTERRUPT", interrupt)
        async with aexec.Session(self.graph(int32, "AddV2", 1, 2)) as session:
            call = session.make_callable("y:0", ["n:0", "step:0"])
            for _ in range(3):
                await call(1, 2)
            for position in range(1, 35):
                count = position
                assert await call(10, 2) == 21


async def test_runs_of_many_calls_are_told_to_the_freed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    def faults() -> int:
        now[0] += 1000
        return now[0]

    watch = FreedMemory(faults)
    watch.keep()
    monkeypatch.setattr(compiled_execution, "FREED_MEMORY", watch)
    with aexec.Graph() as graph:
        x: Any = aexec.placeholder("float32", [2], name="x")
        _, y = aexec.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, aexec.ops.neg(y)), (0, x))
        aexec.ops.identity(y, name="y")
    async with aexec.Session(graph) as session:
        call = session.make_callable("y:0", ["x:0"])
        kept = []
        for _ in range(20):
            await call(np.ones(2, np.float32))
            kept.append(watch.kept_bytes >> 20)
    assert kept == sorted(kept)
    assert kept[0] == 1 and kept[-1] == 4  # two of the runs were looked at
