"""Slices: how long inline work may hold the event loop before others get their turn.

One `SliceClock` serves all steps of a session.  A slice opens with the first work
after the loop had its turn and lasts `length` seconds, however many runs share it:
so a caller that awaits one small run after another cannot starve the loop either.

Executions whose slice is over stand in line: each turn of the loop wakes the first, so
that a long one cannot starve the others either.  A run that begins goes on in the slice there
is, which costs nothing, unless the first in line has waited for a while: then it goes to
the end, so that nobody's run takes much longer than another's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter

from aexec.framework.intra_op import HelperThreads, use_helpers
from aexec.framework.loop_budget import LoopBudget, use_budget

__all__ = ["SliceClock"]

# For how many slices the first in line may have waited before runs that begin let it go first.
_PATIENCE = 4
# How many of the line are woken in one turn of the loop at most.
_MOST_AT_ONCE = 64


class SliceClock:
    """When the current slice ends.

    Attributes:
        budget: what a slice allows; it says how long one lasts.
        end: `perf_counter()` time at which the current slice ends; 0 while none is open.
        longest: the longest stretch, in seconds, for which a slice held the loop.
    """

    __slots__ = (
        "_at_once",
        "_begin",
        "_helpers",
        "_length",
        "_line",
        "_returned",
        "_scheduled",
        "_since",
        "_woken",
        "budget",
        "end",
        "longest",
    )

    def __init__(self, budget: LoopBudget, helpers: HelperThreads | None = None) -> None:
        self.budget = budget
        self._helpers = helpers
        self._length = budget.slice_seconds
        self.end = 0.0
        self.longest = 0.0
        self._begin = 0.0
        # Who waits, and since when.
        self._line: deque[tuple[asyncio.Future[None], float]] = deque()
        self._scheduled = False
        # How many of the line are woken in one turn, as many as a slice is enough for; how many were, the last of them
        # after waiting since when; how many of those found the slice used up.
        self._at_once = 1
        self._woken = 0
        self._since = 0.0
        self._returned = 0

    def open(self, loop: asyncio.AbstractEventLoop) -> float:
        """End of the current slice; opens one if the loop has had its turn since the last."""
        use_budget(self.budget)  # in an open one, too: sessions with other budgets share the loop
        use_helpers(self._helpers)
        if self.end == 0.0:
            self._begin = perf_counter()
            self.end = self._begin + self._length
            self._schedule(loop)
        return self.end

    def enter(self, loop: asyncio.AbstractEventLoop) -> float:
        """`open`, for a run that begins: a slice that is over, 0, if others have waited for too long."""
        end = self.open(loop)
        if self._line or self._woken > 1:
            since = self._line[0][1] if self._line else self._since
            if perf_counter() - since > _PATIENCE * self._length:
                return 0.0
        return end

    def stand_in_line(self, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None], *, first: bool) -> None:
        """Wake `waiter` when it is its turn; `first` for one whose turn was cut short, by others of the same slice."""
        if first:
            self._line.insert(self._returned, (waiter, self._since))
            self._returned += 1
        else:
            self._line.append((waiter, perf_counter()))
        self._schedule(loop)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the slice as soon as whoever holds the loop lets go of it."""
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._close, loop)

    def _close(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        if self.end:
            held = perf_counter() - self._begin
            if held > self.longest:
                self.longest = held
            self.end = 0.0
            if self._returned or held > self._length:
                self._at_once = max(1, self._at_once // 2)
            elif self._woken and held < 0.5 * self._length:
                self._at_once = min(2 * self._at_once, _MOST_AT_ONCE)
        self._returned = self._woken = 0
        while self._line and self._woken < self._at_once:
            waiter, self._since = self._line.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._woken += 1
        if self._line:
            self._schedule(loop)
