"""How long a kernel's call is expected to take: what it says itself, corrected by measurement.

By that the executor calls it on the loop or in a worker thread.
Next to read: `node_estimate.py`, which learns from measurement; `interpreter/execution.py`, which asks;
`aexec/framework/waiting/loop_budget.py`, which says how long is too long for the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from aexec.framework.kernel_contract.output_sizes import Broadcast, Varying, expected_ns
from aexec.framework.waiting.loop_budget import current_budget
from aexec.runtime.plans.node_estimate import CallEvent, MeasuredCall
from aexec.runtime.plans.plan import PlanNode

__all__ = ["correct_estimate", "correct_in_thread", "heavy_ns", "is_light", "light_elements", "took_at_most"]

# What the shortest call takes that a kernel may make on the loop or in a thread, nanoseconds.
_CALL_NS = 1000.0


def heavy_ns(node: PlanNode, inputs: Sequence[Any]) -> float:
    """What a call would take that, by its estimate corrected by measurement, would hold up the loop; 0 for another.

    Of a node none of whose calls was measured the estimate may be far too low: one that is not very light is made in a
    thread, so that what holds the loop for long does so not even once.

    Returns:
        The estimate, uncorrected, in ns; infinity where the kernel cannot tell.
    """
    expected = _estimate(node, inputs)
    return 0.0 if current_budget().allows(expected * node.estimate.factor) else expected


def is_light(node: PlanNode, inputs: Sequence[Any]) -> bool:
    """Would this call not hold up the loop though it took twice its estimate?"""
    return current_budget().allows(2 * _estimate(node, inputs) * node.estimate.scale)


def light_elements(node: PlanNode, most: int) -> int:
    """Up to how many elements, at most so many, a call is light though it may take twice its estimate.

    0: it may be heavy whatever it takes, or its estimate is no number per element.
    """
    cost, allowed = node.cost, current_budget().inline_ns / (2 * node.estimate.scale)
    if isinstance(cost, Broadcast):
        allowed -= cost.call_ns
        cost = cost.element_ns
    if callable(cost):
        return 0
    if allowed < _CALL_NS:
        return 0
    return most if cost * most <= allowed else int(allowed / cost)


def _estimate(node: PlanNode, inputs: Sequence[Any]) -> float:
    """What the kernel says a call will take, in ns: a function of the inputs, or so much per element.

    Never less than a call takes by itself, so that there is something to correct, and so that a short call which was
    interrupted once is not a thousand times as long as it should be.  Nobody has checked the inputs yet: of those that
    its cost cannot cope with the kernel says what is wrong, in a thread, as nothing is known of how long that takes.
    """
    try:
        estimate = expected_ns(node.cost, inputs)
    except Exception:
        return inf
    return max(_CALL_NS, estimate) if estimate > 0 else 0.0


def correct_estimate(node: PlanNode, inputs: Any, elapsed_ns: float) -> None:
    """Correct the node's estimate by what a call on the event loop took.

    One that held the loop up may have lost the processor to another process, or waited for another thread: the node is
    only suspected, and its next call made in a thread, and measured there, however little it takes.
    """
    _measured(node, CallEvent.ON_LOOP, inputs, elapsed_ns)


def correct_in_thread(node: PlanNode, inputs: Any, elapsed_ns: float) -> None:
    """Correct the node's estimate by what a call in a worker thread took."""
    _measured(node, CallEvent.IN_THREAD, inputs, elapsed_ns)


def took_at_most(node: PlanNode, expected_ns: float, elapsed_ns: float) -> None:
    """Correct the node's estimate by a call that took `elapsed_ns` at most, where `expected_ns` were expected."""
    _learn(node, CallEvent.AT_MOST, expected_ns, elapsed_ns)


def _measured(node: PlanNode, event: CallEvent, inputs: Any, elapsed_ns: float) -> None:
    if node.check:  # others are never asked about
        _learn(node, event, _estimate(node, inputs), elapsed_ns)


def _learn(node: PlanNode, event: CallEvent, expected_ns: float, elapsed_ns: float) -> None:
    """A call of which nobody knows what was to be expected tells nothing of others."""
    if 0 < expected_ns < inf:
        estimate = node.estimate
        before = estimate.state
        estimate.called(event, MeasuredCall(expected_ns, elapsed_ns, isinstance(node.cost, Varying)))
        if estimate.state is not before:
            node.check = estimate.check
