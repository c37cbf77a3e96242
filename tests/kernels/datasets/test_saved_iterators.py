"""Iterators that are saved in checkpoints, and restored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.dtypes import int64, string
from aexec.framework.wire import variant
from aexec.resources.datasets.iterator_position import IteratorPosition
from tests.kernels.datasets.dataset_graphs import DatasetGraph, gate_function
from tests.kernels.datasets.test_row_functions import QUOTIENT
from tests.support import gates


def _saved(g: DatasetGraph, dataset: str, path: Path) -> aexec.Graph:
    """A graph that saves its iterator by `save`, and restores it by `restore`."""
    prefix = g.const("prefix", str(path).encode())
    names = g.const("names", np.array([b"iterator"], object), string)
    slices = g.const("slices", np.array([b""], object), string)
    g("position", "SerializeIterator", "iterator")
    g("save", "SaveV2", prefix, names, slices, "position", dtypes=[dtypes.variant])
    g("read", "RestoreV2", prefix, names, slices, dtypes=[dtypes.variant])
    g("restore", "DeserializeIterator", "iterator", "read")
    return g.iterated(dataset)


def _shuffled(g: DatasetGraph) -> str:
    seeds = [g.const(f"s{number}", value, int64) for number, value in enumerate((6, 3, 9))]
    shuffled = g.dataset("shuffled", "ShuffleDataset", g.numbers(10), *seeds)
    return g.with_count("ahead", "PrefetchDataset", g.with_count("twice", "RepeatDataset", shuffled, 2), 2)


async def _rest(session: aexec.Session) -> list[Any]:
    found: list[Any] = []
    while True:
        try:
            found.append(await session.run("next:0"))
        except errors.OutOfRangeError:
            return found
        except errors.OpError as error:
            found.append(type(error).__name__)


async def test_restored_iterator_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    g = DatasetGraph()
    graph = _saved(g, _shuffled(g), path)
    async with aexec.Session(graph) as session:
        await session.run([], targets=["begin"])
        for _ in range(13):
            await session.run("next:0")
        await session.run([], targets=["save"])
        rest = await _rest(session)
        assert len(rest) == 7
        await session.run([], targets=["restore"])
        assert await _rest(session) == rest
    async with aexec.Session(graph) as another:
        await another.run([], targets=["begin"])
        await another.run([], targets=["restore"])
        assert await _rest(another) == rest


async def test_errors_count_as_elements_do(tmp_path: Path) -> None:
    g = DatasetGraph()
    bounds = [g.const(f"b{number}", value, int64) for number, value in enumerate((-2, 4, 1))]
    made = g.mapped("m", g.dataset("numbers", "RangeDataset", *bounds), QUOTIENT)
    async with aexec.Session(_saved(g, made, tmp_path / "checkpoint")) as session:
        await session.run([], targets=["begin"])
        assert [await session.run("next:0") for _ in range(2)] == [-52, -101]
        with pytest.raises(errors.InvalidArgumentError):
            await session.run("next:0")
        await session.run([], targets=["save"])
        await session.run([], targets=["begin"])
        await session.run([], targets=["restore"])
        assert await _rest(session) == [101, 52, 36]


async def test_cancelled_restore_leaves_the_iterator_as_it_was(tmp_path: Path) -> None:
    gate = gates.Gate()
    gate.open.set()
    g = DatasetGraph()
    graph = _saved(g, g.mapped("gated", g.numbers(6), gate_function(gate.key)), tmp_path / "checkpoint")
    async with aexec.Session(graph) as session:
        await session.run([], targets=["begin"])
        assert [await session.run("next:0") for _ in range(3)] == [0, 1, 2]
        await session.run([], targets=["save"])
        gate.open.clear()
        gate.entered.clear()
        restoring = session.start([], targets=["restore"])
        await gate.entered.wait()
        restoring.cancel()
        with pytest.raises(errors.CancelledError):
            await restoring
        gate.open.set()
        assert await _rest(session) == [3, 4, 5]


@pytest.mark.parametrize(("target", "what"), [("position:0", "Save"), ("restore", "Restore failed")])
async def test_iterator_without_a_dataset_is_not_saved(tmp_path: Path, target: str, what: str) -> None:
    g = DatasetGraph()
    graph = _saved(g, g.numbers(3), tmp_path / "checkpoint")
    async with aexec.Session(graph) as session:
        await session.run([], targets=["begin"])
        await session.run([], targets=["save"])
    async with aexec.Session(graph) as another:
        fetches, targets = ([target], []) if ":" in target else ([], [target])
        with pytest.raises(errors.FailedPreconditionError, match="has not been initialized"):
            await another.run(fetches, targets=targets)


async def test_state_that_cannot_be_checked_is_refused_by_name() -> None:
    g = DatasetGraph()
    g("position", "SerializeIterator", "iterator", external_state_policy=2)
    async with aexec.Session(g.iterated(g.numbers(3))) as session:
        await session.run([], targets=["begin"])
        with pytest.raises(errors.UnimplementedError, match="FAIL"):
            await session.run("position:0")


async def test_other_variants_are_refused() -> None:
    g = DatasetGraph()
    source = g.numbers(3)
    g("restore", "DeserializeIterator", "iterator", source)
    async with aexec.Session(g.iterated(source)) as session:
        await session.run([], targets=["begin"])
        with pytest.raises(errors.InvalidArgumentError, match="one IteratorPosition"):
            await session.run([], targets=["restore"])


@pytest.mark.parametrize("metadata", [b"", b"1234567", b"\xff" * 8])
def test_bytes_of_no_position_are_refused(metadata: bytes) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="position of an iterator"):
        IteratorPosition.decode(variant.VariantTensorData(IteratorPosition.type_name, metadata))


def test_position_survives_encoding() -> None:
    assert variant.decode(variant.encode(IteratorPosition(7))) == IteratorPosition(7)
