"""Datasets saved, loaded and snapshot by methods of `Dataset`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
import aexec.compat.v1 as tf
from aexec import errors
from aexec.control_flow.function import TensorSpec
from aexec.data import Dataset

PAIR = (TensorSpec([], aexec.int64), TensorSpec([2], aexec.float32))


def _pairs(count: int = 7) -> Dataset:
    return Dataset.range(count).map(lambda x: (x, aexec.ops.cast([x, x + 1], DstT="float32")))


async def _save(make: Callable[[], Any]) -> None:
    graph = aexec.Graph()
    with graph:
        saving = make()
    async with aexec.Session(graph) as session:
        await session.run([], targets=[saving])


async def _elements(dataset: Dataset) -> list[Any]:
    return [element async for element in dataset]


@pytest.mark.parametrize("compression", [None, "GZIP"])
@pytest.mark.parametrize("shard_func", [None, lambda x, _: x % 2])
async def test_saved_dataset_is_loaded(tmp_path: Path, compression: Any, shard_func: Any) -> None:
    await _save(lambda: _pairs().save(str(tmp_path), compression, shard_func))
    assert len([*tmp_path.rglob("*.shard")]) == (1 if shard_func is None else 2)
    found = await _elements(Dataset.load(str(tmp_path), PAIR, compression))
    assert [int(x) for x, _ in found] == ([*range(7)] if shard_func is None else [0, 1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(found[3][1], [3, 4])


async def test_shards_are_read_by_a_function(tmp_path: Path) -> None:
    await _save(lambda: Dataset.range(5).save(str(tmp_path), shard_func=lambda x: x % 2))
    spec = TensorSpec([], aexec.int64)
    loaded = Dataset.load(str(tmp_path), spec, reader_func=lambda shards: shards.flat_map(lambda shard: shard))
    assert [int(x) for x in await _elements(loaded)] == [0, 2, 4, 1, 3]


def test_tensorflows_functions_are_there(tmp_path: Path) -> None:
    path = str(tmp_path)
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.data.experimental.save(tf.data.Dataset.range(3), path))
        loaded = tf.data.experimental.load(path, tf.TensorSpec([], tf.int64))
        assert isinstance(loaded, tf.data.Dataset)
        following = tf.data.make_one_shot_iterator(loaded).get_next()
        assert [session.run(following) for _ in range(3)] == [0, 1, 2]
        again = tf.data.Dataset.range(3).apply(tf.data.experimental.snapshot(path))
        assert again.element_spec == loaded.element_spec


# Snapshots


def _snapshot(path: Path, factor: int = 2, **how: Any) -> Dataset:
    return Dataset.range(6).map(lambda x: x * factor).snapshot(str(path), **how)


async def test_first_whole_pass_saves_a_snapshot_and_later_ones_load_it(tmp_path: Path) -> None:
    for _ in range(2):
        assert [int(x) for x in await _elements(_snapshot(tmp_path))] == [0, 2, 4, 6, 8, 10]
    (metadata,) = tmp_path.rglob("snapshot.metadata")
    record = aexec.proto.SnapshotMetadataRecord.FromString(metadata.read_bytes())
    assert (record.graph_hash, record.version, record.num_elements) == (metadata.parent.name, 2, 6)
    assert (metadata.parent / record.run_id).is_dir() and record.finalized

    # The second pass does read the files: those of another pipeline give its elements.
    await _elements(_snapshot(tmp_path, factor=3))
    (other,) = [path for path in tmp_path.rglob("snapshot.metadata") if path != metadata]
    shutil.rmtree(metadata.parent)
    other.parent.rename(metadata.parent)
    assert [int(x) for x in await _elements(_snapshot(tmp_path))] == [0, 3, 6, 9, 12, 15]


async def test_snapshot_of_a_pass_that_is_not_finished_is_made_again(tmp_path: Path) -> None:
    graph = aexec.Graph()
    with graph:
        iterator = _snapshot(tmp_path, shard_func=lambda x: x % 3).make_initializable_iterator()
        following = iterator.get_next()
    async with aexec.Session(graph) as session:
        await session.run([], targets=[iterator.initializer])
        assert [await session.run(following) for _ in range(2)] == [0, 2]
    assert not [*tmp_path.rglob("snapshot.metadata")]
    assert len(await _elements(_snapshot(tmp_path))) == 6


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (lambda path: _snapshot(path), 1),
        (lambda path: _snapshot(path, factor=3), 2),
        (lambda path: Dataset.range(6).map(lambda x: 2 + x).snapshot(str(path)), 2),
        (lambda path: Dataset.range(7).map(lambda x: x * 2).snapshot(str(path)), 2),
    ],
)
async def test_snapshots_of_other_pipelines_are_in_other_folders(
    tmp_path: Path, other: Callable[[Path], Dataset], expected: int
) -> None:
    await _elements(_snapshot(tmp_path))
    with aexec.Graph():
        Dataset.range(2)  # so that names of nodes differ
        Dataset.range(2).map(lambda x: x)
        dataset = other(tmp_path)
    await _elements(dataset)
    assert len([*tmp_path.iterdir()]) == expected


async def test_snapshot_without_a_hash_is_refused_by_name(tmp_path: Path) -> None:
    graph_def = _snapshot(tmp_path).graph.to_graph_def()
    (node,) = [node for node in graph_def.node if node.op == "SnapshotDatasetV2"]
    node.attr["hash_valid"].b = False
    graph = aexec.Graph.from_bytes(graph_def.SerializeToString())
    async with aexec.Session(graph) as session:
        with pytest.raises(errors.UnimplementedError, match="SnapshotDatasetV2: the hash of the pipeline is not given"):
            await session.run([], targets=[node.name])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Dataset.load("x"), "element_spec must be provided"),
        (lambda: Dataset.load("x", PAIR, wait=True), "wait=True is not supported"),
        (lambda: Dataset.load("x", PAIR, reader_func=lambda shards: 3), "reader_func must return a dataset"),
        (lambda: Dataset.range(3).save("x", checkpoint_args={}), "checkpoint_args is not supported"),
        (lambda: Dataset.range(3).save("x", shard_func=lambda x: "a"), "int64"),
    ],
)
def test_mistake_is_refused(make: Callable[[], Any], words: str) -> None:
    with aexec.Graph(), pytest.raises((errors.InvalidArgumentError, errors.UnimplementedError, TypeError), match=words):
        make()
