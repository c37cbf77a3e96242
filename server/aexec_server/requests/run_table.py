"""The runs of one session by id: those in flight, those that ended lately, and cancellations that came before their
runs.

A cancellation by id cancels the run of that id that is in flight.  Without one, it waits for the next run of that id
(`early_cancels.py`), even if an earlier run had the id: ids may be reused.
"""

from __future__ import annotations

import itertools
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web
from multidict import istr

import aexec
from aexec import errors
from aexec.errors import Code
from aexec.hosting import BatchedStep, StepState
from aexec_server.clients.callers import ANYONE, Caller
from aexec_server.requests.early_cancels import REMEMBER_SECONDS, EarlyCancels
from aexec_server.requests.run_traces import Phases, TraceTable
from aexec_server.requests.served_call import AnswerForm, ServedCall

__all__ = ["RUN_ID", "Run", "RunTable", "StartedRun", "check_run_id", "run_key"]

# Header with a run's id, in requests and answers.
RUN_ID = istr("Aexec-Run-Id")
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~@+-]{0,127}")
_UNFORESEEN = Code.INTERNAL.name
_MAX_ENDED = 1024


def check_run_id(run_id: object, what: str = '"run_id"') -> str:
    """Return the id, or raise InvalidArgumentError if it cannot stand in a path; `what` says where the id was given."""
    if type(run_id) is not str or not _RUN_ID.fullmatch(run_id):
        raise errors.InvalidArgumentError(
            f"{what} must be 1 to 128 letters, digits or any of ._~@+-, got {str(run_id)[:60]!r}"
        )
    return run_id


def run_key(owner: str, run_id: str) -> str:
    """Return the key of a run among those of all owners; ids contain no slash."""
    return f"{owner}/{run_id}" if owner else run_id


class Watched(Protocol):
    """Gets the events of a run, such as `RunStream` of `run_stream.py`.

    Attributes:
        watched: True to get outputs as they come.
        phases: to which it adds the time of writing outputs; None for nothing.
    """

    watched: bool
    phases: Phases | None

    def begin(self, tensors: tuple[str, ...], form: AnswerForm, *, as_list: bool) -> None: ...

    def output(self, tensor: str, value: Any, /) -> None: ...

    def end(self, error: errors.OpError | None, /) -> None: ...


@dataclass(slots=True)
class StartedRun:
    """A run whose step has begun.

    Attributes:
        served: the call that is run.
        values: its results, if it has ended.
        step, rest: its step, and an awaitable of its results; None if it has ended.
        sampled: True if it is traced for the metrics.
        stream: gets the outputs as they come; None for nothing.
    """

    served: ServedCall
    values: Any
    step: aexec.Step | BatchedStep | None
    rest: Awaitable[Any] | None
    sampled: bool = False
    stream: Watched | None = None


class Run:
    """One run, from the moment its id is known until its answer is ready.

    Times are those of `time.monotonic` unless said otherwise.

    Attributes:
        id: unique among the runs of its owner that are in flight in the session.
        owner: whose run it is; other owners can neither see nor cancel it.
        client: the client whose share of the runs in flight it counts in.
        by_admin: True if it may change the server's own state.
        changes: True if it has begun and may change the state of a durable session.
        began: when it came, by the server's clock.
        step: its step; None until the run may begin.
        begun: its step's results or what to await, if the step began before anybody waited for it.
        has_begun: True once its step has begun, and after that.
        when_cancelled: called by `cancel` if there is no step yet; None for nothing.
        held: releases the memory reserved for its answer; called with the response once that is made. None without one.
        joined: number of runs that share its step and slot: those of its batch, or 1.
        outcome: name of the code with which it ended; INTERNAL until it is set.
        ready: when its request had arrived in full; None until then.
        queued: seconds that it waited for a slot.
        deadline: when it must end, or None.
        cancelled_at: when `cancel` was first called, or None.
        left: True if its client has left.
        shed: True if it was refused because of overload.
        stream: is told its events; None while nobody reads.
        error: the error with which it ended, or None.
        timeout: seconds that a header of its request allows it, or None.
        priority: priority that a header of its request gives it, or None.
    """

    __slots__ = (
        "began",
        "begun",
        "by_admin",
        "cancel_reason",
        "cancelled_at",
        "changes",
        "client",
        "deadline",
        "error",
        "has_begun",
        "held",
        "id",
        "joined",
        "left",
        "outcome",
        "owner",
        "priority",
        "queued",
        "ready",
        "shed",
        "step",
        "stream",
        "timeout",
        "when_cancelled",
    )

    def __init__(self, run_id: str, began: float, owner: str = "") -> None:
        self.id = run_id
        self.owner = owner
        self.client = ""
        self.by_admin = self.changes = False
        self.began = began
        self.step: aexec.Step | BatchedStep | None = None
        self.begun: StartedRun | None = None
        self.has_begun = False
        self.held: Callable[[web.Response], object] | None = None
        self.joined = 1
        self.stream: Watched | None = None
        self.error: errors.OpError | None = None
        self.timeout: float | None = None
        self.priority: int | None = None
        self.cancel_reason: str | None = None
        self.when_cancelled: Callable[[], object] | None = None
        self.outcome = _UNFORESEEN
        self.ready: float | None = None
        self.queued = 0.0
        self.deadline: float | None = None
        self.cancelled_at: float | None = None
        self.left = self.shed = False

    @property
    def key(self) -> str:
        """Key of the run, as `run_key` returns it."""
        return run_key(self.owner, self.id)

    def begin(self, step: aexec.Step | BatchedStep) -> None:
        """Set the step, which `cancel` cancels from now on; cancel it at once if `cancel` was called before."""
        self.step = step
        self.has_begun = True
        if self.cancel_reason is not None:
            step.cancel(self.cancel_reason)

    def cancel(self, reason: str) -> None:
        """Cancel the run, now or as soon as it begins."""
        if self.cancel_reason is None:
            self.cancel_reason = reason
            self.cancelled_at = time.monotonic()
        if self.step is not None:
            self.step.cancel(reason)
        elif self.when_cancelled is not None:
            self.when_cancelled()

    def check(self) -> None:
        """Raise CancelledError if it was cancelled before it began."""
        if self.cancel_reason is not None and not self.has_begun:
            raise errors.CancelledError(f"Run '{self.id}' was cancelled before it began: {self.cancel_reason}")

    @property
    def cancelled(self) -> bool:
        """True if the run is ending or ended because of `cancel`; False if its step was over before."""
        if self.cancel_reason is None:
            return False
        if self.step is None:
            return not self.has_begun
        return self.step.state in (StepState.PENDING, StepState.RUNNING, StepState.CANCELLED)


class RunTable:
    """The runs of one session by id, and cancellations that came before their runs.

    `live` is in the order of arrival; the other tables forget their oldest entries. In a session that several owners
    use, each has a namespace of run ids of its own.

    Attributes:
        live: the runs in flight, by key.
        traces: traces of runs that were traced.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.live: dict[str, Run] = {}
        self._clock = clock
        # key of a run → True if the last run of the key was cancelled
        self._ended: OrderedDict[str, bool] = OrderedDict()
        self.traces = TraceTable()
        self._early_cancels = EarlyCancels(clock)
        self._numbers = itertools.count(1)

    def add(self, owner: str = "") -> Run:
        """Add a run with a new id."""
        run_id = self._new_id(owner)
        run = self.live[run_key(owner, run_id)] = Run(run_id, self._clock(), owner)
        return run

    def add_ended(self, owner: str = "", run_id: str | None = None) -> str:
        """Note a run that is over already, and return its id: a new one, or one that is `free`."""
        run_id = self._new_id(owner) if run_id is None else run_id
        self._note_ended(run_key(owner, run_id), cancelled=False)
        return run_id

    def free(self, owner: str, run_id: str) -> bool:
        """True if no run of this id is in flight or traced, and none was cancelled before it began."""
        key = run_key(owner, run_id)
        return not (key in self.live or self._early_cancels.waits(key) or self.traces.find(key) is not None)

    def _new_id(self, owner: str) -> str:
        """Return an id that no run of the owner has that is in flight or has ended lately."""
        run_id = f"run-{next(self._numbers)}"
        while (key := run_key(owner, run_id)) in self.live or key in self._ended:
            run_id = f"run-{next(self._numbers)}"
        return run_id

    def of(self, owner: str | None) -> list[Run]:
        """Return an owner's runs in flight, oldest first; with None those of all owners."""
        return [run for run in self.live.values() if owner is None or run.owner == owner]

    def find(self, run_id: str, owner: str | None) -> Run | None:
        """Return the owner's run in flight with this id; with None that of any owner."""
        if owner is not None:
            return self.live.get(run_key(owner, run_id))
        return next((run for run in self.live.values() if run.id == run_id), None)

    def rename(self, run: Run, run_id: str) -> None:
        """Give a run the id that its client chose; cancel it if a cancellation of that id waits.

        Records of an earlier run with that id are dropped.

        Raises:
            AlreadyExistsError: another run of that id is in flight.
        """
        key = run_key(run.owner, run_id)
        if self.live.get(key, run) is not run:
            raise errors.AlreadyExistsError(f"Run '{run_id}' is in flight already")
        del self.live[run.key]
        run.id = run_id
        self.live[key] = run
        self._ended.pop(key, None)
        self.traces.drop(key)
        reason = self._early_cancels.take(key)
        if reason is not None:
            run.cancel(reason)

    def remove(self, run: Run) -> None:
        """Remove a run that has ended."""
        key = run.key
        del self.live[key]
        if run.stream is not None:
            run.stream.end(run.error)
        run.error = None  # its traceback refers to the frame that holds the run and the request's data
        self._note_ended(key, cancelled=run.cancelled)

    def _note_ended(self, key: str, *, cancelled: bool) -> None:
        ended = self._ended
        ended[key] = cancelled
        if len(ended) > _MAX_ENDED:
            ended.popitem(last=False)

    def cancel(
        self, run_id: str, reason: str, owner: str = "", *, of_all: bool = False, caller: Caller = ANYONE
    ) -> bool:
        """Cancel the run of this id that is in flight, or else the next one, if it begins within a minute.

        Returns:
            True if the run in flight is cancelled; without one, True if the last run of this id ended because it was
            cancelled. So a repeated call gives the same result.

        Args:
            owner: owner of the run.
            of_all: cancel a run in flight of any owner.
            caller: caller of the cancellation.

        Raises:
            NotFoundError: no run of this id is or was known; the next one is still cancelled.
            ResourceExhaustedError: too many cancellations wait for their runs; this one is not kept.
        """
        key = run_key(owner, run_id)
        run = self.live.get(key) or (self.find(run_id, None) if of_all else None)
        if run is not None:
            run.cancel(reason)
            return run.cancelled
        self._early_cancels.remember(key, reason, caller)
        if key in self._ended:
            return self._ended[key]
        raise errors.NotFoundError(
            f"Run '{run_id}' is not known here; if it begins within {REMEMBER_SECONDS:g} s, it is cancelled"
        )

    def cancel_all(self, reason: str) -> None:
        for run in self.live.values():
            run.cancel(reason)

    def __repr__(self) -> str:
        return f"<RunTable {len(self.live)} in flight, {len(self._early_cancels)} cancelled ahead>"
