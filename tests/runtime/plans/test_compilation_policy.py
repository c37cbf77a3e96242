"""The policy by itself, without a session or an event loop: events in, decisions out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from aexec.runtime.plans import compilation_policy
from aexec.runtime.plans.compilation_policy import (
    CHUNK,
    COMPILE_AT,
    DOUBTS,
    GIVE_UP_AT,
    LOOKS,
    MOST_PATIENCE,
    OVERRUN,
    SUSPICIOUS,
    TRANSITIONS,
    CompilationPolicy,
    Decision,
    PlanEvent,
    PlanState,
)
from aexec.runtime.plans.trial import _TRIALS
from tests.support.compilation_policies import WITH_LINE, check

PAGE = Path(__file__).parents[3] / "docs" / "how-a-node-runs.md"


class Form:
    """A compiled form of a plan, with facts about its calls."""

    def __init__(self, chunk: int = CHUNK, *, goes_on: bool = False) -> None:
        self.chunk, self.goes_on = chunk, goes_on
        self.is_line, self.needs_context = not goes_on, False
        self.outdated = self.in_doubt = self.relieved = False


class Plan:
    """Drives a policy by words, one an event; `said` is what came of each `run`.

    `run` compiles if it is to, and says "interpret" or what the line is: its chunk, "+" if it goes on in a thread.
    """

    def __init__(self, *, in_thread: bool = False) -> None:
        self.policy = CompilationPolicy()
        self.in_thread = in_thread
        self.said: list[str] = []

    def run(self) -> None:
        policy = self.policy
        decision = policy.decide()
        if decision is Decision.COMPILE and self.in_thread:
            policy.writing()
        elif decision is Decision.COMPILE:
            self.written()
        form = policy.compiled
        interpreted = decision is Decision.INTERPRET or form is None
        self.said.append("interpret" if interpreted or form is None else f"{form.chunk}{'+' * form.goes_on}")

    def written(self) -> None:
        self.policy.written(Form(self.policy.chunk, goes_on=self.policy.goes_on))
        self.policy.thread_ended()

    def late(self) -> None:
        self.policy.slice_ended(2 * OVERRUN)
        self.policy.finished()

    def held(self) -> None:
        self.policy.slice_ended(2 * OVERRUN, 2 * OVERRUN)
        self.policy.finished()

    def calm(self) -> None:
        self.policy.slice_ended(OVERRUN / 2)
        self.policy.finished()

    def heavy(self) -> None:
        assert self.policy.compiled is not None
        self.policy.fell_back(self.policy.compiled, heavy=not self.policy.compiled.goes_on, early=True)

    def early(self) -> None:
        assert self.policy.compiled is not None
        self.policy.fell_back(self.policy.compiled, heavy=False, early=True)

    def far(self) -> None:
        assert self.policy.compiled is not None
        self.policy.fell_back(self.policy.compiled, heavy=False, early=False)

    def outdated(self) -> None:
        self.policy.compiled.outdated = True  # type: ignore[union-attr, misc]

    def doubted(self) -> None:
        self.policy.compiled.in_doubt = True  # type: ignore[union-attr, misc]

    def relieved(self) -> None:
        self.policy.compiled.relieved = True  # type: ignore[union-attr, misc]

    def follow(self, words: Iterable[str]) -> Plan:
        """Apply these events in order, and check the fields after each."""
        for word in words:
            getattr(self, word)()
            check(self.policy)
        return self


COMPILED = ["run"] * COMPILE_AT
SUSPECTED = [*COMPILED, *["late"] * SUSPICIOUS]
ACQUITTED = [*SUSPECTED, "run"]
SLOW = [*COMPILED, *(["late"] * SUSPICIOUS + ["run"]) * LOOKS, *["late"] * SUSPICIOUS]


@pytest.mark.parametrize(
    ("words", "state", "said"),
    [
        ([], PlanState.INTERPRETED, []),
        (COMPILED[1:], PlanState.INTERPRETED, ["interpret"] * 2),
        (COMPILED, PlanState.COMPILED, ["interpret", "interpret", "64"]),
        ([*COMPILED, "run", "calm", "run"], PlanState.COMPILED, ["64", "64"]),
        (SUSPECTED[:-1], PlanState.COMPILED, []),
        (SUSPECTED, PlanState.LATE, []),
        ([*COMPILED, "late", "late", "calm", "late"], PlanState.COMPILED, []),
        ([*SUSPECTED, "calm"], PlanState.COMPILED, []),
        (ACQUITTED, PlanState.COMPILED, ["64", "interpret"]),
        ([*ACQUITTED, "run"], PlanState.COMPILED, ["64", "interpret", "64"]),
        ([*COMPILED, "held"], PlanState.HELD, []),
        ([*COMPILED, "held", "calm"], PlanState.HELD, []),
        ([*COMPILED, "held", "run", "run"], PlanState.COMPILED, ["64", "interpret", "64"]),
        ([*SUSPECTED, "held"], PlanState.HELD, []),
        ([*SUSPECTED, "doubted", "run"], PlanState.LATE, ["interpret"]),
        ([*SUSPECTED, "doubted", *["run"] * LOOKS], PlanState.COMPILED, ["interpret"] * LOOKS),
        ([*SUSPECTED, "outdated", "run"], PlanState.COMPILED, ["64"]),
        ([*SLOW, "run"], PlanState.COMPILED, ["interpret", "8"]),
        ([*SLOW, "calm", "run"], PlanState.COMPILED, ["64"]),
        ([*SLOW, "run", *SLOW[3:], "run"], PlanState.COMPILED, ["interpret", "1"]),
        ([*SLOW, "run", *SLOW[3:], "run", *SLOW[3:], "run"], PlanState.COMPILED, ["interpret", "interpret"]),
        ([*COMPILED, "relieved", "run"], PlanState.COMPILED, ["64", "64"]),
        ([*COMPILED, *["heavy"] * (GIVE_UP_AT - 1)], PlanState.COMPILED, []),
        ([*COMPILED, *["heavy"] * GIVE_UP_AT], PlanState.INTERPRETED, []),
        ([*COMPILED, *["heavy"] * GIVE_UP_AT, "run"], PlanState.COMPILED, ["64", "64+"]),
        ([*COMPILED, *["heavy"] * (GIVE_UP_AT - 1), "calm", "heavy"], PlanState.COMPILED, []),
        ([*COMPILED, *["heavy"] * GIVE_UP_AT, "run", *["heavy"] * GIVE_UP_AT], PlanState.REFUSED, []),
        ([*COMPILED, *["early"] * GIVE_UP_AT, "run"], PlanState.REFUSED, ["interpret"]),
        ([*COMPILED, *["heavy"] * (GIVE_UP_AT - 1), "early"], PlanState.REFUSED, []),
        ([*COMPILED, *["early"] * (GIVE_UP_AT - 1), "far", "early"], PlanState.COMPILED, []),
    ],
)
def test_sequence_of_events_leads_to_state_and_decisions(words: list[str], state: PlanState, said: list[str]) -> None:
    """`said` are the last decisions."""
    plan = Plan().follow(words)
    assert plan.policy.state is state
    assert plan.said[len(plan.said) - len(said) :] == said


def test_line_that_was_doubted_often_is_left_alone_for_some_runs() -> None:
    plan = Plan().follow(COMPILED)
    suspicion = ["late"] * SUSPICIOUS
    for _ in range(DOUBTS):
        assert plan.policy.patience == 0
        plan.follow([*suspicion, "run"])
    for runs in (2, 4, 8, 16, MOST_PATIENCE, MOST_PATIENCE):
        plan.follow(suspicion)
        assert plan.policy.state is PlanState.LATE
        plan.follow(["run"])
        assert plan.policy.patience == runs
        plan.follow(["late"] * runs)
        assert plan.policy.state is PlanState.COMPILED
        assert not plan.policy.unsettled


def test_line_of_suspects_is_left_alone_for_some_runs() -> None:
    plan = Plan().follow(COMPILED).follow(["relieved", "run"] * (DOUBTS + 1))
    line = plan.policy.compiled
    plan.follow(["relieved", "run"])
    assert plan.policy.compiled is line
    plan.follow(["calm", "calm", "run"])
    assert plan.policy.compiled is not line


def test_plan_is_interpreted_while_a_thread_writes_it() -> None:
    plan = Plan(in_thread=True).follow([*COMPILED, "run"])
    assert plan.policy.state is PlanState.COMPILING
    assert plan.said == ["interpret"] * (COMPILE_AT + 1)
    assert plan.follow(["written", "run"]).said[-1] == "64"


def test_plan_that_was_refused_takes_no_line_of_a_thread() -> None:
    plan = Plan(in_thread=True).follow(COMPILED)
    plan.policy.refuse("enough")
    assert plan.policy.busy
    plan.follow(["written", "run"])
    assert plan.said[-1] == "interpret" and str(plan.policy.explain()) == "interpreted: enough"
    assert not plan.policy.busy


def test_plan_refused_while_its_line_is_handed_over_has_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial on the loop is lost meanwhile, for example."""
    plan = Plan(in_thread=True).follow(COMPILED)
    refusing = Thread(target=plan.policy.refuse, args=["enough"])

    class Rows(dict[Any, Any]):
        def __contains__(self, key: object) -> bool:
            refusing.start()
            refusing.join(0.05)  # it has to wait, or else it would be done by then
            return super().__contains__(key)

    monkeypatch.setattr(compilation_policy, "_ROWS", Rows(compilation_policy._ROWS))
    plan.policy.written(Form())
    refusing.join()
    check(plan.policy)
    assert plan.policy.state is PlanState.REFUSED


def test_line_of_a_caller_is_adopted_and_what_is_known_is_kept() -> None:
    plan = Plan()
    form = Form()
    plan.policy.adopt(form)
    assert plan.policy.ready is form
    plan.follow(["late"] * SUSPICIOUS)
    plan.policy.adopt(Form())
    check(plan.policy)
    assert plan.policy.state is PlanState.LATE


def test_line_of_a_caller_is_not_adopted_while_a_thread_writes() -> None:
    plan = Plan(in_thread=True).follow(COMPILED)
    plan.policy.adopt(Form())
    assert plan.policy.state is PlanState.COMPILING and plan.policy.compiled is None


def test_run_of_an_older_line_is_not_counted() -> None:
    plan = Plan().follow(COMPILED)
    for _ in range(GIVE_UP_AT):
        plan.policy.fell_back(Form(), heavy=False, early=True)
    assert plan.policy.state is PlanState.COMPILED and not plan.policy.fallen_back


@pytest.mark.parametrize("line_seconds", [1.0, 2.0])
def test_trial_that_is_lost_leaves_the_plan_to_the_interpreter(line_seconds: float) -> None:
    policy = Plan().follow([*COMPILED, *["heavy"] * GIVE_UP_AT, "run"]).policy
    trial = policy.trial
    assert trial is not None
    assert "take turns" in str(policy.explain())
    for number in range(2 * _TRIALS):
        assert policy.trial is trial
        interpreted = trial.interprets_next()
        assert interpreted is (number % 2 == 0)
        policy.tried(trial, 1, 1.0 if interpreted else line_seconds, interpreted=interpreted)
        check(policy)
    assert policy.trial is None
    assert policy.state is (PlanState.REFUSED if line_seconds > 1 else PlanState.COMPILED)


@pytest.mark.parametrize(
    ("words", "explained"),
    [
        (["run"], f"interpreted: the plan is compiled at run {COMPILE_AT}; this is run 2"),
        (COMPILED[1:], "compiled: the plan is compiled when it is run now"),
        (COMPILED, "compiled, at once: nothing speaks against it"),
        (SUSPECTED, "interpreted: runs held the event loop; the interpreter measures which calls are slow"),
        (
            [*SUSPECTED, "outdated"],
            "compiled: the plan is compiled when it is run now, anew because calls have turned out to be heavy",
        ),
        (SLOW, "compiled: the plan is compiled when it is run now, anew because its calls are slow all together"),
        (
            [*COMPILED, "relieved"],
            "compiled: the plan is compiled when it is run now, anew because slow calls have turned out to be quick",
        ),
        (
            [*COMPILED, *["heavy"] * GIVE_UP_AT],
            "compiled: the plan is compiled when it is run now, "
            f"anew because heavy calls interrupted it {GIVE_UP_AT} times in a row",
        ),
        ([*COMPILED, *["early"] * GIVE_UP_AT], "interpreted: the interpreter always had to take over"),
    ],
)
def test_explanation_says_what_the_next_run_is(words: list[str], explained: str) -> None:
    plan = Plan().follow(words)
    assert str(plan.policy.explain()) == explained
    plan.run()
    assert (plan.said[-1] == "interpret") is explained.startswith("interpreted")


# The table


@pytest.mark.parametrize("state", PlanState)
def test_every_state_has_a_decision_and_can_be_refused(state: PlanState) -> None:
    """The last row that decides has no condition, and one that says to ask again leads to where none says so."""
    begins = [row for row in TRANSITIONS if (row.state, row.event) == (state, PlanEvent.BEGINS)]
    assert not begins[-1].condition.words
    assert all(row.condition.words for row in begins[:-1])
    assert all(row.decision is not None or row.to is PlanState.INTERPRETED for row in begins)
    assert any((row.state, row.event, row.to) == (state, PlanEvent.REFUSED, PlanState.REFUSED) for row in TRANSITIONS)


def test_only_the_begin_of_a_run_has_a_decision() -> None:
    assert all(row.decision is None for row in TRANSITIONS if row.event is not PlanEvent.BEGINS)
    assert all(row.decision is not Decision.RUN or row.state in WITH_LINE for row in TRANSITIONS)


def test_page_shows_the_table() -> None:
    begins = tuple(f"| {state.value} |" for state in PlanState)
    shown = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(begins)]
    assert shown == [*_lines()]


def _lines() -> Iterable[str]:
    for row in TRANSITIONS:
        to = "" if row.to is row.state else row.to.value
        decision = row.decision.value if row.decision else "ask the new state" if row.event is PlanEvent.BEGINS else ""
        cells = (row.state.value, row.event.value, row.condition.words, to, decision)
        yield f"| {' | '.join(cells)} |".replace("  ", " ")


if __name__ == "__main__":
    print(*_lines(), sep="\n")
