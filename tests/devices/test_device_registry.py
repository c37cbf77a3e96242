"""Which devices a session has: the registry of their factories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.devices.cpu_device import CpuDevice
from aexec.devices.device_registry import (
    host_device,
    make_devices,
    register_device_factory,
    unregister_device_factory,
)
from aexec.devices.simulated_device import simulated_devices
from aexec.framework.device_contract.device import Device

TASK = "/job:localhost/replica:0/task:0"


def _asics(task: str, count: int | None) -> list[CpuDevice]:
    return [CpuDevice(f"{task}/device:ASIC:{i}", "ASIC") for i in range(count or 0)]


@pytest.fixture(autouse=True)
def asic() -> Iterator[None]:
    """A device type of less priority than CPUs."""
    register_device_factory("ASIC", _asics)
    yield
    unregister_device_factory("ASIC")


def names(devices: Sequence[Device]) -> list[str]:
    return [d.name.removeprefix(f"{TASK}/device:") for d in devices]


class TestMakeDevices:
    def test_default_is_one_cpu(self) -> None:
        assert names(make_devices({})) == ["CPU:0"]
        assert names(make_devices({"CPU": 3})) == ["CPU:0", "CPU:1", "CPU:2"]
        assert names(make_devices({"CPU": 0})) == ["CPU:0"]

    def test_counts_of_types_that_nobody_registered_are_ignored(self) -> None:
        assert names(make_devices({"TestNoSuchType": 4})) == ["CPU:0"]

    def test_negative_count(self) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="device_count of CPU must not be negative, got -1"):
            make_devices({"CPU": -1})

    def test_factories_are_asked_for_what_is_counted(self) -> None:
        assert names(make_devices({"ASIC": 2})) == ["CPU:0", "ASIC:0", "ASIC:1"]
        assert names(make_devices({})) == ["CPU:0"]

    def test_preferred_type_comes_first(self) -> None:
        register_device_factory(
            "TestFast", lambda task, n: [CpuDevice(f"{task}/device:TestFast:0", "TestFast")], priority=90
        )
        try:
            assert names(make_devices({})) == ["TestFast:0", "CPU:0"]
        finally:
            unregister_device_factory("TestFast")

    def test_second_factory_of_a_type_is_refused(self) -> None:
        with pytest.raises(errors.AlreadyExistsError, match="'ASIC' is registered already"):
            register_device_factory("ASIC", _asics)

    @pytest.mark.parametrize("device_type", ["CPU", "TestWrong"])
    def test_factory_that_makes_others_devices(self, device_type: str) -> None:
        register_device_factory("TestWrong", lambda task, n: [CpuDevice(f"{task}/device:CPU:0", device_type)])
        try:
            with pytest.raises(errors.InternalError, match="The factory of TestWrong devices"):
                make_devices({})
        finally:
            unregister_device_factory("TestWrong")

    def test_host_is_the_first_cpu_whatever_is_preferred(self) -> None:
        register_device_factory(
            "TestFast", lambda task, n: [CpuDevice(f"{task}/device:TestFast:0", "TestFast")], priority=90
        )
        try:
            assert names([host_device(make_devices({"CPU": 2}))]) == ["CPU:0"]
        finally:
            unregister_device_factory("TestFast")


class TestMemoryLimits:
    def test_limits_by_type_by_name_and_as_a_fraction(self) -> None:
        limits = {"SIM": 1 << 20, "/device:SIM:1": 1 << 10, "ABSENT": 1}
        with simulated_devices(memory_limit=1 << 30):
            _, *devices = make_devices({"SIM": 2}, memory_limits=limits)
            (_, halved) = make_devices({"SIM": 1}, memory_limits={"SIM": 0.5})
        assert [device.memory_limit for device in devices] == [1 << 20, 1 << 10]
        assert [device.stats().bytes_limit for device in devices] == [1 << 20, 1 << 10]
        assert halved.memory_limit == 1 << 29

    def test_limit_of_a_device_without_own_memory_is_refused(self) -> None:
        with pytest.raises(errors.UnimplementedError, match="CPU:0 shares the process's memory: step_bytes"):
            make_devices({}, memory_limits={"CPU": 1000})
        with pytest.raises(errors.InvalidArgumentError, match=r"how much .*SIM:0 has is not known"):
            make_devices({"SIM": 1}, memory_limits={"SIM": 0.5})

    @pytest.mark.parametrize("limit", [0, -1, 1.5])
    def test_invalid_limits_are_refused(self, limit: float) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="memory_limits of GPU must be"):
            aexec.SessionConfig(memory_limits={"GPU": limit})

    async def test_hold_in_a_session(self) -> None:
        with aexec.Graph() as graph, aexec.device("/device:SIM:0"):
            x = aexec.placeholder("float32", [None], name="x")
            aexec.ops.neg(x, name="y")
        config = aexec.SessionConfig(device_count={"SIM": 1}, memory_limits={"SIM": 5000})
        async with aexec.Session(graph, config=config) as session:
            assert (await session.run("y:0", {"x:0": np.ones(600, np.float32)})).shape == (600,)
            with pytest.raises(errors.ResourceExhaustedError, match="of 5000 bytes"):
                await session.run("y:0", {"x:0": np.ones(1000, np.float32)})
