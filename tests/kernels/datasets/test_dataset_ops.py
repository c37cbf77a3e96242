"""Ops that the recorded pipelines do not use: older and newer names of the same datasets, and those of resources.

They are kernels of "datasets.prefetch_dataset_ops" and of the modules that `test_pipelines.py` names.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.dtypes import int64
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.shape import PartialTensorShape
from aexec.framework.wire.attr_value import NameAttrList
from aexec.kernels.datasets import function_dataset_ops, parallel_dataset_ops
from aexec.ops.families import FAMILIES
from aexec.queues.queue_base import QueueBase
from aexec.resources.datasets.iterator_resource import IteratorResource
from tests.kernels.datasets.dataset_graphs import SCALAR, DatasetGraph
from tests.kernels.datasets.pipelines import RECORDED
from tests.kernels.datasets.recorded_pipelines import graph_of
from tests.support.programs.functions import function_def

VECTOR = PartialTensorShape([None])
# Ops that TensorFlow wrote into the graphs of `pipelines.json.gz`.
IN_PIPELINES = """AssertCardinalityDataset BatchDatasetV2 CSVDatasetV2 CacheDataset ConcatenateDataset
DatasetToSingleElement DenseToSparseBatchDataset DirectedInterleaveDataset ExperimentalGroupByReducerDataset
FilterDataset FixedLengthRecordDatasetV2 FlatMapDataset GroupByWindowDataset IgnoreErrorsDataset InterleaveDataset
IteratorGetNext IteratorToStringHandle IteratorV2 LegacyParallelInterleaveDatasetV2 MakeIterator MapAndBatchDataset
MapDataset OneShotIterator PaddedBatchDatasetV2 ParallelInterleaveDatasetV4 ParallelMapDatasetV2 ParseExampleDatasetV2
PrefetchDataset RandomDataset RangeDataset RebatchDatasetV2 ReduceDataset RepeatDataset RewriteDataset ScanDataset
ShardDataset ShuffleAndRepeatDataset ShuffleDataset SkipDataset TFRecordDataset TakeDataset TakeWhileDataset
TensorDataset TensorSliceDataset TextLineDataset UnbatchDataset UniqueDataset WindowDataset ZipDataset""".split()

TWICE = function_def("Twice(x: int64) -> y: int64", body=[("n", "AddV2", ["x", "x"], {"T": int64})], ret={"y": "n:z:0"})
IS_ODD = function_def(
    "IsOdd(x: int64) -> y: bool",
    body=[
        ("one", "OnesLike", ["x"], {"T": int64}),
        ("b", "BitwiseAnd", ["x", "one:y:0"], {"T": int64}),
        ("e", "Equal", ["b:z:0", "one:y:0"], {"T": int64}),
    ],
    ret={"y": "e:z:0"},
)
BELOW = function_def(
    "Below(x: int64) -> y: bool",
    body=[
        ("two", "Const", [], {"dtype": int64, "value": np.int64(2)}),
        ("l", "Less", ["x", "two:output:0"], {"T": int64}),
    ],
    ret={"y": "l:z:0"},
)
SUMS = function_def(
    "Sums(s: int64, x: int64) -> t: int64, y: int64",
    body=[("n", "AddV2", ["s", "x"], {"T": int64})],
    ret={"t": "n:z:0", "y": "n:z:0"},
)
RANGES = function_def(
    "Ranges(x: int64) -> y: variant",
    body=[
        ("zero", "Const", [], {"dtype": int64, "value": np.int64(0)}),
        ("one", "Const", [], {"dtype": int64, "value": np.int64(1)}),
        (
            "r",
            "RangeDataset",
            ["zero:output:0", "x", "one:output:0"],
            {"output_types": [int64], "output_shapes": [SCALAR]},
        ),
    ],
    ret={"y": "r:handle:0"},
)
# The op that makes the threads of a dataset.
THREADS = {
    "ThreadPoolDataset": "ThreadPoolHandle",
    "ExperimentalThreadPoolDataset": "ExperimentalThreadPoolHandle",
}
SAME = (
    *("AssertNextDataset", "AssertPrevDataset", "ExperimentalAssertNextDataset", "FinalizeDataset", "ModelDataset"),
    *("ExperimentalMaxIntraOpParallelismDataset", "ExperimentalNonSerializableDataset", "OptimizeDataset"),
    *("ExperimentalPrivateThreadPoolDataset", "MaxIntraOpParallelismDataset", "NonSerializableDataset"),
    *("OptimizeDatasetV2", "OptionsDataset", "PrivateThreadPoolDataset"),
    *("LatencyStatsDataset", "ExperimentalLatencyStatsDataset", "ThreadPoolDataset", "ExperimentalThreadPoolDataset"),
    *("BytesProducedStatsDataset", "ExperimentalBytesProducedStatsDataset"),
)


async def elements(g: DatasetGraph, dataset: str, shape: Any = SCALAR) -> list[Any]:
    """The elements of a dataset, as Python lists."""
    found: list[Any] = []
    async with aexec.Session(g.iterated(dataset, shape)) as session:
        await session.run([], targets=["begin"])
        while True:
            try:
                found.append((await session.run("next:0")).tolist())
            except errors.OutOfRangeError:
                return found


def test_every_kernel_is_tested() -> None:
    used: set[str] = set()
    for case in json.loads(gzip.decompress(RECORDED.read_bytes()))["pipelines"].values():
        graph = proto.GraphDef.FromString(graph_of(case))
        used |= {node.op for node in graph.node}
        used |= {node.op for function in graph.library.function for node in function.node_def}
    family = {op for op in kernel_registry.global_registry.ops() if op in FAMILIES["datasets"].split()}
    assert sorted(used & family) == sorted(set(IN_PIPELINES) & family)


@pytest.mark.parametrize("op", SAME)
async def test_advice_to_tensorflows_runtime_changes_no_element(op: str) -> None:
    g = DatasetGraph()
    source = g.numbers(3)
    if op == "OptimizeDatasetV2":
        inputs = [g.const(name, [b"noop"]) for name in ("on", "off", "default")]
    elif op.endswith("StatsDataset"):
        inputs = [g.const("tag", b"tag")]
    elif op in THREADS:
        inputs = [g("threads", THREADS[op], num_threads=2, display_name=b"threads")]
    elif "Assert" in op or op == "OptimizeDataset":
        inputs = [g.const("names", [b"noop"])]
    else:
        inputs = [g.const("number", 1, int64)] if "Parallelism" in op or "ThreadPool" in op else []
    attrs = {"serialized_options": b""} if op == "OptionsDataset" else {}
    assert await elements(g, g.dataset("same", op, source, *inputs, **attrs)) == [0, 1, 2]


@pytest.mark.parametrize("op", ["BatchDataset", "ParallelBatchDataset"])
async def test_batch(op: str) -> None:
    g = DatasetGraph()
    size = [g.const("size", 3, int64)]
    if op == "ParallelBatchDataset":
        size += [g.const("calls", 2, int64), g.const("drop", False, dtypes.bool_)]
    assert await elements(g, g.dataset("b", op, g.numbers(5), *size, shape=VECTOR), VECTOR) == [[0, 1, 2], [3, 4]]


async def test_padded_batch_dataset() -> None:
    g = DatasetGraph()
    sizes = [g.const("size", 2, int64), g.const("shape", np.zeros(0, np.int64)), g.const("value", 7, int64)]
    made = g("p", "PaddedBatchDataset", g.numbers(3), *sizes, Toutput_types=[int64], output_shapes=[VECTOR], N=1)
    assert await elements(g, made, VECTOR) == [[0, 1], [2]]


@pytest.mark.parametrize("op", ["ExperimentalSlidingWindowDataset", "SlidingWindowDataset"])
async def test_sliding_window(op: str) -> None:
    g = DatasetGraph()
    settings = [g.const(f"n{number}", value, int64) for number, value in enumerate((2, 1, 1))]
    made = g.dataset("w", op, g.numbers(4), *settings, shape=VECTOR)
    assert await elements(g, made, VECTOR) == [[0, 1], [1, 2], [2, 3]]


@pytest.mark.parametrize(
    ("op", "function", "expected"),
    [
        ("ExperimentalMapDataset", TWICE, [0, 2, 4, 6]),
        ("ParallelMapDataset", TWICE, [0, 2, 4, 6]),
        ("ExperimentalTakeWhileDataset", BELOW, [0, 1]),
        ("ParallelFilterDataset", IS_ODD, [1, 3]),
        ("ParallelInterleaveDatasetV2", RANGES, [0, 0, 0, 1, 1, 2]),
        ("ParallelInterleaveDatasetV3", RANGES, [0, 0, 0, 1, 1, 2]),
        ("ParallelInterleaveDataset", RANGES, [0, 0, 0, 1, 1, 2]),
        ("ExperimentalParallelInterleaveDataset", RANGES, [0, 0, 0, 1, 1, 2]),
        ("LegacyParallelInterleaveDatasetV2", RANGES, [0, 0, 0, 1, 1, 2]),
    ],
)
async def test_functions_are_called(op: str, function: Any, expected: list[int]) -> None:
    g = DatasetGraph()
    g.graph_def.library.function.append(function)
    source = g.numbers(4)
    more = {
        "ParallelMapDataset": [(2, dtypes.int32)],
        "ParallelFilterDataset": [(2, int64)],
        "ParallelInterleaveDatasetV2": [(4, int64), (1, int64), (2, int64)],
        "ParallelInterleaveDatasetV3": [(4, int64), (1, int64), (2, int64)],
        "LegacyParallelInterleaveDatasetV2": [(4, int64), (1, int64), (2, int64), (2, int64)],
    }.get(op, [])
    if op.endswith("ParallelInterleaveDataset"):
        more = [(4, int64), (1, int64), (False, dtypes.bool_), (2, int64), (2, int64)]
    inputs = [g.const(f"input{number}", *value) for number, value in enumerate(more)]
    role = "predicate" if "While" in op or "Filter" in op else "f"
    attrs = {role: NameAttrList(function.signature.name), "Targuments": []}
    assert await elements(g, g.dataset("d", op, source, *inputs, **attrs)) == expected


async def test_experimental_scan_dataset() -> None:
    g = DatasetGraph()
    g.graph_def.library.function.append(SUMS)
    attrs = {"f": NameAttrList("Sums"), "Targuments": [], "Tstate": [int64]}
    made = g.dataset("s", "ExperimentalScanDataset", g.numbers(4), g.const("state", 10, int64), **attrs)
    assert await elements(g, made) == [10, 11, 13, 16]


async def test_experimental_map_and_batch_dataset() -> None:
    g = DatasetGraph()
    g.graph_def.library.function.append(TWICE)
    settings = [g.const("size", 2, int64), g.const("calls", 2, int64), g.const("drop", True, dtypes.bool_)]
    attrs = {"f": NameAttrList("Twice"), "Targuments": []}
    made = g.dataset("m", "ExperimentalMapAndBatchDataset", g.numbers(5), *settings, shape=VECTOR, **attrs)
    assert await elements(g, made, VECTOR) == [[0, 2], [4, 6]]


@pytest.mark.parametrize("op", ["ExperimentalUniqueDataset", "ExperimentalIgnoreErrorsDataset"])
async def test_experimental_names(op: str) -> None:
    g = DatasetGraph()
    assert await elements(g, g.dataset("d", op, g.numbers(3))) == [0, 1, 2]


async def test_experimental_unbatch_dataset() -> None:
    g = DatasetGraph()
    batches = g.batched("b", g.numbers(5), 2)
    assert await elements(g, g.dataset("u", "ExperimentalUnbatchDataset", batches)) == [0, 1, 2, 3, 4]


async def test_experimental_directed_interleave_dataset() -> None:
    g = DatasetGraph()
    selector = g.numbers(2, "selector")
    sources = [g.numbers(2, "first"), g.numbers(1, "second")]
    made = g.dataset("d", "ExperimentalDirectedInterleaveDataset", selector, *sources, N=2)
    assert await elements(g, made) == [0, 0]


@pytest.mark.parametrize("op", ["ExperimentalRandomDataset"])
async def test_random_dataset_with_seeds_repeats_itself(op: str) -> None:
    g = DatasetGraph()
    seeds = [g.const("seed", 3, int64), g.const("seed2", 4, int64)]
    numbers = g.with_count("t", "TakeDataset", g.dataset("r", op, *seeds), 3)
    found = await elements(g, g.with_count("twice", "RepeatDataset", numbers, 2))
    assert len({*found}) == 3
    assert found[:3] == found[3:]


def _grouping() -> DatasetGraph:
    g = DatasetGraph()
    parity = function_def(
        "Parity(x: int64) -> y: int64",
        body=[("one", "OnesLike", ["x"], {"T": int64}), ("b", "BitwiseAnd", ["x", "one:y:0"], {"T": int64})],
        ret={"y": "b:z:0"},
    )
    zero = function_def(
        "Zero(x: int64) -> y: int64", body=[("z", "ZerosLike", ["x"], {"T": int64})], ret={"y": "z:y:0"}
    )
    add = function_def(
        "Plus(s: int64, x: int64) -> y: int64", body=[("n", "AddV2", ["s", "x"], {"T": int64})], ret={"y": "n:z:0"}
    )
    whole = function_def(
        "Whole(k: int64, w: variant) -> y: variant",
        body=[
            ("size", "Const", [], {"dtype": int64, "value": np.int64(9)}),
            (
                "b",
                "BatchDataset",
                ["w", "size:output:0"],
                {"output_types": [int64], "output_shapes": [VECTOR]},
            ),
        ],
        ret={"y": "b:handle:0"},
    )
    two = function_def(
        "Two(x: int64) -> y: int64",
        body=[("c", "Const", [], {"dtype": int64, "value": np.int64(2)})],
        ret={"y": "c:output:0"},
    )
    g.graph_def.library.function.extend([parity, zero, add, whole, two])
    return g


async def test_group_by_reducer_dataset() -> None:
    g = _grouping()
    roles = {"key": "Parity", "init": "Zero", "reduce": "Plus", "finalize": "Zero"}
    attrs = {f"{role}_func": NameAttrList(name) for role, name in roles.items()}
    attrs |= {f"T{role}_func_other_arguments": [] for role in roles}
    attrs["finalize_func"] = NameAttrList("Parity")
    made = g.dataset("g", "GroupByReducerDataset", g.numbers(6), **attrs)
    assert await elements(g, made) == [0, 1]  # 0 + 2 + 4 is even, 1 + 3 + 5 is odd


async def test_experimental_group_by_window_dataset() -> None:
    g = _grouping()
    roles = {"key": "Parity", "reduce": "Whole", "window_size": "Two"}
    attrs = {f"{role}_func": NameAttrList(name) for role, name in roles.items()}
    attrs |= {f"T{role}_func_other_arguments": [] for role in roles}
    made = g.dataset("g", "ExperimentalGroupByWindowDataset", g.numbers(5), shape=VECTOR, **attrs)
    assert await elements(g, made, VECTOR) == [[0, 2], [1, 3], [4]]


# Resources


@pytest.mark.parametrize("op", ["ShuffleDatasetV2", "ShuffleDatasetV3", "ShuffleAndRepeatDatasetV2"])
@pytest.mark.parametrize("maker", ["AnonymousSeedGenerator", "AnonymousRandomSeedGenerator", "DummySeedGenerator"])
async def test_shuffle_takes_its_seeds_from_a_generator(op: str, maker: str) -> None:
    g = DatasetGraph()
    seeds = [g.const(f"seed{number}", number + 1, int64) for number in range(2)]
    wanted = {"AnonymousSeedGenerator": [*seeds, g.const("again", True, dtypes.bool_)], "DummySeedGenerator": []}
    generator = g("generator", maker, *wanted.get(maker, seeds))
    size, count = g.const("size", 10, int64), g.const("count", 2, int64)
    inputs = {
        "ShuffleDatasetV2": [size, generator],
        "ShuffleDatasetV3": [size, *seeds, generator],
        "ShuffleAndRepeatDatasetV2": [size, *seeds, count, generator],
    }[op]
    found = await elements(g, g.dataset("s", op, g.numbers(6), *inputs))
    assert sorted(found[:6]) == list(range(6))
    assert len(found) == (12 if op == "ShuffleAndRepeatDatasetV2" else 6)


@pytest.mark.parametrize("maker", ["AnonymousMemoryCache", "DummyMemoryCache"])
async def test_cache_dataset_v2_keeps_the_elements_in_a_resource(maker: str) -> None:
    g = DatasetGraph()
    cached = g.dataset("cached", "CacheDatasetV2", g.numbers(3), g.const("file", b""), g("cache", maker))
    assert await elements(g, g.with_count("twice", "RepeatDataset", cached, 2)) == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("maker", "deleter"),
    [
        ("AnonymousMemoryCache", "DeleteMemoryCache"),
        ("AnonymousIteratorV2", "DeleteIterator"),
        ("AnonymousSeedGenerator", "DeleteSeedGenerator"),
        ("AnonymousRandomSeedGenerator", "DeleteRandomSeedGenerator"),
    ],
)
async def test_anonymous_resources_are_deleted(maker: str, deleter: str) -> None:
    g = DatasetGraph()
    seeds = [g.const(f"seed{number}", number, int64) for number in range(2)]
    inputs = {"AnonymousSeedGenerator": [*seeds, g.const("again", True, dtypes.bool_)]}
    attrs = {"output_types": [int64], "output_shapes": [SCALAR]} if "Iterator" in maker else {}
    made = g("made", maker, *inputs.get(maker, seeds if "Random" in maker else []), **attrs)
    g("delete", deleter, made, f"{made}:1")
    async with aexec.Session(g.graph()) as session:
        await session.run([], targets=["delete"])
        assert session.resources.resources() == []


@pytest.mark.parametrize("maker", ["Iterator", "AnonymousIterator", "AnonymousIteratorV3"])
async def test_iterators_are_made(maker: str) -> None:
    g = DatasetGraph()
    names = {"shared_name": b"n", "container": b""} if maker == "Iterator" else {}
    g.dataset("i", maker, **names)
    g("begin", "MakeIterator", g.numbers(2), "i")
    g.dataset("first", "IteratorGetNextSync", "i", "^begin")
    async with aexec.Session(g.graph()) as session:
        assert await session.run("first:0") == 0


@pytest.mark.parametrize("op", ["IteratorFromStringHandle", "IteratorFromStringHandleV2"])
async def test_iterator_is_fed_as_a_string(op: str) -> None:
    g = DatasetGraph()
    g.placeholder("handle", dtypes.string, [])
    g.dataset("fed", op, "handle")
    g.dataset("of_fed", "IteratorGetNext", "fed")
    g.dataset("iterator", "IteratorV2", shared_name=b"a", container=b"")
    g("begin", "MakeIterator", g.numbers(2), "iterator")
    g("text", "IteratorToStringHandle", "iterator")
    async with aexec.Session(g.graph()) as session:
        await session.run([], targets=["begin"])
        handle = await session.run("text:0")
        assert [await session.run("of_fed:0", {"handle:0": handle}) for _ in range(2)] == [0, 1]
        with pytest.raises(errors.InvalidArgumentError, match="Could not parse string_handle"):
            await session.run("of_fed:0", {"handle:0": b"\xff\xff"})


async def test_iterator_get_next_as_optional_tells_the_end() -> None:
    g = DatasetGraph()
    g.dataset("iterator", "IteratorV2", shared_name=b"a", container=b"")
    g("begin", "MakeIterator", g.numbers(1), "iterator")
    g.dataset("optional", "IteratorGetNextAsOptional", "iterator")
    g("has", "OptionalHasValue", "optional")
    async with aexec.Session(g.graph()) as session:
        await session.run([], targets=["begin"])
        assert [bool(await session.run("has:0")) for _ in range(2)] == [True, False]


@pytest.mark.parametrize("op", ["DatasetCardinality", "ExperimentalDatasetCardinality"])
async def test_dataset_cardinality(op: str) -> None:
    g = DatasetGraph()
    source = g.numbers(7)
    datasets = {
        "numbers": (source, 7),
        "endless": (g.with_count("endless", "RepeatDataset", source, -1), -1),
        "some": (g.with_count("some", "TakeDataset", "endless", 4), 4),
        "rest": (g.with_count("rest", "SkipDataset", source, 9), 0),
        "batches": (g.batched("batches", source, 3), 3),
    }
    for name, (dataset, _) in datasets.items():
        g(f"count_{name}", op, dataset)
    async with aexec.Session(g.graph()) as session:
        for name, (_, count) in datasets.items():
            assert await session.run(f"count_{name}:0") == count, name


async def test_prefetched_elements_wait_in_a_queue_of_the_session() -> None:
    g = DatasetGraph()
    async with aexec.Session(g.iterated(g.with_count("ahead", "PrefetchDataset", g.numbers(9), 3))) as session:
        await session.run([], targets=["begin"])
        assert await session.run("next:0") == 0
        (name,) = session.queues()
        assert name.endswith("/ahead")
        assert session.resources.lookup("localhost", name, QueueBase).capacity == 3


@pytest.mark.parametrize(
    ("op", "calls", "cycle"),
    [("InterleaveDataset", (), 3), ("ParallelInterleaveDatasetV2", (2,), 2), ("ParallelInterleaveDatasetV2", (-1,), 4)],
)
async def test_interleave_chooses_how_many_datasets_take_turns(
    op: str, calls: tuple[int, ...], cycle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (function_dataset_ops, parallel_dataset_ops):
        monkeypatch.setattr(module, "num_processors", lambda: 3)

    async def interleaved(cycle_length: int) -> list[int]:
        g = DatasetGraph()
        g.graph_def.library.function.append(RANGES)
        settings = [g.const(f"s{i}", number, int64) for i, number in enumerate((cycle_length, 1, *calls))]
        attrs = {"f": NameAttrList("Ranges"), "Targuments": []}
        return await elements(g, g.dataset("d", op, g.numbers(7), *settings, **attrs))

    chosen = await interleaved(-1)
    assert chosen == await interleaved(cycle)
    assert chosen != await interleaved(cycle + 1)


@pytest.mark.parametrize("kind", ["memory", "repeat", "take", "shuffle", "prefetch"])
async def test_element_that_is_there_is_taken_without_waiting(kind: str) -> None:
    """The step is over before it has given the event loop a turn."""
    g = DatasetGraph()
    numbers = g.numbers(9)
    ones = [g.const(f"one{i}", 1, int64) for i in range(3)]
    datasets = {
        "memory": lambda: numbers,
        "repeat": lambda: g.with_count("repeat", "RepeatDataset", numbers, 2),
        "take": lambda: g.with_count("take", "TakeDataset", numbers, 8),
        "shuffle": lambda: g.dataset("shuffle", "ShuffleDataset", numbers, *ones),
        "prefetch": lambda: g.with_count("prefetch", "PrefetchDataset", numbers, 5),
    }
    async with aexec.Session(g.iterated(datasets[kind]())) as session:
        await session.run([], targets=["begin"])
        call = session.make_callable("next:0")
        for number in range(3):
            assert await call() == number
            await asyncio.sleep(0)
        with pytest.raises(StopIteration) as ended:
            call().send(None)
        assert ended.value.value == 3
        assert "after 4 elements" in repr(session.resources.lookup("localhost", "numbers", IteratorResource))
        left = {"repeat": [*range(4, 9), *range(9)], "take": [*range(4, 8)]}.get(kind, [*range(4, 9)])
        assert [int(await call()) for _ in left] == left
        for _ in range(2):
            with pytest.raises(errors.OutOfRangeError):
                await call()


async def test_iterator_without_a_dataset_is_refused() -> None:
    g = DatasetGraph()
    async with aexec.Session(g.iterated(g.numbers(1))) as session:
        with pytest.raises(errors.FailedPreconditionError, match="has not been initialized"):
            await session.run("next:0")


async def test_dataset_of_other_elements_is_refused() -> None:
    g = DatasetGraph()
    g.dataset("iterator", "IteratorV2", dtype=dtypes.float32, shared_name=b"a", container=b"")
    g("begin", "MakeIterator", g.numbers(1), "iterator")
    async with aexec.Session(g.graph()) as session:
        with pytest.raises(errors.InvalidArgumentError, match="expected float but got int64"):
            await session.run([], targets=["begin"])


LAST_BIT = function_def(
    "LastBit(x: int64) -> y: int64",
    body=[("one", "OnesLike", ["x"], {"T": int64}), ("b", "BitwiseAnd", ["x", "one:y:0"], {"T": int64})],
    ret={"y": "b:z:0"},
)
TWO = function_def(
    "Two(x: int64) -> y: int64",
    body=[("two", "Const", [], {"dtype": int64, "value": np.int64(2)})],
    ret={"y": "two:output:0"},
)
SHARDS = function_def(
    "Shards(key: int64, group: variant) -> y: variant",
    body=[
        ("zero", "ZerosLike", ["key"], {"T": int64}),
        (
            "s",
            "ShardDataset",
            ["group", "key", "zero:y:0"],
            {"output_types": [int64], "output_shapes": [SCALAR]},
        ),
    ],
    ret={"y": "s:handle:0"},
)


async def test_group_whose_function_fails_is_left_out() -> None:
    g = DatasetGraph()
    roles = {"key": LAST_BIT, "reduce": SHARDS, "window_size": TWO}
    g.graph_def.library.function.extend(roles.values())
    attrs: dict[str, Any] = {f"{role}_func": NameAttrList(made.signature.name) for role, made in roles.items()}
    attrs |= {f"T{role}_func_other_arguments": [] for role in roles}
    grouped = g.dataset("grouped", "GroupByWindowDataset", g.numbers(4), **attrs)
    async with aexec.Session(g.iterated(grouped)) as session:
        await session.run([], targets=["begin"])
        with pytest.raises(errors.InvalidArgumentError, match="Number of shards"):
            await session.run("next:0")
        assert [await session.run("next:0") for _ in range(2)] == [1, 3]
