"""Feeds and fetches in the memory of devices: finds out which are where, checks, takes in and hands out values.

A value fed from a device enters the graph there, and is copied only to other devices that need it.  A value fetched to
a device leaves there.  The fed values themselves tell where they are.  A callable may be told beforehand, as by
TensorFlow's CallableOptions, and then refuses other places.
Next to read: `aexec/framework/device_contract/device.py` for the device's part.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from numpy import ndarray

from aexec.framework import errors
from aexec.framework.device_contract.device import Device, copy_between
from aexec.framework.device_contract.device_name import DeviceName
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.runtime.feeding.feeds import FeedSpec, converted

__all__ = ["DeviceEnds", "DeviceFeedSpec", "converted_feeds", "hand_out", "resolve_devices", "take_in", "where_fed"]

# Types whose values are certainly in host memory.
_PLAIN = frozenset({ndarray, int, float, bool, str, bytes, list, tuple})


@dataclass(frozen=True, slots=True)
class DeviceEnds:
    """The devices in whose memory the values of a request are.

    Attributes:
        feeds, fetches: in the request's order, the device of each feed, and the wanted device of each fetch; None for
            host memory.
        skip_sync: True if a run does not wait until devices have computed the fetched values.
    """

    feeds: tuple[Device | None, ...]
    fetches: tuple[Device | None, ...]
    skip_sync: bool = False


class DeviceFeedSpec(FeedSpec):
    """A feed in a device's memory, which `take_in` checks."""

    __slots__ = ()

    def fits(self, value: Any) -> bool:
        """True: `take_in` has checked the value."""
        return True


def resolve_devices(
    devices: Sequence[Device], tensors: Mapping[str, DType], wanted: Mapping[str, str]
) -> tuple[Device | None, ...]:
    """For each tensor the wanted device, None for host memory.

    Args:
        devices: the session's devices.
        tensors: names of the request's feeds or fetches, with their types.
        wanted: name of a tensor → name of a device.

    Raises:
        InvalidArgumentError: a device's name is malformed or names no device of the session; or a tensor is not fed or
            fetched.
        UnimplementedError: the device cannot hold values of the type.
    """
    chosen: dict[str, Device | None] = dict.fromkeys(tensors)
    for name, device_name in wanted.items():
        if name not in tensors:
            raise errors.InvalidArgumentError(
                f"Tensor {name}, specified in either feed_devices or fetch_devices, is not fed or fetched: "
                f"expected one of {', '.join(tensors) or 'none'}"
            )
        device = _device_named(devices, name, device_name)
        if device.is_host:
            continue
        if not device.can_hold(tensors[name]):
            raise errors.UnimplementedError(
                f"Cannot feed or fetch tensor '{name}' from device {device.name} as feeding/fetching from "
                f"{device.type} devices is not supported for {tensors[name]} tensors: they are in host memory"
            )
        chosen[name] = device
    return tuple(chosen.values())


def _device_named(devices: Sequence[Device], tensor: str, name: str) -> Device:
    try:
        wanted = DeviceName.parse(name)
    except errors.InvalidArgumentError:
        raise errors.InvalidArgumentError(
            f"Invalid device name ('{name}') provided for the tensor '{tensor}' in CallableOptions"
        ) from None
    for device in devices:
        if wanted.matches(DeviceName.parse(device.name)):
            return device
    there_are = ", ".join(device.name for device in devices)
    raise errors.InvalidArgumentError(
        f"Device '{name}' specified for tensor '{tensor}' in CallableOptions does not exist; there are {there_are}"
    )


def converted_feeds(specs: Sequence[FeedSpec], values: Sequence[Any]) -> Sequence[Any]:
    """The fed values with those of registered types converted, so that it is known where they are.

    A value whose conversion takes long is left to the step, which converts it in a thread: it is in host memory.

    Raises:
        InvalidArgumentError: as `feeds.converted` does.
    """
    return [
        value if type(value) in _PLAIN else _converted(value, spec.name)
        for spec, value in zip(specs, values, strict=True)
    ]


def _converted(value: Any, name: str) -> Any:
    try:
        return converted(value, name)
    except NeedsThreadError:
        return value


def where_fed(devices: Sequence[Device], values: Iterable[Any]) -> tuple[Device | None, ...]:
    """For each value the device that has it in its memory, None for host memory.

    Args:
        devices: the devices with memory of their own.
    """
    return tuple(
        [
            None if type(value) in _PLAIN else next((device for device in devices if device.holds(value)), None)
            for value in values
        ]
    )


def take_in(specs: Sequence[FeedSpec], ends: DeviceEnds, values: Sequence[Any]) -> list[Any]:
    """The fed values, those in devices' memory as device values.  Called in the user's thread.

    Raises:
        InvalidArgumentError: a value is not on its device, or has another type or shape.
    """
    return [
        value if device is None else _taken_in(spec, device, value)
        for spec, device, value in zip(specs, ends.feeds, values, strict=True)
    ]


def _taken_in(spec: FeedSpec, device: Device, value: Any) -> Any:
    if not device.holds(value):
        raise errors.InvalidArgumentError(
            f"Expected the value fed for {spec.name} in the memory of {device.name}, got {type(value).__name__} "
            "which is not there"
        )
    taken = device.take_in(value, node=spec.name)
    if taken.dtype != spec.dtype.np:
        raise errors.InvalidArgumentError(
            f"Expects arg[{spec.position}] to be {spec.dtype} but {taken.dtype} is provided (feed {spec.name}): "
            f"values on {device.name} are not converted"
        )
    spec.check_shape(getattr(value, "shape", None))
    return taken


async def hand_out(
    value: Any,
    made_on: Device | None,
    wanted_on: Device | None,
    wait: Callable[[Future[Any]], Awaitable[Any]],
    host: Device,
    name: str,
) -> Any:
    """Return a fetched value in the form and place that the user wants.

    Args:
        made_on, wanted_on: the devices in whose memory it is and shall be, None for host memory.
        wait: True to wait until devices have computed or copied it.
        host: the device of host memory.
        name: the tensor's name.

    Raises:
        OpError: computing or copying the value failed.
    """
    try:
        if made_on is not wanted_on:
            value = copy_between(made_on or host, value, wanted_on or host, node=name)
            if isinstance(value, Future):
                value = await wait(value)
        if wanted_on is None:
            return value if value.ndim else value[()]
        give = await wait(wanted_on.hand_out(value, node=name))
        return give()
    except (errors.OpError, MemoryError):
        raise
    except Exception as error:
        raise errors.UnknownError(f"{name}: {type(error).__name__}: {error}") from error
