"""`cond`, `case` and `while_loop`: TensorFlow's nodes, values, gradients, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import aexec
from aexec import ops
from aexec.framework import errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[aexec.Graph]:
    with aexec.Graph() as made:
        yield made


def nodes(graph: aexec.Graph) -> list[str]:
    return sorted(" ".join([node.name, node.op, *node.input_names()]) for node in graph)


def inputs() -> tuple[Any, Any]:
    return aexec.placeholder("bool", [], name="p"), aexec.placeholder("float32", [2], name="x")


async def run(fetches: Any, feeds: Any = None, graph: aexec.Graph | None = None) -> Any:
    made = graph if graph is not None else aexec.constant(0).graph
    assert isinstance(made, aexec.Graph)
    async with aexec.Session(made) as session:
        return await session.run(fetches, feeds or {})


# Nodes of TensorFlow 2.21, with its first form of control flow


def test_nodes_of_a_conditional_are_those_of_tensorflow(graph: aexec.Graph) -> None:
    p, x = inputs()
    aexec.cond(p, lambda: x + 1.0, lambda: ops.mul(x, x, name="mul"))
    assert nodes(graph) == [
        "cond/Merge Merge cond/mul cond/add",
        "cond/Switch Switch p p",
        "cond/add AddV2 cond/add/Switch:1 cond/add/y",
        "cond/add/Switch Switch x cond/pred_id",
        "cond/add/y Const ^cond/switch_t",
        "cond/mul Mul cond/mul/Switch cond/mul/Switch",
        "cond/mul/Switch Switch x cond/pred_id",
        "cond/pred_id Identity p",
        "cond/switch_f Identity cond/Switch",
        "cond/switch_t Identity cond/Switch:1",
        "p Placeholder",
        "x Placeholder",
    ]


def test_nodes_of_a_loop_are_those_of_tensorflow(graph: aexec.Graph) -> None:
    n, x = aexec.placeholder("int32", [], name="n"), aexec.placeholder("float32", [2], name="x")
    aexec.while_loop(lambda i, a: ops.less(i, n), lambda i, a: [i + 1, a * x + 2.0], [0, x])
    assert nodes(graph) == [
        "n Placeholder",
        "while/Const Const",
        "while/Enter Enter while/Const",
        "while/Enter_1 Enter x",
        "while/Exit Exit while/Switch",
        "while/Exit_1 Exit while/Switch_1",
        "while/Identity Identity while/Switch:1",
        "while/Identity_1 Identity while/Switch_1:1",
        "while/Less Less while/Merge while/Less/Enter",
        "while/Less/Enter Enter n",
        "while/LoopCond LoopCond while/Less",
        "while/Merge Merge while/Enter while/NextIteration",
        "while/Merge_1 Merge while/Enter_1 while/NextIteration_1",
        "while/NextIteration NextIteration while/add",
        "while/NextIteration_1 NextIteration while/add_1",
        "while/Switch Switch while/Merge while/LoopCond",
        "while/Switch_1 Switch while/Merge_1 while/LoopCond",
        "while/add AddV2 while/Identity while/add/y",
        "while/add/y Const ^while/Identity",
        "while/add_1 AddV2 while/mul while/add_1/y",
        "while/add_1/y Const ^while/Identity",
        "while/mul Mul while/Identity_1 while/mul/Enter",
        "while/mul/Enter Enter x",
        "x Placeholder",
    ]


def nested(n: Any, x: Any) -> list[Any]:
    def body(i: Any, a: Any) -> list[Any]:
        b = aexec.cond(ops.equal(i % 2, 0, name="even"), lambda: a + x, lambda: a * 2.0)
        start = [aexec.constant(0, name="zero"), b]
        _, c = aexec.while_loop(lambda j, c: ops.less(j, i), lambda j, c: [j + 1, c + x], start, name="inner")
        return [i + 1, c]

    found: list[Any] = aexec.while_loop(lambda i, a: ops.less(i, n), body, [0, x], maximum_iterations=100)
    return found


def test_nodes_of_nested_ones_are_those_of_tensorflow(graph: aexec.Graph) -> None:
    nested(aexec.placeholder("int32", [], name="n"), aexec.placeholder("float32", [2], name="x"))
    assert nodes(graph) == [
        "n Placeholder",
        "while/Const Const",
        "while/Enter Enter while/iteration_counter",
        "while/Enter_1 Enter while/Const",
        "while/Enter_2 Enter x",
        "while/Exit Exit while/Switch",
        "while/Exit_1 Exit while/Switch_1",
        "while/Exit_2 Exit while/Switch_2",
        "while/Identity Identity while/Switch:1",
        "while/Identity_1 Identity while/Switch_1:1",
        "while/Identity_2 Identity while/Switch_2:1",
        "while/Less Less while/Merge while/Less/Enter",
        "while/Less/Enter Enter while/maximum_iterations",
        "while/Less_1 Less while/Merge_1 while/Less_1/Enter",
        "while/Less_1/Enter Enter n",
        "while/LogicalAnd LogicalAnd while/Less while/Less_1",
        "while/LoopCond LoopCond while/LogicalAnd",
        "while/Merge Merge while/Enter while/NextIteration",
        "while/Merge_1 Merge while/Enter_1 while/NextIteration_1",
        "while/Merge_2 Merge while/Enter_2 while/NextIteration_2",
        "while/NextIteration NextIteration while/add",
        "while/NextIteration_1 NextIteration while/add_1",
        "while/NextIteration_2 NextIteration while/inner/Exit_1",
        "while/Switch Switch while/Merge while/LoopCond",
        "while/Switch_1 Switch while/Merge_1 while/LoopCond",
        "while/Switch_2 Switch while/Merge_2 while/LoopCond",
        "while/add AddV2 while/Identity while/add/y",
        "while/add/y Const ^while/Identity",
        "while/add_1 AddV2 while/Identity_1 while/add_1/y",
        "while/add_1/y Const ^while/Identity",
        "while/cond/Merge Merge while/cond/mul while/cond/add",
        "while/cond/Switch Switch while/even while/even",
        "while/cond/add AddV2 while/cond/add/Switch:1 while/cond/add/Switch_1:1",
        "while/cond/add/Enter Enter x",
        "while/cond/add/Switch Switch while/Identity_2 while/cond/pred_id",
        "while/cond/add/Switch_1 Switch while/cond/add/Enter while/cond/pred_id",
        "while/cond/mul Mul while/cond/mul/Switch while/cond/mul/y",
        "while/cond/mul/Switch Switch while/Identity_2 while/cond/pred_id",
        "while/cond/mul/y Const ^while/cond/switch_f",
        "while/cond/pred_id Identity while/even",
        "while/cond/switch_f Identity while/cond/Switch",
        "while/cond/switch_t Identity while/cond/Switch:1",
        "while/even Equal while/mod while/even/y",
        "while/even/y Const ^while/Identity",
        "while/inner/Enter Enter while/zero",
        "while/inner/Enter_1 Enter while/cond/Merge",
        "while/inner/Exit Exit while/inner/Switch",
        "while/inner/Exit_1 Exit while/inner/Switch_1",
        "while/inner/Identity Identity while/inner/Switch:1",
        "while/inner/Identity_1 Identity while/inner/Switch_1:1",
        "while/inner/Less Less while/inner/Merge while/inner/Less/Enter",
        "while/inner/Less/Enter Enter while/Identity_1",
        "while/inner/LoopCond LoopCond while/inner/Less",
        "while/inner/Merge Merge while/inner/Enter while/inner/NextIteration",
        "while/inner/Merge_1 Merge while/inner/Enter_1 while/inner/NextIteration_1",
        "while/inner/NextIteration NextIteration while/inner/add",
        "while/inner/NextIteration_1 NextIteration while/inner/add_1",
        "while/inner/Switch Switch while/inner/Merge while/inner/LoopCond",
        "while/inner/Switch_1 Switch while/inner/Merge_1 while/inner/LoopCond",
        "while/inner/add AddV2 while/inner/Identity while/inner/add/y",
        "while/inner/add/y Const ^while/inner/Identity",
        "while/inner/add_1 AddV2 while/inner/Identity_1 while/inner/add_1/Enter",
        "while/inner/add_1/Enter Enter while/cond/add/Enter",
        "while/iteration_counter Const",
        "while/maximum_iterations Const",
        "while/mod FloorMod while/Identity_1 while/mod/y",
        "while/mod/y Const ^while/Identity",
        "while/zero Const ^while/Identity",
        "x Placeholder",
    ]


# Values and gradients


@pytest.mark.parametrize("n", [0, 1, 2, 5])
async def test_nested_ones_run_and_are_differentiated(n: int) -> None:
    count, x = aexec.placeholder("int32", []), aexec.placeholder("float64", [2])
    i, a = nested(count, x)
    slope = aexec.gradients(a, x)
    value, factor = 1.0, 0
    for k in range(n):
        value = value + 1.0 if k % 2 == 0 else value * 2.0
        value += k
    found = await run([i, a, slope[0]], {count: n, x: [2.0, 3.0]})
    assert found[0] == n and factor == 0
    np.testing.assert_allclose(found[1], [2.0 * value, 3.0 * value])
    np.testing.assert_allclose(found[2], [value, value])


async def test_conditional_gives_what_its_branch_gives() -> None:
    p, x = inputs()
    outside = aexec.constant([5.0, 5.0])
    made = aexec.cond(p, lambda: {"a": x, "b": (outside, 1.0)}, lambda: {"b": (x * 2.0, 2.0), "a": outside})
    for taken in (True, False):
        found = await run(made, {p: taken, x: [2.0, 3.0]})
        assert found["a"].tolist() == ([2.0, 3.0] if taken else [5.0, 5.0])
        assert found["b"][0].tolist() == ([5.0, 5.0] if taken else [4.0, 6.0])
        assert found["b"][1] == (1.0 if taken else 2.0)


@pytest.mark.parametrize("use_resource", [False, True])
async def test_only_the_branch_that_is_taken_runs(graph: aexec.Graph, use_resource: bool) -> None:
    p, _ = inputs()
    v = aexec.Variable(1.0, use_resource=use_resource)
    outside = v.assign_add(10.0, read_value=False)
    done = aexec.cond(p, lambda: v.assign_add(1.0, read_value=False), lambda: v.assign_add(2.0, read_value=False))
    with aexec.control_dependencies([outside]):
        after = aexec.cond(p, lambda: v + 0.0, lambda: v * 1.0)
    init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        await session.run(done, {p: True})
        assert await session.run(v) == 2.0
        await session.run(done, {p: False})
        assert await session.run(v) == 4.0
        await session.run(after, {p: True})
        assert await session.run(v) == 14.0


async def test_variable_of_a_branch_is_made_outside_of_it(graph: aexec.Graph) -> None:
    p, _ = inputs()
    made = aexec.cond(p, lambda: aexec.get_variable("v", [], initializer=aexec.initializers.Ones()) * 3.0, lambda: 0.0)
    init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        assert await session.run(made, {p: True}) == 3.0


async def test_case() -> None:
    x = aexec.placeholder("int32", [])
    pairs: list[tuple[Any, Callable[[], Any]]] = [
        (ops.less(x, 0), lambda: x * -1),
        (ops.less(x, 10), lambda: aexec.constant(1)),
    ]
    first = aexec.case(pairs, lambda: aexec.constant(2))
    strict = aexec.case(pairs)
    exclusive = aexec.case(dict(pairs[:2]), lambda: aexec.constant(2), exclusive=True)
    single = aexec.case(pairs[:1])
    assert [await run(first, {x: value}) for value in (-5, 5, 50)] == [5, 1, 2]
    assert [await run(exclusive, {x: value}) for value in (5, 50)] == [1, 2]
    assert await run([strict, single], {x: -5}) == [5, 5]
    with pytest.raises(errors.InvalidArgumentError, match="no predicate is true, and there is no default"):
        await run(strict, {x: 50})
    with pytest.raises(errors.InvalidArgumentError, match="no predicate is true"):
        await run(single, {x: 50})
    with pytest.raises(errors.InvalidArgumentError, match="more than one predicate is true"):
        await run(exclusive, {x: -5})


class Pair(NamedTuple):
    first: Any
    second: Any


async def test_loop_variables_of_any_structure() -> None:
    start = {"pair": Pair(1, [2.0]), "n": np.int64(3)}

    def body(state: Any) -> Any:
        first, (second,) = state["pair"]
        return {"n": state["n"] - 1, "pair": Pair(first * 2, [second + 1.0])}

    found = await run(aexec.while_loop(lambda state: ops.greater(state["n"], 0), body, start))
    assert found == {"pair": Pair(8, [5.0]), "n": 0}
    assert type(found["pair"]) is Pair


async def test_shapes_that_change() -> None:
    start = [aexec.constant(0), aexec.constant([1.0])]

    def grow(i: Any, a: Any) -> list[Any]:
        return [i + 1, ops.concat_v2([a, a], 0)]

    with pytest.raises(
        errors.InvalidArgumentError, match=r"enters the loop with shape \[1\], but has shape \[2\] after"
    ):
        aexec.while_loop(lambda i, a: ops.less(i, 3), grow, start)
    _, grown = aexec.while_loop(lambda i, a: ops.less(i, 3), grow, start, shape_invariants=[[], [None]])
    assert str(grown.shape) == "[?]"
    assert (await run(grown)).tolist() == [1.0] * 8
    with pytest.raises(errors.InvalidArgumentError, match=r"shape invariant specified for .* is not compatible"):
        aexec.while_loop(lambda i, a: ops.less(i, 3), grow, start, shape_invariants=[[], [2]])
    with pytest.raises(errors.InvalidArgumentError, match="must have the same structure as loop_vars"):
        aexec.while_loop(lambda i, a: ops.less(i, 3), grow, start, shape_invariants=[[]])


async def test_node_outside_runs_once_before_the_loop(graph: aexec.Graph) -> None:
    v = aexec.Variable(0.0, use_resource=True)
    once = v.assign_add(1.0, read_value=False)
    named = ops.identity(v.assign_add(0.0), name="named")

    def body(i: Any) -> Any:
        with aexec.control_dependencies([named, once]):
            each = aexec.constant(1)
        return i + each

    end = aexec.while_loop(lambda i: ops.less(i, 5), body, 0)
    init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        assert await session.run(end) == 5
    assert end.dtype is aexec.int32


def test_invalid_conditionals_and_loops_are_refused(graph: aexec.Graph) -> None:
    p, x = inputs()
    refused: list[tuple[str, Callable[[], Any]]] = [
        ("must not be a Python bool", lambda: aexec.cond(True, lambda: x, lambda: x)),
        ("must return at least one result", lambda: aexec.cond(p, list, list)),
        ("must have the same structure", lambda: aexec.cond(p, lambda: x, lambda: [x])),
        ("must have the same type: .* is float, .* is int32", lambda: aexec.cond(p, lambda: x, lambda: 1)),
        ("at least one pair", lambda: aexec.case([])),
        ("No loop variables provided", lambda: aexec.while_loop(lambda: p, list, [])),
        (
            "parallel_iterations must be positive",
            lambda: aexec.while_loop(lambda i: p, lambda i: i, 0, parallel_iterations=0),
        ),
        ("must have the same structure", lambda: aexec.while_loop(lambda i: p, lambda i: [i, i], [0])),
        ("expected int32", lambda: aexec.while_loop(lambda i: p, lambda i: ops.cast(i, DstT="float32"), 0)),
    ]
    for message, build in refused:
        with pytest.raises(errors.InvalidArgumentError, match=message):
            build()
    assert aexec.constant(1).node.control_inputs == ()
