"""`Admission`: which runs may begin, and in which order; what cannot begin soon is refused.

A run that is admitted has a *slot*.  There are as many as keep the processors busy, or as get free in a quarter of a
second if that is more: runs that take next to nothing need not wait for each other.  The others stand in line, in the
order of their priorities and then of their arrival, and are refused if they stand there for long.  So with more offered
than can be done, what is accepted does not take longer and longer.  docs/overload.md has figures.

A slot is for who works.  A run that only waits (for a queue's element) gives its slot up, and so does, one at a time,
one that has worked for long: it goes on beside the others, in turns that the event loop gives to all alike
(`aexec/runtime/slices.py`), and those who want little need not wait for its end.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from aexec import errors
from aexec_server.run_table import Run
from aexec_server.server_config import ServerConfig
from aexec_server.store import HostedSession

__all__ = ["Admission", "AdmissionStatistics", "OverloadError"]

# While there is a line, it is looked so often whether those with slots only wait.
_LOOK_SECONDS = 0.005
# After so long a run has worked for long; of those one in so many seconds gives its slot up.
_LONG_SECONDS = 1.0
_LONG_EVERY = 0.05
# There are as many slots as get free in so many seconds.
_SPREAD_SECONDS = 0.25
# How often that is is known from so many times, and by the last so many.
_KNOWN = 8
# Until then there are so many times as many: a burst is no overload.
_AT_FIRST = 4
_REMEMBERED = 32


class OverloadError(errors.ResourceExhaustedError):
    """There is more to do than can be done."""


@dataclass(frozen=True, slots=True)
class AdmissionStatistics:
    """Runs in flight, those of them with a slot, those in line; and how many were refused for the line so far."""

    in_flight: int
    with_slot: int
    waiting: int
    refused: int


class _Waiter:
    """A run in line; `future` is completed with None when it has a slot, and with an error when it is to have none."""

    __slots__ = ("future", "run")

    def __init__(self, run: Run, future: asyncio.Future[errors.OpError | None]) -> None:
        self.run = run
        self.future = future

    def complete(self, outcome: errors.OpError | None) -> None:
        if not self.future.done():
            self.future.set_result(outcome)


class Admission:
    """See the module's head.

    Args:
        config: of the server.
        clock: seconds.
    """

    def __init__(self, config: ServerConfig, clock: Callable[[], float] = perf_counter) -> None:
        self._config = config
        self._now = clock
        self._slots = config.run_slots
        self._in_flight = 0
        self._holders: dict[Run, float] = {}  # since when
        self._line: list[tuple[int, int, _Waiter]] = []  # a heap; those whose future is done are of no account
        self._numbers = itertools.count()
        self._waiting = 0
        self._ends: deque[float] = deque(maxlen=_REMEMBERED)  # when somebody let go of one, since any is taken
        self._long_at = 0.0
        self._looking: asyncio.TimerHandle | None = None
        self._refused = 0

    def statistics(self) -> AdmissionStatistics:
        return AdmissionStatistics(self._in_flight, len(self._holders), self._waiting, self._refused)

    # How many there may be at all

    def check(self, hosted: HostedSession) -> None:
        """Raise ResourceExhaustedError if no other run may be in flight, or none of the session."""
        most = self._config.max_runs
        if self._in_flight >= most:
            raise OverloadError(
                f"{self._in_flight} runs are in flight, the most that this server takes: try again later"
            )
        most = hosted.max_runs or self._config.max_session_runs or most
        if hosted.runs_admitted >= most:
            raise OverloadError(
                f"{hosted.runs_admitted} runs of this session are in flight, the most that it may have: try again later"
            )

    def begin(self, hosted: HostedSession) -> None:
        """A run is in flight until `end`.  Raises as `check`."""
        self.check(hosted)
        self._in_flight += 1
        hosted.runs_admitted += 1

    def end(self, hosted: HostedSession, run: Run) -> None:
        """It has ended, with or without a slot."""
        self._in_flight -= 1
        hosted.runs_admitted -= 1
        if self._holders.pop(run, None) is not None:
            self._ends.append(self._now())
            if self._line:
                self._move()
            if not self._holders:
                self._ends.clear()

    # Slots

    def takes(self, run: Run) -> bool:
        """Give the run a slot, if one is free and nobody is in line."""
        if self._line or (len(self._holders) >= self._slots and not self._has_slot()):
            return False
        self._holders[run] = self._now()
        return True

    def _has_slot(self) -> bool:
        """Is one free, of those that there are now?"""
        taken, ends = len(self._holders), self._ends
        if taken < self._slots:
            return True
        if len(ends) < _KNOWN:
            return taken < _AT_FIRST * self._slots
        return taken * (self._now() - ends[0]) < _SPREAD_SECONDS * len(ends)

    def passes(self, hosted: HostedSession) -> bool:
        """May a run be begun that is over at once, and is never in flight?"""
        if self._line or (len(self._holders) >= self._slots and not self._has_slot()):
            return False
        most = hosted.max_runs or self._config.max_session_runs or self._config.max_runs
        return self._in_flight < self._config.max_runs and hosted.runs_admitted < most

    def passed(self) -> None:
        """Such a run was over."""
        if self._holders:
            self._ends.append(self._now())

    async def wait(self, run: Run, level: int, deadline: float | None) -> None:
        """Stand in line for a slot.

        Args:
            run: whose `cancel` ends the waiting.
            level: its priority, lower ones first.
            deadline: until when it must be done, by `time.monotonic`; None for never.

        Raises:
            ResourceExhaustedError: it would take too long, or did.
            DeadlineExceededError: the deadline was before.
            CancelledError: the run was cancelled.
        """
        loop = asyncio.get_running_loop()
        waiter = _Waiter(run, loop.create_future())
        heapq.heappush(self._line, (level, next(self._numbers), waiter))
        self._waiting += 1
        if self._looking is None:
            self._looking = loop.call_later(_LOOK_SECONDS, self._look)
        timer = self._limit(waiter, deadline)
        run.when_cancelled = lambda: waiter.complete(errors.CancelledError("cancelled"))
        try:
            error = await waiter.future
        finally:
            timer.cancel()
            run.when_cancelled = None
            self._waiting -= 1
        run.check()
        if error is not None:
            self._refused += 1
            raise error

    def _limit(self, waiter: _Waiter, deadline: float | None) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        seconds = self._config.queue_seconds
        error: errors.OpError = OverloadError(
            f"The server has more to do than it can: this run was not begun within {seconds:g} s. Try again later"
        )
        if deadline is not None and deadline - loop.time() < seconds:
            seconds = deadline - loop.time()
            error = errors.DeadlineExceededError("The run's deadline came while it was in line for its turn")
        return loop.call_later(max(0.0, seconds), waiter.complete, error)

    def _move(self) -> None:
        """Give the free slots to the first in line."""
        line, holders = self._line, self._holders
        while line and self._has_slot():
            waiter = heapq.heappop(line)[2]
            if not waiter.future.done():
                holders[waiter.run] = self._now()
                waiter.complete(None)

    def _look(self) -> None:
        self._looking = None
        self._free_slots()
        self._move()
        if self._line:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _free_slots(self) -> None:
        """Take the slots of those that only wait, and of the one that has worked longest if that is long.

        Of the oldest: where there are more slots, others get free soon.
        """
        now = self._now()
        for run, since in list(itertools.islice(self._holders.items(), self._slots)):
            if now - since > _LONG_SECONDS and now - self._long_at > _LONG_EVERY:
                self._long_at = now
                del self._holders[run]
            elif now - since > _LOOK_SECONDS and run.step is not None and run.step.only_waits:
                del self._holders[run]
