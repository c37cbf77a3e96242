"""`Pulled`: a dataset iterator over an asynchronous iterator of the program, the source.

A task of the session calls the source, not the step that requests an element.  If that step is cancelled, the source
goes on, and the next step gets the element.  Since one task makes all calls and closes the source, the source may keep
a task group or a timeout open across a `yield`.
Next to read: `python_sources.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aexec.framework import errors
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.resources.datasets.dataset import DatasetIterator, Element, Pass

__all__ = ["Pulled"]

_END = object()

# Python exception → error of the step; any other exception becomes an UnknownError.
_ERRORS: tuple[tuple[type[Exception], type[errors.OpError]], ...] = (
    (ValueError, errors.InvalidArgumentError),
    (TypeError, errors.InvalidArgumentError),
    (MemoryError, errors.ResourceExhaustedError),
    (NotImplementedError, errors.UnimplementedError),
    (TimeoutError, errors.DeadlineExceededError),
    (ConnectionError, errors.UnavailableError),
)


def _python_error(error: BaseException, where: str) -> errors.OpError:
    """Convert a Python exception to the error of a step; `where` names the place in the message."""
    if isinstance(error, errors.OpError):
        return errors.error_class(error.code)(f"{where}: {error.message}")
    kind = next((ours for pythons, ours in _ERRORS if isinstance(error, pythons)), errors.UnknownError)
    return kind(f"{where}: {type(error).__name__}: {error}")


class Pulled(DatasetIterator):
    """One pass through an asynchronous iterator.

    Args:
        one: the pass.
        name: name of the dataset, for errors and for the task.
        open_source: creates the asynchronous iterator; called when the first element is requested.
        convert: converts a value to an element; called on the event loop, and again in a thread if it raises
            NeedsThreadError.
    """

    __slots__ = (
        "_asked",
        "_convert",
        "_ended",
        "_is_there",
        "_name",
        "_number",
        "_open",
        "_outcome",
        "_pass",
        "_task",
        "_waiter",
        "_wanted",
    )

    def __init__(
        self,
        one: Pass,
        name: str,
        open_source: Callable[[], Awaitable[AsyncIterator[Any]]],
        convert: Callable[[Any], Element],
    ) -> None:
        self._pass = one
        self._name = name
        self._open = open_source
        self._convert = convert
        self._task: asyncio.Task[None] | None = None
        # The number of the element that is asked for; of those before, each was given or was an error.
        self._number = 0
        # True from the time at which an element is asked for until a step has it.
        self._asked = False
        # What the source gave, if it is there: an element, None at the end, or an error.
        self._outcome: Element | errors.OpError | None = None
        self._is_there = False
        self._ended = False
        # Futures that end the waiting of the task for a step that asks, and of a step for what the source gives.
        self._wanted: asyncio.Future[None] | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def next(self, context: OpKernelContext) -> Element | None:
        if self._ended:
            return None
        if self._task is None:
            self._task = self._pass.start(self._pull(), f"{self._name}: ask the source")
        if not self._asked:
            self._asked = True
            _end_waiting(self._wanted)
        if not self._is_there:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._asked = self._is_there = False
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, errors.OpError):
            raise outcome
        self._ended = outcome is None
        return outcome

    async def _pull(self) -> None:
        """Ask the source whenever an element is wanted, until its end."""
        source: AsyncIterator[Any] | None = None
        try:
            while True:
                await self._asked_for()
                try:
                    if source is None:
                        source = await self._opened()
                    value = await anext(source, _END)
                    if value is _END:
                        break
                    try:
                        element = self._convert(value)
                    except NeedsThreadError:
                        element = await self._pass.context.worker_pool.run(self._convert, value)
                    self._give(self._pass.keep(element))
                except Exception as error:
                    self._give(self._failure(error))
                except asyncio.CancelledError as error:
                    if _is_cancelled():
                        raise
                    self._give(self._failure(error))  # raised by the source itself
            self._give(None)
        finally:
            if self._asked and not self._is_there:
                self._give(errors.CancelledError(f"{self._name} was closed"))
            await self._closed(source)

    async def _asked_for(self) -> None:
        """Wait until a step asks for an element, and the one before was taken."""
        while self._is_there or not self._asked:
            self._wanted = asyncio.get_running_loop().create_future()
            await self._wanted

    async def _opened(self) -> AsyncIterator[Any]:
        try:
            return await self._open()
        except Exception as error:
            self._open = _no_elements
            raise error from None

    def _give(self, outcome: Element | errors.OpError | None) -> None:
        self._number += 1
        self._outcome = outcome
        self._is_there = True
        _end_waiting(self._waiter)

    def _failure(self, error: BaseException) -> errors.OpError:
        failed = _python_error(error, f"{self._name}, element {self._number}")
        failed.__cause__ = error
        return failed

    async def _closed(self, source: Any) -> None:
        """Close the source, so that a generator runs its `finally` blocks."""
        if not hasattr(source, "aclose"):
            return
        try:
            await source.aclose()
        except Exception as error:
            where = f"{self._name}: its source failed while it was closed"
            asyncio.get_running_loop().call_exception_handler({"message": where, "exception": error})

    def close(self) -> None:
        if self._task is not None and not self._task.cancelling():
            self._task.cancel()


def _end_waiting(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _no_elements() -> AsyncIterator[Any]:
    """A source that could not be opened has no elements."""

    async def empty() -> AsyncIterator[Any]:
        return
        yield

    return empty()
