"""Measured times of a node's calls, as the factor by which the kernel's own estimate is multiplied.

`NodeEstimate` is a state machine without a plan, a clock or an event loop.  The caller of a kernel tells it how long
the call took; one row of `CORRECTIONS`, which docs/how-a-node-runs.md shows, says how the estimate changes.  A node has
one estimate, which its kernel keeps, so all plans with the node share it.
Next to read: `aexec/runtime/plans/call_estimates.py`, which multiplies the estimates and reports calls.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from math import inf
from typing import NamedTuple

from aexec.framework.waiting.loop_budget import current_budget

__all__ = [
    "CORRECTIONS",
    "UNMEASURED",
    "CallCondition",
    "CallEvent",
    "Correction",
    "EstimateState",
    "MeasuredCall",
    "NodeEstimate",
    "ScaleChange",
]

# Safety factor on the estimate of a node that was never measured.  Estimates are for ordinary values on an ordinary
# core, and some are wrong.
UNMEASURED = 8.0
# The weight of a new measurement that is above (as in TensorFlow) or below the scale.  Other load on the machine makes
# calls longer, never shorter, and a call that wrongly counts as heavy makes a detour through a thread.
_UPWARDS, _DOWNWARDS = 0.1, 0.5
# The least scale; the second is for kernels whose time depends on the values: a quick call says nothing of others.
_LEAST, _LEAST_VARYING = 0.05, 1.0


class EstimateState(Enum):
    """The states of an estimate; the value is the text that people see."""

    UNMEASURED = "unmeasured"  # no call was measured: the estimate may be far too low
    MEASURED = "measured"  # the estimate is corrected
    SUSPECTED = "suspected"  # a call held up the loop, perhaps by accident: the next call is made in a thread
    HEAVY = "heavy"  # two consecutive calls did, or would have: calls with small values may be heavy, too
    SUSPECTED_AGAIN = "suspected again"  # as SUSPECTED, for a node that is HEAVY

    __hash__ = object.__hash__  # faster than Enum's: each measured call looks a member up


class CallEvent(Enum):
    """The ways in which a call was made that has ended."""

    ON_LOOP = "on the loop"
    IN_THREAD = "in a thread"
    AT_MOST = "in a thread, at most so long"  # measured together with other calls

    __hash__ = object.__hash__  # as above


class MeasuredCall(NamedTuple):
    """The time of one call.

    Attributes:
        expected_ns: the kernel's own estimate, in ns; positive and finite.
        elapsed_ns: the measured time, in ns.
        varies: True if the time of a call depends on the values.
    """

    expected_ns: float
    elapsed_ns: float
    varies: bool = False


class NodeEstimate:
    """The correction of one node's estimates by measurement.

    Only its methods change it.  The fields agree with each other as `tests/support/node_estimates.py` checks.

    Attributes:
        state: what is known of the node's calls.
        scale: measured / estimated time, averaged over calls; positive.
        factor: what estimates are multiplied by: `scale`; before the first measurement `UNMEASURED`; infinity while
            there is a suspicion.
        suspicion: measured / estimated time of the one slow call on the loop that raised a suspicion, to be confirmed
            by the next call in a thread; 0 if there is none.
        asks_always: True if calls with small values may be heavy, too: while calls are suspected or heavy.
    """

    __slots__ = ("asks_always", "factor", "scale", "state", "suspicion")

    def __init__(self) -> None:
        self.state = EstimateState.UNMEASURED
        self.scale = 1.0
        self.factor = UNMEASURED
        self.suspicion = 0.0
        self.asks_always = False

    def called(self, event: CallEvent, call: MeasuredCall) -> None:
        """Account for a call that has ended, by the first row whose condition holds."""
        for holds, change, to in _ROWS[event][self.state]:
            if holds(self, call):
                change(self, call)
                self.state = to
                self.factor = inf if self.suspicion else self.scale
                self.asks_always = to is not EstimateState.MEASURED  # no call leads back to UNMEASURED
                return

    # Conditions and changes of the table's rows

    def _always(self, _call: MeasuredCall) -> bool:
        return True

    def _held_up_loop(self, call: MeasuredCall) -> bool:
        return call.elapsed_ns > self.scale * call.expected_ns and not current_budget().allows(call.elapsed_ns)

    def _took_less(self, call: MeasuredCall) -> bool:
        return call.elapsed_ns < self.scale * call.expected_ns

    def _was_accident(self, call: MeasuredCall) -> bool:
        return current_budget().allows(self._shorter(call) * call.expected_ns)

    def _shorter(self, call: MeasuredCall) -> float:
        """The smaller of the measured / estimated times of this call and the suspected one."""
        return min(call.elapsed_ns / call.expected_ns, self.suspicion)

    def _keep(self, _call: MeasuredCall) -> None:
        pass

    def _correct(self, call: MeasuredCall) -> None:
        self._approach(call.elapsed_ns / call.expected_ns, call.varies)

    def _approach(self, found: float, varies: bool) -> None:
        scale = self.scale
        share = _UPWARDS if found > scale else _DOWNWARDS
        self.scale = max(_LEAST_VARYING if varies else _LEAST, (1 - share) * scale + share * found)

    def _suspect(self, call: MeasuredCall) -> None:
        self.suspicion = call.elapsed_ns / call.expected_ns

    def _acquit(self, call: MeasuredCall) -> None:
        found, self.suspicion = self._shorter(call), 0.0
        self._approach(min(found, self.scale), call.varies)

    def _confirm(self, call: MeasuredCall) -> None:
        found, self.suspicion = self._shorter(call), 0.0
        self.scale = max(self.scale, found)


class CallCondition(NamedTuple):
    """The condition of a row, which is taken if no row before it is."""

    words: str
    holds: Callable[[NodeEstimate, MeasuredCall], bool]


class ScaleChange(NamedTuple):
    """How a row changes the scale, in words, and the suspicion."""

    words: str
    apply: Callable[[NodeEstimate, MeasuredCall], None]


class Correction(NamedTuple):
    """A row of the table; the state is changed after `change`."""

    state: EstimateState
    event: CallEvent
    condition: CallCondition
    to: EstimateState
    change: ScaleChange


def _corrections() -> tuple[Correction, ...]:
    row, node = Correction, NodeEstimate
    otherwise = CallCondition("", node._always)
    held_up = CallCondition("it took longer than expected, and held up the loop", node._held_up_loop)
    took_less = CallCondition("it took less than expected", node._took_less)
    accident = CallCondition("it, or the suspected call, would not hold up the loop", node._was_accident)
    keep = ScaleChange("stays", node._keep)
    correct = ScaleChange("moves towards what the call took", node._correct)
    suspect = ScaleChange("stays", node._suspect)
    acquit = ScaleChange("moves down towards the shorter of the two", node._acquit)
    confirm = ScaleChange("rises to the shorter of the two", node._confirm)
    unmeasured, measured, suspected, heavy, again = EstimateState
    rows: list[Correction] = []
    for state, known, suspicion in (
        (unmeasured, measured, suspected),
        (measured, measured, suspected),
        (heavy, heavy, again),
    ):
        rows += [
            row(state, CallEvent.ON_LOOP, held_up, suspicion, suspect),
            row(state, CallEvent.ON_LOOP, otherwise, known, correct),
            row(state, CallEvent.IN_THREAD, otherwise, known, correct),
            row(state, CallEvent.AT_MOST, took_less, known, correct),
            row(state, CallEvent.AT_MOST, otherwise, known, keep),
        ]
    for state, innocent in ((suspected, measured), (again, heavy)):
        for event in CallEvent:
            rows += [row(state, event, accident, innocent, acquit), row(state, event, otherwise, heavy, confirm)]
    order = [*EstimateState]
    return tuple(sorted(rows, key=lambda row: order.index(row.state)))


# The conditions of a state and event are checked in this order; the last row has none.
CORRECTIONS = _corrections()

_Row = tuple[Callable[[NodeEstimate, MeasuredCall], bool], Callable[[NodeEstimate, MeasuredCall], None], EstimateState]
_ROWS: dict[CallEvent, dict[EstimateState, tuple[_Row, ...]]] = {
    event: {
        state: tuple(
            (row.condition.holds, row.change.apply, row.to)
            for row in CORRECTIONS
            if row.state is state and row.event is event
        )
        for state in EstimateState
    }
    for event in CallEvent
}
