"""Building into the current graph: constants of every kind, and what cannot be one."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aexec
from aexec import errors, ops


def constant(value: Any, dtype: Any = None, shape: Any = None) -> Any:
    with aexec.Graph():
        tensor = aexec.constant(value, dtype, shape)
    return str(tensor.dtype), tensor.node.attrs["value"].array.tolist()


class TestConstants:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (5, ("int32", 5)),
            (-(2**31), ("int32", -(2**31))),
            (2**31, ("int64", 2**31)),
            (-(2**63), ("int64", -(2**63))),
            (2**63, ("uint64", 2**63)),
            (np.int64(5), ("int64", 5)),
            (1.5, ("float", 1.5)),
            (np.float64(1.5), ("double", 1.5)),
            (1j, ("complex128", 1j)),
            (True, ("bool", True)),
            ("é", ("string", "é".encode())),
            ([], ("float", [])),
        ],
    )
    def test_types_that_values_have_by_themselves(self, value: Any, expected: Any) -> None:
        assert constant(value) == expected

    @pytest.mark.parametrize(
        ("value", "dtype", "expected"),
        [
            (True, "int32", 1),
            (3, "bool", None),
            (np.array(3), "bool", True),
            (2**70, "float32", float(2**70)),
            ([2**63, 1], "uint64", [2**63, 1]),
            (np.array(1.5, ml_dtypes.bfloat16), "float32", 1.5),
            (3, "int4", 3),
            (1, "complex64", 1 + 0j),
            ([], "int32", []),
            (1.5, "int32", None),
            (np.array(1.0), "int32", None),
            (np.array(1.0, ml_dtypes.bfloat16), "int32", None),
            ("5", "int32", None),
            (1j, "float32", None),
            ([1, "a"], "int32", None),
            (None, "int32", None),
            ([[], [1]], None, None),
            ({1}, None, None),
        ],
    )
    def test_types_asked_for(self, value: Any, dtype: Any, expected: Any) -> None:
        if expected is not None:
            assert constant(value, dtype)[1] == expected
            return
        with pytest.raises(errors.InvalidArgumentError, match="cannot make a"):
            constant(value, dtype)

    @pytest.mark.parametrize("typed", [False, True])
    @pytest.mark.parametrize(
        ("value", "dtype"),
        [(300, "uint8"), (-1, "uint8"), (2**31, "int32"), ([1, 300], "uint8"), (128, "qint8"), (8, "int4")],
    )
    def test_integers_that_do_not_fit(self, value: Any, dtype: str, typed: bool) -> None:
        """They used to wrap around silently."""
        with pytest.raises(errors.InvalidArgumentError, match="a value does not fit"):
            constant(np.array(value) if typed else value, dtype)

    @pytest.mark.parametrize("value", [2**64, -(2**63) - 1, [0, 2**70]])
    def test_integers_of_more_than_64_bits(self, value: Any) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="a value does not fit"):
            constant(value, "int64")

    @given(st.lists(st.integers(-(2**66), 2**66)), st.sampled_from(["int8", "uint16", "int32", "int64", "uint64"]))
    def test_integers_fit_or_are_refused(self, values: list[int], dtype: str) -> None:
        limits = np.iinfo(dtype)
        if all(limits.min <= value <= limits.max for value in values):
            assert constant(values, dtype) == (dtype, values)
        else:
            with pytest.raises(errors.InvalidArgumentError, match="a value does not fit"):
                constant(values, dtype)

    def test_shapes(self) -> None:
        assert constant(5, shape=[2]) == ("int32", [5, 5])
        assert constant([1, 2, 3, 4], "float32", [2, 2]) == ("float", [[1.0, 2.0], [3.0, 4.0]])
        assert constant("a", shape=[1, 2]) == ("string", [[b"a", b"a"]])

    @pytest.mark.parametrize("shape", [[3], [-2], "x"])
    def test_shapes_that_do_not_fit(self, shape: Any) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="given as"):
            constant([1, 2], shape=shape)


def test_node_takes_the_device_of_what_it_is_colocated_with() -> None:
    """As TensorFlow's: devices in force outside do not count, and inside only where the other asks for none."""
    with aexec.Graph() as graph:
        free = aexec.ops.no_op(name="free")
        with aexec.device("/cpu:1"):
            placed = aexec.ops.no_op(name="placed")
        with aexec.device("/cpu:2"):
            with aexec.colocate_with(placed):
                aexec.ops.no_op(name="a")
                with aexec.device("/cpu:3"):
                    aexec.ops.no_op(name="b")
                with aexec.colocate_with(free):
                    aexec.ops.no_op(name="c")
            with aexec.colocate_with(free):
                aexec.ops.no_op(name="d")
                with aexec.device("/cpu:3"):
                    aexec.ops.no_op(name="e")
            aexec.ops.no_op(name="f")
    devices = {node.name: node.device.removeprefix("/device:CPU:") for node in graph}
    assert [devices[name] for name in "abcdef"] == ["1", "1", "1", "", "3", "2"]
    assert graph.find("b").colocation_groups == ["placed"]
    assert graph.find("c").colocation_groups == ["free", "placed"]


async def test_list_of_no_axes_is_one_of_integers() -> None:
    with aexec.Graph() as graph:
        total = aexec.ops.sum(aexec.constant(2.0), [])
    async with aexec.Session(graph) as session:
        assert await session.run(total) == 2.0


def test_function_gives_nodes_their_device_imported_ones_too() -> None:
    with aexec.Graph() as part:
        aexec.constant(1.0, name="one")
        with aexec.device("/device:CPU:1"):
            aexec.constant(2.0, name="two")

    def request(node: aexec.Node) -> str:
        return f"/job:{node.op.lower()}{node.device}"

    with aexec.Graph() as graph, aexec.device("/task:3"), aexec.device(request):
        aexec.import_graph_def(part, name="")
        aexec.placeholder("float32", name="three")
    assert {node.name: node.device for node in graph.nodes} == {
        "one": "/job:const/task:3",
        "two": "/job:const/task:3/device:CPU:1",
        "three": "/job:placeholder/task:3",
    }


async def test_lists_with_tensors_in_them_are_packed() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None, 2], name="x")
        rows = ops.shape(x)[0]
        turned = ops.reshape(x, [2, rows], name="turned")
        nested = ops.neg([[rows, 1], [2, 3]])
        filled = aexec.zeros([rows, 3])
        whole = ops.sum(aexec.IndexedSlices(x, aexec.constant([1, 1]), aexec.constant([3, 2])), [1])
        with pytest.raises(errors.InvalidArgumentError, match=r"its shape is not known"):
            ops.neg(aexec.IndexedSlices(x, aexec.constant([1, 1])))
        with pytest.raises(errors.InvalidArgumentError, match="has type float, expected int32"):
            ops.reshape(x, [rows, ops.sum(x, [0, 1])])
    assert [graph.node(name).op for name in ("turned/shape", "turned/shape/0")] == ["Pack", "Const"]
    async with aexec.Session(graph) as session:
        found = await session.run([turned, nested, filled, whole], {x: [[1, 2], [3, 4]]})
    assert [value.tolist() for value in found[:2]] == [[[1, 2], [3, 4]], [[-2, -1], [-2, -3]]]
    assert found[2].shape == (2, 3) and found[3].tolist() == [0, 10, 0]
