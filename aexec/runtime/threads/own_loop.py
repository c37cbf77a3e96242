"""Longer slices for a session that has its event loop to itself.

Slices are short for the sake of the loop's other tasks.  The loop of a `SyncSession` has none: a thread waits for the
run.  While it is the only one, its kernels stay on the loop's thread where others would hop to a thread of the pool,
which takes longer than many of them.  As soon as a second caller waits, a second step is in flight or a dataset
prefetches, slices are short again, so that kernels of both run at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aexec.framework.waiting.loop_budget import LoopBudget
from aexec.runtime.threads.slices import SliceClock

__all__ = ["OWN_LOOP_SECONDS", "OwnLoopClock"]

# The length of a slice while the session is alone.  A cancellation waits for it, and for the call at its end.
OWN_LOOP_SECONDS = 20e-3
_LONG = LoopBudget(OWN_LOOP_SECONDS)


class OwnLoopClock(SliceClock):
    """A slice clock whose slices are longer while nothing else waits for the loop.

    Args:
        clock: the session's clock, whose budget it has while the session is not alone.
        is_alone: called at the beginning of each slice.
    """

    __slots__ = ("_is_alone", "_short")

    def __init__(self, clock: SliceClock, is_alone: Callable[[], bool]) -> None:
        super().__init__(clock.budget, clock.helpers)
        self._short = clock.budget
        self._is_alone = is_alone

    def open(self, loop: asyncio.AbstractEventLoop) -> float:
        """As `SliceClock.open`."""
        budget = _LONG if self._is_alone() else self._short
        if budget is not self.budget:
            self.set_budget(budget)
        return super().open(loop)
