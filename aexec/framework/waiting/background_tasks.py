"""`BackgroundTasks`: the tasks of a session that go on between its steps, such as the prefetching of a dataset.

A step ends with everything that it has begun.  What has to outlive it begins here instead: it is cancelled when its
owner asks for that, or when the session closes, which waits until the task has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from aexec.framework.waiting.cancellation import CancellationManager

__all__ = ["BackgroundTasks"]


class BackgroundTasks:
    """The tasks of one session that belong to no step.  Used on the thread of its event loop.

    Args:
        cancellation: the session's manager.
        new_params: makes what the kernel calls of a task share (`op_kernel_context.Params`), given the manager that
            cancels them.
        kept: counts the bytes that they keep (`kept_memory.KeptMemory`), or None.

    Attributes:
        kept: as given.
    """

    __slots__ = ("_cancellation", "_new_params", "_tasks", "kept")

    def __init__(
        self,
        cancellation: CancellationManager,
        new_params: Callable[[CancellationManager], Any],
        kept: Any = None,
    ) -> None:
        self._cancellation = cancellation
        self.kept = kept
        self._new_params = new_params
        self._tasks: set[asyncio.Task[Any]] = set()

    def new_params(self) -> Any:
        """What kernel calls of new tasks share; its manager is a child of the session's."""
        return self._new_params(CancellationManager(self._cancellation))

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine in a task with this name.  Cancelling the task stops it; it must not raise anything else."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended.

        A task that was cancelled before is not cancelled again: it may be closing what it has opened.
        """
        while self._tasks:
            for task in self._tasks:
                if not task.cancelling():
                    task.cancel()
            await asyncio.wait(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def __repr__(self) -> str:
        return f"<BackgroundTasks {len(self)} running>"
