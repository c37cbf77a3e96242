"""Abandoned calls: calls in threads whose results are no longer wanted end between two pieces of their work.

When a step ends, by its deadline for instance, its calls in worker threads are abandoned.  The step is answered at
once, and a thread notices the next time it asks.  `in_pieces` and `let_others_run` ask for their users; other loops
call `check_wanted`.  A call that changes state does so within `finishing`: then it is not abandoned, and the step waits
for it, so that nothing stays half changed.  A call into a library runs to its end.
Next to read: `loop_budget.py` for `giving_way`, `aexec/runtime/threads/worker_pool.py`, which abandons calls.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["AbandonedError", "CallInThread", "check_wanted", "current_call", "finishing"]


class AbandonedError(BaseException):
    """Nobody waits for the call of this thread any more.  A BaseException, so that handlers do not catch it."""


class CallInThread:
    """A call that a thread makes or will make.

    Attributes:
        abandoned: True once nobody waits for it; set by any thread.
    """

    __slots__ = ("_claim", "abandoned")

    def __init__(self) -> None:
        self.abandoned = False
        self._claim = threading.Lock()  # held while it is abandoned, and while it finishes

    def abandon(self) -> bool:
        """Abandon the call, from any thread.  Returns False if it is finishing: then the caller must wait for it."""
        if self._claim.acquire(blocking=False):
            self.abandoned = True
        return self.abandoned

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """Context manager, on the call's thread: inside it is not abandoned.  Raises AbandonedError if it was."""
        if self.abandoned or not self._claim.acquire(blocking=False):
            raise AbandonedError
        try:
            yield
        finally:
            self._claim.release()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Context manager: this thread works for the call inside."""
        around, _here.call = _here.call, self
        try:
            yield
        finally:
            _here.call = around


class _Here(threading.local):
    call: CallInThread | None = None


_here = _Here()


def current_call() -> CallInThread | None:
    """The call that this thread works for; None if it cannot be abandoned."""
    return _here.call


@contextmanager
def finishing() -> Iterator[None]:
    """Context manager in which this thread's call changes state: a step that ends waits for it.

    Raises AbandonedError at the start if the call was abandoned.
    """
    call = _here.call
    if call is None:
        yield
        return
    with call.finishing():
        yield


def check_wanted() -> None:
    """Raise AbandonedError if this thread's call was abandoned."""
    call = _here.call
    if call is not None and call.abandoned:
        raise AbandonedError
