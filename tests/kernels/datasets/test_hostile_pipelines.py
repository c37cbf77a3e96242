"""Pipelines of a few hundred bytes that never end or would fill the memory: the loop goes on, and limits hold."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.framework.dtypes import int64
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.framework.wire.attr_value import NameAttrList
from aexec.kernels.datasets.grouping_dataset_ops import _hashed
from aexec.kernels.datasets.shuffle_dataset_ops import _Shuffled
from tests.kernels.datasets.dataset_graphs import DatasetGraph, gate_function
from tests.support import gates
from tests.support.programs.functions import function_def

MANY = 10**15
SAME = function_def(
    "Same(x: int64) -> y: int64", body=[("i", "Identity", ["x"], {"T": int64})], ret={"y": "i:output:0"}
)
COUNTED = function_def(
    "Counted(x: variant) -> y: int64", body=[("c", "DatasetCardinality", ["x"], {})], ret={"y": "c:cardinality:0"}
)
NEVER = function_def(
    "Never(x: int64) -> y: bool",
    body=[("n", "NotEqual", ["x", "x"], {"T": int64})],
    ret={"y": "n:z:0"},
)
LIMITED = aexec.SessionConfig(session_bytes=1 << 22)


def _doubled(g: DatasetGraph, op: str, source: str, times: int = 40) -> str:
    """A dataset of a dataset and itself, which is given to the op again, and so on."""
    for number in range(times):
        source = g.dataset(f"doubled{number}", op, source, source, **({"N": 2} if op == "ZipDataset" else {}))
    return source


def _repeated(g: DatasetGraph) -> str:
    return g.with_count("repeated", "RepeatDataset", g.numbers(0), MANY)


ENDLESS: dict[str, Callable[[DatasetGraph], str]] = {
    "repeat": _repeated,
    "concatenate": lambda g: _doubled(g, "ConcatenateDataset", g.numbers(0)),
    "zip": lambda g: _doubled(g, "ZipDataset", g.numbers(3)),
    "prefetch": lambda g: g.with_count("ahead", "PrefetchDataset", _repeated(g), 2),
}


@pytest.mark.parametrize("case", ENDLESS)
async def test_endless_search_for_an_element_can_be_cancelled(case: str) -> None:
    g = DatasetGraph()
    async with aexec.Session(g.iterated(ENDLESS[case](g))) as session:
        await session.run([], targets=["begin"])
        step = session.start("next:0")
        for _ in range(20):
            await asyncio.sleep(0)
        assert not step.done
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step


def _directed(g: DatasetGraph) -> str:
    selector, source = g.numbers(2, "selector"), g.numbers(3)
    for number in range(40):
        attrs = {"N": 2, "stop_on_empty_dataset": False}
        source = g.dataset(f"directed{number}", "DirectedInterleaveDataset", selector, source, source, **attrs)
    return source


def _interleaved(g: DatasetGraph) -> str:
    g.graph_def.library.function.append(
        function_def(
            "Single(x: int64) -> y: variant",
            body=[("t", "TensorDataset", ["x"], {"Toutput_types": [int64], "output_shapes": [[]]})],
            ret={"y": "t:handle:0"},
        )
    )
    settings = [g.const("cycle", MANY, int64), g.const("block", 1, int64)]
    return g.dataset("mixed", "InterleaveDataset", g.numbers(MANY), *settings, f=NameAttrList("Single"), Targuments=[])


AT_ONCE: dict[str, Callable[[DatasetGraph], str]] = {
    "directed": _directed,
    "interleave": _interleaved,
    "prefetch": lambda g: g.with_count("ahead", "PrefetchDataset", g.numbers(MANY), MANY),
    "parallel map": lambda g: g.mapped(
        "ahead", g.numbers(MANY), SAME, "ParallelMapDatasetV2", g.const("calls", MANY, int64)
    ),
}


@pytest.mark.parametrize("case", AT_ONCE)
async def test_first_element_comes_at_once(case: str) -> None:
    g = DatasetGraph()
    async with aexec.Session(g.iterated(AT_ONCE[case](g)), config=LIMITED) as session:
        await session.run([], targets=["begin"])
        assert await session.run("next:0") == 0


FILLING: dict[str, Callable[[DatasetGraph], str]] = {
    "unique": lambda g: g.dataset("unique", "UniqueDataset", g.numbers(MANY)),
    "interleave": _interleaved,
}


@pytest.mark.parametrize("case", FILLING)
async def test_what_iterators_keep_is_refused_by_the_memory_limit(case: str) -> None:
    g = DatasetGraph()
    skipped = g.with_count("skipped", "SkipDataset", FILLING[case](g), MANY)
    async with aexec.Session(g.iterated(skipped), config=LIMITED) as session:
        await session.run([], targets=["begin"])
        with pytest.raises(errors.ResourceExhaustedError):
            await session.run("next:0")


async def test_result_ahead_that_is_refused_is_the_error_of_its_element() -> None:
    g = DatasetGraph()
    ahead = g.mapped("ahead", g.numbers(MANY), SAME, "ParallelMapDatasetV2", g.const("calls", 1000, int64))
    async with aexec.Session(g.iterated(ahead), config=aexec.SessionConfig(session_bytes=1 << 16)) as session:
        await session.run([], targets=["begin"])
        with pytest.raises(errors.ResourceExhaustedError):
            await _run_often(session)


async def _run_often(session: aexec.Session) -> None:
    for _ in range(2000):
        await session.run("next:0")


async def test_new_pass_has_a_queue_of_its_own_while_the_old_one_is_in_use() -> None:
    gate = gates.Gate()
    g = DatasetGraph()
    ahead = g.with_count("ahead", "PrefetchDataset", g.mapped("gated", g.numbers(9), gate_function(gate.key)), 2)
    async with aexec.Session(g.iterated(ahead)) as session:
        await session.run([], targets=["begin"])
        waiting = session.start("next:0")
        await gate.entered.wait()
        await session.run([], targets=["begin"])
        second = session.start("next:0")
        for _ in range(20):
            await asyncio.sleep(0)
        gate.open.set()
        assert await waiting == 0
        assert [await second, *[await session.run("next:0") for _ in range(8)]] == list(range(9))


def _windows(g: DatasetGraph, size: int, shift: int) -> str:
    settings = [g.const(f"window/{name}", number, int64) for name, number in zip("abc", (size, shift, 1), strict=True)]
    drops = g.const("drops", True, dtypes.bool_)
    return g.dataset("windows", "WindowDataset", g.numbers(MANY), *settings, drops, dtype=dtypes.variant)


async def test_overlapping_windows_are_refused_by_the_memory_limit() -> None:
    """They share their elements, but each has a list of them."""
    g = DatasetGraph()
    settings = [g.const(f"shuffled/{name}", number, int64) for name, number in (("a", MANY), ("b", 1), ("c", 2))]
    windows = g.dataset("shuffled", "ShuffleDataset", _windows(g, 2000, 1), *settings, dtype=dtypes.variant)
    config = aexec.SessionConfig(session_bytes=1 << 24)
    g.graph_def.library.function.append(COUNTED)
    counts = g.dataset("counts", "MapDataset", windows, f=NameAttrList("Counted"), Targuments=[])
    async with aexec.Session(g.iterated(counts), config=config) as session:
        await session.run([], targets=["begin"])
        with pytest.raises(errors.ResourceExhaustedError):
            await session.run("next:0")


async def test_element_of_another_type_than_promised_is_refused() -> None:
    g = DatasetGraph()
    promised = g.dataset("taken", "TakeDataset", g.numbers(3), g.const("count", 2, int64), dtype=dtypes.float64)
    g.dataset("iterator", "IteratorV2", dtype=dtypes.float64, shared_name=b"numbers", container=b"")
    g("begin", "MakeIterator", promised, "iterator")
    g.dataset("next", "IteratorGetNext", "iterator", dtype=dtypes.float64)
    async with aexec.Session(g.graph()) as session:
        await session.run([], targets=["begin"])
        with pytest.raises(errors.InvalidArgumentError, match="Data type mismatch at component 0: expected"):
            await session.run("next:0")


async def test_datasets_on_top_of_each_other_are_refused_beyond_the_stack() -> None:
    g = DatasetGraph()
    source = g.numbers(3)
    for number in range(2000):
        source = g.with_count(f"taken{number}", "TakeDataset", source, 1)
    async with aexec.Session(g.iterated(source)) as session:
        with pytest.raises(errors.ResourceExhaustedError, match="on top of the other"):
            await session.run([], targets=["begin"])


async def test_empty_epochs_of_a_shuffled_dataset_are_forgotten() -> None:
    """Each would take memory that is counted nowhere."""
    g = DatasetGraph()
    settings = [
        g.const(f"shuffled/{name}", number, int64) for name, number in zip("abcd", (9, 1, 2, MANY), strict=True)
    ]
    g.graph_def.library.function.append(NEVER)
    source = g.dataset("none", "FilterDataset", g.numbers(1), predicate=NameAttrList("Never"), Targuments=[])
    shuffled = g.dataset("shuffled", "ShuffleAndRepeatDataset", source, *settings)
    async with aexec.Session(g.iterated(shuffled)) as session:
        await session.run([], targets=["begin"])
        step = session.start("next:0")
        most = 0
        for _ in range(30):
            await asyncio.sleep(0)
            most = max([most, *(len(found._slices) for found in gc.get_objects() if isinstance(found, _Shuffled))])
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step
        assert 1 <= most <= 2


async def test_range_of_a_smaller_type_goes_on_modulo_its_size() -> None:
    g = DatasetGraph()
    bounds = [g.const(name, number, int64) for name, number in zip("abc", (2**40 + 258, 2**40 + 260, 1), strict=True)]
    numbers = g.dataset("numbers", "RangeDataset", *bounds, dtype=dtypes.uint8)
    g.dataset("iterator", "IteratorV2", dtype=dtypes.uint8, shared_name=b"numbers", container=b"")
    g("begin", "MakeIterator", numbers, "iterator")
    g.dataset("next", "IteratorGetNext", "iterator", dtype=dtypes.uint8)
    async with aexec.Session(g.graph()) as session:
        await session.run([], targets=["begin"])
        assert [await session.run("next:0") for _ in range(2)] == [2, 3]


async def test_large_element_is_compared_with_others_in_a_thread() -> None:
    with pytest.raises(NeedsThreadError):
        _hashed(np.zeros(1 << 26, np.uint8))
    assert _hashed(np.arange(3)) == _hashed(np.arange(3)) != _hashed(np.arange(4))
