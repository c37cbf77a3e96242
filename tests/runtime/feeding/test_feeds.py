"""Feeds of types that a program registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.runtime.feeding import feeds
from aexec.runtime.feeding.nested_lists import _AT_ONCE


@pytest.fixture(autouse=True)
def own_types(monkeypatch: pytest.MonkeyPatch) -> None:
    patterns = type(feeds._converters)()
    patterns._entries = feeds._converters._entries
    monkeypatch.setattr(feeds, "_converters", patterns)


class Celsius:
    def __init__(self, degrees: float) -> None:
        self.degrees = degrees


class Rounded(Celsius):
    pass


def doubling() -> aexec.Graph:
    with aexec.Graph() as graph:
        aexec.ops.mul(aexec.placeholder("float32", name="x"), 2.0, name="y")
    return graph


async def test_feed_types_are_found_by_class_subclass_and_predicate() -> None:
    aexec.register_feed_type(Celsius, lambda value: value.degrees + 273)
    async with aexec.Session(doubling()) as session:
        assert await session.run("y:0", {"x:0": Celsius(0.0)}) == 546
        assert await session.run("y:0", {"x:0": Rounded(0.5)}) == 547
        aexec.register_feed_type(Rounded, lambda value: round(value.degrees) + 273)
        assert await session.run("y:0", {"x:0": Rounded(0.4)}) == 546
        aexec.register_feed_type(lambda value: getattr(value, "degrees", 0) < -273, lambda value: [0.0])
        assert (await session.run("y:0", {"x:0": Celsius(-300)})).tolist() == [0]
        assert await session.run("y:0", {"x:0": Celsius(-200)}) == 146


async def test_converted_values_are_checked_as_feeds() -> None:
    array = np.array([1.0], np.float32)
    aexec.register_feed_type(Celsius, lambda value: array)
    aexec.register_feed_type(Rounded, lambda value: "x")
    async with aexec.Session(doubling()) as session:
        given, _ = await session.run(["x:0", "y:0"], {"x:0": Celsius(0)})
        assert given is array
        with pytest.raises(errors.InvalidArgumentError, match="Expects arg\\[0\\] to be float but string is provided"):
            await session.run("y:0", {"x:0": Rounded(0)})


async def test_failing_converter_names_the_value() -> None:
    def fail(value: Any) -> Any:
        raise KeyError("unit")

    def refuse(value: Any) -> Any:
        raise errors.UnimplementedError("no rounding")

    aexec.register_feed_type(Celsius, fail)
    aexec.register_feed_type(Rounded, refuse)
    async with aexec.Session(doubling()) as session:
        with pytest.raises(errors.InvalidArgumentError, match=r"x:0, of type tests.Celsius, is no tensor: 'unit'") as e:
            await session.run("y:0", {"x:0": Celsius(0)})
        assert isinstance(e.value.__cause__, KeyError)
        with pytest.raises(errors.UnimplementedError, match="no rounding"):
            await session.run("y:0", {"x:0": Rounded(0)})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "cannot be a value of type dict"),
        (None, "cannot be None"),
        (object(), "to be float but a value of type object is provided"),
        (Celsius(0), "a value of type tests.Celsius is provided"),
    ],
    ids=["dict", "None", "object", "Celsius"],
)
async def test_values_of_unknown_types_are_refused_by_type(value: Any, message: str) -> None:
    async with aexec.Session(doubling()) as session:
        with pytest.raises(errors.InvalidArgumentError, match=message):
            await session.run("y:0", {"x:0": value})


async def test_registered_types_are_fed_wherever_values_go_in() -> None:
    aexec.register_feed_type(Celsius, lambda value: value.degrees + 273)
    with doubling() as graph:
        queue = aexec.ops.fifo_queue_v2(component_types=["float32"], shapes=[[]], name="queue")
        aexec.ops.queue_dequeue_v2(queue, component_types=["float32"], name="taken")
    async with aexec.Session(graph) as session:
        assert await session.start("y:0", {"x:0": Celsius(0.0)}) == 546
        assert await session.make_callable("y:0", ["x:0"])(Celsius(0.0)) == 546
        step = await session.partial_run_setup(["y:0"], ["x:0"])
        assert await session.partial_run(step, "y:0", {"x:0": Celsius(0.0)}) == 546
        await session.queue("queue").put(Celsius(1.0))
        assert await session.queue("queue").get() == 274
        assert session.tensors.get(await session.tensors.put(Celsius(2.0))) == 275
    async with aexec.Session(doubling()) as session:
        assert await session.call(x=Celsius(0.0)) == {"y": 546}


# Shapes


def placeholder_of_producer(producer: int, op: str = "Placeholder") -> aexec.Graph:
    graph_def = proto.GraphDef()
    graph_def.versions.producer = producer
    node = graph_def.node.add(name="x", op=op)
    node.attr["dtype"].type = 1
    node.attr["shape"].shape.SetInParent()
    graph_def.node.add(name="y", op="Neg", input=["x"]).attr["T"].type = 1
    return aexec.Graph.from_graph_def(graph_def)


@pytest.mark.parametrize("producer", [9, 21])
async def test_placeholder_of_old_producer_says_nothing_by_shape_of_scalar(producer: int) -> None:
    async with aexec.Session(placeholder_of_producer(producer)) as session:
        assert str(session.inputs["x"].shape) == "?"
        for value in (2.0, [[1.0, 2.0]], []):
            assert np.array_equal(await session.run("y:0", {"x:0": np.float32(value)}), -np.float32(value))


@pytest.mark.parametrize(("producer", "op"), [(22, "Placeholder"), (21, "PlaceholderV2")])
async def test_placeholder_of_scalar_takes_no_matrix(producer: int, op: str) -> None:
    async with aexec.Session(placeholder_of_producer(producer, op)) as session:
        with pytest.raises(errors.InvalidArgumentError, match=r"which has shape \[\]"):
            await session.run("y:0", {"x:0": np.float32([[1]])})


async def test_fed_value_has_the_static_shape_of_its_tensor_whatever_makes_it() -> None:
    with aexec.Graph() as graph:
        c = aexec.ops.mul(aexec.constant(2.0), aexec.placeholder("float32", [], name="x"), name="c")
        aexec.ops.add(c, 1.0, name="d")
    async with aexec.Session(graph) as session:
        assert await session.run("d:0", {"c:0": 5.0}) == 6
        with pytest.raises(errors.InvalidArgumentError, match=r"shape \(2,\) for Tensor c:0, which has shape \[\]"):
            await session.run("d:0", {"c:0": [1.0, 2.0]})
    async with aexec.Session(graph, config=aexec.SessionConfig(check_feed_shapes=False)) as session:
        assert (await session.run("d:0", {"c:0": [1.0, 2.0]})).tolist() == [2, 3]


# Numbers


def fed(value: Any, dtype: str) -> Any:
    return feeds.FeedSpec("x:0", dtypes.as_dtype(dtype)).convert(value)


@given(
    st.lists(st.one_of(st.integers(-(2**70), 2**70), st.floats(-1e30, 1e30)), min_size=1),
    st.sampled_from(["float32", "float64", "complex64", "complex128"]),
)
def test_whole_numbers_beyond_64_bits_are_fed_as_floats(values: list[float], dtype: str) -> None:
    array = fed(values, dtype)
    assert array.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(array, np.array([float(value) for value in values]).astype(dtype))


def test_integers_beyond_64_bits_are_fed_as_floats() -> None:
    values = [[10**20, k] for k in range(2 * _AT_ONCE)]
    np.testing.assert_array_equal(fed(values, "float64"), np.array(values, np.float64))


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1e39], "float32"),
        ([0.0, -1e39], "float32"),
        (65520.0, "half"),
        (70000.0, "half"),
        (3.4e38, "bfloat16"),
        (1000.0, "float8_e4m3fn"),
        ([1.0, 1e39 + 1j], "complex64"),
        ([10**400], "float64"),
        ([2**64], "int64"),
    ],
)
def test_number_that_does_not_fit_its_type_is_refused(value: Any, dtype: str, typed: bool) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="Cannot feed x:0: a value does not fit"):
        fed(np.array(value) if typed else value, dtype)


def test_values_that_are_not_finite_are_fed_as_they_are() -> None:
    np.testing.assert_array_equal(fed([np.inf, -np.inf, np.nan], "float32"), np.float32([np.inf, -np.inf, np.nan]))
    assert np.isinf(fed(np.array([1.0, np.inf]), "half")[1])
