"""Calls in threads that nobody waits for any more: they end between two pieces of their work.

When a step is over, by its deadline say, what still computes for it in a worker thread is abandoned: the step is
answered at once, and the thread learns of it the next time it asks.  `in_pieces` and `let_others_run` ask
for whoever uses them; `check_wanted` is for other loops.  A call is not abandoned while it changes state, which
would be left half changed: it does that within `finishing`, and the step waits.  A call of a library runs to its end.
Next to read: `loop_budget.py` for `giving_way`, `aexec/runtime/threads/worker_pool.py` for who abandons.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["AbandonedError", "CallInThread", "check_wanted", "current_call", "finishing"]


class AbandonedError(BaseException):
    """Nobody waits for the call that this thread is making.  Not to be caught, so no `Exception`."""


class CallInThread:
    """A call that a thread makes, or will make.

    Attributes:
        abandoned: nobody waits for it any more; set by any thread.
    """

    __slots__ = ("_claim", "abandoned")

    def __init__(self) -> None:
        self.abandoned = False
        self._claim = threading.Lock()  # of who abandons it, or of it while it finishes

    def abandon(self) -> bool:
        """Nobody waits for it any more, from any thread; False if it is finishing, and so is to be waited for."""
        if self._claim.acquire(blocking=False):
            self.abandoned = True
        return self.abandoned

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """Within, on its own thread, it is not abandoned.  Raises AbandonedError if it has been."""
        if self.abandoned or not self._claim.acquire(blocking=False):
            raise AbandonedError
        try:
            yield
        finally:
            self._claim.release()

    @contextmanager
    def running(self) -> Iterator[None]:
        """What this thread does in this context is done for the call."""
        around, _here.call = _here.call, self
        try:
            yield
        finally:
            _here.call = around


class _Here(threading.local):
    call: CallInThread | None = None


_here = _Here()


def current_call() -> CallInThread | None:
    """The call for which this thread works, None if that cannot be abandoned."""
    return _here.call


@contextmanager
def finishing() -> Iterator[None]:
    """A context in which this thread's call changes state, and is not abandoned: a step that ends waits for it.

    Raises AbandonedError at its begin if the call is not wanted any more.
    """
    call = _here.call
    if call is None:
        yield
        return
    with call.finishing():
        yield


def check_wanted() -> None:
    """Raises AbandonedError if what this thread does is not wanted any more."""
    call = _here.call
    if call is not None and call.abandoned:
        raise AbandonedError
