"""The memory log: lines, their parser, and what a step writes."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import proto
from aexec.runtime import log_memory
from aexec.runtime.log_memory import SpecialStep


@pytest.fixture(autouse=True)
def _on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aexec.memory")


def messages(caplog: pytest.LogCaptureFixture, kind: type) -> list[Any]:
    parsed = [log_memory.parse(record.getMessage()) for record in caplog.records if record.name == "aexec.memory"]
    return [m for m in parsed if isinstance(m, kind)]


def test_a_line(caplog: pytest.LogCaptureFixture) -> None:
    log_memory.record_step(7, "x:0->y:0//0/;1")
    assert caplog.messages == ['__LOG_MEMORY__ MemoryLogStep { step_id: 7 handle: "x:0->y:0//0/;1" }']
    assert log_memory.parse("12:00 DEBUG " + caplog.messages[0]) == proto.MemoryLogStep(
        step_id=7, handle="x:0->y:0//0/;1"
    )


@pytest.mark.parametrize(
    "line", ["hello", "__LOG_MEMORY__ GraphDef {  }", "__LOG_MEMORY__ MemoryLogStep { what: 1 }", ""]
)
def test_other_lines_are_none(line: str) -> None:
    assert log_memory.parse(line) is None


def test_raw_memory(caplog: pytest.LogCaptureFixture) -> None:
    step = SpecialStep.KERNEL_CONSTRUCTION
    log_memory.record_raw_allocation(step, "table", 100, 4096, 3, "cpu")
    log_memory.record_raw_deallocation(step, "table", 3, "cpu", deferred=True)
    (taken,) = messages(caplog, proto.MemoryLogRawAllocation)
    (given,) = messages(caplog, proto.MemoryLogRawDeallocation)
    assert (taken.step_id, taken.num_bytes, taken.ptr) == (-2, 100, 4096)
    assert (given.allocation_id, given.deferred) == (3, True)


async def test_what_a_step_writes(caplog: pytest.LogCaptureFixture) -> None:
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


async def test_nothing_is_written_when_it_is_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "aexec.memory")
    with aexec.Graph() as graph:
        aexec.ops.square(aexec.placeholder("float32", [3], name="x"), name="y")
    async with aexec.Session(graph) as session:
        await session.run("y:0", {"x:0": np.ones(3, np.float32)})
    assert caplog.messages == []
