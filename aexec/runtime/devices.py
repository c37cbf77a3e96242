"""Devices: where kernels run, by name, and the factories of sessions' device sets.

A device type is plugged in by a factory of its devices here, and by kernels that are
registered under its name.  Next to read: `placer.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aexec import proto
from aexec.framework import errors
from aexec.framework.types import DEVICE_CPU, DeviceType, register_device_type

__all__ = [
    "Device",
    "DeviceFactory",
    "host_device",
    "make_devices",
    "register_device_factory",
    "unregister_device_factory",
]

# What the names of a local session's devices begin with.
LOCAL_TASK = "/job:localhost/replica:0/task:0"
# Of device types that are plugged in, among CPU (70) and GPU (210): TensorFlow's default.
PLUGGED_IN_PRIORITY = 50


@dataclass(frozen=True, slots=True)
class Device:
    """A place where kernels run.

    Attributes:
        name: full name, `/job:localhost/replica:0/task:0/device:CPU:0`.
        type: `CPU`, `GPU`, …
        xp: the array module of its kernels.
        memory_limit: bytes, 0 if not known.
        incarnation: changes when the device is made anew.
    """

    name: str
    type: str
    xp: Any
    memory_limit: int = 0
    incarnation: int = 1

    def to_proto(self) -> proto.DeviceAttributes:
        return proto.DeviceAttributes(
            name=self.name,
            device_type=self.type,
            memory_limit=self.memory_limit,
            incarnation=self.incarnation,
        )


# Given the task's name, which device names begin with, and the number that is asked for, None if
# nobody said: it makes the devices, fewer or none if there are not so many.
DeviceFactory = Callable[[str, int | None], Sequence[Device]]
_factories: dict[str, tuple[DeviceType, DeviceFactory]] = {}


def register_device_factory(device_type: str, factory: DeviceFactory, *, priority: int = PLUGGED_IN_PRIORITY) -> None:
    """Give sessions that are made from now on devices of another type.

    Args:
        device_type: the name that kernels are registered under.
        factory: called for each session as `factory(task, count)`; the devices' names are
            `{task}/device:{device_type}:{number}`.
        priority: devices of a type with a higher one are preferred where a node can run on either;
            CPUs have 70, GPUs 210.

    Raises:
        AlreadyExistsError: the type has a factory, or is known with another priority.
    """
    if device_type in _factories:
        raise errors.AlreadyExistsError(f"A device factory of type '{device_type}' is registered already")
    _factories[device_type] = (register_device_type(device_type, priority), factory)


def unregister_device_factory(device_type: str) -> None:
    """Take a factory back; sessions keep the devices that they have.  Unknown types are ignored."""
    _factories.pop(device_type, None)


def make_devices(device_count: Mapping[str, int]) -> tuple[Device, ...]:
    """The devices of a local session, those of the preferred type first.

    Args:
        device_count: device type → number.  Types that nobody registered are ignored, as TensorFlow
            does: a configuration may be meant for several machines.

    Raises:
        InvalidArgumentError: a negative count.
        InternalError: a factory made devices of another type, or two of one name.
    """
    for device_type, count in device_count.items():
        if count < 0:
            raise errors.InvalidArgumentError(f"device_count of {device_type} must not be negative, got {count}")
    devices: dict[str, Device] = {}
    for device_type, factory in sorted(_factories.values(), key=lambda entry: (-entry[0].priority, entry[0])):
        for device in factory(LOCAL_TASK, device_count.get(device_type)):
            if device.type != device_type or device.name in devices:
                raise errors.InternalError(
                    f"The factory of {device_type} devices made '{device.name}' of type {device.type}: "
                    "expected its own type, and a name of its own for each"
                )
            devices[device.name] = device
    return tuple(devices.values())


def host_device(devices: Sequence[Device]) -> Device:
    """The first CPU, which has what is in the host's memory; `devices` as `make_devices` gives them."""
    return next(device for device in devices if device.type == "CPU")


def _cpus(task: str, count: int | None) -> list[Device]:
    """One unless more are asked for: a session is never without."""
    return [Device(f"{task}/device:CPU:{i}", "CPU", np) for i in range(count or 1)]


register_device_factory("CPU", _cpus, priority=DEVICE_CPU.priority)
