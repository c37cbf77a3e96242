"""`WorkerThreads`: the interface of a session's worker threads, which `runtime/threads/worker_pool.py` implements."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

__all__ = ["OnCancel", "WorkerThreads"]

T = TypeVar("T")


class OnCancel(enum.Enum):
    """What happens to a running call in a thread when its awaiting task is cancelled.

    A call that has not begun is always withdrawn.
    """

    # The task ends at once; the call goes on and its result is dropped.  For calls that only compute.
    ABANDON = "abandon"
    # The task ends when the call has ended.  For calls that change something: a file, a table, a reader.
    WAIT = "wait"


class WorkerThreads(Protocol):
    """The threads of a session, for work that would hold up the event loop."""

    def submit(
        self,
        loop: asyncio.AbstractEventLoop,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        done: Callable[[Future[Any]], None],
    ) -> Future[Any]:
        """Run `call(*args)` in a thread; `done(future)` is called on the loop.

        The future's result is a list of the call's result and its duration in seconds.
        """
        ...

    def start(self, call: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Call `call(*args)` in a thread; return a future of its result.  Completing it earlier withdraws the call."""
        ...

    async def run(self, call: Callable[..., T], *args: Any, on_cancel: OnCancel = OnCancel.ABANDON) -> T:
        """Call `call(*args)` in a thread, and return its result."""
        ...

    async def run_here_or_in_thread(
        self, call: Callable[..., T], *args: Any, on_cancel: OnCancel = OnCancel.ABANDON
    ) -> T:
        """Call `call(*args)` here, or in a thread if it raises NeedsThreadError here; return its result."""
        ...
