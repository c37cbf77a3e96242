"""`tf.DeviceSpec`: a device name as mutable parts.

Next to read: `aexec/framework/device_contract/device_name.py`.
"""

from __future__ import annotations

from typing import Any

from aexec.framework import errors
from aexec.framework.device_contract.device_name import DeviceName

__all__ = ["DeviceSpec"]


class DeviceSpec:
    """`tf.DeviceSpec`.

    Args:
        job: name of a group of tasks.
        replica, task: numbers from 0.
        device_type: `CPU`, `GPU`, …; `cpu` and `gpu` are converted to upper case.
        device_index: number from 0 among the devices of that type.

    A part of None is open.  Every part is also an attribute, which may be set.
    """

    # The parts, in the order of the constructor's arguments and of the fields of `DeviceName`.
    _PARTS = ("job", "replica", "task", "device_type", "device_index")

    def __init__(
        self,
        job: str | None = None,
        replica: int | None = None,
        task: int | None = None,
        device_type: str | None = None,
        device_index: int | None = None,
    ) -> None:
        self.job = None if job is None else str(job)
        self.replica = None if replica is None else int(replica)
        self.task = None if task is None else int(task)
        self.device_type = device_type
        self.device_index = None if device_index is None else int(device_index)

    @property
    def device_type(self) -> str | None:
        """The type, in upper case if it is `cpu` or `gpu`."""
        return self._type

    @device_type.setter
    def device_type(self, device_type: str | None) -> None:
        self._type = device_type.upper() if device_type in ("cpu", "gpu") else device_type

    @classmethod
    def from_string(cls, spec: str) -> DeviceSpec:
        """Return the parts of a name.  Raises ValueError if it is not a device name."""
        return cls().parse_from_string(spec)

    def parse_from_string(self, spec: str) -> DeviceSpec:
        """Set all parts from a name, and return self.  Raises ValueError if it is not a device name."""
        try:
            self._take(DeviceName.parse(spec))
        except errors.InvalidArgumentError as error:
            raise errors.InvalidValueError(error.message) from None
        return self

    def to_string(self) -> str:
        """Return the name: `/job:ps/task:0/device:CPU:0`."""
        return str(self._name())

    def merge_from(self, dev: DeviceSpec) -> None:
        """Set the parts that are not open in `dev`."""
        self._take(self._name().specialised_to(dev._name()))

    def make_merged_spec(self, dev: DeviceSpec) -> DeviceSpec:
        """Return a specification with the parts of `dev`, and those of this one that `dev` leaves open."""
        merged = self.replace()
        merged.merge_from(dev)
        return merged

    def replace(self, **kwargs: Any) -> DeviceSpec:
        """Return a copy with some of the constructor's arguments changed."""
        return type(self)(**{**self._parts(), **kwargs})

    def _parts(self) -> dict[str, Any]:
        return {part: getattr(self, part) for part in self._PARTS}

    def _name(self) -> DeviceName:
        return DeviceName(*self._parts().values())

    def _take(self, name: DeviceName) -> None:
        for part, value in zip(self._PARTS, (name.job, name.replica, name.task, name.type, name.id), strict=True):
            setattr(self, part, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceSpec) and self.to_string() == other.to_string()

    def __hash__(self) -> int:
        """The hash of the current parts; like TensorFlow's, it changes when a part is set."""
        return hash(self.to_string())

    def __repr__(self) -> str:
        return f"<DeviceSpec({', '.join(f'{part}={value}' for part, value in self._parts().items())})>"
