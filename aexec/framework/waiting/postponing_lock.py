"""`PostponingLock`: a lock that calls in worker threads may hold for long.

A thread waits for it as for any lock.  An event loop never waits: a kernel that finds it taken there is postponed, and
runs again when the lock is free.  Synchronous kernels take it before they change anything.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from aexec.framework.waiting.inline_call import PostponedError, on_event_loop

__all__ = ["PostponingLock"]


class PostponingLock:
    """A context manager; entering it raises PostponedError on an event loop while it is held elsewhere."""

    __slots__ = ("_lock", "_waiting")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], object]] = deque()

    def acquire(self) -> None:
        """Take it.  Raises PostponedError on an event loop while it is held elsewhere."""
        if not self._lock.acquire(blocking=False):
            if on_event_loop():
                raise PostponedError(self._when_free)
            self._lock.acquire()

    def release(self) -> None:
        self._lock.release()
        if self._waiting:
            self._wake()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self.release()

    def _when_free(self, callback: Callable[[], object]) -> None:
        self._waiting.append(callback)
        # If it was released before the append, the releasing thread did not see this waiter.
        if not self._lock.locked():
            self._wake()

    def _wake(self) -> None:
        while self._waiting:
            try:
                callback = self._waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            with suppress(RuntimeError):  # the loop that waits has closed
                callback()
