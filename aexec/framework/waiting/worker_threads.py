"""What a session's worker threads can be asked for: `WorkerThreads`.  `runtime/threads/worker_pool.py` has the pool."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

__all__ = ["OnCancel", "WorkerThreads"]

T = TypeVar("T")


class OnCancel(enum.Enum):
    """What happens to a call in a thread when whoever awaits it is cancelled.

    A call that has not begun is withdrawn, either way.
    """

    # It goes on and its result is dropped; whoever awaited it goes at once.  For calls that only compute.
    ABANDON = "abandon"
    # Whoever awaited it goes when it has ended.  For calls that change something: a file, a table, a reader.
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

        The future's result is a list of what the call returned and the seconds that it took.
        """
        ...

    def start(self, call: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """A future of what `call(*args)` returns, called in a thread; completed otherwise, it withdraws the call."""
        ...

    async def run(self, call: Callable[..., T], *args: Any, on_cancel: OnCancel = OnCancel.ABANDON) -> T:
        """What `call(*args)` returns, called in a thread."""
        ...

    async def run_here_or_in_thread(
        self, call: Callable[..., T], *args: Any, on_cancel: OnCancel = OnCancel.ABANDON
    ) -> T:
        """What `call(*args)` returns: called here, and in a thread if it raises NeedsThreadError here."""
        ...
