"""`RemoteDevice`: a device of another task, for the client's placer and partitioner.

It has a name and a type, and says whether it computes in its host's memory; nothing runs on it from here.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.device_contract.device import Device, DeviceEvent, OnError, QueuedWork
from aexec.framework.dtypes import DType
from aexec.framework.memory.allocator import Allocator, cpu_allocator

__all__ = ["RemoteDevice"]


class RemoteDevice(Device):
    """A device of another task, for placing and partitioning; nothing runs on it in this process.

    Args:
        name, device_type, is_host: as the task reports.
        incarnation: of the task.
    """

    xp = np

    def __init__(self, name: str, device_type: str, incarnation: int, *, is_host: bool) -> None:
        self.name = name
        self.type = device_type
        self.incarnation = incarnation
        self.is_host = is_host

    @property
    def allocator(self) -> Allocator:  # type: ignore[override]  # of this process: constants are folded here
        return cpu_allocator()

    def can_hold(self, dtype: DType) -> bool:
        return False

    def copy_in(self, array: Any, *, node: str) -> Any:
        raise self._refused()

    def copy_out(self, value: Any, *, node: str) -> Future[Any]:
        raise self._refused()

    def begin_work(self, on_error: OnError) -> QueuedWork:
        raise self._refused()

    def record_event(self) -> DeviceEvent:
        raise self._refused()

    def _refused(self) -> errors.OpError:
        return errors.UnimplementedError(f"{self.name} is in another process: nothing is copied to it from here")

    async def close(self) -> None:
        """Nothing to do: it has no resources here."""
