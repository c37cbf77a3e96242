"""Slices: bound how long inline work holds the event loop before the loop has its turn.

A loop has one `LoopTurns` for all sessions.  A slice opens with the first work after the loop had its turn, and all
runs of all sessions share it.  So neither a caller that awaits one small run after another nor a hundred sessions that
compute at the same time starve the loop.  The length of a slice is each session's own: its `SliceClock` says when the
open slice is over for it.

Executions whose slice is over wait in one line for the loop; each turn of the loop wakes the first, so that a long one
does not starve the others.  Between two turns the loop serves timers (and so deadlines), cancellations and connections.
What a message sets off takes several turns of the loop, with a callback in each.  So after a slice that was used up the
loop has more than one turn while others have work: otherwise each such callback would wait for a whole slice.
A run that begins uses the open slice, which costs nothing, unless the first in line has waited for long: then it goes
to the end of the line, so that no run takes much longer than another.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from time import perf_counter

from aexec.framework.waiting.intra_op import HelperThreads, use_helpers
from aexec.framework.waiting.loop_budget import LoopBudget, current_budget, use_budget

__all__ = ["LoopTurns", "SliceClock"]

# In slices, for steps: a run that ends within the open slice need not wait behind runs that take many slices.
_PATIENCE = 4.0
# Most waiters that are woken in one turn of the loop.
_MOST_AT_ONCE = 64
# After a slice that was used up the loop gets further turns, as long as each has at least this many seconds of work: at
# most this many turns, and at most this part of a slice.
_BUSY_TURN = 25e-6
_MOST_TURNS = 8
_PART_FOR_OTHERS = 0.5


class SliceClock:
    """Says when the open slice is over for one session.

    Args:
        budget: the loop budget, which has the length of a slice; a session with helpers has one of its own.
        helpers: the threads that help the session's kernels.
        turns: the slices and the line to use in place of the loop's.
        patience: when the first in line has waited for more than this many slices, runs that begin go behind it;
            0 is strict FIFO.

    Attributes:
        budget: as given, or as set by `set_budget`.
        helpers: as given.
        longest: the longest time, in seconds, for which a slice that the session used held the loop.
    """

    __slots__ = ("_length", "_patience", "_turns", "budget", "helpers", "longest")

    def __init__(
        self,
        budget: LoopBudget,
        helpers: HelperThreads | None = None,
        turns: LoopTurns | None = None,
        patience: float = _PATIENCE,
    ) -> None:
        self.set_budget(budget)
        self.longest = 0.0
        self.helpers = helpers
        self._turns = turns
        self._patience = patience

    def set_budget(self, budget: LoopBudget) -> None:
        """Have slices of another length from the next on."""
        self.budget = budget
        self._length = budget.slice_seconds

    def open(self, loop: asyncio.AbstractEventLoop) -> float:
        """Return the end of the open slice; opens one if the loop has had its turn since the last."""
        turns = self._turns or self._turns_of(loop)
        if current_budget() is not self.budget:
            self.use_limits()
        if turns.worker is not self:
            turns.take_part(self, loop)
        return turns.began + self._length

    def use_limits(self) -> None:
        """Use the session's budget and helpers for the work on this thread from now on; others may share the loop."""
        use_budget(self.budget)
        use_helpers(self.helpers)

    def enter(self, loop: asyncio.AbstractEventLoop) -> float:
        """`open`, for a run that begins; returns 0, a slice that is over, if others have waited for too long.

        Then it opens no slice, which would be over when the waiting ones get to it.
        """
        turns = self._turns or self._turns_of(loop)
        if (turns.line or turns.woken > 1) and turns.waited_longer(self._patience * self._length):
            return 0.0
        return self.open(loop)

    def _turns_of(self, loop: asyncio.AbstractEventLoop) -> LoopTurns:
        self._turns = LoopTurns.of(loop)
        return self._turns

    async def take_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Return when the caller may do something short on the loop: at once, if the slice is not over."""
        end = self.enter(loop)
        first = False
        while perf_counter() >= end:
            waiter: asyncio.Future[None] = loop.create_future()
            self.stand_in_line(loop, waiter, first=first)
            await waiter
            end = self.open(loop)
            first = True

    def stand_in_line(self, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None], *, first: bool) -> None:
        """Wake `waiter` when it is its turn.  `first`: put it at the head, because others used its last slice up."""
        turns = self._turns or self._turns_of(loop)
        turns.stand_in_line(loop, waiter, first=first)


class LoopTurns:
    """The open slice of an event loop, and the line of waiters for the next.

    Attributes:
        began: when the open slice began, by `perf_counter`; meaningless while none is open.
        worker: the session clock that used the slice last; None while none is open.
        line: the waiters, each with the time since when it waits.
        woken: the number of waiters woken in this turn.
    """

    __slots__ = (
        "__weakref__",
        "_at_once",
        "_length",
        "_others",
        "_returned",
        "_scheduled",
        "_since",
        "began",
        "line",
        "woken",
        "worker",
    )

    def __init__(self) -> None:
        self.began = 0.0
        self.worker: SliceClock | None = None
        # Other clocks that have used the slice, and the shortest time that it may last for one of them.
        self._others: set[SliceClock] = set()
        self._length = 0.0
        self.line: deque[tuple[asyncio.Future[None], float]] = deque()
        self.woken = 0
        self._scheduled = False
        # The number of waiters to wake in one turn, as many as one slice suffices for; since when the last of them had
        # waited; and how many of them found the slice used up.
        self._at_once = 1
        self._since = 0.0
        self._returned = 0

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> LoopTurns:
        """The turns of a loop."""
        turns = _turns.get(loop)
        if turns is None:
            turns = _turns[loop] = LoopTurns()
        return turns

    def take_part(self, clock: SliceClock, loop: asyncio.AbstractEventLoop) -> None:
        """Note that a session uses the slice; opens one if none is open."""
        length = clock.budget.slice_seconds
        if self.worker is None:
            self.began = perf_counter()
            self._length = length
            self._schedule(loop)
        else:
            self._others.add(self.worker)
            self._length = max(self._length, length)
        self.worker = clock

    def waited_longer(self, seconds: float) -> bool:
        """True if the first in line, or a waiter that was just woken, has waited for longer than that."""
        since = self.line[0][1] if self.line else self._since
        return perf_counter() - since > seconds

    def stand_in_line(self, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None], *, first: bool) -> None:
        """See `SliceClock.stand_in_line`."""
        if first:
            self.line.insert(self._returned, (waiter, self._since))
            self._returned += 1
        else:
            self.line.append((waiter, perf_counter()))
        self._schedule(loop)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the slice as soon as the loop has its turn."""
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._close, loop)

    def _close(self, loop: asyncio.AbstractEventLoop) -> None:
        used_up = False
        if self.worker is not None:
            now = perf_counter()
            held = now - self.began
            used_up = held > self._length
            self._note(self.worker, held)
            if self._returned or used_up:
                self._at_once = max(1, self._at_once // 2)
            elif self.woken and held < 0.5 * self._length:
                self._at_once = min(2 * self._at_once, _MOST_AT_ONCE)
        self._returned = self.woken = 0
        if used_up and self.line:
            loop.call_soon(self._let_others_work, loop, now, now + _PART_FOR_OTHERS * self._length, _MOST_TURNS)
        else:
            self._wake(loop)

    def _let_others_work(self, loop: asyncio.AbstractEventLoop, before: float, end: float, turns: int) -> None:
        """Wake the next in line after a turn that had little to do, or in which a run has begun.

        Args:
            before: when this turn began, by `perf_counter`.
            end: when they are woken at the latest.
            turns: after how many turns they are woken at the latest.
        """
        now = perf_counter()
        if self.worker is None and turns > 1 and now < end and now - before >= _BUSY_TURN:
            loop.call_soon(self._let_others_work, loop, now, end, turns - 1)
            return
        if self.worker is not None:
            self._note(self.worker, now - self.began)
        self._wake(loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake as many waiters as one slice suffices for."""
        self._scheduled = False
        while self.line and self.woken < self._at_once:
            waiter, self._since = self.line.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self.woken += 1
        if self.line:
            self._schedule(loop)

    def _note(self, worker: SliceClock, held: float) -> None:
        """Record a slice that held the loop for `held` seconds."""
        worker.longest = max(worker.longest, held)
        for other in self._others:
            other.longest = max(other.longest, held)
        self._others.clear()
        self.worker = None


# Weak, so that this does not keep loops alive.
_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopTurns] = weakref.WeakKeyDictionary()
