"""`Admission`: decides which runs may begin, and in which order; refuses runs that cannot begin soon.

An admitted run has a *slot*.  There are as many slots as keep the processors busy, or as many as can be done in a
quarter of a second if that is more, so that tiny runs need not wait for each other.  The time of a run is estimated
from ended runs: the share of the time that each had while others had slots, too.  The other runs wait in line, by
priority and then by arrival, and are refused if they wait for too long.  So accepted runs do not get slower and slower
when more is offered than can be done.  docs/overload.md has figures.

Slots are for runs that work.  A run that only waits, for a queue's element for example, gives its slot up.  So does,
one at a time, a run that has worked for long, and for much longer than others do.  It goes on beside the others, in
turns that the event loop gives to all alike (`aexec/runtime/threads/slices.py`), and short runs need not wait for its
end.

A run that waits for its batch to be filled has no slot.  A full batch takes one (`BatchTurn`), for the run that leads
it. `check_batches` bounds how long batches may wait for those before them.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from aexec import errors
from aexec.hosting import BatchTurn
from aexec_server.clients.callers import Caller
from aexec_server.clients.client_shares import ClientShares
from aexec_server.requests.run_request import DEFAULT_PRIORITY
from aexec_server.requests.run_table import Run
from aexec_server.sessions.hosted_session import HostedSession
from aexec_server.settings.server_config import ServerConfig

__all__ = ["Admission", "AdmissionStatistics", "BatchSlot", "OverloadError"]

# The interval at which runs with slots are checked for those that only wait.
_LOOK_SECONDS = 0.005
# The part of the allowed time that a run may wait in line however long it waited to be read, so that it is checked at
# least once.
_LEAST_OF_LINE = 1 / 3
# The most runs checked at a time, oldest first: with more slots than that, others become free soon.
_LOOKED_AT = 64
# A run has worked for long after `_LONG_SECONDS`, if that is `_LONG_TIMES` as long as others take, some of which ended
# meanwhile; every `_LONG_EVERY` seconds one such run gives its slot up.
_LONG_SECONDS = 1.0
_LONG_TIMES = 8
_LONG_EVERY = 0.05
# There are at least as many slots as runs that can be done in this many seconds.
_SPREAD_SECONDS = 0.25
# The time of runs is known once `_KNOWN` have ended, from the last `_REMEMBERED`.  Until then there are `_AT_FIRST`
# times as many slots, and runs may wait as many times as long: a burst is no overload.
_KNOWN = 8
_AT_FIRST = 4
_REMEMBERED = 32


class OverloadError(errors.ResourceExhaustedError):
    """More runs are offered than can be done."""


@dataclass(frozen=True, slots=True)
class AdmissionStatistics:
    """The numbers of runs in flight, with a slot, and in line; and of runs refused because of the line so far."""

    in_flight: int
    with_slot: int
    waiting: int
    refused: int


class _Waiter:
    """A run in line; `future` gets None when the run has a slot, or the error of its refusal."""

    __slots__ = ("future", "run")

    def __init__(self, run: Run, future: asyncio.Future[errors.OpError | None]) -> None:
        self.run = run
        self.future = future

    def complete(self, outcome: errors.OpError | None) -> None:
        if not self.future.done():
            self.future.set_result(outcome)


class _Ended:
    """The latest runs that ended with a slot.

    Attributes:
        count: the number of known runs.
        latest: when the last of them ended.
        seconds: how long they had their slots, on average.
        share: how much of the server's time each had, in seconds on average; runs with slots share the time equally.
    """

    __slots__ = ("_known", "_seconds", "_share", "latest")

    def __init__(self) -> None:
        self.latest = -math.inf
        self._known: deque[tuple[float, float]] = deque()
        self._seconds = self._share = 0.0  # sums over the known runs

    @property
    def count(self) -> int:
        return len(self._known)

    @property
    def seconds(self) -> float:
        return self._seconds / len(self._known) if self._known else 0.0

    @property
    def share(self) -> float:
        return self._share / len(self._known) if self._known else 0.0

    def note(self, now: float, since: float, share: float) -> None:
        """Record a run that ends now, had a slot since `since`, and `share` seconds of the time."""
        self.latest = now
        seconds = now - since
        self._known.append((seconds, share))
        self._seconds += seconds
        self._share += share
        if len(self._known) > _REMEMBERED:
            seconds, share = self._known.popleft()
            self._seconds -= seconds
            self._share -= share


class Admission:
    """Gives slots to runs in order of priority and arrival, and refuses runs that cannot begin soon.

    Args:
        config: the server's settings.
        clock: returns seconds.

    Attributes:
        shares: the clients' shares of the runs in flight.
    """

    def __init__(self, config: ServerConfig, clock: Callable[[], float] = perf_counter) -> None:
        self._config = config
        self._now = clock
        self._slots = config.run_slots
        self.shares = ClientShares("runs", "runs in flight", config.max_runs, config.max_client_runs)
        self._holders: dict[Run, tuple[float, float]] = {}  # since when, and the value of `_share` then
        # The seconds of one equal share of the time since the beginning, among runs with slots; and until when.
        self._share, self._shared_at = 0.0, clock()
        self._line: list[tuple[int, int, _Waiter]] = []  # a heap; entries whose future is done are ignored
        self._numbers = itertools.count()
        self._waiting = 0
        self._ended = _Ended()
        self._long_at = 0.0
        self._looking: asyncio.TimerHandle | None = None
        self._refused = 0

    def statistics(self) -> AdmissionStatistics:
        return AdmissionStatistics(self.shares.in_use, len(self._holders), self._waiting, self._refused)

    # Limits

    def check(self, hosted: HostedSession, caller: Caller) -> None:
        """Raise ResourceExhaustedError if the caller, or the session, may have no further run in flight."""
        self._check_session(hosted)
        self.shares.check(caller, quota=caller.quotas.runs)

    def _check_session(self, hosted: HostedSession) -> None:
        most = hosted.max_runs or self._config.max_session_runs or self._config.max_runs
        if hosted.runs_admitted >= most:
            raise OverloadError(
                f"{hosted.runs_admitted} runs of this session are in flight, the most that it may have: try again later"
            )

    def begin(self, hosted: HostedSession, run: Run, caller: Caller) -> None:
        """Count a run as in flight until `end`.  Raises as `check`."""
        self._check_session(hosted)
        self.shares.take(caller, quota=caller.quotas.runs)
        run.client = caller.client
        hosted.runs_admitted += 1

    def end(self, hosted: HostedSession, run: Run) -> None:
        """Account for a run that has ended, with or without a slot."""
        self.shares.give_back(run.client)
        hosted.runs_admitted -= 1
        held = self._let_go(run)
        if held is not None:
            since, share = held
            if not (run.left or run.cancel_reason):  # a cancelled run says nothing of how long runs take
                self._ended.note(self._now(), since, (self._share - share) / run.joined)
            if self._line:
                self._move()

    def check_batches(self, seconds: float) -> None:
        """Raise ResourceExhaustedError if a batch that has to wait this long for others would be too late."""
        if seconds > _SPREAD_SECONDS + self._config.queue_seconds:
            self._refused += 1
            raise self._overload()

    # Slots

    def has_slot(self, run: Run) -> bool:
        return run in self._holders

    def takes(self, run: Run) -> bool:
        """Give the run a slot if one is free and no run is in line; return whether it has one."""
        if self._line or (len(self._holders) >= self._slots and not self._has_slot()):
            return False
        self._hold(run)
        return True

    def _pass_time(self) -> None:
        now = self._now()
        if self._holders:
            self._share += (now - self._shared_at) / len(self._holders)
        self._shared_at = now

    def _hold(self, run: Run) -> None:
        self._pass_time()
        self._holders[run] = self._shared_at, self._share
        if self._looking is None:
            self._look_soon()

    def _let_go(self, run: Run) -> tuple[float, float] | None:
        """Take a run's slot away; return its entry, or None if it had no slot."""
        self._pass_time()
        return self._holders.pop(run, None)

    def _has_slot(self) -> bool:
        """True if a slot is free now."""
        return self._free() > 0

    def _free(self) -> float:
        """The number of free slots now; none is free if it is 0 or less."""
        slots, share = self._slots, self._ended.share
        if self._ended.count < _KNOWN:
            slots *= _AT_FIRST
        elif slots * share < _SPREAD_SECONDS:
            return _SPREAD_SECONDS / share - len(self._holders) if share else math.inf
        return slots - len(self._holders)

    def passes(self, hosted: HostedSession) -> bool:
        """True if a run may begin that ends at once and is never in flight."""
        if self._line or (len(self._holders) >= self._slots and not self._has_slot()):
            return False
        most = hosted.max_runs or self._config.max_session_runs or self._config.max_runs
        return self.shares.roomy and hosted.runs_admitted < most

    async def wait(self, run: Run, level: int, deadline: float | None, since: float | None = None) -> None:
        """Wait in line for a slot.

        Args:
            run: the run; its `cancel` ends the wait.
            level: its priority; lower ones go first.
            deadline: when it must be done, by `time.monotonic`; None for no deadline.
            since: when all of its request had come, by the same clock; None for now.  The time since then counts as
                waited, up to two thirds of the allowed time.

        Raises:
            ResourceExhaustedError: the wait would be too long, which may be certain at once, or was too long.
            DeadlineExceededError: the deadline came first.
            CancelledError: the run was cancelled.
        """
        loop = asyncio.get_running_loop()
        seconds = self._config.queue_seconds * (1 if self._ended.count >= _KNOWN else _AT_FIRST)
        left = max(_LEAST_OF_LINE * seconds, seconds - (0.0 if since is None else loop.time() - since))
        if self._is_hopeless(level, left):
            self._refused += 1
            raise self._overload()
        waiter = _Waiter(run, loop.create_future())
        heapq.heappush(self._line, (level, next(self._numbers), waiter))
        self._waiting += 1
        timer = self._limit(waiter, left, deadline)
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

    def is_full(self, more: int) -> bool:
        """True if a run without priority would be refused at once, behind `more` runs that are not in line yet."""
        if self._ended.count < _KNOWN or more + len(self._holders) < self._slots:
            return False
        free = max(0.0, self._free())
        return more >= free and self._is_hopeless(DEFAULT_PRIORITY, self._config.queue_seconds, more - free)

    def _is_hopeless(self, level: int, seconds: float, more: float = 0) -> bool:
        """True if the turn of a new run would not come within `seconds`, by the time that runs take.

        Args:
            more: the number of runs before it that are not in line yet.
        """
        share = self._ended.share
        if self._ended.count < _KNOWN or (self._waiting + more) * share < seconds:
            return False
        before = sum(1 for other, _, waiter in self._line if other <= level and not waiter.future.done())
        return (before + more) * share >= seconds

    def _overload(self) -> OverloadError:
        return OverloadError(
            "The server has more to do than it can: this run would not have begun, or was not begun, within "
            f"{self._config.queue_seconds:g} s. Try again later"
        )

    def _limit(self, waiter: _Waiter, seconds: float, deadline: float | None) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        error: errors.OpError = self._overload()
        if deadline is not None and deadline - loop.time() < seconds:
            seconds = deadline - loop.time()
            error = errors.DeadlineExceededError("The run's deadline came while it was in line for its turn")
        return loop.call_later(max(0.0, seconds), waiter.complete, error)

    def _move(self) -> None:
        """Give free slots to the first in line."""
        line = self._line
        while line and self._has_slot():
            waiter = heapq.heappop(line)[2]
            if not waiter.future.done():
                self._hold(waiter.run)
                waiter.complete(None)

    def _look_soon(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._looking = None
        self._free_slots()
        self._move()
        if self._holders or self._line:
            self._look_soon()

    def _free_slots(self) -> None:
        """Take the slots of runs that only wait, and, if others are in line, of one run that has worked for long."""
        now = self._now()
        long = max(_LONG_SECONDS, _LONG_TIMES * self._ended.seconds)
        if now - self._ended.latest > long:
            long = _LONG_SECONDS  # no others end
        for run, (since, _) in list(itertools.islice(self._holders.items(), _LOOKED_AT)):
            if self._line and now - since > long and now - self._long_at > _LONG_EVERY:
                self._long_at = now
                self._let_go(run)
            elif now - since > _LOOK_SECONDS and run.step is not None and run.step.only_waits:
                self._let_go(run)


class BatchSlot(BatchTurn):
    """The slot for the step of a batch, which the leading run has until it ends.

    Args:
        run: the run that may lead.
        level: its priority; lower ones go first.
    """

    def __init__(self, admission: Admission, run: Run, level: int) -> None:
        self._admission = admission
        self._run = run
        self.level = level

    def take(self, calls: int) -> bool:
        """See `BatchTurn`."""
        self._run.joined = calls
        return self._admission.has_slot(self._run) or self._admission.takes(self._run)

    async def wait(self) -> None:
        """See `BatchTurn`.  The run's deadline ends only its own step: then another run leads the batch."""
        began = time.monotonic()
        try:
            await self._admission.wait(self._run, self.level, None)
        finally:
            self._run.queued += time.monotonic() - began
