"""Plans with delegated regions: the same results and errors as without, whatever the delegate does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.delegates import delegate_registry as delegates
from aexec.framework import dtypes
from aexec.graph import passes
from aexec.runtime.planning import delegated, region_planning
from aexec.runtime.plans.plan import Plan
from tests.support import gates
from tests.support.node_estimates import set_scale
from tests.support.programs.graphs import GraphBuilder
from tests.support.stand_ins.numpy_delegate import NumpyDelegate, numpy_delegate
from tests.support.waiting import until

F = dtypes.float32
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def named() -> aexec.SessionConfig:
    return aexec.SessionConfig(delegates=["numpy"])


@pytest.fixture
def delegate(monkeypatch: pytest.MonkeyPatch) -> Iterator[NumpyDelegate]:
    """A delegate that runs regions of any size if it is named."""
    monkeypatch.setattr(delegated, "NAMED_HOPS", 0)
    with numpy_delegate() as made:
        yield made


@pytest.fixture
def by_itself(delegate: NumpyDelegate, monkeypatch: pytest.MonkeyPatch) -> NumpyDelegate:
    """The only delegate for sessions with `auto`, for which every region is large enough."""
    monkeypatch.setattr(delegated, "delegate_names", lambda: ("numpy",))
    monkeypatch.setattr(delegated, "WORTH_HOPS", 0)
    monkeypatch.setattr(delegated, "LOOK_AT", 2)  # before these light plans are run at once
    return delegate


def model() -> aexec.Graph:
    """`-x * 2 + 1`, then a node that the delegate does not support, then two more."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None, 3], name="x")
        a = aexec.ops.mul(aexec.ops.neg(x), 2.0, name="a")
        b = aexec.ops.add_v2(a, 1.0, name="b")
        c = aexec.ops.sin(b, name="c")
        aexec.ops.exp(aexec.ops.neg(c), name="y")
    return graph


def expected(x: Any) -> Any:
    return np.exp(-np.sin(-x * 2 + 1))


def members(delegate: NumpyDelegate) -> list[list[str]]:
    return [[node.name for node in region.nodes] for region in delegate.regions]


async def test_named_delegate_runs_regions_from_the_first_run(delegate: NumpyDelegate) -> None:
    async with aexec.Session(model(), config=named()) as session:
        np.testing.assert_allclose(await session.run("y:0", {"x:0": X}), expected(X), rtol=1e-6)
        assert [len(names) for names in members(delegate)] == [3, 2]
        assert delegate.inferring.count == 2
        np.testing.assert_allclose(await session.run("y:0", {"x:0": X + 1}), expected(X + 1), rtol=1e-6)
        assert delegate.inferring.count == 4
        assert len(delegate.regions) == 2  # compiled once


async def test_delegated_region_takes_feeds_of_any_shape(delegate: NumpyDelegate) -> None:
    async with aexec.Session(model(), config=named()) as session:
        for rows in (1, 5, 2, 1):
            x = np.ones((rows, 3), np.float32)
            np.testing.assert_allclose(await session.run("y:0", {"x:0": x}), expected(x), rtol=1e-6)


async def test_registered_pass_runs_where_it_says(delegate: NumpyDelegate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "PASSES", dict(passes.PASSES))
    seen: list[tuple[str, bool]] = []

    def note(name: str, working: passes.WorkingGraph) -> None:
        seen.append((name, any(node.op == "_DelegatedRegion" for node in working.nodes.values())))

    for name, before in (("early", True), ("late", False)):
        passes.register_pass(name, lambda working, *_, name=name: note(name, working), before_regions=before)
    config = aexec.SessionConfig(delegates=["numpy"], graph_passes=(*passes.PASSES,))
    async with aexec.Session(model(), config=config) as session:
        np.testing.assert_allclose(await session.run("y:0", {"x:0": X}), expected(X), rtol=1e-6)
    # All run for the plan that the regions replace.
    assert seen == [("early", False), ("late", False), ("early", False), ("late", True)]


async def run_often(graph: aexec.Graph) -> None:
    async with aexec.Session(graph) as session:
        for _ in range(6):
            await session.run("y:0", {"x:0": X})
        await until(lambda: not session._planner._regions.tasks)


async def test_delegate_that_is_not_installed_is_suggested_once(
    by_itself: NumpyDelegate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delegated, "installed_delegate", lambda name: False)
    monkeypatch.setattr(delegated, "_suggested", set())
    with caplog.at_level(logging.WARNING, "aexec"):
        await run_often(model())
        assert not caplog.messages  # so small a model gains nothing
        monkeypatch.setattr(delegated, "WORTH_INSTALLING", 0)
        await run_often(model())
        await run_often(model())
    (said,) = caplog.messages
    assert said.startswith("The delegate 'numpy' could run nodes") and "pip install 'aexec[numpy]'" in said
    assert not by_itself.regions


async def test_values_inside_can_be_fetched_and_fed(delegate: NumpyDelegate) -> None:
    async with aexec.Session(model(), config=named()) as session:
        a, y = await session.run(["a:0", "y:0"], {"x:0": X})
        np.testing.assert_array_equal(a, -X * 2)
        np.testing.assert_allclose(y, expected(X), rtol=1e-6)
        np.testing.assert_allclose(await session.run("y:0", {"a:0": X}), np.exp(-np.sin(X + 1)), rtol=1e-6)


async def test_target_inside_a_region_is_run(delegate: NumpyDelegate) -> None:
    async with aexec.Session(model(), config=named()) as session:
        np.testing.assert_array_equal(await session.run("b:0", {"x:0": X}, ["a"]), -X * 2 + 1)
        assert delegate.inferring.count == 1
        await session.run([], {"x:0": X}, ["b"])  # which nobody uses: it runs for its errors, after a region
        assert members(delegate)[-1] == ["Neg", "a"]


async def test_control_successor_of_a_member_waits_for_its_region(delegate: NumpyDelegate) -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [2], name="x")
        counter = aexec.ops.variable_v2(shape=[], dtype="float32", name="v")
        aexec.ops.assign(counter, 0.0, name="init")
        a = aexec.ops.neg(aexec.ops.exp(x), name="a")
        with aexec.control_dependencies([a]):
            aexec.ops.assign_add(counter, 1.0, name="count")
    async with aexec.Session(graph, config=named()) as session:
        await session.run([], {}, ["init"])
        delegate.inferring.close()
        step = session.start(["count:0", "a:0"], {"x:0": X[0, :2]})
        await until(delegate.inferring.entered.is_set)
        assert await session.run("v:0") == 0.0
        delegate.inferring.open.set()
        assert (await step)[0] == 1.0


async def test_region_in_a_branch_is_dead_with_it(delegate: NumpyDelegate) -> None:
    g = GraphBuilder()
    g.placeholder("x", F, [2])
    g.placeholder("p", dtypes.bool_, [])
    g("switch", "Switch", "x", "p", T=F)
    g("t", "Neg", "switch:1", T=F)
    g("t2", "Exp", "t", T=F)
    g("f", "Exp", "switch", T=F)
    g("f2", "Neg", "f", T=F)
    g("y", "Merge", "t2", "f2", T=F, N=2)
    async with aexec.Session(g.graph(), config=named()) as session:
        x = np.ones(2, np.float32)
        np.testing.assert_allclose(await session.run("y:0", {"x:0": x, "p:0": True}), np.exp(-x))
        assert delegate.inferring.count == 1
        np.testing.assert_allclose(await session.run("y:0", {"x:0": x, "p:0": False}), -np.exp(x))
        assert delegate.inferring.count == 2


async def test_region_in_a_loop_runs_in_each_iteration(delegate: NumpyDelegate) -> None:
    g = GraphBuilder()
    g.placeholder("x", F, [])
    g.const("limit", 100.0, F)
    frame = {"frame_name": "loop", "parallel_iterations": 10}
    g("enter", "Enter", "x", T=F, **frame)
    g("top", "Enter", "limit", T=F, is_constant=True, **frame)
    g("merge", "Merge", "enter", "next", T=F, N=2)
    g("less", "Less", "merge", "top", T=F)
    g("cond", "LoopCond", "less")
    g("switch", "Switch", "merge", "cond", T=F)
    g("body", "AddV2", "switch:1", "switch:1", T=F)
    g.const("number", 2.0, F)
    g("two", "Enter", "number", T=F, is_constant=True, **frame)
    g("body2", "Mul", "body", "two", T=F)
    g("next", "NextIteration", "body2", T=F)
    g("exit", "Exit", "switch", T=F)
    async with aexec.Session(g.graph(), config=named()) as session:
        assert await session.run("exit:0", {"x:0": 1.0}) == 256.0
        assert delegate.inferring.count == 4


async def test_inputs_are_contiguous_arrays(delegate: NumpyDelegate) -> None:
    """The delegate asserts it; what it gets may be transposed, or a scalar that a kernel returned."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None, None], name="x")
        total = aexec.ops.sum(x, [0, 1])
        aexec.ops.neg(aexec.ops.mul(aexec.ops.transpose(x, [1, 0]), total), name="y")
    async with aexec.Session(graph, config=named()) as session:
        np.testing.assert_allclose(await session.run("y:0", {"x:0": X.T}), -X * X.sum())
        assert delegate.inferring.count == 1


async def test_delegate_uses_the_threads_of_the_session(delegate: NumpyDelegate) -> None:
    config = aexec.SessionConfig(delegates=["numpy"], inter_op_threads=3, intra_op_threads=6)
    async with aexec.Session(model(), config=config) as session:
        await session.run("b:0", {"x:0": X})
    assert delegate.threads == [6]


# Who refuses, fails, or is away


async def test_refused_region_runs_by_its_nodes(delegate: NumpyDelegate, caplog: pytest.LogCaptureFixture) -> None:
    delegate.refuses = "node 'a' (Mul): too blue"
    async with aexec.Session(model(), config=named()) as session:
        with caplog.at_level(logging.WARNING, "aexec"):
            np.testing.assert_allclose(await session.run("y:0", {"x:0": X}), expected(X), rtol=1e-6)
    assert delegate.inferring.count == 0
    assert "numpy refuses a region of 1 Neg, 1 Mul, 1 AddV2" in caplog.text and "node 'a' (Mul)" in caplog.text


async def test_region_runs_by_its_nodes_when_compiling_fails(
    delegate: NumpyDelegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("out of ideas")

    monkeypatch.setattr(delegate, "compile", broken)
    async with aexec.Session(model(), config=named()) as session:
        np.testing.assert_allclose(await session.run("y:0", {"x:0": X}), expected(X), rtol=1e-6)


async def test_refused_shapes_run_by_their_nodes(delegate: NumpyDelegate) -> None:
    delegate.shapes_refused.add((2, 3))
    async with aexec.Session(model(), config=named()) as session:
        np.testing.assert_allclose(await session.run("y:0", {"x:0": X}), expected(X), rtol=1e-6)
        assert delegate.inferring.count == 0
        np.testing.assert_allclose(await session.run("y:0", {"x:0": X[:1]}), expected(X[:1]), rtol=1e-6)
        assert delegate.inferring.count == 2


async def test_errors_of_a_region_are_those_of_its_nodes(delegate: NumpyDelegate) -> None:
    """The delegate fails with its own message; the run raises the node's error."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        wrong = aexec.ops.reshape(aexec.ops.neg(x), [2, 2], name="wrong")
        aexec.ops.neg(wrong, name="y")
    async with aexec.Session(graph, config=named()) as session:
        with pytest.raises(errors.InvalidArgumentError, match="requested shape has 4") as caught:
            await session.run("y:0", {"x:0": np.ones(3, np.float32)})
        assert caught.value.node == "wrong" and caught.value.op == "Reshape"
        assert (await session.run("y:0", {"x:0": np.ones(4, np.float32)})).shape == (2, 2)
        assert delegate.inferring.count == 2


async def test_unused_control_input_still_fails(delegate: NumpyDelegate) -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        a = aexec.ops.neg(aexec.ops.exp(x))
        wrong = aexec.ops.reshape(a, [2, 2], name="wrong")
        with aexec.control_dependencies([wrong]):
            aexec.ops.neg(a, name="y")
    async with aexec.Session(graph, config=named()) as session:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            await session.run("y:0", {"x:0": np.ones(3, np.float32)})
        assert caught.value.node == "wrong"
        assert len(delegate.regions) == 1


async def test_delegate_that_keeps_failing_is_given_up(
    delegate: NumpyDelegate, caplog: pytest.LogCaptureFixture
) -> None:
    delegate.failure = RuntimeError("it burns")
    async with aexec.Session(model(), config=named()) as session:
        for _ in range(5):
            np.testing.assert_allclose(await session.run("b:0", {"x:0": X}), -X * 2 + 1)
    assert delegate.inferring.count == delegated.GIVE_UP_AT
    assert "numpy failed 3 times in a row on b/numpy: it burns" in caplog.text


async def test_success_between_failures_keeps_the_delegate(delegate: NumpyDelegate) -> None:
    async with aexec.Session(model(), config=named()) as session:
        for failure in [RuntimeError("no"), RuntimeError("no"), None] * 2:
            delegate.failure = failure
            await session.run("b:0", {"x:0": X})
    assert delegate.inferring.count == 6


async def test_missing_delegate_says_how_to_install_it() -> None:
    delegates.register_delegate("absent", NumpyDelegate, needs="no_such_module")
    try:
        async with aexec.Session(model(), config=aexec.SessionConfig(delegates=["absent"])) as session:
            with pytest.raises(errors.FailedPreconditionError, match=r"pip install 'aexec\[absent\]'"):
                await session.run("y:0", {"x:0": X})
    finally:
        delegates.unregister_delegate("absent")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("numpy", "must be 'auto' or a collection of names, got 'numpy'"),
        (["nobody"], "no delegate 'nobody'; there are"),
    ],
)
def test_invalid_delegates_are_refused(given: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        aexec.SessionConfig(delegates=given)


def test_delegate_name_cannot_be_registered_twice(delegate: NumpyDelegate) -> None:
    with pytest.raises(errors.AlreadyExistsError, match="'numpy' is registered"):
        delegates.register_delegate("numpy", NumpyDelegate)
    with pytest.raises(errors.NotFoundError, match="'nobody'"):
        delegates.unregister_delegate("nobody")


# Cancelling and closing


async def test_cancelled_caller_does_not_wait_for_a_delegated_call(delegate: NumpyDelegate) -> None:
    async with aexec.Session(model(), config=named()) as session:
        await session.run("y:0", {"x:0": X})
        delegate.inferring.close()
        delegate.inferring.entered.clear()
        step = session.start("y:0", {"x:0": X})
        await until(delegate.inferring.entered.is_set)
        before = delegate.ended
        step.cancel("enough")
        with pytest.raises(errors.CancelledError, match="enough"):
            await step
        assert delegate.cancelled == 1 and delegate.ended == before  # it still runs
        delegate.inferring.open.set()
    assert delegate.ended == before + 1


async def test_call_that_waits_for_a_slot_can_be_cancelled(delegate: NumpyDelegate) -> None:
    async with aexec.Session(model(), config=named()) as session:
        await session.run("b:0", {"x:0": X})
        delegate.inferring.close()
        steps = [session.start("b:0", {"x:0": X}) for _ in range(delegated.IN_FLIGHT + 1)]
        await until(lambda: delegate.inferring.count == 1 + delegated.IN_FLIGHT)
        steps[-1].cancel()
        with pytest.raises(errors.CancelledError):
            await steps[-1]
        assert delegate.cancelled == 0
        delegate.inferring.open.set()
        for step in steps[:-1]:
            np.testing.assert_allclose(await step, -X * 2 + 1)


async def test_deadline_passes_during_a_delegated_call(delegate: NumpyDelegate) -> None:
    async with aexec.Session(model(), config=named()) as session:
        await session.run("y:0", {"x:0": X})
        delegate.inferring.close()
        with pytest.raises(errors.DeadlineExceededError):
            await session.run("y:0", {"x:0": X}, options=aexec.RunOptions(timeout=0.001))
        delegate.inferring.open.set()


async def test_error_elsewhere_cancels_the_delegated_call(delegate: NumpyDelegate) -> None:
    gate = gates.Gate()
    g = GraphBuilder()
    g.placeholder("x", F, [2])
    g("a", "Neg", "x", T=F)
    g("b", "Neg", "a", T=F)
    g("wait", "TestGate", "x", key=gate.key, T=F)
    g("fail", "TestFail", "wait", message=b"broken", T=F)
    async with aexec.Session(g.graph(), config=named()) as session:
        delegate.inferring.close()
        step = session.start(["b:0", "fail:0"], {"x:0": X[0, :2]})
        await until(delegate.inferring.entered.is_set)
        gate.open.set()
        with pytest.raises(errors.InvalidArgumentError, match="broken"):
            await step
        assert delegate.cancelled == 1
        delegate.inferring.open.set()


async def test_close_waits_for_what_was_abandoned(delegate: NumpyDelegate) -> None:
    session = aexec.Session(model(), config=named())
    await session.run("b:0", {"x:0": X})
    delegate.inferring.close()
    delegate.inferring.entered.clear()
    step = session.start("b:0", {"x:0": X})
    await until(delegate.inferring.entered.is_set)
    closing = asyncio.create_task(session.close())
    with pytest.raises(errors.CancelledError, match="closed"):
        await step
    for _ in range(20):
        await asyncio.sleep(0)
    assert not closing.done()
    delegate.inferring.open.set()
    await closing
    assert delegate.ended == 2


async def test_close_while_compiling(delegate: NumpyDelegate) -> None:
    delegate.compiling.close()
    session = aexec.Session(model(), config=named())
    step = session.start("y:0", {"x:0": X})
    await until(delegate.compiling.entered.is_set)
    closing = asyncio.create_task(session.close())
    with pytest.raises(errors.CancelledError, match="closed"):
        await step
    assert not closing.done()
    delegate.compiling.open.set()
    await closing


async def test_step_that_waits_for_compiling_can_be_cancelled(delegate: NumpyDelegate) -> None:
    delegate.compiling.close()
    async with aexec.Session(model(), config=named()) as session:
        step = session.start("b:0", {"x:0": X})
        await until(delegate.compiling.entered.is_set)
        step.cancel()
        with pytest.raises(errors.CancelledError):
            await step
        delegate.compiling.open.set()
        np.testing.assert_allclose(await session.run("b:0", {"x:0": X}), -X * 2 + 1)
        assert len(delegate.regions) == 1


# Choosing by itself


async def test_plan_is_delegated_in_the_background_after_some_runs(by_itself: NumpyDelegate) -> None:
    by_itself.compiling.close()
    async with aexec.Session(model()) as session:
        call = session.make_callable("y:0", ["x:0"])
        for _ in range(delegated.LOOK_AT):
            assert not by_itself.compiling.entered.is_set()
            np.testing.assert_allclose(await call(X), expected(X), rtol=1e-6)
        await until(by_itself.compiling.entered.is_set)
        for _ in range(5):
            np.testing.assert_allclose(await call(X), expected(X), rtol=1e-6)
        assert by_itself.inferring.count == 0
        before = call.plan
        by_itself.compiling.open.set()
        await until(lambda: call.plan is not before)
        np.testing.assert_allclose(await call(X), expected(X), rtol=1e-6)
        assert by_itself.inferring.count == 2


async def test_runs_in_flight_keep_their_plan(by_itself: NumpyDelegate) -> None:
    gate = gates.Gate()
    g = GraphBuilder()
    g.placeholder("x", F, [2])
    g("wait", "TestGate", "x", key=gate.key, T=F)
    g("a", "Neg", "wait", T=F)
    g("y", "Neg", "a", T=F)
    by_itself.compiling.close()
    async with aexec.Session(g.graph()) as session:
        call = session.make_callable("y:0", ["x:0"])
        steps = [call.start(X[0, :2]) for _ in range(delegated.LOOK_AT)]
        await until(by_itself.compiling.entered.is_set)
        before = call.plan
        by_itself.compiling.open.set()
        await until(lambda: call.plan is not before)
        gate.open.set()
        for step in steps:
            np.testing.assert_array_equal(await step, X[0, :2])
        assert by_itself.inferring.count == 0
        np.testing.assert_array_equal(await call(X[0, :2]), X[0, :2])
        assert by_itself.inferring.count == 1


async def test_delegation_waits_until_runs_have_cost_enough(by_itself: NumpyDelegate) -> None:
    config = aexec.SessionConfig(compile_plans=False)  # such light plans would be run at once, and not counted
    async with aexec.Session(model(), config=config) as session:
        call = session.make_callable("y:0", ["x:0"])
        found = await session.regions(call)
        cost = sum(report.seconds for report in found)
        by_itself.seconds = 5 * cost / delegated.COMPILE_AT  # of two regions: ten runs
        for _ in range(9):
            await call(X)
            await _quiet(session)
        assert by_itself.compiling.count == 0
        await call(X)
        await until(lambda: by_itself.compiling.count == 2)


@pytest.mark.parametrize(("seconds", "in_delegate"), [(0.1, True), (0.2, True), (0.3, False)])
async def test_measured_calls_choose_between_delegate_and_nodes(
    by_itself: NumpyDelegate, monkeypatch: pytest.MonkeyPatch, seconds: float, in_delegate: bool
) -> None:
    """The nodes take 0.2 s by a clock that nothing else moves."""
    clock = Clock()
    monkeypatch.setattr(delegated, "monotonic", clock)
    run_nested = delegated.run_nested

    async def by_nodes(*call: Any) -> Any:
        clock.now += 0.2
        return await run_nested(*call)

    monkeypatch.setattr(delegated, "run_nested", by_nodes)
    by_itself.on_call = lambda: clock.move(seconds)
    async with aexec.Session(one_region()) as session:
        call = session.make_callable("y:0", ["x:0"])
        await session.make_plan(call)
        ordinary = call.plan
        await _delegated(call)
        for _ in range(4):
            np.testing.assert_array_equal(await call(X), -X * 2)
            np.testing.assert_array_equal(await call(X[:1]), -X[:1] * 2)  # of another shape: not compared
        await call(X)
        before = by_itself.inferring.count
        assert before == 3 + 4
        await call(X)
        assert by_itself.inferring.count - before == in_delegate
        assert (call.plan is ordinary) is not in_delegate


async def test_regions_that_were_slower_are_tried_again(
    by_itself: NumpyDelegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_planning, "TRY_AGAIN_AT", 1)
    clock = Clock()
    monkeypatch.setattr(delegated, "monotonic", clock)
    by_itself.on_call = lambda: clock.move(1)
    config = aexec.SessionConfig(compile_plans=False)  # such light plans would be run at once, and not counted
    async with aexec.Session(one_region(), config=config) as session:
        call = session.make_callable("y:0", ["x:0"])
        for losses in range(3):
            before = by_itself.compiling.count
            for _ in range(region_planning.LEAST_DUE * 4**losses // 4 - 1 if losses else 0):
                await call(X)
                await _quiet(session)
            assert by_itself.compiling.count == before
            while by_itself.compiling.count == before:
                await call(X)
                await _quiet(session)
            for _ in range(5):  # the trial
                await call(X)
        before = by_itself.inferring.count
        await call(X)
        assert by_itself.inferring.count == before == 9


async def test_calls_at_the_same_time_are_not_compared(by_itself: NumpyDelegate) -> None:
    async with aexec.Session(one_region()) as session:
        call = session.make_callable("y:0", ["x:0"])
        await _delegated(call)
        for _ in range(10):
            await asyncio.gather(call(X), call(X))
        assert by_itself.inferring.count == 20


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


def one_region() -> aexec.Graph:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None, 3], name="x")
        aexec.ops.mul(aexec.ops.neg(x), 2.0, name="y")
    return graph


async def _delegated(call: aexec.SessionCallable) -> None:
    """Run a callable until its plan has regions."""
    for _ in range(delegated.LOOK_AT):
        await call(X)
    before = call.plan
    await until(lambda: call.plan is not before)


async def test_small_regions_are_left_alone(by_itself: NumpyDelegate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegated, "WORTH_HOPS", 1)
    async with aexec.Session(model()) as session:
        call = session.make_callable("y:0", ["x:0"])
        for _ in range(2 * delegated.LOOK_AT):
            await call(X)
            await _quiet(session)
        assert not any(report.worth_it for report in await session.regions(call))
    assert by_itself.compiling.count == 0


async def test_region_refused_in_the_background_is_not_asked_about_again(by_itself: NumpyDelegate) -> None:
    by_itself.refuses = "never"
    async with aexec.Session(model()) as session:
        call = session.make_callable("y:0", ["x:0"])
        for _ in range(4 * delegated.LOOK_AT):
            await call(X)
            await _quiet(session)
    assert by_itself.compiling.count == 2


async def test_failure_of_background_delegation_is_logged_and_runs_go_on(
    by_itself: NumpyDelegate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no idea")

    monkeypatch.setattr(by_itself, "refusal", broken)
    async with aexec.Session(model()) as session:
        call = session.make_callable("y:0", ["x:0"])
        for _ in range(2 * delegated.LOOK_AT):
            np.testing.assert_allclose(await call(X), expected(X), rtol=1e-6)
            await _quiet(session)
    assert "cannot be delegated" in caplog.text


async def test_session_closes_during_background_compiling(by_itself: NumpyDelegate) -> None:
    by_itself.compiling.close()
    session = aexec.Session(model())
    call = session.make_callable("y:0", ["x:0"])
    for _ in range(delegated.LOOK_AT):
        await call(X)
    await until(by_itself.compiling.entered.is_set)
    closing = asyncio.create_task(session.close())
    await asyncio.sleep(0)
    assert not closing.done()
    by_itself.compiling.open.set()
    await closing


async def test_no_delegates_means_no_regions(by_itself: NumpyDelegate) -> None:
    async with aexec.Session(model(), config=aexec.SessionConfig(delegates=())) as session:
        call = session.make_callable("y:0", ["x:0"])
        for _ in range(2 * delegated.LOOK_AT):
            await call(X)
            await _quiet(session)
        assert await session.regions(call) == []
    assert by_itself.compiling.count == 0


async def _quiet(session: aexec.Session) -> None:
    """Wait until nothing is prepared beside the runs."""
    planner = session._planner
    await until(lambda: not (planner._work.tasks or planner._regions.tasks))


# What else meets a plan


async def test_extend_leaves_plans_and_makes_new_ones(delegate: NumpyDelegate) -> None:
    more = GraphBuilder()
    more("z", "Neg", "y", T=F)
    async with aexec.Session(model(), config=named()) as session:
        call = session.make_callable("y:0", ["x:0"])
        await call(X)
        await session.extend(more.graph_def)
        np.testing.assert_allclose(await call(X), expected(X), rtol=1e-6)
        np.testing.assert_allclose(await session.run("z:0", {"x:0": X}), -expected(X), rtol=1e-6)
        assert len(delegate.regions) == 4


async def test_trace_shows_the_region_as_one_node_with_its_ops(delegate: NumpyDelegate) -> None:
    metadata = aexec.RunMetadata()
    async with aexec.Session(model(), config=named()) as session:
        await session.run("b:0", {"x:0": X}, options=aexec.RunOptions(trace=True), metadata=metadata)
    assert metadata.step_stats is not None
    (stats,) = [s for d in metadata.step_stats.dev_stats for s in d.node_stats if s.node_name == "b/numpy"]
    assert stats.timeline_label == "b/numpy = _DelegatedRegion(Neg (Neg), a (Mul), b (AddV2))"
    assert stats.output[0].tensor_description.shape.dim[0].size == 2
    assert metadata.chrome_trace()


async def test_partial_run_has_no_regions(delegate: NumpyDelegate) -> None:
    """A region would wait for all feeds of its members."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [], name="x")
        z = aexec.placeholder("float32", [], name="z")
        a = aexec.ops.neg(aexec.ops.exp(x), name="a")
        aexec.ops.mul(a, z, name="b")
    async with aexec.Session(graph, config=named()) as session:
        setup = await session.partial_run_setup(["a:0", "b:0"], ["x:0", "z:0"])
        assert await session.partial_run(setup, "a:0", {"x:0": 0.0}) == -1.0
        assert await session.partial_run(setup, "b:0", {"z:0": 3.0}) == -3.0
        assert delegate.inferring.count == 0
        assert await session.run("b:0", {"x:0": 0.0, "z:0": 2.0}) == -2.0
        assert delegate.inferring.count == 1


async def test_regions_do_not_span_a_queue(delegate: NumpyDelegate) -> None:
    """The nodes before an enqueue and after a dequeue are neighbours, but must not be one region."""
    g = GraphBuilder()
    g.placeholder("x", F, [])
    g("queue", "FIFOQueueV2", component_types=[F], capacity=1)
    g("a", "Neg", "x", T=F)
    g("a2", "Exp", "a", T=F)
    g("put", "QueueEnqueueV2", "queue", "a2", Tcomponents=[F])
    g("take", "QueueDequeueV2", "queue", component_types=[F])
    g("b", "AddV2", "a", "take", T=F)
    g("y", "Neg", "b", T=F)
    async with aexec.Session(g.graph(), config=named()) as session:
        assert await session.run("y:0", {"x:0": 0.0}, ["put"]) == -1.0
    assert sorted(map(sorted, members(delegate))) == [["a", "a2"], ["b", "y"]]


async def test_regions_are_reported(delegate: NumpyDelegate) -> None:
    async with aexec.Session(model(), config=named()) as session:
        first, second = await session.regions(session.make_callable("y:0", ["x:0"]))
    assert (first.delegate, first.name) == ("numpy", "b/numpy")
    assert dict(first.ops) == {"Neg": 1, "Mul": 1, "AddV2": 1}
    assert (first.inputs, first.outputs) == (("x:0",), ("b:0",))
    assert second.inputs == ("c:0",)


async def test_results_of_a_region_are_the_callers(delegate: NumpyDelegate) -> None:
    async with aexec.Session(model(), config=named()) as session:
        first = await session.run("b:0", {"x:0": X})
        kept = first.copy()
        await session.run("b:0", {"x:0": X + 1})
        np.testing.assert_array_equal(first, kept)


async def test_regions_hold_no_more_than_they_may(delegate: NumpyDelegate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegated, "MAX_BYTES", 4)  # the constant 2.0 alone: the 1.0 is one too many
    async with aexec.Session(model(), config=named()) as session:
        np.testing.assert_array_equal(await session.run("b:0", {"x:0": X}), -X * 2 + 1)
    assert delegate.compiling.count == 0


async def test_new_plans_have_no_regions_once_delegation_stops(delegate: NumpyDelegate) -> None:
    async with aexec.Session(model(), config=named()) as session:
        call = session.make_callable("b:0", ["x:0"])
        await call(X)
        session.stop_delegating()
        await session.run("y:0", {"x:0": X})
        assert delegate.inferring.count == 1
        await call(X)
        assert delegate.inferring.count == 2


@pytest.mark.parametrize(("dims", "regions"), [([4], 0), ([None], 1), ([4096, 256], 1)])
async def test_named_delegate_is_not_used_where_it_is_slower(
    dims: list[int | None], regions: int, delegate: NumpyDelegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an unknown size it is used, because the size may be large."""
    monkeypatch.setattr(delegated, "NAMED_HOPS", 1)
    with aexec.Graph() as graph:
        aexec.ops.neg(aexec.ops.exp(aexec.placeholder("float32", dims, name="x")), name="y")
    async with aexec.Session(graph, config=named()) as session:
        x = np.zeros([d or 2 for d in dims], np.float32)
        np.testing.assert_array_equal(await session.run("y:0", {"x:0": x}), x - 1)
    assert len(delegate.regions) == regions


@pytest.mark.parametrize(("scale", "worth_it"), [(0.05, False), (0.5, False), (1.0, True), (8.0, True)])
async def test_region_is_judged_by_measured_calls(
    delegate: NumpyDelegate, monkeypatch: pytest.MonkeyPatch, scale: float, worth_it: bool
) -> None:
    monkeypatch.setattr(delegated, "delegate_names", lambda: ("numpy",))
    with aexec.Graph() as graph:  # 0.7 ms by its kernels' estimates
        aexec.ops.exp(aexec.ops.neg(aexec.placeholder("float32", [200_000], name="x")), name="y")
    async with aexec.Session(graph) as session:
        call = session.make_callable("y:0", ["x:0"])
        (before,) = await session.regions(call)
        assert before.worth_it
        assert {report.state for report in await session.estimates(call)} == {"unmeasured"}
        assert isinstance(call.plan, Plan)
        for node in call.plan.nodes:
            set_scale(node, scale)
        (report,) = await session.regions(call)
        assert (report.seconds, report.worth_it) == (pytest.approx(scale * before.seconds), worth_it)
