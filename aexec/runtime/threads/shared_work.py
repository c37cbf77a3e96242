"""`SharedWork`: work in a thread for which several callers wait, and which stops when none does any more."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from aexec.framework.waiting.long_work import LongWork

__all__ = ["SharedWork"]

T = TypeVar("T")


class SharedWork(Generic[T]):
    """A task with the work in a thread that it awaits.

    Args:
        work: the work to call off when nothing waits for it; None to let it end.

    Attributes:
        task: the task; callers wait for it by `wait` only.
    """

    def __init__(self, task: asyncio.Task[T], work: LongWork | None) -> None:
        self.task = task
        self._work = work
        self._waiting = 0
        # All waiters may have gone: mark the error as seen.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def called_off(self) -> bool:
        """True if it was called off because nothing waited for it."""
        return self._work is not None and self._work.called_off

    def wait(self) -> asyncio.Future[T]:
        """A future of the result; a caller cancels it when it does not want the result any more."""
        self._waiting += 1
        waiter = asyncio.shield(self.task)
        waiter.add_done_callback(self._leave)
        return waiter

    def _leave(self, waiter: asyncio.Future[T]) -> None:
        self._waiting -= 1
        if waiter.cancelled() and not self._waiting and self._work is not None:
            self._work.call_off()
