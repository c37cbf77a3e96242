"""Estimates of calls are corrected by measurements, but not by interruptions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from math import inf

import numpy as np
import pytest

import aexec
from aexec.framework.kernel_contract.node_estimate import EstimateState, NodeEstimate
from aexec.framework.kernel_contract.output_sizes import AtMost, Varying
from aexec.runtime.plans.call_estimates import (
    correct_estimate,
    correct_in_thread,
    heavy_ns,
    is_light,
    light_elements,
    took_at_most,
    usual_ns,
)
from aexec.runtime.plans.compilation_policy import COMPILE_AT, LOOKS, SUSPICIOUS
from aexec.runtime.plans.plan import Plan, PlanNode
from tests.support.node_estimates import begin, suspect

MS = 1e6
X = (np.ones(9_999, np.float32),)  # 10 µs by its estimate: for it as a whole counts one element more


@pytest.fixture
async def node() -> AsyncIterator[PlanNode]:
    """A node with one measured call, which took the estimated time."""
    with aexec.Graph() as graph:
        aexec.ops.neg(aexec.placeholder("float32", None, name="x"), name="y")
    async with aexec.Session(graph) as session:
        call = session.make_callable("y:0", ["x:0"])
        await call(X[0])
        assert call.plan is not None
        (node,) = call.plan.nodes
        begin(node, 1.0, 1)
        correct_estimate(node, X, 0.01 * MS)
        assert (node.estimate.state, node.estimate.scale) == (EstimateState.MEASURED, 1.0)
        yield node


def test_slow_call_is_made_once_more_in_a_thread(node: PlanNode) -> None:
    correct_estimate(node, X, 4 * MS)
    assert heavy_ns(node, X) > 0
    assert node.check == 2  # it is asked about whatever its size
    assert node.estimate.scale == 1.0
    correct_in_thread(node, X, 0.01 * MS)
    assert not heavy_ns(node, X)
    assert (node.estimate.state, node.check, node.estimate.scale) == (EstimateState.MEASURED, 1, 1.0)


@pytest.mark.parametrize("again", [correct_in_thread, correct_estimate])
def test_call_that_is_slow_twice_is_heavy(node: PlanNode, again: object) -> None:
    assert callable(again)
    correct_estimate(node, X, 4 * MS)
    again(node, X, 6 * MS)
    assert (node.estimate.state, node.check, node.estimate.scale) == (EstimateState.HEAVY, 2, 400.0)
    assert heavy_ns(node, X) > 0
    for _ in range(10):
        correct_in_thread(node, X, 0.01 * MS)
    assert not heavy_ns(node, X)  # it was both times


def test_upper_bound_from_a_line_settles_a_suspicion(node: PlanNode) -> None:
    correct_estimate(node, X, 4 * MS)
    took_at_most(node, 0.01 * MS, 0.02 * MS)
    assert not heavy_ns(node, X)
    took_at_most(node, 0.01 * MS, 9 * MS)
    assert node.estimate.scale == 1.0
    correct_estimate(node, X, 4 * MS)
    took_at_most(node, 0.01 * MS, 9 * MS)
    assert node.estimate.scale == 400.0


def test_short_measurement_moves_the_estimate_little_by_little(node: PlanNode) -> None:
    correct_estimate(node, X, 0.11 * MS)
    assert node.estimate.scale == pytest.approx(2.0)
    assert node.estimate.state is EstimateState.MEASURED


def test_estimate_without_measurements_is_doubted(node: PlanNode) -> None:
    many = (np.ones(99_999, np.float32),)
    assert not heavy_ns(node, many)
    begin(node, 1.0, 1)
    assert heavy_ns(node, many) > 0
    assert not heavy_ns(node, X)
    correct_in_thread(node, many, 0.1 * MS)
    assert not heavy_ns(node, many)


async def test_limit_of_a_cost_function_says_how_many_elements_are_light(node: PlanNode) -> None:
    begin(node, lambda x: 0.0, 2)
    assert light_elements(node, 1 << 30) == 0  # such a call may be heavy with any inputs
    begin(node, AtMost(2.0, lambda x: 0.0), 1)
    assert heavy_ns(node, (np.ones(1 << 20, np.float32),)) == 0.0
    assert light_elements(node, 1000) == 1000
    assert light_elements(node, 1 << 30) == 125_000  # half of what a slice allows: it may take twice as long
    with aexec.Graph() as graph:
        x, shape = aexec.placeholder("float32", None, name="x"), aexec.placeholder("int32", [None], name="shape")
        aexec.ops.reshape(x, shape, name="y")
    async with aexec.Session(graph) as session:
        call = session.make_callable("y:0", ["x:0", "shape:0"])
        await call(*X, np.int32([-1]))
        assert call.plan is not None
        assert [node.check for node in call.plan.nodes] == [1]


def test_varying_cost_is_not_corrected_downwards(node: PlanNode) -> None:
    node.cost = Varying(10.0)
    correct_in_thread(node, X, 0.01 * MS)
    assert node.estimate.scale == 1.0


@pytest.mark.usefixtures("plans_compile")
async def test_interrupted_calls_do_not_outdate_a_line() -> None:
    with aexec.Graph() as graph:
        aexec.ops.neg(aexec.placeholder("float32", None, name="x"), name="y")
    async with aexec.Session(graph) as session:
        call = session.make_callable("y:0", ["x:0"])
        for _ in range(COMPILE_AT + 1):
            await call(X[0])
        assert call.plan is not None
        (node,), compilation = call.plan.nodes, call.plan.compilation
        compiled = compilation.compiled
        for _ in range(2 * LOOKS):
            for _ in range(SUSPICIOUS):
                compilation.slice_ended(1.0)  # as another process makes it
            suspect(node, X)
            assert compiled.in_doubt
            submitted = session.statistics().pool.submitted
            await call(X[0])
            assert session.statistics().pool.submitted == submitted + 1
            # Unless it happens that this call was interrupted, too.
            begin(node, node.cost, 1)
            assert not compiled.in_doubt
            for _ in range(2):
                await call(X[0])
            compilation.slice_ended(0.0)
            compilation.finished()
        assert compilation.compiled is compiled


def test_call_that_nobody_can_estimate_is_made_in_a_thread(node: PlanNode) -> None:
    def cost(*_: object) -> float:
        raise ValueError

    node.cost = cost
    assert heavy_ns(node, X) == inf
    assert not is_light(node, X)
    correct_in_thread(node, X, 0.01 * MS)
    took_at_most(node, inf, 0.01 * MS)
    assert (node.estimate.scale, node.estimate.state) == (1.0, EstimateState.MEASURED)  # it tells nothing of others


@pytest.mark.parametrize("state", [EstimateState.UNMEASURED, EstimateState.SUSPECTED])
def test_call_that_nobody_can_estimate_ends_no_doubt_of_others(node: PlanNode, state: EstimateState) -> None:
    begin(node, 1.0, 1)
    if state is EstimateState.SUSPECTED:
        suspect(node, X)
    took_at_most(node, inf, 0.01 * MS)
    assert node.estimate.state is state
    assert heavy_ns(node, (np.ones(99_999, np.float32),)) > 0


async def test_estimate_is_that_of_all_plans_with_the_node() -> None:
    with aexec.Graph() as graph:
        y = aexec.ops.neg(aexec.placeholder("float32", None, name="x"), name="y")
        aexec.ops.exp(y, name="z")
    async with aexec.Session(graph) as session:
        calls = [session.make_callable(fetch, ["x:0"]) for fetch in ("y:0", "z:0")]
        for call in calls:
            await call(X[0])
        nodes = [call.plan.nodes[0] for call in calls if isinstance(call.plan, Plan)]
        assert nodes[0] is not nodes[1] and nodes[0].estimate is nodes[1].estimate


async def test_suspicion_that_another_plan_ends_is_asked_about_no_more(node: PlanNode) -> None:
    other = PlanNode(node.kind, node.node, node.frame)
    other.cost, other.estimate = node.cost, node.estimate
    other.ask(1)
    correct_estimate(node, X, 4 * MS)
    assert (node.check, other.check) == (2, 1)
    correct_in_thread(other, X, 0.01 * MS)
    assert other.check == 1
    assert not heavy_ns(node, X)
    assert node.check == 1


async def test_new_plan_begins_with_what_is_known(node: PlanNode) -> None:
    correct_estimate(node, X, 4 * MS)
    other = PlanNode(node.kind, node.node, node.frame)
    other.estimate = node.estimate
    other.ask(1)
    assert (other.check, other.usual_check) == (2, 1)


@pytest.mark.parametrize(
    ("scale", "asks_always", "own_ns", "usual"),
    [
        (1.0, False, 10_000.0, 10_000.0),
        (0.5, False, 10_000.0, 5_000.0),
        (5.0, False, 10_000.0, 10_000.0),  # too short to be measured, but when something held it up
        (5.0, True, 10_000.0, 50_000.0),
        (5.0, False, 100_000.0, 500_000.0),
        (0.5, False, 100_000.0, 50_000.0),
    ],
)
def test_usual_time_does_not_follow_from_calls_that_were_held_up(
    scale: float, asks_always: bool, own_ns: float, usual: float
) -> None:
    estimate = NodeEstimate()
    estimate.scale, estimate.asks_always = scale, asks_always
    assert usual_ns(lambda *_: own_ns, estimate, ()) == usual
