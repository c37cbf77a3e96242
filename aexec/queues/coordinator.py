"""`Coordinator`: stops a group of tasks together, and reports the first error.

::

    async with Coordinator() as coordinator:
        start_queue_runners(session, coordinator)
        while not coordinator.should_stop():
            await session.run("train")

Any task may request the stop, with an error if there is one; running out of input
(OutOfRangeError) is a clean stop.  Leaving the block requests it too, waits for the tasks, and
raises the error.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from aexec.framework import errors

__all__ = ["Coordinator"]


class Coordinator:
    """Stops a group of tasks together, and raises the first error among them.  All methods belong to the event loop.

    Args:
        clean_stop_exception_types: exceptions that request a stop but are not reported as errors.
        stop_grace_period: seconds that leaving the block waits for tasks that do not end.
    """

    def __init__(
        self,
        clean_stop_exception_types: tuple[type[BaseException], ...] = (errors.OutOfRangeError,),
        *,
        stop_grace_period: float = 120.0,
    ) -> None:
        self._clean = clean_stop_exception_types
        self._grace = stop_grace_period
        self._stop = asyncio.Event()
        self._error: BaseException | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._group: asyncio.TaskGroup | None = None
        self._joined = False

    # Stopping

    def should_stop(self) -> bool:
        """True if a stop was requested."""
        return self._stop.is_set()

    def request_stop(self, error: BaseException | None = None) -> None:
        """Ask all tasks to stop.  The first error that is not a clean stop is kept, for `join` to raise.

        After `join` an error is raised at once, since nothing will report it.
        """
        if isinstance(error, self._clean):
            error = None
        if self._joined and error is not None:
            raise error
        if not self._stop.is_set():
            self._error = error
            self._stop.set()

    def clear_stop(self) -> None:
        """Reset: no stop is requested, no error kept."""
        self._stop.clear()
        self._error = None
        self._joined = False

    async def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Wait for the stop, at most `timeout` seconds; return whether it was requested."""
        if not self._stop.is_set():
            waiter = asyncio.ensure_future(self._stop.wait())
            try:
                await asyncio.wait([waiter], timeout=timeout)
            finally:
                waiter.cancel()
        return self._stop.is_set()

    @contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Context manager: an error in the block requests the stop and is not raised."""
        try:
            yield
        except Exception as error:
            self.request_stop(error)

    def raise_requested_exception(self) -> None:
        """Raise the kept error, if there is one."""
        if self._error is not None:
            raise self._error

    # Tasks

    @property
    def tasks(self) -> tuple[asyncio.Task[Any], ...]:
        """The tasks that were started or registered and have not ended."""
        return tuple(task for task in self._tasks if not task.done())

    @property
    def joined(self) -> bool:
        return self._joined

    def create_task(self, coroutine: Coroutine[Any, Any, Any], *, name: str | None = None) -> asyncio.Task[Any]:
        """Start a task: in the block's TaskGroup inside the block, else on its own."""
        owner: Any = self._group or asyncio
        task: asyncio.Task[Any] = owner.create_task(coroutine, name=name)
        self.register_task(task)
        return task

    def register_task(self, task: asyncio.Task[Any]) -> None:
        """Make `join` wait for a task."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def every(self, seconds: float, target: Callable[[], Any], *, name: str | None = None) -> asyncio.Task[Any]:
        """Call a function or coroutine function repeatedly until the stop; its error requests the stop.

        Calls begin `seconds` apart, or one after another if they take longer or `seconds` is 0.
        """
        return self.create_task(self._every(seconds, target), name=name)

    async def _every(self, seconds: float, target: Callable[[], Any]) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        with self.stop_on_exception():
            while not self.should_stop():
                result = target()
                if inspect.isawaitable(result):
                    await result
                due += seconds
                delay = max(0.0, due - loop.time())
                if delay:
                    await self.wait_for_stop(delay)
                else:
                    await asyncio.sleep(0)

    async def join(
        self,
        tasks: Iterable[asyncio.Task[Any]] = (),
        *,
        stop_grace_period: float | None = None,
        ignore_live_tasks: bool = False,
    ) -> None:
        """Wait until a stop is requested or all tasks have ended; then wait for the tasks, and raise the kept error.

        Args:
            tasks: tasks to wait for besides those that the coordinator knows.
            stop_grace_period: seconds for which tasks may go on after the stop; then they are cancelled.
            ignore_live_tasks: do not raise if tasks had to be cancelled.

        Raises:
            BaseException: the error that was passed to `request_stop`.
            RuntimeError: tasks had to be cancelled.
        """
        grace = self._grace if stop_grace_period is None else stop_grace_period
        live = {*tasks, *self._tasks}
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            while not stop.done() and any(not task.done() for task in live):
                await asyncio.wait([stop, *(t for t in live if not t.done())], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
        _, stragglers = await asyncio.wait(live, timeout=grace) if live else ((), set())
        for task in stragglers:
            task.cancel()
        if stragglers:
            await asyncio.wait(stragglers)
        self._joined = True
        self.raise_requested_exception()
        if stragglers and not ignore_live_tasks:
            names = " ".join(sorted(task.get_name() for task in stragglers))
            raise RuntimeError(f"Coordinator stopped with tasks still running: {names}")

    async def __aenter__(self) -> Coordinator:
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        assert self._group is not None
        group = self._group
        if error is not None and not isinstance(error, Exception):
            # Cancelled or interrupted: the group cancels the tasks and waits for them.
            self.request_stop()
            await group.__aexit__(kind, error, traceback)
            return False
        try:
            self.request_stop(error)
            await self.join()
        except asyncio.CancelledError as cancelled:
            await group.__aexit__(type(cancelled), cancelled, cancelled.__traceback__)
            raise
        except Exception:
            await group.__aexit__(None, None, None)  # its tasks have ended
            raise
        else:
            await group.__aexit__(None, None, None)
        finally:
            self._group = None
        return True

    def __repr__(self) -> str:
        state = "stopping" if self.should_stop() else "running"
        return f"<Coordinator {state}, {len(self.tasks)} tasks{f', {self._error!r}' if self._error else ''}>"
