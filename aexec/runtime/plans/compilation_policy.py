"""How the runs of a plan are executed: by the interpreter or as generated Python, and written how.

`CompilationPolicy` is a state machine without an event loop, a clock or a plan.  Whoever runs the plan asks it when a
run begins (`decide`) and tells it what happened (the other methods); what it then does is one row of `TRANSITIONS`,
which docs/how-a-node-runs.md draws.
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

# The run of a plan that compiles it.
COMPILE_AT = 3
# Runs in a row that the interpreter had to finish, after which it runs the plan from the start; or, where heavy calls
# were the cause, after which the line is written so that it goes on in a thread.
GIVE_UP_AT = 5
# Seconds by which a run or a slice may outlast its slice without being late.
OVERRUN = 0.5e-3
# Runs of a short line in a row, or slices, that must be late: one may have lost the processor to another process.
SUSPICIOUS = 3
# Looks in a row by which the interpreter found no heavy call, after which calls are taken to be slow all together.
LOOKS = 3
# Calls of a line between two looks at the clock, as long as they have not been found to be slow all together.
CHUNK = 64


class PlanState(Enum):
    """What a plan is at; the value says it to people."""

    INTERPRETED = "interpreted"  # there is no line: the plan has run too seldom, or its line is to be written anew
    COMPILING = "compiling"  # a thread is writing the line
    COMPILED = "compiled"  # there is a line, and runs use it
    LATE = "late"  # the last few runs or slices were late by the clock; one that is in time ends the suspicion
    HELD = "held"  # a slice was late by the processor's time, too; only a look ends the suspicion
    REFUSED = "refused"  # the interpreter runs the plan from now on


class PlanEvent(Enum):
    """What can happen to a plan."""

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
    """What is to be done with the run that begins."""

    INTERPRET = "interpret"
    COMPILE = "compile, then run; interpret if there is no line yet"
    RUN = "run the line, or the interpreter in its turn while a trial lasts"


class CompiledForm(Protocol):
    """What a plan was written as: what the policy and those who run it ask of a `CompiledPlan`."""

    @property
    def policy(self) -> CompilationPolicy:
        """Of the plan."""

    @property
    def function(self) -> Callable[..., Any]:
        """Gives the results if `is_line`, else a generator; see `CompiledPlan`."""

    @property
    def is_line(self) -> bool:
        """It has neither loops nor many calls."""

    @property
    def runs_at_once(self) -> bool:
        """It is a line none of whose kernels asks for the context of the step."""

    @property
    def goes_on(self) -> bool:
        """It goes on in a thread where a call is heavy."""

    @property
    def chunk(self) -> int:
        """Calls between two looks at the clock."""

    @property
    def depth(self) -> int:
        """So many functions call one another."""

    @property
    def suspects(self) -> Sequence[object]:
        """Calls that are measured because they were slow when it was written."""

    @property
    def outdated(self) -> bool:
        """Have calls turned out to be heavy since it was written?"""

    @property
    def in_doubt(self) -> bool:
        """Is there a call that was slow once, and is to be made again to see whether it is slow?"""

    @property
    def relieved(self) -> bool:
        """Have all the suspects turned out to be quick?"""


class Explanation(NamedTuple):
    """How the next run of a plan will be executed.

    Attributes:
        way: "interpreted", or "compiled" and how.
        reason: why.
    """

    way: str
    reason: str

    def __str__(self) -> str:
        return f"{self.way}: {self.reason}"


class CompilationPolicy:
    """What has become of compiling a plan, and what is to become of it.

    Only its methods change it.  The fields agree with each other as `tests/support/compilation_policies.py` checks.

    Attributes:
        state: what the plan is at.
        compiled: what the plan was written as; not None exactly in the states COMPILED, LATE and HELD.
        ready: the same in the state COMPILED, else None: runs use it without asking, unless it has suspects.
        refused: why the interpreter runs the plan; not "" exactly in the state REFUSED.
        busy: a thread is writing the line, though the plan may be refused meanwhile.
        runs: so many runs began while there was no line.
        fallen_back: so many of the last runs in a row the interpreter had to finish, for a reason that counts.
        late: so many of the last runs of a short line, or slices, in a row were late.
        looks: so often in a row the interpreter made a run in place of a line that was late.
        unsettled: `fallen_back`, `late` or `looks` is not 0: a run that ends in time has to be told, too.
        goes_on: the line that is written next goes on in a thread where a call is heavy.
        chunk: of the line that is written next; at least 1.
        trial: whether such a line is faster than the interpreter, while that is being measured; only with `goes_on`.
    """

    __slots__ = (
        "_lock",
        "busy",
        "chunk",
        "compiled",
        "fallen_back",
        "goes_on",
        "late",
        "looks",
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
        self.unsettled = False
        self.goes_on = False
        self.chunk = CHUNK
        self.trial: Trial | None = None
        self._lock = Lock()  # of events that a thread may tell while the loop tells others

    # Events

    def decide(self) -> Decision:
        """A run begins: how is it to be made?

        After `COMPILE` the caller writes the plan, with `chunk` and `goes_on`, and tells what came of it.
        """
        while (decision := self._happens(PlanEvent.BEGINS)) is None:
            pass  # the line is to be written anew, as that of a plan without one
        return decision

    def writing(self) -> None:
        """A thread begins to write the line."""
        self._happens(PlanEvent.WRITING)

    def written(self, form: CompiledForm) -> None:
        """The line is written; may be called in any thread."""
        with self._lock:
            if (self.state, PlanEvent.WRITTEN) in _ROWS:
                self.compiled = form
                self._happens(PlanEvent.WRITTEN)

    def thread_ended(self) -> None:
        """The thread that wrote the line, or was to, has ended."""
        self.busy = False

    def adopt(self, form: CompiledForm) -> None:
        """Take the line that was written for a plan that calls this one; what is known of the last one is kept.

        May be called in any thread.  While a thread writes this plan, its line is waited for.
        """
        if self.state is PlanState.INTERPRETED:
            self.written(form)
        elif self.compiled is not None:
            self.compiled = form
            self.ready = form if self.state is PlanState.COMPILED else None

    def slice_ended(self, late: float, worked: float = 0.0) -> None:
        """A slice, or a run of a short line, ended.

        Args:
            late: so many seconds after its slice; 0 or less: in time.
            worked: by so many seconds more than a slice has, it had the processor.
        """
        self.late = self.late + 1 if late > OVERRUN else 0
        if self.late:
            self._happens(PlanEvent.HELD if worked > OVERRUN else PlanEvent.LATE)
        else:
            self._happens(PlanEvent.IN_TIME)
        self._settle()

    def finished(self) -> None:
        """A run was finished by the line itself; its last slice was told before."""
        self.fallen_back = 0
        if not self.late:
            self.looks = 0
        self._settle()

    def fell_back(self, form: CompiledForm, *, heavy: bool, early: bool) -> None:
        """The interpreter had to finish a run of `form`.

        Args:
            form: what is not the line any more is not counted.
            heavy: a call was the cause with which a line can go on in a thread, and this one does not.
            early: no more than half of the calls had been made.
        """
        if form is not self.compiled:
            return
        self.fallen_back = self.fallen_back + 1 if heavy or early else 0
        self._happens(PlanEvent.MET_HEAVY if heavy else PlanEvent.FELL_BACK)
        self._settle()

    def tried(self, trial: Trial, size: int, seconds: float, *, interpreted: bool) -> None:
        """A run of a trial succeeded; see `Trial.took`."""
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
        """How the next run will be executed, and why."""
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
        if compiled.relieved:
            return self._explain_writing(", anew because slow calls have turned out to be quick")
        if self.trial is not None:
            reason = f"the interpreter and the line take turns, to see which is faster ({self.trial.runs} runs so far)"
            return Explanation("compiled, going on in a thread, or interpreted", reason)
        return Explanation(_way_of(compiled), "nothing speaks against it")

    # What rows of the table refer to

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
        """Do what the first row says whose condition holds; an event that has none changes nothing."""
        for row in _ROWS.get((self.state, event), ()):
            if row.condition.holds(self):
                row.effect(self)
                # A thread may have changed the state meanwhile, where the row does not.
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
        self.unsettled = bool(self.fallen_back or self.late or self.looks)

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
        return self.compiled is not None and self.compiled.relieved

    def _is_outdated(self) -> bool:
        return self.compiled is not None and self.compiled.outdated

    def _has_doubts(self) -> bool:
        return self.compiled is not None and self.looks + 1 < LOOKS and self.compiled.in_doubt

    def _acquits(self) -> bool:
        return self.looks + 1 <= LOOKS or (self.compiled is not None and self.compiled.chunk == 1)

    def _look(self) -> None:
        self.looks += 1
        self._settle()

    def _acquit(self) -> None:
        self.looks, self.late = self.looks + 1, 0
        self._settle()

    def _write_alike(self) -> None:
        assert self.compiled is not None
        self.chunk = self.compiled.chunk

    def _write_with_estimates(self) -> None:
        self._write_alike()
        self.looks = self.late = 0
        self._settle()

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
    if compiled.runs_at_once:
        return "compiled, at once"
    if compiled.is_line:
        return "compiled, as a line"
    return "compiled, going on in a thread" if compiled.goes_on else "compiled, in slices"


class Condition(NamedTuple):
    """When a row of the table is taken, if none before it is."""

    words: str
    holds: Callable[[CompilationPolicy], bool]


class Transition(NamedTuple):
    """A row of the table.

    Attributes:
        effect: changes what the policy counts and remembers; the state is changed after it.
        decision: what to do with the run that begins; None: the new state says; also for other events.
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
        row(ready, E.BEGINS, relieved, first, policy._write_alike),
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


# Rows of a state and event stand in the order in which their conditions are asked.
TRANSITIONS = _transitions()

_ROWS: dict[tuple[PlanState, PlanEvent], tuple[Transition, ...]] = {
    key: tuple(row for row in TRANSITIONS if (row.state, row.event) == key)
    for key in {(row.state, row.event) for row in TRANSITIONS}
}
