"""Device names: `/job:j/replica:r/task:t/device:T:i`, where any part may be left open.

A `DeviceName` matches all devices that agree with the parts it has: a complete one matches one device, an empty one
any. Names in graphs are parsed, merged (when nodes are to share a device) and matched with those of devices; errors
have the texts of TensorFlow's Python DeviceSpec for syntax, and of its placer for merging.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from aexec.framework import errors
from aexec.framework.late_dataclass import dataclass

__all__ = ["LOCAL_CPU", "DeviceName"]

# Full name of the first CPU of a session that is not distributed.
LOCAL_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_NUMBER = re.compile(r"[0-9]+", re.ASCII)
# Types that may be written without `device:`, in upper or lower case.
_SHORT_FORMS = frozenset({"CPU", "GPU", "TPU"})
_LEGACY_TYPES = frozenset({"cpu", "gpu", "tpu"})


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A device name in parts; None means that the part is left open.

    Attributes:
        job: name of a group of tasks, `localhost` in a session of one process.
        replica, task: numbers from 0.
        type: `CPU`, `GPU`, …
        id: number from 0 among the devices of that type in the task.
    """

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    type: str | None = None
    id: int | None = None

    @staticmethod
    def parse(text: str) -> DeviceName:
        """Parse a name: parts in any order, `*` for open ones, `/cpu:0` and `cpu:0` for `/device:CPU:0`.

        A later job, replica or task overrides an earlier one.

        Raises:
            InvalidArgumentError: not a device name.
        """
        return _parse(text)

    @property
    def is_empty(self) -> bool:
        """True if it matches any device."""
        return self == _ANY

    @property
    def is_complete(self) -> bool:
        """True if it names one device."""
        return None not in (self.job, self.replica, self.task, self.type, self.id)

    @property
    def local_name(self) -> str:
        """`CPU:0`, for lookups within a task.  Raises InvalidArgumentError if type or id is open."""
        if self.type is None or self.id is None:
            raise errors.InvalidArgumentError(f"'{self}' has no local name: expected a device type and id")
        return f"{self.type}:{self.id}"

    def is_specification(self, less_specific: DeviceName) -> bool:
        """True if it has every part that `less_specific` has, with the same value."""
        return all(getattr(less_specific, part) in (None, getattr(self, part)) for part in self.__slots__)

    def matches(self, device: DeviceName) -> bool:
        """True if `device` is one of the devices that it matches."""
        return device.is_specification(self)

    def same_address_space(self, other: DeviceName) -> bool:
        """True if both are certainly in one process: job, replica and task are known and equal."""
        mine, theirs = (self.job, self.replica, self.task), (other.job, other.replica, other.task)
        return None not in mine and mine == theirs

    def without_device(self) -> DeviceName:
        """The name with type and id left open."""
        return replace(self, type=None, id=None)

    def merge(self, other: DeviceName, *, soft: bool = False) -> DeviceName:
        """The name of the devices that both match.

        Args:
            other: the name to merge with.
            soft: do not raise if the types differ, but leave type and id open; if the ids differ, leave the id open.

        Raises:
            InvalidArgumentError: they contradict each other.
        """
        merged = DeviceName(
            self._agreed("job", "jobs", other),
            self._agreed("replica", "replicas", other),
            self._agreed("task", "tasks", other),
        )
        if soft and None not in (self.type, other.type) and self.type != other.type:
            return merged
        merged = replace(merged, type=self._agreed("type", "types", other))
        if soft and None not in (self.id, other.id) and self.id != other.id:
            return merged
        return replace(merged, id=self._agreed("id", "ids", other))

    def is_compatible(self, other: DeviceName) -> bool:
        """True if no part differs that both have."""
        return all(
            None in (mine := getattr(self, part), theirs := getattr(other, part)) or mine == theirs
            for part in self.__slots__
        )

    def specialised_to(self, other: DeviceName) -> DeviceName:
        """The name with every part that `other` has taken from `other`."""
        return (
            self
            if other.is_empty
            else replace(self, **{p: v for p in self.__slots__ if (v := getattr(other, p)) is not None})
        )

    def _agreed(self, part: str, plural: str, other: DeviceName) -> Any:
        mine, theirs = getattr(self, part), getattr(other, part)
        if mine is not None and theirs is not None and mine != theirs:
            raise errors.InvalidArgumentError(
                f"Cannot merge devices with incompatible {plural}: '{self}' and '{other}'"
            )
        return theirs if mine is None else mine

    def __str__(self) -> str:
        text = "" if self.job is None else f"/job:{self.job}"
        text += "" if self.replica is None else f"/replica:{self.replica}"
        text += "" if self.task is None else f"/task:{self.task}"
        if self.type is not None or self.id is not None:
            text += f"/device:{self.type or '*'}:{'*' if self.id is None else self.id}"
        return text


_ANY = DeviceName()


@lru_cache(maxsize=4096)
def _parse(text: str) -> DeviceName:
    parts: dict[str, Any] = {}
    for piece in text.split("/"):
        kind, *values = piece.split(":")
        if kind in ("job", "replica", "task") and len(values) == 1:
            read = _read_identifier if kind == "job" else _read_number
            parts[kind] = read(text, kind, values[0])
        elif (kind == "device" and len(values) in (1, 2)) or (kind.upper() in _SHORT_FORMS and len(values) < 2):
            if "type" in parts:
                raise errors.InvalidArgumentError(
                    f"Multiple device types are not allowed while parsing the device spec: {text}."
                )
            device_type, *number = values if kind == "device" else (kind.upper(), *values)
            if device_type in _LEGACY_TYPES:
                device_type = device_type.upper()
            parts["type"] = _read_identifier(text, "device type", device_type)
            parts["id"] = _read_number(text, "device id", number[0]) if number else None
        elif kind:
            raise errors.InvalidArgumentError(
                f"Unknown attribute '{kind}' is encountered while parsing the device spec: '{text}'."
            )
    return DeviceName(**parts)


def _read_identifier(text: str, what: str, value: str) -> str | None:
    if value == "*":
        return None
    if not _IDENTIFIER.fullmatch(value):
        raise errors.InvalidArgumentError(
            f"Malformed device specification '{text}': {what} must be a letter followed by letters, digits and _, "
            f"got '{value}'"
        )
    return value


def _read_number(text: str, what: str, value: str) -> int | None:
    if value == "*":
        return None
    if not _NUMBER.fullmatch(value):
        raise errors.InvalidArgumentError(
            f"Malformed device specification '{text}': {what} must be a number, got '{value}'"
        )
    return int(value)
