"""What a run refuses of feeds, fetches, targets and options, and in which words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework.waiting.loop_budget import SHORTEST_SLICE

INVALID = errors.InvalidArgumentError


def squares() -> tuple[aexec.Graph, Any, Any]:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", name="x")
        return graph, x, aexec.ops.square(x, name="y")


class TestAnotherGraph:
    """A tensor of another graph is refused, though one of its name is there."""

    async def test_fetches_feeds_and_targets(self) -> None:
        graph, x, y = squares()
        _, other_x, other_y = squares()
        async with aexec.Session(graph) as session:
            assert await session.run(y, {x: 2.0}, [y.op]) == 4
            for arguments in (
                (other_y, {x: 2.0}),
                ({"a": [other_y.op]}, {x: 2.0}),
                (y, {other_x: 2.0}),
                (y, {x: 2.0}, [other_y.op]),
            ):
                with pytest.raises(INVALID, match="is not an element of this graph"):
                    await session.run(*arguments)

    async def test_nodes_of_a_graph_that_was_extended_since_are_its_own(self) -> None:
        graph, x, y = squares()
        more = aexec.Graph()
        with more:
            aexec.constant(1.0, name="one")
        async with aexec.Session(graph) as session:
            await session.extend(more)
            assert await session.run([y, "one:0"], {x: 2.0}) == [4, 1]

    def test_inputs_control_inputs_and_colocation(self) -> None:
        _, _, y = squares()
        with aexec.Graph():
            with pytest.raises(INVALID, match="is not of the graph"):
                aexec.ops.square(y)
            with pytest.raises(INVALID, match="is not of this graph"), aexec.control_dependencies([y]):
                pass
            with pytest.raises(INVALID, match="is not an element of this graph"), aexec.colocate_with(y):
                pass


async def test_target_that_is_neither_operation_nor_name() -> None:
    graph, x, y = squares()
    async with aexec.Session(graph) as session:
        with pytest.raises(INVALID, match="A target must be an operation or its name, got 3"):
            await session.run(y, {x: 1.0}, [3])


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "string", "variant"])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "cannot be None"),
        ({1.0}, "cannot be a value of type set"),
        (frozenset({1}), "cannot be a value of type frozenset"),
        ({"a": 1}, "cannot be a value of type dict"),
        ((i for i in range(3)), "cannot be a value of type generator"),
    ],
)
async def test_values_that_are_no_tensors(dtype: str, value: Any, words: str) -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder(dtype, name="x")
        y = aexec.ops.identity(x)
    async with aexec.Session(graph) as session:
        with pytest.raises(INVALID, match=f"The value fed for x:0 {words}"):
            await session.run(y, {x: value})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1, None], "arg.0. to be float but None is provided"),
        ([{1}], "arg.0. to be float but a value of type set is provided"),
        (object(), "arg.0. to be float but a value of type object is provided"),
        ([1, 10**20, "a"], "arg.0. to be float but"),
        (np.array([], object), "to be float but"),
        ("a", "arg.0. to be float but .* is provided"),
    ],
)
async def test_parts_that_are_no_numbers(value: Any, words: str) -> None:
    graph, x, y = squares()
    async with aexec.Session(graph) as session:
        with pytest.raises(INVALID, match=words):
            await session.run(y, {x: value})


async def test_tensor_is_no_value() -> None:
    graph, x, y = squares()
    async with aexec.Session(graph) as session:
        with pytest.raises(INVALID, match="The value fed for x:0 cannot be <Tensor 'y:0'"):
            await session.run(y, {x: y})


@pytest.mark.parametrize("seconds", [math.nan, -1, -math.inf, "5s", [1]])
def test_deadlines_that_are_no_time(seconds: Any) -> None:
    with pytest.raises(INVALID, match="timeout must be a number of seconds"):
        aexec.RunOptions(timeout=seconds)
    with pytest.raises(INVALID, match="operation_timeout must be a number of seconds"):
        aexec.SessionConfig(operation_timeout=seconds)


@pytest.mark.parametrize("seconds", [math.nan, -1, 0, 1e-9, math.inf, "5s"])
def test_slices_that_are_no_time(seconds: Any) -> None:
    with pytest.raises(INVALID, match="slice_seconds must be a number of seconds, at least 1e-05, got"):
        aexec.SessionConfig(slice_seconds=seconds)


@pytest.mark.parametrize("compile_plans", [True, False])
async def test_shortest_slice_gets_done(compile_plans: bool) -> None:
    graph, x, y = squares()
    config = aexec.SessionConfig(slice_seconds=SHORTEST_SLICE, compile_plans=compile_plans)
    async with aexec.Session(graph, config=config) as session:
        for _ in range(4):
            np.testing.assert_array_equal(await session.run(y, {x: [3.0, 4.0]}), [9, 16])
