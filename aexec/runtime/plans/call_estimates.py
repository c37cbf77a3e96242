"""Estimates of how long a kernel's call takes: the kernel's own estimate, corrected by measurement.

The executor uses it to choose between the event loop and a worker thread.
Next to read: `node_estimate.py`, which learns from measurement; `interpreter/node_runner.py`, which asks;
`aexec/framework/waiting/loop_budget.py`, which says how long is too long for the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from aexec.framework.kernel_contract.node_estimate import CallEvent, MeasuredCall, NodeEstimate
from aexec.framework.kernel_contract.op_kernel import Cost
from aexec.framework.kernel_contract.output_sizes import AtMost, Broadcast, Varying, expected_ns
from aexec.framework.waiting.loop_budget import current_budget
from aexec.runtime.plans.plan import PlanNode

__all__ = [
    "correct_estimate",
    "correct_in_thread",
    "heavy_ns",
    "is_light",
    "light_elements",
    "took_at_most",
    "usual_ns",
]

# Smallest estimate, in ns, of a call that may be made on the loop or in a thread.
_CALL_NS = 1000.0


def heavy_ns(node: PlanNode, inputs: Sequence[Any]) -> float:
    """Return the expected ns of a call if it would hold up the loop by its corrected estimate, else 0.

    Before the first measurement the estimate may be far too low.  So a node's first call is made in a thread unless it
    is very light, and a long call does not block the loop even once.

    Returns:
        The uncorrected estimate in ns; infinity if the kernel cannot tell.
    """
    expected, estimate = _own_ns(node.cost, inputs), node.estimate
    if not current_budget().allows(expected * estimate.factor):
        return expected
    if not estimate.asks_always:  # calls of another plan may have ended a suspicion
        node.check = node.usual_check
    return 0.0


def is_light(node: PlanNode, inputs: Sequence[Any]) -> bool:
    """True if this call would not hold up the loop even if it took twice its estimate."""
    return current_budget().allows(2 * _own_ns(node.cost, inputs) * node.estimate.scale)


def light_elements(node: PlanNode, most: int) -> int:
    """The number of elements, at most `most`, up to which a call is light even if it takes twice its estimate.

    0 if the call may be heavy with any inputs, or if its estimate is not a number per element.
    """
    cost, allowed = node.cost, current_budget().inline_ns / (2 * node.estimate.scale)
    if isinstance(cost, Broadcast):
        allowed -= cost.call_ns
        cost = cost.element_ns
    elif isinstance(cost, AtMost):
        cost = cost.element_ns
    if callable(cost):
        return 0
    if allowed < _CALL_NS:
        return 0
    return most if cost * most <= allowed else int(allowed / cost)


def _own_ns(cost: Cost, inputs: Sequence[Any]) -> float:
    """The kernel's own estimate of a call, in ns: a function of the inputs, or a number per element.

    It is never less than a call takes by itself.  Otherwise there would be nothing to correct, and a short call that
    was interrupted once would count as a thousand times too long.  The inputs are not checked yet: if the cost function
    fails on them, the estimate is infinite, and the kernel says in a thread what is wrong with them.
    """
    try:
        estimate = expected_ns(cost, inputs)
    except Exception:
        return inf
    return max(_CALL_NS, estimate) if estimate > 0 else 0.0


def usual_ns(cost: Cost, estimate: NodeEstimate, inputs: Sequence[Any]) -> float:
    """Return the corrected estimate of a call in ns; infinity if the kernel cannot tell.

    A call that is expected to be too short to be measured was measured only when something delayed it.  So a scale
    above 1 does not count then, unless the node is heavy.
    """
    own = _own_ns(cost, inputs)
    is_measured = estimate.asks_always or own >= current_budget().measured_seconds * 1e9
    return own * (estimate.scale if is_measured else min(1.0, estimate.scale))


def correct_estimate(node: PlanNode, inputs: Any, elapsed_ns: float) -> None:
    """Correct the node's estimate by the time of a call on the event loop.

    A call that held up the loop may have lost the processor to another process, or waited for another thread.  So the
    node is only suspected: its next call is made in a thread and measured there, however short it is.
    """
    _measured(node, CallEvent.ON_LOOP, inputs, elapsed_ns)


def correct_in_thread(node: PlanNode, inputs: Any, elapsed_ns: float) -> None:
    """Correct the node's estimate by the time of a call in a worker thread."""
    _measured(node, CallEvent.IN_THREAD, inputs, elapsed_ns)


def took_at_most(node: PlanNode, expected_ns: float, elapsed_ns: float) -> None:
    """Correct the node's estimate by a call that took at most `elapsed_ns` instead of `expected_ns`."""
    _learn(node, CallEvent.AT_MOST, expected_ns, elapsed_ns)


def _measured(node: PlanNode, event: CallEvent, inputs: Any, elapsed_ns: float) -> None:
    if node.check:  # estimates of other nodes are not used
        _learn(node, event, _own_ns(node.cost, inputs), elapsed_ns)


def _learn(node: PlanNode, event: CallEvent, expected_ns: float, elapsed_ns: float) -> None:
    """Give a measured call to the node's estimate, unless its expected time was unknown."""
    if 0 < expected_ns < inf:
        estimate = node.estimate
        estimate.called(event, MeasuredCall(expected_ns, elapsed_ns, isinstance(node.cost, Varying)))
        node.check = 2 if estimate.asks_always else node.usual_check
