"""Copies between memories in traces: rows, times on streams, and estimates of the cost model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import proto
from aexec.devices import device_registry
from aexec.devices.cuda_device import CudaDevice
from aexec.devices.simulated_device import simulated_devices
from aexec.devices.simulated_faults import SimulatedTiming
from aexec.framework.types import DEVICE_GPU
from aexec.runtime.profiling.trace_summary import profile_trace, trace_facts
from tests.support.stand_ins.fake_cupy import fake_cupy

TRACED = aexec.RunOptions(trace=True, cost_graph=True)


def graph_on(*devices: str) -> aexec.Graph:
    """A value that goes from device to device."""
    with aexec.Graph() as graph:
        y = aexec.placeholder("float32", [None], name="x")
        for number, device in enumerate(devices):
            with aexec.device(device):
                y = aexec.ops.neg(y, name=f"y{number}")
    return graph


@contextmanager
def devices(kind: str, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.0) -> Iterator[None]:
    if kind == "GPU":
        cupy = fake_cupy(2)

        def make(task: str, count: int | None) -> list[CudaDevice]:
            return [CudaDevice(f"{task}/device:GPU:{i}", i, cupy=cupy) for i in range(count or 0)]

        monkeypatch.setitem(device_registry._factories, "GPU", (DEVICE_GPU, make))
        yield
    else:
        with simulated_devices(timing=SimulatedTiming(copy_seconds=seconds)):
            yield


def copies_of(stats: proto.StepStats) -> dict[tuple[str, str], tuple[str, int, int]]:
    """Device and kind → stream, nanoseconds and bytes."""
    return {
        (device.device.rpartition(":")[2], run.timeline_label.rpartition(":")[2]): (
            device.thread_names[run.thread_id],
            run.all_end_rel_nanos,
            run.memory[0].total_bytes,
        )
        for device in stats.dev_stats
        if device.device.endswith("/memcpy")
        for run in device.node_stats
    }


@pytest.mark.parametrize("kind", ["SIM", "GPU"])
async def test_copies_are_in_the_statistics_with_their_time_on_the_stream(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = aexec.RunMetadata()
    graph = graph_on(f"/device:{kind}:0", f"/device:{kind}:1")
    with devices(kind, monkeypatch):
        async with aexec.Session(graph, config=aexec.SessionConfig(device_count={kind: 2})) as session:
            fed = {"x:0": np.ones(1000, np.float32)}
            await session.run("y1:0", fed, options=TRACED, metadata=metadata)
            costs = session.cost_model
    copies = copies_of(metadata.step_stats)
    assert {key: (stream, size) for key, (stream, _, size) in copies.items()} == {
        ("0/memcpy", "MEMCPYHtoD"): (f"aexec-{kind}:0 host-to-device stream", 4000),
        ("1/memcpy", "MEMCPYPtoP"): (f"aexec-{kind}:1 host-to-device stream", 4000),
        ("1/memcpy", "MEMCPYDtoH"): (f"aexec-{kind}:1 device-to-host stream", 4000),
    }
    assert costs is not None
    assert costs.copies.count == 3
    # What a receive costs is what its copy took, not what the host did for it.
    named = {node.name: node for node in metadata.cost_graph.node}
    for device in metadata.step_stats.dev_stats:
        for run in device.node_stats if device.device.endswith("/memcpy") else ():
            node = named[run.node_name.partition(":")[0]]
            assert node.compute_cost == math.ceil(run.all_end_rel_nanos / 1e3)


async def test_simulated_copy_takes_the_configured_time(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = aexec.RunMetadata()
    with devices("SIM", monkeypatch, 0.002):
        async with aexec.Session(graph_on("/device:SIM:0"), config=aexec.SessionConfig(device_count={"SIM": 1})) as s:
            await s.run("y0:0", {"x:0": [1.0]}, options=TRACED, metadata=metadata)
    assert all(nanos >= 2_000_000 for _, nanos, _ in copies_of(metadata.step_stats).values())


async def test_rows_of_copies_are_below_those_of_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = aexec.RunMetadata()
    with devices("SIM", monkeypatch):
        async with aexec.Session(graph_on("/device:SIM:0"), config=aexec.SessionConfig(device_count={"SIM": 1})) as s:
            await s.run("y0:0", {"x:0": [1.0]}, options=TRACED, metadata=metadata)
    trace = metadata.chrome_trace(show_memory=True)
    events = trace["traceEvents"]
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    copies = [e for e in events if e["ph"] == "X" and e["cat"] == "Copy"]
    assert {e["name"]: rows[e["pid"], e["tid"]] for e in copies} == {
        "MEMCPYHtoD": "aexec-SIM:0 host-to-device stream",
        "MEMCPYDtoH": "aexec-SIM:0 device-to-host stream",
    }
    assert {processes[e["pid"]].rpartition("device:")[2] for e in copies} == {"SIM:0 Compute"}
    assert len(rows) == len({(pid, tid) for pid, tid in rows})
    assert " and 2 copies on 2 devices" in trace_facts(trace)
    summary = {entry.name: entry for entry in profile_trace(trace).entries}
    assert dict(summary["MEMCPYHtoD"].where) == {"stream": 1}
    assert summary["MEMCPYDtoH"].requested_bytes == 4
    assert {entry.name for entry in metadata.profile().entries} == set(summary)


async def test_copy_of_a_fetch_to_another_device_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = aexec.RunMetadata()
    there = {"y0:0": "/device:SIM:1"}
    with devices("SIM", monkeypatch):
        async with aexec.Session(graph_on("/device:SIM:0"), config=aexec.SessionConfig(device_count={"SIM": 2})) as s:
            await s.run("y0:0", {"x:0": [1.0]}, options=TRACED, metadata=metadata, fetch_devices=there)
    assert set(copies_of(metadata.step_stats)) == {("0/memcpy", "MEMCPYHtoD"), ("1/memcpy", "MEMCPYPtoP")}


async def test_copies_of_untraced_runs_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr("aexec.runtime.profiling.tracing.Tracer.copied", lambda *of: told.append(of))
    with devices("SIM", monkeypatch):
        async with aexec.Session(graph_on("/device:SIM:0"), config=aexec.SessionConfig(device_count={"SIM": 1})) as s:
            await s.run("y0:0", {"x:0": [1.0]}, options=TRACED)
            assert len(told) == 2
            await s.run("y0:0", {"x:0": [1.0]})
            assert len(told) == 2


async def test_large_copies_through_pieces_are_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata, size = aexec.RunMetadata(), (9 << 20) // 4
    with devices("GPU", monkeypatch):
        async with aexec.Session(graph_on("/device:GPU:0"), config=aexec.SessionConfig(device_count={"GPU": 1})) as s:
            await s.run("y0:0", {"x:0": np.ones(size, np.float32)}, options=TRACED, metadata=metadata)
    copies = copies_of(metadata.step_stats)
    assert [copies["0/memcpy", kind][2] for kind in ("MEMCPYHtoD", "MEMCPYDtoH")] == [4 * size] * 2


async def test_memory_of_a_gpu_kernel_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = aexec.RunMetadata()
    with aexec.Graph() as graph, aexec.device("/device:GPU:0"):
        aexec.ops.log_softmax(aexec.placeholder("float32", [None, None], name="x"), name="y")
    with devices("GPU", monkeypatch):
        async with aexec.Session(graph, config=aexec.SessionConfig(device_count={"GPU": 1})) as s:
            fed = {"x:0": np.ones((64, 64), np.float32)}
            await s.run("y:0", fed, options=TRACED, metadata=metadata)
    (stats,) = [run for d in metadata.step_stats.dev_stats for run in d.node_stats if run.node_name == "y"]
    (used,) = stats.memory
    size = 64 * 64 * 4
    assert used.allocator_name.endswith("GPU:0")
    assert used.total_bytes >= used.peak_bytes > used.live_bytes >= size
    assert stats.memory_stats.temp_memory_size == used.peak_bytes - used.live_bytes
