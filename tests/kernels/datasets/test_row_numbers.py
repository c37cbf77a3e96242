"""Batches of rows of tensors, which are made of the rows' numbers: the same elements as one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, ops
from aexec.data import Dataset
from aexec.kernels.datasets import batch_joins

NUMBERS = np.arange(90, dtype=np.float32).reshape(30, 3)
WORDS = np.array([b"%d" % number for number in range(30)], object)

CHANGES: dict[str, Callable[[Dataset], Dataset]] = {
    "as they are": lambda rows: rows,
    "taken": lambda rows: rows.take(17),
    "none taken": lambda rows: rows.take(0),
    "skipped": lambda rows: rows.skip(4),
    "all skipped": lambda rows: rows.skip(-1),
    "sharded": lambda rows: rows.shard(4, 1),
    "repeated": lambda rows: rows.repeat(3),
    "shuffled": lambda rows: rows.shuffle(7, seed=1),
    "shuffled, repeated, skipped": lambda rows: rows.shuffle(50, seed=1).repeat(2).skip(11),
    "mapped": lambda rows: rows.shuffle(7, seed=1).map(lambda x, word: (x + x, ops.string_length(word))),
}


async def all_of(dataset: Callable[[], Dataset], session_bytes: int | None = None) -> list[Any]:
    """The elements, and the names of errors in place of elements."""
    with aexec.Graph() as graph:
        iterator = dataset().make_initializable_iterator()
        value = iterator.get_next()
    found: list[Any] = []
    async with aexec.Session(graph, config=aexec.SessionConfig(session_bytes=session_bytes)) as session:
        await session.run(iterator.initializer)
        while True:
            try:
                found.append(await session.run(value))
            except errors.OutOfRangeError:
                return found
            except errors.OpError as error:
                found.append(type(error).__name__)


@pytest.mark.parametrize("session_bytes", [None, 1 << 26])
@pytest.mark.parametrize("change", CHANGES)
async def test_batches_are_those_of_the_rows(change: str, session_bytes: int | None) -> None:
    def rows() -> Dataset:
        return CHANGES[change](Dataset.from_tensor_slices((NUMBERS, WORDS)))

    single = await all_of(rows)
    batches = await all_of(lambda: rows().batch(8), session_bytes)
    assert [len(batch[0]) for batch in batches] == [min(8, len(single) - at) for at in range(0, len(single), 8)]
    for component in range(2):
        joined = [row for batch in batches for row in batch[component].tolist()]
        assert joined == [np.asarray(element[component]).tolist() for element in single]


async def test_row_for_which_a_function_fails_is_an_error_as_without_numbers() -> None:
    numbers = np.array([1, 2, 0, 4, 5, 6, 7])

    def quotients(rows: Dataset) -> Dataset:
        return rows.map(lambda x: ops.floor_div(aexec.constant(np.int64(20)), x)).batch(2)

    found = await all_of(lambda: quotients(Dataset.from_tensor_slices(numbers)))
    every = await all_of(lambda: quotients(Dataset.from_tensor_slices(numbers).filter(lambda x: ops.less(x, x + 1))))
    assert "InvalidArgumentError" in map(str, found)
    assert list(map(str, found)) == list(map(str, every))


async def test_large_batch_is_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_joins, "_CHECKED_AT_ONCE", 4)
    found = await all_of(lambda: Dataset.from_tensor_slices((NUMBERS, WORDS)).shuffle(9, seed=3).batch(30))
    rows = await all_of(lambda: Dataset.from_tensor_slices((NUMBERS, WORDS)).shuffle(9, seed=3))
    assert found[0][0].tolist() == [element[0].tolist() for element in rows]
    assert found[0][1].tolist() == [np.asarray(element[1]).item() for element in rows]


async def test_memory_limit_counts_the_batch() -> None:
    large = np.zeros((40, 100_000), np.float32)
    found = await all_of(lambda: Dataset.from_tensor_slices(large).repeat(10).batch(400).take(1), 1 << 26)
    assert found[0] == "ResourceExhaustedError"
