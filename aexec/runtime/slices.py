"""Slices: how long inline work may hold the event loop before others get their turn.

One `SliceClock` serves all steps of a session.  A slice opens with the first work
after the loop had its turn and lasts `length` seconds, however many runs share it:
so a caller that awaits one small run after another cannot starve the loop either.

Executions whose slice is over stand in line: each turn of the loop wakes the first, so
that a long one cannot starve the others either.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter

from aexec.framework.loop_budget import LoopBudget, use_budget

__all__ = ["SliceClock"]


class SliceClock:
    """When the current slice ends.

    Attributes:
        budget: what a slice allows; it says how long one lasts.
        end: `perf_counter()` time at which the current slice ends; 0 while none is open.
        longest: the longest stretch, in seconds, for which a slice held the loop.
    """

    __slots__ = ("_begin", "_length", "_line", "_scheduled", "budget", "end", "longest")

    def __init__(self, budget: LoopBudget) -> None:
        self.budget = budget
        self._length = budget.slice_seconds
        self.end = 0.0
        self.longest = 0.0
        self._begin = 0.0
        self._line: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    def open(self, loop: asyncio.AbstractEventLoop) -> float:
        """End of the current slice; opens one if the loop has had its turn since the last."""
        use_budget(self.budget)  # in an open one, too: sessions with other budgets share the loop
        if self.end == 0.0:
            self._begin = perf_counter()
            self.end = self._begin + self._length
            self._schedule(loop)
        return self.end

    def stand_in_line(self, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None], *, first: bool) -> None:
        """Wake `waiter` when it is its turn; `first` for one that was woken and found the slice used up."""
        if first:
            self._line.appendleft(waiter)
        else:
            self._line.append(waiter)
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
        while self._line:
            waiter = self._line.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break
        if self._line:
            self._schedule(loop)
