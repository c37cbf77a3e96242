"""Functions at run time: calls, recursion, branches and loops by function, side effects, errors inside."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction
from aexec.framework.op_contract import op_registry
from aexec.framework.waiting.inline_call import on_event_loop
from aexec.framework.waiting.long_work import steadily
from aexec.framework.waiting.loop_budget import DEFAULT
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph import gradient_maker
from aexec.graph.passes import PASSES
from aexec.runtime.functions import functions
from aexec.runtime.functions.functions import FunctionRuntime
from tests.support import gates  # noqa: F401  registers TestFail
from tests.support.programs.functions import calls, function_def
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

pytestmark = pytest.mark.both_executors

F, I, BOOL = dtypes.float32, dtypes.int32, dtypes.bool_  # noqa: E741

ran: list[str] = []


@aexec.op("FunctionsTestNote(x: int32) -> y: int32", "what: string", stateful=True)
def note(x: Any, what: bytes) -> Any:
    ran.append(what.decode())
    return x


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


def graph(*functions: proto.FunctionDef) -> GraphBuilder:
    g = GraphBuilder()
    g.graph_def.library.function.extend(functions)
    g.placeholder("x", I, [])
    g.placeholder("p", BOOL, [])
    return g


def const(name: str, value: int) -> tuple[str, str, list[str], dict[str, Any]]:
    return (name, "Const", [], {"dtype": I, "value": np.int32(value)})


ADD = function_def(
    "AddOne(x: int32) -> y: int32",
    body=[const("one", 1), ("n", "AddV2", ["x", "one:output:0"], {"T": I})],
    ret={"y": "n:z:0"},
)
TIMES = function_def(
    "TimesTwo(x: int32) -> y: int32",
    body=[const("two", 2), ("n", "Mul", ["x", "two:output:0"], {"T": I})],
    ret={"y": "n:z:0"},
)
POSITIVE = function_def(
    "Positive(x: int32) -> y: bool",
    body=[const("zero", 0), ("n", "Greater", ["x", "zero:output:0"], {"T": I})],
    ret={"y": "n:z:0"},
)
SUBTRACT = function_def(
    "SubtractOne(x: int32) -> y: int32",
    body=[const("one", 1), ("n", "Sub", ["x", "one:output:0"], {"T": I})],
    ret={"y": "n:z:0"},
)
TWO = function_def("Two(x: int32) -> y: int32, z: int32", body=[], ret={"y": "x", "z": "x"})
IF = {"Tcond": BOOL, "Tin": [I], "Tout": [I]}


async def run(g: GraphBuilder, fetches: Any, **feeds: Any) -> Any:
    async with aexec.Session(g.graph()) as session:
        return await session.run(fetches, {f"{name}:0": value for name, value in feeds.items()})


class TestCalls:
    async def test_function_name_as_op_calls_the_function(self) -> None:
        g = graph(ADD)
        g("y", "AddOne", g("z", "AddOne", "x"))
        assert await run(g, ["y:0", "z:0"], x=5) == [7, 6]

    async def test_argument_may_be_returned_as_it_is(self) -> None:
        g = graph(TWO)
        g("y", "Two", "x")
        assert await run(g, ["y:0", "y:1"], x=5) == [5, 5]

    async def test_lists_of_arguments_and_results(self) -> None:
        swap = function_def(
            "Swap(xs: N * T, more: Ts) -> last: T, all: Ts",
            "N: int",
            "T: type",
            "Ts: list(type)",
            body=[("n", "IdentityN", ["xs"], {"T": [I, I]}), ("m", "IdentityN", ["more"], {"T": "$Ts"})],
            ret={"last": "n:output:1", "all": "m:output"},
        )
        g = graph(swap)
        g.const("f", np.float32(1.5))
        g("y", "Swap", "x", "x2", "f", "x", N=2, T=I, Ts=[F, I])
        g.const("x2", 9, I)
        assert await run(g, ["y:0", "y:1", "y:2"], x=5) == [9, 1.5, 5]

    async def test_attrs_with_defaults(self) -> None:
        note_twice = function_def(
            "Noted(x: int32) -> y: int32",
            "what: string = 'default'",
            body=[("n", "FunctionsTestNote", ["x"], {"what": "$what"})],
            ret={"y": "n:y:0"},
            stateful=True,
        )
        g = graph(note_twice)
        g("a", "Noted", "x")
        g("b", "Noted", "a", what=b"given")
        await run(g, "b:0", x=1)
        assert ran == ["default", "given"]

    async def test_calls_in_calls(self) -> None:
        outer = function_def(
            "Outer(x: int32) -> y: int32",
            body=[
                ("a", "AddOne", ["x"], {}),
                ("b", "PartitionedCall", ["a:y:0"], {"Tin": [I], "Tout": [I], "f": calls("TimesTwo")}),
            ],
            ret={"y": "b:output:0"},
        )
        g = graph(ADD, TIMES, outer)
        g("y", "Outer", "x")
        assert await run(g, "y:0", x=5) == 12

    @pytest.mark.parametrize("op", ["PartitionedCall", "StatefulPartitionedCall"])
    async def test_wrong_number_of_results_is_refused(self, op: str) -> None:
        g = graph(TWO)
        g("y", op, "x", Tin=[I], Tout=[I, I, I], f=calls("Two"))
        with pytest.raises(errors.OpError):
            await run(g, "y:0", x=1)

    async def test_error_in_a_body_names_its_node(self) -> None:
        failing = function_def(
            "Failing(x: int32) -> y: int32", body=[("inside", "TestFail", ["x"], {"T": I})], ret={"y": "inside:y:0"}
        )
        g = graph(failing)
        g("y", "Failing", "x")
        for passes, node in ((tuple(PASSES), "y/inside"), ((), "inside")):
            async with aexec.Session(g.graph(), config=aexec.SessionConfig(graph_passes=passes)) as session:
                with pytest.raises(errors.InvalidArgumentError, match="failed on purpose") as caught:
                    await session.run("y:0", {"x:0": 1})
            assert (caught.value.node, caught.value.op) == (node, "TestFail")

    async def test_stateful_nodes_run_even_if_unused(self) -> None:
        unused = function_def(
            "Unused(x: int32) -> y: int32",
            body=[
                ("kept", "FunctionsTestNote", ["x"], {"what": b"stateful"}),
                ("gone", "TestFail", ["x"], {"T": I}),
                ("n", "Identity", ["x"], {"T": I}),
            ],
            ret={"y": "n:output:0"},
            stateful=True,
        )
        g = graph(unused)
        g("y", "Unused", "x")
        assert await run(g, "y:0", x=1) == 1
        assert ran == ["stateful"]

    async def test_control_returns_run(self) -> None:
        done = function_def(
            "Done(x: int32) -> y: int32",
            body=[("fails", "TestFail", ["x"], {"T": I}), ("n", "Identity", ["x"], {"T": I})],
            ret={"y": "n:output:0"},
            control_ret={"done": "fails"},
        )
        g = graph(done)
        g("y", "Done", "x")
        with pytest.raises(errors.InvalidArgumentError, match="failed on purpose"):
            await run(g, "y:0", x=1)

    async def test_dead_result_is_an_error(self) -> None:
        dead = function_def(
            "Dead(x: int32, p: bool) -> y: int32",
            body=[("s", "Switch", ["x", "p"], {"T": I})],
            ret={"y": "s:output_true:0"},
        )
        g = graph(dead)
        g("y", "Dead", "x", "p")
        assert await run(g, "y:0", x=1, p=True) == 1
        with pytest.raises(errors.InvalidArgumentError, match="does not have value"):
            await run(g, "y:0", x=1, p=False)

    async def test_dead_call_does_not_run(self) -> None:
        noted = function_def(
            "Noting(x: int32) -> y: int32",
            body=[("n", "FunctionsTestNote", ["x"], {"what": b"ran"})],
            ret={"y": "n:y:0"},
            stateful=True,
        )
        g = graph(noted)
        g("s", "Switch", "x", "p", T=I)
        g("y", "Noting", "s:1")
        g("m", "Merge", "s:0", "y", T=I, N=2)
        assert await run(g, "m:0", x=1, p=False) == 1
        assert ran == []


class TestRecursion:
    FACTORIAL = (
        POSITIVE,
        function_def("One(x: int32) -> y: int32", body=[const("one", 1)], ret={"y": "one:output:0"}),
        function_def(
            "Step(x: int32) -> y: int32",
            body=[
                ("less", "SubtractOne", ["x"], {}),
                ("rest", "Factorial", ["less:y:0"], {}),
                ("n", "Mul", ["x", "rest:y:0"], {"T": I}),
            ],
            ret={"y": "n:z:0"},
        ),
        SUBTRACT,
        function_def(
            "Factorial(x: int32) -> y: int32",
            body=[
                ("more", "Positive", ["x"], {}),
                ("n", "If", ["more:y:0", "x"], {**IF, "then_branch": calls("Step"), "else_branch": calls("One")}),
            ],
            ret={"y": "n:output:0"},
        ),
    )

    @pytest.mark.parametrize(("n", "expected"), [(0, 1), (5, 120), (12, 479001600)])
    async def test_recursion_that_ends_gives_its_result(self, n: int, expected: int) -> None:
        g = graph(*self.FACTORIAL)
        g("y", "Factorial", "x")
        assert await run(g, "y:0", x=n) == expected

    async def test_recursion_that_goes_too_deep_is_an_error(self) -> None:
        g = graph(*self.FACTORIAL)
        g("y", "Factorial", "x")
        async with aexec.Session(g.graph()) as session:
            with pytest.raises(errors.ResourceExhaustedError, match="nested more than 100 deep"):
                await session.run("y:0", {"x:0": 1000})
            assert await session.run("y:0", {"x:0": 5}) == 120

    async def test_endless_mutual_recursion_is_an_error(self) -> None:
        ping = function_def("Ping(x: int32) -> y: int32", body=[("n", "Pong", ["x"], {})], ret={"y": "n:y:0"})
        pong = function_def("Pong(x: int32) -> y: int32", body=[("n", "Ping", ["x"], {})], ret={"y": "n:y:0"})
        g = graph(ping, pong)
        g("y", "Ping", "x")
        with pytest.raises(errors.ResourceExhaustedError, match="nested more than 100 deep"):
            await run(g, "y:0", x=1)

    async def test_calls_one_after_another_are_not_deep(self) -> None:
        """A loop of two hundred calls is a loop, not a recursion."""
        g = graph(POSITIVE, SUBTRACT)
        g("y", "While", "x", T=[I], cond=calls("Positive"), body=calls("SubtractOne"))
        assert await run(g, "y:0", x=200) == 0


class TestBranches:
    def branching(self, op: str = "If") -> GraphBuilder:
        g = graph(ADD, TIMES, TWO)
        g("y", op, "p", "x", then_branch=calls("AddOne"), else_branch=calls("TimesTwo"), **IF)
        return g

    @pytest.mark.parametrize("op", ["If", "StatelessIf"])
    async def test_if(self, op: str) -> None:
        assert await run(self.branching(op), "y:0", x=5, p=True) == 6
        assert await run(self.branching(op), "y:0", x=5, p=False) == 10

    @pytest.mark.parametrize(
        ("value", "taken"),
        [
            (2.5, True),
            (0.0, False),
            (b"yes", True),
            (b"", False),
            ([0.0, 0.0], True),
            (np.zeros((0,)), False),
            (7, True),
        ],
    )
    async def test_truth_of_a_condition_follows_its_type(self, value: Any, taken: bool) -> None:
        g = graph(ADD, TIMES)
        g.const("c", value)
        tcond = dtypes.from_numpy(np.asarray(value).dtype) if not isinstance(value, bytes) else dtypes.string
        g("y", "If", "c", "x", then_branch=calls("AddOne"), else_branch=calls("TimesTwo"), **{**IF, "Tcond": tcond})
        assert await run(g, "y:0", x=5) == (6 if taken else 10)

    @pytest.mark.parametrize(("index", "expected"), [(0, 6), (1, 10), (2, 10), (-1, 10), (1000, 10)])
    async def test_case(self, index: int, expected: int) -> None:
        g = graph(ADD, TIMES)
        g.const("i", index, I)
        g("y", "Case", "i", "x", branches=[calls("AddOne"), calls("TimesTwo")], Tin=[I], Tout=[I])
        assert await run(g, "y:0", x=5) == expected

    async def test_case_wants_a_scalar(self) -> None:
        g = graph(ADD, TIMES)
        g.placeholder("i", I)
        g("y", "Case", "i", "x", branches=[calls("AddOne"), calls("TimesTwo")], Tin=[I], Tout=[I])
        with pytest.raises(errors.InvalidArgumentError, match="branch_index must be a scalar"):
            await run(g, "y:0", x=5, i=[0, 1])

    async def test_branch_with_another_number_of_results_is_refused(self) -> None:
        g = graph(ADD, TWO)
        g("y", "If", "p", "x", then_branch=calls("AddOne"), else_branch=calls("Two"), **IF)
        with pytest.raises(errors.InvalidArgumentError, match=r"else_branch of If: Expect to produce 1 .* get 2 "):
            await run(g, "y:0", x=5, p=True)

    async def test_branch_with_another_number_of_arguments_is_refused(self) -> None:
        two = function_def("TakesTwo(x: int32, y: int32) -> z: int32", body=[], ret={"z": "x"})
        g = graph(ADD, two)
        g("y", "If", "p", "x", then_branch=calls("AddOne"), else_branch=calls("TakesTwo"), **IF)
        with pytest.raises(errors.InvalidArgumentError, match=r"TakesTwo expects 2 tensors .* is given 1 tensors"):
            await run(g, "y:0", x=5, p=True)

    async def test_branches_of_other_types(self) -> None:
        """They are refused when the kernel is built, whichever branch would be taken."""
        g = graph(ADD, POSITIVE)
        g.placeholder("i", I, [])
        g("if", "If", "p", "x", then_branch=calls("AddOne"), else_branch=calls("Positive"), **IF)
        g("case", "Case", "i", "x", branches=[calls("AddOne"), calls("Positive")], Tin=[I], Tout=[I])
        g("call", "PartitionedCall", "p", Tin=[BOOL], Tout=[I], f=calls("AddOne"))
        expected = {
            "if": r"else_branch of If: Expect to produce 1 tensors \(int32\), but get 1 tensors \(bool\) from Positive",
            "case": r"branches of Case: Expect to produce 1 tensors .*, but get 1 tensors \(bool\) from Positive",
            "call": r"f of PartitionedCall: AddOne expects 1 tensors \(int32\), but is given 1 tensors \(bool\)",
        }
        for node, message in expected.items():
            with pytest.raises(errors.InvalidArgumentError, match=message) as caught:
                await run(g, f"{node}:0", x=5, p=True, i=0)
            assert caught.value.node == node

    async def test_branch_without_its_attrs_is_refused(self) -> None:
        generic = function_def("Generic(x: T) -> y: T", "T: type", body=[], ret={"y": "x"})
        g = graph(ADD, generic)
        g("y", "If", "p", "x", then_branch=calls("AddOne"), else_branch=calls("Generic"), **IF)
        with pytest.raises(errors.InvalidArgumentError, match="Attr T of function 'Generic' is not given"):
            await run(g, "y:0", x=5, p=True)


class TestLoops:
    @pytest.mark.parametrize("op", ["While", "StatelessWhile"])
    @pytest.mark.parametrize("n", [0, 1, 17])
    async def test_while(self, op: str, n: int) -> None:
        g = graph(POSITIVE, SUBTRACT)
        g("y", op, "x", T=[I], cond=calls("Positive"), body=calls("SubtractOne"))
        assert await run(g, "y:0", x=n) == 0

    async def test_condition_must_give_one_value(self) -> None:
        none = function_def("Nothing(x: int32)", body=[], ret={})
        for cond, count in ((none, 0), (TWO, 2)):
            g = graph(cond, SUBTRACT)
            g("y", "While", "x", T=[I], cond=calls(cond.signature.name), body=calls("SubtractOne"))
            with pytest.raises(errors.InvalidArgumentError, match=f"from WhileOp cond, got {count} tensors\\."):
                await run(g, "y:0", x=1)

    async def test_for(self) -> None:
        body = function_def(
            "AddIndex(i: int32, x: int32) -> y: int32", body=[("n", "AddV2", ["i", "x"], {"T": I})], ret={"y": "n:z:0"}
        )
        g = graph(body)
        for name, value in (("start", 1), ("limit", 10), ("delta", 3)):
            g.const(name, value, I)
        g.placeholder("vector", I)
        g("y", "For", "start", "limit", "delta", "x", T=[I], body=calls("AddIndex"))
        g("bad", "For", "start", "limit", "vector", "x", T=[I], body=calls("AddIndex"))
        assert await run(g, "y:0", x=100) == 112
        with pytest.raises(errors.InvalidArgumentError, match="delta must be a scalar"):
            await run(g, "bad:0", x=100, vector=[1, 2])
        for delta in (0, -1):
            with pytest.raises(errors.InvalidArgumentError, match=f"Invalid start/limit/delta: 1 10 {delta}"):
                await run(g, "bad:0", x=100, vector=delta)

    @pytest.mark.parametrize("bounds", [(0, 5, 0), (0, 5, -1), (5, 0, 0), (5, 0, 1), (5, 5, 0), (5, 5, -1), (0, 0, 3)])
    async def test_for_that_cannot_reach_its_limit_is_refused(self, bounds: tuple[int, int, int]) -> None:
        """A loop whose start is its limit does nothing, whatever its step."""
        body = function_def("AddIndex(i: int32, x: int32) -> y: int32", body=[], ret={"y": "x"})
        g = graph(body)
        for name, value in zip(("start", "limit", "delta"), bounds, strict=True):
            g.const(name, value, I)
        g("y", "For", "start", "limit", "delta", "x", T=[I], body=calls("AddIndex"))
        if bounds[0] == bounds[1]:
            assert await run(g, "y:0", x=100) == 100
        else:
            words = "Invalid start/limit/delta: {} {} {}".format(*bounds)
            with pytest.raises(errors.InvalidArgumentError, match=words):
                await run(g, "y:0", x=100)

    async def test_bodies_of_other_types(self) -> None:
        g = graph(POSITIVE, ADD, TWO)
        g.const("one", 1, I)
        g("while", "While", "x", T=[I], cond=calls("Positive"), body=calls("Positive"))
        g("more", "While", "x", T=[I], cond=calls("Positive"), body=calls("Two"))
        g("for", "For", "one", "one", "one", "x", T=[I], body=calls("AddOne"))
        with pytest.raises(errors.InvalidArgumentError, match=r"body of While: Expect to produce 1 .* get 1 .*bool"):
            await run(g, "while:0", x=0)
        with pytest.raises(errors.InvalidArgumentError, match=r"While loop body returned 2 arguments. Expected: 1"):
            await run(g, "more:0", x=0)
        with pytest.raises(errors.InvalidArgumentError, match=r"body of For: AddOne expects 1 .* is given 2 tensors"):
            await run(g, "for:0", x=0)

    @pytest.mark.parametrize("empty", [True, False])
    async def test_empty_loop_lets_others_run(self, empty: bool) -> None:
        """A body without nodes ends at once; there are a thousand million iterations."""
        nothing = function_def("Nothing(i: int32)", body=[], ret={})
        same = function_def("Same(i: int32, x: int32) -> y: int32", body=[], ret={"y": "x"})
        g = graph(nothing, same)
        for name, value in {"zero": 0, "one": 1, "many": 10**9}.items():
            g.const(name, value, I)
        values, body = ([], "Nothing") if empty else (["x"], "Same")
        g("y", "For", "zero", "many", "one", *values, T=[I for _ in values], body=calls(body))
        async with aexec.Session(g.graph()) as session:
            step = session.start([], {"x:0": 1}, ["y"])
            for _ in range(10):
                await asyncio.sleep(0)
            assert step.state.value == "running"
            step.cancel()
            with pytest.raises(errors.CancelledError):
                await step

    async def test_error_in_a_body_ends_the_loop(self) -> None:
        failing = function_def(
            "Failing(x: int32) -> y: int32", body=[("inside", "TestFail", ["x"], {"T": I})], ret={"y": "inside:y:0"}
        )
        g = graph(POSITIVE, failing)
        g("y", "While", "x", T=[I], cond=calls("Positive"), body=calls("Failing"))
        assert await run(g, "y:0", x=0) == 0
        with pytest.raises(errors.InvalidArgumentError, match="failed on purpose") as caught:
            await run(g, "y:0", x=1)
        assert caught.value.node == "inside"


class TestRuntime:
    def runtime(self) -> FunctionRuntime:
        graph_with = graph(ADD).graph()
        unexpected = pytest.fail
        return FunctionRuntime(
            graph_with.library,
            graph_with.versions,
            lambda *_: unexpected("nothing is built yet"),
            lambda _: unexpected("nothing is built yet"),
            lambda _: unexpected("nothing is built yet"),
            DEFAULT,
        )

    def test_instances_are_kept_by_name_and_attrs(self) -> None:
        runtime = self.runtime()
        one = runtime.function("AddOne")
        assert runtime.function(NameAttrList("AddOne")) is one
        assert runtime.function("AddOne", {"unused": 1}) is not one
        assert repr(one) == "<Function AddOne>"
        assert one.body.argument_types == (I,)

    def test_missing_function_is_named(self) -> None:
        with pytest.raises(errors.InvalidArgumentError, match='Failed to find function "nobody"'):
            self.runtime().function("nobody")


@kernel("FunctionsTestBuilt")
def built(c: OpKernelConstruction) -> Any:
    """A kernel whose builder says in which thread it runs, and waits for the test."""
    builders.append(threading.current_thread())
    may_build.wait(60)
    return lambda x: x


op_registry.register_op("FunctionsTestBuilt(x: int32) -> y: int32")
builders: list[threading.Thread] = []
may_build = threading.Event()


class TestLargeBodies:
    """The first call of a large function builds it in a thread."""

    @pytest.fixture(autouse=True)
    def _fresh(self) -> Iterator[None]:
        builders.clear()
        may_build.clear()
        yield
        may_build.set()

    def graph(self, size: int) -> GraphBuilder:
        body = [("n0", "FunctionsTestBuilt", ["x"], {})]
        first, output = "n0:y:0", ":output:0"
        chain = [(f"n{i}", "Identity", [f"n{i - 1}{output}" if i > 1 else first], {"T": I}) for i in range(1, size)]
        large = function_def("Large(x: int32) -> y: int32", body=[*body, *chain], ret={"y": f"n{size - 1}{output}"})
        g = graph(large)
        g("y", "Large", "x")
        g("z", "Large", "x")
        return g

    async def test_large_body_is_built_once_for_all_waiting_calls(self) -> None:
        async with aexec.Session(self.graph(300).graph()) as session:
            steps = [session.start(["y:0", "z:0"], {"x:0": i}) for i in range(3)]
            while not builders:
                await asyncio.sleep(0)
            assert not any(step.done for step in steps)
            may_build.set()
            assert [await step for step in steps] == [[0, 0], [1, 1], [2, 2]]
        # Each of the two nodes calls the one instance of the function.
        assert len(builders) == 1
        assert builders[0] is not threading.current_thread()

    async def test_small_body_is_built_on_the_loop(self) -> None:
        may_build.set()
        assert await run(self.graph(10), "y:0", x=5) == 5
        assert builders == [threading.current_thread()]

    async def test_cancelling_does_not_wait_for_a_large_body(self) -> None:
        async with aexec.Session(self.graph(300).graph()) as session:
            step = session.start("y:0", {"x:0": 1})
            while not builders:
                await asyncio.sleep(0)
            step.cancel()
            with pytest.raises(errors.CancelledError):
                await step
            may_build.set()
            assert await session.run("y:0", {"x:0": 2}) == 2
        assert len(builders) == 1

    async def test_error_in_a_large_body_fails_the_run(self) -> None:
        g = self.graph(300)
        g.graph_def.library.function[0].node_def[250].op = "TestFail"
        g.graph_def.library.function[0].node_def[250].attr["T"].type = 1
        with pytest.raises(errors.InvalidArgumentError):
            await run(g, "y:0", x=1)


class TestPassesInBodies:
    """Calls in a body are inlined in it, as calls in a request are."""

    @pytest.mark.parametrize("passes", [(), tuple(PASSES)])
    async def test_loop_body_that_calls_is_inlined(self, passes: tuple[str, ...]) -> None:
        twice = function_def(
            "SubtractTwo(x: int32) -> y: int32",
            body=[
                ("a", "SubtractOne", ["x"], {}),
                ("i", "Identity", ["a:y:0"], {"T": I}),
                ("b", "SubtractOne", ["i:output:0"], {}),
            ],
            ret={"y": "b:y:0"},
        )
        g = graph(POSITIVE, SUBTRACT, twice)
        g("y", "While", "x", T=[I], cond=calls("Positive"), body=calls("SubtractTwo"))
        metadata, options = aexec.RunMetadata(), aexec.RunOptions(trace=True)
        async with aexec.Session(g.graph(), config=aexec.SessionConfig(graph_passes=passes)) as session:
            assert await session.run("y:0", {"x:0": 7}) == -1
            assert await session.run("y:0", {"x:0": 4}, options=options, metadata=metadata) == 0
        assert metadata.step_stats is not None
        names = {node.node_name for device in metadata.step_stats.dev_stats for node in device.node_stats}
        if passes:
            assert {"a/n", "b/n"} <= names and not {"a", "i"} & names
        else:
            assert {"a", "i", "b", "n"} <= names


@pytest.mark.parametrize("device", ["/cpu:0", "/device:SIM:0"])
async def test_symbolic_gradient_of_a_function(device: str) -> None:
    g = GraphBuilder()
    g.graph_def.library.function.append(
        function_def("Twice(x: float) -> y: float", body=[("n", "AddV2", ["x", "x"], {"T": F})], ret={"y": "n:z:0"})
    )
    g.placeholder("x")
    g.placeholder("dy")
    g("grad", "SymbolicGradient", "x", "dy", device=device, Tin=[F, F], Tout=[F], f=calls("Twice"))
    async with aexec.Session(g.graph(), config=aexec.SessionConfig(device_count={"SIM": 1})) as session:
        assert await session.run("grad:0", {"x:0": 1.0, "dy:0": 3.0}) == 6.0


async def test_gradient_of_other_types_is_refused_by_name() -> None:
    g = GraphBuilder()
    g.graph_def.library.function.append(
        function_def("Twice(x: float) -> y: float", body=[("n", "AddV2", ["x", "x"], {"T": F})], ret={"y": "n:z:0"})
    )
    g.placeholder("x")
    g("grad", "SymbolicGradient", "x", Tin=[F], Tout=[F], f=calls("Twice"))
    async with aexec.Session(g.graph()) as session:
        with pytest.raises(errors.InvalidArgumentError, match=r"SymbolicGradient of function 'Twice' takes 2 tensors"):
            await session.run("grad:0", {"x:0": 1.0})


async def test_extension_keeps_the_state_of_functions() -> None:
    """A random generator continues where it was, for old calls and for new ones."""
    draw = function_def(
        "Draw(x: int32) -> y: float",
        body=[
            const("shape", 1),
            ("dims", "Pack", ["shape:output:0"], {"T": I, "N": 1, "axis": 0}),
            ("u", "RandomUniform", ["dims:output:0"], {"T": I, "dtype": F, "seed": 1, "seed2": 2}),
        ],
        ret={"y": "u:output:0"},
        stateful=True,
    )

    def base() -> GraphBuilder:
        g = graph(draw)
        g("r", "Draw", "x")
        g("out", "Identity", "r", T=F)
        return g

    async with aexec.Session(base().graph()) as session:
        expected = [float((await session.run("out:0", {"x:0": 0}))[0]) for _ in range(3)]
    assert len(set(expected)) == 3
    async with aexec.Session(base().graph()) as session:
        drawn = [float((await session.run("out:0", {"x:0": 0}))[0])]
        for step in range(2):
            more = GraphBuilder()
            more(f"more{step}", "Neg", "r", T=F)
            await session.extend(more.graph_def)
            drawn.append(-float((await session.run(f"more{step}:0", {"x:0": 0}))[0]))
    assert drawn == expected


def nested_gradients(depth: int, times: int = 1) -> GraphBuilder:
    """F0 = x * x, F1 = x * F0'(x), …, each with this many gradient nodes; the node `y` calls the last."""
    g = GraphBuilder()
    library = g.graph_def.library
    body = [("m", "Mul", ["x", "x"], {"T": F})]
    for level in range(depth):
        library.function.append(function_def(f"F{level}(x: float) -> y: float", body=body, ret={"y": "m:z:0"}))
        attrs = {"Tin": [F, F], "Tout": [F], "f": calls(f"F{level}")}
        body = [(f"g{i}", "SymbolicGradient", ["x", "x"], attrs) for i in range(times)]
        body.append(("m", "Mul", ["g0:output:0", f"g{times - 1}:output:0" if times > 1 else "x"], {"T": F}))
    g.placeholder("x")
    g("y", "SymbolicGradient", "x", "x", Tin=[F, F], Tout=[F], f=calls(f"F{depth - 1}"))
    return g


class TestNestedGradients:
    """Gradients of functions that compute gradients: each level makes twice as many functions, of twice the nodes."""

    @pytest.fixture
    def made(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
        """The functions whose gradients were made, and whether that was on the event loop."""
        found: list[tuple[str, bool]] = []
        (maker,) = gradient_maker._makers

        def noted(library: Any, versions: Any, function: NameAttrList) -> NameAttrList:
            found.append((function.name, on_event_loop()))
            return maker(library, versions, function)

        monkeypatch.setattr(gradient_maker, "_makers", [noted])
        return found

    @pytest.mark.parametrize(("depth", "expected"), [(1, 2.0), (2, 6.0), (3, 24.0), (4, 120.0)])
    async def test_nested_gradients_are_made_in_a_thread(
        self, depth: int, expected: float, made: list[tuple[str, bool]]
    ) -> None:
        async with aexec.Session(nested_gradients(depth).graph()) as session:
            assert await session.run("y:0", {"x:0": 1.0}) == expected
        assert made == [(f"F{level}", False) for level in reversed(range(depth))]

    async def test_gradient_is_made_once_for_all_who_call_it(self, made: list[tuple[str, bool]]) -> None:
        g = nested_gradients(3, times=2)
        g("z", "SymbolicGradient", "x", "y", Tin=[F, F], Tout=[F], f=calls("F1"))
        async with aexec.Session(g.graph()) as session:
            await session.run(["y:0", "z:0"], {"x:0": 1.0})
        assert sorted(name for name, _ in made) == ["F0", "F1", "F2"]

    async def test_gradients_nested_too_deeply_are_refused(self, made: list[tuple[str, bool]]) -> None:
        async with aexec.Session(nested_gradients(50).graph()) as session:
            with pytest.raises(errors.ResourceExhaustedError, match="gradients of functions are nested more than 4 d"):
                await session.run("y:0", {"x:0": 1.0})
        assert len(made) == gradient_maker.MAX_NESTING

    async def test_gradients_of_too_many_nodes_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(functions, "_MADE_NODES", 20)
        async with aexec.Session(nested_gradients(4).graph()) as session:
            for _ in range(2):
                with pytest.raises(errors.ResourceExhaustedError, match="made have too many nodes"):
                    await session.run("y:0", {"x:0": 1.0})

    async def test_gradient_that_nobody_waits_for_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        begun, ended = threading.Event(), threading.Event()

        def endless(*_: Any) -> NameAttrList:
            try:
                for _ in steadily(itertools.count()):
                    begun.set()
            finally:
                ended.set()
            raise AssertionError

        monkeypatch.setattr(gradient_maker, "_makers", [endless])
        async with aexec.Session(nested_gradients(1).graph()) as session:
            step = session.start("y:0", {"x:0": 1.0})
            await until(begun.is_set)
            step.cancel()
            with pytest.raises(errors.CancelledError):
                await step
            await until(ended.is_set)
