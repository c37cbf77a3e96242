"""The memory log: lines, their parser, and what a step writes."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import proto
from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import OpKernel, OpKernelConstruction, OpKernelContext
from aexec.framework.memory import log_memory
from aexec.framework.memory.allocator import cpu_allocator
from aexec.framework.memory.log_memory import SpecialStep
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.wire.tensor_codec import from_proto


@pytest.fixture(autouse=True)
def _on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aexec.memory")


def messages(caplog: pytest.LogCaptureFixture, kind: type) -> list[Any]:
    parsed = [log_memory.parse(record.getMessage()) for record in caplog.records if record.name == "aexec.memory"]
    return [m for m in parsed if isinstance(m, kind)]


def test_line(caplog: pytest.LogCaptureFixture) -> None:
    log_memory.record_step(7, "x:0->y:0//0/;1")
    assert caplog.messages == ['__LOG_MEMORY__ MemoryLogStep { step_id: 7 handle: "x:0->y:0//0/;1" }']
    assert log_memory.parse("12:00 DEBUG " + caplog.messages[0]) == proto.MemoryLogStep(
        step_id=7, handle="x:0->y:0//0/;1"
    )


@pytest.mark.parametrize(
    "line", ["hello", "__LOG_MEMORY__ GraphDef {  }", "__LOG_MEMORY__ MemoryLogStep { what: 1 }", ""]
)
def test_other_lines_are_not_parsed(line: str) -> None:
    assert log_memory.parse(line) is None


def test_raw_memory(caplog: pytest.LogCaptureFixture) -> None:
    step = SpecialStep.KERNEL_CONSTRUCTION
    log_memory.record_raw_allocation(step, "table", 100, 4096, 3, "cpu")
    log_memory.record_raw_deallocation(step, "table", 3, "cpu", deferred=True)
    (taken,) = messages(caplog, proto.MemoryLogRawAllocation)
    (given,) = messages(caplog, proto.MemoryLogRawDeallocation)
    assert (taken.step_id, taken.num_bytes, taken.ptr) == (-2, 100, 4096)
    assert (given.allocation_id, given.deferred) == (3, True)


async def test_log_of_a_step(caplog: pytest.LogCaptureFixture) -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [3], name="x")
        aexec.ops.square(aexec.ops.neg(x, name="n"), name="y")
    async with aexec.Session(graph) as session:
        step = session.start("y:0", {"x:0": np.ones(3, np.float32)})
        out = await step
    (began,) = messages(caplog, proto.MemoryLogStep)
    assert (began.step_id, began.handle) == (step.id, "x:0->y:0//0/;1")
    made = {m.kernel_name: m.tensor for m in messages(caplog, proto.MemoryLogTensorAllocation)}
    outputs = {m.kernel_name: m for m in messages(caplog, proto.MemoryLogTensorOutput)}
    assert set(made) == set(outputs) == {"n", "y"}
    assert outputs["y"].tensor.allocation_description.requested_bytes == 12
    freed = [m.allocation_id for m in messages(caplog, proto.MemoryLogTensorDeallocation)]
    assert freed == [made["n"].allocation_description.allocation_id]
    del out, step
    freed = [m.allocation_id for m in messages(caplog, proto.MemoryLogTensorDeallocation)]
    assert freed[1:] == [made["y"].allocation_description.allocation_id]


@pytest.mark.parametrize(
    ("logger", "level"), [("aexec.memory", logging.WARNING), ("", logging.DEBUG), ("aexec", logging.DEBUG)]
)
async def test_disabled_log_writes_nothing(logger: str, level: int, caplog: pytest.LogCaptureFixture) -> None:
    """A program that debugs something else must not become many times slower: this logger itself has to be told."""
    caplog.set_level(logging.NOTSET, "aexec.memory")
    caplog.set_level(level, logger)
    with aexec.Graph() as graph:
        aexec.ops.square(aexec.placeholder("float32", [3], name="x"), name="y")
    async with aexec.Session(graph) as session:
        await session.run("y:0", {"x:0": np.ones(3, np.float32)})
    assert [record for record in caplog.records if record.name == "aexec.memory"] == []


register_op("TestLogKernel(x: float) -> y: float")
register_op("TestLogRaw(x: float) -> y: float")


@kernel("TestLogKernel", cost=0)
class _WithMemory(OpKernel):
    """Has memory from its construction, scratch memory, and an output that it allocates."""

    def __init__(self, c: OpKernelConstruction) -> None:
        super().__init__(c)
        self.kept = c.allocate_persistent(dtypes.float32, [5])

    def compute(self, context: OpKernelContext) -> None:
        context.allocate_temp("float32", [7])
        context.allocate_output(0, context.input(0).shape)[:] = context.input(0)


@kernel("TestLogRaw", cost=0)
class _WithRawMemory(OpKernel):
    def compute(self, context: OpKernelContext) -> None:
        context.allocator.allocate(100)
        context.set_output(0, context.input(0) + 1)


async def run(op: str, caplog: pytest.LogCaptureFixture, value: Any = None) -> int:
    """Run one op, and close its session; the step's number."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [3], name="x")
        getattr(aexec.ops, op)(x, name="y")
    async with aexec.Session(graph) as session:
        step = session.start("y:0", {"x:0": np.ones(3, np.float32) if value is None else value})
        await step
        return step.id


async def test_allocations_of_a_kernel_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    step_id = await run("test_log_kernel", caplog)
    made = messages(caplog, proto.MemoryLogTensorAllocation)
    assert [(m.step_id, m.kernel_name, m.tensor.shape.dim[0].size) for m in made] == [
        (SpecialStep.KERNEL_CONSTRUCTION, "y", 5),
        (step_id, "y", 7),
        (step_id, "y", 3),
    ]
    allocations = [m.tensor.allocation_description for m in made]
    assert [a.requested_bytes for a in allocations] == [20, 28, 12]
    assert all(a.allocated_bytes == a.requested_bytes + 64 and a.ptr % 64 == 0 for a in allocations)
    assert all(a.has_single_reference and a.allocator_name == "cpu" for a in allocations)
    (out,) = messages(caplog, proto.MemoryLogTensorOutput)
    assert out.tensor.allocation_description.allocation_id == allocations[2].allocation_id
    freed = [m.allocation_id for m in messages(caplog, proto.MemoryLogTensorDeallocation)]
    assert freed[0] == allocations[1].allocation_id
    assert allocations[2].allocation_id in freed


async def test_raw_memory_of_a_kernel(caplog: pytest.LogCaptureFixture) -> None:
    step_id = await run("test_log_raw", caplog)
    (taken,) = messages(caplog, proto.MemoryLogRawAllocation)
    (given,) = messages(caplog, proto.MemoryLogRawDeallocation)
    assert (taken.step_id, taken.operation, taken.num_bytes, taken.ptr % 64) == (step_id, "y", 100, 0)
    assert (given.step_id, given.operation, given.allocation_id) == (step_id, "y", taken.allocation_id)
    assert not given.deferred


async def test_output_that_is_an_input_has_more_than_one_reference(caplog: pytest.LogCaptureFixture) -> None:
    await run("identity", caplog)
    (out,) = messages(caplog, proto.MemoryLogTensorOutput)
    assert not out.tensor.allocation_description.has_single_reference
    caplog.clear()
    await run("neg", caplog)
    (out,) = messages(caplog, proto.MemoryLogTensorOutput)
    assert out.tensor.allocation_description.has_single_reference


async def test_constant_folding(caplog: pytest.LogCaptureFixture) -> None:
    with aexec.Graph() as graph:
        two = aexec.ops.add_v2(aexec.constant([1.0, 2.0]), aexec.constant([3.0, 4.0]), name="folded")
        aexec.ops.mul(aexec.placeholder("float32", [2], name="x"), two, name="y")
    async with aexec.Session(graph) as session:
        await session.run("y:0", {"x:0": np.ones(2, np.float32)})
    folded = [m for m in messages(caplog, proto.MemoryLogTensorAllocation) if m.step_id == SpecialStep.CONSTANT_FOLDING]
    assert [(m.kernel_name, m.tensor.allocation_description.requested_bytes) for m in folded] == [("folded", 8)]


async def test_fed_and_kept_values_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    await run("neg", caplog, value=[1, 2, 3])
    (fed,) = messages(caplog, proto.MemoryLogRawAllocation)
    assert (fed.step_id, fed.operation, fed.num_bytes) == (SpecialStep.EXTERNAL_ALLOCATION, "feed x:0", 12)
    (freed,) = messages(caplog, proto.MemoryLogRawDeallocation)
    assert freed.allocation_id == fed.allocation_id
    caplog.clear()
    async with aexec.Session(aexec.Graph()) as session:
        await session.tensors.put(np.ones(3, np.float32), "kept")
    (put,) = messages(caplog, proto.MemoryLogRawAllocation)
    assert (put.step_id, put.num_bytes) == (SpecialStep.EXTERNAL_ALLOCATION, 12)
    assert put.operation.startswith("kept;0;")
    assert len(messages(caplog, proto.MemoryLogRawDeallocation)) == 1


def test_tensor_read_from_a_message(caplog: pytest.LogCaptureFixture) -> None:
    array = from_proto(proto.TensorProto(dtype=1, float_val=[1, 2], tensor_shape={"dim": [{"size": 2}]}))
    (made,) = messages(caplog, proto.MemoryLogTensorAllocation)
    assert (made.step_id, made.tensor.allocation_description.requested_bytes) == (
        SpecialStep.PROTO_BUFFER,
        array.nbytes,
    )


def test_buffer_of_the_network(caplog: pytest.LogCaptureFixture) -> None:
    number = log_memory.record_network_buffer("body", b"12345")
    log_memory.record_network_buffer_freed("body", number)
    (taken,) = messages(caplog, proto.MemoryLogRawAllocation)
    (given,) = messages(caplog, proto.MemoryLogRawDeallocation)
    assert (taken.step_id, taken.num_bytes) == (SpecialStep.NETWORK_BUFFER, 5)
    assert (given.step_id, given.allocation_id) == (SpecialStep.NETWORK_BUFFER, taken.allocation_id)


def test_allocation_outside_of_steps_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    array = cpu_allocator().allocate_tensor([2], dtypes.float32)
    (made,) = messages(caplog, proto.MemoryLogTensorAllocation)
    assert (made.step_id, made.kernel_name) == (SpecialStep.UNKNOWN, "Unknown")
    del array
    assert len(messages(caplog, proto.MemoryLogTensorDeallocation)) == 1


async def test_sessions_config_turns_it_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aexec.memory")
    with aexec.Graph() as graph:
        aexec.ops.square(aexec.placeholder("float32", [3], name="x"), name="y")
    async with aexec.Session(graph, config=aexec.SessionConfig(log_memory=True)) as session:
        for _ in range(5):  # a compiled plan is left to the interpreter
            await session.run("y:0", {"x:0": np.ones(3, np.float32)})
        assert len(messages(caplog, proto.MemoryLogTensorOutput)) == 5
    assert {record.levelno for record in caplog.records if record.name == "aexec.memory"} == {logging.INFO}
    assert not log_memory.is_enabled()
    caplog.clear()
    async with aexec.Session(graph) as session:
        await session.run("y:0", {"x:0": np.ones(3, np.float32)})
    assert caplog.messages == []
