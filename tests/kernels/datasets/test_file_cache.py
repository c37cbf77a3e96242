"""Caches in files: TensorFlow's files, whole or not there."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.data import Dataset
from tests.kernels.datasets.dataset_graphs import DatasetGraph

# The cache of `from_tensor_slices(([1.5, 2.5, 3.5], ["a", "bb", ""]))`, as TensorFlow 2.21 writes it.
INDEX = base64.b64decode(
    "AAAGCAEaAggBAAkLICAgICAgMF8wCAESACgENV4v4acIAQ0xCAcSACAEKAY1CRwFLwYDDTFfMAgBEgAgCigENQfYdQ0IAQ0xCAcSACAOKAc1WTKU"
    "ZAYDDTJfMAgBEgAgFSgENdj9fYkIAQ0xCAcSACAZKAU1vWcHvgAAAAABAAAAAKCAlN0AAAAAAQAAAADA8qGwAAEDIQCBAQAAAAABAAAAAJjDw6GG"
    "AQiTAQ8AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAV/uAiyR1R9s="
)
DATA = base64.b64decode("AADAPwEdFYJlYQAAIEAC2NgQc2JiAABgQACmexE6")
INDEX_NAME, DATA_NAME = "cache.index", "cache.data-00000-of-00001"
VALUES = [(1.5, b"a"), (2.5, b"bb"), (3.5, b"")]


def pairs(values: list[tuple[float, bytes]]) -> Dataset:
    return Dataset.from_tensor_slices(
        (np.array([x for x, _ in values], np.float32), np.array([word for _, word in values], object))
    )


async def all_of(dataset: Dataset) -> list[Any]:
    return [element async for element in dataset]


async def failing(dataset: Callable[[], Dataset], **config: Any) -> list[Any]:
    """The elements, and errors in place of elements."""
    with aexec.Graph() as graph:
        iterator = dataset().make_initializable_iterator()
        value = iterator.get_next()
    found: list[Any] = []
    async with aexec.Session(graph, config=aexec.SessionConfig(**config)) as session:
        await session.run(iterator.initializer)
        while True:
            try:
                found.append(await session.run(value))
            except errors.OutOfRangeError:
                return found
            except errors.OpError as error:
                found.append(error)
                if not isinstance(error, errors.InvalidArgumentError):
                    return found


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Folder:
    """A folder's files, read when no event loop runs, or before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cache = str(path / "cache")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def of_tensorflow(tmp_path: Path) -> Folder:
    (tmp_path / INDEX_NAME).write_bytes(INDEX)
    (tmp_path / DATA_NAME).write_bytes(DATA)
    return Folder(tmp_path)


async def test_cache_of_tensorflow_is_read_in_place_of_the_input(of_tensorflow: Folder) -> None:
    assert await all_of(pairs([(0.0, b"other")]).cache(of_tensorflow.cache)) == VALUES


async def test_cache_of_other_types_is_refused(of_tensorflow: Folder) -> None:
    for dataset in (Dataset.range(3), pairs(VALUES).map(lambda x, word: (word, x))):
        with pytest.raises(errors.InvalidArgumentError, match=r"elements of other types.*expected"):
            await all_of(dataset.cache(of_tensorflow.cache))


def test_first_pass_writes_what_tensorflow_writes(folder: Folder) -> None:
    assert asyncio.run(all_of(pairs(VALUES).cache(folder.cache))) == VALUES
    assert names(folder.path) == [DATA_NAME, INDEX_NAME]
    assert (folder.path / INDEX_NAME).read_bytes() == INDEX
    assert (folder.path / DATA_NAME).read_bytes() == DATA


async def test_second_pass_reads_the_cache(folder: Folder) -> None:
    calls = 0

    async def counted() -> AsyncIterator[int]:
        nonlocal calls
        calls += 1
        for number in range(2500):
            yield number

    dataset = Dataset.from_async(counted, "int64").cache(folder.cache).repeat(3)
    assert await all_of(dataset) == [*range(2500)] * 3
    assert calls == 1


async def test_empty_cache_is_a_cache(folder: Folder) -> None:
    assert await all_of(Dataset.range(0).cache(folder.cache)) == []
    assert await all_of(Dataset.range(4).cache(folder.cache)) == []


async def test_element_that_fails_is_left_out(folder: Folder) -> None:
    def quotients() -> Dataset:
        six = np.int64(6)
        return Dataset.range(5).map(lambda x: ops.floor_div(aexec.constant(six), 3 - x)).cache(folder.cache)

    found = await failing(quotients)
    assert [one for one in found if not isinstance(one, errors.OpError)] == [2, 3, 6, -6]
    assert isinstance(found[3], errors.InvalidArgumentError)
    assert await failing(quotients) == [2, 3, 6, -6]


@pytest.mark.parametrize("number", [1, 1500])
def test_pass_that_is_not_finished_leaves_no_file(folder: Folder, number: int) -> None:
    found = asyncio.run(all_of(Dataset.range(3000).cache(folder.cache).take(number)))
    assert found == [*range(number)]
    assert names(folder.path) == []
    assert asyncio.run(all_of(Dataset.range(3).cache(folder.cache))) == [0, 1, 2]


async def test_cache_that_another_pass_writes_is_refused(folder: Folder) -> None:
    with aexec.Graph() as graph:
        iterators = [Dataset.range(3).cache(folder.cache).make_initializable_iterator() for _ in range(2)]
        first, second = (iterator.get_next() for iterator in iterators)
        begin = aexec.group(*(iterator.initializer for iterator in iterators))
    async with aexec.Session(graph) as session:
        await session.run([], targets=[begin])
        assert await session.run(first) == 0
        with pytest.raises(errors.AlreadyExistsError, match=r"lockfile already exists.*cache_0\.lockfile"):
            await session.run(second)
        assert [await session.run(first), await session.run(first)] == [1, 2]
        with pytest.raises(errors.OutOfRangeError):
            await session.run(first)
        await session.run([], targets=[iterators[1].initializer])
        assert await session.run(second) == 0


async def test_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    found = await failing(lambda: Dataset.range(3).cache("/proc/none/cache"))
    assert len(found) == 1 and isinstance(found[0], errors.OpError)


def test_cancelled_step_loses_no_element(folder: Folder) -> None:
    async def cancelled() -> list[int]:
        with aexec.Graph() as graph:
            iterator = Dataset.range(40).cache(folder.cache).make_initializable_iterator()
            value = iterator.get_next()
        found: list[int] = []
        async with aexec.Session(graph) as session:
            await session.run(iterator.initializer)
            for turns in range(400):
                step = asyncio.ensure_future(session.run(value))
                for _ in range(turns % 9):
                    await asyncio.sleep(0)
                step.cancel()
                try:
                    found.append(int(await step))
                except asyncio.CancelledError:
                    continue
                except errors.OutOfRangeError:
                    break
            try:
                while True:
                    found.append(int(await session.run(value)))
            except errors.OutOfRangeError:
                return found

    found = asyncio.run(cancelled())
    assert found == sorted(set(found))
    assert asyncio.run(all_of(Dataset.range(1).cache(folder.cache))) == [*range(40)]


@pytest.mark.parametrize("op", ["CacheDataset", "CacheDatasetV2"])
async def test_cache_in_files_is_refused_where_settings_forbid_it(folder: Folder, op: str) -> None:
    g = DatasetGraph()
    inputs = [g.numbers(3), g.const("file", folder.cache.encode())]
    if op == "CacheDatasetV2":
        inputs.append(g("memory", "DummyMemoryCache"))
    graph = g.iterated(g.dataset("cached", op, *inputs))
    async with aexec.Session(graph, config=aexec.SessionConfig(cache_files=False)) as session:
        with pytest.raises(errors.PermissionDeniedError, match=r"SessionConfig\.cache_files"):
            await session.run([], targets=["begin"])
    async with aexec.Session(graph) as session:
        await session.run([], targets=["begin"])
        assert await session.run("next:0") == 0
