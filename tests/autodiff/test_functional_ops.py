"""Gradients through functions: calls, If, Case, While, SymbolicGradient; and what users' own gradients do there.

`data/functions.zip` has graphs that TensorFlow's `tf.function`, `cond`, `switch_case`, `while_loop`, `map_fn`, `scan`
made with functional control flow, in the form of `data/control_flow.zip`.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.control_flow.functional import chosen_branch
from aexec.graph.nodes.function_library import FunctionLibrary
from tests.support.programs.functions import calls, function_def
from tests.support.programs.graphs import GraphBuilder

ARCHIVE = zipfile.ZipFile(Path(__file__).parent / "data" / "functions.zip")
NAMES = sorted({name.partition("/")[0] for name in ARCHIVE.namelist()})
RANDOM = np.random.default_rng(11)


def total(tensor: Any) -> Any:
    return ops.sum(tensor, ops.range(0, ops.rank(tensor), 1))


async def check(
    graph: aexec.Graph, y: Any, xs: list[Any], feeds: dict[str, Any], expected: Any = None, before: Any = None
) -> None:
    """First derivatives against what is expected, first and second ones against difference quotients."""
    with graph:
        first = aexec.gradients(y, xs, unconnected="zero")
        slope = sum((total(grad) for grad in first[1:]), total(first[0]))
        second = aexec.gradients(slope, xs, unconnected="zero")
        whole = total(y)
    names = [tensor.name for tensor in (whole, slope)]
    rereads = aexec.Graph.from_bytes(graph.to_bytes())
    async with aexec.Session(graph) as session, aexec.Session(rereads) as other:
        if before is not None:
            await session.run(before)
            await other.run([], targets=[before.name])
        found = await session.run(first, feeds)
        for one, again in zip(found, await other.run([t.name for t in first], feeds), strict=True):
            np.testing.assert_array_equal(one, again)
        if expected is not None:
            for one, answer in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, answer, rtol=1e-9, atol=1e-12)
        grads = [found, await session.run(second, feeds)]
        directions = {name: RANDOM.normal(size=np.shape(x)) for name, x in feeds.items()}
        ends = [
            await session.run(names, {name: x + step * directions[name] for name, x in feeds.items()})
            for step in (1e-6, -1e-6)
        ]
    for grad, there, back in zip(grads, *ends, strict=True):
        along = sum(float(np.vdot(g, directions[x.name])) for g, x in zip(grad, xs, strict=True))
        assert along == pytest.approx((there - back) / 2e-6, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
async def test_gradients_of_tensorflows_graphs(name: str) -> None:
    with np.load(io.BytesIO(ARCHIVE.read(f"{name}/arrays.npz")), allow_pickle=False) as stored:
        arrays = dict(stored)
    graph = aexec.Graph.from_bytes(ARCHIVE.read(f"{name}/graph.pb"))
    feeds = {f"x{i}:0": arrays[f"x{i}"] for i in range(2)}
    expected = [arrays.get(f"grad{i}", np.zeros(3)) for i in range(2)]
    await check(graph, graph.tensor("y:0"), [graph.tensor(feed) for feed in feeds], feeds, expected)


def loop(count: int, body: Callable[[Any], Any], start: Any, **options: Any) -> Any:
    return aexec.while_loop(lambda i, _: ops.less(i, count), lambda i, y: (i + 1, body(y)), (0, start), **options)[1]


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "function": lambda a, b: aexec.function(lambda u: ops.tanh(u * b) * ops.exp(u))(a),
    "function of a loop in the first form": lambda a, b: aexec.function(
        lambda u: loop(3, lambda y: ops.tanh(y * b + u), u, functional=False)
    )(a),
    "map in a function": lambda a, b: aexec.function(lambda u: aexec.map_fn(lambda r: ops.sin(r) * r, u))(a) * b,
    "case": lambda a, b: aexec.case(
        [(ops.less(a[0], -9.0), lambda: a), (ops.less(a[0], 9.0), lambda: a * a * b)],
        default=lambda: ops.exp(b),
        functional=True,
    ),
    "map in a branch": lambda a, b: aexec.cond(
        ops.less(a[0], 9.0), lambda: aexec.map_fn(ops.sin, a * b), lambda: b, functional=True
    ),
    "If in a loop in the first form": lambda a, b: loop(
        2, lambda y: aexec.cond(ops.less(y[0], 9.0), lambda: ops.sin(y) * b, lambda: y, functional=True), a
    ),
    "call in a loop in the first form": lambda a, b: loop(2, aexec.function(lambda y: ops.sin(y) * b), a),
    "functional loop in a loop in the first form": lambda a, b: loop(
        2, lambda y: loop(2, lambda z: ops.sin(z) * y, y * b, functional=True), a
    ),
    "conditional in the first form in a function": lambda a, b: aexec.function(
        lambda u: aexec.cond(ops.less(u[0], 9.0), lambda: ops.sin(u) * b, lambda: u, functional=False)
    )(a),
    "loop whose variables are swapped": lambda a, b: aexec.while_loop(
        lambda i, y, z: ops.less(i, 3), lambda i, y, z: (i + 1, z, ops.sin(y) * b), (0, a, b), functional=True
    )[1],
    "loop with a variable that is written over": lambda a, b: aexec.while_loop(
        lambda i, y, z: ops.less(i, 3), lambda i, y, z: (i + 1, ops.sin(y) + z, b * 2.0), (0, a, a), functional=True
    )[1],
}


@pytest.mark.parametrize("name", PROGRAMS)
async def test_gradients_of_graphs_from_python(name: str) -> None:
    with aexec.Graph() as graph:
        a, b = (aexec.placeholder("float64", [3], name=name) for name in "ab")
        y = PROGRAMS[name](a, b)
    await check(graph, y, [a, b], {"a:0": RANDOM.normal(size=3) / 2, "b:0": RANDOM.normal(size=3) / 2})


async def test_gradients_of_variables_in_functions() -> None:
    """Their gradients come out of functions, branches and loops, as the handles go in."""
    with aexec.Graph() as graph:
        v = aexec.Variable(np.array([[0.3, 0.7], [0.1, -0.2]]), use_resource=True, name="v")
        x = aexec.placeholder("float64", [2], name="x")

        @aexec.function
        def f(x: Any) -> Any:
            rows = ops.reshape(ops.gather_v2(v, [0, 0], 0), [4])
            branch = aexec.cond(ops.less(x[0], 9.0), lambda: x * v[1], lambda: x)
            return loop(2, lambda y: ops.tanh(y * v[0]), branch) + rows[:2]

        y = f(x)
        (slope,) = aexec.gradients(y, v)
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        value = {"x:0": np.array([0.4, -0.5])}
        found = await session.run(slope, value)
        start = await session.run(v)
        for index in np.ndindex(2, 2):
            ends = []
            for step in (1e-6, -1e-6):
                changed = start.copy()
                changed[index] += step
                await session.run(v.initializer, {_initial(graph, v): changed})
                ends.append(np.sum(await session.run(y, value)))
            assert found[index] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5)


def _initial(graph: aexec.Graph, v: Any) -> str:
    source, slot = v.initializer.inputs[1]
    return f"{graph.nodes[source].name}:{slot}"


async def test_session_that_ran_before_goes_on() -> None:
    """Gradients change what the node calls; the session that has its kernel makes another."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float64", [2], name="x")
        y = loop(2, ops.tanh, x, functional=True)
    async with aexec.Session(graph) as session:
        feeds = {x: np.array([0.3, 0.4])}
        before = await session.run(y, feeds)
        with graph:
            (first,) = aexec.gradients(y, x)
            (second,) = aexec.gradients(first, x)
        value, slope, _ = await session.run([y, first, second], feeds)
    np.testing.assert_array_equal(value, before)
    t = np.tanh(feeds[x])
    np.testing.assert_allclose(slope, (1 - t**2) * (1 - np.tanh(t) ** 2))


async def test_backward_functions_reuse_random_numbers() -> None:
    """The backward function is given the numbers that were drawn, and draws none."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [1000], name="x")

        @aexec.function
        def dropped(x: Any) -> Any:
            return x * ops.cast(ops.greater(aexec.random_uniform([1000]), 0.5), DstT="float32")

        y = dropped(x)
        (grad,) = aexec.gradients(y, x)
    async with aexec.Session(graph) as session:
        value, slope = await session.run([y, grad], {x: np.ones(1000)})
    np.testing.assert_array_equal(value, slope)
    assert 300 < value.sum() < 700


# SymbolicGradient, and functions with a gradient of their own


def _graph(library: Callable[[FunctionLibrary], None] | None = None, **extra: Any) -> aexec.Graph:
    g = GraphBuilder()
    g.graph_def.library.function.extend(
        [
            function_def(
                "Cube(x: float, n: int32) -> y: float",
                body=[("s", "Square", ["x"], {"T": 1}), ("c", "Mul", ["s:y:0", "x"], {"T": 1})],
                ret={"y": "c:z:0"},
            ),
            function_def(
                "Seven(x: float, n: int32, dy: float) -> (dx: float, dn: int32)",
                body=[("seven", "OnesLike", ["x"], {"T": 1}), ("z", "ZerosLike", ["n"], {"T": 3})],
                ret={"dx": "seven:y:0", "dn": "z:y:0"},
            ),
        ]
    )
    g.placeholder("x")
    g("n", "Const", dtype=3, value=np.int32(4))
    g.placeholder("dy")
    if extra.get("named"):
        g.graph_def.library.gradient.add(function_name="Cube", gradient_func="Seven")
    g("direct", "Cube", "x", "n")
    g("grad", "SymbolicGradient", "x", "n", "dy", Tin=[1, 3, 1], Tout=[1, 3], f=calls("Cube"))
    return g.graph()


async def test_symbolic_gradient_and_calls_by_name() -> None:
    graph = _graph()
    size = len(graph.library)
    with graph:
        (direct,) = aexec.gradients(graph.tensor("direct:0"), graph.tensor("x:0"))
        (second,) = aexec.gradients(graph.tensor("grad:0"), graph.tensor("x:0"))
    async with aexec.Session(graph) as session:
        fetches = ["grad:0", "grad:1", direct, second, "direct:0"]
        found = await session.run(fetches, {"x:0": 2.0, "dy:0": 10.0})
    assert [float(value) for value in found] == [120.0, 0.0, 12.0, 120.0, 8.0]
    assert size == 2


async def test_running_a_gradient_does_not_change_the_graph() -> None:
    graph = _graph()
    before = graph.to_bytes()
    async with aexec.Session(graph) as session:
        assert await session.run("grad:0", {"x:0": 2.0, "dy:0": 1.0}) == 12.0
    assert graph.to_bytes() == before


async def test_gradient_that_the_library_names_is_taken() -> None:
    graph = _graph(named=True)
    with graph:
        (direct,) = aexec.gradients(graph.tensor("direct:0"), graph.tensor("x:0"))
    async with aexec.Session(graph) as session:
        found = await session.run(["grad:0", direct], {"x:0": 2.0, "dy:0": 10.0})
    assert [float(value) for value in found] == [1.0, 1.0]


@aexec.op("WithoutGradient(x: float) -> y: float")
def without_gradient(x: np.ndarray) -> np.ndarray:
    return x


async def test_body_without_gradient_is_refused_by_name() -> None:
    with aexec.Graph():
        x = aexec.placeholder("float32", [2, 2], name="x")
        y = aexec.function(lambda x: without_gradient(x, name="w"))(x)
        with pytest.raises(errors.NotFoundError, match=r"No gradient defined for operation 'w' .*WithoutGradient"):
            aexec.gradients(y, x)


# Gradients of one's own


async def test_custom_gradients_in_functions_and_loops() -> None:
    @aexec.custom_gradient
    def log1pexp(x: Any) -> Any:
        e = ops.exp(x)

        def grad(upstream: Any) -> Any:
            return upstream * (1.0 - 1.0 / (1.0 + e))

        return ops.log(1.0 + e), grad

    with aexec.Graph() as graph:
        x = aexec.placeholder("float64", [2], name="x")
        w = aexec.placeholder("float64", [2], name="w")
        y = aexec.function(lambda x: log1pexp(x * w) * x)(x)
        z = loop(2, lambda y: log1pexp(y * w), y, functional=True)
    feeds = {"x:0": np.array([0.3, -0.4]), "w:0": np.array([1.2, 0.7])}
    await check(graph, z, [x, w], feeds)


async def test_custom_gradient_is_what_it_says() -> None:
    @aexec.custom_gradient
    def straight(x: Any, v: Any) -> Any:
        return {"y": ops.round(x) * v}, lambda upstream: (upstream * 5.0, None)

    @aexec.custom_gradient
    def wrong(x: Any) -> Any:
        return x

    @aexec.custom_gradient
    def too_many(x: Any) -> Any:
        return x, lambda upstream: (upstream, upstream)

    with aexec.Graph() as graph:
        v = aexec.Variable(2.0, use_resource=True, name="v")
        x = aexec.placeholder("float32", [], name="x")
        y = straight(x, v)["y"]
        grads = aexec.gradients(y, [x, v])
        with pytest.raises(errors.InvalidArgumentError, match="'wrong' must give its result and its gradient function"):
            wrong(x)
        with pytest.raises(errors.InvalidArgumentError, match="gives 2 gradients for 1 arguments"):
            aexec.gradients(too_many(x), x)
        init = aexec.global_variables_initializer()
    assert grads[1] is None
    async with aexec.Session(graph) as session:
        await session.run(init)
        assert [float(f) for f in await session.run([y, grads[0]], {x: 1.4})] == [2.0, 5.0]


# Jacobians and Hessians


async def test_jacobians_and_hessians() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float64", [3], name="x")
        w = aexec.constant(np.arange(6.0).reshape(3, 2) / 5.0)
        other = aexec.placeholder("float64", [], name="other")
        y = ops.tanh(ops.mat_mul(ops.reshape(x, [1, 3]), w))
        one, several = aexec.jacobian(y, x), aexec.jacobian(y, [x, other, w])
        bent, straight, none = aexec.hessians(ops.sum(y * y, [0, 1]), [x, aexec.constant(1.0), other])
        looped = loop(2, lambda a: ops.sin(a) * x, x)
        in_loop, functional = (
            aexec.jacobian(looped, x),
            aexec.jacobian(loop(2, lambda a: ops.sin(a) * x, x, functional=True), x),
        )
        zero = aexec.jacobian(y, other, unconnected="zero")
        unknown = loop(2, ops.sin, aexec.placeholder("float64", [None], name="unknown"))
        with pytest.raises(
            errors.UnimplementedError, match="its size has to be known, or the loop built with functional"
        ):
            aexec.jacobian(unknown, graph.tensor("unknown:0"))
        with pytest.raises(errors.InvalidArgumentError, match="at least one tensor in xs"):
            aexec.hessians(y, [])
    assert several[1] is None and straight is None and none is None
    assert str(one.shape) == "[1,2,3]" and str(bent.shape) == "[3,3]"
    at = np.array([0.3, -0.2, 0.5])
    matrix = np.arange(6.0).reshape(3, 2) / 5.0
    t = np.tanh(at @ matrix)
    async with aexec.Session(graph) as session:
        found = await session.run([one, several[0], several[2], bent, in_loop, functional, zero], {x: at, other: 1.0})
    slopes = (1 - t**2)[:, None] * matrix.T
    np.testing.assert_allclose(found[0], slopes[None])
    np.testing.assert_allclose(found[1], slopes[None])
    assert found[2].shape == (1, 2, 3, 2)
    curvature = 2 * ((1 - t**2) * (1 - 3 * t**2))
    np.testing.assert_allclose(found[3], (matrix * curvature) @ matrix.T)
    s = np.sin(at) * at
    np.testing.assert_allclose(found[4], np.diag(np.sin(s) + at * np.cos(s) * (np.sin(at) + at * np.cos(at))))
    np.testing.assert_allclose(found[5], found[4])
    np.testing.assert_array_equal(found[6], np.zeros((1, 2)))


def test_branches_by_number() -> None:
    """What `chosen_branch` makes of a number is a Case node."""
    with aexec.Graph() as graph:
        x, index = aexec.placeholder("float32", [2]), aexec.placeholder("int32", [])
        branches = [lambda: x, lambda: x * 2.0, lambda: x * 3.0]
        y = chosen_branch(index, branches, ("first", "second", "third"), "choice/")
    assert graph.node("choice").op == "StatelessCase" and str(y.shape) == "[2]"
