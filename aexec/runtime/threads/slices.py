"""Slices: how long inline work may hold the event loop before others get their turn.

A loop has one `LoopTurns` for all sessions that use it: a slice opens with the first work after the loop had its
turn, and is shared by however many runs of however many sessions there are.  So neither a caller that awaits one small
run after another can starve the loop, nor a hundred sessions that compute at the same time.  How long a slice lasts
is each session's own: its `SliceClock` says when the open one is over for it.

Executions whose slice is over stand in line, which is the loop's too: each turn of the loop wakes the first, so
that a long one cannot starve the others either.  Between two turns the loop serves what it has besides: timers (and
so deadlines), cancellations, connections.  A run that begins goes on in the slice there is, which costs nothing,
unless the first in line has waited for a while: then it goes to the end, so that nobody's run takes much longer than
another's.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from time import perf_counter

from aexec.framework.waiting.intra_op import HelperThreads, use_helpers
from aexec.framework.waiting.loop_budget import LoopBudget, use_budget

__all__ = ["LoopTurns", "SliceClock"]

# Of steps: a run that is over in the slice there is need not stand behind those that take many.
_PATIENCE = 4.0
# How many of the line are woken in one turn of the loop at most.
_MOST_AT_ONCE = 64


class SliceClock:
    """When the current slice is over for the steps of one session.

    Args:
        budget: what a slice allows; it says how long one lasts.
        helpers: threads that help the session's kernels.
        turns: the line to stand in, and the slices, if they are not the loop's.
        patience: for how many slices the first in line may have waited before those that begin let it go first.

    Attributes:
        budget: as given.
        longest: the longest stretch, in seconds, for which a slice in which the session had a part held the loop.
    """

    __slots__ = ("_helpers", "_length", "_patience", "_turns", "budget", "longest")

    def __init__(
        self,
        budget: LoopBudget,
        helpers: HelperThreads | None = None,
        turns: LoopTurns | None = None,
        patience: float = _PATIENCE,
    ) -> None:
        self.budget = budget
        self.longest = 0.0
        self._helpers = helpers
        self._length = budget.slice_seconds
        self._turns = turns
        self._patience = patience * self._length

    def open(self, loop: asyncio.AbstractEventLoop) -> float:
        """End of the current slice; opens one if the loop has had its turn since the last."""
        use_budget(self.budget)  # in an open one, too: others share the loop
        use_helpers(self._helpers)
        turns = self._turns or self._turns_of(loop)
        if turns.worker is not self:
            turns.take_part(self, loop)
        return turns.began + self._length

    def enter(self, loop: asyncio.AbstractEventLoop) -> float:
        """`open`, for a run that begins: a slice that is over, 0, if others have waited for too long.

        None is opened then: it would be over when those others come to it, who have to do with the next.
        """
        turns = self._turns or self._turns_of(loop)
        if (turns.line or turns.woken > 1) and turns.waited_longer(self._patience):
            return 0.0
        return self.open(loop)

    def _turns_of(self, loop: asyncio.AbstractEventLoop) -> LoopTurns:
        self._turns = LoopTurns.of(loop)
        return self._turns

    async def take_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Return when it is the caller's turn to do something short on the loop: at once, if the slice is not over."""
        end = self.enter(loop)
        first = False
        while perf_counter() >= end:
            waiter: asyncio.Future[None] = loop.create_future()
            self.stand_in_line(loop, waiter, first=first)
            await waiter
            end = self.open(loop)
            first = True

    def stand_in_line(self, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None], *, first: bool) -> None:
        """Wake `waiter` when it is its turn; `first` for one whose turn was cut short, by others of the same slice."""
        turns = self._turns or self._turns_of(loop)
        turns.stand_in_line(loop, waiter, first=first)


class LoopTurns:
    """The open slice of an event loop, and the line of those who wait for the next.

    Attributes:
        began: `perf_counter()` time at which the open slice began; it means nothing while none is open.
        worker: whose steps have opened or used the slice last; None while none is open.
        line: who waits, and since when.
        woken: how many of the line were woken in this turn.
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
        # Who has used the slice besides, and how long it may last at least for one of them.
        self._others: set[SliceClock] = set()
        self._length = 0.0
        self.line: deque[tuple[asyncio.Future[None], float]] = deque()
        self.woken = 0
        self._scheduled = False
        # How many of the line are woken in one turn, as many as a slice is enough for; since when the last of them had
        # waited; how many of them found the slice used up.
        self._at_once = 1
        self._since = 0.0
        self._returned = 0

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> LoopTurns:
        """Those of a loop."""
        turns = _turns.get(loop)
        if turns is None:
            turns = _turns[loop] = LoopTurns()
        return turns

    def take_part(self, clock: SliceClock, loop: asyncio.AbstractEventLoop) -> None:
        """This session uses the slice, which is opened if none is."""
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
        """Has the first in line, or one that was just woken, waited for longer?"""
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
        """Close the slice as soon as whoever holds the loop lets go of it."""
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._close, loop)

    def _close(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        if self.worker is not None:
            held = perf_counter() - self.began
            self._note(self.worker, held)
            if self._returned or held > self._length:
                self._at_once = max(1, self._at_once // 2)
            elif self.woken and held < 0.5 * self._length:
                self._at_once = min(2 * self._at_once, _MOST_AT_ONCE)
        self._returned = self.woken = 0
        while self.line and self.woken < self._at_once:
            waiter, self._since = self.line.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self.woken += 1
        if self.line:
            self._schedule(loop)

    def _note(self, worker: SliceClock, held: float) -> None:
        """The slice is closed, after so many seconds."""
        worker.longest = max(worker.longest, held)
        for other in self._others:
            other.longest = max(other.longest, held)
        self._others.clear()
        self.worker = None


# Loops are not referred to by what they run.
_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopTurns] = weakref.WeakKeyDictionary()
