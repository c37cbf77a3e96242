"""Decides whether the runs of a plan are interpreted or run as generated Python, and how that is written.

`CompilationPolicy` is a state machine without an event loop, a clock or a plan.  The executor asks it when a run begins
(`decide`), and tells it what happened (the other methods).  Each event is handled by one row of `TRANSITIONS`, which
docs/how-a-node-runs.md draws.
Next to read: `compiled/compiled_execution.py`, which asks and tells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from threading import Lock
from typing import Any, NamedTuple, Protocol

from aexec.runtime.plans.trial import Trial

__all__ = [
    "CHUNK",
    "TRANSITIONS",
    "CompilationPolicy",
    "CompiledForm",
    "Condition",
    "Decision",
    "Explanation",
    "PlanEvent",
    "PlanState",
    "Transition",
]

# A plan is compiled when it is run for this time.
COMPILE_AT = 3
# Stop compiling a plan after this many consecutive runs that fell back to the interpreter; if heavy calls were the
# cause, write its line so that it continues in a thread.
GIVE_UP_AT = 5
# A run or a slice is late if it ends more than this many seconds after its slice of the usual length.
OVERRUN = 0.5e-3
# This many consecutive runs of a short line, or slices, must be late to raise a suspicion: a single one may have lost
# the processor to another process.
SUSPICIOUS = 3
# After this many interpreted runs without one heavy call, assume that the calls are slow in sum.
LOOKS = 3
# A plan whose line was doubted this often is not doubted again for 2 runs, the next time for 4, and so on: another
# process that uses the processor makes call after call look slow, and a look or a new line takes as long as some runs.
DOUBTS = 12
MOST_PATIENCE = 32
# Calls of a line between two looks at the clock, unless its calls were found to be slow in sum.
CHUNK = 64


class PlanState(Enum):
    """The states of a plan; the value is the text that people see."""

    INTERPRETED = "interpreted"  # it has no line: it has run too seldom, or the line must be written anew
    COMPILING = "compiling"  # a thread is writing the line
    COMPILED = "compiled"  # it has a line, which runs use
    LATE = "late"  # the last few runs or slices were late by the clock; one in time ends the suspicion
    HELD = "held"  # a slice was late in processor time, too; only an interpreted run ends the suspicion
    REFUSED = "refused"  # the interpreter runs the plan from now on


class PlanEvent(Enum):
    """The events in the life of a plan."""

    BEGINS = "a run begins"
    WRITING = "a thread begins to write the line"
    WRITTEN = "the line is written"
    IN_TIME = "a run or a slice ends in time"
    LATE = "a run or a slice ends late"
    HELD = "a slice ends late, and had the processor"
    FELL_BACK = "the interpreter has to finish a run"
    MET_HEAVY = "the interpreter has to finish a run, because a call is heavy"
    TRIED = "a trial is over"
    REFUSED = "the plan cannot be compiled"


class Decision(Enum):
    """The decisions about a run that begins."""

    INTERPRET = "interpret"
    COMPILE = "compile, then run; interpret if there is no line yet"
    RUN = "run the line, or the interpreter in its turn while a trial lasts"


class CompiledForm(Protocol):
    """The part of a `CompiledPlan` that the policy and the executor use."""

    @property
    def policy(self) -> CompilationPolicy:
        """The plan's policy."""

    @property
    def function(self) -> Callable[..., Any]:
        """Returns the results if `is_line`, else a generator; see `CompiledPlan`."""

    @property
    def is_line(self) -> bool:
        """True without loops and many calls."""

    @property
    def needs_context(self) -> bool:
        """True if a kernel asks for the context."""

    @property
    def goes_on(self) -> bool:
        """True if it continues in a thread from a heavy call on."""

    @property
    def chunk(self) -> int:
        """The number of calls between two looks at the clock."""

    @property
    def depth(self) -> int:
        """The depth of its nested function calls."""

    @property
    def suspects(self) -> Sequence[object]:
        """The calls that it measures because they had been slow before."""

    @property
    def outdated(self) -> bool:
        """True if calls have turned out to be heavy since it was written."""

    @property
    def in_doubt(self) -> bool:
        """True if a call was slow once and must be made again to confirm that."""

    @property
    def relieved(self) -> bool:
        """True if all suspects have turned out to be quick."""


class Explanation(NamedTuple):
    """Says how the next run of a plan will be executed.

    Attributes:
        way: "interpreted", or "compiled" and how.
        reason: why, in words for people.
    """

    way: str
    reason: str

    def __str__(self) -> str:
        return f"{self.way}: {self.reason}"


class CompilationPolicy:
    """The state of compiling one plan, and the decisions that follow from it.

    Only its methods change it.  The fields agree with each other as `tests/support/compilation_policies.py` checks.

    Attributes:
        state: the plan's state.
        compiled: the compiled form; not None exactly in the states COMPILED, LATE and HELD.
        ready: `compiled` in the state COMPILED, else None: runs use it without asking, unless it has suspects.
        refused: why the interpreter runs the plan; not "" exactly in the state REFUSED.
        busy: True while a thread writes the line; the plan may be refused meanwhile.
        runs: the number of runs that began without a line.
        fallen_back: the number of consecutive runs, up to now, that fell back for a reason that counts.
        late: the number of consecutive runs of a short line, or slices, up to now, that were late.
        looks: the number of consecutive runs, up to now, that were interpreted because the line was late.
        doubted: how often a line was looked at, or written anew for what its calls took.
        patience: the number of coming runs whose late slices are not counted.
        unsettled: True if `fallen_back`, `late`, `looks` or `patience` is not 0: then runs that end in time are told,
            too.
        goes_on: True if the line that is written next continues in a thread from a heavy call on.
        chunk: calls between two looks at the clock, for the line that is written next; at least 1.
        trial: the comparison of such a line with the interpreter while it is under way; only with `goes_on`.
    """

    __slots__ = (
        "_lock",
        "busy",
        "chunk",
        "compiled",
        "doubted",
        "fallen_back",
        "goes_on",
        "late",
        "looks",
        "patience",
        "ready",
        "refused",
        "runs",
        "state",
        "trial",
        "unsettled",
    )

    def __init__(self) -> None:
        self.state = PlanState.INTERPRETED
        self.compiled: CompiledForm | None = None
        self.ready: CompiledForm | None = None
        self.refused = ""
        self.busy = False
        self.runs = self.fallen_back = self.late = self.looks = 0
        self.doubted = self.patience = 0
        self.unsettled = False
        self.goes_on = False
        self.chunk = CHUNK
        self.trial: Trial | None = None
        self._lock = Lock()  # held while an event changes state that threads may change

    # Events

    def decide(self) -> Decision:
        """Decide how the run that begins is to be made.

        After `COMPILE` the caller writes the plan with `chunk` and `goes_on`, and reports by the methods below.
        """
        while (decision := self._happens(PlanEvent.BEGINS)) is None:
            pass  # the line must be written anew, as for a plan without one
        return decision

    def writing(self) -> None:
        """Report that a thread begins to write the line."""
        self._happens(PlanEvent.WRITING)

    def written(self, form: CompiledForm) -> None:
        """Report the written line; may be called in any thread."""
        with self._lock:
            if (self.state, PlanEvent.WRITTEN) in _ROWS:
                self.compiled = form
                self._happens(PlanEvent.WRITTEN)

    def thread_ended(self) -> None:
        """Report that the thread that was to write the line has ended."""
        self.busy = False

    def adopt(self, form: CompiledForm) -> None:
        """Use the line that was written for a calling plan; the state of the present one is kept.

        May be called in any thread.  Ignored while a thread writes this plan's own line.
        """
        if self.state is PlanState.INTERPRETED:
            self.written(form)
        elif self.compiled is not None:
            self.compiled = form
            self.ready = form if self.state is PlanState.COMPILED else None

    def slice_ended(self, late: float, worked: float = 0.0) -> None:
        """Report the end of a slice, or of a run of a short line.

        Args:
            late: seconds from the end of its slice, by `LoopBudget.as_usual`; 0 or less if it was in time.
            worked: processor seconds that it used beyond the length of a slice, likewise.
        """
        self.late = self.late + 1 if late > OVERRUN and not self.patience else 0
        if self.late:
            self._happens(PlanEvent.HELD if worked > OVERRUN else PlanEvent.LATE)
        else:
            self._happens(PlanEvent.IN_TIME)
        self._settle()

    def finished(self) -> None:
        """Report a run that the line finished; its last slice was reported before."""
        self.fallen_back = 0
        self.patience = max(0, self.patience - 1)
        if not self.late:
            self.looks = 0
        self._settle()

    def fell_back(self, form: CompiledForm, *, heavy: bool, early: bool) -> None:
        """Report a run of `form` that the interpreter had to finish.

        Args:
            form: the run is not counted unless this is still the plan's line.
            heavy: True if a heavy call was the cause that a line which continues in a thread would not have stopped at.
            early: True if no more than half of the calls had been made.
        """
        if form is not self.compiled:
            return
        self.fallen_back = self.fallen_back + 1 if heavy or early else 0
        self._happens(PlanEvent.MET_HEAVY if heavy else PlanEvent.FELL_BACK)
        self._settle()

    def tried(self, trial: Trial, size: int, seconds: float, *, interpreted: bool) -> None:
        """Report a successful run of a trial; see `Trial.took`."""
        trial.took(size, seconds, interpreted)
        if trial.is_over and self.trial is trial:
            with self._lock:
                self._happens(PlanEvent.TRIED)
            self.trial = None

    def refuse(self, reason: str) -> None:
        """Leave the plan to the interpreter from now on; may be called in any thread."""
        with self._lock:
            self.refused = reason
            self._happens(PlanEvent.REFUSED)

    def explain(self) -> Explanation:
        """Say how the next run will be executed, and why."""
        compiled = self.compiled
        if self.state is PlanState.REFUSED:
            return Explanation("interpreted", self.refused)
        if self.state is PlanState.COMPILING:
            return Explanation("interpreted", "a thread is compiling the plan")
        if compiled is None:
            again = f", anew because heavy calls interrupted it {GIVE_UP_AT} times in a row" if self.goes_on else ""
            return self._explain_writing(again)
        if self.state is not PlanState.COMPILED:
            return self._explain_look()
        if self._is_relieved():
            return self._explain_writing(", anew because slow calls have turned out to be quick")
        if self.trial is not None:
            reason = f"the interpreter and the line take turns, to see which is faster ({self.trial.runs} runs so far)"
            return Explanation("compiled, going on in a thread, or interpreted", reason)
        return Explanation(_way_of(compiled), "nothing speaks against it")

    # Conditions and actions of the table's rows

    def _explain_writing(self, again: str) -> Explanation:
        if self._is_early():
            return Explanation("interpreted", f"the plan is compiled at run {COMPILE_AT}; this is run {self.runs + 1}")
        return Explanation("compiled", f"the plan is compiled when it is run now{again}")

    def _explain_look(self) -> Explanation:
        if self._is_outdated():
            return self._explain_writing(", anew because calls have turned out to be heavy")
        if self._has_doubts() or self._acquits():
            return Explanation("interpreted", "runs held the event loop; the interpreter measures which calls are slow")
        return self._explain_writing(", anew because its calls are slow all together")

    def _happens(self, event: PlanEvent) -> Decision | None:
        """Apply the first row whose condition holds; without one, nothing changes."""
        for row in _ROWS.get((self.state, event), ()):
            if row.condition.holds(self):
                row.effect(self)
                # If the row keeps the state, a thread may have changed it meanwhile.
                if row.to is not row.state:
                    self._enter(row.to)
                return row.decision
        return None

    def _enter(self, state: PlanState) -> None:
        if state in (PlanState.INTERPRETED, PlanState.COMPILING, PlanState.REFUSED):
            self.compiled = None
        self.ready = self.compiled if state is PlanState.COMPILED else None
        self.state = state

    def _settle(self) -> None:
        self.unsettled = bool(self.fallen_back or self.late or self.looks or self.patience)

    def _nothing(self) -> None:
        pass

    def _always(self) -> bool:
        return True

    def _is_early(self) -> bool:
        return self.runs + 1 < COMPILE_AT

    def _count_run(self) -> None:
        self.runs += 1

    def _occupy(self) -> None:
        self.busy = True

    def _is_relieved(self) -> bool:
        return self.compiled is not None and not self.patience and self.compiled.relieved

    def _is_outdated(self) -> bool:
        return self.compiled is not None and self.compiled.outdated

    def _has_doubts(self) -> bool:
        return self.compiled is not None and self.looks + 1 < LOOKS and self.compiled.in_doubt

    def _acquits(self) -> bool:
        return self.looks + 1 <= LOOKS or (self.compiled is not None and self.compiled.chunk == 1)

    def _doubt(self) -> None:
        self.doubted += 1
        self.patience = min(1 << self.doubted - DOUBTS, MOST_PATIENCE) if self.doubted > DOUBTS else 0
        self._settle()

    def _look(self) -> None:
        self.looks += 1
        self._doubt()

    def _acquit(self) -> None:
        self.looks, self.late = self.looks + 1, 0
        self._doubt()

    def _write_alike(self) -> None:
        assert self.compiled is not None
        self.chunk = self.compiled.chunk

    def _write_relieved(self) -> None:
        self._write_alike()
        self._doubt()

    def _write_with_estimates(self) -> None:
        self._write_alike()
        self.looks = self.late = 0
        self._doubt()

    def _write_shorter(self) -> None:
        self._write_with_estimates()
        self.chunk = max(1, self.chunk // 8)

    def _is_suspicious(self) -> bool:
        return self.late >= SUSPICIOUS

    def _gives_up(self) -> bool:
        return self.fallen_back >= GIVE_UP_AT

    def _go_on(self) -> None:
        self.goes_on, self.chunk, self.trial = True, CHUNK, Trial()
        self.fallen_back = self.late = 0

    def _is_lost(self) -> bool:
        return self.trial is not None and self.trial.is_lost

    def _leave_to_interpreter(self) -> None:
        self.refused = "the interpreter always had to take over"

    def _lose(self) -> None:
        self.refused = "the interpreter is faster: it makes several heavy calls at once"


def _way_of(compiled: CompiledForm) -> str:
    if compiled.is_line:
        return "compiled, at once"
    return "compiled, going on in a thread" if compiled.goes_on else "compiled, in slices"


class Condition(NamedTuple):
    """The condition of a row, which is taken if no row before it is."""

    words: str
    holds: Callable[[CompilationPolicy], bool]


class Transition(NamedTuple):
    """A row of the table.

    Attributes:
        effect: changes the policy's counts; the state is changed after it.
        decision: how the run that begins is made; None if the new state decides, and for other events.
    """

    state: PlanState
    event: PlanEvent
    condition: Condition
    to: PlanState
    effect: Callable[[CompilationPolicy], None] = CompilationPolicy._nothing
    decision: Decision | None = None


def _transitions() -> tuple[Transition, ...]:
    row, policy = Transition, CompilationPolicy
    interpret, compile_, run = Decision.INTERPRET, Decision.COMPILE, Decision.RUN
    otherwise = Condition("", policy._always)
    early = Condition(f"fewer than {COMPILE_AT} runs", policy._is_early)
    relieved = Condition("calls that were slow have turned out quick", policy._is_relieved)
    outdated = Condition("calls have turned out heavy", policy._is_outdated)
    doubts = Condition(f"a slow call is to be made again, and looks < {LOOKS}", policy._has_doubts)
    acquits = Condition(f"looks ≤ {LOOKS}, or it looks at the clock at each call", policy._acquits)
    suspicious = Condition(f"{SUSPICIOUS} in a row", policy._is_suspicious)
    gives_up = Condition(f"{GIVE_UP_AT} in a row", policy._gives_up)
    lost = Condition("the interpreter was faster", policy._is_lost)
    first, writing, ready, late, held, refused = PlanState
    E = PlanEvent
    rows = [
        row(first, E.BEGINS, early, first, policy._count_run, interpret),
        row(first, E.BEGINS, otherwise, first, policy._count_run, compile_),
        row(first, E.WRITING, otherwise, writing, policy._occupy),
        row(first, E.WRITTEN, otherwise, ready),
        row(writing, E.BEGINS, otherwise, writing, policy._count_run, interpret),
        row(writing, E.WRITTEN, otherwise, ready),
        row(ready, E.BEGINS, relieved, first, policy._write_relieved),
        row(ready, E.BEGINS, otherwise, ready, decision=run),
        row(ready, E.LATE, suspicious, late),
        row(ready, E.HELD, otherwise, held),
        row(late, E.IN_TIME, otherwise, ready),
        row(late, E.HELD, otherwise, held),
    ]
    for suspected in (late, held):
        rows += [
            row(suspected, E.BEGINS, outdated, first, policy._write_with_estimates),
            row(suspected, E.BEGINS, doubts, suspected, policy._look, interpret),
            row(suspected, E.BEGINS, acquits, ready, policy._acquit, interpret),
            row(suspected, E.BEGINS, otherwise, first, policy._write_shorter),
        ]
    for compiled in (ready, late, held):
        rows += [
            row(compiled, E.MET_HEAVY, gives_up, first, policy._go_on),
            row(compiled, E.FELL_BACK, gives_up, refused, policy._leave_to_interpreter),
        ]
    rows.append(row(refused, E.BEGINS, otherwise, refused, decision=interpret))
    for state in PlanState:
        if state is not refused:
            rows.append(row(state, E.TRIED, lost, refused, policy._lose))
        rows.append(row(state, E.REFUSED, otherwise, refused))
    order = [*PlanState]
    return tuple(sorted(rows, key=lambda row: order.index(row.state)))


# The conditions of a state and event are checked in the order of their rows.
TRANSITIONS = _transitions()

_ROWS: dict[tuple[PlanState, PlanEvent], tuple[Transition, ...]] = {
    key: tuple(row for row in TRANSITIONS if (row.state, row.event) == key)
    for key in {(row.state, row.event) for row in TRANSITIONS}
}
