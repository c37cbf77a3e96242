"""`AttemptLines`: the two lines of attempts that wait at a queue, enqueues and dequeues.

Each line is served strictly in order of arrival; only its head is tried.  After every change both heads are tried again
until neither makes progress, or until enough elements were moved that the event loop must get its turn.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from aexec.framework import errors
from aexec.framework.waiting.futures import running_loop
from aexec.framework.waiting.loop_budget import DEFAULT, MOVE_NS
from aexec.queues.attempts import Attempt, Dequeue, Operation

if TYPE_CHECKING:
    from aexec.queues.attempts import WaitedFor
else:
    WaitedFor = object  # a protocol's metaclass would make `isinstance` slow

__all__ = ["UNBOUNDED", "AttemptLines", "deliver"]

# The capacity of an unbounded queue, as errors print it.
UNBOUNDED = 2**31 - 1
# Elements that are moved before the event loop gets its turn.
_AT_ONCE = DEFAULT.pieces(MOVE_NS)


class AttemptLines(WaitedFor):
    """Serves the lines of one queue, whose elements a subclass keeps.

    Attributes:
        kind: name of the op that makes such a queue.
        name: for errors.
        closed: True if no element can be put any more.
        moves_left: the number of elements that may be moved before the event loop gets its turn.
    """

    kind: ClassVar[str] = ""

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = False
        self.moves_left = 0
        self._lock = threading.Lock()
        self._enqueues: deque[Attempt] = deque()
        self._dequeues: deque[Attempt] = deque()
        self._enqueued = 0
        self._dequeued = 0

    def abandon(self, attempt: Attempt) -> bool:
        """Remove a cancelled attempt from its line; False if it is being delivered, in which case `deliver` undoes
        it.
        """
        with self._lock:
            line = self._dequeues if isinstance(attempt.operation, Dequeue) else self._enqueues
            try:
                line.remove(attempt)
            except ValueError:
                return False
            attempt.operation.abandon(self)
            completed = self._flush()
        deliver(completed)
        return True

    def outcome_of(self, operation: Operation) -> Any:
        """The result of a completed operation.  If batching the elements fails, they are put back."""
        try:
            return operation.outcome()
        except BaseException:
            if operation.error is None:
                self.undo(operation)
            raise

    def undo(self, operation: Operation) -> None:
        """Undo a completed operation."""
        with self._lock:
            operation.undo(self)
            completed = self._flush()
        deliver(completed)

    def _begin(self, operation: Operation, line: deque[Attempt]) -> Any:
        """Do an operation at once if it is its turn and it can be done; else return an attempt that waits in line."""
        loop = running_loop()
        with self._lock:
            attempt = None
            self.moves_left = UNBOUNDED if loop is None else _AT_ONCE
            if line or not operation.advance(self):
                if loop is None:
                    operation.abandon(self)
                    raise errors.FailedPreconditionError(
                        f"{self.kind} '{self.name}': the operation has to wait, and no event loop runs in this thread"
                    )
                attempt = Attempt(self, operation, loop)
                line.append(attempt)
            completed = self._flush()
        deliver(completed)
        if attempt is None:
            return self.outcome_of(operation)
        return attempt.result() if attempt.done() else attempt

    def _flush(self) -> list[Attempt]:
        """Try the heads of both lines until neither makes progress; return the completed attempts."""
        completed: list[Attempt] = []
        self.moves_left = _AT_ONCE
        while True:
            before = self._enqueued, self._dequeued, len(completed)
            for line in (self._enqueues, self._dequeues):
                while line and line[0].operation.advance(self):
                    completed.append(line.popleft())
            if self.moves_left <= 0:
                if self._flush_later():
                    return completed
                self.moves_left = _AT_ONCE
            elif before == (self._enqueued, self._dequeued, len(completed)):
                return completed

    def _flush_later(self) -> bool:
        """Serve the lines in the next turn of an event loop on which an attempt waits; False if none runs."""
        for attempt in (*self._dequeues, *self._enqueues):
            try:
                attempt.get_loop().call_soon_threadsafe(self._go_on)
            except RuntimeError:  # that loop is closed
                continue
            return True
        return False

    def _go_on(self) -> None:
        with self._lock:
            completed = self._flush()
        deliver(completed)

    @staticmethod
    def _fail_all(line: deque[Attempt]) -> list[Attempt]:
        failed = list(line)
        line.clear()
        for attempt in failed:
            attempt.operation.error = errors.CancelledError(attempt.operation.cancelled_message)
        return failed


def deliver(attempts: Iterable[Attempt]) -> None:
    """Report to the waiters of attempts that they are completed; called without the lock."""
    for attempt in attempts:
        attempt.deliver()
