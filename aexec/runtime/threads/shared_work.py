"""Work in a thread that several wait for, and that ends when nobody does any more."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from aexec.framework.waiting.long_work import LongWork

__all__ = ["SharedWork"]

T = TypeVar("T")


class SharedWork(Generic[T]):
    """A task, and the work that it waits for.

    Args:
        work: None lets it go on although nobody waits.

    Attributes:
        task: to be waited for with `wait` only.
    """

    def __init__(self, task: asyncio.Task[T], work: LongWork | None) -> None:
        self.task = task
        self._work = work
        self._waiting = 0
        # Whoever may learn what it has come to might have gone.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def called_off(self) -> bool:
        """Does it come to nothing, as nobody waited for it?"""
        return self._work is not None and self._work.called_off

    def wait(self) -> asyncio.Future[T]:
        """A future of what it comes to, to be cancelled by who does not want it any more."""
        self._waiting += 1
        waiter = asyncio.shield(self.task)
        waiter.add_done_callback(self._leave)
        return waiter

    def _leave(self, waiter: asyncio.Future[T]) -> None:
        self._waiting -= 1
        if waiter.cancelled() and not self._waiting and self._work is not None:
            self._work.call_off()
