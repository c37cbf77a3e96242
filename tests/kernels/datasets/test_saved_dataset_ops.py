"""Datasets saved in a folder and loaded again: TensorFlow's files, whole or not there."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.dtypes import float32, int64, string
from aexec.framework.wire.attr_value import NameAttrList
from aexec.io.record import write_records
from tests.kernels.datasets.dataset_graphs import SCALAR, DatasetGraph
from tests.support.programs.functions import function_def

# What TensorFlow 2.21 writes for `from_tensor_slices(([1.5, 2.5, 3.5], ["a", "bb", ""]))`, plain and compressed, and
# for `range(10)` with the shard function x % 3: the metadata, the run, and its shards.
PLAIN = (
    "EhMyODU0OTgzNDQ1MjEwNTM1ODQwGKmn1e2Eq5gDIAIqAgEHMAPAPgE=",
    "2854983445210535840",
    [
        "CgAAAAAAAACuo786CAESACIEAADAPzQRBqEIAAAAAAAAAP+GJA8IBxIAIgIBYYDJ7ZgKAAAAAAAAAK6jvzoIARIAIgQAACBAzXqyMwkAAAAAAAAA"
        "N/lxOQgHEgAiAwJiYrqTBJkKAAAAAAAAAK6jvzoIARIAIgQAAGBAslypvwcAAAAAAAAAu9efEQgHEgAiAQB/Tm9r"
    ],
)
ZIPPED = (
    "EhM2OTUzMzg2OTkxNTEwNzczOTE2GMz41e2Eq5gDIAIqAgEHMAPAPgE=",
    "6953386991510773916",
    [
        "H4sIAAAAAAAAA+JigIB1i/dbcTAKMSixMDAcsDcRZFvIAZX536bCz8EOlGFiTGw4+XYGFxYdCg5nqzYZc0JlzH8WWoJ1MDMlJe2azDITm5YEh00x"
        "K/ezQ2V2X58vCNbCyFDvl58NEGAAjFu6NpYAAAA="
    ],
)
SHARDED = (
    "EhM4NjY5NTI3NjY2MzEwNjEzMTg3GMyz4O2Eq5gDIAIqAQkwCsA+AQ==",
    "8669527666310613187",
    [
        "DgAAAAAAAADF5Wk/CAkSACIIAAAAAAAAAACIK5XqDgAAAAAAAADF5Wk/CAkSACIIAwAAAAAAAAAR4UTpDgAAAAAAAADF5Wk/CAkSACIIBgAAAAAA"
        "AABSEdhaDgAAAAAAAADF5Wk/CAkSACIICQAAAAAAAACWQWte",
        "DgAAAAAAAADF5Wk/CAkSACIIAQAAAAAAAACgvd9UDgAAAAAAAADF5Wk/CAkSACIIBAAAAAAAAABj7UrvDgAAAAAAAADF5Wk/CAkSACIIBwAAAAAA"
        "AADanp7k",
        "DgAAAAAAAADF5Wk/CAkSACIIAgAAAAAAAAAZTxJfDgAAAAAAAADF5Wk/CAkSACIIBQAAAAAAAADLewlZDgAAAAAAAADF5Wk/CAkSACIICAAAAAAA"
        "AACerynk",
    ],
)
PAIRS = [[1.5, b"a"], [2.5, b"bb"], [3.5, b""]]


def _const(name: str, value: Any) -> Any:
    array = np.asarray(value)
    return name, "Const", [], {"dtype": dtypes.from_numpy(array.dtype), "value": array}


MODULO = function_def(
    "Modulo(x: int64) -> y: int64",
    body=[_const("three", np.int64(3)), ("n", "FloorMod", ["x", "three:output:0"], {"T": int64})],
    ret={"y": "n:z:0"},
)
LESS = function_def(
    "Lessened(x: int64) -> y: int64",
    body=[_const("two", np.int64(2)), ("n", "Sub", ["x", "two:output:0"], {"T": int64})],
    ret={"y": "n:z:0"},
)
SAME = function_def("Same(x: variant) -> y: variant", body=[], ret={"y": "x"})


def one_after_another(types: list[Any]) -> Any:
    """The reader function that joins the shards."""
    attrs = {"f": NameAttrList("Same"), "Targuments": [], "output_types": types, "output_shapes": [SCALAR] * len(types)}
    return function_def(
        "Joined(x: variant) -> y: variant",
        body=[("all", "FlatMapDataset", ["x"], attrs)],
        ret={"y": "all:handle:0"},
    )


def loaded(path: Path | str, types: list[Any], **attrs: Any) -> aexec.Graph:
    g = DatasetGraph()
    g.graph_def.library.function.extend([one_after_another(types), SAME])
    shapes = [SCALAR] * len(types)
    reader = {"reader_func": NameAttrList("Joined"), "Treader_func_args": [], **attrs}
    made = {"output_types": types, "output_shapes": shapes}
    dataset = g("loaded", "LoadDataset", g.const("path", str(path).encode()), **made, **reader)
    return _iterated(g, dataset, types)


def _iterated(g: DatasetGraph, dataset: str, types: list[Any]) -> aexec.Graph:
    made = {"output_types": types, "output_shapes": [SCALAR] * len(types)}
    g("iterator", "IteratorV2", **made, shared_name=b"elements", container=b"")
    g("begin", "MakeIterator", dataset, "iterator")
    g("next", "IteratorGetNext", "iterator", **made)
    return g.graph()


async def elements(graph: aexec.Graph, components: int = 1, most: int = -1) -> list[Any]:
    found: list[Any] = []
    async with aexec.Session(graph) as session:
        await session.run([], targets=["begin"])
        while len(found) != most:
            try:
                values = await session.run([f"next:{number}" for number in range(components)])
            except errors.OutOfRangeError:
                break
            row = [np.asarray(value).tolist() for value in values]
            found.append(row if components > 1 else row[0])
    return found


def put(folder: Path, saved: tuple[str, str, list[str]]) -> Path:
    """Write the files of a dataset that TensorFlow saved."""
    metadata, run, shards = saved
    for number, data in enumerate(shards):
        shard = folder / run / f"{number:08d}.shard"
        shard.mkdir(parents=True)
        (shard / "00000000.snapshot").write_bytes(base64.b64decode(data))
    (folder / "snapshot.metadata").write_bytes(base64.b64decode(metadata))
    return folder


@pytest.mark.parametrize(("saved", "compression"), [(PLAIN, b""), (ZIPPED, b"GZIP")])
def test_dataset_that_tensorflow_saved_is_loaded(tmp_path: Path, saved: Any, compression: bytes) -> None:
    graph = loaded(put(tmp_path, saved), [float32, string], compression=compression)
    assert asyncio.run(elements(graph, 2)) == PAIRS


def test_shards_are_read_by_the_function(tmp_path: Path) -> None:
    graph = loaded(put(tmp_path, SHARDED), [int64])
    assert asyncio.run(elements(graph)) == [0, 3, 6, 9, 1, 4, 7, 2, 5, 8]


def saving(path: Path, op: str = "SaveDatasetV2", function: Any = None, count: int = 10, **attrs: Any) -> DatasetGraph:
    g = DatasetGraph()
    g.graph_def.library.function.append(function or MODULO)
    shard = NameAttrList((function or MODULO).signature.name)
    attrs = {"shard_func": shard, "use_shard_func": function is not None, "Tshard_func_args": [], **attrs}
    inputs = [g.numbers(count), g.const("path", str(path).encode())]
    if op == "SaveDataset":
        g("saved", op, *inputs, **attrs)
    else:
        g.dataset("saved", op, *inputs, **attrs)
    return g


async def save(path: Path, **how: Any) -> None:
    async with aexec.Session(saving(path, "SaveDataset", **how).graph()) as session:
        await session.run([], targets=["saved"])


def contents(folder: Path) -> dict[str, bytes]:
    """The files of what is saved, without the name of the run."""
    (run,) = [path for path in folder.iterdir() if path.is_dir()]
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*.snapshot"))}


def test_saved_dataset_has_tensorflows_files(tmp_path: Path) -> None:
    asyncio.run(save(tmp_path / "new" / "saved", function=MODULO))
    found = contents(tmp_path / "new" / "saved")
    assert list(found.values()) == [base64.b64decode(data) for data in SHARDED[2]]
    assert list(found) == [f"{number:08d}.shard/00000000.snapshot" for number in range(3)]
    metadata = (tmp_path / "new" / "saved" / "snapshot.metadata").read_bytes()
    assert metadata.endswith(b"\x20\x02\x2a\x01\x09\x30\x0a\xc0\x3e\x01")


@pytest.mark.parametrize("compression", [b"", b"GZIP"])
def test_saved_dataset_is_loaded(tmp_path: Path, compression: bytes) -> None:
    asyncio.run(save(tmp_path, count=2500, compression=compression))
    assert asyncio.run(elements(loaded(tmp_path, [int64], compression=compression))) == [*range(2500)]


def test_dataset_saved_again_replaces_what_was_saved(tmp_path: Path) -> None:
    asyncio.run(save(tmp_path))
    asyncio.run(save(tmp_path, count=2))
    assert asyncio.run(elements(loaded(tmp_path, [int64]))) == [0, 1]


def test_elements_are_saved_as_they_are_taken(tmp_path: Path) -> None:
    g = saving(tmp_path)
    assert asyncio.run(elements(_iterated(g, "saved", [int64]))) == [*range(10)]
    assert asyncio.run(elements(loaded(tmp_path, [int64]))) == [*range(10)]


@pytest.mark.parametrize("number", [1, 1500])
def test_pass_that_is_not_finished_saves_nothing(tmp_path: Path, number: int) -> None:
    g = saving(tmp_path, count=3000)
    assert len(asyncio.run(elements(_iterated(g, "saved", [int64]), most=number))) == number
    assert list(tmp_path.iterdir()) == []


def test_shard_number_that_is_negative_is_refused_and_nothing_is_saved(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="numbers from 0 to 255, got -2"):
        asyncio.run(save(tmp_path, function=LESS))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("op", ["SaveDataset", "SaveDatasetV2", "LoadDataset"])
def test_snappy_is_refused_by_name(tmp_path: Path, op: str) -> None:
    snappy = {"compression": b"SNAPPY"}
    if op == "LoadDataset":
        running: Any = elements(loaded(tmp_path, [int64], **snappy))
    elif op == "SaveDataset":
        running = save(tmp_path, **snappy)
    else:
        running = elements(_iterated(saving(tmp_path, **snappy), "saved", [int64]))
    with pytest.raises(errors.UnimplementedError, match=f"{op}: compression SNAPPY is not supported"):
        asyncio.run(running)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="Could not find metadata file"):
        asyncio.run(elements(loaded(tmp_path / "none", [int64])))


def test_elements_of_other_types_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="expected int64 but got float"):
        asyncio.run(elements(loaded(put(tmp_path, PLAIN), [int64])))


@pytest.mark.parametrize(
    ("metadata", "error", "message"),
    [
        (b"", errors.DataLossError, "corrupt"),
        (b"\x12\x7f1", errors.DataLossError, "corrupt"),
        (b"\x12\x05../..\x20\x02\xc0\x3e\x01", errors.DataLossError, "corrupt"),
        (b"\x12\x011\x20\x01\xc0\x3e\x01", errors.UnimplementedError, "version 1 of the format"),
        (b"\x12\x011\x20\x02", errors.NotFoundError, "not finalized"),
        (b"\x12\x011\x20\x02\xc0\x3e\x01", errors.NotFoundError, "No such file"),
    ],
)
def test_metadata_that_is_wrong_is_refused(
    tmp_path: Path, metadata: bytes, error: type[errors.OpError], message: str
) -> None:
    (tmp_path / "snapshot.metadata").write_bytes(metadata)
    with pytest.raises(error, match=message):
        asyncio.run(elements(loaded(tmp_path, [int64])))


@pytest.mark.parametrize(
    ("records", "types", "message"),
    [
        ([b"\xff"], [int64], "a record that is no tensor"),
        ([b"\x08\x09\x12\x00\x22\x08" + bytes(8)], [int64, int64], "ends within an element"),
    ],
)
def test_files_that_are_wrong_are_refused(tmp_path: Path, records: list[bytes], types: Any, message: str) -> None:
    put(tmp_path, SHARDED)
    write_records(str(tmp_path / SHARDED[1] / "00000000.shard" / "00000000.snapshot"), records)
    with pytest.raises(errors.DataLossError, match=message):
        asyncio.run(elements(loaded(tmp_path, types), len(types)))


# ---- Snapshots; those that `Dataset.snapshot` makes are tested in tests/data/test_saved.py


def snapshot(path: Path, **attrs: Any) -> aexec.Graph:
    g = DatasetGraph()
    g.graph_def.library.function.extend([MODULO, one_after_another([int64]), SAME])
    functions = {"shard_func": NameAttrList("Modulo"), "reader_func": NameAttrList("Joined")}
    arguments = {"Tshard_func_args": [], "Treader_func_args": []}
    attrs = {"hash": -1, "hash_valid": True, **functions, **arguments, **attrs}
    g.dataset("saved", "SnapshotDatasetV2", g.numbers(10), g.const("path", str(path).encode()), **attrs)
    return _iterated(g, "saved", [int64])


def test_snapshot_is_in_the_folder_of_its_hash_and_is_read_by_the_function(tmp_path: Path) -> None:
    assert asyncio.run(elements(snapshot(tmp_path))) == [*range(10)]
    folder = tmp_path / str(2**64 - 1)
    assert list(contents(folder).values()) == [base64.b64decode(data) for data in SHARDED[2]]
    assert asyncio.run(elements(snapshot(tmp_path))) == [0, 3, 6, 9, 1, 4, 7, 2, 5, 8]


def test_snapshot_with_metadata_that_is_wrong_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "snapshot.metadata").write_bytes(b"\xff")
    with pytest.raises(errors.DataLossError, match="corrupt"):
        asyncio.run(elements(snapshot(tmp_path, hash=1)))


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"hash_valid": False}, "the hash of the pipeline is not given"),
        ({"reader_prefix": b"/"}, "reader_prefix is not supported"),
        ({"writer_prefix": b"/"}, "writer_prefix is not supported"),
        ({"compression": b"AUTO"}, "compression AUTO is not supported"),
    ],
)
def test_snapshot_that_cannot_be_made_is_refused_by_name(tmp_path: Path, attrs: Any, message: str) -> None:
    with pytest.raises(errors.UnimplementedError, match=f"SnapshotDatasetV2: {message}"):
        asyncio.run(elements(snapshot(tmp_path, **attrs)))
