"""Types that stand for several tensors, as fetches and as keys of feeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.runtime.feeding import fetches


@pytest.fixture(autouse=True)
def own_types(monkeypatch: pytest.MonkeyPatch) -> None:
    patterns = type(fetches._expansions)()
    patterns._entries = fetches._expansions._entries
    monkeypatch.setattr(fetches, "_expansions", patterns)


class Point:
    """Two tensors."""

    def __init__(self, x: Any, y: Any) -> None:
        self.parts = [x, y]

    def __repr__(self) -> str:
        return "Point"


class Line:
    """Two points."""

    def __init__(self, start: Point, end: Point) -> None:
        self.parts = [start, end]


def scaled() -> tuple[aexec.Graph, Point, Point]:
    with aexec.Graph() as graph:
        x, y = aexec.placeholder("float32", name="x"), aexec.placeholder("float32", name="y")
        return graph, Point(x, y), Point(x * 2.0, y * 3.0)


def register(split: Any = None) -> None:
    aexec.register_fetch_type(Point, lambda point: point.parts, complex_of, split)


def complex_of(parts: Any) -> complex:
    return complex(*parts)


def split(value: complex) -> list[float]:
    return [value.real, value.imag]


async def test_fetched_by_class_subclass_and_predicate() -> None:
    graph, _, result = scaled()
    feeds = {"x:0": 1.0, "y:0": 2.0}

    class Named(Point):
        name = ""

    async with aexec.Session(graph) as session:
        with pytest.raises(errors.InvalidArgumentError, match="Fetch argument Point has invalid type Point"):
            await session.run(result, feeds)
        register()
        assert await session.run(result, feeds) == 2 + 6j
        assert await session.run({"both": [result, "x:0"]}, feeds) == {"both": [2 + 6j, 1]}
        assert await session.run(Named("x:0", "y:0"), feeds) == 1 + 2j
        aexec.register_fetch_type(lambda fetch: getattr(fetch, "name", None) == "", lambda named: named.parts, list)
        assert await session.run(Named("x:0", "y:0"), feeds) == [1, 2]
        assert await session.run(result, feeds) == 2 + 6j


async def test_registered_fetch_types_are_keys_of_feeds() -> None:
    graph, given, result = scaled()
    register(split)
    aexec.register_fetch_type(Line, lambda line: line.parts, tuple, list)
    async with aexec.Session(graph) as session:
        assert await session.run(result, {given: 1 + 2j}) == 2 + 6j
        assert await session.run([result], {given: 1 + 2j}) == [2 + 6j]  # and as it is when it is known
        assert await session.start(result, {given: 1 + 2j}) == 2 + 6j
        assert await session.run(Line(given, result), {Line(given, result): (1j, 2 + 1j)}) == (1j, 2 + 1j)
        call = session.make_callable(result, [given])
        assert call.feeds == ("x:0", "y:0") and await call(1.0, 2.0) == 2 + 6j
        step = await session.partial_run_setup([result], [given])
        assert await session.partial_run(step, result, {given: 1 + 2j}) == 2 + 6j


async def test_keys_that_cannot_be_fed() -> None:
    graph, given, result = scaled()
    async with aexec.Session(graph) as session:
        with pytest.raises(errors.InvalidArgumentError, match="key must be a tensor or its name, got Point of type Po"):
            await session.run(result.parts, {given: 1j})
        register()
        with pytest.raises(errors.InvalidArgumentError, match="Point can be fetched but not fed: its type Point was"):
            await session.run(result, {given: 1j})
        register(lambda value: [value])
        with pytest.raises(errors.InvalidArgumentError, match="stands for 2 tensors, and was fed 1 values: 1j"):
            await session.run(result, {given: 1j})
        register(split)
        with pytest.raises(errors.InvalidArgumentError, match='Endpoint "x:0" fed more than once'):
            await session.run(result, {given: 1j, given.parts[0]: 1.0})
        with pytest.raises(errors.InvalidArgumentError, match="fed more than once"):
            await session.run(result, {given: 1j, "x": 1.0})


async def test_rows_of_a_tensor() -> None:
    with aexec.Graph() as graph:
        values, indices = aexec.placeholder("float32", name="values"), aexec.placeholder("int32", name="indices")
        rows = aexec.IndexedSlices(values * 2.0, indices)
        shaped = aexec.IndexedSlices(values, indices, aexec.constant([3]))
    async with aexec.Session(graph) as session:
        fed: Any = aexec.IndexedSlices(np.float32([1, 2]), np.int32([0, 2]))
        got = await session.run(rows, {aexec.IndexedSlices(values, indices): fed})
        assert isinstance(got, aexec.IndexedSlices) and got.dense_shape is None
        assert (got.values.tolist(), got.indices.tolist()) == ([2, 4], [0, 2])
        got = await session.run(shaped, {values: [1.0], indices: [1]})
        assert got.dense_shape.tolist() == [3]


async def test_variable_is_a_feed_key_as_its_tensor_is() -> None:
    with aexec.Graph() as graph:
        v = aexec.Variable([1.0], name="v")
        y = v * 2.0
    async with aexec.Session(graph) as session:
        for _ in range(2):
            assert (await session.run(y, {v: [3.0]})).tolist() == [6]
