"""Batches of files' strings, which are made of bytes objects without arrays: the same elements as one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.data import Dataset, TextLineDataset, TFRecordDataset
from aexec.io.record import write_records
from aexec.kernels.datasets import batch_joins
from aexec.kernels.datasets.batch_joins import BareJoin
from aexec.resources.datasets import bare_strings
from tests.kernels.datasets.test_row_numbers import all_of

Files = list[str]

PIPELINES: dict[str, Callable[[Files], Dataset]] = {
    "records": lambda files: TFRecordDataset(files[:2]),
    "lines": lambda files: TextLineDataset(files[2]),
    "shuffled": lambda files: TFRecordDataset(files[:2]).shuffle(90, seed=1),
    "shuffled as a whole": lambda files: TFRecordDataset(files[:2]).shuffle(10_000, seed=1).repeat(2),
    "shuffled twice": lambda files: TFRecordDataset(files[0]).shuffle(9, seed=1).shuffle(17, seed=2).skip(3),
    "repeated, shuffled": lambda files: TFRecordDataset(files[0]).repeat(3).shuffle(400, seed=1),
    "flat": lambda files: Dataset.from_tensor_slices(files[:2]).flat_map(TFRecordDataset).shuffle(30, seed=1),
    "flat, of others": lambda files: Dataset.from_tensor_slices(files).flat_map(Dataset.from_tensors),
    "flat, in part of others": lambda files: Dataset.from_tensor_slices(files[:2]).flat_map(
        lambda name: TFRecordDataset(name).concatenate(Dataset.from_tensors(name))
    ),
    "interleaved": lambda files: Dataset.from_tensor_slices(files[:2]).interleave(
        TFRecordDataset, cycle_length=2, block_length=3
    ),
    "parallel": lambda files: Dataset.from_tensor_slices(files[:2]).interleave(
        TFRecordDataset, cycle_length=2, block_length=3, num_parallel_calls=2
    ),
    "mapped": lambda files: (
        TFRecordDataset(files[0]).shuffle(7, seed=1).map(lambda text: ops.string_join([text, b"!"]))
    ),
}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Two files of 300 records, and one of lines."""
    paths = [str(tmp_path / name) for name in ("a", "b", "lines")]
    for path in paths[:2]:
        write_records(path, [b"%s%d" % (path[-1:].encode(), number) for number in range(300)])
    Path(paths[2]).write_bytes(b"".join(b"line %d\r\n" % number * (number % 3) + b"\n" for number in range(200)) + b"x")
    return paths


@pytest.mark.parametrize("session_bytes", [None, 1 << 28])
@pytest.mark.parametrize("name", PIPELINES)
async def test_batches_have_the_strings_in_their_order(name: str, session_bytes: int | None, files: Files) -> None:
    def strings() -> Dataset:
        return PIPELINES[name](files)

    single = await all_of(strings)
    assert len(single) > 2
    for size in (8, 270):
        batches = await all_of(lambda size=size: strings().batch(size), session_bytes)  # type: ignore[misc]
        assert [string for batch in batches for string in batch.tolist()] == single
        assert {batch.dtype for batch in batches} == {np.dtype(object)}


async def test_strings_of_files_have_no_arrays(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[object] = []
    join = BareJoin.__call__
    monkeypatch.setattr(BareJoin, "__call__", lambda self, rows: joined.append(type(rows[0][0])) or join(self, rows))
    flat = PIPELINES["flat"]
    await all_of(lambda: flat(files).batch(300))
    assert joined == [bytes, bytes]
    await all_of(lambda: flat(files).batch(300), session_bytes=1 << 28)  # which counts arrays
    assert joined == [bytes, bytes]


@pytest.fixture
def with_letter(tmp_path: Path) -> str:
    """A file of five records: numbers, and a letter as the third."""
    path = str(tmp_path / "numbers")
    write_records(path, [b"1", b"2", b"x", b"4", b"5"])
    return path


async def test_string_for_which_a_function_fails_is_an_error_in_its_place(with_letter: str) -> None:
    def numbers() -> Dataset:
        return TFRecordDataset(with_letter).map(lambda text: ops.string_to_number(text))

    single = await all_of(numbers)
    assert list(map(str, single)) == ["1.0", "2.0", "InvalidArgumentError", "4.0", "5.0"]
    found = await all_of(lambda: numbers().batch(2))
    assert [one if isinstance(one, str) else one.tolist() for one in found] == [
        [1.0, 2.0],
        "InvalidArgumentError",
        [4.0, 5.0],
    ]


@pytest.fixture
def with_damage(files: Files) -> Files:
    """The files of records; the last byte of the first one is missing."""
    Path(files[0]).write_bytes(Path(files[0]).read_bytes()[:-1])
    return files[:2]


async def test_damaged_file_is_an_error_and_the_next_one_follows(with_damage: Files) -> None:
    found = await all_of(lambda: TFRecordDataset(with_damage).batch(250))
    assert [one if isinstance(one, str) else len(one) for one in found] == [250, "DataLossError", 250, 50]


def test_arrays_among_bytes_are_joined_as_arrays_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_joins, "_CHECKED_AT_ONCE", 2)
    rows = [(b"a",), (b"b",), (b"c",), (np.array(b"d", object),), (b"e",)]
    (batch,) = BareJoin()(list(rows))
    assert batch.tolist() == [b"a", b"b", b"c", b"d", b"e"]
    (batch,) = BareJoin()(rows[:3])
    assert batch.dtype == object and batch.tolist() == [b"a", b"b", b"c"]
    rows[3] = (np.array([b"d"], object),)
    with pytest.raises(errors.InvalidArgumentError, match="Cannot batch tensors with different shapes"):
        BareJoin()(rows)


async def test_source_is_found_behind_what_rearranges_it(files: Files) -> None:
    with aexec.Graph() as graph:
        shuffled = TFRecordDataset(files[:2]).shuffle(30).take(4).variant
    async with aexec.Session(graph) as session:
        dataset = await session.run(shuffled)
    assert isinstance(bare_strings.source_of(dataset), bare_strings.Strings)
