"""`WaitingLines`: attempts at a shared object that cannot succeed yet, served in order of arrival.

Barriers, staging areas and accumulators use it.  An attempt is a function that either does its work and returns the
result, or does nothing and returns `NOT_YET`.  It joins a line, and is tried while it is at the head: when it arrives,
and after every change.  Attempts of different lines do not wait for each other.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final

from aexec.framework.waiting.cancellation import CancellationManager, wait
from aexec.framework.waiting.futures import complete_on_loop, without_frame

__all__ = ["NOT_YET", "WaitingLines"]

NOT_YET: Final = object()

Attempt = Callable[[], Any]
Undo = Callable[[Any], object]


class _Waiting:
    __slots__ = ("attempt", "future", "undo")

    def __init__(self, attempt: Attempt, undo: Undo | None, future: asyncio.Future[Any]) -> None:
        self.attempt = attempt
        self.undo = undo
        self.future = future


class WaitingLines:
    """Waiting attempts, by line.  All methods may be called from any thread.

    Attributes:
        lock: held while an attempt is tried; changes of what attempts depend on need it too, briefly.
    """

    def __init__(self) -> None:
        # Re-entrant for an `undo` that is called at once, because the waiter's loop is closed.
        self.lock = threading.RLock()
        self._lines: dict[Hashable, deque[_Waiting]] = {}

    async def join(
        self,
        line: Hashable,
        attempt: Attempt,
        manager: CancellationManager | None,
        message: str,
        undo: Undo | None = None,
    ) -> Any:
        """The result of an attempt, once it succeeds.

        Args:
            line: the line that it joins.
            attempt: the attempt; an error that it raises ends it.
            manager: cancels the wait.
            message: of the CancelledError.
            undo: undoes an attempt whose result came too late for the waiter.

        Raises:
            CancelledError: cancelled by the manager; the attempt has had no effect.
            BaseException: the error that the attempt raised.
        """
        with self.lock:
            if line not in self._lines:
                result = attempt()
                if result is not NOT_YET:
                    self.changed()
                    return result
            waiting = _Waiting(attempt, undo, asyncio.get_running_loop().create_future())
            self._lines.setdefault(line, deque()).append(waiting)
        try:
            return await wait(manager, waiting.future, message, give_back=undo)
        finally:
            self._leave(line, waiting)
            del waiting  # its future may hold an error, whose traceback holds this frame

    def changed(self) -> None:
        """Try the waiting attempts again after a change.  The caller may hold the lock."""
        with self.lock:
            progress = True
            while progress:
                progress = False
                for line in list(self._lines):
                    while self._serve_head(line):
                        progress = True

    def _serve_head(self, line: Hashable) -> bool:
        """Try the first attempt of a line that is still awaited; return whether it ended."""
        queue = self._lines.get(line)
        while queue and queue[0].future.done():
            queue.popleft()
        if not queue:
            self._lines.pop(line, None)
            return False
        head = queue[0]
        try:
            result = head.attempt()
        except Exception as error:
            queue.popleft()
            complete_on_loop(head.future, partial(_set_error, without_frame(error)))
            del head  # the error's traceback refers to it
            return True
        if result is NOT_YET:
            return False
        queue.popleft()
        undo = head.undo
        too_late = (lambda: None) if undo is None else lambda: undo(result)
        complete_on_loop(head.future, lambda future: future.set_result(result), too_late)
        return True

    def _leave(self, line: Hashable, waiting: _Waiting) -> None:
        with self.lock:
            queue = self._lines.get(line)
            if queue is None or waiting not in queue:
                return
            queue.remove(waiting)
            if not queue:
                del self._lines[line]
            # The next in line may succeed now.
            self.changed()

    def __len__(self) -> int:
        """The number of waiting attempts."""
        with self.lock:
            return sum(map(len, self._lines.values()))


def _set_error(error: Exception, future: asyncio.Future[Any]) -> None:
    future.set_exception(error)
