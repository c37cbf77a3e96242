"""Tensor arrays and stacks of all generations, in sessions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework.dtypes import float32, int32, int64
from aexec.framework.shape import PartialTensorShape
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.kernels.common import handles
from aexec.resources.tensor_array import TensorArray
from tests.kernels.data_flow.tensor_array_cases import CASES, OURS
from tests.kernels.harness import build, in_tensorflow, ops_of, registered
from tests.kernels.recorded_answers import recorded_answers
from tests.support.programs.graphs import GraphBuilder

# The ops of each generation, by what they do.
VERBS = "make write scatter gather size split concat read close grad".split()
FIRST, SECOND, THIRD = (
    dict(zip(VERBS, ops.split(), strict=True))
    for ops in (
        "TensorArray TensorArrayWrite TensorArrayScatter TensorArrayGather TensorArraySize TensorArraySplit "
        "TensorArrayConcat TensorArrayRead TensorArrayClose TensorArrayGrad",
        "TensorArrayV2 TensorArrayWriteV2 TensorArrayScatterV2 TensorArrayGatherV2 TensorArraySizeV2 "
        "TensorArraySplitV2 TensorArrayConcatV2 TensorArrayReadV2 TensorArrayCloseV2 TensorArrayGradV2",
        "TensorArrayV3 TensorArrayWriteV3 TensorArrayScatterV3 TensorArrayGatherV3 TensorArraySizeV3 "
        "TensorArraySplitV3 TensorArrayConcatV3 TensorArrayReadV3 TensorArrayCloseV3 TensorArrayGradV3",
    )
)
GENERATIONS = pytest.mark.parametrize("ops", [FIRST, SECOND, THIRD], ids=["first", "second", "third"])
# The older generations are only for graphs that older producers made.
OLD_PRODUCER = 15


def _array(g: GraphBuilder, ops: dict[str, str], size: int = 3, **attrs: Any) -> str:
    """A tensor array `array`; its flow's name."""
    g.const("size", size, int32)
    g("array", ops["make"], "size", dtype=float32, **attrs)
    return "array:1" if ops is THIRD else g.const("flow", 0, float32)


@GENERATIONS
async def test_written_elements_are_read_back(ops: dict[str, str]) -> None:
    """Write, scatter, read, gather, concat, split, size and close, whatever the handle's form."""
    g = GraphBuilder(OLD_PRODUCER)
    flow = _array(g, ops, dynamic_size=True)
    g.const("one", 1, int32)
    g.const("others", [0, 2], int32)
    g.const("all", [2, 1, 0], int32)
    g.const("row", [1.0, 1.0], float32)
    g.const("rows", [[0.0, 0.0], [2.0, 2.0]], float32)
    g.const("lengths", [1, 1], int64)
    g("write", ops["write"], "array", "one", "row", flow, T=float32)
    g("scatter", ops["scatter"], "array", "others", "rows", "write", T=float32)
    keep = {"dtype": float32}
    g("gather", ops["gather"], "array", "all", "scatter", **keep)
    g("length", ops["size"], "array", "scatter")
    g("split", ops["split"], "array", "rows", "lengths", flow, T=float32)
    g("concat", ops["concat"], "array", "split", **keep)
    g("read", ops["read"], "array", "one", "split", **keep)
    g("close", ops["close"], "array", "^length")
    async with aexec.Session(g.graph()) as session:
        assert (await session.run("gather:0"))[:, 0].tolist() == [2, 1, 0]
        assert await session.run("length:0", targets=["close"]) == 3
        assert (await session.run("read:0")).tolist() == [[2, 2]]
        with pytest.raises(errors.InvalidArgumentError, match="Could not read from TensorArray index 2"):
            await session.run("concat:0")
        assert session.resources.statistics().resources == 0


@GENERATIONS
async def test_gradients_add_up(ops: dict[str, str]) -> None:
    """A gradient array has a handle of the same form, and aggregates what is written."""
    g = GraphBuilder(OLD_PRODUCER)
    flow = _array(g, ops, size=1, element_shape=PartialTensorShape([]))
    g.const("zero", 0, int32)
    g.const("value", 5.0, float32)
    g("grad", ops["grad"], "array", flow, source=b"gradients")
    write = ops["write"]
    g("first", write, "grad", "zero", "value", flow, T=float32)
    g("second", write, "grad", "zero", "value", "first", T=float32)
    g("again", ops["grad"], "array", "second", source=b"gradients")
    g("read", ops["read"], "again", "zero", "second", dtype=float32)
    async with aexec.Session(g.graph()) as session:
        assert await session.run("read:0") == 10


async def test_gradients_of_rows_with_a_dimension_more() -> None:
    """TensorArrayGradWithShape: the gradient's elements are those of the array, with dimensions in front."""
    g = GraphBuilder()
    flow = _array(g, THIRD, size=1, element_shape=PartialTensorShape([2]))
    g.const("zero", 0, int32)
    g.const("more", [3], int32)
    g.placeholder("value", float32)
    g("grad", "TensorArrayGradWithShape", "array", flow, "more", source=b"gradients")
    g("write", "TensorArrayWriteV3", "grad", "zero", "value", "grad:1", T=float32)
    g("read", "TensorArrayReadV3", "grad", "zero", "write", dtype=float32)
    async with aexec.Session(g.graph()) as session:
        value = np.arange(6, dtype=np.float32).reshape(3, 2)
        np.testing.assert_array_equal(await session.run("read:0", {"value": value}), value)
        with pytest.raises(errors.InvalidArgumentError, match=r"\[3,2\]"):
            await session.run("read:0", {"value": value[0]})


@pytest.mark.parametrize("shape", [[[2], [3]], 2, [1] * 255])
async def test_dimensions_in_front_that_are_no_shape(shape: Any) -> None:
    g = GraphBuilder()
    g.const("size", 2, int32)
    g("array", "TensorArrayV3", "size", dtype=float32)
    g.placeholder("more", int32)
    g("grad", "TensorArrayGradWithShape", "array", "array:1", "more", source=b"gradients")
    async with aexec.Session(g.graph()) as session:
        with pytest.raises(errors.InvalidArgumentError, match="shape_to_prepend must be a vector"):
            await session.run("grad:1", {"more:0": np.array(shape, np.int32)})


async def test_strings_that_are_no_handle() -> None:
    """Handles of the second generation are strings, which may be fed."""
    g = GraphBuilder(OLD_PRODUCER)
    flow = _array(g, SECOND)
    g("length", "TensorArraySizeV2", "array", flow)
    async with aexec.Session(g.graph()) as session:
        with pytest.raises(errors.NotFoundError):
            await session.run("length:0", {"array": np.array([b"container", b"name"], object)})
        for fed in (np.array([b"one"], object), np.array([[b"a", b"b"]], object)):
            with pytest.raises(errors.InvalidArgumentError, match="Cannot feed value of shape"):
                await session.run("length:0", {"array": fed})


async def test_packing_and_unpacking() -> None:
    """The first generation moves whole arrays."""
    g = GraphBuilder(OLD_PRODUCER)
    flow = _array(g, FIRST)
    g.placeholder("rows", float32)
    g("unpack", "TensorArrayUnpack", "array", "rows", flow, T=float32)
    g("pack", "TensorArrayPack", "array", "unpack", dtype=float32)
    async with aexec.Session(g.graph()) as session:
        assert (await session.run("pack:0", {"rows": np.arange(3, dtype=np.float32)})).tolist() == [0, 1, 2]
        with pytest.raises(errors.InvalidArgumentError, match=r"equal to the array size \(2 vs. 3\)"):
            await session.run("pack:0", {"rows": np.arange(2, dtype=np.float32)})
        with pytest.raises(errors.InvalidArgumentError, match="must be at least a vector"):
            await session.run("pack:0", {"rows": np.float32(1)})


async def test_arrays_longer_than_memory() -> None:
    """Neither a size nor an index makes an array of billions."""
    g = GraphBuilder()
    g.placeholder("size", int32)
    g.placeholder("index", int32)
    g("array", "TensorArrayV3", "size", dtype=float32, dynamic_size=True)
    g.const("value", 5.0, float32)
    g.const("values", [5.0], float32)
    g("write", "TensorArrayWriteV3", "array", "index", "value", "array:1", T=float32)
    g("indices", "Pack", "index", N=1, T=int32)
    g("scatter", "TensorArrayScatterV3", "array", "indices", "values", "array:1", T=float32)
    huge = np.int32(2**31 - 1)
    async with aexec.Session(g.graph()) as session:
        for fetch, feeds in (
            ("array:1", {"size": huge}),
            ("write:0", {"size": np.int32(0), "index": huge}),
            ("scatter:0", {"size": np.int32(0), "index": huge}),
        ):
            with pytest.raises(errors.ResourceExhaustedError, match="is longer than the limit"):
                await session.run(fetch, feeds)


def _stack(generation: str, max_size: Any = -1, *, swap: bool = False) -> aexec.Graph:
    g = GraphBuilder()
    sizes = [g.const("max", max_size, int32)] if generation else []
    g("stack", f"Stack{generation}", *sizes, elem_type=float32, stack_name=b"st")
    g.placeholder("x", float32)
    g.placeholder("i", int32)
    g("push", f"StackPush{generation}", "stack", "x", T=float32, swap_memory=swap)
    g("push_again", f"StackPush{generation}", "stack", "x", "^push", T=float32)
    g("push_other", f"StackPush{generation}", "stack", "i", T=int32)
    g("pop", f"StackPop{generation}", "stack", "^push", elem_type=float32)
    g("pop_empty", f"StackPop{generation}", "stack", elem_type=float32)
    g("close", f"StackClose{generation}", "stack", "^push")
    g("late", f"StackPop{generation}", "stack", "^close", elem_type=float32)
    return g.graph()


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("generation", ["", "V2"])
async def test_stacks(generation: str, swap: bool) -> None:
    """Pushed values come back; the messages name the stack."""
    x = {"x": np.ones(1000, np.float32)}
    async with aexec.Session(_stack(generation, swap=swap)) as session:
        assert (await session.run(["push:0", "pop:0"], x))[1].sum() == 1000
        with pytest.raises(errors.InvalidArgumentError, match=r"Stack\[st_\d+\] is empty when calling Pop\(\)\."):
            await session.run("pop_empty:0")
        with pytest.raises(errors.InvalidArgumentError, match="has already been closed"):
            await session.run("late:0", x)
        with pytest.raises(errors.InvalidArgumentError, match="Must have type 1 but got 3"):
            await session.run("push_other:0", {"i": np.int32(1)})


async def test_stacks_of_limited_size() -> None:
    x = {"x": np.float32(1)}
    async with aexec.Session(_stack("V2", 1)) as session:
        with pytest.raises(errors.InvalidArgumentError, match=r"Stack\[st_\d+\] overflowed its max_size \(1\)"):
            await session.run("push_again:0", x)
    async with aexec.Session(_stack("V2", [1, 2])) as session:
        with pytest.raises(errors.InvalidArgumentError, match="Stack size must be scalar"):
            await session.run("push:0", x)


def test_registered_for_tensorflows_types() -> None:
    """Every op of these families, for the types that TensorFlow has on the CPU."""
    ops = ops_of("data_flow.tensor_array_ops", "data_flow.stack_ops")
    assert len(ops) == 41
    for op in ops:
        theirs = in_tensorflow(op)
        assert theirs is not None
        assert {r[3] for r in registered(op)} >= {r[3] for r in theirs if r[0] == "CPU"}, op


# By TensorFlow, of graphs with arrays of the third generation, which the others share their kernels with.
test_answers = recorded_answers("tensor_array", CASES, OURS)


def test_places_are_made_when_they_are_written_to() -> None:
    array = TensorArray("a", float32, 1 << 27, PartialTensorShape([0]), clear_after_read=False)
    assert len(array) == 1 << 27 and not array.elements
    array.write(5, np.zeros(0, np.float32))
    assert len(array.elements) == 1000 and array.read(1 << 22).shape == (0,)
    gradients = TensorArray.of_gradients("g", array)
    assert len(gradients) == 1 << 27 and not gradients._elements
    with pytest.raises(errors.InvalidArgumentError, match="index 134217728 but array is not resizeable"):
        array.write(1 << 27, np.zeros(0, np.float32))


def test_elements_that_were_never_written_are_read_once_each() -> None:
    array = TensorArray("a", float32, 2000, PartialTensorShape([2]))
    assert [value.tolist() for value in array.read_each([3, 1999])] == [[0, 0]] * 2
    for index in (3, 1999):
        with pytest.raises(errors.InvalidArgumentError, match="Could not read index"):
            array.read(index)
    assert array.read(4).tolist() == [0, 0]


def test_large_gradients_are_added_in_a_thread() -> None:
    built, _, _ = build(
        "TensorArrayWriteV3", [np.array(None, object), np.int32(0), np.zeros(1 << 20, np.float32), np.float32(0)]
    )
    array = TensorArray("g", float32, 1, PartialTensorShape(None), accumulates=True)
    context = SimpleNamespace()
    assert built.wants_context and built.may_be_abandoned

    async def on_the_loop() -> None:
        with pytest.raises(NeedsThreadError):
            built.compute(context, handle, np.int32(0), np.zeros(1 << 20, np.float32), np.float32(0))

    handle = np.array(None, object)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handles, "find_resource", lambda *_: array)
        asyncio.run(on_the_loop())
