"""What measurement has shown of a node's calls: by what its kernel's own estimate of them is to be multiplied.

`NodeEstimate` is a state machine without a plan, a clock or an event loop.  Whoever made a call tells it how long the
call took; what becomes of the estimate is one row of `CORRECTIONS`, which docs/how-a-node-runs.md shows.
Next to read: `call_estimates.py`, which multiplies, and tells what calls took.
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

# How many times as long as its estimate a call may take before one of the node was measured: estimates are of ordinary
# values on an ordinary core, and some are wrong.
UNMEASURED = 8.0
# What a correction upwards takes of a call, as TensorFlow's does, and one downwards.  What else the machine does makes
# calls longer, never shorter, and a call that is taken for a heavy one makes a detour through a thread.
_UPWARDS, _DOWNWARDS = 0.1, 0.5
# The least that an estimate is multiplied by; where the time depends on the values, quick calls tell nothing of others.
_LEAST, _LEAST_VARYING = 0.05, 1.0


class EstimateState(Enum):
    """What is known of a node's calls; the value says it to people."""

    UNMEASURED = "unmeasured"  # nothing: the estimate may be far too low
    MEASURED = "measured"  # the estimate is corrected
    SUSPECTED = "suspected"  # a call held up the loop, perhaps by accident: the next is made in a thread
    HEAVY = "heavy"  # two calls in a row did, or would have: small values may be heavy, too
    SUSPECTED_AGAIN = "suspected again"  # SUSPECTED, of one that is HEAVY

    __hash__ = object.__hash__  # which is quicker than Enum's: members are looked up for each call that is measured


class CallEvent(Enum):
    """How a call was made that has ended."""

    ON_LOOP = "on the loop"
    IN_THREAD = "in a thread"
    AT_MOST = "in a thread, at most so long"  # with others, measured together

    __hash__ = object.__hash__  # as above


class MeasuredCall(NamedTuple):
    """What a call took.

    Attributes:
        expected_ns: what the kernel said that it would take; more than 0, and finite.
        elapsed_ns: what it took.
        varies: how long calls take depends on the values.
    """

    expected_ns: float
    elapsed_ns: float
    varies: bool = False


class NodeEstimate:
    """What measurement has shown of a node's calls.

    Only its methods change it.  The fields agree with each other as `tests/support/node_estimates.py` checks.

    Attributes:
        state: what is known.
        scale: how many times its kernel's estimate a call takes, as far as was measured; more than 0.
        factor: `scale`, and a margin while little is known: `UNMEASURED`, or infinity while there is a suspicion.
        suspicion: how many times its kernel's estimate the call took that raised the suspicion; 0 if there is none.
        usual_check: the plan's `PlanNode.check`, as long as calls are neither suspected nor heavy.
    """

    __slots__ = ("factor", "scale", "state", "suspicion", "usual_check")

    def __init__(self) -> None:
        self.state = EstimateState.UNMEASURED
        self.scale = 1.0
        self.factor = UNMEASURED
        self.suspicion = 0.0
        self.usual_check = 0

    @property
    def check(self) -> int:
        """When to ask whether a call is heavy: see `PlanNode`."""
        asks_always = self.state not in (EstimateState.UNMEASURED, EstimateState.MEASURED)
        return 2 if asks_always else self.usual_check

    def called(self, event: CallEvent, call: MeasuredCall) -> None:
        """A call has ended: do what the first row says whose condition holds."""
        for holds, change, to in _ROWS[event][self.state]:
            if holds(self, call):
                change(self, call)
                self.state = to
                self.factor = inf if self.suspicion else self.scale
                return

    def copy(self) -> NodeEstimate:
        """The same of a node that another plan has of the same kernel."""
        other = NodeEstimate()
        other.state, other.scale, other.factor = self.state, self.scale, self.factor
        other.suspicion, other.usual_check = self.suspicion, self.usual_check
        return other

    # What rows of the table refer to

    def _always(self, _call: MeasuredCall) -> bool:
        return True

    def _held_up_loop(self, call: MeasuredCall) -> bool:
        return call.elapsed_ns > self.scale * call.expected_ns and not current_budget().allows(call.elapsed_ns)

    def _took_less(self, call: MeasuredCall) -> bool:
        return call.elapsed_ns < self.scale * call.expected_ns

    def _was_accident(self, call: MeasuredCall) -> bool:
        return current_budget().allows(self._shorter(call) * call.expected_ns)

    def _shorter(self, call: MeasuredCall) -> float:
        """Of this call and the suspected one, the one that took less: how many times the estimate."""
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
    """When a row of the table is taken, if none before it is."""

    words: str
    holds: Callable[[NodeEstimate, MeasuredCall], bool]


class ScaleChange(NamedTuple):
    """What becomes of the scale, in words, and of the suspicion."""

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


# Rows of a state and event stand in the order in which their conditions are asked; the last has none.
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
