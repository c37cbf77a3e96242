"""Constants in the memory of devices: each is copied in once, for all plans that use it.

A plan refers to the constants that it uses; a constant is freed with the last such plan.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from aexec.framework.device_contract.device import Device

__all__ = ["DeviceConstant", "DeviceConstants"]


class DeviceConstant:
    """A constant on a device.

    Attributes:
        array: in host memory.
        value: the device value.
    """

    __slots__ = ("__weakref__", "array", "value")

    def __init__(self, array: Any, value: Any) -> None:
        self.array = array
        self.value = value


class DeviceConstants:
    """The constants of one session that are in the memory of devices."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple[Device, int], DeviceConstant] = WeakValueDictionary()

    def of(self, device: Device, array: Any, *, node: str) -> DeviceConstant:
        """A constant on a device; copies it there unless it is there already.

        Args:
            array: the value, which must not be changed.
            node: the name of the node whose value it is.

        Raises:
            as `Device.copy_in`.
        """
        key = (device, id(array))
        known = self._known.get(key)
        if known is None or known.array is not array:
            known = self._known[key] = DeviceConstant(array, device.copy_in(array, node=node))
        return known
