"""Compiled plans with faulty kernels, graphs or callers: they behave as the interpreter does."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import gc
import linecache
import logging
import random
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest

import aexec
from aexec.framework import errors
from aexec.framework.dtypes import bool_, int32
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.op_contract.op_registry import register_op
from aexec.runtime.compiled import compiled_execution, line_costs
from aexec.runtime.compiled.line_text import comment_of
from aexec.runtime.interpreter import execution, node_runner
from aexec.runtime.plans import compilation_policy
from aexec.runtime.threads import slices, worker_pool
from tests.support.collector import no_collector
from tests.support.programs.graphs import GraphBuilder, counting_loop

register_op("TestFault(x: float) -> y: float", stateful=True)
register_op("TestFaultPair(x: float) -> (y: float, z: float)", stateful=True)
register_op("TestFaultIn(x: float) -> y: float", stateful=True)

# What the kernels below do, as a test has set it.
_behaviour: dict[str, Callable[..., Any]] = {}


@kernel("TestFault", cost=1.0)
def _fault(c: Any) -> Any:
    return lambda x: _behaviour["fault"](x)


@kernel("TestFaultPair", cost=0)
def _fault_pair(c: Any) -> Any:
    return lambda x: _behaviour["pair"](x)


@kernel("TestFaultIn", cost=0)
def _fault_in(c: Any) -> Any:
    c.need_context()
    return lambda context, x: _behaviour["in"](context, x)


def good(x: Any) -> Any:
    return x + 1


def good_pair(x: Any) -> Any:
    return x + 1, x + 2


@pytest.fixture(autouse=True)
def compiled_at_once(monkeypatch: pytest.MonkeyPatch, plans_compile: None) -> Iterator[None]:
    monkeypatch.setattr(compilation_policy, "COMPILE_AT", 2)
    _behaviour.update({"fault": good, "pair": good_pair, "in": lambda context, x: x})
    yield
    _behaviour.clear()


X = np.arange(3, dtype=np.float32)
FEEDS = {"x:0": X}


def line(before: int = 0, after: int = 1, op: str = "TestFault") -> aexec.Graph:
    """`before` additions, the node `faulty`, and `after` additions, the last of which is `y`."""
    g = GraphBuilder()
    g.placeholder("x", shape=None)
    g.const("one", np.float32(1))
    value = "x"
    for index in range(before):
        value = g(f"before{index}", "AddV2", value, "one", T=aexec.float32)
    value = g("faulty", op, value)
    if op == "TestFaultPair":
        value = g("sum", "AddV2", "faulty:0", "faulty:1", T=aexec.float32)
    for index in range(after - 1):
        value = g(f"after{index}", "AddV2", value, "one", T=aexec.float32)
    g("y", "AddV2", value, "one", T=aexec.float32)
    return g.graph()


def failing_with(make: Callable[[], BaseException]) -> Callable[[Any], Any]:
    def fail(x: Any) -> Any:
        raise make()

    return fail


@contextlib.asynccontextmanager
async def warm(compile_plans: bool) -> AsyncIterator[aexec.Session]:
    """A session in which `y`, behind a node that looks at the step and one that may fail, has run well before."""
    g = GraphBuilder()
    g.placeholder("x", shape=None)
    g("in", "TestFaultIn", "x")
    g("y", "TestFault", "in")
    async with aexec.Session(g.graph(), config=aexec.SessionConfig(compile_plans=compile_plans)) as session:
        for _ in range(3):
            await session.run("y:0", FEEDS)
        yield session


async def end_of(graph: aexec.Graph, change: Callable[[], None], *, compile_plans: bool) -> tuple[Any, ...]:
    """How a run ends, after some that went well, when the kernels have changed."""
    async with aexec.Session(graph, config=aexec.SessionConfig(compile_plans=compile_plans)) as session:
        _behaviour.update({"fault": good, "pair": good_pair})
        call = session.make_callable("y:0", ["x:0"])
        for _ in range(4):
            await call(X)
        assert call.plan is not None
        assert bool(call.plan.compilation.compiled) is compile_plans, call.plan.compilation.refused
        change()
        try:
            return ("value", (await call(X)).tolist())
        except errors.OpError as error:
            return (type(error), str(error), error.node, error.op, repr(error.__cause__))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            return (type(error), str(error))


EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("no"),
    "an OpError": lambda: errors.DataLossError("no"),
    "AttributeError": lambda: AttributeError("no"),
    "StopIteration": lambda: StopIteration("no"),
    "GeneratorExit": lambda: GeneratorExit("no"),
    "CancelledError": lambda: asyncio.CancelledError("no"),
    "RecursionError": lambda: RecursionError("no"),
    "MemoryError": lambda: MemoryError("no"),
    "BaseException": lambda: BaseException("no"),
}


@pytest.mark.parametrize("name", EXCEPTIONS)
@pytest.mark.parametrize("before", [0, 100], ids=["line", "parts"])
async def test_kernel_exceptions_are_those_of_the_interpreter(name: str, before: int) -> None:
    def change() -> None:
        _behaviour["fault"] = failing_with(EXCEPTIONS[name])

    wanted = await end_of(line(before), change, compile_plans=False)
    assert wanted[0] != "value"
    assert await end_of(line(before), change, compile_plans=True) == wanted


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("before", [0, 100], ids=["line", "parts"])
def test_interrupts_leave_the_loop(kind: type[BaseException], before: int) -> None:
    def change() -> None:
        _behaviour["fault"] = failing_with(kind)

    async def run(compile_plans: bool) -> None:
        await end_of(line(before), change, compile_plans=compile_plans)

    for compile_plans in (False, True):
        with pytest.raises(kind):
            asyncio.run(run(compile_plans))


OUTPUTS: dict[str, tuple[str, Any]] = {
    "None": ("fault", None),
    "a number": ("fault", 1.5),
    "a list": ("fault", [X]),
    "a tuple": ("fault", (X,)),
    "a long tuple": ("fault", (X, X)),
    "an empty tuple": ("fault", ()),
    "None in a tuple": ("fault", (None,)),
    "an array for two": ("pair", np.ones((2, 3), np.float32)),
    "a list for two": ("pair", [X, X]),
    "one for two": ("pair", (X,)),
    "three for two": ("pair", (X, X, X)),
    "None for two": ("pair", None),
    "None among two": ("pair", (X, None)),
    "tuples again": ("pair", (X, X)),
}


@pytest.mark.parametrize("case", OUTPUTS)
@pytest.mark.parametrize("before", [0, 100], ids=["line", "parts"])
async def test_changed_outputs_are_treated_as_by_the_interpreter(case: str, before: int) -> None:
    name, out = OUTPUTS[case]
    graph = line(before, op="TestFault" if name == "fault" else "TestFaultPair")

    def change() -> None:
        _behaviour[name] = lambda x: out

    wanted = await end_of(graph, change, compile_plans=False)
    assert await end_of(graph, change, compile_plans=True) == wanted


async def test_kernel_may_stop_returning_tuples() -> None:
    _behaviour["fault"] = lambda x: (x + 1,)
    async with aexec.Session(line()) as session:
        call = session.make_callable("y:0", ["x:0"])
        for _ in range(3):
            assert (await call(X)).tolist() == [2, 3, 4]
        _behaviour["fault"] = lambda x: x[:1]
        assert (await call(X)).tolist() == [1]
        _behaviour["fault"] = lambda x: x + 1
        assert (await call(X)).tolist() == [2, 3, 4]


async def test_error_raised_again_names_the_node_that_raises_it_now() -> None:
    """Its traceback has the frames of both runs."""
    stored = RuntimeError("broken")
    g = GraphBuilder()
    g.placeholder("x", shape=None)
    for index in range(3):
        g(f"n{index}", "TestFault", "x" if not index else f"n{index - 1}")
    calls = 0
    fail_at = 0

    def fault(x: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == fail_at:
            raise stored
        return x + 1

    _behaviour["fault"] = fault
    async with aexec.Session(g.graph()) as session:
        for _ in range(3):
            await session.run("n2:0", FEEDS)
        for fail_at in (3, 1, 2):
            calls = 0
            with pytest.raises(errors.UnknownError, match="broken") as caught:
                await session.run("n2:0", FEEDS)
            assert caught.value.node == f"n{fail_at - 1}"


@pytest.mark.parametrize("compile_plans", [False, True])
async def test_failed_run_cancels_with_its_error(compile_plans: bool) -> None:
    told: list[errors.OpError | None] = []

    def watch(context: OpKernelContext, x: Any) -> Any:
        manager = context.cancellation
        manager.register_callback(manager.get_cancellation_token(), lambda: told.append(manager.status))
        return x

    async with warm(compile_plans) as session:
        _behaviour["in"] = watch
        _behaviour["fault"] = failing_with(lambda: errors.DataLossError("gone"))
        with pytest.raises(errors.DataLossError):
            await session.run("y:0", FEEDS)
    assert [str(status) for status in told if status is not None] and "gone" in str(told[0])


# Graphs


HOSTILE = [
    "a\nimport os",
    "a\rimport os",
    "a\r\nimport os",
    "a\x0cimport os",
    "a\x0bimport os",
    "a\x85import os",
    "a\u2028import os",
    "a\u2029import os",
    "a\x00b",
    "'''",
    '"""',
    "\\",
    "\\\n import os",
    "# coding: utf-7",
    "-*- coding: rot13 -*-",
    "'), __import__('os').abort(), ('",
    "{0!r}",
    "\u202eevil",
    "\ufeff",
    "\udc80",
    "x" * 100_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_node_names_stay_inside_their_comment(text: str) -> None:
    comment = comment_of(text)
    assert comment.isascii() and comment.isprintable()
    assert len(comment) <= 100
    source = f"def line():\n    v1 = c1()  # {comment}\n    return v1"
    assert ast.dump(ast.parse(source)) == ast.dump(ast.parse("def line():\n    v1 = c1()\n    return v1"))


@pytest.mark.parametrize("text", [text for text in HOSTILE if text != "\udc80"], ids=ascii)
async def test_frame_names_are_not_executed(text: str) -> None:
    g = counting_loop()
    for node in g.graph_def.node:
        if node.op == "Enter":
            node.attr["frame_name"].s = text.encode()
        if node.name == "body":
            node.op = "TestFaultInLoop"
            node.attr.clear()
    async with aexec.Session(g.graph()) as session:
        call = session.make_callable("result:0", ["n:0"])
        for _ in range(4):
            assert await call(5) == 5
        assert call.plan is not None and call.plan.compilation.compiled is not None
        source = call.plan.compilation.compiled.source
    nodes = list(ast.walk(ast.parse(source)))
    assert not any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in nodes)
    assert {node.attr for node in nodes if isinstance(node, ast.Attribute)} <= {"size", "ndim"}
    assert {type(node.value) for node in nodes if isinstance(node, ast.Constant)} <= {int, bool}


register_op("TestFaultInLoop(x: int32) -> y: int32", stateful=True)


@kernel("TestFaultInLoop", cost=0)
def _in_loop(c: Any) -> Any:
    c.need_context()
    return lambda context, x: x


@pytest.mark.parametrize("wrong", [np.array([True]), np.array([[False]]), np.zeros(0, np.bool_)])
async def test_non_scalar_loop_predicate_is_refused(wrong: Any) -> None:
    g = counting_loop()
    g.placeholder("p", bool_)
    for node in g.graph_def.node:
        if node.name == "cond":
            node.input[0] = "less_and_p"
    g("enter_p", "Enter", "p", T=bool_, is_constant=True, frame_name=b"loop", parallel_iterations=10)
    g("less_and_p", "LogicalAnd", "less", "enter_p")
    found = []
    for compile_plans in (False, True):
        async with aexec.Session(g.graph(), config=aexec.SessionConfig(compile_plans=compile_plans)) as session:
            for _ in range(3):
                assert await session.run("result:0", {"n:0": 3, "p:0": True}) == 3
            with pytest.raises(errors.InvalidArgumentError) as caught:
                await session.run("result:0", {"n:0": 3, "p:0": wrong})
            found.append((str(caught.value), caught.value.node, caught.value.op))
    assert found[0] == found[1]


def loop_without_variables() -> GraphBuilder:
    g = GraphBuilder()
    g.placeholder("p", bool_, [])
    g("enter", "Enter", "p", T=bool_, frame_name=b"loop", parallel_iterations=1, is_constant=True)
    g("cond", "LoopCond", "enter")
    g("switch", "Switch", "enter", "cond", T=bool_)
    g("exit", "Exit", "switch:0", T=bool_)
    return g


async def test_loop_without_variables_ends() -> None:
    async with aexec.Session(loop_without_variables().graph()) as session:
        call = session.make_callable("exit:0", ["p:0"])
        for _ in range(4):
            assert not await call(False)
        with pytest.raises(errors.InvalidArgumentError, match="does not have value"):
            await call(True)


async def test_exit_of_every_iteration_is_left_to_the_interpreter() -> None:
    g = counting_loop()
    g("odd_exit", "Exit", "enter_n", T=int32)
    async with aexec.Session(g.graph()) as session:
        with pytest.raises(errors.UnimplementedError, match="'odd_exit' leaves the loop in every iteration"):
            await session.plan_source(session.make_callable(["result:0", "odd_exit:0"], ["n:0"]))


def nested(depth: int) -> GraphBuilder:
    """Nested loops of one iteration each."""
    g = GraphBuilder()
    g.placeholder("x", int32, [])
    g.const("zero", 0, int32)

    def loop(level: int, value: str, zero: str) -> str:
        frame = {"frame_name": f"frame{level}".encode(), "parallel_iterations": 1, "T": int32}
        g(f"enter{level}", "Enter", value, **frame)
        g(f"zero{level}", "Enter", zero, is_constant=True, **frame)
        g(f"merge{level}", "Merge", f"enter{level}", f"next{level}", T=int32, N=2)
        g(f"less{level}", "Less", f"zero{level}", f"merge{level}", T=int32)
        g(f"cond{level}", "LoopCond", f"less{level}")
        g(f"switch{level}", "Switch", f"merge{level}", f"cond{level}", T=int32)
        inner = f"switch{level}:1"
        if level:
            g(f"kept{level}", "Identity", f"zero{level}", f"^pivot{level}", T=int32)
            inner = loop(level - 1, g(f"pivot{level}", "Identity", inner, T=int32), f"kept{level}")
        else:
            inner = g("done", "Sub", inner, inner, T=int32)
        g(f"next{level}", "NextIteration", inner, T=int32)
        return g(f"exit{level}", "Exit", f"switch{level}:0", T=int32)

    loop(depth - 1, "x", "zero")
    return g


@pytest.mark.parametrize("depth", [1, 3, 10, 11, 25, 150])
async def test_loops_in_loops_in_loops(depth: int, caplog: pytest.LogCaptureFixture) -> None:
    async with aexec.Session(nested(depth).graph()) as session:
        call = session.make_callable(f"exit{depth - 1}:0", ["x:0"])
        for _ in range(3):
            assert await call(7) == 0
        assert call.plan is not None
        while call.plan.compilation.busy:
            await asyncio.sleep(0)
        assert await call(7) == 0
        assert ("deep" in call.plan.compilation.refused) is (depth > 10)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("conditional", [False, True])
async def test_long_argument_lists_are_not_written_out(conditional: bool) -> None:
    """They are kept in a list; if their nodes do not run in every run, the plan is left to the interpreter."""
    g = GraphBuilder()
    g.placeholder("x")
    g.const("true", np.True_, bool_)
    g("switch", "Switch", "x", "true", T=aexec.float32)
    g("merge", "Merge", "switch:0", "switch:1", T=aexec.float32, N=2)
    g("y", "AddN", *["merge" if conditional else "x"] * 5_000, T=aexec.float32, N=5_000)
    async with aexec.Session(g.graph()) as session:
        call = session.make_callable("y:0", ["x:0"])
        for _ in range(3):
            await call(X)
        assert call.plan is not None
        while call.plan.compilation.busy:
            await asyncio.sleep(0)
        assert ("many arguments" in call.plan.compilation.refused) is conditional
        np.testing.assert_array_equal(await call(X), X * 5_000)
        if not conditional:
            assert len(call.plan.compilation.compiled.source) < 1_000


async def test_plan_whose_parts_share_many_values_is_left_to_the_interpreter() -> None:
    """The function that calls the parts would be compiled at once, while the interpreter lock is held."""
    chances = random.Random(1)
    g = GraphBuilder()
    g.placeholder("x")
    values = ["x"]
    for index in range(4_000):
        inputs = chances.choice(values), values[-1]
        values.append(g(f"n{index}", "Maximum", *inputs, T=aexec.float32))
    async with aexec.Session(g.graph()) as session:
        with pytest.raises(errors.UnimplementedError, match="values that they share"):
            await session.plan_source(session.make_callable("n3999:0", ["x:0"]))


# Time


class Clock:
    """The clock of the executors; kernels advance it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1.0
        for module in (compiled_execution, line_costs, execution, node_runner, slices, worker_pool):
            monkeypatch.setattr(module, "perf_counter", lambda: self.now)
        monkeypatch.setattr(compiled_execution, "thread_time", lambda: self.now)


async def longest_hold(session: aexec.Session, runs: int) -> float:
    clock = session._steps.slices
    clock.longest = 0.0
    for _ in range(runs):
        await session.run("y:0", FEEDS)
        await asyncio.sleep(0)
    return float(clock.longest)


def many(count: int) -> aexec.Graph:
    g = GraphBuilder()
    g.placeholder("x", shape=None)
    for index in range(count):
        g(f"n{index}" if index < count - 1 else "y", "TestFault", "x" if not index else f"n{index - 1}")
    return g.graph()


@pytest.mark.parametrize("count", [30, 150], ids=["line", "parts"])
async def test_calls_that_are_slow_all_together_give_way(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is heavy: 0.3 ms each.  After a while the loop is held for no longer than a slice and one of them."""
    clock = Clock(monkeypatch)

    def slow(x: Any) -> Any:
        clock.now += 0.3e-3
        return x + 1

    async with aexec.Session(many(count)) as session:
        await longest_hold(session, 3)
        _behaviour["fault"] = slow
        await longest_hold(session, 60)
        assert await longest_hold(session, 20) < 1.5e-3


@pytest.mark.parametrize("count", [30, 150], ids=["line", "parts"])
async def test_slow_call_goes_to_a_thread(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    inline = 0

    def slow(x: Any) -> Any:
        nonlocal inline
        if x[0] == count // 2:
            if execution.running_loop() is not None:
                inline += 1
            clock.now += 50e-3
        return x + 1

    async with aexec.Session(many(count)) as session:
        await longest_hold(session, 3)
        _behaviour["fault"] = slow
        await longest_hold(session, 10)
        inline = 0
        await longest_hold(session, 10)
        assert inline == 0


@pytest.mark.parametrize("compile_plans", [False, True])
@pytest.mark.parametrize("fetch_early", [False, True])
async def test_run_that_has_made_its_last_call_is_not_cancelled(
    compile_plans: bool, fetch_early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value that it took, from a queue for example, would be lost."""
    clock = Clock(monkeypatch)
    steps: list[aexec.Step] = []

    def last(x: Any) -> Any:
        if steps:
            clock.now += 2e-3
            steps[0].cancel("too late")
        return x

    g = GraphBuilder()
    g.placeholder("x", shape=None)
    g.const("one", np.float32(1))
    value = "x"
    for index in range(127):
        value = g(f"n{index}", "AddV2", value, "one", T=aexec.float32)
    g("y", "TestFault", value)
    _behaviour["fault"] = last
    fetches = ["y:0", "n5:0"] if fetch_early else ["y:0"]
    config = aexec.SessionConfig(compile_plans=compile_plans, graph_passes=())
    async with aexec.Session(g.graph(), config=config) as session:
        for _ in range(3):
            await session.run(fetches, FEEDS)
        steps.append(session.start(fetches, FEEDS))
        assert (await steps[0])[0].tolist() == [127, 128, 129]


async def test_waiting_run_is_cancelled_at_once() -> None:
    async with aexec.Session(counting_loop().graph()) as session:
        for _ in range(3):
            await session.run("result:0", {"n:0": 3})
        steps = [session.start("result:0", {"n:0": 1 << 30}) for _ in range(30)]
        for _ in range(40):
            await asyncio.sleep(0)
        steps[7].cancel("enough")
        turns = 0
        while not steps[7].done:
            await asyncio.sleep(0)
            turns += 1
        assert turns <= 5
        for step in steps:
            step.cancel()
        for step in steps:
            with pytest.raises(errors.CancelledError):
                await step


# What is left behind


async def test_closing_while_a_plan_is_compiled_in_a_thread() -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    for _ in range(5):
        async with aexec.Session(line(before=600)) as session:
            for _ in range(2):
                await session.run("y:0", FEEDS)
    gc.collect()
    await asyncio.sleep(0)
    assert problems == []


async def test_sources_go_with_their_plans() -> None:
    def count() -> int:
        return sum(name.startswith("<compiled plan") for name in linecache.cache)

    gc.collect()
    before = count()
    for _ in range(5):
        async with aexec.Session(line()) as session:
            for _ in range(3):
                await session.run("y:0", FEEDS)
    del session
    gc.collect()
    assert count() <= before


@pytest.mark.parametrize("before", [0, 100], ids=["line", "parts"])
async def test_discarded_line_is_freed_without_the_garbage_collector(before: int) -> None:
    async with aexec.Session(line(before)) as session:
        call = session.make_callable("y:0", ["x:0"])
        for _ in range(3):
            await call(X)
        assert call.plan is not None
        function = weakref.ref(call.plan.compilation.compiled.function)
        with no_collector():
            call.plan.compilation.refuse("enough")
            assert function() is None


@pytest.mark.parametrize("compile_plans", [False, True])
async def test_error_holds_no_value_of_the_run(compile_plans: bool) -> None:
    """It makes no reference cycle either, which only the garbage collector would free."""

    class Held(np.ndarray):
        pass

    held: list[weakref.ref[Any]] = []

    def make(context: OpKernelContext, x: Any) -> Any:
        value = np.ones(3, np.float32).view(Held)
        held.append(weakref.ref(value))
        return value

    async with warm(compile_plans) as session:
        _behaviour["in"] = make
        _behaviour["fault"] = failing_with(lambda: ValueError("no"))
        gc.collect()
        with no_collector():
            with contextlib.suppress(errors.UnknownError):
                await session.run("y:0", FEEDS)
            assert held and held[0]() is None
