"""Attempts: operations that wait in a queue's two lines, and the future that each completes.

An operation goes on in steps, only while it is at the head of its line and with the queue's
lock held, and moves no more elements at a time than the queue says.  Its `Attempt` is what a
kernel or a Python caller waits for.  Cancelling an attempt takes it out of its line at once, and
it has then taken nothing: what a dequeue had collected goes back to where it was.
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
    """What operations and attempts ask of a queue; `QueueBase` in `queue_base.py` is one.

    Methods that end in `_locked` are called with its lock held.

    Attributes:
        name: for messages.
        closed: no element can be put any more.
        moves_left: elements that may be moved until others have their turn.
        takes_whole_batches: a dequeue takes nothing until all that it wants is there.
    """

    name: str
    closed: bool
    moves_left: int
    takes_whole_batches: ClassVar[bool]

    def __len__(self) -> int:
        """Number of elements."""

    def available_locked(self) -> int:
        """Number of elements that may be taken now."""

    def put_locked(self, elements: Sequence[Element], /) -> None:
        """Put elements."""

    def take_locked(self, count: int, /) -> list[Element]:
        """Take elements that are available."""

    def restore_locked(self, elements: Sequence[Element], /) -> None:
        """Put taken elements back to where they were."""

    def withdraw_locked(self, element: Element, /) -> None:
        """Take a put element out, if it is still there."""

    def close_locked(self) -> None:
        """Let no more elements in."""

    def closed_error(self) -> errors.OpError:
        """What an enqueue gets once the queue is closed."""

    def insufficient_error(self, requested: int, size: int, /) -> errors.OpError:
        """What a dequeue gets that the closed queue cannot serve any more."""

    def abandon(self, attempt: Attempt, /) -> bool:
        """An attempt was cancelled; True if nothing of it is on its way."""

    def outcome_of(self, operation: Operation, /) -> Any:
        """What an operation that is done comes to."""

    def undo(self, operation: Operation, /) -> None:
        """Take back an operation that is done."""


class Operation:
    """What is to be done with a queue, possibly in several steps.

    Attributes:
        error: why it failed, or None.
    """

    __slots__ = ("error",)

    cancelled_message = "Enqueue operation was cancelled"

    def __init__(self) -> None:
        self.error: errors.OpError | None = None

    def advance(self, queue: WaitedFor) -> bool:
        """Go as far as possible; True if it is done, well or with an error.  Called with the lock held."""
        raise NotImplementedError

    def outcome(self) -> Any:
        """What whoever waits gets.  Raises the error."""
        if self.error is not None:
            raise self.error
        return None

    def abandon(self, queue: WaitedFor) -> None:
        """It is given up half-way.  Called with the lock held."""

    def undo(self, queue: WaitedFor) -> None:
        """It is done, but whoever asked for it has gone.  Called with the lock held."""


class Enqueue(Operation):
    """Put elements, each as soon as fewer than `room` are there.

    Those that were put stay: others may have them already.  Only that of a single element is undone,
    if it is still there.
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
    """Take `count` elements, each as soon as it is there, or where the queue `takes_whole_batches` once all are.

    If the queue closes first, they go back and the operation fails; with `up_to` it takes what there is.
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
    """Close the queue after the enqueues that wait already."""

    __slots__ = ()

    def advance(self, queue: WaitedFor) -> bool:
        if queue.closed:
            self.error = errors.CancelledError(f"Queue '{queue.name}' is already closed.")
        queue.close_locked()
        return True


class Attempt(PendingOutputs):
    """A waiting operation.

    Attributes:
        operation: what is to be done.
        since: `perf_counter()` time from which it waits.
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
        """As of any, and True if it was in line still."""
        return super().cancel() and self._queue.abandon(self)

    def fail(self, error: BaseException) -> None:
        """Stop waiting, with this error.  Called on the attempt's loop."""
        if not self.done():
            self.set_exception(error)
            self._queue.abandon(self)

    def give_back(self) -> None:
        """Undo what was done: whoever asked for it has gone.  Called when it is done, whatever the outcome."""
        if not self.cancelled() and self.exception() is None:
            self._queue.undo(self.operation)

    def deliver(self) -> None:
        """The operation is done: complete the future.  Called on any thread, without the lock."""
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
    """What a queue's method returned, or what it comes to if it is an attempt.

    A cancellation of the waiting task takes the attempt back, even if it was done by then.
    """
    if not isinstance(outcome, PendingOutputs):
        return outcome
    try:
        return await outcome
    except asyncio.CancelledError:
        outcome.give_back()
        raise
