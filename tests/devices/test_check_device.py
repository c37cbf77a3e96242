"""The suite of devices, on those that there are; and that it finds what is wrong with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import count
from typing import Any, ClassVar

import numpy as np
import pytest

from aexec import errors
from aexec.devices.check_device import CHECKS, Check, check_device
from aexec.devices.cpu_device import CpuDevice
from aexec.devices.simulated_device import SimulatedDevice
from aexec.devices.stream_checker import StreamChecker
from aexec.framework.device_contract.device import Device, DeviceEvent, OnError, QueuedWork
from aexec.framework.device_contract.queued_kernel import QueuedKernel

TASK = "/job:localhost/replica:0/task:0"


def cpus() -> Callable[[], Device]:
    numbers = count()
    return lambda: CpuDevice(f"{TASK}/device:CPU:{next(numbers)}")


def simulated(kind: type[SimulatedDevice] = SimulatedDevice) -> Callable[[], Device]:
    numbers, checker = count(), StreamChecker()
    return lambda: kind(f"{TASK}/device:SIM:{next(numbers)}", checker, memory_limit=1 << 20)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("make", [cpus, simulated])
async def test_devices_do_what_they_promise(make: Callable[[], Callable[[], Device]], check: Check) -> None:
    await check(make())


# Devices with something wrong, and the check that says so


class Renamed(CpuDevice):
    def __init__(self, _name: str) -> None:
        super().__init__("/device:CPU:0")


class LosesTypes(CpuDevice):
    def copy_out(self, value: Any, *, node: str) -> Future[Any]:
        return super().copy_out(np.asarray(value, np.float64), node=node)


class TakesStrings(SimulatedDevice):
    def copy_in(self, array: Any, *, node: str) -> Any:
        return super().copy_in(np.zeros(2) if array.dtype == object else array, node=node)


class _Wrapped(QueuedWork):
    def __init__(self, work: QueuedWork) -> None:
        self.work = work

    def enqueue(self, kernel: QueuedKernel, arguments: Sequence[Any]) -> tuple[Any, ...]:
        return self.work.enqueue(kernel, arguments)

    def stop(self) -> None:
        self.work.stop()

    def record_event(self) -> DeviceEvent:
        return self.work.record_event()


class TellsTwice(SimulatedDevice):
    def begin_work(self, on_error: OnError) -> QueuedWork:
        def twice(kernel: QueuedKernel, error: BaseException) -> None:
            on_error(kernel, error)
            on_error(kernel, error)

        return super().begin_work(twice)


class _StopsAll(_Wrapped):
    others: ClassVar[list[QueuedWork]] = []

    def stop(self) -> None:
        for work in self.others:
            work.stop()


class StopsAll(SimulatedDevice):
    def begin_work(self, on_error: OnError) -> QueuedWork:
        work = _StopsAll(super().begin_work(on_error))
        work.others.append(work.work)
        return work


class KeepsMemory(SimulatedDevice):
    kept: ClassVar[list[Any]] = []

    def copy_in(self, array: Any, *, node: str) -> Any:
        self.kept.append(super().copy_in(array, node=node))
        return self.kept[-1]


class _Forgets(_Wrapped):
    def enqueue(self, kernel: QueuedKernel, arguments: Sequence[Any]) -> tuple[Any, ...]:
        outputs = super().enqueue(kernel, arguments)
        return outputs[:1]


class GivesOneOutput(CpuDevice):
    def begin_work(self, on_error: OnError) -> QueuedWork:
        return _Forgets(super().begin_work(on_error))


class HandsOutAnother(SimulatedDevice):
    def hand_out(self, value: Any, *, node: str) -> Future[Callable[[], Any]]:
        return super().hand_out(self.copy_in(np.zeros(2, np.float32), node=node), node=node)


class HoldsAnything(SimulatedDevice):
    def holds(self, value: Any) -> bool:
        return True


@pytest.mark.parametrize(
    ("kind", "found_by"),
    [
        (Renamed, "says_what_it_is"),
        (LosesTypes, "copies_are_true"),
        (TakesStrings, "strings_stay_on_the_host"),
        (TellsTwice, "a_failure_is_told_once"),
        (StopsAll, "works_stand_alone"),
        (KeepsMemory, "memory_is_given_back"),
        (HandsOutAnother, "what_users_hold_leaves_and_enters"),
        (HoldsAnything, "what_users_hold_leaves_and_enters"),
        (GivesOneOutput, "outputs_are_as_many_as_there_are"),
    ],
)
async def test_check_device_finds_faults(kind: type[Any], found_by: str) -> None:
    numbers = count()
    make = simulated(kind) if issubclass(kind, SimulatedDevice) else lambda: kind(f"{TASK}/device:CPU:{next(numbers)}")
    made: list[Device] = []

    def make_noted() -> Device:
        made.append(make())
        return made[-1]

    with pytest.raises((AssertionError, ValueError, errors.OpError)) as caught:
        await check_device(make_noted)
    assert caught.value.__notes__[-1].startswith(f"{found_by}: ")
    KeepsMemory.kept.clear()
    _StopsAll.others.clear()
    del caught
    for device in made:
        await device.close()
