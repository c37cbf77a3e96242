"""An event loop whose clock jumps to the next timer when nothing else can happen.

Deadlines of hours pass in microseconds, and a deadlock is an error that names the stuck
tasks instead of a test that hangs.  The clock stands still while a worker thread is
busy: what that thread will do is not known yet.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from aexec.runtime.threads.worker_pool import any_thread_busy

T = TypeVar("T")


class StuckError(AssertionError):
    """Nothing can happen any more, and tasks are still waiting."""


class _Selector(selectors.DefaultSelector):
    loop: VirtualClockLoop

    def select(self, timeout: float | None = None) -> Any:
        # Read before the selector: what a thread that has just ended has scheduled is seen by the select.
        busy = any_thread_busy() or self.loop.joining_threads
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if busy:
            # The end of a thread arrives through the loop's self-pipe; poll often, because timers may be due after it.
            return super().select(0.01)
        if timeout is None:
            stuck = "\n".join(f"  {task!r}" for task in asyncio.all_tasks(self.loop) if not task.done())
            raise StuckError(f"no timer, no thread, nothing ready; waiting tasks:\n{stuck}")
        self.loop.now += timeout
        return ready


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when nothing else can happen."""

    def __init__(self) -> None:
        selector = _Selector()
        super().__init__(selector)
        selector.loop = self
        self.now = 1000.0
        self.joining_threads = False

    async def shutdown_default_executor(self, *args: Any) -> None:
        self.joining_threads = True
        await super().shutdown_default_executor(*args)
        self.joining_threads = False

    def time(self) -> float:
        return self.now


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a virtual clock."""
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(main)
