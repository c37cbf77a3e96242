"""Steps that are cancelled while they wait for an element: no element is lost, and none comes twice."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aexec
from aexec import errors
from aexec.framework.dtypes import int64
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape import PartialTensorShape
from tests.kernels.datasets.dataset_graphs import DatasetGraph, gate_function
from tests.support import gates
from tests.support.programs.functions import function_def

register_op("TestTurns(x: int64) -> y: int64", stateful=True)


@kernel("TestTurns", cost=0)
def _turns(c: Any) -> Any:
    """Returns its input after as many turns of the loop as its last digit says."""

    async def compute(x: Any) -> Any:
        for _ in range(int(x) % 4):
            await asyncio.sleep(0)
        return x

    return compute


SLOW = function_def("Slow(x: int64) -> y: int64", body=[("t", "TestTurns", ["x"], {})], ret={"y": "t:y:0"})
STAGES = ("map", "parallel map", "batch", "prefetch", "shuffle", "zip", "filter")
COUNT = 24


def _graph(stages: list[str]) -> aexec.Graph:
    g = DatasetGraph()
    current, is_batch = g.numbers(COUNT), False
    for number, stage in enumerate(stages):
        name = f"stage{number}"
        if stage == "prefetch":
            current = g.with_count(name, "PrefetchDataset", current, 2, shape=_shape(is_batch))
        elif is_batch:
            continue
        elif stage == "map":
            current = g.mapped(name, current, SLOW)
        elif stage == "parallel map":
            calls = g.const(f"{name}/calls", 3, int64)
            current = g.mapped(name, current, SLOW, "ParallelMapDatasetV2", calls)
        elif stage == "batch":
            current, is_batch = g.batched(name, current, 5), True
        elif stage == "shuffle":
            seeds = [g.const(f"{name}/{part}", value, int64) for part, value in (("a", 4), ("b", 3), ("c", 9))]
            current = g.dataset(name, "ShuffleDataset", current, *seeds)
        elif stage == "filter":
            current = g.with_count(name, "SkipDataset", current, 0)
    return g.iterated(current, _shape(is_batch))


def _shape(is_batch: bool) -> Any:
    return PartialTensorShape([None] if is_batch else [])


async def _taken_in_spite_of_cancels(session: aexec.Session, choose: random.Random, cancels: int) -> list[int]:
    """All numbers of a pass, some of whose steps are cancelled after a few turns of the event loop."""
    await session.run([], targets=["begin"])
    taken: list[int] = []
    while True:
        step = session.start("next:0")
        if cancels and choose.random() < 0.5:
            for _ in range(choose.randrange(12)):
                await asyncio.sleep(0)
            step.cancel()
            cancels -= 1
        try:
            taken += (await step).ravel().tolist()
        except errors.CancelledError:
            continue
        except errors.OutOfRangeError:
            return taken


@given(st.lists(st.sampled_from(STAGES), min_size=1, max_size=4), st.integers(0, 2**32))
async def test_cancelled_steps_lose_and_double_nothing(stages: list[str], seed: int) -> None:
    async with aexec.Session(_graph(stages)) as session:
        taken = await _taken_in_spite_of_cancels(session, random.Random(seed), 60)
    assert sorted(taken) == list(range(COUNT))
    if "shuffle" not in stages:
        assert taken == list(range(COUNT))


@pytest.mark.soak
@pytest.mark.time_limit(600)
async def test_thousand_cancelled_steps_lose_and_double_nothing() -> None:
    choose = random.Random(1)
    for _ in range(50):
        stages = choose.choices(STAGES, k=choose.randint(1, 5))
        async with aexec.Session(_graph(stages)) as session:
            taken = await _taken_in_spite_of_cancels(session, choose, 20)
            assert sorted(taken) == list(range(COUNT)), stages
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("iterator")]


async def test_function_is_called_again_for_the_element_of_a_cancelled_step() -> None:
    gate = gates.Gate()
    g = DatasetGraph()
    async with aexec.Session(g.iterated(g.mapped("gated", g.numbers(3), gate_function(gate.key)))) as session:
        await session.run([], targets=["begin"])
        step = session.start("next:0")
        await gate.entered.wait()
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step
        assert gate.cancelled == 1
        gate.open.set()
        assert [await session.run("next:0") for _ in range(3)] == [0, 1, 2]


async def test_steps_get_elements_in_the_order_in_which_they_ask() -> None:
    gate = gates.Gate()
    g = DatasetGraph()
    async with aexec.Session(g.iterated(g.mapped("gated", g.numbers(9), gate_function(gate.key)))) as session:
        await session.run([], targets=["begin"])
        steps = [session.start("next:0") for _ in range(4)]
        await gate.entered.wait()
        steps[2].cancel()
        gate.open.set()
        with pytest.raises(errors.CancelledError):
            await steps[2]
        assert [await steps[number] for number in (0, 1, 3)] == [0, 1, 2]


async def test_new_pass_leaves_the_old_one_to_those_who_wait_for_it() -> None:
    gate = gates.Gate()
    g = DatasetGraph()
    async with aexec.Session(g.iterated(g.mapped("gated", g.numbers(9), gate_function(gate.key)))) as session:
        await session.run([], targets=["begin"])
        waiting = session.start("next:0")
        await gate.entered.wait()
        await session.run([], targets=["begin"])
        gate.open.set()
        assert await waiting == 0
        assert await session.run("next:0") == 0


PARALLEL = ("PrefetchDataset", "ParallelMapDatasetV2")


def _in_background(op: str, gate: gates.Gate) -> aexec.Graph:
    g = DatasetGraph()
    if op == "PrefetchDataset":
        return g.iterated(g.with_count("ahead", op, g.mapped("gated", g.numbers(9), gate_function(gate.key)), 2))
    return g.iterated(g.mapped("gated", g.numbers(9), gate_function(gate.key), op, g.const("calls", 2, int64)))


@pytest.mark.parametrize("op", PARALLEL)
async def test_closed_session_ends_what_its_iterators_do_in_the_background(op: str) -> None:
    gate = gates.Gate()
    async with aexec.Session(_in_background(op, gate)) as session:
        await session.run([], targets=["begin"])
        waiting = session.start("next:0")
        await gate.entered.wait()
    with pytest.raises(errors.CancelledError):
        await waiting
    assert gate.cancelled
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("iterator")]


@pytest.mark.parametrize("op", PARALLEL)
async def test_background_pauses_when_the_step_that_waits_is_cancelled(op: str) -> None:
    gate = gates.Gate()
    async with aexec.Session(_in_background(op, gate)) as session:
        await session.run([], targets=["begin"])
        waiting = session.start("next:0")
        await gate.entered.wait()
        waiting.cancel()
        with pytest.raises(errors.CancelledError):
            await waiting
        while any(task.get_name().startswith("iterator") for task in asyncio.all_tasks()):
            await asyncio.sleep(0)
        assert gate.cancelled
        gate.open.set()
        assert [await session.run("next:0") for _ in range(9)] == list(range(9))


async def test_batches_are_refused_by_the_memory_limit() -> None:
    """A batch of endlessly many numbers ends at the limit of the session, and so does what is padded."""
    g = DatasetGraph()
    endless = g.with_count("endless", "RepeatDataset", g.numbers(3), -1)
    graph = g.iterated(g.batched("batch", endless, 2**40), PartialTensorShape([None]))
    async with aexec.Session(graph, config=aexec.SessionConfig(session_bytes=1 << 24)) as session:
        await session.run([], targets=["begin"])
        with pytest.raises(errors.ResourceExhaustedError):
            await session.run("next:0")


async def test_padding_is_refused_by_the_memory_limit() -> None:
    g = DatasetGraph()
    settings = [g.const("size", 1, int64), g.const("shape", np.array([2**34])), g.const("value", 7, int64)]
    vectors = g.batched("vectors", g.numbers(3), 2)
    attrs = {"Toutput_types": [int64], "output_shapes": [PartialTensorShape([None, None])], "N": 1}
    graph = g.iterated(g("padded", "PaddedBatchDataset", vectors, *settings, **attrs), PartialTensorShape([None, None]))
    async with aexec.Session(graph, config=aexec.SessionConfig(session_bytes=1 << 24)) as session:
        await session.run([], targets=["begin"])
        with pytest.raises(errors.ResourceExhaustedError):
            await session.run("next:0")


async def test_shuffle_keeps_no_more_than_its_elements() -> None:
    g = DatasetGraph()
    settings = [g.const(name, value, int64) for name, value in (("size", 2**50), ("seed", 1), ("seed2", 2))]
    unknown = g.mapped("same", g.numbers(9), SLOW)
    async with aexec.Session(g.iterated(g.dataset("shuffled", "ShuffleDataset", unknown, *settings))) as session:
        await session.run([], targets=["begin"])
        assert sorted([await session.run("next:0") for _ in range(9)]) == list(range(9))
