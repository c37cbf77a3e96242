"""Datasets of "datasets.choosing_dataset_ops", and others that the recorded pipelines lack: sparse slices, batches of
other sizes, parsed examples.  The expected elements are TensorFlow's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.dtypes import int64, string
from aexec.framework.shape import PartialTensorShape
from tests.kernels.datasets.dataset_graphs import DatasetGraph
from tests.kernels.datasets.test_dataset_ops import VECTOR, elements


async def drained(g: DatasetGraph, dataset: str, types: list[Any]) -> list[Any]:
    """The elements of a dataset with these types and any shapes, as lists."""
    attrs = {"output_types": types, "output_shapes": [PartialTensorShape(None)] * len(types)}
    g("iterator", "IteratorV2", shared_name=b"numbers", container=b"", **attrs)
    g("begin", "MakeIterator", dataset, "iterator")
    g("next", "IteratorGetNext", "iterator", **attrs)
    found: list[Any] = []
    async with aexec.Session(g.graph()) as session:
        await session.run([], targets=["begin"])
        while True:
            try:
                values = await session.run([f"next:{number}" for number in range(len(types))])
                found.append([value if type(value) is bytes else value.tolist() for value in values])
            except errors.OutOfRangeError:
                return found


async def test_sampling_chooses_what_tensorflow_chooses() -> None:
    g = DatasetGraph()
    inputs = [g.const("rate", 0.3, dtypes.float32), g.const("seed", 3, int64), g.const("seed2", 4, int64)]
    made = g.dataset("sample", "SamplingDataset", g.numbers(30), *inputs)
    assert await elements(g, made) == [6, 8, 13, 15, 17, 20, 27, 29]


@pytest.mark.parametrize("number", [4, 5])
async def test_list_has_as_many_elements_as_it_has_tensors_for(number: int) -> None:
    g = DatasetGraph()
    tensors = [g.const("a", 1, int64), g.const("b", b"a"), g.const("c", 2, int64), g.const("d", b"b")]
    tensors += [g.const("e", 3, int64)][: number - 4]
    kinds = [int64, string, int64, string, int64][:number]
    shapes = [PartialTensorShape([])] * 2
    attrs = {"Tinput_types": kinds, "output_types": [int64, string], "output_shapes": shapes}
    assert await drained(g, g("list", "ListDataset", *tensors, **attrs), [int64, string]) == [[1, b"a"], [2, b"b"]]


@pytest.mark.parametrize("op", ["ChooseFastestDataset", "ExperimentalChooseFastestDataset"])
async def test_fastest_of_equal_datasets_is_any(op: str) -> None:
    g = DatasetGraph()
    made = g.dataset("fastest", op, g.numbers(3), g.numbers(3, "same"), N=2, num_experiments=3)
    assert await elements(g, made) == [0, 1, 2]


@pytest.mark.parametrize("op", ["AutoShardDataset", "ExperimentalAutoShardDataset"])
@pytest.mark.parametrize(
    ("policy", "workers", "expected"),
    [(-1, 2, [0, 1, 2, 3, 4, 5]), (0, 2, [1, 3, 5]), (2, 2, [1, 3, 5]), (3, 2, [0, 1, 2, 3, 4, 5])],
)
async def test_workers_share_the_elements(op: str, policy: int, workers: int, expected: list[int]) -> None:
    g = DatasetGraph()
    inputs = [g.const("workers", workers, int64), g.const("index", 1, int64)]
    assert await elements(g, g.dataset("share", op, g.numbers(6), *inputs, auto_shard_policy=policy)) == expected


async def test_files_are_not_divided_among_workers() -> None:
    g = DatasetGraph()
    inputs = [g.const("workers", 2, int64), g.const("index", 1, int64)]
    with pytest.raises(errors.UnimplementedError, match="FILE"):
        await elements(g, g.dataset("share", "AutoShardDataset", g.numbers(6), *inputs, auto_shard_policy=1))


@pytest.mark.parametrize("op", ["SleepDataset", "ExperimentalSleepDataset"])
async def test_sleeping_changes_no_element(op: str) -> None:
    g = DatasetGraph()
    assert await elements(g, g.with_count("slow", op, g.numbers(3), 10)) == [0, 1, 2]


@pytest.mark.parametrize("op", ["RebatchDataset", "ExperimentalRebatchDataset"])
@pytest.mark.parametrize(
    ("size", "parts", "expected"),
    [
        (4, 3, [[0, 1], [2, 3], [], [4], [5], []]),
        (5, 2, [[0, 1, 2], [3, 4], [5], [6]]),
        (3, 5, [[0], [1], [2], [], [], [3], [4], [], [], []]),
    ],
)
async def test_batches_are_split_for_replicas(op: str, size: int, parts: int, expected: list[list[int]]) -> None:
    g = DatasetGraph()
    batches = g.batched("batches", g.numbers(size + 2), size)
    assert await elements(g, g.with_count("parts", op, batches, parts, shape=VECTOR), VECTOR) == expected


@pytest.mark.parametrize(
    ("sizes", "drops", "expected"),
    [
        ([3], False, [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]),
        ([3], True, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
        ([2, 1], False, [[0, 1], [2], [3, 4], [5], [6, 7], [8], [9]]),
        ([1, 0, 2], False, [[0], [], [1, 2], [3], [], [4, 5], [6], [], [7, 8], [9], []]),
        ([4, 5], True, [[0, 1, 2, 3], [4, 5, 6, 7, 8]]),
    ],
)
async def test_rows_are_batched_anew(sizes: list[int], drops: bool, expected: list[list[int]]) -> None:
    g = DatasetGraph()
    inputs = [g.const("sizes", np.array(sizes, np.int64)), g.const("drops", drops, dtypes.bool_)]
    made = g.dataset("anew", "RebatchDatasetV2", g.batched("four", g.numbers(10), 4), *inputs, shape=VECTOR)
    assert await elements(g, made, VECTOR) == expected


@pytest.mark.parametrize("sizes", [[], [-1]])
async def test_sizes_of_no_batch_are_refused(sizes: list[int]) -> None:
    g = DatasetGraph()
    inputs = [g.const("sizes", np.array(sizes, np.int64)), g.const("drops", False, dtypes.bool_)]
    with pytest.raises(errors.InvalidArgumentError, match="`batch_sizes`"):
        await elements(g, g.dataset("anew", "RebatchDatasetV2", g.batched("b", g.numbers(9), 4), *inputs, shape=VECTOR))


def _slices(indices: Any, values: list[bytes], shape: list[int]) -> tuple[DatasetGraph, str]:
    g = DatasetGraph()
    parts = [g.const("indices", np.array(indices, np.int64)), g.const("values", np.array(values, object), string)]
    parts.append(g.const("shape", np.array(shape, np.int64)))
    return g, g("slices", "SparseTensorSliceDataset", *parts, Tvalues=string)


@pytest.mark.parametrize(
    ("indices", "shape", "expected"),
    [
        (
            [[0, 1], [0, 2], [2, 0]],
            [4, 3],
            [[[[1], [2]], [b"a", b"b"], [3]], [[], [], [3]], [[[0]], [b"c"], [3]], [[], [], [3]]],
        ),
        ([[-1, 1], [1, 2], [2, 0]], [2, 3], [[[], [], [3]], [[[2]], [b"b"], [3]]]),
    ],
)
async def test_sparse_slices_are_the_rows(indices: Any, shape: list[int], expected: Any) -> None:
    g, made = _slices(indices, [b"a", b"b", b"c"], shape)
    assert await drained(g, made, [int64, string, int64]) == expected


@pytest.mark.parametrize(
    ("indices", "values", "shape", "complaint"),
    [
        ([[2, 1], [0, 2]], [b"a", b"b"], [4, 3], "must be ordered in the batch dimension"),
        ([[0, 1], [1, 2]], [b"a"], [4, 3], "Number of values must match first dimension of indices"),
        ([[0, 1], [1, 2]], [b"a", b"b"], [4], "Number of dimensions must match second dimension of indices"),
        ([0, 1], [b"a", b"b"], [4], "Input indices must be a matrix"),
    ],
)
async def test_parts_of_no_sparse_tensor_are_refused(
    indices: Any, values: list[bytes], shape: list[int], complaint: str
) -> None:
    g, made = _slices(indices, values, shape)
    with pytest.raises(errors.OpError, match=complaint):
        await drained(g, made, [int64, string, int64])


async def _begun(session: aexec.Session, fetch: str) -> Any:
    await session.run([], targets=["begin"])
    return await session.run(fetch)


@pytest.mark.parametrize("op", ["DenseToSparseBatchDataset", "ExperimentalDenseToSparseBatchDataset"])
@pytest.mark.parametrize(
    ("size", "row", "complaint"),
    [(0, [-1], "Batch size"), (2, [-2], "must be >= -1"), (2, [3, 3], "incompatible"), (2, [1], "exceeds")],
)
async def test_rows_that_do_not_fit_a_sparse_batch_are_refused(
    op: str, size: int, row: list[int], complaint: str
) -> None:
    g = DatasetGraph()
    inputs = [g.const("size", size, int64), g.const("row", np.array(row, np.int64))]
    attrs = {"output_types": [dtypes.variant], "output_shapes": [PartialTensorShape(None)]}
    made = g("sparse", op, g.batched("rows", g.numbers(4), 2), *inputs, **attrs)
    g("iterator", "IteratorV2", shared_name=b"numbers", container=b"", **attrs)
    g("begin", "MakeIterator", made, "iterator")
    g("next", "IteratorGetNext", "iterator", **attrs)
    g("parts", "DeserializeSparse", "next", dtype=int64, Tserialized=dtypes.variant)
    async with aexec.Session(g.graph()) as session:
        with pytest.raises(errors.OpError, match=complaint):
            await _begun(session, "parts:1")


@pytest.mark.parametrize("op", ["ExperimentalParseExampleDataset", "ParseExampleDataset", "ParseExampleDatasetV2"])
async def test_examples_are_parsed(op: str) -> None:
    g = DatasetGraph()
    example = proto.Example()
    example.features.feature["a"].int64_list.value.extend([3, 4])
    texts = np.array([example.SerializeToString()] * 2, object)
    text_shape = PartialTensorShape([2])
    source = g(
        "texts", "TensorDataset", g.const("one", texts, string), Toutput_types=[string], output_shapes=[text_shape]
    )
    attrs = {
        "dense_keys": [b"a"],
        "sparse_keys": [],
        "sparse_types": [],
        "Tdense": [int64],
        "dense_shapes": [PartialTensorShape([2])],
    }
    inputs = [g.const("calls", 1, int64), g.const("default", np.zeros(0, np.int64))]
    shape = PartialTensorShape([None, 2])
    assert await elements(g, g.dataset("parsed", op, source, *inputs, shape=shape, **attrs), shape) == [
        [[3, 4], [3, 4]]
    ]


@pytest.mark.parametrize("rerandomizes", [False, True])
async def test_random_numbers_of_a_generator(rerandomizes: bool) -> None:
    g = DatasetGraph()
    seeds = [g.const("seed", 5, int64), g.const("seed2", 0, int64)]
    g("generator", "AnonymousRandomSeedGenerator", *seeds)
    attrs = {"rerandomize_each_iteration": rerandomizes}
    made = g.dataset("random", "RandomDatasetV2", *seeds, "generator", **attrs)
    twice = g.with_count("twice", "RepeatDataset", g.with_count("one", "TakeDataset", made, 1), 2)
    first, second = await elements(g, twice)
    assert (first == second) is not rerandomizes


@pytest.mark.parametrize("op", ["MatchingFilesDataset", "ExperimentalMatchingFilesDataset"])
async def test_files_that_match_are_named(op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.txt", "a.txt", "c"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "folder.txt").mkdir()
    monkeypatch.chdir(tmp_path)
    g = DatasetGraph()
    patterns = [os.fsencode(tmp_path / "*.txt"), b"c", b"nothing*"]
    made = g("names", op, g.const("patterns", np.array(patterns, object), string))
    expected = [os.fsencode(tmp_path / "a.txt"), os.fsencode(tmp_path / "b.txt"), b"./c"]
    assert await drained(g, made, [string]) == [[name] for name in expected]


async def test_patterns_that_match_nothing_are_an_error() -> None:
    g = DatasetGraph()
    with pytest.raises(errors.NotFoundError, match="Don't find any matched files"):
        await drained(g, g("names", "MatchingFilesDataset", g.const("patterns", b"/nothing/*")), [string])


@pytest.mark.parametrize("op", ["CSVDataset", "ExperimentalCSVDataset"])
async def test_records_of_a_file_are_elements(op: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1,a\n2,b\n")
    g = DatasetGraph()
    settings = (os.fsencode(tmp_path / "file"), b"", 100, False, b",", True, b"", np.zeros(0, np.int64))
    inputs = [g.const(f"setting{number}", setting) for number, setting in enumerate(settings)]
    inputs += [g.const("first", np.zeros(0, np.int64)), g.const("second", b"")]
    shapes = [PartialTensorShape([])] * 2
    made = g("records", op, *inputs, output_types=[int64, string], output_shapes=shapes)
    assert await drained(g, made, [int64, string]) == [[1, b"a"], [2, b"b"]]
