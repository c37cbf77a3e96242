"""Kernels written as classes: inputs, outputs, forwarding; what a construction tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import OpKernel, OpKernelConstruction, OpKernelContext
from aexec.framework.memory import allocator as allocators
from aexec.framework.memory.allocator import CpuAllocator
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.types import MemoryType

forwarded: list[bool] = []
constructions: list[OpKernelConstruction] = []

register_op("CallAddOne(x: float, shape: int32) -> y: float")
register_op("CallLists(xs: N * float, s: string) -> ys: N * float, total: float", "N: int")


@kernel("CallAddOne", host_memory=("shape",), cost=0)
class AddOne(OpKernel):
    def __init__(self, c: OpKernelConstruction) -> None:
        super().__init__(c)
        constructions.append(c)

    def compute(self, call: OpKernelContext) -> None:
        x = call.input("x")
        shape = x.shape
        del x
        out = call.forward_input_or_allocate_output([0], 0, shape)
        forwarded.append(out is call.input(0))
        np.add(call.input(0), 1, out=out)


register_op("CallScratch(x: float) -> y: float")


@kernel("CallScratch")
class Scratch(OpKernel):
    def compute(self, call: OpKernelContext) -> None:
        scratch = call.allocate_temp("float32", (1000,))
        out = call.allocate_output(0, (10,))
        out[:] = call.input(0) + scratch.size
        del scratch


async def test_traced_step_tells_what_its_kernels_allocated() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [10], name="x")
        aexec.ops.call_scratch(x, name="y")
    metadata = aexec.RunMetadata()
    async with aexec.Session(graph) as session:
        out = await session.run("y:0", {"x:0": np.zeros(10)}, options=aexec.RunOptions(trace=True), metadata=metadata)
    assert out.tolist() == [1000] * 10
    assert metadata.step_stats is not None
    nodes = {node.node_name: node for device in metadata.step_stats.dev_stats for node in device.node_stats}
    (memory,) = nodes["y"].memory
    assert (memory.allocator_name, memory.total_bytes, memory.peak_bytes) == ("cpu", 4040, 4040)
    assert memory.live_bytes == 40


register_op("CallKeeping(x: float) -> y: float")


@kernel("CallKeeping", cost=0)
class Keeping(OpKernel):
    """Keeps an array between its calls, and tells of the context."""

    kept: Any = None
    seen: dict[str, Any] = {}  # noqa: RUF012 - of all instances

    def compute(self, call: OpKernelContext) -> None:
        if self.kept is None:
            self.kept = call.allocate_persistent("float64", [4])
        call.allocate_temp("float32", [3])
        used = call.wrapped_allocators
        self.seen.update(device=call.device, used=sorted(used), collector=call.stats_collector)
        call.set_output(0, call.input(0))


register_op("CallFailing(x: float) -> y: float")


@kernel("CallFailing", cost=0)
class Failing(OpKernel):
    """Reports two errors."""

    def compute(self, call: OpKernelContext) -> None:
        assert call.status is None
        call.ctx_failure(errors.OutOfRangeError("the first"))
        call.ctx_failure(errors.InternalError("the second"))
        assert str(call.status).startswith("the first")
        call.set_output(0, call.input(0))


register_op("CallUnfit(x: float) -> y: float")


@kernel("CallUnfit", cost=0)
def unfit(c: OpKernelConstruction) -> Any:
    c.ctx_failure(errors.UnimplementedError("not for such nodes"))
    c.ctx_failure(errors.InternalError("nor this"))
    return lambda x: x


async def test_kept_and_temporary_memory_are_told_apart() -> None:
    def stats(metadata: aexec.RunMetadata) -> Any:
        assert metadata.step_stats is not None
        return next(n for d in metadata.step_stats.dev_stats for n in d.node_stats if n.node_name == "y").memory_stats

    with aexec.Graph() as graph:
        aexec.ops.call_keeping(aexec.placeholder("float32", [10], name="x"), name="y")
    first, second = aexec.RunMetadata(), aexec.RunMetadata()
    async with aexec.Session(graph) as session:
        await session.run("y:0", {"x:0": np.zeros(10)}, options=aexec.RunOptions(trace=True), metadata=first)
        assert Keeping.seen["used"] == ["cpu"]
        assert Keeping.seen["device"].endswith("/device:CPU:0")
        assert Keeping.seen["collector"] is not None
        await session.run("y:0", {"x:0": np.zeros(10)}, options=aexec.RunOptions(trace=True), metadata=second)
    assert (stats(first).temp_memory_size, stats(first).persistent_memory_size) == (12, 32)
    assert len(stats(first).persistent_tensor_alloc_ids) == 1
    assert (stats(second).temp_memory_size, stats(second).persistent_memory_size) == (12, 0)


async def test_first_error_that_a_call_reports_is_the_nodes() -> None:
    def build() -> Any:
        return aexec.ops.call_failing(aexec.placeholder("float32", [1], name="x"), name="y")

    with pytest.raises(errors.OutOfRangeError, match="the first") as caught:
        await run(build, {"x:0": [1]})
    assert caught.value.node == "y"


async def test_first_error_that_a_builder_reports_is_the_nodes() -> None:
    def build() -> Any:
        return aexec.ops.call_unfit(aexec.placeholder("float32", [1], name="x"), name="y")

    with pytest.raises(errors.UnimplementedError, match="not for such nodes"):
        await run(build, {"x:0": [1]})


async def test_out_of_memory_names_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocators, "_makers", {"small": (0, lambda: CpuAllocator("small", limit_bytes=10))})
    monkeypatch.setattr(allocators, "_made", {})

    def build() -> Any:
        return aexec.ops.call_scratch(aexec.placeholder("float32", [10], name="x"), name="y")

    with pytest.raises(
        errors.ResourceExhaustedError,
        match=r"shape\[1000\] and type float on /job:localhost.*/device:CPU:0 by allocator small",
    ):
        await run(build, {"x:0": np.zeros(10)})


@kernel("CallLists", cost=0)
class Lists(OpKernel):
    def compute(self, call: OpKernelContext) -> None:
        call.validate_inputs_are_same_shape() if call.num_inputs < 2 else None
        xs = call.input_list("xs")
        call.output_list("ys", [x * 2 for x in xs])
        call.set_output("total", np.float32(sum(float(x) for x in xs)))
        with pytest.raises(errors.InvalidArgumentError, match="list-valued input name 'xs'"):
            call.input("xs")
        with pytest.raises(errors.InvalidArgumentError, match="Unknown output name: nope"):
            call.set_output("nope", 1)
        with pytest.raises(errors.InvalidArgumentError, match="expects a ref type"):
            call.mutable_input(0)


async def run(build: Any, feeds: Any) -> Any:
    with aexec.Graph() as graph:
        fetch = build()
    async with aexec.Session(graph) as session:
        return await session.run(fetch, feeds)


@pytest.fixture(autouse=True)
def nothing_forwarded_yet() -> None:
    forwarded.clear()


async def test_input_that_nobody_else_has_is_forwarded() -> None:
    def build() -> Any:
        x = aexec.placeholder("float32", [3], name="x")
        return aexec.ops.call_add_one(aexec.ops.square(x), [3])

    np.testing.assert_array_equal(await run(build, {"x:0": [1, 2, 3]}), [2, 5, 10])
    assert forwarded == [True]


async def test_fed_array_is_never_forwarded() -> None:
    fed = np.array([1, 2, 3], np.float32)

    def build() -> Any:
        return aexec.ops.call_add_one(aexec.placeholder("float32", [3], name="x"), [3])

    np.testing.assert_array_equal(await run(build, {"x:0": fed}), [2, 3, 4])
    assert forwarded == [False]
    np.testing.assert_array_equal(fed, [1, 2, 3])


async def test_array_with_two_consumers_is_forwarded_to_the_last_at_most() -> None:
    def build() -> Any:
        square = aexec.ops.square(aexec.placeholder("float32", [2], name="x"))
        return [aexec.ops.call_add_one(square, [2]), aexec.ops.call_add_one(square, [2]), square]

    one, two, square = await run(build, {"x:0": [1, 2]})
    np.testing.assert_array_equal(one, [2, 5])
    np.testing.assert_array_equal(two, [2, 5])
    np.testing.assert_array_equal(square, [1, 4])


async def test_constant_is_never_forwarded() -> None:
    def build() -> Any:
        return aexec.ops.call_add_one(aexec.constant([1.0, 2.0]), [2])

    np.testing.assert_array_equal(await run(build, {}), [2, 3])
    assert forwarded == [False]


async def test_lists_and_names() -> None:
    def build() -> Any:
        ys, total = aexec.ops.call_lists([aexec.constant(1.0), aexec.constant(2.0)], b"s")
        return [*ys, total]

    assert await run(build, {}) == [2, 4, 3]


async def test_construction_has_ranges_and_signature_checks() -> None:
    def build() -> Any:
        return aexec.ops.call_add_one(aexec.constant([1.0]), [1], name="one")

    await run(build, {})
    c = constructions[-1]
    assert c.device_type == "CPU"
    assert c.input_memory_types == (MemoryType.DEVICE_MEMORY, MemoryType.HOST_MEMORY)
    assert c.output_memory_types == (MemoryType.DEVICE_MEMORY,)
    assert (c.node_def.name, c.node_def.op) == ("one", "CallAddOne")
    assert c.allocate_temp(dtypes.float64, [2, 3]).shape == (2, 3)
    assert c.allocate_persistent(dtypes.int32, []).dtype == np.int32
    assert c.allocator.name == "cpu"
    assert c.status is None
    assert c.input_range("shape") == (1, 2)
    with pytest.raises(errors.InvalidArgumentError, match="Signature mismatch, have: float, int32->float"):
        c.match_signature([dtypes.float32], [dtypes.float32])
