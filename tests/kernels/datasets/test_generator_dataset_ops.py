"""`GeneratorDataset`, and iterators that deal elements to devices ("datasets.multi_device_ops")."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

import aexec
from aexec import errors
from aexec.framework.dtypes import int32, int64
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.wire.attr_value import NameAttrList
from tests.kernels.datasets.dataset_graphs import SCALAR, DatasetGraph, gate_function
from tests.support import gates
from tests.support.programs.functions import function_def

register_op("TestGeneratorBegin(first: int64) -> state: int64", "key: int", stateful=True)
register_op("TestGeneratorNext(state: int64, stop: int64) -> element: int64", "key: int", stateful=True)
register_op("TestGeneratorEnd(state: int64) -> nothing: int64", "key: int", stateful=True)

_keys = itertools.count()
_generators: dict[int, Generator] = {}


class Generator:
    """Counts in each of its passes.

    Attributes:
        entered: `TestGeneratorNext` has been called for number `waits_at`, and waits until `open`.
        ended: the states that were ended.
    """

    def __init__(self, waits_at: int = -1) -> None:
        self.key = next(_keys)
        self.waits_at = waits_at
        self.entered, self.open = asyncio.Event(), asyncio.Event()
        self.counts: list[int] = []
        self.ended: list[int] = []
        self.has_ended = asyncio.Event()
        _generators[self.key] = self


@kernel("TestGeneratorBegin", cost=0)
def _begin(c: Any) -> Any:
    generator = _generators[c.attr("key")]

    def compute(first: Any) -> Any:
        generator.counts.append(int(first))
        return first * 0 + len(generator.counts) - 1

    return compute


@kernel("TestGeneratorNext", cost=0)
def _next(c: Any) -> Any:
    generator = _generators[c.attr("key")]

    async def compute(state: Any, stop: Any) -> Any:
        number = generator.counts[int(state)]
        if number == generator.waits_at:
            generator.entered.set()
            await generator.open.wait()
        if number == stop:
            raise errors.OutOfRangeError("the generator has ended")
        generator.counts[int(state)] += 1
        return stop * 0 + number

    return compute


@kernel("TestGeneratorEnd", cost=0)
def _end(c: Any) -> Any:
    generator = _generators[c.attr("key")]

    def compute(state: Any) -> Any:
        generator.ended.append(int(state))
        generator.has_ended.set()
        return state

    return compute


def _generated(generator: Generator, stop: int) -> tuple[DatasetGraph, str]:
    g = DatasetGraph()
    key = {"key": generator.key}
    g.graph_def.library.function.extend(
        [
            function_def(
                "Begin(first: int64) -> state: int64",
                body=[("b", "TestGeneratorBegin", ["first"], key)],
                ret={"state": "b:state:0"},
            ),
            function_def(
                "Next(state: int64, stop: int64) -> element: int64",
                body=[("n", "TestGeneratorNext", ["state", "stop"], key)],
                ret={"element": "n:element:0"},
            ),
            function_def(
                "End(state: int64) -> nothing: int64",
                body=[("e", "TestGeneratorEnd", ["state"], key)],
                ret={"nothing": "e:nothing:0"},
            ),
        ]
    )
    attrs: dict[str, Any] = {
        "init_func": NameAttrList("Begin"),
        "next_func": NameAttrList("Next"),
        "finalize_func": NameAttrList("End"),
        "Tinit_func_args": [int64],
        "Tnext_func_args": [int64],
        "Tfinalize_func_args": [],
    }
    inputs = [g.const("first", 2, int64), g.const("stop", stop, int64)]
    return g, g.dataset("generated", "GeneratorDataset", *inputs, **attrs)


async def test_generator_gives_elements_until_its_function_has_ended() -> None:
    generator = Generator()
    g, made = _generated(generator, stop=5)
    async with aexec.Session(g.iterated(g.with_count("twice", "RepeatDataset", made, 2))) as session:
        await session.run([], targets=["begin"])
        assert [await session.run("next:0") for _ in range(6)] == [2, 3, 4, 2, 3, 4]
        for _ in range(2):
            with pytest.raises(errors.OutOfRangeError, match="End of sequence"):
                await session.run("next:0")
    assert generator.ended == [0, 1]


async def test_cancelled_step_leaves_the_element_of_a_generator_to_the_next() -> None:
    generator = Generator(waits_at=3)
    g, made = _generated(generator, stop=5)
    async with aexec.Session(g.iterated(made)) as session:
        await session.run([], targets=["begin"])
        assert await session.run("next:0") == 2
        step = session.start("next:0")
        await generator.entered.wait()
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step
        generator.open.set()
        assert [await session.run("next:0") for _ in range(2)] == [3, 4]


async def test_generator_of_an_old_pass_is_ended() -> None:
    generator = Generator(waits_at=3)
    g, made = _generated(generator, stop=5)
    async with aexec.Session(g.iterated(made)) as session:
        await session.run([], targets=["begin"])
        assert await session.run("next:0") == 2
        step = session.start("next:0")
        await generator.entered.wait()
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step
        await session.run([], targets=["begin"])
        await generator.has_ended.wait()
        assert generator.ended == [0]
        generator.open.set()
        assert await session.run("next:0") == 2


async def test_closed_session_ends_a_call_of_a_generator() -> None:
    generator = Generator(waits_at=2)
    g, made = _generated(generator, stop=5)
    async with aexec.Session(g.iterated(made)) as session:
        await session.run([], targets=["begin"])
        step = session.start("next:0")
        await generator.entered.wait()
    with pytest.raises(errors.CancelledError):
        await step
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("iterator")]


async def test_functions_that_do_not_fit_together_are_refused() -> None:
    generator = Generator()
    g, made = _generated(generator, stop=5)
    node = next(node for node in g.graph_def.node if node.name == made)
    node.attr["finalize_func"].func.name = "Next"
    async with aexec.Session(g.iterated(made)) as session:
        with pytest.raises(errors.InvalidArgumentError, match="Next takes"):
            await session.run([], targets=["begin"])


# Multi-device iterators


def _dealt(g: DatasetGraph, dataset: str, op: str = "MultiDeviceIterator", most: int = 1) -> aexec.Graph:
    attrs = {"output_types": [int64], "output_shapes": [SCALAR]}
    named = {"shared_name": b"numbers", "container": b""} if op == "MultiDeviceIterator" else {}
    g("iterator", op, devices=[b"/cpu:0", b"/cpu:1"], **named, **attrs)
    g("begin", "MultiDeviceIteratorInit", dataset, "iterator", g.const("most", most, int64))
    g.placeholder("shard", int32, [])
    g.placeholder("incarnation", int64, [])
    g("next", "MultiDeviceIteratorGetNextFromShard", "iterator", "shard", "incarnation", **attrs)
    return g.graph()


async def _of_shard(session: aexec.Session, shard: int, incarnation: int = 1) -> Any:
    return await session.run("next:0", {"shard:0": shard, "incarnation:0": incarnation})


async def test_elements_are_dealt_to_devices_in_turn() -> None:
    g = DatasetGraph()
    async with aexec.Session(_dealt(g, g.numbers(5))) as session:
        assert await session.run("begin:0") == 1
        assert [await _of_shard(session, shard) for shard in (0, 0 + 1, 1, 0, 0)] == [0, 1, 3, 2, 4]
        for shard in (0, 1):
            with pytest.raises(errors.OutOfRangeError):
                await _of_shard(session, shard)
        assert await session.run("begin:0") == 2
        assert await _of_shard(session, 1, 2) == 1
        with pytest.raises(errors.InvalidArgumentError, match="Invalid incarnation id"):
            await _of_shard(session, 1, 1)
        with pytest.raises(errors.InvalidArgumentError, match="Invalid shard number"):
            await _of_shard(session, 2, 2)


async def test_step_waits_while_another_device_has_too_many_elements() -> None:
    g = DatasetGraph()
    async with aexec.Session(_dealt(g, g.numbers(6))) as session:
        await session.run("begin:0")
        assert await _of_shard(session, 0) == 0
        assert await _of_shard(session, 0) == 2  # element 1 waits for the other device
        step = session.start("next:0", {"shard:0": 0, "incarnation:0": 1})
        for _ in range(20):
            await asyncio.sleep(0)
        assert not step.done
        assert await _of_shard(session, 1) == 1
        assert await step == 4
        assert [await _of_shard(session, 1) for _ in range(2)] == [3, 5]


async def test_cancelled_step_of_a_device_loses_nothing() -> None:
    gate = gates.Gate()
    g = DatasetGraph()
    made = g.mapped("gated", g.numbers(4), gate_function(gate.key))
    async with aexec.Session(_dealt(g, made, most=2)) as session:
        await session.run("begin:0")
        steps = [session.start("next:0", {"shard:0": shard, "incarnation:0": 1}) for shard in (0, 1)]
        await gate.entered.wait()
        steps[0].cancel()
        with pytest.raises(errors.CancelledError):
            await steps[0]
        gate.open.set()
        assert await steps[1] == 1
        assert [await _of_shard(session, shard) for shard in (0, 0, 1)] == [0, 2, 3]


async def test_handles_of_dealing_iterators_are_strings_too() -> None:
    g = DatasetGraph()
    attrs = {"output_types": [int64], "output_shapes": [SCALAR]}
    source = g.numbers(3)
    g("text", "MultiDeviceIteratorToStringHandle", "iterator")
    g("again", "MultiDeviceIteratorFromStringHandle", "text", **attrs)
    g("first", "MultiDeviceIteratorGetNextFromShard", "again", "shard", "incarnation", **attrs)
    async with aexec.Session(_dealt(g, source)) as session:
        await session.run("begin:0")
        assert await session.run("first:0", {"shard:0": 1, "incarnation:0": 1}) == 1


@pytest.mark.parametrize("op", ["AnonymousMultiDeviceIterator", "AnonymousMultiDeviceIteratorV3"])
async def test_anonymous_iterator_deals_within_its_step(op: str) -> None:
    g = DatasetGraph()
    attrs = {"output_types": [int64], "output_shapes": [SCALAR]}
    source = g.numbers(4)
    g("iterator", op, devices=[b"/cpu:0", b"/cpu:1"], **attrs)
    g("begin", "MultiDeviceIteratorInit", source, "iterator", g.const("most", 2, int64))
    g("next", "MultiDeviceIteratorGetNextFromShard", "iterator", g.const("shard", 1, int32), "begin", **attrs)
    if op.endswith("Iterator"):
        g("delete", "DeleteMultiDeviceIterator", "iterator", "iterator:1", "^next", N=0)
    async with aexec.Session(g.graph()) as session:
        targets = ["delete"] if op.endswith("Iterator") else []
        assert await session.run("next:0", targets=targets) == 1


@pytest.mark.parametrize("op", ["IteratorGetDevice", "ExperimentalIteratorGetDevice"])
async def test_iterator_names_its_device(op: str) -> None:
    g = DatasetGraph()
    g("device", op, "iterator")
    async with aexec.Session(g.iterated(g.numbers(3))) as session:
        await session.run([], targets=["begin"])
        assert (await session.run("device:0")).endswith(b"CPU:0")
