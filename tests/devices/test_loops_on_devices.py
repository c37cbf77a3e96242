"""A loop whose state is on a device: the host gets its condition, and nothing else."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

import aexec
from aexec.devices import device_registry
from aexec.devices.cuda_device import CudaDevice
from aexec.devices.simulated_device import SimulatedDevice
from aexec.framework import dtypes
from aexec.framework.types import DEVICE_GPU
from tests.support.programs.graphs import counting_loop
from tests.support.stand_ins.fake_cupy import fake_cupy, gpu_factory


def watched(monkeypatch: pytest.MonkeyPatch, kind: type[Any]) -> list[Any]:
    """What the host gets of such devices: by copies, and as outputs of kernels."""
    got: list[Any] = []

    def note(value: Any) -> Any:
        if isinstance(value, Future):
            value.add_done_callback(lambda done: got.append(done.result()))
        return value

    copy_out, begin_work = kind.copy_out, kind.begin_work

    class Watched:
        def __init__(self, work: Any) -> None:
            self._work = work

        def enqueue(self, *call: Any) -> Any:
            return tuple(map(note, self._work.enqueue(*call)))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._work, name)

    monkeypatch.setattr(kind, "copy_out", lambda self, value, *, node: note(copy_out(self, value, node=node)))
    monkeypatch.setattr(kind, "begin_work", lambda self, on_error: Watched(begin_work(self, on_error)))
    return got


@pytest.mark.parametrize(("device", "kind"), [("SIM", SimulatedDevice), ("GPU", CudaDevice)])
@pytest.mark.parametrize("iterations", [0, 1, 7])
async def test_only_the_condition_is_read_back(
    monkeypatch: pytest.MonkeyPatch, device: str, kind: type[Any], iterations: int
) -> None:
    monkeypatch.setitem(device_registry._factories, "GPU", (DEVICE_GPU, gpu_factory(fake_cupy())))
    got = watched(monkeypatch, kind)
    graph = counting_loop(dtype=dtypes.float32, device=f"/device:{device}:0").graph()
    config = aexec.SessionConfig(device_count={"SIM": 1, "GPU": 1})
    async with aexec.Session(graph, config=config) as session:
        await session.run([], {"n:0": np.float32(iterations)}, targets=["result"])
        read_back, got[:] = [*got], []
        result = await session.run("result:0", {"n:0": np.float32(iterations)})
    assert [(value.dtype, bool(value)) for value in read_back] == [(np.dtype(bool), True)] * iterations + [
        (np.dtype(bool), False)
    ]
    assert float(result) == iterations
    assert len(got) == iterations + 2
