"""Lets work that makes or rewrites graphs pause and stop.

Code that goes through the nodes of a graph uses `steadily`, or calls `go_on` between two pieces of its work.  Before a
piece that takes long and cannot be interrupted it calls `expect`.  What these do depends on who runs the code:

* In a thread, under `LongWork`: they release the interpreter's lock now and then, let other long work have a turn, and
  raise CalledOffError once nobody waits for the result.
* On an event loop, under `ShortWork`: they stop the work when its time is used up, or would be by the piece that is
  announced.  The caller then starts it again in a thread.
* Under neither, as in a program that uses the package directly: they do nothing.

So a caller need not know beforehand how long planning a graph takes.

Only one thread works at a time.  More would not be faster, as all need the interpreter's lock, and the event loop would
have to wait behind each of them.
Next to read: `runtime/threads/worker_pool.py`, whose `run_in_turns` makes the threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from time import perf_counter, thread_time
from typing import Any, TypeVar

from aexec.framework.waiting.abandoned_calls import AbandonedError, CallInThread
from aexec.framework.waiting.inline_call import NeedsThreadError
from aexec.framework.waiting.loop_budget import let_lock_go

__all__ = [
    "CalledOffError",
    "LongWork",
    "ShortWork",
    "drained",
    "empty",
    "expect",
    "go_on",
    "holding",
    "steadily",
    "taken_from",
    "to_the_end",
    "work_owner",
]

T = TypeVar("T")

# Items between two looks at the clock in a thread.  Mostly they take 0.1 ms together, but some nodes take a million
# times as long as others.
_PIECE = 8
# Whose long work is made in this context; a server sets it to its client.
work_owner: ContextVar[str] = ContextVar("aexec_work_owner", default="")
# Seconds until a thread gives the interpreter's lock to others, and until it gives its turn to other long work.
_AT_A_STRETCH = 1e-3
_TURN = 5e-3


class CalledOffError(BaseException):
    """Raised inside work that must stop.  A BaseException, so that code which handles errors does not catch it."""


# The part of its time that a short work may spend on announced pieces.  The rest is for work that takes longer than
# anybody knew; what is known to take long is better begun in a thread.
_ANNOUNCED_SHARE = 1 / 4


class _TooLongError(CalledOffError):
    """The work has used up its time on the event loop and must be done in a thread."""


class ShortWork:
    """Work on an event loop with a limited time.

    Args:
        seconds: the processor time that it may take.

    Attributes:
        look_at: `go_on` need not be called before this time, by `perf_counter`.
    """

    __slots__ = ("_announced", "_end", "_seconds", "look_at")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._announced = 0.0  # nanoseconds of all pieces that were announced
        # By this thread's processor time, which is read less often, because the clock is cheaper.
        self._end = self.look_at = 0.0

    def do(self, call: Callable[[], T]) -> T:
        """Run `call` and return its result.

        Raises:
            NeedsThreadError: the time was used up; the call was stopped halfway.
        """
        around, _here.work = _here.work, self
        self._end = thread_time() + self._seconds
        self.look_at = perf_counter() + self._seconds
        try:
            with suppress(_TooLongError):
                return call()
            raise NeedsThreadError(f"it takes more than {self._seconds * 1e3:g} ms of the event loop's time")
        finally:
            _here.work = around

    def go_on(self) -> None:
        """Stop the work if its time is used up."""
        if perf_counter() > self.look_at:
            if thread_time() > self._end:
                raise _TooLongError
            self.look_at = perf_counter() + self._end - thread_time()

    def expect(self, nanoseconds: float) -> None:
        """Stop the work if the announced pieces take too large a share of its time, or this one all that remains."""
        self._announced += nanoseconds
        too_long = self._announced * 1e-9 > _ANNOUNCED_SHARE * self._seconds
        if too_long or thread_time() + nanoseconds * 1e-9 > self._end:
            raise _TooLongError

    def give_way(self) -> bool:
        """Do nothing.  Called in work that must be finished; see `LongWork.give_way`."""
        return False

    def acquire(self, lock: threading.Lock) -> None:
        """Take a lock; stop the work if another thread holds it."""
        if not lock.acquire(blocking=False):
            raise _TooLongError


class LongWork:
    """Work for a thread, which others may call off.

    Attributes:
        left: the items that `steadily` yields before it calls `go_on`.
        owner: whose work it is, `work_owner` where it was made.
    """

    __slots__ = ("_call", "_looked", "_turn_began", "_wake", "left", "owner")

    def __init__(self) -> None:
        self.left = _PIECE
        self.owner = work_owner.get()
        # Code shared with calls of kernels asks this whether the work is still wanted.
        self._call = CallInThread()
        # Released only from being woken to going on.
        self._wake = threading.Lock()
        self._wake.acquire()
        self._looked = self._turn_began = 0.0

    @property
    def called_off(self) -> bool:
        return self._call.abandoned

    def call_off(self) -> None:
        """Tell the work that its result is not wanted: it stops at its next `go_on`.  From any thread, repeatedly."""
        self._call.abandoned = True
        _turns.withdraw(self)

    def do(self, call: Callable[[], T]) -> T:
        """Run `call` in turn; return its result.  Raises CalledOffError if it is called off before the end."""
        _turns.take(self)
        _here.work = self
        try:
            self._check()
            self._turn_began = self._looked = perf_counter()
            with suppress(CalledOffError, AbandonedError), self._call.running():
                return call()
            # Return a new error without the first one's frames, which refer to the unfinished objects.
            raise CalledOffError
        finally:
            _here.work = None
            _turns.give_up(self)

    def go_on(self) -> None:
        """Pause between two pieces if it is time to.  Raises CalledOffError if the work was called off."""
        self._check()
        if self.give_way():
            self._check()

    def expect(self, nanoseconds: float) -> None:
        """Stop if the work was called off, before a piece that cannot be interrupted."""
        self._check()

    def give_way(self) -> bool:
        """Pause if it is time to, but do not stop: clean-up must be finished.  Returns whether others had a turn."""
        now = perf_counter()
        if now - self._looked < _AT_A_STRETCH:
            return False
        if passes_on := now - self._turn_began >= _TURN:
            _turns.pass_on(self)
            self._turn_began = perf_counter()
        let_lock_go()
        self._looked = perf_counter()
        return passes_on

    def acquire(self, lock: threading.Lock) -> None:
        """Take a lock, giving up the turn while waiting, as its holder may itself be waiting for a turn."""
        while not lock.acquire(timeout=_AT_A_STRETCH):
            self._check()
            _turns.pass_on(self)

    def _check(self) -> None:
        if self._call.abandoned:
            raise CalledOffError

    def wait_for_turn(self) -> None:
        """Wait until `wake`; called by the turns."""
        self._wake.acquire()

    def wake(self) -> None:
        """Wake the work: it has its turn, or was called off; called by the turns."""
        self._wake.release()


class _Turns:
    """The work whose turn it is, and those that wait.  No work has the turn only if none waits.

    Owners have their turns one after another, however much work of each waits.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._at_work: LongWork | None = None
        # Owner → its waiting work, in order; the owner whose turn is next comes first.
        self._waiting: OrderedDict[str, deque[LongWork]] = OrderedDict()

    def take(self, work: LongWork) -> None:
        """Wait for a turn; also returns when the work is called off meanwhile."""
        with self._guard:
            if self._at_work is None:
                self._at_work = work
                return
            self._waiting.setdefault(work.owner, deque()).append(work)
        work.wait_for_turn()

    def pass_on(self, work: LongWork) -> None:
        """If others wait, let them work first and wait for the next turn."""
        if self._waiting:
            self.give_up(work)
            self.take(work)

    def give_up(self, work: LongWork) -> None:
        with self._guard:
            if self._at_work is not work:
                return  # called off before its turn came
            self._at_work = self._next() if self._waiting else None
            if self._at_work is not None:
                self._at_work.wake()

    def _next(self) -> LongWork:
        owner, line = self._waiting.popitem(last=False)
        work = line.popleft()
        if line:
            self._waiting[owner] = line
        return work

    def withdraw(self, work: LongWork) -> None:
        """Stop waiting for a turn."""
        with self._guard:
            line = self._waiting.get(work.owner)
            if line is not None and work in line:
                line.remove(work)
                if not line:
                    del self._waiting[work.owner]
                work.wake()


_turns = _Turns()


class _Here(threading.local):
    work: LongWork | ShortWork | None = None


_here = _Here()


def go_on() -> None:
    """Pause between two pieces of work.  Raises CalledOffError if the work must stop here."""
    work = _here.work
    if work is not None:
        work.go_on()


def expect(nanoseconds: float) -> None:
    """Announce a piece that takes this long and cannot be interrupted.  Raises CalledOffError as `go_on`."""
    work = _here.work
    if work is not None:
        work.expect(nanoseconds)


@contextmanager
def holding(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock, letting other long work go on while waiting for it.  Raises CalledOffError while waiting."""
    work = _here.work
    if work is None:
        lock.acquire()
    else:
        work.acquire(lock)
    try:
        yield
    finally:
        lock.release()


def steadily(items: Iterable[T]) -> Iterator[T]:
    """Yield the items, calling `go_on` now and then.  Raises CalledOffError."""
    work = _here.work
    if work is None:
        yield from items
        return
    if isinstance(work, ShortWork):
        for item in items:
            yield item
            if perf_counter() > work.look_at:
                work.go_on()
        return
    # The count goes on in the next loop: many short ones are long work too.
    left = work.left
    try:
        for item in items:
            yield item
            left -= 1
            if left <= 0:
                work.go_on()
                left = _PIECE
    finally:
        work.left = left


def to_the_end(items: Iterable[T]) -> Iterator[T]:
    """Yield all items, pausing as `steadily` does but never stopping.

    For freeing what the work has made, which must be finished even if the work was called off or takes too long.
    """
    work = _here.work
    left = _PIECE
    for item in items:
        yield item
        left -= 1
        if not left:
            left = _PIECE
            if work is not None:
                work.give_way()


def drained(container: list[T]) -> Iterator[T]:
    """Remove and yield items from the end of a list until it is empty, as `to_the_end`."""

    def popped() -> Iterator[T]:
        while container:
            yield container.pop()

    return to_the_end(popped())


def empty(container: list[Any] | dict[Any, Any]) -> None:
    """Empty a list or dict item by item, so that the objects that it alone refers to are not freed at once."""
    if isinstance(container, dict):
        keys = list(container)
        for key in drained(keys):
            del container[key]
    else:
        for _ in drained(container):
            pass


def taken_from(stack: list[T]) -> Iterator[T]:
    """Remove and yield items from the end of a stack until it is empty, `steadily`.  More may be pushed meanwhile."""
    return steadily(_popped(stack))


def _popped(stack: list[T]) -> Iterator[T]:
    while stack:
        yield stack.pop()
