"""The factories of devices: which devices a session has.

A device type is added by registering a factory of its devices here, and kernels under its name.  Next to read:
`aexec/framework/device_contract/device.py`, and `aexec/runtime/placement/placer.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from types import MappingProxyType

from aexec.devices.cpu_device import CpuDevice
from aexec.framework import errors
from aexec.framework.device_contract.device import Device
from aexec.framework.device_contract.device_name import DeviceName
from aexec.framework.types import DEVICE_CPU, DEVICE_GPU, DeviceType, register_device_type

__all__ = [
    "DeviceFactory",
    "host_device",
    "make_devices",
    "register_device_factory",
    "unregister_device_factory",
]

# Prefix of the device names of a local session.
LOCAL_TASK = "/job:localhost/replica:0/task:0"
# Default priority of device types that are added, among CPU (70) and GPU (210): TensorFlow's default.
PLUGGED_IN_PRIORITY = 50


# Called with the task's name, the prefix of device names, and the number of devices that the config asks for, None if
# it # says nothing; returns the devices, fewer or none if there are not that many.
DeviceFactory = Callable[[str, int | None], Sequence[Device]]
_factories: dict[str, tuple[DeviceType, DeviceFactory]] = {}


def register_device_factory(device_type: str, factory: DeviceFactory, *, priority: int = PLUGGED_IN_PRIORITY) -> None:
    """Give devices of another type to sessions that are made from now on.

    Args:
        device_type: the name that kernels are registered under.
        factory: called for each session as `factory(task, count)`; the devices' names are
            `{task}/device:{device_type}:{number}`.
        priority: preference where a node can run on several types, higher first; CPUs have 70, GPUs 210.

    Raises:
        AlreadyExistsError: the type has a factory, or is registered with another priority.
    """
    if device_type in _factories:
        raise errors.AlreadyExistsError(f"A device factory of type '{device_type}' is registered already")
    _factories[device_type] = (register_device_type(device_type, priority), factory)


def unregister_device_factory(device_type: str) -> None:
    """Remove a factory; sessions keep the devices that they have.  Unknown types are ignored."""
    _factories.pop(device_type, None)


def make_devices(
    device_count: Mapping[str, int],
    filters: Collection[str] = (),
    memory_limits: Mapping[str, int | float] = MappingProxyType({}),
    task: str = LOCAL_TASK,
) -> tuple[Device, ...]:
    """The devices of a session in this process, those of the preferred type first.

    Args:
        device_count: device type → number.  Types that are not registered are ignored, as in TensorFlow: a
            configuration may be meant for several machines.
        filters: device names, at least one of which has to match; the host device is always kept.
        memory_limits: device type or name → bytes, or as a float up to 1 the fraction of the device's memory.  A name
            takes precedence over a type; an entry that matches no device is ignored.
        task: the prefix of their names.

    Raises:
        InvalidArgumentError: a negative count; a fraction for a device that does not say how much memory it has.
        UnimplementedError: the memory of a device cannot be limited.
        InternalError: a factory made devices of another type, or two of one name.
    """
    for device_type, count in device_count.items():
        if count < 0:
            raise errors.InvalidArgumentError(f"device_count of {device_type} must not be negative, got {count}")
    devices: dict[str, Device] = {}
    for device_type, factory in sorted(_factories.values(), key=lambda entry: (-entry[0].priority, entry[0])):
        for device in factory(task, device_count.get(device_type)):
            if device.type != device_type or device.name in devices:
                raise errors.InternalError(
                    f"The factory of {device_type} devices made '{device.name}' of type {device.type}: "
                    "expected its own type, and a name of its own for each"
                )
            devices[device.name] = device
    found = _filtered(tuple(devices.values()), filters)
    for device in found:
        _limit_memory(device, memory_limits)
    return found


def _limit_memory(device: Device, limits: Mapping[str, int | float]) -> None:
    named = [limit for name, limit in limits.items() if "/" in name and _is_named(device, name)]
    limit = named[0] if named else limits.get(device.type)
    if limit is None:
        return
    if isinstance(limit, float):
        if not device.memory_limit:
            raise errors.InvalidArgumentError(f"memory_limits: how much {device.name} has is not known, give bytes")
        limit = int(limit * device.memory_limit)
    device.limit_memory(limit)


def _is_named(device: Device, name: str) -> bool:
    return DeviceName.parse(name).matches(DeviceName.parse(device.name))


def _filtered(devices: tuple[Device, ...], filters: Collection[str]) -> tuple[Device, ...]:
    if not filters:
        return devices
    wanted, host = [DeviceName.parse(each) for each in filters], host_device(devices)
    return tuple(
        device
        for device in devices
        if device is host or any(each.matches(DeviceName.parse(device.name)) for each in wanted)
    )


def host_device(devices: Sequence[Device]) -> Device:
    """The first device that computes in the host's memory: there feeds enter and fetches leave.

    Args:
        devices: as returned by `make_devices`: the first CPU comes before added types of less preference.
    """
    hosts = [device for device in devices if device.is_host]
    return next((device for device in hosts if device.type == DEVICE_CPU), hosts[0])


def _cpus(task: str, count: int | None) -> list[Device]:
    """One unless more are requested: a session always has a CPU."""
    return [CpuDevice(f"{task}/device:CPU:{i}") for i in range(count or 1)]


register_device_factory("CPU", _cpus, priority=DEVICE_CPU.priority)


def _simulated(task: str, count: int | None) -> Sequence[Device]:
    """None unless they are requested."""
    if not count:
        return ()
    from aexec.devices.simulated_device import make_simulated_devices

    return make_simulated_devices(task, count)


register_device_factory("SIM", _simulated)


@cache
def _has_cupy() -> bool:
    return find_spec("cupy") is not None


def _gpus(task: str, count: int | None) -> Sequence[Device]:
    """All that the machine has, unless fewer are requested."""
    if count == 0 or not _has_cupy():
        return ()
    from aexec.devices.cuda_device import make_cuda_devices

    return make_cuda_devices(task, count)


register_device_factory("GPU", _gpus, priority=DEVICE_GPU.priority)
