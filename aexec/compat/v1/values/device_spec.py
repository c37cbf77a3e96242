"""`tf.DeviceSpec`: a device name in parts that programs change.

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
        device_type: `CPU`, `GPU`, …, in upper or lower case.
        device_index: number from 0 among the devices of that type.
    """

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
        """Take all parts from a name, and return self.  Raises ValueError if it is not a device name."""
        try:
            self._take(DeviceName.parse(spec))
        except errors.InvalidArgumentError as error:
            raise errors.InvalidValueError(error.message) from None
        return self

    def to_string(self) -> str:
        """Return the name: `/job:ps/task:0/device:CPU:0`."""
        return str(self._name())

    def merge_from(self, dev: DeviceSpec) -> None:
        """Take the parts that `dev` has."""
        self._take(self._name().specialised_to(dev._name()))

    def make_merged_spec(self, dev: DeviceSpec) -> DeviceSpec:
        """Return a specification with the parts of `dev`, and those of this one that `dev` leaves open."""
        merged = self.replace()
        merged.merge_from(dev)
        return merged

    def replace(self, **kwargs: Any) -> DeviceSpec:
        """Return a copy with some of the constructor's arguments changed."""
        parts = {
            "job": self.job,
            "replica": self.replica,
            "task": self.task,
            "device_type": self.device_type,
            "device_index": self.device_index,
        }
        return type(self)(**{**parts, **kwargs})

    def _name(self) -> DeviceName:
        return DeviceName(self.job, self.replica, self.task, self.device_type, self.device_index)

    def _take(self, name: DeviceName) -> None:
        self.job, self.replica, self.task = name.job, name.replica, name.task
        self.device_type, self.device_index = name.type, name.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceSpec) and self.to_string() == other.to_string()

    def __hash__(self) -> int:
        """It changes with the parts, as TensorFlow's does."""
        return hash(self.to_string())

    def __repr__(self) -> str:
        return (
            f"<DeviceSpec(job={self.job}, replica={self.replica}, task={self.task}, device_type={self.device_type}, "
            f"device_index={self.device_index})>"
        )
