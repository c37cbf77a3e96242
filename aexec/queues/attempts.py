"""Attempts: operations that wait in a queue's two lines, and the future that each completes.

An operation advances in steps, only while it is at the head of its line and with the queue's lock held; each step moves
no more elements than the queue allows.  A kernel or a Python caller waits for its `Attempt`.  Cancelling an attempt
takes it out of its line at once, and it has then taken nothing: the elements that a dequeue has collected are put back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, ClassVar, Protocol

from aexec.framework import errors
from aexec.framework.waiting.futures import PendingOutputs, complete_on_loop, without_frame
from aexec.queues.batching import Element

__all__ = ["Attempt", "Close", "Dequeue", "Enqueue", "Operation", "WaitedFor", "settled"]

Finish = Callable[[list[Element]], Any]


class WaitedFor(Protocol):
    """The part of a queue that operations and attempts use; implemented by `QueueBase` in `queue_base.py`.

    Methods that end in `_locked` are called with its lock held.

    Attributes:
        name: for errors.
        closed: True if no element can be put any more.
        moves_left: the number of elements that may be moved before the event loop gets its turn.
        takes_whole_batches: True if a dequeue takes nothing until all its elements are there.
    """

    name: str
    closed: bool
    moves_left: int
    takes_whole_batches: ClassVar[bool]

    def __len__(self) -> int:
        """The number of elements."""

    def available_locked(self) -> int:
        """The number of elements that may be taken now."""

    def put_locked(self, elements: Sequence[Element], /) -> None:
        """Put elements."""

    def take_locked(self, count: int, /) -> list[Element]:
        """Take elements that are available."""

    def restore_locked(self, elements: Sequence[Element], /) -> None:
        """Put taken elements back in their places."""

    def withdraw_locked(self, element: Element, /) -> None:
        """Remove an element that was put, if it is still there."""

    def close_locked(self) -> None:
        """Close the queue for enqueues."""

    def closed_error(self) -> errors.OpError:
        """The error of an enqueue once the queue is closed."""

    def insufficient_error(self, requested: int, size: int, /) -> errors.OpError:
        """The error of a dequeue that the closed queue can no longer serve."""

    def abandon(self, attempt: Attempt, /) -> bool:
        """Called when an attempt is cancelled; False if its result is being delivered."""

    def outcome_of(self, operation: Operation, /) -> Any:
        """The result of a completed operation."""

    def undo(self, operation: Operation, /) -> None:
        """Undo a completed operation."""


class Operation:
    """An operation on a queue, which may take several steps.

    Attributes:
        error: why it failed, or None.
    """

    __slots__ = ("error",)

    cancelled_message = "Enqueue operation was cancelled"

    def __init__(self) -> None:
        self.error: errors.OpError | None = None

    def advance(self, queue: WaitedFor) -> bool:
        """Advance as far as possible; True if it is completed, with or without an error.  Called with the lock held."""
        raise NotImplementedError

    def outcome(self) -> Any:
        """The result for the waiter.  Raises the operation's error."""
        if self.error is not None:
            raise self.error
        return None

    def abandon(self, queue: WaitedFor) -> None:
        """Called, with the lock held, when the operation is given up half-way."""

    def undo(self, queue: WaitedFor) -> None:
        """Called, with the lock held, when the operation is completed but its waiter has gone."""


class Enqueue(Operation):
    """Put elements, each as soon as fewer than `room` are there.

    Elements that were put stay, since others may have taken them.  Only an enqueue of a single element is undone, if
    the element is still there.
    """

    __slots__ = ("_elements", "_next", "_room")

    def __init__(self, elements: list[Element], room: int) -> None:
        super().__init__()
        self._room = room
        self._elements = elements
        self._next = 0

    def advance(self, queue: WaitedFor) -> bool:
        if queue.closed:
            self.error = queue.closed_error()
            return True
        elements = self._elements
        begin = self._next
        self._next = min(len(elements), begin + min(queue.moves_left, max(0, self._room - len(queue))))
        if self._next > begin:
            queue.put_locked(elements[begin : self._next])
        return self._next == len(elements)

    def undo(self, queue: WaitedFor) -> None:
        if len(self._elements) == 1:
            queue.withdraw_locked(self._elements[0])


class Dequeue(Operation):
    """Take `count` elements, each as soon as it is there, or all at once if the queue `takes_whole_batches`.

    If the queue closes first, they are put back and the operation fails; with `up_to` it takes the elements that are
    there.
    """

    __slots__ = ("_count", "_finish", "_taken", "_up_to")

    cancelled_message = "Dequeue operation was cancelled"

    def __init__(self, count: int, *, up_to: bool, finish: Finish) -> None:
        super().__init__()
        self._count = count
        self._up_to = up_to
        self._finish = finish
        self._taken: list[Element] = []

    def advance(self, queue: WaitedFor) -> bool:
        missing = self._count - len(self._taken)
        size = len(queue)
        if queue.closed and size < missing:
            self.abandon(queue)
            missing_elements = queue.insufficient_error(missing, size)
            missing = len(queue)
            if not (self._up_to and missing):
                self.error = missing_elements
                return True
            self._count = missing
        available = min(missing, queue.available_locked())
        if available < missing and queue.takes_whole_batches:
            return False
        available = min(available, queue.moves_left)
        if available:
            self._taken += queue.take_locked(available)
        return len(self._taken) == self._count

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self._finish(self._taken)

    def abandon(self, queue: WaitedFor) -> None:
        queue.restore_locked(self._taken)
        self._taken = []

    undo = abandon


class Close(Operation):
    """Close the queue after the enqueues that are already waiting."""

    __slots__ = ()

    def advance(self, queue: WaitedFor) -> bool:
        if queue.closed:
            self.error = errors.CancelledError(f"Queue '{queue.name}' is already closed.")
        queue.close_locked()
        return True


class Attempt(PendingOutputs):
    """A waiting operation.

    Attributes:
        operation: the operation.
        since: the `perf_counter()` time since which it waits.
    """

    def __init__(self, queue: WaitedFor, operation: Operation, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.operation = operation
        self.cancelled_message = operation.cancelled_message
        self.since = perf_counter()
        self._queue = queue

    def cancel(self, msg: Any = None) -> bool:
        """Stop waiting.  The operation has then taken nothing."""
        if not super().cancel(msg):
            return False
        self._queue.abandon(self)
        return True

    def withdraw(self) -> bool:
        """Like `PendingOutputs.withdraw`; True also requires that the attempt was still in line."""
        return super().cancel() and self._queue.abandon(self)

    def fail(self, error: BaseException) -> None:
        """Stop waiting, with this error.  Called on the attempt's loop."""
        if not self.done():
            self.set_exception(error)
            self._queue.abandon(self)

    def give_back(self) -> None:
        """Undo the operation, since its waiter has gone.  Called when it is completed, with or without an error."""
        if not self.cancelled() and self.exception() is None:
            self._queue.undo(self.operation)

    def deliver(self) -> None:
        """Complete the future of a completed operation.  Called in any thread, without the lock."""
        complete_on_loop(self, lambda _: self._settle(), self._too_late)

    def _settle(self) -> None:
        try:
            self.set_result(self._queue.outcome_of(self.operation))
        except Exception as error:
            self.set_exception(without_frame(error))

    def _too_late(self) -> None:
        if self.operation.error is None:
            self._queue.undo(self.operation)


async def settled(outcome: Any) -> Any:
    """The outcome of a queue's method; if that is an attempt, its result.

    If the waiting task is cancelled, the attempt is undone, even if it was completed by then.
    """
    if not isinstance(outcome, PendingOutputs):
        return outcome
    try:
        return await outcome
    except asyncio.CancelledError:
        outcome.give_back()
        raise
