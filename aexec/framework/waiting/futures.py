"""Functions for asyncio futures: completing them from any thread, and waiting for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from types import CoroutineType
from typing import Any, TypeVar

__all__ = [
    "AWAITABLE",
    "PendingOutputs",
    "PromptOutputs",
    "complete_from",
    "complete_on_loop",
    "running_loop",
    "until_done",
    "without_frame",
]

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


def complete_on_loop(
    future: asyncio.Future[T],
    complete: Callable[[asyncio.Future[T]], object],
    too_late: Callable[[], object] = lambda: None,
) -> None:
    """Complete a future: at once if its loop runs on this thread, else when the loop gets to it.

    Args:
        future: a future of any loop.
        complete: sets its result or exception; called unless it is done by then.
        too_late: called instead if the future is done (because its waiter was cancelled), or its loop has closed.
    """
    loop = future.get_loop()

    def complete_unless_done() -> None:
        if future.done():
            too_late()
        else:
            complete(future)

    if running_loop() is loop:
        complete_unless_done()
        return
    try:
        loop.call_soon_threadsafe(complete_unless_done)
    except RuntimeError:  # the loop has closed, so nobody waits
        too_late()


def complete_from(source: asyncio.Future[T] | Future[T], future: asyncio.Future[T]) -> None:
    """Complete `future` like `source`, a future of any thread, when that is done; ignores a cancelled source.

    Unlike `asyncio.wrap_future` it does not cancel the source with the future, because others may wait for it too.
    """

    def complete(done: asyncio.Future[T] | Future[T]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            complete_on_loop(future, lambda waiting: waiting.set_result(done.result()))
        else:
            complete_on_loop(future, lambda waiting: waiting.set_exception(error))

    source.add_done_callback(complete)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def until_done(future: asyncio.Future[Any]) -> None:
    """Wait for a future's end, however often the waiting task is cancelled meanwhile."""
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future])


def without_frame(error: E) -> E:
    """An error without the frame of the function that caught it.

    If that frame refers to the future that keeps the error, the two would otherwise keep each other alive.
    """
    traceback = error.__traceback__
    return error.with_traceback(None if traceback is None else traceback.tb_next)


class PendingOutputs(asyncio.Future[Any]):
    """A future of its outputs, which a synchronous kernel returns when it has to wait for them.

    So a kernel that rarely waits, such as an enqueue, needs no task.  The code that makes the outputs completes the
    future on its loop.  The executor cancels it if the step stops first.

    Attributes:
        cancelled_message: TensorFlow's message for such an operation when it is cancelled; may be empty.
    """

    cancelled_message = ""

    def when_ended(self, callback: Callable[[asyncio.Future[Any]], object]) -> None:
        """Call `callback` on the loop, with this future, when it is completed or cancelled."""
        self.add_done_callback(callback)

    def withdraw(self) -> bool:
        """`cancel`, for a step that stops.  Returns True if the step need not wait for the loop's next turn."""
        self.cancel()
        return False

    def give_back(self) -> None:
        """Give the outputs back, because the step stopped after they were delivered and before it took them."""


class PromptOutputs(PendingOutputs):
    """Pending outputs that call back at once instead of in the loop's next turn.

    For futures that are completed in the middle of the executor's own work; no task may await one.
    """

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._to_call: list[Callable[[asyncio.Future[Any]], object]] = []

    def when_ended(self, callback: Callable[[asyncio.Future[Any]], object]) -> None:
        """Like `PendingOutputs.when_ended`, but calls back before the completing call returns, or at once."""
        if self.done():
            callback(self)
        else:
            self._to_call.append(callback)

    def set_result(self, result: Any) -> None:
        super().set_result(result)
        self._call_back()

    def set_exception(self, exception: type | BaseException) -> None:
        super().set_exception(exception)
        self._call_back()

    def cancel(self, msg: Any = None) -> bool:
        """Like `Future.cancel`."""
        cancelled = super().cancel(msg)
        if cancelled:
            self._call_back()
        return cancelled

    def _call_back(self) -> None:
        callbacks, self._to_call = self._to_call, []
        for callback in callbacks:
            callback(self)


# The types that a synchronous kernel may return in place of its outputs.
AWAITABLE = (PendingOutputs, CoroutineType)
