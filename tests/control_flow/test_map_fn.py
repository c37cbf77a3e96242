"""Tensor arrays, and functions applied to rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import ops
from aexec.framework import errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[aexec.Graph]:
    with aexec.Graph() as made:
        yield made


async def run(graph: aexec.Graph, fetches: Any, feeds: Any = None) -> Any:
    async with aexec.Session(graph) as session:
        return await session.run(fetches, feeds or {})


async def test_elements_are_written_and_read(graph: aexec.Graph) -> None:
    array = aexec.TensorArray("float32", 3, clear_after_read=False)
    for index in range(3):
        array = array.write(index, [float(index), 1.0])
    assert repr(array) == "<TensorArray 'TensorArray' of float [2]>"
    found = await run(graph, [array.read(1), array.stack(), array.gather([2, 0]), array.concat(), array.size()])
    assert [value.tolist() for value in found] == [
        *([1.0, 1.0], [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]], [[2.0, 1.0], [0.0, 1.0]], [0.0, 1.0, 1.0, 1.0, 2.0, 1.0], 3)
    ]


async def test_tensor_array_is_filled_at_once(graph: aexec.Graph) -> None:
    rows = aexec.TensorArray("float32", 0, dynamic_size=True).unstack([[1.0], [2.0]])
    parts = aexec.TensorArray("float32", 2, infer_shape=False).split([1.0, 2.0, 3.0], [1, 2])
    some = aexec.TensorArray("float32", 3).scatter([2], [[5.0]])
    flat = parts.identity().concat()
    with aexec.control_dependencies([flat]):
        closed = parts.close()
    found = await run(graph, [rows.stack(), flat, some.read(2)])
    assert [value.tolist() for value in found] == [[[1.0], [2.0]], [1.0, 2.0, 3.0], [5.0]]
    assert await run(graph, closed) is None


def test_elements_of_other_shapes_are_refused() -> None:
    array = aexec.TensorArray("float32", 2).write(0, [1.0])
    with pytest.raises(errors.InvalidArgumentError, match=r"Inconsistent shapes: saw \[2\] but expected \[1\]"):
        array.write(1, [1.0, 2.0])
    with pytest.raises(errors.InvalidArgumentError, match=r"saw \[\] but expected \[1\]"):
        aexec.TensorArray("float32", 2, element_shape=[1]).write(0, 1.0)


async def test_function_of_each_row(graph: aexec.Graph) -> None:
    x = aexec.placeholder("float32", [None, 2])
    single = aexec.map_fn(lambda row: row * row, x)
    several = aexec.map_fn(
        lambda rows: {"sum": ops.sum(rows[0], [0]), "more": ops.cast(rows[1], DstT="int32") + 1},
        (x, x),
        {"sum": "float32", "more": "int32"},
    )
    slope = aexec.gradients(single, x)
    assert str(single.shape) == "[?,2]"
    value = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    found = await run(graph, [single, several, slope], {x: value})
    np.testing.assert_array_equal(found[0], value * value)
    np.testing.assert_array_equal(found[1]["sum"], value.sum(1))
    np.testing.assert_array_equal(found[1]["more"], value + 1)
    np.testing.assert_array_equal(found[2][0], 2 * value)
    assert (await run(graph, single, {x: value[:0]})).shape == (0, 2)


async def test_scans_and_folds(graph: aexec.Graph) -> None:
    x = aexec.placeholder("float64", [None])

    def step(a: Any, b: Any) -> Any:
        return a * 2.0 + b

    made = {
        "scan": aexec.scan(step, x),
        "from": aexec.scan(step, x, np.float64(1.0)),
        "back": aexec.scan(step, x, reverse=True),
        "back from": aexec.scan(step, x, np.float64(1.0), reverse=True),
        "foldl": aexec.foldl(step, x),
        "foldr": aexec.foldr(step, x, np.float64(1.0)),
    }
    pairs = aexec.scan(lambda a, b: (a[0] + b, a[1] * b), x, (np.float64(0.0), np.float64(1.0)))
    slope = aexec.gradients(made["foldl"], x)
    found = await run(graph, {**made, "pairs": pairs, "slope": slope}, {x: [1.0, 2.0, 3.0]})
    expected: dict[str, Any] = {
        "scan": [1.0, 4.0, 11.0],
        "from": [3.0, 8.0, 19.0],
        "back": [17.0, 8.0, 3.0],
        "back from": [25.0, 12.0, 5.0],
        "foldl": 11.0,
        "foldr": 25.0,
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, name)
    np.testing.assert_array_equal(found["pairs"][0], [1.0, 3.0, 6.0])
    np.testing.assert_array_equal(found["pairs"][1], [1.0, 2.0, 6.0])
    np.testing.assert_array_equal(found["slope"][0], [4.0, 2.0, 1.0])


def test_number_of_rows_is_known_of_the_results() -> None:
    rows, some = ops.zeros_like(np.zeros((4, 3), np.float32)), ops.placeholder("float32", [None, 3])
    assert aexec.map_fn(lambda row: row * 2.0, rows).static_shape.dims == (4, 3)
    assert aexec.scan(lambda sum, row: sum + row, rows).static_shape.dims == (4, 3)
    assert aexec.map_fn(lambda row: row * 2.0, some).static_shape[0] is None


def test_elements_without_rows_are_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="elems must have at least one tensor"):
        aexec.map_fn(lambda row: row, [])
    with pytest.raises(errors.InvalidArgumentError, match="is a scalar"):
        aexec.map_fn(lambda row: row, 1.0)
    with pytest.raises(errors.InvalidArgumentError, match="dtype and what fn gives must have the same structure"):
        aexec.map_fn(lambda row: (row, row), aexec.constant([1.0, 2.0]), "float32")
