"""Compiled plans that write outputs over inputs: results do not change, and only unshared arrays are overwritten."""

from __future__ import annotations

import asyncio
import random
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aexec
from aexec.framework.dtypes import float32, int32
from aexec.framework.shape import PartialTensorShape
from aexec.kernels.common.single_loops import tanh
from aexec.runtime.compiled import line_writer
from aexec.runtime.compiled.line_calls import TakeOverError
from aexec.runtime.plans import compilation_policy
from tests.support.programs.elementwise_programs import Node, build, node, numbers
from tests.support.programs.graphs import GraphBuilder

SHAPE = (4, 6)
LARGE = (128, 160)  # see LoopBudget.small_elements
ops = aexec.ops


@pytest.fixture(autouse=True)
def compiled_at_once(monkeypatch: pytest.MonkeyPatch, plans_compile: None) -> None:
    monkeypatch.setattr(compilation_policy, "COMPILE_AT", 1)
    monkeypatch.setattr(compilation_policy, "GIVE_UP_AT", 1 << 30)


def session(graph: aexec.Graph, **config: Any) -> aexec.Session:
    return aexec.Session(graph, config=aexec.SessionConfig(graph_passes=(), **config))


async def source(graph: aexec.Graph, fetches: Any, feeds: list[str]) -> list[str]:
    """The calls of the compiled plan, `v2 = c2(v1, v1)  # y (Exp)`, without what is looked at."""
    async with session(graph) as s:
        text = await s.plan_source(s.make_callable(fetches, feeds))
    return [
        re.sub(r"first\(n\d+, (.*)\)  #", r"\1  #", line.strip())
        for line in text.splitlines()
        if " = c" in line or "first(" in line
    ]


async def results(
    nodes: list[Node], chosen: list[int], shape: Any, declared: Any, *, taken_over: float, **config: Any
) -> list[list[bytes]]:
    """The results of three runs; the interpreter takes over at this fraction of the calls."""
    graph, names = build(nodes, shape, declared=declared)
    chances = random.Random(len(nodes))

    def interrupt() -> None:
        if chances.random() < taken_over:
            raise TakeOverError("here")

    fed = {"x0:0": numbers(1, shape), "x1:0": numbers(2, shape)}
    before = {name: value.tobytes() for name, value in fed.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_writer, "INTERRUPT", interrupt if taken_over else None)
        async with session(graph, **config) as s:
            await s.run([], targets=["init"])
            call = s.make_callable([names[2:][i % len(nodes)] for i in chosen], [*fed, "p:0"])
            kept = [await call(*fed.values(), np.bool_(flag)) for flag in (True, False, True)]
            assert call.plan is not None
            assert call.plan.compilation.compiled or config
    assert {name: value.tobytes() for name, value in fed.items()} == before
    return [[value.tobytes() for value in values] for values in kept]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(node, min_size=1, max_size=14),
    st.lists(st.integers(0, 15), min_size=1, max_size=4),
    st.sampled_from([SHAPE, LARGE]),
    st.sampled_from([None, [None, None]]),
    st.sampled_from([0.0, 0.1, 0.3]),
)
def test_random_graphs_give_the_results_without_forwarding(
    nodes: list[Node], chosen: list[int], shape: Any, declared: Any, taken_over: float
) -> None:
    got = asyncio.run(results(nodes, chosen, shape, declared, taken_over=taken_over))
    wanted = asyncio.run(results(nodes, chosen, shape, declared, taken_over=0, compile_plans=False))
    assert got == wanted
    assert got[0] == got[2]  # neither constants nor the variable have changed


async def test_shapes_that_are_fed_may_be_others() -> None:
    """A feed may differ from the shape that was inferred from a constant or declared by a placeholder."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", LARGE, name="x")
        other = ops.exp(ops.reshape(x, aexec.constant(LARGE, name="shape")))
        ops.neg(ops.exp(x) + other, name="y")
    value = numbers(1, LARGE)
    wanted = -(np.exp(value) + np.exp(value))
    async with session(graph) as s:
        assert (await s.run("y:0", {"x:0": value})).tobytes() == wanted.tobytes()
    async with session(graph, check_feed_shapes=False) as s:
        got = await s.run("y:0", {"x:0": value, "shape:0": np.int32([1, *LARGE])})
        assert got.shape == (1, *LARGE) and got.tobytes() == wanted.tobytes()
        got = await s.run("y:0", {"x:0": value, "Exp:0": np.exp(value)[None]})
        assert got.shape == (1, *LARGE) and got.tobytes() == wanted.tobytes()
        got = await s.run("y:0", {"x:0": value[None], "Exp:0": np.exp(value)})
        assert got.shape == (1, *LARGE) and got.tobytes() == wanted.tobytes()


async def test_chain_writes_over_its_inputs() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", SHAPE, name="x")
        ops.maximum(ops.tanh(ops.relu(x) * 2.0), 0.5, name="y")
    assert await source(graph, "y:0", ["x:0"]) == [
        "v0 = c0(f0)  # Relu (Relu)",
        "v1 = c1(v0, k0, v0)  # mul (Mul)",
        "v2 = c2(v1, out=v1)  # Tanh (Tanh)",
        "v3 = c3(v2, k1, out=v2)  # y (Maximum)",
    ]


async def overwritten(build_graph: Any, fetches: Any, shape: Any = SHAPE) -> list[str]:
    """Names of the nodes that write over an input, in a graph of one placeholder `x`."""
    with aexec.Graph() as graph:
        build_graph(aexec.placeholder("float32", shape, name="x"))
    inputs = {node.name: len(node.inputs) for node in graph.nodes}
    calls = [re.match(r"v\d+ = c\d+\((.*)\)  # (\S+)", line) for line in await source(graph, fetches, ["x:0"])]
    return [call[2] for call in calls if call is not None and call[1].count(",") == inputs[call[2]]]


async def test_values_used_elsewhere_are_not_overwritten() -> None:
    def fed(x: Any) -> None:
        ops.relu(x, name="y")

    def read_twice(x: Any) -> None:
        z = ops.relu(x)
        ops.add_v2(ops.tanh(z, name="a"), z, name="y")  # the sum may take what Tanh gave

    def squared(x: Any) -> None:
        z = ops.relu(x)
        ops.mul(z, z, name="b")

    def fetched(x: Any) -> None:
        ops.tanh(ops.relu(x, name="a"), name="y")

    def fetched_by_another_name(x: Any) -> None:
        z = ops.relu(x)
        ops.identity(z, name="a")
        ops.tanh(z, name="y")

    def a_view(x: Any) -> None:
        z = ops.reshape(ops.relu(x), [-1])
        ops.tanh(z, name="y")

    assert await overwritten(fed, "y:0") == []
    assert await overwritten(read_twice, "y:0") == ["y"]
    assert await overwritten(squared, "b:0") == []
    assert await overwritten(fetched, ["a:0", "y:0"]) == []
    assert await overwritten(fetched_by_another_name, ["a:0", "y:0"]) == []
    assert await overwritten(a_view, "y:0") == []


@pytest.mark.parametrize("source", [np.uint8, np.int64, np.float64, np.float32, np.complex64])
@pytest.mark.parametrize("shape", [SHAPE, LARGE])
async def test_cast_to_another_type_is_overwritten_and_no_other(source: Any, shape: Any) -> None:
    with aexec.Graph() as graph:
        x = ops.placeholder(source, list(shape), name="x")
        ops.real_div(ops.cast(x, float32), np.float32(4), name="y")
    fed = (np.arange(np.prod(shape)) % 50).astype(source).reshape(shape)
    before = fed.tobytes()
    async with session(graph) as s:
        call = s.make_callable("y:0", ["x:0"])
        for _ in range(3):
            np.testing.assert_array_equal(await call(fed), fed.real.astype(np.float32) / np.float32(4))
        text = await s.plan_source(call)
    assert fed.tobytes() == before
    (line,) = [line for line in text.splitlines() if "RealDiv" in line]
    takes = line.split("(", 1)[1].split(")", 1)[0].split(", ")
    assert (len(takes) == 3 and takes[0] == takes[2]) == (source not in (np.float32, np.complex64))


async def test_inputs_of_another_shape_are_not_overwritten() -> None:
    def added(x: Any) -> None:
        ops.add_v2(ops.tanh(x), np.ones((3, *SHAPE), np.float32), name="y")

    def of_one(x: Any) -> None:
        ops.tanh(ops.relu(x), name="y")

    def to_a_number(x: Any) -> None:
        ops.add_v2(ops.relu(x), 1.0, name="y")

    assert await overwritten(added, "y:0") == []
    assert await overwritten(to_a_number, "y:0") == ["y"]
    assert await overwritten(to_a_number, "y:0", [None, 6]) == []  # nothing says what is fed
    assert await overwritten(of_one, "y:0", [None, 6]) == ["y"]  # but this is as large as its input
    assert await overwritten(of_one, "y:0", []) == []  # numbers cannot be written to
    assert await overwritten(of_one, "y:0", None) == []


def loop() -> aexec.Graph:
    """Three times `y, z = relu(tanh(y)) + z + tanh(exp(x)), tanh(y)`, from x and x."""
    g = GraphBuilder()
    g("x", "Placeholder", dtype=float32, shape=PartialTensorShape(SHAPE))
    g.const("zero", 0, int32)
    frame = {"frame_name": "loop", "parallel_iterations": 10}
    for name, start, dtype in (("i", "zero", int32), ("y", "x", float32), ("z", "x", float32)):
        g(f"{name}/enter", "Enter", start, T=dtype, **frame)
        g(f"{name}/merge", "Merge", f"{name}/enter", f"{name}/next", T=dtype, N=2)
        g(f"{name}/switch", "Switch", f"{name}/merge", "cond", T=dtype)
        g(f"{name}/exit", "Exit", f"{name}/switch", T=dtype)
    g.const("three", 3, int32, "^i/merge")
    g("less", "Less", "i/merge", "three", T=int32)
    g("cond", "LoopCond", "less")
    g.const("one", 1, int32, "^i/merge")
    g("i/add", "AddV2", "i/switch:1", "one", T=int32)
    for name in ("y", "z"):  # shape inference does not follow a value round a loop
        g(f"{name}/shaped", "EnsureShape", f"{name}/switch:1", T=float32, shape=PartialTensorShape(SHAPE))
    g("tanh", "Tanh", "y/shaped", T=float32)
    g("relu", "Relu", "tanh", T=float32)
    g("partial", "AddV2", "relu", "z/shaped", T=float32)
    g("all", "Enter", "x", T=float32, is_constant=True, **frame)
    g("all/shaped", "EnsureShape", "all", T=float32, shape=PartialTensorShape(SHAPE))
    g("exp", "Exp", "all/shaped", T=float32)
    g("once", "Tanh", "exp", T=float32)  # the same in all iterations
    g("sum", "AddV2", "once", "partial", T=float32)
    for name, value, dtype in (("i", "i/add", int32), ("y", "sum", float32), ("z", "tanh", float32)):
        g(f"{name}/next", "NextIteration", value, T=dtype)
    return g.graph()


async def test_values_that_go_round_a_loop_are_not_overwritten() -> None:
    """Tanh's result is a loop variable and is read, Relu's is read once; a loop invariant is read in each iteration."""
    calls = "\n".join(await source(loop(), ["y/exit:0", "z/exit:0"], ["x:0"]))
    assert re.search(r"(v\d+) = c\d+\((v\d+)\)  # relu", calls)
    assert re.search(r"(v\d+) = c\d+\((v\d+), v\d+, \2\)  # partial", calls)
    assert re.search(r"(v\d+) = c\d+\((v\d+), out=\2\)  # once", calls)
    assert re.search(r"(v\d+) = c\d+\((v\d+), (v\d+), \3\)  # sum", calls)
    x = numbers(0, SHAPE)
    y = z = x
    for _ in range(3):
        t = tanh(y)
        y, z = tanh(np.exp(x)) + (np.maximum(t, 0) + z), t
    async with session(loop()) as s:
        call = s.make_callable(["y/exit:0", "z/exit:0"], ["x:0"])
        for _ in range(3):
            got = await call(x)
            np.testing.assert_array_equal(got, [y, z])


def summed(i: Any, x: Any, y: Any, z: Any) -> Any:
    return x + y, z


def summed_and_kept(i: Any, x: Any, y: Any, z: Any) -> Any:
    return x + y, y  # the next iteration has this one's sum


def summed_twice(i: Any, x: Any, y: Any, z: Any) -> Any:
    y = x + y
    return y, y


def summed_constants(i: Any, x: Any, y: Any, z: Any) -> Any:
    return ops.tanh(x), y + z  # y is the same array in all iterations but the first


def summed_in_a_branch(i: Any, x: Any, y: Any, z: Any) -> Any:
    return aexec.cond(i < 2, lambda: x + y, lambda: ops.tanh(y)), z


def summed_around_a_loop(i: Any, x: Any, y: Any, z: Any) -> Any:
    _, inner = aexec.while_loop(lambda j, _: j < 2, lambda j, a: (j + 1, x + a), (0, z))
    return inner + y, z


def passed_on(i: Any, x: Any, y: Any, z: Any) -> Any:
    return ops.identity(x + ops.identity(y)), z


@pytest.mark.parametrize("shape", [SHAPE, LARGE])
@pytest.mark.parametrize(
    ("body", "overwrites"),
    [
        (summed, {"AddV2"}),
        (passed_on, {"AddV2"}),
        (summed_and_kept, set()),
        (summed_twice, set()),
        (summed_constants, {"AddV2"}),
        (summed_in_a_branch, set()),
        (summed_around_a_loop, {"AddV2"}),
    ],
)
async def test_loop_variables_are_overwritten_from_the_second_iteration_on(
    body: Any, overwrites: set[str], shape: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What enters the loop is kept, and the interpreter may take over at any call."""
    with aexec.Graph() as graph:
        x: Any = aexec.placeholder("float32", shape, name="x")
        start: Any = aexec.placeholder("float32", shape, name="start")
        ends = aexec.while_loop(lambda i, *_: i < 4, lambda i, y, z: (i + 1, *body(i, x, y, z)), (0, start, start))
        for name, end in zip("iyz", ends, strict=True):
            ops.identity(end, name=name)
    fed = numbers(1, shape), numbers(2, shape)
    before = [value.copy() for value in fed]
    async with session(graph, compile_plans=False) as s:
        wanted = await s.run(["y:0", "z:0"], {"x:0": fed[0], "start:0": fed[1]})
    calls = [0]
    last = [-1]

    def interrupt() -> None:
        calls[0] += 1
        if calls[0] == last[0]:
            raise TakeOverError("here")

    monkeypatch.setattr(line_writer, "INTERRUPT", interrupt)
    async with session(graph) as s:
        call = s.make_callable(["y:0", "z:0"], ["x:0", "start:0"])
        text = await s.plan_source(call)
        found = re.findall(r"out=(?:fitting\()?m\d.*if i\d.* else None\)+  # \S+ \((\w+)\)", text)
        assert set(found) == overwrites
        await call(*fed)
        for last[0] in range(-1, calls[0] + 1):
            calls[0] = 0
            kept = await call(*fed)
            np.testing.assert_array_equal(kept, wanted)
            np.testing.assert_array_equal(fed, before)
            np.testing.assert_array_equal(await call(*fed), kept)  # nothing of a run is overwritten by the next


async def test_large_values_of_unknown_shape_are_looked_at() -> None:
    def added(x: Any) -> None:
        ops.add_v2(ops.relu(x), np.ones((2, 1, 1), np.float32), name="y")

    with aexec.Graph() as graph:
        added(aexec.placeholder("float32", None, name="x"))
    (call,) = [line for line in await source(graph, "y:0", ["x:0"]) if "(AddV2)" in line]
    assert call == "v1 = c1(v0, k0, out=fitting(v0, v0, k0) if v0.size > SMALL else None)  # y (AddV2)"
    async with session(graph) as s:
        run = s.make_callable("y:0", ["x:0"])
        for shape in (2, *LARGE), (1, *LARGE), LARGE, (3,), ():
            np.testing.assert_array_equal(
                await run(np.zeros(shape, np.float32)), np.ones(np.broadcast_shapes(shape, (2, 1, 1)), np.float32)
            )


async def test_values_are_released_after_their_last_use() -> None:
    """Otherwise a line would keep all values that it ever made."""
    size = 64
    with aexec.Graph() as graph:
        y = aexec.placeholder("float32", [size, size], name="x")
        weights = aexec.constant(np.eye(size, dtype=np.float32))
        for _ in range(30):
            y = ops.mat_mul(y, weights)
        ops.identity(y, name="y")
    x = numbers(0, (size, size))
    async with session(graph) as s:
        call = s.make_callable("y:0", ["x:0"])
        for _ in range(3):
            await call(x)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            y = await call(x)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert call.plan is not None
        assert call.plan.compilation.compiled
    np.testing.assert_array_equal(y, x)
    assert peak - before < 4 * x.nbytes
