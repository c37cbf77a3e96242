"""The host as a device: nothing is queued and nothing is copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aexec.devices.cpu_device import CpuDevice
from aexec.framework.device_contract.device import copy_between
from aexec.framework.device_contract.queued_kernel import QueuedKernel
from aexec.framework.dtypes import int32

CPU = CpuDevice("/job:localhost/replica:0/task:0/device:CPU:0")
OTHER = CpuDevice("/job:localhost/replica:0/task:0/device:CPU:1")


def _not_told(_kernel: QueuedKernel, error: BaseException) -> None:
    raise AssertionError(error)


def test_values_are_the_hosts_own_arrays() -> None:
    x = np.ones(3)
    assert CPU.copy_in(x, node="n") is x
    assert CPU.copy_out(x, node="n").result(0) is x
    assert copy_between(CPU, x, OTHER, node="n") is x
    assert CPU.to_proto().device_type == "CPU"
    assert CPU.stats().bytes_limit is None


@pytest.mark.parametrize(("result", "outputs"), [(None, ()), (3, (3,)), ((1, 2), (1, 2))])
async def test_kernel_is_called_at_once(result: Any, outputs: tuple[Any, ...]) -> None:
    work = CPU.begin_work(_not_told)
    kernel = QueuedKernel("n", "N", lambda x: result, [int32] * len(outputs))
    assert work.enqueue(kernel, [np.ones(1)]) == outputs
    passed: list[str] = []
    work.record_event().when_done(lambda: passed.append("work"))
    CPU.record_event().when_done(lambda: passed.append("device"))
    assert passed == ["work", "device"]
    work.stop()
    await CPU.close()


def test_kernel_exception_is_raised() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        CPU.begin_work(_not_told).enqueue(QueuedKernel("n", "N", fail, []), [])
