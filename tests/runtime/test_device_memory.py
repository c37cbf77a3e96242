"""Memory of devices other than the host: it counts in the step and its session, and in their limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.devices import device_registry
from aexec.framework import dtypes
from aexec.framework.shape import PartialTensorShape
from aexec.framework.types import DEVICE_GPU
from tests.support.programs.graphs import GraphBuilder
from tests.support.stand_ins.fake_cupy import fake_cupy, gpu_factory

MB = 1 << 20
F = dtypes.float32
X = np.ones(MB // 4, np.float32)  # 1 MiB
TASK = "/job:localhost/replica:0/task:0/device:"
# What alignment takes of an allocation.
SPARE = 1024
LARGE = 1 << 30

pytestmark = pytest.mark.parametrize("device", ["SIM:0", "GPU:0"])


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(device_registry._factories, "GPU", (DEVICE_GPU, gpu_factory(fake_cupy())))


def session(g: GraphBuilder, **limits: Any) -> aexec.Session:
    config = aexec.SessionConfig(device_count={"SIM": 2, "GPU": 1}, graph_passes=(), **limits)
    return aexec.Session(g.graph(), config=config)


def chain(device: str, count: int) -> GraphBuilder:
    """x → n0 → n1 → …, of which the last, `all`, needs every one."""
    g = GraphBuilder()
    g.placeholder("x")
    for i in range(count):
        g(f"n{i}", "Neg", f"n{i - 1}" if i else "x", device=f"/device:{device}", T=F)
    g("all", "AddN", *(f"n{i}" for i in range(count)), device=f"/device:{device}", T=F, N=count)
    return g


async def drained(opened: aexec.Session) -> int:
    """Bytes that count for a session when its devices have ended all work."""
    for each in opened.devices():
        await each.synchronise()
    in_use = opened.statistics().bytes_in_use
    assert in_use is not None
    return in_use


@pytest.mark.parametrize("limits", [{"step_bytes": 4 * MB + SPARE}, {"session_bytes": 4 * MB + SPARE}], ids=str)
async def test_allocation_beyond_a_limit_is_refused(device: str, limits: dict[str, int]) -> None:
    async with session(chain(device, 6), **limits) as opened:
        for _ in range(3):
            with pytest.raises(errors.ResourceExhaustedError) as caught:
                await opened.run("all:0", {"x:0": X})
            # When the copy of `x` is given back is the streams' business.
            assert caught.value.node in ("n2", "n3", "n4")
            text = caught.value.message
            assert f"exceed the {4 * MB + SPARE} of SessionConfig.{next(iter(limits))}" in text
            assert f"Current usage from device: {TASK}{device}, allocator: " in text
            assert "  1.00MiB from n0\n" in text and "  1.00MiB from n1\n" in text
            del caught
            assert await drained(opened) == 0
            assert await opened.run("all:0", {"x:0": X[:8]}) == pytest.approx(np.zeros(8))  # it goes on


async def test_memory_that_is_given_back_does_not_count(device: str) -> None:
    g = chain(device, 20)
    async with session(g, step_bytes=4 * MB) as opened:
        assert (await opened.run("n19:0", {"x:0": X})).sum() == X.size


@pytest.mark.parametrize("limits", [{}, {"session_bytes": LARGE}], ids=str)
async def test_peaks_are_told(device: str, limits: dict[str, int]) -> None:
    metadata = aexec.RunMetadata()
    options = None if limits else aexec.RunOptions(trace=True)
    async with session(chain(device, 4), **limits) as opened:
        await opened.run("all:0", {"x:0": X}, options=options, metadata=metadata)
    (name,) = metadata.device_peak_bytes
    assert name == TASK + device
    assert metadata.device_peak_bytes[name] == pytest.approx(6 * MB, abs=MB + 8 * SPARE)
    assert limits or (metadata.peak_bytes is not None and metadata.peak_bytes >= metadata.device_peak_bytes[name])


async def test_variables_count_for_the_session(device: str) -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g("v", "VarHandleOp", device=f"/device:{device}", dtype=F, shape=PartialTensorShape(None))
    g("assign", "AssignVariableOp", "v", "x", device=f"/device:{device}", dtype=F)
    g("read", "ReadVariableOp", "v", device=f"/device:{device}", dtype=F)
    g("more", "Neg", "read", device=f"/device:{device}", T=F)
    async with session(g, session_bytes=2 * MB + SPARE) as opened:
        await opened.run([], {"x:0": X}, targets=["assign"])
        assert MB <= await drained(opened) <= MB + SPARE
        assert (await opened.run("more:0"))[0] == -1
        with pytest.raises(errors.ResourceExhaustedError):
            await opened.run([], {"x:0": np.ones(MB // 2, np.float32)}, targets=["assign"])
        assert (await opened.run("read:0"))[0] == 1  # it is what it was
        await opened.run([], {"x:0": X[:4]}, targets=["assign"])
        assert await drained(opened) <= SPARE


async def test_values_fetched_to_a_device_do_not_count_in_the_session(device: str) -> None:
    there = {"n0:0": f"/device:{device}"}
    async with session(chain(device, 1), session_bytes=2 * MB + SPARE) as opened:
        held = [await opened.run("n0:0", {"x:0": X}, fetch_devices=there) for _ in range(4)]
        assert await drained(opened) <= MB + SPARE  # a GPU keeps the last until the copy for the caller is made
        assert (await opened.run("n0:0", {"x:0": held[0]}))[0] == 1


async def test_copies_between_devices_count_where_they_go(device: str) -> None:
    g = GraphBuilder()
    g.placeholder("x")
    g("here", "Neg", "x", device=f"/device:{device}", T=F)
    g("there", "Neg", "here", device="/device:SIM:1", T=F)
    metadata = aexec.RunMetadata()
    async with session(g, step_bytes=LARGE) as opened:
        await opened.run("there:0", {"x:0": X}, metadata=metadata)
    assert set(metadata.device_peak_bytes) == {TASK + device, f"{TASK}SIM:1"}
    assert metadata.device_peak_bytes[f"{TASK}SIM:1"] == pytest.approx(2 * MB, abs=MB + SPARE)
