"""Importing and planning graphs: in threads, in turns, no longer than somebody wants it; and on the loop briefly.

What makes or rewrites a graph goes through its nodes with `steadily`, or calls `go_on` between two pieces; before a
piece that takes long and cannot be cut it says so, with `expect`.  What happens there depends on whose work it is:

* `LongWork`, in a thread, gives the interpreter's lock to whoever waits for it, lets other long work have its turn, and
  ends if it was called off, as nobody waits for it any more.
* `ShortWork`, on an event loop, ends if it has taken as long as it may there, or would: it is begun anew in a thread.
* In a program that uses the package without either of them, nothing happens.

So nobody has to know beforehand how long planning a graph will take.

Only one thread has its turn at any time: more would not be faster, as all need the interpreter's lock, and the loop
would have to wait for it behind each of them.
Next to read: `runtime/worker_pool.py`, whose `run_in_turns` makes the threads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter, thread_time
from typing import Any, TypeVar

from aexec.framework.abandoned_calls import AbandonedError, CallInThread
from aexec.framework.inline_call import NeedsThreadError
from aexec.framework.loop_budget import let_lock_go

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
]

T = TypeVar("T")

# So many items are gone through in a thread between two looks at the clock: mostly they take some 0.1 ms, but there are
# nodes that take a million times as long as others.
_PIECE = 8
# Seconds until a thread gives the interpreter's lock to others, and until it gives its turn to other long work.
_AT_A_STRETCH = 1e-3
_TURN = 5e-3


class CalledOffError(BaseException):
    """Work ends because it was called off.  No `Exception`: nothing that copes with errors is to cope with it."""


class _TooLongError(CalledOffError):
    """Work is to go on in a thread."""


class ShortWork:
    """Work on an event loop that ends if it takes longer than it may.

    Args:
        seconds: of the processor's time that it may take.

    Attributes:
        look_at: by `perf_counter`: before, `go_on` need not be called.
    """

    __slots__ = ("_end", "_seconds", "look_at")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # By the processor's time of this thread, which is asked seldom: the clock is cheaper.
        self._end = self.look_at = 0.0

    def do(self, call: Callable[[], T]) -> T:
        """What `call()` returns.

        Raises:
            NeedsThreadError: it takes longer than it may, and ended amid its work.
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
        """Between two pieces."""
        if perf_counter() > self.look_at:
            self.expect(0)
            self.look_at = perf_counter() + self._end - thread_time()

    def expect(self, nanoseconds: float) -> None:
        """A piece that takes so long is about to begin."""
        if thread_time() + nanoseconds * 1e-9 > self._end:
            raise _TooLongError

    def give_way(self) -> bool:
        """What is to be done in any case is done: as of `LongWork`."""
        return False

    def acquire(self, lock: threading.Lock) -> None:
        """Take a lock, unless a thread has it."""
        if not lock.acquire(blocking=False):
            raise _TooLongError


class LongWork:
    """One piece of work for a thread, that others may call off."""

    __slots__ = ("_call", "_looked", "_turn_began", "_wake")

    def __init__(self) -> None:
        # What is shared with other calls in threads asks this whether it is wanted.
        self._call = CallInThread()
        # Held but for the moment between being woken and going on.
        self._wake = threading.Lock()
        self._wake.acquire()
        self._looked = self._turn_began = 0.0

    @property
    def called_off(self) -> bool:
        return self._call.abandoned

    def call_off(self) -> None:
        """Nobody wants it any more.  From any thread, any number of times; it ends at its next `go_on`."""
        self._call.abandoned = True
        _turns.withdraw(self)

    def do(self, call: Callable[[], T]) -> T:
        """What `call()` returns, when it has its turn.  Raises CalledOffError if it was called off before its end."""
        _turns.take(self)
        _here.work = self
        try:
            self._check()
            self._turn_began = self._looked = perf_counter()
            with suppress(CalledOffError, AbandonedError), self._call.running():
                return call()
            # Without the frames that the first one came through: they hold what was being made.
            raise CalledOffError
        finally:
            _here.work = None
            _turns.give_up(self)

    def go_on(self) -> None:
        """Between two pieces.  Raises CalledOffError if it was called off."""
        self._check()
        if self.give_way():
            self._check()

    def expect(self, nanoseconds: float) -> None:
        """A piece that takes so long is about to begin."""
        self._check()

    def give_way(self) -> bool:
        """Between two pieces of what is to be done even if the work was called off; True if others had their turn."""
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
        """Wait for a lock, whose holder may be other long work that waits for its turn."""
        while not lock.acquire(timeout=_AT_A_STRETCH):
            self._check()
            _turns.pass_on(self)

    def _check(self) -> None:
        if self._call.abandoned:
            raise CalledOffError

    def wait_for_turn(self) -> None:
        """Called by the turns."""
        self._wake.acquire()

    def wake(self) -> None:
        """Called by the turns: it has its turn, or was called off while it waited."""
        self._wake.release()


class _Turns:
    """Who works now, and who waits for it, in order.  `None` works only if nobody waits."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._at_work: LongWork | None = None
        self._waiting: deque[LongWork] = deque()

    def take(self, work: LongWork) -> None:
        """Wait for a turn; also returns when the work is called off meanwhile."""
        with self._guard:
            if self._at_work is None:
                self._at_work = work
                return
            self._waiting.append(work)
        work.wait_for_turn()

    def pass_on(self, work: LongWork) -> None:
        """Let who waits have a turn first."""
        if self._waiting:
            self.give_up(work)
            self.take(work)

    def give_up(self, work: LongWork) -> None:
        with self._guard:
            if self._at_work is not work:
                return  # called off before its turn came
            self._at_work = self._waiting.popleft() if self._waiting else None
            if self._at_work is not None:
                self._at_work.wake()

    def withdraw(self, work: LongWork) -> None:
        """It waits no longer."""
        with self._guard:
            if work in self._waiting:
                self._waiting.remove(work)
                work.wake()


_turns = _Turns()


class _Here(threading.local):
    work: LongWork | ShortWork | None = None


_here = _Here()


def go_on() -> None:
    """Called between two pieces of work.  Raises CalledOffError if it is not to go on here."""
    work = _here.work
    if work is not None:
        work.go_on()


def expect(nanoseconds: float) -> None:
    """Called before a piece of work that takes so long, and cannot be cut.  Raises CalledOffError as `go_on`."""
    work = _here.work
    if work is not None:
        work.expect(nanoseconds)


@contextmanager
def holding(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock while work goes on that looks after others.  Raises CalledOffError while it waits for it."""
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
    """The items, with `go_on` after some of them each.  Raises CalledOffError."""
    work = _here.work
    if work is None:
        yield from items
        return
    if type(work) is ShortWork:
        for item in items:
            yield item
            if perf_counter() > work.look_at:
                work.go_on()
        return
    left = _PIECE
    for item in items:
        yield item
        left -= 1
        if not left:
            work.go_on()
            left = _PIECE


def to_the_end(items: Iterable[T]) -> Iterator[T]:
    """The items, with pauses as `steadily` makes them.

    It goes on although the work was called off, or takes too long: what that has made is to be freed, too.
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
    """The last items of a list that are to be freed, until it is empty, as `to_the_end`."""

    def popped() -> Iterator[T]:
        while container:
            yield container.pop()

    return to_the_end(popped())


def empty(container: list[Any] | dict[Any, Any]) -> None:
    """Take everything out, as `drained` does: what nothing else refers to is freed in pieces, and not all at once."""
    if isinstance(container, dict):
        keys = list(container)
        for key in drained(keys):
            del container[key]
    else:
        for _ in drained(container):
            pass


def taken_from(stack: list[T]) -> Iterator[T]:
    """The last items of a stack, until it is empty, `steadily`; more may be put on it meanwhile."""
    return steadily(_popped(stack))


def _popped(stack: list[T]) -> Iterator[T]:
    while stack:
        yield stack.pop()
