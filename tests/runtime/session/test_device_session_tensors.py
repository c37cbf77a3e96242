"""Session tensors in the memory of devices, where they stay between steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.devices import device_registry
from aexec.devices.cuda_device import CudaDevice
from aexec.devices.simulated_device import SimulatedDevice
from aexec.framework import dtypes
from aexec.framework.types import DEVICE_GPU
from tests.support.programs.graphs import GraphBuilder
from tests.support.stand_ins.fake_cupy import fake_cupy, gpu_factory

F = dtypes.float32
TASK = "/job:localhost/replica:0/task:0/device:"
pytestmark = pytest.mark.parametrize("device", ["SIM:0", "GPU:0"])


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was copied, by node, in either direction."""
    monkeypatch.setitem(device_registry._factories, "GPU", (DEVICE_GPU, gpu_factory(fake_cupy())))
    made: list[str] = []

    def noted(copy: Any) -> Any:
        def call(self: Any, value: Any, *, node: str) -> Any:
            made.append(node)
            return copy(self, value, node=node)

        return call

    for kind in (SimulatedDevice, CudaDevice):
        for name in ("copy_in", "copy_out"):
            monkeypatch.setattr(kind, name, noted(getattr(kind, name)))
    return made


def session(device: str, dtype: Any = F, **settings: Any) -> aexec.Session:
    """`h` keeps twice `x`; `get` is on the device and `home` on the host; `next` keeps `get` plus one."""
    there = f"/device:{device}"
    g = GraphBuilder()
    g.placeholder("x", dtype)
    g.placeholder("name", dtypes.string)
    g("double", "AddV2", "x", "x", device=there, T=dtype)
    g("h", "GetSessionHandle", "double", device=there, T=dtype)
    g("h2", "GetSessionHandleV2", "double", device=there, T=dtype)
    g("on_host", "GetSessionHandle", "x", device="/cpu:0", T=dtype)
    g("get", "GetSessionTensor", "name", device=there, dtype=dtype)
    g("get_int", "GetSessionTensor", "name", device=there, dtype=dtypes.int64)
    g("more", "Square", "get", device=there, T=dtype)
    g("next", "GetSessionHandle", "more", device=there, T=dtype)
    g("home", "GetSessionTensor", "name", device="/cpu:0", dtype=dtype)
    g("delete", "DeleteSessionTensor", "name", device="/cpu:0")
    config = aexec.SessionConfig(device_count={"SIM": 1, "GPU": 1}, graph_passes=(), **settings)
    return aexec.Session(g.graph(), config=config)


async def test_session_tensors_stay_on_their_device(device: str, copies: list[str]) -> None:
    async with session(device) as opened:
        handle = await opened.run("h:0", {"x:0": [1, 2]})
        assert handle == f"h;0;{TASK}{device}".encode()
        copies.clear()
        following = await opened.run("next:0", {"name:0": handle})
        assert not copies
        assert (await opened.run("get:0", {"name:0": following})).tolist() == [4, 16]
        assert (await opened.run("home:0", {"name:0": following})).tolist() == [4, 16]
        listed = [dataclasses.astuple(info) for info in opened.tensors.list()]
        assert listed == [(handle.decode(), F, (2,), 8), (following.decode(), F, (2,), 8)]
        assert opened.tensors.num_bytes == 16
        with pytest.raises(errors.FailedPreconditionError, match=f"in the memory of {TASK}{device}"):
            opened.tensors.get(handle)
        with pytest.raises(errors.InvalidArgumentError, match="type float does not match declared output type int64"):
            await opened.run("get_int:0", {"name:0": handle})
        await opened.run([], {"name:0": handle}, targets=["delete"])
        assert opened.tensors.num_bytes == 8
        with pytest.raises(errors.InvalidArgumentError, match="is not in the session store"):
            await opened.run("get:0", {"name:0": handle})


async def test_handles_are_fed_in_their_place(device: str, copies: list[str]) -> None:
    async with session(device) as opened:
        handle = await opened.run("h2:0", {"x:0": [1, 2]})
        copies.clear()
        again = await opened.run("h2:0", {"x:0": handle})
        assert not copies
        assert (await opened.run("double:0", {"x:0": again})).tolist() == [8, 16]


async def test_session_tensors_of_the_host_are_copied_to_the_device(device: str, copies: list[str]) -> None:
    async with session(device) as opened:
        handle = await opened.run("on_host:0", {"x:0": [1, 2]})
        assert (await opened.run("more:0", {"name:0": handle})).tolist() == [1, 4]
        mine = await opened.tensors.put(np.float32([3]))
        assert (await opened.run("more:0", {"name:0": mine.name})).tolist() == [9]


async def test_session_tensors_count_in_accounts_and_limits(device: str, copies: list[str]) -> None:
    mebibyte = np.ones(1 << 18, np.float32)
    async with session(device, session_tensor_bytes=3 << 20, session_bytes=1 << 30) as opened:
        for count in range(1, 4):
            await opened.run("h:0", {"x:0": mebibyte})
            for each in opened.devices():
                await each.synchronise()
            in_use = opened.statistics().bytes_in_use
            assert opened.tensors.num_bytes == count << 20
            assert in_use is not None and count << 20 <= in_use <= (count << 20) + 4096
        with pytest.raises(errors.ResourceExhaustedError, match="The session's tensors take 3145728 bytes"):
            await opened.run("h:0", {"x:0": mebibyte})
        assert len(opened.tensors) == 3


async def test_session_tensor_that_could_not_be_made_is_not_kept(device: str, copies: list[str]) -> None:
    async with session(device, session_bytes=1 << 20) as opened:
        with pytest.raises(errors.ResourceExhaustedError):
            await opened.run("h:0", {"x:0": np.ones(1 << 19, np.float32)})
        assert len(opened.tensors) == 0
        assert await opened.run("h:0", {"x:0": [1]})
