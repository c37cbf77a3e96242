"""Functions in compiled plans: If, While and calls written as Python, with errors, waits and cancellation inside."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import proto
from aexec.framework import errors
from aexec.framework.dtypes import bool_, int32, resource
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from aexec.runtime.compiled import line_writer
from aexec.runtime.compiled.line_calls import TakeOverError
from tests.support.programs.functions import calls, function_def
from tests.support.programs.graphs import GraphBuilder
from tests.support.turns import assert_gives_way

I = int32  # noqa: E741

register_op("TestInFunction(x: int32) -> y: int32", stateful=True)

# What the kernel does, as a test has set it.
_behaviour: list[Callable[[Any], Any]] = []


@kernel("TestInFunction", cost=0)
def _in_function(c: Any) -> Any:
    return lambda x: _behaviour[-1](x)


@pytest.fixture(autouse=True)
def identity(always_compiled: None) -> None:
    _behaviour[:] = [lambda x: x]


def const(name: str, value: int) -> tuple[str, str, list[str], dict[str, Any]]:
    return (name, "Const", [], {"dtype": I, "value": np.int32(value)})


def binary(name: str, op: str, left: str, right: str) -> tuple[str, str, list[str], dict[str, Any]]:
    return (name, op, [left, right], {"T": I})


LESS = function_def(
    "Less2(i: int32, x: int32, n: int32) -> go: bool",
    body=[("less", "Less", ["i", "n"], {"T": I})],
    ret={"go": "less:z:0"},
)
TWICE = function_def(
    "TwiceIt(x: int32) -> y: int32",
    body=[const("two", 2), binary("mul", "Mul", "x", "two:output:0")],
    ret={"y": "mul:z:0"},
)
SECOND = function_def(
    "Second(x: int32) -> y: int32",
    body=[const("two", 2), binary("add", "AddV2", "x", "two:output:0"), ("in", "TestInFunction", ["add:z:0"], {})],
    ret={"y": "in:y:0"},
)
# Long enough not to be one line.
LONG = function_def(
    "Long(x: int32) -> y: int32",
    body=[
        const("one", 1),
        binary("a0", "AddV2", "x", "one:output:0"),
        *(binary(f"a{index}", "AddV2", f"a{index - 1}:z:0", "one:output:0") for index in range(1, 80)),
        ("in", "TestInFunction", ["a79:z:0"], {}),
    ],
    ret={"y": "in:y:0"},
)
BODY = function_def(
    "Body(i: int32, x: int32, n: int32) -> (j: int32, y: int32, m: int32)",
    body=[
        const("one", 1),
        const("three", 3),
        binary("j", "AddV2", "i", "one:output:0"),
        ("odd", "Less", ["i", "three:output:0"], {"T": I}),
        ("if", "If", ["odd:z:0", "x"], {"then_branch": calls("TwiceIt"), "else_branch": calls("Second"),
                                        "Tcond": bool_, "Tin": [I], "Tout": [I]}),
        ("long", "PartitionedCall", ["if:output:0"], {"f": calls("Long"), "Tin": [I], "Tout": [I]}),
        binary("sum", "AddV2", "long:output:0", "j:z:0"),
    ],
    ret={"j": "j:z:0", "y": "sum:z:0", "m": "n"},
)  # fmt: skip
NESTED = function_def(
    "Nested(i: int32, x: int32, n: int32) -> (j: int32, y: int32, m: int32)",
    body=[
        const("one", 1),
        const("zero", 0),
        (
            "inner",
            "While",
            ["zero:output:0", "x", "i"],
            {"cond": calls("Less2"), "body": calls("Body"), "T": [I, I, I]},
        ),
        binary("j", "AddV2", "i", "one:output:0"),
        ("in", "TestInFunction", ["inner:output:1"], {}),
    ],
    ret={"j": "j:z:0", "y": "in:y:0", "m": "n"},
)  # fmt: skip
LIBRARY = (LESS, TWICE, SECOND, LONG, BODY, NESTED)


def graph(body: str = "Body", library: tuple[proto.FunctionDef, ...] = LIBRARY) -> aexec.Graph:
    """A While over `body` from zero to `n`, between other nodes."""
    g = GraphBuilder()
    for function in library:
        g.graph_def.library.function.add().CopyFrom(function)
    g.placeholder("x", I, [])
    g.placeholder("n", I, [])
    g.const("zero", 0, I)
    g("before", "AddV2", "x", "x", T=I)
    g("loop", "While", "zero", "before", "n", cond=calls("Less2"), body=calls(body), T=[I, I, I])
    g("y", "Mul", "loop:1", "before", T=I)
    return g.graph()


STARTS = [(3, 5), (1, 0), (2, 1)]


async def outcome(call: aexec.SessionCallable, start: tuple[Any, ...]) -> Any:
    try:
        return [np.asarray(value).tolist() for value in await call(*start)]
    except errors.OpError as error:
        return type(error), str(error), error.node, error.op, repr(error.__cause__)


async def outcomes(made: aexec.Graph, starts: list[tuple[Any, ...]], **config: Any) -> list[Any]:
    async with aexec.Session(made, config=aexec.SessionConfig(graph_passes=(), **config)) as session:
        call = session.make_callable(["y:0", "loop:0"], ["x:0", "n:0"])
        found = [await outcome(call, start) for start in starts]
        assert call.plan is not None
        assert bool(call.plan.compilation.compiled) is config.get("compile_plans", True), call.plan.compilation.refused
        return found


@pytest.mark.parametrize("body", ["Body", "Nested"])
async def test_interpreter_takes_over_before_any_call(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = await outcomes(graph(body), STARTS, compile_plans=False)
    chances, calls_made, stop_at = random.Random(0), 0, -1

    def interrupt() -> None:
        nonlocal calls_made
        calls_made += 1
        if calls_made == stop_at:
            raise TakeOverError("here")

    monkeypatch.setattr(line_writer, "INTERRUPT", interrupt)
    async with aexec.Session(graph(body), config=aexec.SessionConfig(graph_passes=())) as session:
        call = session.make_callable(["y:0", "loop:0"], ["x:0", "n:0"])
        for start, expected in zip(STARTS, wanted, strict=True):
            calls_made, stop_at = 0, -1
            assert await outcome(call, start) == expected
            total = calls_made
            for stop_at in sorted(chances.sample(range(1, total + 1), min(total, 60))):
                calls_made = 0
                assert await outcome(call, start) == expected, (start, stop_at)


@pytest.mark.parametrize("body", ["Body", "Nested"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: errors.DataLossError("no"),
        lambda: ValueError("no"),
        lambda: StopIteration("no"),
        lambda: MemoryError("no"),
        lambda: AttributeError("no"),
    ],
    ids=["OpError", "ValueError", "StopIteration", "MemoryError", "AttributeError"],
)
@pytest.mark.parametrize("fail_at", [1, 3, 7])
async def test_error_in_a_function_is_that_of_the_interpreter(
    body: str, make: Callable[[], BaseException], fail_at: int
) -> None:
    """Whichever call fails, in a line or in one that gives way, the error is that of the interpreter."""
    count = 0

    def fail_late(x: Any) -> Any:
        nonlocal count
        count += 1
        if count == fail_at:
            raise make()
        return x

    _behaviour.append(fail_late)
    found = []
    for compile_plans in (False, True):
        count = 0
        found += await outcomes(graph(body), [(3, 5)], compile_plans=compile_plans)
    assert found[0] == found[1]
    assert found[0][2] == "in"


async def test_dead_result_of_a_function_is_an_error() -> None:
    dead = function_def(
        "Second(x: int32) -> y: int32",
        body=[
            ("no", "Const", [], {"dtype": bool_, "value": np.bool_(False)}),
            ("switch", "Switch", ["x", "no:output:0"], {"T": I}),
        ],
        ret={"y": "switch:output_true:0"},
    )
    library = tuple(dead if function is SECOND else function for function in LIBRARY)
    wanted = await outcomes(graph(library=library), [(1, 2), (3, 5)], compile_plans=False)
    assert wanted[1][1].startswith("Retval[0] does not have value")
    assert await outcomes(graph(library=library), [(1, 2), (3, 5)]) == wanted


async def test_kernel_of_a_function_may_wait() -> None:
    """A dequeue in a body continues when there is an element, and ends when the step is cancelled."""
    take = function_def(
        "Take(i: int32, x: int32, queue: resource) -> (j: int32, y: int32, q: resource)",
        body=[
            const("one", 1),
            ("taken", "QueueDequeueV2", ["queue"], {"component_types": [I]}),
            binary("y", "AddV2", "x", "taken:components:0"),
            ("j", "AddV2", ["i", "one:output:0"], {"T": I}),
        ],
        ret={"j": "j:z:0", "y": "y:z:0", "q": "queue"},
        stateful=True,
    )
    below = function_def(
        "Below(i: int32, x: int32, queue: resource) -> go: bool",
        body=[const("three", 3), ("less", "Less", ["i", "three:output:0"], {"T": I})],
        ret={"go": "less:z:0"},
    )
    g = GraphBuilder()
    for function in (take, below):
        g.graph_def.library.function.add().CopyFrom(function)
    g.placeholder("x", I, [])
    g.const("zero", 0, I)
    g("queue", "FIFOQueueV2", component_types=[I], shapes=[], capacity=10, container=b"", shared_name=b"q")
    g("put", "QueueEnqueueV2", "queue", "x", Tcomponents=[I])
    g("loop", "While", "zero", "zero", "queue", cond=calls("Below"), body=calls("Take"), T=[I, I, resource])
    g("y", "Identity", "loop:1", T=I)
    g("size", "QueueSizeV2", "queue")
    async with aexec.Session(g.graph()) as session:

        async def put(value: int) -> None:
            await session.run([], {"x:0": value}, "put")

        for _ in range(3):
            step = session.start("y:0")
            for value in (1, 2, 3):
                while not step.statistics().running:
                    await asyncio.sleep(0)
                await put(value)
            assert await step == 6
            step = session.start("y:0")
            await put(5)
            while await session.run("size:0") or not step.statistics().running:
                await asyncio.sleep(0)
            assert step.cancel("enough")
            with pytest.raises(errors.CancelledError, match="enough"):
                await step
        assert await session.run("size:0") == 0


@pytest.mark.parametrize("body", ["Body", "Nested"])
async def test_long_loop_gives_way_and_is_cancelled(body: str) -> None:
    async with aexec.Session(graph(body)) as session:
        await session.run("y:0", {"x:0": 1, "n:0": 3})
        await assert_gives_way(session.start("y:0", {"x:0": 1, "n:0": 1 << 30}))


async def test_recursion_is_left_to_the_interpreter() -> None:
    down = function_def(
        "Down(x: int32) -> y: int32",
        body=[
            const("one", 1),
            binary("less", "Sub", "x", "one:output:0"),
            ("if", "If", ["x", "less:z:0"], {"then_branch": calls("Down"), "else_branch": calls("TwiceIt"),
                                             "Tcond": I, "Tin": [I], "Tout": [I]}),
        ],
        ret={"y": "if:output:0"},
    )  # fmt: skip
    g = GraphBuilder()
    for function in (down, TWICE):
        g.graph_def.library.function.add().CopyFrom(function)
    g.placeholder("x", I, [])
    g("y", "Down", "x")
    async with aexec.Session(g.graph()) as session:
        call = session.make_callable("y:0", ["x:0"])
        for _ in range(3):
            assert await call(20) == -2
        assert call.plan is not None
        assert "calls itself" in call.plan.compilation.refused
        with pytest.raises(errors.ResourceExhaustedError, match="nested more than 100 deep"):
            await call(1000)


async def test_source_shows_the_called_functions() -> None:
    async with aexec.Session(graph("Nested")) as session:
        source = await session.plan_source(session.make_callable("y:0", ["x:0", "n:0"]))
    assert "while True:  # loop (While)" in source
    assert "# loop: Nested" in source and "# loop: Less2" in source


async def test_variable_by_reference_is_read_before_the_call() -> None:
    with aexec.Graph() as built:
        v = aexec.Variable([1.0, 2.0], use_resource=False)
        chosen = aexec.cond(aexec.placeholder("bool", [], name="p"), lambda: v * v, lambda: v + v, functional=True)
        power = aexec.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, y * v), (0, v), functional=True)[1]
        results = [chosen * 1.0, power * 1.0]
        double = v.assign(v * 2.0)
        start = aexec.global_variables_initializer()
    async with aexec.Session(built) as session:
        call = session.make_callable(results, ["p:0"])
        with pytest.raises(errors.FailedPreconditionError, match="uninitialized value Variable"):
            await call(True)
        await session.run(start)
        for step in range(4):
            value, taken = np.array([1.0, 2.0]) * 2**step, step % 2 == 0
            found = await call(taken)
            np.testing.assert_array_equal(found[0], value * value if taken else value + value)
            np.testing.assert_array_equal(found[1], value**3)
            await session.run(double)
        assert call.plan is not None and not call.plan.compilation.refused
