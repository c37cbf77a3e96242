"""`GraphWork`: runs work on a session's graph, on the event loop or in a thread, one at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from aexec.framework import errors
from aexec.framework.memory.allocator import watching
from aexec.framework.memory.garbage_collector import collector_paused
from aexec.framework.memory.memory_account import CallMemory, MemoryAccount
from aexec.framework.waiting.long_work import LongWork, ShortWork
from aexec.framework.waiting.loop_budget import LoopBudget
from aexec.runtime.threads.shared_work import SharedWork
from aexec.runtime.threads.worker_pool import run_in_turns

__all__ = ["GraphWork"]

T = TypeVar("T")


class GraphWork:
    """Runs work on the graph.

    Args:
        memory: the session's account; None if its memory is not limited.

    Attributes:
        lock: held by the thread that works on the graph.
        tasks: task of work in a thread, or waiting for one → that work.
    """

    def __init__(self, budget: LoopBudget, memory: MemoryAccount | None) -> None:
        self._budget = budget
        self._memory = memory
        self.lock = threading.Lock()
        self._turn = asyncio.Lock()  # held while waiting for `lock` and while having it
        self.tasks: dict[asyncio.Task[Any], LongWork] = {}

    def call_off(self) -> None:
        """Ask all work in threads to stop soon."""
        for work in self.tasks.values():
            work.call_off()

    def on_the_loop(self, call: Callable[[], T]) -> T:
        """Run `call` on the graph here and now.  Raises NeedsThreadError if that takes too long for the event loop."""
        return ShortWork(self._budget.once_seconds).do(lambda: self._counted(call))

    def _counted(self, call: Callable[[], T]) -> T:
        """The result of `call()`; the memory that it takes, and what it keeps, is counted for the session.

        Raises:
            ResourceExhaustedError: the session's account has no room for it.
        """
        if self._memory is None:
            return call()
        memory = CallMemory(MemoryAccount("plan", within=self._memory), "planning")
        try:
            with watching(memory, every=False):
                return call()
        finally:
            with suppress(errors.ResourceExhaustedError):  # others took the room: the next run reports it
                memory.end()

    def beside_the_loop(self, call: Callable[[], T]) -> SharedWork[T]:
        """Run `call` on the graph in a thread; it is called off when nothing waits for it any more."""
        work = LongWork()

        def locked() -> T:
            with self.lock, collector_paused():
                return self._counted(call)

        async def in_turn() -> T:
            async with self._turn:
                return await run_in_turns(locked, work)

        task = asyncio.get_running_loop().create_task(in_turn(), name="work on the graph")
        self.tasks[task] = work
        task.add_done_callback(self.tasks.pop)
        return SharedWork(task, work)
