"""`cond`, `case` and `while_loop` as If, Case and While nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import aexec
from aexec import errors, ops


async def run(graph: aexec.Graph, fetches: Any, feeds: Any = None) -> Any:
    async with aexec.Session(graph) as session:
        return await session.run(fetches, feeds or {})


def body(graph: aexec.Graph, name: str) -> list[str]:
    return [f"{node.name} {node.op}({', '.join(node.input)})" for node in graph.library.get(name).node_def]


def test_nodes_and_functions_are_called_as_tensorflows() -> None:
    with aexec.Graph() as graph:
        p, x = aexec.placeholder("bool", [], name="p"), aexec.placeholder("float32", [2], name="x")
        y = aexec.cond(p, lambda: x + 1.0, lambda: ops.mul(x, x, name="mul"), functional=True)
        _, z = aexec.while_loop(lambda i, _: ops.less(i, 3), lambda i, z: (i + 1, z * x), (0, x), functional=True)
    assert [y.name, z.name] == ["cond/Identity:0", "while/Identity_1:0"]
    assert graph.node("cond").op == "StatelessIf" and graph.node("while").op == "StatelessWhile"
    assert graph.node("cond").attrs["_lower_using_switch_merge"] is True
    assert [str(shape) for shape in graph.node("while").attrs["output_shapes"]] == ["[]", "[2]", "[2]"]
    assert list(graph.library) == ["cond_false_0", "cond_true_1", "while_cond_2", "while_body_3"]
    assert body(graph, "cond_true_1") == ["add/y Const()", "add AddV2(x, add/y:output:0)"]
    assert body(graph, "while_cond_2") == ["Less/y Const()", "Less Less(const, Less/y:output:0)"]


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.mark.parametrize("taken", [True, False])
async def test_structures_and_operations(taken: bool) -> None:
    with aexec.Graph() as graph:
        p = aexec.placeholder("bool", [], name="p")
        v = aexec.Variable(1.0, use_resource=True, name="v")

        def branch(amount: float) -> Any:
            return {"b": Pair(amount, [v.assign_add(amount)]), "a": ops.no_op()}

        result = aexec.cond(p, lambda: branch(1.0), lambda: branch(5.0), functional=True)
        init = aexec.global_variables_initializer()
    assert graph.node("cond").op == "If" and isinstance(result["b"], Pair)
    async with aexec.Session(graph) as session:
        await session.run(init)
        found = await session.run([result["a"], result["b"].left, result["b"].right[0], v.element], {p: taken})
    assert [bool(found[0]), float(found[1]), float(found[2])] == [True, *((1.0, 2.0) if taken else (5.0, 6.0))]


@pytest.mark.parametrize(("value", "answer"), [(-1.0, 1.0), (0.5, 0.25), (7.0, 21.0)])
async def test_case(value: float, answer: float) -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [], name="x")
        pairs = [(ops.less(x, 0.0), lambda: -x), (ops.less(x, 1.0), lambda: x * x)]
        y = aexec.case(pairs, default=lambda: 3.0 * x, functional=True)
    assert not {"Switch", "Merge"} & {node.op for node in graph}
    assert await run(graph, y, {x: value}) == answer


async def test_shape_invariants_and_most_iterations() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [2], name="x")
        most = aexec.placeholder("int32", [], name="most")

        def longer(shape: Any) -> Any:
            return aexec.while_loop(
                lambda y: ops.less(ops.size(y), 100),
                lambda y: [ops.concat_v2([y, x], 0)],
                [x],
                shape_invariants=[shape],
                maximum_iterations=most,
                parallel_iterations=3,
                functional=True,
            )[0]

        y = longer([None])
        with pytest.raises(errors.InvalidArgumentError, match=r"enters the loop with shape \[2\], but has shape \[4\]"):
            longer([2])
        with pytest.raises(errors.InvalidArgumentError, match=r"shape invariant specified for .* is not compatible"):
            longer([3])
    assert str(y.shape) == "[?]" and graph.node("while").attrs["parallel_iterations"] == 3
    assert (await run(graph, y, {x: [1.0, 2.0], most: 2})).tolist() == [1, 2, 1, 2, 1, 2]
    assert (await run(graph, y, {x: [1.0, 2.0], most: 0})).tolist() == [1, 2]
    assert len(await run(graph, y, {x: [1.0, 2.0], most: 99})) == 100


async def test_graph_says_what_is_usual() -> None:
    with aexec.Graph() as graph:
        graph.functional_control_flow = True
        x = aexec.placeholder("float32", [3], name="x")
        mapped = aexec.map_fn(lambda row: row * row, x)
        folded = aexec.foldl(lambda total, row: total + row, x)
        scanned = aexec.scan(lambda total, row: total + row, x)
        first_form = aexec.cond(ops.less(x[0], 0.0), lambda: x, lambda: -x, functional=False)
    assert [node.op for node in graph].count("StatelessWhile") + [node.op for node in graph].count("While") == 3
    assert first_form.node.op == "Merge"
    found = await run(graph, [mapped, folded, scanned, first_form], {x: [1.0, 2.0, 3.0]})
    assert [np.array(value).tolist() for value in found] == [[1, 4, 9], 6, [1, 3, 6], [-1, -2, -3]]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: aexec.constant(1), "Outputs of false_fn and true_fn must have the same type: Const:0 is int32, x:0"),
        (lambda: [1.0], "What false_fn and true_fn give must have the same structure"),
        (lambda: None, "a branch must return tensors, got None"),
        (list, "cond_false must return at least one result"),
    ],
)
def test_branches_must_give_the_same(other: Callable[[], Any], message: str) -> None:
    with aexec.Graph():
        x = aexec.placeholder("float32", [], name="x")
        with pytest.raises(errors.InvalidArgumentError, match=message):
            aexec.cond(ops.less(x, 0.0), lambda: x, other, functional=True)


def test_handles_and_shapes_of_branches() -> None:
    with aexec.Graph() as graph:
        x, p = aexec.placeholder("float32", [2, 3]), aexec.placeholder("bool", [])
        y = aexec.cond(p, lambda: x, lambda: ops.concat_v2([x, x], 0), functional=True)
        z = aexec.cond(p, lambda: x, lambda: x[0], functional=True)
        v = aexec.Variable([1.0, 2.0], use_resource=True)
        handle = aexec.cond(p, lambda: v.reference, lambda: v.reference, functional=True)
        read = ops.read_variable_op(handle, "float32")
    assert str(y.shape) == "[?,3]" and z.shape.rank is None and str(read.shape) == "[2]"
    assert graph.node("cond").attrs["Tout"]
