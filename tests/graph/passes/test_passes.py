"""Graph passes: what each of them removes, what it must leave alone, and that results stay the same."""

from __future__ import annotations

import asyncio
import itertools
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from aexec.graph import passes
from aexec.graph.graph_import import ImportOptions, import_graph_def
from aexec.graph.passes import PASSES, working_graph
from aexec.runtime import config
from aexec.runtime.planning import folding
from tests.support.programs.functions import calls as calls_of
from tests.support.programs.functions import function_def
from tests.support.programs.graphs import GraphBuilder

F, I = dtypes.float32, dtypes.int32  # noqa: E741


async def run(
    g: GraphBuilder, fetches: Any, feeds: Any = None, passes: tuple[str, ...] = tuple(PASSES), **config: Any
) -> tuple[Any, dict[str, str]]:
    """What is fetched, and name → op of the nodes that were executed, as graphs that can be imported."""
    metadata = aexec.RunMetadata()
    options = aexec.RunOptions(output_partition_graphs=True)
    async with aexec.Session(g.graph(), config=aexec.SessionConfig(graph_passes=passes, **config)) as session:
        value = await session.run(fetches, feeds, options=options, metadata=metadata)
        again = await session.run(fetches, feeds)
    np.testing.assert_equal(value, again)
    for graph in metadata.partition_graphs:
        import_graph_def(aexec.Graph(), graph, ImportOptions(internal_names=True))
    executed = [node for graph in metadata.partition_graphs for node in graph.node]
    return value, {node.name: node.op for node in executed if node.op not in ("_Arg", "_Retval")}


@aexec.op("PassesTestCount(x: float) -> y: float")
def count(x: Any) -> Any:
    calls.append(x)
    return x + 1


calls: list[Any] = []
opened = asyncio.Event()


@aexec.op("PassesTestWait(x: float) -> y: float", stateful=False)
async def wait(x: Any) -> Any:
    await opened.wait()
    return x


@aexec.op("PassesTestOpen(x: float) -> y: float")
def open_(x: Any) -> Any:
    opened.set()
    return x


class TestConstantFolding:
    ONLY = ("constant_folding", "pruning")

    async def test_nodes_of_constants_alone_are_folded(self) -> None:
        g = GraphBuilder()
        g.placeholder("x")
        g.const("two", np.float32(2))
        g("four", "Square", "two", T=F)
        g("sixteen", "Square", "four", T=F)
        g("y", "Mul", "x", "sixteen", T=F)
        value, executed = await run(g, ["y:0", "sixteen:0"], {"x:0": 3.0}, self.ONLY)
        assert value == [48, 16]
        assert executed == {"sixteen": "Const", "y": "Mul"}

    async def test_slow_machine_folds_as_much(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a plan computes, to the last bit, does not depend on the clock."""
        clock = itertools.count(0.0, 0.001)  # each call seems to take a millisecond
        monkeypatch.setattr(folding, "thread_time", lambda: next(clock))
        g = GraphBuilder()
        g.placeholder("x")
        g.const("c0", np.float32(1))
        for i in range(20):
            g(f"c{i + 1}", "Square", f"c{i}", T=F)
        g("y", "Mul", "x", "c20", T=F)
        assert await run(g, "y:0", {"x:0": 3.0}, self.ONLY) == (3, {"c20": "Const", "y": "Mul"})

    async def test_much_is_folded_in_a_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        threads = []
        outputs = folding._outputs

        def noted(*args: Any) -> Any:
            threads.append(threading.current_thread())
            return outputs(*args)

        monkeypatch.setattr(folding, "_outputs", noted)
        g = GraphBuilder()
        g.placeholder("x")
        g.const("c0", np.ones(250_000, np.float32))
        for i in range(30):
            g(f"c{i + 1}", "Tanh", f"c{i}", T=F)
        g("y", "Mul", "x", "c30", T=F)
        _, executed = await run(g, "y:0", {"x:0": 3.0}, self.ONLY)
        assert executed == {"c30": "Const", "y": "Mul"}
        assert threads[-1] is not threading.main_thread() and len(threads) == 30, "none was computed again"

    async def test_fed_constant_is_none(self) -> None:
        g = GraphBuilder()
        g.const("two", np.float32(2))
        g("four", "Square", "two", T=F)
        g("y", "Square", "four", T=F)
        assert (await run(g, "y:0", {"two:0": 3.0}, self.ONLY))[0] == 81
        assert (await run(g, "y:0", {"four:0": 3.0}, self.ONLY))[0] == 9
        assert (await run(g, "y:0", None, self.ONLY))[0] == 16

    async def test_several_outputs(self) -> None:
        g = GraphBuilder()
        g.placeholder("x")
        g.const("values", np.arange(4, dtype=np.float32))
        g.const("axis", 0, I)
        g("parts", "Split", "axis", "values", T=F, num_split=2)
        g("a", "Mul", "x", "parts:1", T=F)
        g("b", "Mul", "x", "parts", T=F)
        value, executed = await run(g, ["a:0", "b:0"], {"x:0": 2.0}, self.ONLY)
        assert [v.tolist() for v in value] == [[4, 6], [0, 2]]
        assert sorted(executed.values()) == ["Const", "Const", "Mul", "Mul"]
        # Fetched itself it stays what it is.
        value, executed = await run(g, ["parts:1", "a:0"], {"x:0": 2.0}, self.ONLY)
        assert [v.tolist() for v in value] == [[2, 3], [4, 6]]
        assert executed["parts"] == "Split"

    @pytest.mark.parametrize(
        ("op", "attrs"),
        [("RandomUniform", {"T": I, "dtype": F}), ("PassesTestCount", {})],
    )
    async def test_stateful_and_foreign_ops_are_not_folded(self, op: str, attrs: Any) -> None:
        calls.clear()
        g = GraphBuilder()
        g.const("c", [2, 3], I) if attrs else g.const("c", np.float32(1))
        g("n", op, "c", **attrs)
        g("y", "Neg", "n", T=F)
        async with aexec.Session(g.graph()) as session:
            first, second = await session.run("y:0"), await session.run("y:0")
        if attrs:
            assert not np.array_equal(first, second)
        else:
            assert len(calls) == 2

    async def test_control_trigger_is_never_folded(self) -> None:
        """It runs although what it waits for is dead (SEMANTICS 19.3)."""
        g = GraphBuilder()
        g.const("c", np.float32(3))
        g.const("no", False)
        g("s", "Switch", "c", "no", T=F)
        g("dead", "Identity", "s:1", T=F)
        g("trigger", "ControlTrigger", "^dead")
        g("y", "Identity", "c", "^trigger", T=F)
        assert (await run(g, "y:0"))[0] == 3

    async def test_error_comes_when_the_node_runs(self) -> None:
        g = GraphBuilder()
        g.const("a", 1, I)
        g.const("b", 0, I)
        g("bad", "FloorDiv", "a", "b", T=I)
        g("y", "Neg", "bad", T=I)
        with pytest.raises(errors.InvalidArgumentError) as caught:
            await run(g, "y:0")
        assert caught.value.node == "bad"

    async def test_large_results_are_not_folded(self) -> None:
        g = GraphBuilder()
        g.const("dims", [3 * 2**20], I)
        g.const("one", np.float32(1))
        g("large", "Fill", "dims", "one", T=F)
        g.const("axis", [0], I)
        g("y", "Sum", "large", "axis", T=F)
        value, executed = await run(g, "y:0")
        assert value == 3 * 2**20
        assert executed["large"] == "Fill" and executed["y"] == "Sum"

    async def test_only_quick_nodes_are_folded_on_the_loop(self) -> None:
        g = GraphBuilder()
        g.const("m", np.ones((400, 400), np.float32))
        g("product", "MatMul", "m", "m", T=F)
        g("y", "Neg", "product", T=F)
        assert "product" in (await run(g, "y:0"))[1]

    async def test_constants_of_branches_stay_in_them(self) -> None:
        """One that waits for a branch's pivot is dead if the branch is."""
        g = GraphBuilder()
        g.placeholder("p", dtypes.bool_, [])
        g("pivot", "Switch", "p", "p", T=dtypes.bool_)
        g("no", "Identity", "pivot", T=dtypes.bool_)
        g("yes", "Identity", "pivot:1", T=dtypes.bool_)
        g.const("a", np.float32(1), F, "^no")
        g.const("b", np.float32(1), F, "^yes")
        g("minus_a", "Neg", "a", T=F)
        g("minus_b", "Exp", "b", T=F)
        g("y", "Merge", "minus_a", "minus_b", T=F, N=2)
        assert (await run(g, "y:0", {"p:0": False}))[0] == -1
        assert (await run(g, "y:1", {"p:0": True}))[0] == 1


class TestCommonSubexpressions:
    ONLY = ("common_subexpressions", "pruning")

    def pair(self, op: str, first: list[str], second: list[str], **attrs: Any) -> GraphBuilder:
        g = GraphBuilder()
        g.placeholder("x")
        g.placeholder("z")
        g("a", op, *first, T=F, **attrs)
        g("b", op, *second, T=F, **attrs)
        g("minus_a", "Neg", "a", T=F)
        g("minus_b", "Neg", "b", T=F)
        g("y", "Sub", "minus_a", "minus_b", T=F)
        return g

    @pytest.mark.parametrize(
        ("op", "first", "second", "merged"),
        [
            ("AddV2", ["x", "z"], ["x", "z"], True),
            ("Mul", ["x", "z"], ["z", "x"], True),
            ("Sub", ["x", "z"], ["z", "x"], False),
            ("Sub", ["x", "z"], ["x", "z", "^x"], False),
        ],
    )
    async def test_inputs(self, op: str, first: list[str], second: list[str], merged: bool) -> None:
        _, executed = await run(self.pair(op, first, second), "y:0", {"x:0": 3.0, "z:0": 5.0}, self.ONLY)
        assert ("b" not in executed and "minus_b" not in executed) is merged

    async def test_attrs(self) -> None:
        g = GraphBuilder()
        g.const("m", np.float32([[1, 2], [3, 4]]))
        g.placeholder("x")
        for name, transpose in {"a": True, "b": False, "c": True}.items():
            g(name, "MatMul", "x", "m", T=F, transpose_b=transpose)
        g("y", "AddN", "a", "b", "c", T=F, N=3)
        feeds = {"x:0": np.ones((1, 2), np.float32)}
        value, executed = await run(g, "y:0", feeds, self.ONLY)
        assert value.tolist() == [[10, 20]]
        assert {"a", "b"} <= set(executed) and "c" not in executed

    async def test_equal_constants_are_one(self) -> None:
        g = GraphBuilder()
        g.placeholder("x")
        for name, value in {"one": 1.0, "same": 1.0, "two": 2.0, "minus_zero": -0.0, "zero": 0.0}.items():
            g.const(name, np.float32(value))
            g(f"x_{name}", "RealDiv", "x", name, T=F)
        names = ["one", "same", "two", "minus_zero", "zero"]
        g("y", "Pack", *(f"x_{name}" for name in names), T=F, N=5)
        value, executed = await run(g, "y:0", {"x:0": 1.0}, self.ONLY)
        assert value.tolist() == [1, 1, 0.5, -np.inf, np.inf]
        assert "x_same" not in executed and "x_zero" in executed

    async def test_fed_node_has_a_value_of_its_own(self) -> None:
        g = self.pair("Square", ["x"], ["x"])
        for fed in ("a:0", "b:0"):
            value, _ = await run(g, "y:0", {"x:0": 3.0, fed: 1.0}, self.ONLY)
            assert value == (8 if fed == "a:0" else -8)

    async def test_fetched_and_targeted_nodes_stay(self) -> None:
        g = self.pair("Square", ["x"], ["x"])
        value, executed = await run(g, ["a:0", "b:0", "y:0"], {"x:0": 3.0}, self.ONLY)
        assert value == [9, 9, 0]
        assert {"a", "b"} <= set(executed)

    async def test_random_numbers_differ(self) -> None:
        g = GraphBuilder()
        g.const("shape", [4], I)
        g("a", "RandomUniform", "shape", T=I, dtype=F)
        g("b", "RandomUniform", "shape", T=I, dtype=F)
        g("y", "Sub", "a", "b", T=F)
        value, _ = await run_once(g, "y:0")
        assert np.all(value != 0)


async def run_once(g: GraphBuilder, fetch: str) -> tuple[Any, None]:
    async with aexec.Session(g.graph()) as session:
        return await session.run(fetch), None


class TestPassThrough:
    ONLY = ("pass_through", "pruning")

    async def test_identities(self) -> None:
        g = GraphBuilder()
        g.placeholder("x")
        g("a", "Identity", "x", T=F)
        g("b", "StopGradient", "a", T=F)
        g("y", "Square", "b", T=F)
        g("z", "Identity", "b", T=F)
        value, executed = await run(g, ["y:0", "z:0"], {"x:0": 3.0}, self.ONLY)
        assert value == [9, 3]
        assert executed == {"y": "Square", "z": "Identity"}

    async def test_identity_with_control_outputs_is_kept(self) -> None:
        """Control edges from a pivot are dead with it; those from its Switch are not."""
        g = GraphBuilder()
        g.placeholder("p", dtypes.bool_, [])
        g.const("c", np.float32(1))
        g("switch", "Switch", "p", "p", T=dtypes.bool_)
        g("pivot", "Identity", "switch:1", T=dtypes.bool_)
        g("y", "Identity", "c", "^pivot", T=F)
        assert (await run(g, "y:0", {"p:0": True}, self.ONLY))[0] == 1
        with pytest.raises(errors.InvalidArgumentError, match="does not have value"):
            await run(g, "y:0", {"p:0": False}, self.ONLY)

    async def test_variable_is_read_when_it_was_read(self) -> None:
        g = GraphBuilder()
        g.const("one", np.float32(1))
        g("v", "VariableV2", dtype=F, shape=PartialTensorShape([]))
        g("init", "Assign", "v", "one", T=F)
        g("read", "Identity", "v", T=F)
        g("more", "AssignAdd", "v", "one", "^read", T=F)
        g("y", "AddV2", "read", "more", T=F)
        results = []
        for names in ((), tuple(PASSES)):
            async with aexec.Session(g.graph(), config=aexec.SessionConfig(graph_passes=names)) as session:
                await session.run("init:0")
                results.append([await session.run("y:0"), await session.run("y:0")])
        assert results[0] == results[1]

    async def test_no_ops_are_removed(self) -> None:
        g = GraphBuilder()
        g.placeholder("x")
        g("a", "Square", "x", T=F)
        g("b", "Neg", "x", T=F)
        g("group", "NoOp", "^a", "^b")
        g("outer", "NoOp", "^group")
        g("y", "Exp", "x", "^outer", T=F)
        value, executed = await run(g, "y:0", {"x:0": 0.0}, self.ONLY)
        assert value == 1
        assert executed == {"a": "Square", "b": "Neg", "y": "Exp"}
        _, executed = await run(g, ["y:0", "group"], {"x:0": 0.0}, self.ONLY)
        assert "group" in executed

    async def test_no_op_that_saves_edges_stays(self) -> None:
        g = GraphBuilder()
        g.placeholder("x")
        for i in range(5):
            g(f"a{i}", "Square", "x", T=F)
        g("group", "NoOp", *(f"^a{i}" for i in range(5)))
        for i in range(5):
            g(f"b{i}", "Neg", "x", "^group", T=F)
        g("y", "AddN", *(f"b{i}" for i in range(5)), T=F, N=5)
        assert "group" in (await run(g, "y:0", {"x:0": 1.0}, self.ONLY))[1]


VALUES = [0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e-45]


def test_long_chain_of_forwarded_values_is_followed_once() -> None:
    length, lookups = 2000, 0

    class Counted(dict[Any, Any]):
        def __getitem__(self, key: Any) -> Any:
            nonlocal lookups
            lookups += 1
            return super().__getitem__(key)

    ends = Counted({(i, 0): (i - 1, 0) for i in range(1, length)})
    assert all(working_graph._end(ends, (i, 0)) == (0, 0) for i in range(length))
    assert all(working_graph._end(ends, (i, 0)) == (0, 0) for i in reversed(range(length)))
    assert lookups < 5 * length


class TestArithmetic:
    ONLY = ("arithmetic", "pruning")

    @pytest.mark.parametrize(
        ("op", "number", "simplified"),
        [
            ("Mul", 1.0, True),
            ("RealDiv", 1.0, True),
            ("Sub", 0.0, True),
            ("Sub", -0.0, False),
            ("AddV2", 0.0, False),
            ("Mul", 2.0, False),
            ("Mul", [1.0], False),
        ],
    )
    async def test_numbers(self, op: str, number: Any, simplified: bool) -> None:
        g = GraphBuilder()
        g.placeholder("x")
        g.const("c", np.float32(number))
        g("n", op, "x", "c", T=F)
        g("y", "Reciprocal", "n", T=F)
        feeds = {"x:0": np.float32(VALUES)}
        expected, _ = await run(g, "y:0", feeds, ())
        value, executed = await run(g, "y:0", feeds, self.ONLY)
        assert ("n" not in executed) is simplified
        assert value.tobytes() == expected.tobytes()

    @pytest.mark.parametrize(("op", "inputs"), [("AddV2", ["x", "c"]), ("AddV2", ["c", "x"]), ("Sub", ["x", "c"])])
    async def test_integers(self, op: str, inputs: list[str]) -> None:
        g = GraphBuilder()
        g.placeholder("x", I)
        g.const("c", 0, I)
        g("n", op, *inputs, T=I)
        g("y", "Neg", "n", T=I)
        value, executed = await run(g, "y:0", {"x:0": [1, 2]}, self.ONLY)
        assert value.tolist() == [-1, -2] and executed == {"y": "Neg"}

    async def test_fed_number_is_none(self) -> None:
        g = GraphBuilder()
        g.placeholder("x")
        g.const("c", np.float32(1))
        g("n", "Mul", "x", "c", T=F)
        g("y", "Square", "n", T=F)
        assert (await run(g, "y:0", {"x:0": 3.0, "c:0": 2.0}, self.ONLY))[0] == 36

    async def test_twice_transpose_and_cast(self) -> None:
        g = GraphBuilder()
        g.placeholder("x", F, [2, 3])
        g("one", "Neg", "x", T=F)
        g("two", "Neg", "one", T=F)
        g.const("order", [0, 1], I)
        g.const("swap", [1, 0], I)
        g("same", "Transpose", "two", "order", T=F)
        g("cast", "Cast", "same", SrcT=F, DstT=F)
        g("y", "Transpose", "cast", "swap", T=F)
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        value, executed = await run(g, "y:0", {"x:0": x}, self.ONLY)
        assert value.tolist() == x.T.tolist()
        assert set(executed) == {"y", "swap"}

    async def test_twice_of_a_variable_reads_it_when_it_ran(self) -> None:
        g = GraphBuilder()
        g("v", "VariableV2", dtype=F, shape=PartialTensorShape([]))
        g.const("one", np.float32(1))
        g.const("five", np.float32(5))
        g("init", "Assign", "v", "one", T=F)
        g("n", "Neg", "v", T=F)
        g("m", "Neg", "n", T=F)
        g("later", "Assign", "v", "five", "^m", T=F)
        g("y", "Mul", "m", "one", "^later", T=F)
        g("z", "Identity", "m", "^later", T=F)
        for names in ((), self.ONLY, tuple(PASSES)):
            async with aexec.Session(g.graph(), config=aexec.SessionConfig(graph_passes=names)) as session:
                await session.run("init:0")
                assert await session.run(["y:0", "z:0"]) == [1, 1]

    async def test_twice_of_a_variable_that_is_assigned_beside_it(self) -> None:
        """Nothing waits for the second Neg, but it has run when the variable is assigned."""
        g = GraphBuilder()
        g("v", "VariableV2", dtype=F, shape=PartialTensorShape([]))
        g.const("one", np.float32(1))
        g.const("five", np.float32(5))
        g("init", "Assign", "v", "one", T=F)
        g("n", "Neg", "v", T=F)
        g("m", "Neg", "n", T=F)
        g("later", "Assign", "v", "five", "^n", T=F)
        g("y", "Mul", "m", "five", "^later", T=F)
        for names in ((), self.ONLY, tuple(PASSES)):
            async with aexec.Session(g.graph(), config=aexec.SessionConfig(graph_passes=names)) as session:
                await session.run("init:0")
                assert await session.run("y:0") == 5


class TestConfig:
    def test_unknown_names(self) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="no graph pass 'fold'; there are function_inlining, "):
            aexec.SessionConfig(graph_passes=["fold"])

    def test_graph_passes_from_a_proto(self) -> None:
        message = proto.ConfigProto()
        assert aexec.SessionConfig.from_proto(message).graph_passes == tuple(PASSES)
        message.graph_options.optimizer_options.opt_level = proto.OptimizerOptions.L0
        assert aexec.SessionConfig.from_proto(message).graph_passes == ()


UNARY, BINARY = ("Neg", "Identity", "Square", "Abs"), ("AddV2", "Mul", "Sub", "Maximum")


@st.composite
def graphs(draw: st.DrawFn) -> tuple[GraphBuilder, list[str], list[str]]:
    """A random graph of placeholders, constants and arithmetic; what to fetch; what to feed besides x."""
    g = GraphBuilder()
    names = [g.placeholder("x", F, [])]
    names += [g.const(f"c{i}", np.float32(draw(st.sampled_from([0, 1, -0.0, 2])))) for i in range(3)]
    for i in range(draw(st.integers(1, 20))):
        some = st.sampled_from(names)
        controls = [f"^{n}" for n in draw(st.lists(some, max_size=2))] if draw(st.booleans()) else []
        if draw(st.integers(0, 9)) == 0:
            g(f"no_op{i}", "NoOp", *controls)
            continue
        inputs = [draw(some)] if draw(st.booleans()) else [draw(some), draw(some)]
        op = draw(st.sampled_from(UNARY if len(inputs) == 1 else BINARY))
        names.append(g(f"n{i}", op, *inputs, *controls, T=F))
    fetches = draw(st.lists(st.sampled_from(names[1:]), min_size=1, max_size=4, unique=True))
    fed = draw(st.lists(st.sampled_from([n for n in names[1:] if n not in fetches] or ["x"]), max_size=2, unique=True))
    return g, fetches, [n for n in fed if n != "x"]


@given(case=graphs(), x=st.sampled_from(VALUES))
async def test_random_graphs(case: tuple[GraphBuilder, list[str], list[str]], x: float) -> None:
    """All passes together give what none gives, to the last bit."""
    g, fetches, fed = case
    feeds = {"x:0": np.float32(x), **{f"{name}:0": np.float32(7) for name in fed}}
    names = [f"{name}:0" for name in fetches]
    expected, _ = await run(g, names, feeds, ())
    value, _ = await run(g, names, feeds)
    assert [np.asarray(v).tobytes() for v in value] == [np.asarray(v).tobytes() for v in expected]


class TestInlining:
    ONLY = ("function_inlining",)

    def graph(self, *functions: proto.FunctionDef) -> GraphBuilder:
        g = GraphBuilder()
        g.graph_def.library.function.extend(functions)
        g.placeholder("x", F)
        return g

    async def both(self, g: GraphBuilder, fetches: Any, feeds: Any) -> tuple[Any, dict[str, str]]:
        expected, _ = await run(g, fetches, feeds, ())
        value, executed = await run(g, fetches, feeds, self.ONLY)
        np.testing.assert_equal(value, expected)
        return value, executed

    async def test_calls_in_calls(self) -> None:
        square = function_def("Sq(x: float) -> y: float", body=[("n", "Square", ["x"], {"T": F})], ret={"y": "n:y:0"})
        body = [
            ("a", "Sq", ["x"], {}),
            ("b", "PartitionedCall", ["a:y:0"], {"Tin": [F], "Tout": [F], "f": calls_of("Sq")}),
        ]
        fourth = function_def("Fourth(x: float) -> y: float", body=body, ret={"y": "b:output:0"})
        g = self.graph(square, fourth)
        g("p", "Fourth", "x")
        g("q", "Fourth", "p")
        value, executed = await self.both(g, ["p:0", "q:0"], {"x:0": 2.0})
        assert value == [16, 65536]
        assert executed["p/a/n"] == executed["q/b/n"] == "Square"
        assert executed["p"] == executed["q/a"] == "Identity"

    async def test_arguments_and_several_results(self) -> None:
        swap = function_def("Swap(x: float, y: float) -> a: float, b: float", body=[], ret={"a": "y", "b": "x"})
        g = self.graph(swap)
        g("n", "Neg", "x", T=F)
        g("s", "Swap", "x", "n")
        value, executed = await self.both(g, ["s:0", "s:1"], {"x:0": 2.0})
        assert value == [-2, 2]
        assert executed["s"] == "IdentityN"

    async def test_result_does_not_wait_for_the_others(self) -> None:
        """The other result comes only once a consumer of the first has run."""
        body = [("w", "PassesTestWait", ["x"], {}), ("s", "Square", ["x"], {"T": F})]
        two = function_def("Two(x: float) -> a: float, b: float", body=body, ret={"a": "w:y:0", "b": "s:y:0"})
        g = self.graph(two)
        g("two", "Two", "x")
        g("opened", "PassesTestOpen", "two:1")
        g("a", "Neg", "two", T=F)
        for names in (self.ONLY, tuple(PASSES)):
            opened.clear()
            async with aexec.Session(g.graph(), config=aexec.SessionConfig(graph_passes=names)) as session:
                assert await asyncio.wait_for(session.run(["a:0", "opened:0"], {"x:0": 3.0}), 10) == [-3, 9]

    async def test_control_successor_of_a_call_waits_for_all_its_results(self) -> None:
        g = self.graph(
            function_def(
                "Logged(x: float) -> a: float, b: float",
                body=[
                    ("c", "PassesTestCount", ["x"], {}),
                    ("d", "PassesTestCount", ["c:y:0"], {}),
                    ("s", "Square", ["x"], {"T": F}),
                ],
                ret={"a": "s:y:0", "b": "d:y:0"},
            )
        )
        g("two", "Logged", "x")
        g.const("late", np.float32(100))
        g("after", "Identity", "late", "^two", T=F)
        g("last", "PassesTestCount", "after")
        g("a", "Neg", "two", T=F)
        for names in (self.ONLY, tuple(PASSES)):
            calls.clear()
            async with aexec.Session(g.graph(), config=aexec.SessionConfig(graph_passes=names)) as session:
                assert await session.run(["last:0", "a:0"], {"x:0": 3.0}) == [101, -9]
            assert calls == [3, 4, 100]

    async def test_input_that_is_not_used_may_fail(self) -> None:
        first = function_def("First(x: float, y: float) -> a: float", body=[], ret={"a": "x"})
        g = self.graph(first)
        g("bad", "CheckNumerics", "x", T=F, message=b"no")
        g("s", "First", "x", "bad")
        for names in ((), tuple(PASSES)):
            with pytest.raises(errors.InvalidArgumentError, match="no"):
                await run(g, "s:0", {"x:0": np.nan}, names)

    async def test_effects_keep_the_order_of_calls(self) -> None:
        """The body reads before anything after the call writes, and after all that it was called with."""
        both = function_def(
            "Both(v: resource, x: float) -> y: float, z: float",
            body=[("r", "ReadVariableOp", ["v"], {"dtype": F}), ("n", "Identity", ["x"], {"T": F})],
            ret={"y": "r:value:0", "z": "n:output:0"},
            stateful=True,
        )
        g = self.graph(both)
        g("v", "VarHandleOp", dtype=F, shape=PartialTensorShape([]), shared_name=b"v")
        g("init", "AssignVariableOp", "v", "x", dtype=F)
        g("call", "Both", "v", "x", "^init")
        g("n", "Neg", "call:1", T=F)
        g("change", "AssignVariableOp", "v", "n", dtype=F)
        g("after", "Both", "v", "n", "^change")
        value, executed = await self.both(g, ["call:0", "after:0"], {"x:0": 3.0})
        assert value == [3, -3]
        assert executed["call"] == "IdentityN"

    async def test_state_of_kernels_is_the_function_s(self) -> None:
        noise = function_def(
            "Noise(s: int32) -> y: float",
            body=[("r", "RandomUniform", ["s"], {"T": I, "dtype": F, "seed": 1, "seed2": 2})],
            ret={"y": "r:output:0"},
            stateful=True,
        )
        g = self.graph(noise)
        g.const("shape", [2], I)
        g("a", "Noise", "shape")
        g("b", "Noise", "shape", "^a")
        results = []
        for names in ((), tuple(PASSES)):
            async with aexec.Session(g.graph(), config=aexec.SessionConfig(graph_passes=names)) as session:
                results.append([await session.run(["a:0", "b:0"]), await session.run("b:0"), await session.run("a:0")])
        np.testing.assert_equal(results[1], results[0])

    async def test_marked_and_endless_functions_are_not_inlined(self) -> None:
        marked = function_def("Marked(x: float) -> y: float", body=[], ret={"y": "x"})
        marked.attr["_noinline"].b = True
        endless = function_def("Endless(x: float) -> y: float", body=[("n", "Endless", ["x"], {})], ret={"y": "n:y:0"})
        g = self.graph(marked, endless)
        g("m", "Marked", "x")
        assert (await self.both(g, "m:0", {"x:0": 3.0}))[1] == {"m": "Marked"}
        g("e", "Endless", "x")
        with pytest.raises(errors.ResourceExhaustedError, match="nested more than"):
            await run(g, "e:0", {"x:0": 3.0})

    async def test_dead_call_runs_nothing(self) -> None:
        counting = function_def(
            "Counting(x: float) -> y: float", body=[("n", "PassesTestCount", ["x"], {})], ret={"y": "n:y:0"}
        )
        calls.clear()
        g = self.graph(counting)
        g.placeholder("p", dtypes.bool_, [])
        g("s", "Switch", "x", "p", T=F)
        g("y", "Counting", "s:1")
        g("m", "Merge", "s", "y", T=F, N=2)
        assert (await run(g, "m:0", {"x:0": 3.0, "p:0": False}))[0] == 3
        assert not calls

    async def test_fed_call(self) -> None:
        square = function_def("Sq(x: float) -> y: float", body=[("n", "Square", ["x"], {"T": F})], ret={"y": "n:y:0"})
        g = self.graph(square)
        g("s", "Sq", "x")
        g("y", "Neg", "s", T=F)
        assert (await self.both(g, "y:0", {"s:0": 3.0}))[0] == -3

    async def test_call_of_constants_that_another_request_does_not_inline(self) -> None:
        """What folding makes of the inlined call must not be taken for the call's kernel."""
        body = [("c", "Const", [], {"dtype": F, "value": np.float32(3)}), ("n", "Square", ["c:output:0"], {"T": F})]
        nine = function_def("Nine() -> y: float", body=body, ret={"y": "n:y:0"})
        three = function_def("Three() -> y: float", body=body[:1], ret={"y": "c:output:0"})
        g = self.graph(nine, three)
        g.placeholder("p", dtypes.bool_, [])
        for op in ("Nine", "Three"):
            g(op.lower(), op)
            g(f"minus_{op.lower()}", "Neg", op.lower(), T=F)
            g(f"switch_{op.lower()}", "Switch", f"minus_{op.lower()}", "p", T=F)
        async with aexec.Session(g.graph()) as session:
            for _ in range(2):
                assert await session.run(["minus_nine:0", "minus_three:0"]) == [-9, -3]
                feeds = {"p:0": True}
                assert await session.run(["switch_nine:1", "switch_three:1"], feeds) == [-9, -3]


class TestLogSoftmax:
    """log(softmax(x)) is finite where the probability is not: exactly, log softmax [0, -200] is [0, -200]."""

    @staticmethod
    def graph() -> GraphBuilder:
        g = GraphBuilder()
        g.placeholder("x")
        g("p", "Softmax", "x", T=F)
        g("y", "Log", "p", T=F)
        return g

    async def test_logarithm_of_softmax_is_computed_from_the_logits(self) -> None:
        value, executed = await run(self.graph(), "y:0", {"x:0": np.float32([[0, -200], [1, 2]])})
        np.testing.assert_allclose(value, [[0, -200], [-1.3132616, -0.31326166]], rtol=1e-6)
        assert executed == {"x": "Placeholder", "y": "LogSoftmax"} or executed == {"y": "LogSoftmax"}

    async def test_probabilities_that_something_else_uses_are_computed_too(self) -> None:
        (p, y), executed = await run(self.graph(), ["p:0", "y:0"], {"x:0": np.float32([[0, -200]])})
        assert (p.tolist(), y.tolist()) == ([[1, 0]], [[0, -200]])
        assert executed["p"] == "Softmax"

    async def test_probabilities_that_are_fed_are_taken(self) -> None:
        value, executed = await run(self.graph(), "y:0", {"p:0": np.float32([[1, 0.5]])})
        np.testing.assert_allclose(value, [[0, np.log(0.5)]], rtol=1e-6)
        assert executed["y"] == "Log"

    async def test_softmax_that_waits_for_another_node_is_left(self) -> None:
        g = GraphBuilder()
        g.placeholder("x")
        g("first", "PassesTestCount", "x")
        g("p", "Softmax", "x", "^first", T=F)
        g("y", "Log", "p", T=F)
        _, executed = await run(g, "y:0", {"x:0": np.float32([[0, 1]])})
        assert executed["y"] == "Log"

    async def test_exact_passes_leave_it(self) -> None:
        value, _ = await run(self.graph(), "y:0", {"x:0": np.float32([[0, -200]])}, ("exact",))
        assert value.tolist() == [[0, -np.inf]]


class TestOwnPasses:
    async def test_registered_pass_runs_where_it_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(passes, "PASSES", dict(PASSES))
        seen: list[passes.WorkingGraph] = []
        passes.register_pass("seeing", lambda working, *_: seen.append(working))
        with pytest.raises(errors.AlreadyExistsError, match="'seeing' is registered already"):
            passes.register_pass("seeing", lambda *_: None)
        monkeypatch.setattr(config, "PASSES", passes.PASSES)
        g = GraphBuilder()
        g.placeholder("x")
        g("y", "Neg", "x", T=F)
        await run(g, "y:0", {"x:0": 1.0})
        assert not seen
        await run(g, "y:0", {"x:0": 1.0}, ("seeing",))
        assert len(seen) == 1

    def test_registered_pass_is_exact_where_it_says(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(passes, "PASSES", dict(PASSES))
        passes.register_pass("rounding", lambda *_: None)
        passes.register_pass("keeping", lambda *_: None, exact=True)
        assert passes.pass_names("exact") == {*(name for name, each in PASSES.items() if each.exact), "keeping"}


class TestDerivedNodes:
    """What was made of a node tells where it comes from (ExperimentalDebugInfo)."""

    @staticmethod
    def graph() -> GraphBuilder:
        g = GraphBuilder()
        g.graph_def.library.function.append(
            function_def(
                "Checked(x: float) -> y: float",
                body=[("n", "CheckNumerics", ["x"], {"T": F, "message": b"oops"})],
                ret={"y": "n:output:0"},
            )
        )
        g.placeholder("x")
        g("call", "Checked", "x")
        return g

    async def test_error_names_the_node_and_its_function(self) -> None:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            await run(self.graph(), "call:0", {"x:0": np.nan})
        assert caught.value.node == "call/n"
        assert caught.value.origin == "node 'n' of function 'Checked'"
        assert "derived from node 'n' of function 'Checked'" in str(caught.value)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)

    async def test_executed_graphs_have_it_as_debug_info(self) -> None:
        metadata = aexec.RunMetadata()
        async with aexec.Session(self.graph().graph()) as session:
            await session.run(
                "call:0", {"x:0": 1.0}, options=aexec.RunOptions(output_partition_graphs=True), metadata=metadata
            )
        (node,) = [n for graph in metadata.partition_graphs for n in graph.node if n.name == "call/n"]
        assert list(node.experimental_debug_info.original_node_names) == ["n"]
        assert list(node.experimental_debug_info.original_func_names) == ["Checked"]

    async def test_debug_info_of_others_is_told(self) -> None:
        g = GraphBuilder()
        g.placeholder("x")
        g("fused", "CheckNumerics", "x", T=F, message=b"oops")
        g.graph_def.node[-1].experimental_debug_info.original_node_names.extend(["a", "b"])
        with pytest.raises(errors.InvalidArgumentError, match="derived from node 'a', 'b'"):
            await run(g, "fused:0", {"x:0": np.nan})
