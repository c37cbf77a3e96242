"""`HostEvent`: an event of a device that a thread fires."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from aexec.framework.device_contract.device import DeviceEvent

__all__ = ["HostEvent"]


class HostEvent(DeviceEvent):
    """Passes when `fire` is called, by any thread."""

    def __init__(self) -> None:
        self._passed = threading.Event()
        self._callbacks: deque[Callable[[], object]] = deque()

    @property
    def done(self) -> bool:
        return self._passed.is_set()

    def when_done(self, callback: Callable[[], object]) -> None:
        # The later of the two, appending and passing, sees the other: no callback is lost, none is called twice,
        # without a lock.
        self._callbacks.append(callback)
        if self._passed.is_set():
            self._call_back()

    def fire(self) -> None:
        """Make the event pass."""
        self._passed.set()
        self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:  # another thread was faster
                return
            callback()
