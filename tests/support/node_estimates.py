"""Estimates of nodes in tests: what holds of one after each event, and ways to put one into a state."""

from __future__ import annotations

from math import inf

from aexec.framework.kernel_contract.node_estimate import UNMEASURED, EstimateState, NodeEstimate
from aexec.runtime.plans.call_estimates import correct_estimate
from aexec.runtime.plans.plan import PlanNode

SUSPICIONS = {EstimateState.SUSPECTED, EstimateState.SUSPECTED_AGAIN}
ASKED_ALWAYS = {*SUSPICIONS, EstimateState.HEAVY}


def check(estimate: NodeEstimate) -> None:
    """The fields of an estimate agree."""
    state = estimate.state
    assert 0 < estimate.scale < inf
    assert (estimate.suspicion > 0) is (state in SUSPICIONS)
    margin = UNMEASURED if state is EstimateState.UNMEASURED else inf if state in SUSPICIONS else 1.0
    assert estimate.factor == estimate.scale * margin
    assert estimate.asks_always is (state in ASKED_ALWAYS)


def begin(node: PlanNode, cost: object, asked: int, scale: float = 1.0) -> None:
    """Forget what was measured of a node, but for the scale; its kernel says that it costs so much."""
    node.cost, node.estimate = cost, NodeEstimate()
    node.ask(asked)
    set_scale(node, scale)


def set_scale(node: PlanNode, scale: float) -> None:
    """As if calls had taken so many times their estimate; the state stays."""
    estimate = node.estimate
    estimate.factor *= scale / estimate.scale
    estimate.scale = scale


def suspect(node: PlanNode, inputs: object) -> None:
    """A call on the loop seemed to take 4 ms."""
    correct_estimate(node, inputs, 4e6)
    assert node.estimate.state in SUSPICIONS
