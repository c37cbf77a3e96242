"""Conditionals of Switch and Merge in compiled plans: dead values and results are those of the interpreter."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import aexec
from aexec.framework import errors
from aexec.framework.dtypes import bool_, float32, int32
from aexec.framework.shape import PartialTensorShape
from aexec.runtime.compiled import line_writer
from aexec.runtime.compiled.line_calls import TakeOverError
from tests.support.programs.graphs import GraphBuilder

I = int32  # noqa: E741


pytestmark = pytest.mark.usefixtures("always_compiled")


def builder() -> GraphBuilder:
    """Feeds `p` and `q`, which are predicates, and `x`."""
    g = GraphBuilder()
    g.placeholder("p", bool_)
    g.placeholder("q", bool_)
    g.placeholder("x", I, [])
    g.const("two", 2, I)
    return g


def conditional(name: str, g: GraphBuilder, value: str, predicate: str, length: int = 1) -> str:
    """`value` doubled several times if the predicate is true, else added to itself; `name`:1 is the branch."""
    switch = g(f"{name}/switch", "Switch", value, predicate, T=I)
    then, otherwise = f"{switch}:1", f"{switch}:0"
    for index in range(length):
        then = g(f"{name}/mul{index}", "Mul", then, "two", T=I)
        otherwise = g(f"{name}/add{index}", "AddV2", otherwise, otherwise, T=I)
    return g(name, "Merge", otherwise, then, T=I, N=2)


def simple(length: int = 1) -> GraphBuilder:
    g = builder()
    conditional("y", g, "x", "p", length)
    g("z", "AddV2", "y", "y:1", T=I)
    return g


def nested() -> GraphBuilder:
    """A conditional in a branch, a constant that the branch controls, and a predicate that the branch computes."""
    g = builder()
    g("switch", "Switch", "x", "p", T=I)
    g("pivot", "Identity", "switch:1", T=I)
    g.const("nine", 9, I, "^pivot")
    g("test", "Less", "pivot", "nine", T=I)
    g("sum", "AddV2", conditional("inner", g, "pivot", "q"), "nine", T=I)
    g("other", "Mul", conditional("other_inner", g, "sum", "test"), "two", T=I)
    g("same", "Identity", "switch:0", T=I)
    g("y", "Merge", "same", "other", T=I, N=2)
    g("z", "AddV2", "y", "y:1", T=I)
    return g


def one_sided() -> GraphBuilder:
    """The result is dead if neither predicate holds; a ControlTrigger runs nevertheless."""
    g = builder()
    g("first", "Switch", "x", "p", T=I)
    g("second", "Switch", "first:0", "q", T=I)
    g("y", "Merge", "first:1", "second:1", T=I, N=2)
    g("after", "Mul", "y", "two", T=I)
    g("trigger", "ControlTrigger", "^after")
    g("always", "Mul", "x", "two", "^trigger", T=I)
    g("default", "Switch", "second:0", "q", T=I)
    g("z", "Merge", "after", "default:0", T=I, N=2)
    return g


def waits_for_a_branch() -> GraphBuilder:
    """Merges wait for nodes of branches, dead or not; a node with a dead control input is dead."""
    g = builder()
    g("switch", "Switch", "x", "p", T=I)
    g("then", "Mul", "switch:1", "two", T=I)
    g("otherwise", "AddV2", "switch:0", "two", T=I)
    g("y", "Merge", "switch:0", "switch:1", "^then", "^otherwise", T=I, N=2)
    g("only_then", "Mul", "x", "two", "^then", T=I)
    g("only_otherwise", "Mul", "x", "x", "^otherwise", T=I)
    g("z", "Merge", "only_then", "only_otherwise", T=I, N=2)
    return g


def both_predicates() -> GraphBuilder:
    """A node that needs both, and one that needs a predicate to be true and false."""
    g = builder()
    g("by_p", "Switch", "x", "p", T=I)
    g("by_q", "Switch", "x", "q", T=I)
    g("both", "AddV2", "by_p:1", "by_q:1", T=I)
    g("never", "AddV2", "by_p:1", "by_p:0", T=I)
    g("rest", "Merge", "by_p:0", "both", T=I, N=2)
    g("y", "Merge", "rest", "never", T=I, N=2)
    g("by_constant", "Switch", "x", "yes", T=I)
    g.const("yes", True, bool_)
    g("z", "Mul", "by_constant:1", "two", T=I)
    return g


def in_a_loop() -> GraphBuilder:
    """`while i < x: i += 1; sum = 2 * sum if i is q else sum + i`, if p."""
    g = builder()
    g.const("one", 1, I)
    g.const("zero", 0, I)
    g("switch", "Switch", "x", "p", T=I)
    g("start", "Mul", "switch:1", "zero", T=I)
    frame = {"frame_name": b"loop", "parallel_iterations": 10}
    g("enter_i", "Enter", "start", T=I, **frame)
    g("enter_sum", "Enter", "switch:1", T=I, **frame)
    g("limit", "Enter", "switch:1", T=I, is_constant=True, **frame)
    g("by", "Enter", "one", T=I, is_constant=True, **frame)
    g("odd", "Enter", "q", T=bool_, is_constant=True, **frame)
    for name in ("i", "sum"):
        g(name, "Merge", f"enter_{name}", f"next_{name}", T=I, N=2)
        g(f"switch_{name}", "Switch", name, "cond", T=I)
        g(f"exit_{name}", "Exit", f"switch_{name}:0", T=I)
    g("less", "Less", "i", "limit", T=I)
    g("cond", "LoopCond", "less")
    g("next_i", "NextIteration", g("count", "AddV2", "switch_i:1", "by", T=I), T=I)
    g("inside", "Switch", "switch_sum:1", "odd", T=I)
    g("then", "AddV2", "inside:1", "inside:1", T=I)
    g("otherwise", "AddV2", "inside:0", "count", T=I)
    g("joined", "Merge", "then", "otherwise", T=I, N=2)
    g("counted", "AddV2", "joined", "joined:1", T=I)
    g("next_sum", "NextIteration", "counted", T=I)
    g("y", "Merge", "exit_sum", "switch:0", T=I, N=2)
    return g


CASES: dict[str, tuple[Callable[[], GraphBuilder], list[str]]] = {
    "simple": (simple, ["y:0", "y:1", "z:0"]),
    "in parts": (lambda: simple(40), ["y:0", "y:1", "z:0"]),
    "nested": (nested, ["y:0", "y:1", "z:0"]),
    "one-sided": (one_sided, ["z:0", "always:0"]),
    "one-sided, dead": (one_sided, ["y:0"]),
    "dead in a branch": (nested, ["z:0", "sum:0"]),
    "waiting for a branch": (waits_for_a_branch, ["y:0", "y:1", "z:0"]),
    "both predicates": (both_predicates, ["y:0", "z:0"]),
    "never": (both_predicates, ["z:0", "never:0"]),
    "in a loop": (in_a_loop, ["y:0", "y:1"]),
}
STARTS = [(p, q, x) for p, q, x in product((True, False), (True, False), (3, 20))]


async def outcome(call: aexec.SessionCallable, start: tuple[Any, ...]) -> Any:
    try:
        return [np.asarray(value).tolist() for value in await call(*start)]
    except errors.OpError as error:
        return type(error), str(error), error.node, error.op


async def interpreted(graph: aexec.Graph, fetches: list[str], starts: list[tuple[Any, ...]]) -> list[Any]:
    async with aexec.Session(graph, config=aexec.SessionConfig(compile_plans=False)) as session:
        call = session.make_callable(fetches, ["p:0", "q:0", "x:0"])
        return [await outcome(call, start) for start in starts]


@pytest.mark.parametrize("case", CASES)
async def test_interpreter_takes_over_before_any_call(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, fetches = CASES[case]
    graph = make().graph()
    wanted = await interpreted(graph, fetches, STARTS)
    calls, stop_at = 0, -1

    def interrupt() -> None:
        nonlocal calls
        calls += 1
        if calls == stop_at:
            raise TakeOverError("here")

    monkeypatch.setattr(line_writer, "INTERRUPT", interrupt)
    async with aexec.Session(graph) as session:
        call = session.make_callable(fetches, ["p:0", "q:0", "x:0"])
        for start, expected in zip(STARTS, wanted, strict=True):
            calls, stop_at = 0, -1
            assert await outcome(call, start) == expected
            total = calls
            assert call.plan is not None and call.plan.compilation.compiled, call.plan.compilation.refused
            for stop_at in range(1, total + 1):
                calls = 0
                assert await outcome(call, start) == expected, (start, stop_at)
                assert calls == stop_at


@pytest.mark.parametrize("case", ["simple", "nested", "in a loop"])
@pytest.mark.parametrize("wrong", [np.array([True]), np.zeros((0, 2), np.bool_)], ids=["a vector", "nothing"])
async def test_non_scalar_predicates_are_refused(case: str, wrong: Any) -> None:
    make, fetches = CASES[case]
    graph = make().graph()
    starts: list[tuple[Any, ...]] = [(wrong, True, 3), (True, wrong, 3)]
    wanted = await interpreted(graph, fetches, starts)
    async with aexec.Session(graph) as session:
        call = session.make_callable(fetches, ["p:0", "q:0", "x:0"])
        assert [await outcome(call, start) for start in starts] == wanted
        assert call.plan is not None and call.plan.compilation.compiled


async def test_two_live_inputs_are_left_to_the_interpreter() -> None:
    g = builder()
    g("by_p", "Switch", "x", "p", T=I)
    g("y", "Merge", "by_p:1", "x", T=I, N=2)
    async with aexec.Session(g.graph()) as session:
        with pytest.raises(errors.UnimplementedError, match="two inputs of 'y' may be live"):
            await session.plan_source(session.make_callable("y:0", ["p:0", "x:0"]))


async def test_branch_that_is_not_taken_computes_nothing() -> None:
    g = builder()
    g("switch", "Switch", "x", "p", T=I)
    g("reciprocal", "FloorDiv", "two", "switch:1", T=I)
    g("y", "Merge", "switch:0", "reciprocal", T=I, N=2)
    async with aexec.Session(g.graph()) as session:
        for _ in range(2):
            assert await session.run("y:0", {"p:0": False, "x:0": 0}) == 0
            with pytest.raises(errors.InvalidArgumentError, match="division by zero") as caught:
                await session.run("y:0", {"p:0": True, "x:0": 0})
            assert caught.value.node == "reciprocal"


async def test_variable_enters_a_loop_by_its_value() -> None:
    """The loop uses the value at its beginning; its body does not change it."""
    g = GraphBuilder()
    g.placeholder("n", I, [])
    g.const("zero", 0, I)
    g("variable", "VariableV2", dtype=I, shape=PartialTensorShape([]), container=b"", shared_name=b"")
    g("init", "Assign", "variable", "n", T=I)
    frame = {"frame_name": b"loop", "parallel_iterations": 10}
    g("enter", "Enter", "zero", T=I, **frame)
    g("by", "Enter", "variable", T=I, is_constant=True, **frame)
    g("limit", "Enter", "n", T=I, is_constant=True, **frame)
    g("i", "Merge", "enter", "next", T=I, N=2)
    g("cond", "LoopCond", g("less", "Less", "i", "limit", T=I))
    g("switch", "Switch", "i", "cond", T=I)
    g("next", "NextIteration", g("add", "AddV2", "switch:1", "by", T=I), T=I)
    g("y", "Exit", "switch:0", T=I)
    async with aexec.Session(g.graph()) as session:
        call = session.make_callable("y:0", ["n:0"])
        with pytest.raises(errors.FailedPreconditionError, match="uninitialized value variable") as caught:
            await call(10)
        assert caught.value.node == "by"
        await session.run([], {"n:0": 3}, "init")
        assert await call(10) == 12
        assert call.plan is not None and call.plan.compilation.compiled


async def test_plan_with_large_weights_is_compiled() -> None:
    g = GraphBuilder()
    g.placeholder("x", float32, [1, 300])
    g.const("weights", np.eye(300, dtype=np.float32))
    g("y", "MatMul", "x", "weights", T=float32)
    async with aexec.Session(g.graph()) as session:
        call = session.make_callable("y:0", ["x:0"])
        x = np.arange(300, dtype=np.float32)[None]
        for _ in range(3):
            np.testing.assert_array_equal(await call(x), x)
        assert call.plan is not None and call.plan.compilation.compiled


async def test_loop_invariants_are_computed_once() -> None:
    """They are computed in the first iteration; a loop without iterations neither computes them nor fails."""
    g = builder()
    g.const("zero", 0, I)
    frame = {"frame_name": b"loop", "parallel_iterations": 10}
    g("enter", "Enter", "zero", T=I, **frame)
    for name, value in (("limit", "x"), ("top", "two"), ("by", "x")):
        g(name, "Enter", value, T=I, is_constant=True, **frame)
    g("i", "Merge", "enter", "next", T=I, N=2)
    g("cond", "LoopCond", g("less", "Less", "i", "limit", T=I))
    g("switch", "Switch", "i", "cond", T=I)
    g("pivot", "Identity", "switch:1", T=I)
    g.const("one", 1, I, "^pivot")
    g("step", "FloorDiv", g("most", "Maximum", "top", "one", T=I), "by", T=I)
    g("shorter", "Minimum", "step", "one", T=I)
    g("longer", "Maximum", "shorter", "one", T=I)
    g("next", "NextIteration", g("add", "AddV2", "pivot", "longer", T=I), T=I)
    g("y", "Exit", "switch:0", T=I)
    async with aexec.Session(g.graph()) as session:
        call = session.make_callable("y:0", ["x:0"])
        for x in (3, 1, 0, -1, 7):
            assert await call(x) == max(x, 0)
        source = await session.plan_source(call)
    lines = source.splitlines()
    head = lines.index("        if not i0:")
    inside = itertools.takewhile(lambda line: line.startswith(" " * 12), lines[head + 1 :])
    once = [line.split("#")[1].split()[0] for line in inside if "#" in line]
    assert once == ["most", "step", "shorter", "longer"]
