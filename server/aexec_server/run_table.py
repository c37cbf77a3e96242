"""The runs of one session by id: those in flight, those that ended lately, and cancellations ahead of their runs.

A client that names its run can cancel it from another connection, and that request may
overtake the run's own.  So a cancellation for a run that nobody has heard of is kept for a
while, and the run that comes then ends at once.
"""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict
from collections.abc import Callable

import aexec
from aexec import errors
from aexec.hosting import StepState

__all__ = ["Run", "RunTable", "check_run_id"]

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~@+-]{0,127}")
_MAX_ENDED = 1024
_MAX_AHEAD = 256
REMEMBER_SECONDS = 60.0


def check_run_id(run_id: object) -> str:
    """Raises InvalidArgumentError for what cannot stand in a path."""
    if type(run_id) is not str or not _RUN_ID.fullmatch(run_id):
        raise errors.InvalidArgumentError(
            f'"run_id" must be 1 to 128 letters, digits or any of ._~@+-, got {str(run_id)[:60]!r}'
        )
    return run_id


class Run:
    """One run, from the moment its id is known until its answer is ready.

    Attributes:
        id: unique among the session's runs in flight.
        began: by the server's clock.
        step: None while the request is still being read.
    """

    __slots__ = ("_reason", "began", "id", "step")

    def __init__(self, run_id: str, began: float) -> None:
        self.id = run_id
        self.began = began
        self.step: aexec.Step | None = None
        self._reason: str | None = None

    def begin(self, step: aexec.Step) -> None:
        """From now on `cancel` cancels this step."""
        self.step = step
        if self._reason is not None:
            step.cancel(self._reason)

    def cancel(self, reason: str) -> None:
        """Stop it, now or as soon as it begins."""
        if self._reason is None:
            self._reason = reason
        if self.step is not None:
            self.step.cancel(reason)

    def check(self) -> None:
        """Raise CancelledError if it was cancelled before it began."""
        if self._reason is not None and self.step is None:
            raise errors.CancelledError(f"Run '{self.id}' was cancelled before it began: {self._reason}")

    @property
    def cancelled(self) -> bool:
        """Does or did it end because of `cancel`?"""
        if self._reason is None:
            return False
        return self.step is None or self.step.state in (StepState.PENDING, StepState.RUNNING, StepState.CANCELLED)


class RunTable:
    """See the module's head.  `live` is in the order of arrival; the other tables forget their oldest entries."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.live: dict[str, Run] = {}
        self._clock = clock
        self._ended: OrderedDict[str, bool] = OrderedDict()  # was it cancelled?
        self._cancelled_ahead: OrderedDict[str, tuple[float, str]] = OrderedDict()  # when, and why
        self._numbers = itertools.count(1)

    def add(self) -> Run:
        """A new run, with an id that no other run in flight has."""
        run_id = f"run-{next(self._numbers)}"
        while run_id in self.live:
            run_id = f"run-{next(self._numbers)}"
        run = self.live[run_id] = Run(run_id, self._clock())
        return run

    def rename(self, run: Run, run_id: str) -> None:
        """Give a run the id that its client chose; cancels it if that was asked for before it came.

        Raises:
            AlreadyExistsError: another run of that id is in flight.
        """
        if self.live.get(run_id, run) is not run:
            raise errors.AlreadyExistsError(f"Run '{run_id}' is in flight already")
        del self.live[run.id]
        run.id = run_id
        self.live[run_id] = run
        ahead = self._cancelled_ahead.pop(run_id, None)
        if ahead is not None and self._clock() - ahead[0] <= REMEMBER_SECONDS:
            run.cancel(ahead[1])

    def remove(self, run: Run) -> None:
        """It has ended."""
        del self.live[run.id]
        ended = self._ended
        ended[run.id] = run.cancelled
        if len(ended) > _MAX_ENDED:
            ended.popitem(last=False)

    def cancel(self, run_id: str, reason: str) -> bool:
        """Is the run, or was it, cancelled?  Idempotent.

        Raises:
            NotFoundError: no such run is known.  Should it come within a minute, it is cancelled.
        """
        run = self.live.get(run_id)
        if run is not None:
            run.cancel(reason)
            return run.cancelled
        if run_id in self._ended:
            return self._ended[run_id]
        self._cancelled_ahead.setdefault(run_id, (self._clock(), reason))
        if len(self._cancelled_ahead) > _MAX_AHEAD:
            self._cancelled_ahead.popitem(last=False)
        raise errors.NotFoundError(
            f"Run '{run_id}' is not known here; if it begins within {REMEMBER_SECONDS:g} s, it is cancelled"
        )

    def cancel_all(self, reason: str) -> None:
        for run in self.live.values():
            run.cancel(reason)

    def __repr__(self) -> str:
        return f"<RunTable {len(self.live)} in flight, {len(self._cancelled_ahead)} cancelled ahead>"
