"""Batches take many elements at a time where these are there, which changes neither the elements nor their order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.data import Dataset, TFRecordDataset
from aexec.io.record import write_records

PIPELINES: dict[str, Callable[[], Dataset]] = {
    "range": lambda: Dataset.range(400),
    "taken": lambda: Dataset.range(400).take(301),
    "all taken": lambda: Dataset.range(290).take(-1),
    "repeated": lambda: Dataset.range(7).repeat(40),
    "nothing repeated": lambda: Dataset.range(0).repeat(),
    "shuffled": lambda: Dataset.range(400).shuffle(90, seed=1),
    "shuffled by one": lambda: Dataset.range(270).shuffle(1, seed=1),
    "shuffled as a whole": lambda: Dataset.range(300).shuffle(10_000, seed=1),
    "shuffled twice": lambda: Dataset.range(300).shuffle(90, seed=1).shuffle(170, seed=2),
    "shuffled and repeated": lambda: Dataset.range(120).shuffle(70, seed=1).repeat(3),
    "repeated and shuffled": lambda: Dataset.range(120).repeat(3).shuffle(70, seed=1),
    "flat": lambda: Dataset.range(9).flat_map(lambda x: Dataset.range(x * 8)),
    "interleaved": lambda: Dataset.range(9).interleave(lambda x: Dataset.range(x * 8), cycle_length=4, block_length=3),
    "one by one": lambda: Dataset.range(9).interleave(lambda x: Dataset.range(50), cycle_length=1, block_length=7),
}


async def all_of(make: Callable[[], Dataset], session_bytes: int | None = None) -> list[int]:
    with aexec.Graph() as graph:
        iterator = make().make_initializable_iterator()
        value = iterator.get_next()
    found: list[int] = []
    async with aexec.Session(graph, config=aexec.SessionConfig(session_bytes=session_bytes)) as session:
        await session.run(iterator.initializer)
        try:
            while True:
                found += np.atleast_1d(await session.run(value)).tolist()
        except errors.OutOfRangeError:
            return found


@pytest.mark.parametrize("session_bytes", [None, 1 << 28])
@pytest.mark.parametrize("name", PIPELINES)
async def test_batches_have_the_elements_in_their_order(name: str, session_bytes: int | None) -> None:
    single = await all_of(PIPELINES[name])
    assert await all_of(lambda: PIPELINES[name]().batch(64), session_bytes) == single
    assert await all_of(lambda: PIPELINES[name]().batch(260), session_bytes) == single


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Two files of 300 records, of which the first lacks its last byte."""
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        write_records(path, [b"%d" % number for number in range(300)])
    whole = Path(paths[0]).read_bytes()
    Path(paths[0]).write_bytes(whole[:-1])
    return paths


async def test_records_before_a_wrong_one_are_elements_and_the_next_file_follows(files: list[str]) -> None:
    with aexec.Graph() as graph:
        iterator = TFRecordDataset(files).make_initializable_iterator()
        value = iterator.get_next()
    found: list[int] = []
    failed = 0
    async with aexec.Session(graph) as session:
        await session.run(iterator.initializer)
        while True:
            try:
                found.append(int(await session.run(value)))
            except errors.DataLossError:
                failed += 1
            except errors.OutOfRangeError:
                break
    assert found == [*range(299), *range(300)]
    assert failed == 1
