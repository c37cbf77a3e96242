"""Functions that are called with whole batches, because they give the same for rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.dtypes import float32, int64, string
from aexec.framework.shape import PartialTensorShape
from aexec.framework.wire.attr_value import NameAttrList
from aexec.kernels.datasets import batch_dataset_ops
from tests.kernels.datasets.dataset_graphs import DatasetGraph
from tests.support.programs.functions import function_def

VECTOR = PartialTensorShape([None])


def _const(name: str, value: Any) -> Any:
    array = np.asarray(value)
    return name, "Const", [], {"dtype": dtypes.from_numpy(array.dtype), "value": array}


# A function of one element to one component; its name; and the row that it is called with.
QUOTIENT = function_def(
    "Quotient(x: int64) -> y: int64",
    body=[
        _const("hundred", np.int64(100)),
        ("q", "FloorDiv", ["hundred:output:0", "x"], {"T": int64}),
        ("n", "AddV2", ["q:z:0", "x"], {"T": int64}),
    ],
    ret={"y": "n:z:0"},
)
TWO_RANKS = function_def(
    "TwoRanks(x: int64) -> y: int64",
    body=[
        _const("axis", np.int32(0)),
        ("e", "ExpandDims", ["x", "axis:output:0"], {"T": int64, "Tdim": dtypes.int32}),
        ("n", "AddV2", ["e:output:0", "x"], {"T": int64}),
    ],
    ret={"y": "n:z:0"},
)
SAME_FOR_ALL = function_def(
    "SameForAll(x: int64) -> y: int64", body=[_const("c", np.int64(7))], ret={"y": "c:output:0"}
)
ADDED_VECTOR = function_def(
    "AddedVector(x: int64) -> y: int64",
    body=[_const("c", np.array([1, 2, 3])), ("n", "AddV2", ["x", "c:output:0"], {"T": int64})],
    ret={"y": "n:z:0"},
)
# Inverting matrices is no op of rows.
INVERSE = function_def(
    "Inverse(x: int64) -> y: float",
    body=[
        _const("shape", np.array([1, 1], np.int32)),
        ("c", "Cast", ["x"], {"SrcT": int64, "DstT": float32}),
        ("r", "Reshape", ["c:y:0", "shape:output:0"], {"T": float32, "Tshape": dtypes.int32}),
        ("i", "MatrixInverse", ["r:output:0"], {"T": float32}),
    ],
    ret={"y": "i:output:0"},
)
SECOND_ADDED = function_def(
    "SecondAdded(x: int64, c: int64) -> y: int64",
    body=[("n", "AddV2", ["x", "c"], {"T": int64})],
    ret={"y": "n:z:0"},
)


class Calls:
    """Counts the calls with batches, and the times that these were given up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches = self.given_up = 0
        mapped, one_by_one = batch_dataset_ops.MappedBatches._mapped, batch_dataset_ops.MappedBatches._begin_one_by_one

        async def counted(*arguments: Any) -> Any:
            self.batches += 1
            return await mapped(*arguments)

        def given_up(*arguments: Any) -> None:
            self.given_up += 1
            one_by_one(*arguments)

        monkeypatch.setattr(batch_dataset_ops.MappedBatches, "_mapped", counted)
        monkeypatch.setattr(batch_dataset_ops.MappedBatches, "_begin_one_by_one", given_up)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


async def _drained(graph: aexec.Graph) -> list[Any]:
    """The elements as lists, and the texts of errors in place of elements."""
    found: list[Any] = []
    async with aexec.Session(graph) as session:
        await session.run([], targets=["begin"])
        while True:
            try:
                found.append((await session.run("next:0")).tolist())
            except errors.OutOfRangeError:
                return found
            except errors.OpError as error:
                found.append(type(error).__name__)


async def test_batch_is_mapped_at_once(calls: Calls) -> None:
    g = DatasetGraph()
    made = g.batched("b", g.mapped("m", g.with_count("s", "SkipDataset", g.numbers(8), 1), QUOTIENT), 3)
    assert await _drained(g.iterated(made, VECTOR)) == [[101, 52, 36], [29, 25, 22], [21]]
    assert (calls.batches, calls.given_up) == (3, 0)


@pytest.mark.parametrize("op", ["ParallelMapDatasetV2", "MapAndBatchDataset"])
async def test_batch_of_calls_at_once_is_mapped_at_once(calls: Calls, op: str) -> None:
    g = DatasetGraph()
    source = g.with_count("s", "SkipDataset", g.numbers(8), 1)
    if op == "MapAndBatchDataset":
        g.graph_def.library.function.append(QUOTIENT)
        inputs = [g.const("size", 3, int64), g.const("calls", 2, int64), g.const("drop", False, dtypes.bool_)]
        made = g.dataset("b", op, source, *inputs, shape=VECTOR, f=NameAttrList("Quotient"), Targuments=[])
    else:
        made = g.batched("b", g.mapped("m", source, QUOTIENT, op, g.const("calls", 2, int64)), 3)
    assert await _drained(g.iterated(made, VECTOR)) == [[101, 52, 36], [29, 25, 22], [21]]
    assert (calls.batches, calls.given_up) == (3, 0)


async def test_element_that_fails_is_the_error_that_it_is_by_itself(calls: Calls) -> None:
    g = DatasetGraph()
    made = g.batched("b", g.mapped("m", g.numbers(6), QUOTIENT), 2)
    assert await _drained(g.iterated(made, VECTOR)) == ["InvalidArgumentError", [101, 52], [36, 29], [25]]
    assert calls.given_up == 1


@pytest.mark.parametrize(
    ("function", "expected", "batches"),
    [
        (TWO_RANKS, [[[0], [2]], [[4]]], 2),
        (SAME_FOR_ALL, [[7, 7], [7]], 0),
        (ADDED_VECTOR, [[[1, 2, 3], [2, 3, 4]], [[3, 4, 5]]], 2),
        (INVERSE, [[[[1.0]], [[0.5]]], [[[0.25]]]], 0),
    ],
)
async def test_function_without_a_form_for_batches_is_called_one_by_one(
    calls: Calls, function: Any, expected: list[Any], batches: int
) -> None:
    g = DatasetGraph()
    g.graph_def.library.function.append(function)
    dtype = function.signature.output_arg[0].type
    values = g.const("values", np.array([1, 2, 4]) if function is INVERSE else np.arange(3))
    source = g.dataset("s", "TensorSliceDataset", values, Toutput_types=[int64])
    mapped = g.dataset(
        "m", "MapDataset", source, dtype=dtypes.as_dtype(dtype), f=NameAttrList(function.signature.name), Targuments=[]
    )
    size, keep = g.const("size", 2, int64), g.const("keep", False, dtypes.bool_)
    kinds = {"dtype": dtypes.as_dtype(dtype), "shape": PartialTensorShape(None)}
    made = g.dataset("b", "BatchDatasetV2", mapped, size, keep, **kinds)
    g.dataset("iterator", "IteratorV2", shared_name=b"it", container=b"", **kinds)
    g("begin", "MakeIterator", made, "iterator")
    g.dataset("next", "IteratorGetNext", "iterator", **kinds)
    assert await _drained(g.graph()) == expected
    assert calls.batches == batches


@pytest.mark.parametrize(
    ("captured", "expected", "batches"),
    [(np.int64(5), [[5, 6], [7]], 2), (np.array([5, 6]), [[[5, 6], [6, 7]], [[7, 8]]], 2)],
)
async def test_captured_tensors_are_the_same_for_all_rows(
    calls: Calls, captured: Any, expected: list[Any], batches: int
) -> None:
    g = DatasetGraph()
    g.graph_def.library.function.append(SECOND_ADDED)
    source, given = g.numbers(3), g.const("captured", captured)
    mapped = g.dataset("m", "MapDataset", source, given, f=NameAttrList("SecondAdded"), Targuments=[int64])
    assert await _drained(g.iterated(g.batched("b", mapped, 2), PartialTensorShape(None))) == expected
    assert calls.batches == batches


RAW = function_def(
    "Raw(x: string) -> y: float",
    body=[
        ("d", "DecodeRaw", ["x"], {"out_type": dtypes.uint8, "little_endian": True}),
        ("c", "Cast", ["d:output:0"], {"SrcT": dtypes.uint8, "DstT": float32}),
    ],
    ret={"y": "c:y:0"},
)


@pytest.mark.parametrize(
    ("texts", "expected", "given_up"),
    [
        ([b"ab", b"cd", b"e"], [[[97, 98], [99, 100]], [[101]]], 0),
        ([b"a", b"cd", b"e"], ["InvalidArgumentError", [[101]]], 1),
    ],
)
async def test_strings_of_other_lengths_fail_as_batches_do(
    calls: Calls, texts: list[bytes], expected: list[Any], given_up: int
) -> None:
    g = DatasetGraph()
    g.graph_def.library.function.append(RAW)
    values = g.const("texts", np.array(texts, object), string)
    source = g("s", "TensorSliceDataset", values, Toutput_types=[string], output_shapes=[PartialTensorShape([])])
    attrs = {"output_types": [float32], "output_shapes": [PartialTensorShape(None)]}
    g("m", "MapDataset", source, f=NameAttrList("Raw"), Targuments=[], **attrs)
    g("b", "BatchDatasetV2", "m", g.const("size", 2, int64), g.const("drop", False, dtypes.bool_), **attrs)
    g("iterator", "IteratorV2", shared_name=b"it", container=b"", **attrs)
    g("begin", "MakeIterator", "b", "iterator")
    g("next", "IteratorGetNext", "iterator", **attrs)
    assert await _drained(g.graph()) == expected
    assert calls.given_up == given_up


RESIZED = function_def(
    "Resized(x: string) -> y: float",
    body=[
        _const("shape", np.array([1, 1, -1, 1], np.int32)),
        _const("size", np.array([1, 2], np.int32)),
        ("d", "DecodeRaw", ["x"], {"out_type": dtypes.uint8, "little_endian": True}),
        ("r", "Reshape", ["d:output:0", "shape:output:0"], {"T": dtypes.uint8, "Tshape": dtypes.int32}),
        ("i", "ResizeBilinear", ["r:output:0", "size:output:0"], {"T": dtypes.uint8}),
        ("s", "Squeeze", ["i:resized_images:0"], {"T": float32, "squeeze_dims": [0, 1, 3]}),
    ],
    ret={"y": "s:output:0"},
)


async def test_elements_of_other_shapes_go_through_the_function_one_by_one(calls: Calls) -> None:
    g = DatasetGraph()
    g.graph_def.library.function.append(RESIZED)
    values = g.const("texts", np.array([b"ab", b"cd", b"abcd", b"a"], object), string)
    source = g("s", "TensorSliceDataset", values, Toutput_types=[string], output_shapes=[PartialTensorShape([])])
    attrs = {"output_types": [float32], "output_shapes": [PartialTensorShape(None)]}
    g("m", "MapDataset", source, f=NameAttrList("Resized"), Targuments=[], **attrs)
    g("b", "BatchDatasetV2", "m", g.const("size", 2, int64), g.const("drop", False, dtypes.bool_), **attrs)
    g("iterator", "IteratorV2", shared_name=b"it", container=b"", **attrs)
    g("begin", "MakeIterator", "b", "iterator")
    g("next", "IteratorGetNext", "iterator", **attrs)
    assert await _drained(g.graph()) == [[[97, 98], [99, 100]], [[97, 99], [97, 97]]]
    assert (calls.batches, calls.given_up) == (2, 1)


async def test_large_elements_go_through_the_function_one_by_one(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_dataset_ops, "_LARGE_ROW", 8)
    g = DatasetGraph()
    made = g.batched("b", g.mapped("m", g.with_count("s", "SkipDataset", g.numbers(8), 1), QUOTIENT), 3)
    assert await _drained(g.iterated(made, VECTOR)) == [[101, 52, 36], [29, 25, 22], [21]]
    assert (calls.batches, calls.given_up) == (1, 1)
