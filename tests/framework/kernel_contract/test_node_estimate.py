"""The estimate by itself, without a plan or an event loop: what calls took goes in, a state and a scale come out."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from pathlib import Path

import pytest

from aexec.framework.kernel_contract.node_estimate import (
    CORRECTIONS,
    UNMEASURED,
    CallEvent,
    EstimateState,
    MeasuredCall,
    NodeEstimate,
)
from tests.support.node_estimates import check

PAGE = Path(__file__).parents[3] / "docs" / "how-a-node-runs.md"

# What the kernel says that a call takes.
EXPECTED_NS = 10_000.0
# Calls, by what they take as a multiple of that; one holds up the loop that takes longer than half a millisecond.
CALLS = {
    "as expected": 1.0,
    "quick": 0.5,
    "longer": 11.0,
    "slow": 100.0,
    "slower": 400.0,
}
EVENTS = {"loop": CallEvent.ON_LOOP, "thread": CallEvent.IN_THREAD, "at most": CallEvent.AT_MOST}


def estimate_after(*words: str, varies: bool = False) -> NodeEstimate:
    """After calls such as "loop: slow"; the fields agree after each."""
    estimate = NodeEstimate()
    for word in words:
        event, _, call = word.partition(": ")
        estimate.called(EVENTS[event], MeasuredCall(EXPECTED_NS, CALLS[call] * EXPECTED_NS, varies))
        check(estimate)
    return estimate


HEAVY = ("loop: slow", "thread: slower")
# It comes down, so that a slow call is not expected any more.
RELIEVED = (*HEAVY, *["thread: as expected"] * 10)


@pytest.mark.parametrize(
    ("words", "state", "scale"),
    [
        ((), EstimateState.UNMEASURED, 1.0),
        (("loop: as expected",), EstimateState.MEASURED, 1.0),
        (("loop: longer",), EstimateState.MEASURED, 2.0),
        (("loop: quick",), EstimateState.MEASURED, 0.75),
        (("thread: slow",), EstimateState.MEASURED, 10.9),
        (("at most: quick",), EstimateState.MEASURED, 0.75),
        (("at most: slow",), EstimateState.MEASURED, 1.0),
        (("thread: quick", "at most: slow"), EstimateState.MEASURED, 0.75),
        (("loop: slow",), EstimateState.SUSPECTED, 1.0),
        (("thread: quick", "loop: slow"), EstimateState.SUSPECTED, 0.75),
        (("loop: slow", "thread: as expected"), EstimateState.MEASURED, 1.0),
        (("loop: slow", "thread: longer"), EstimateState.MEASURED, 1.0),
        (("loop: slow", "loop: as expected"), EstimateState.MEASURED, 1.0),
        (("loop: slow", "at most: quick"), EstimateState.MEASURED, 0.75),
        (("loop: slow", "thread: slower"), EstimateState.HEAVY, 100.0),
        (("loop: slower", "thread: slow"), EstimateState.HEAVY, 100.0),
        (("loop: slower", "at most: slower"), EstimateState.HEAVY, 400.0),
        (("loop: slower", "loop: slower"), EstimateState.HEAVY, 400.0),
        ((*HEAVY, "loop: slow"), EstimateState.HEAVY, 100.0),
        ((*HEAVY, "loop: as expected"), EstimateState.HEAVY, 50.5),
        ((*HEAVY, "at most: slower"), EstimateState.HEAVY, 100.0),
        ((*RELIEVED, "loop: as expected"), EstimateState.HEAVY, 1.05),
        ((*RELIEVED, "loop: slow"), EstimateState.SUSPECTED_AGAIN, 1.1),
        ((*RELIEVED, "loop: slow", "thread: as expected"), EstimateState.HEAVY, 1.05),
        ((*RELIEVED, "loop: slow", "thread: slow"), EstimateState.HEAVY, 100.0),
    ],
)
def test_calls_lead_to_state_and_scale(words: tuple[str, ...], state: EstimateState, scale: float) -> None:
    estimate = estimate_after(*words)
    assert estimate.state is state
    assert estimate.scale == pytest.approx(scale, rel=0.01)


@pytest.mark.parametrize(
    ("words", "factor", "asks_always"),
    [
        ((), UNMEASURED, False),
        (("loop: as expected",), 1.0, False),
        (("loop: quick",), 0.75, False),
        (("loop: slow",), inf, True),
        (("loop: slow", "thread: as expected"), 1.0, False),
        (HEAVY, 100.0, True),
        ((*RELIEVED, "loop: slow"), inf, True),
    ],
)
def test_state_says_what_is_multiplied_and_when_it_is_asked(
    words: tuple[str, ...], factor: float, asks_always: bool
) -> None:
    estimate = estimate_after(*words)
    assert (estimate.factor, estimate.asks_always) == (factor, asks_always)


def test_scale_has_a_least() -> None:
    assert estimate_after(*["thread: quick"] * 20).scale == pytest.approx(0.5, rel=0.01)
    estimate = NodeEstimate()
    for _ in range(20):
        estimate.called(CallEvent.IN_THREAD, MeasuredCall(EXPECTED_NS, 0.0))
    assert estimate.scale == 0.05


def test_quick_call_tells_nothing_of_others_where_they_vary() -> None:
    assert estimate_after("thread: quick", varies=True).scale == 1.0
    assert estimate_after("loop: slow", "thread: quick", varies=True).scale == 1.0


# The table


@pytest.mark.parametrize("event", CallEvent)
@pytest.mark.parametrize("state", EstimateState)
def test_every_state_learns_from_every_call(state: EstimateState, event: CallEvent) -> None:
    rows = [row for row in CORRECTIONS if (row.state, row.event) == (state, event)]
    assert not rows[-1].condition.words
    assert all(row.condition.words for row in rows[:-1])
    assert all(row.to is not EstimateState.UNMEASURED for row in rows)


def test_page_shows_the_table() -> None:
    begins = tuple(f"| {state.value} | {event.value} |" for state in EstimateState for event in CallEvent)
    shown = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(begins)]
    assert shown == [*_lines()]


def _lines() -> Iterable[str]:
    for row in CORRECTIONS:
        to = "" if row.to is row.state else row.to.value
        cells = (row.state.value, row.event.value, row.condition.words, to, row.change.words)
        yield f"| {' | '.join(cells)} |".replace("  ", " ")


if __name__ == "__main__":
    print(*_lines(), sep="\n")
