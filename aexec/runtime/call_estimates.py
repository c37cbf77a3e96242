"""How long a kernel's call is expected to take: what it says itself, corrected by measurement.

By that the executor calls it on the loop or in a worker thread.
Next to read: `execution.py`; `aexec/framework/loop_budget.py`, which says how long is too long for the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from aexec.framework.loop_budget import current_budget
from aexec.framework.output_sizes import Broadcast, Varying, expected_ns
from aexec.runtime.plan import PlanNode

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
    return 0.0 if current_budget().allows(expected * node.scale * node.doubt) else expected


def is_light(node: PlanNode, inputs: Sequence[Any]) -> bool:
    """Would this call not hold up the loop though it took twice its estimate?"""
    return current_budget().allows(2 * _estimate(node, inputs) * node.scale)


def light_elements(node: PlanNode, most: int) -> int:
    """Up to how many elements, at most so many, a call is light though it may take twice its estimate.

    0: it may be heavy whatever it takes, or its estimate is no number per element.
    """
    cost, allowed = node.cost, current_budget().inline_ns / (2 * node.scale)
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
    expected = _estimate(node, inputs) if node.check else 0.0
    if not 0 < expected < inf:
        return
    if node.suspected or elapsed_ns <= node.scale * expected or current_budget().allows(elapsed_ns):
        _measured(node, expected, elapsed_ns)
        return
    node.suspected, node.doubt = elapsed_ns / expected, inf
    node.unsuspected_check, node.check = node.check, 2  # small values are asked about, too


def correct_in_thread(node: PlanNode, inputs: Any, elapsed_ns: float) -> None:
    """Correct the node's estimate by what a call in a worker thread took."""
    expected = _estimate(node, inputs) if node.check else 0.0
    if 0 < expected < inf:
        _measured(node, expected, elapsed_ns)


def _measured(node: PlanNode, expected_ns: float, elapsed_ns: float) -> None:
    found = elapsed_ns / expected_ns
    if not node.suspected:
        _correct(node, found)
        return
    found, node.suspected, node.doubt = min(found, node.suspected), 0.0, 1.0
    if current_budget().allows(found * expected_ns):
        node.check = node.unsuspected_check
        _correct(node, min(found, node.scale))
    else:
        node.scale = max(node.scale, found)  # twice is no accident


def _correct(node: PlanNode, found: float) -> None:
    """Upwards by TensorFlow's decay: nine parts old, one part new.  Downwards by half.

    What else the machine does makes calls longer, never shorter, and each call that is taken for a heavy one makes a
    detour through a thread.
    """
    node.doubt = 1.0
    share = 0.1 if found > node.scale else 0.5
    least = 1.0 if isinstance(node.cost, Varying) else 0.05
    node.scale = max(least, (1 - share) * node.scale + share * found)


def took_at_most(node: PlanNode, expected_ns: float, elapsed_ns: float) -> None:
    """Correct the node's estimate downwards, if it is: a call of which that was expected took no longer than this."""
    if expected_ns < inf and (node.suspected or elapsed_ns < node.scale * expected_ns):
        _measured(node, expected_ns, elapsed_ns)
    node.doubt = 1.0
