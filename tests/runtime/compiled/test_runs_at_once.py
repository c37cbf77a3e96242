"""Runs of a line without a step: what is visible of them, and when a step is made after all."""

from __future__ import annotations

import asyncio
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import aexec
from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel_context import OpKernelContext
from aexec.framework.memory.kept_memory import KeptMemory
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.framework.waiting.inline_call import PostponedError
from aexec.runtime.interpreter.executor import StepEnvironment
from aexec.runtime.plans import compilation_policy
from aexec.runtime.session import session_steps, step
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.turns import turns_counted
from tests.support.virtual_clock import run_virtual

register_op("TestLook(x: float) -> y: float", stateful=True)

X = np.arange(3, dtype=np.float32)
FEEDS = {"x:0": X}

# What `TestLook` does, as a test has set it.
_look: list[Callable[[], object]] = []


@kernel("TestLook", cost=0)
def _looks(c: Any) -> Any:
    def compute(x: Any) -> Any:
        for look in _look:
            look()
        return x + 1

    return compute


register_op("TestLookAtContext(x: float) -> y: float", stateful=True)

# What `TestLookAtContext` does with its context, as a test has set it.
_look_at: list[Callable[[Any], object]] = []


@kernel("TestLookAtContext", cost=0)
def _looks_at_context(c: Any) -> Any:
    c.wants_context = True

    def compute(context: OpKernelContext, x: Any) -> Any:
        for look in _look_at:
            look(context)
        return x + 1

    return compute


register_op("TestKept(x: float) -> y: float", stateful=True)

# Where `TestKept` says that what it gives is kept.
_keeps: list[KeptMemory] = []


@kernel("TestKept", cost=0)
def _is_kept(c: Any) -> Any:
    def compute(x: Any) -> Any:
        y = x + 1
        for kept in _keeps:
            kept.note([y])
            assert kept.num_bytes > 0
        return y

    return compute


@pytest.fixture(autouse=True)
def compiled_at_once(monkeypatch: pytest.MonkeyPatch, plans_compile: None) -> Iterator[None]:
    monkeypatch.setattr(compilation_policy, "COMPILE_AT", 1)
    yield
    _look.clear()
    _look_at.clear()


def looking() -> aexec.Graph:
    """y = -(x + 1)."""
    g = GraphBuilder()
    g.placeholder("x", shape=[None])
    g("look", "TestLook", "x")
    g("y", "Neg", "look", T=aexec.float32)
    return g.graph()


def gated(gate: gates.ThreadGate) -> aexec.Graph:
    """A line that has to wait for a thread after its first call."""
    g = GraphBuilder()
    g.placeholder("x", shape=[None])
    g("look", "TestLook", "x")
    g("gated", "TestThreadGate", "look", key=gate.key, T=aexec.float32)
    g("y", "Neg", "gated", T=aexec.float32)
    return g.graph()


async def hot(opened: aexec.Session, fetches: Any = "y:0", feeds: Any = FEEDS) -> aexec.SessionCallable:
    """A callable whose plan is compiled."""
    call = opened.make_callable(fetches, list(feeds))
    await call(*feeds.values())
    await asyncio.sleep(0)
    assert call.line is not None
    return call


async def stopped_at(gate: gates.ThreadGate, opened: aexec.Session) -> asyncio.Task[Any]:
    """A run of a compiled line that waits for a thread, which waits at the gate."""
    gate.open.set()
    call = await hot(opened)
    gate.open.clear()
    gate.entered.clear()
    running = asyncio.create_task(call(X))
    await asyncio.to_thread(gate.entered.wait)
    return running


def counter() -> aexec.Graph:
    """y = -(x + 1), and `count` adds it to a variable, whose value is `v`."""
    with aexec.Graph() as graph:
        ops = aexec.ops
        handle = ops.var_handle_op("float32", [3], shared_name="v", name="handle")
        x = aexec.placeholder("float32", [3], name="x")
        ops.assign_variable_op(handle, ops.zeros_like(x), name="set")
        y = ops.neg(x + 1.0, name="y")
        ops.assign_add_variable_op(handle, y, name="count")
        ops.read_variable_op(handle, "float32", name="v")
    return graph


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """The steps, cancellation managers and environments that are made."""
    made: list[type] = []

    def counted(kind: type) -> type:
        class Counted(kind):  # type: ignore[misc]
            __slots__ = ()

            def __init__(self, *args: Any, **more: Any) -> None:
                made.append(kind)
                super().__init__(*args, **more)

        return Counted

    for kind in (step.Step, CancellationManager, StepEnvironment):
        monkeypatch.setattr(session_steps, kind.__name__, counted(kind))
    return made


# A slice that is over, on a machine that is busy, would be a reason to make a step.
_LONG_SLICES = aexec.SessionConfig(slice_seconds=60.0)


async def test_immediate_run_makes_no_needless_objects(made: list[type]) -> None:
    async with aexec.Session(looking(), config=_LONG_SLICES) as opened:
        call = await hot(opened)
        await opened.run("y:0", FEEDS)
        made.clear()
        np.testing.assert_array_equal(await call(X), -X - 1)
        np.testing.assert_array_equal(await opened.run("y:0", FEEDS), -X - 1)
        assert made == []
        await opened.run("y:0", FEEDS, options=aexec.RunOptions(output_partition_graphs=True))
        assert set(made) == {CancellationManager, StepEnvironment}
        assert opened.statistics().runs == 5


async def test_immediate_run_that_uses_variables_makes_no_needless_objects(made: list[type]) -> None:
    async with aexec.Session(counter(), config=_LONG_SLICES) as opened:
        await opened.run([], FEEDS, targets=["set"])
        count = opened.make_callable([], ["x:0"], targets=["count"])
        await count(X)
        read = await hot(opened, "v:0", {})
        made.clear()
        await count(X)
        np.testing.assert_array_equal(await read(), 2 * (-X - 1))
        assert made == []


async def test_immediate_run_gets_a_step_when_a_kernel_asks_for_it() -> None:
    g = GraphBuilder()
    g.placeholder("x", shape=[None])
    g("look", "TestLookAtContext", "x")
    g("y", "Neg", "look", T=aexec.float32)
    seen: list[Any] = []

    def look(context: OpKernelContext) -> None:
        (step,) = opened.steps
        assert context.step_id == step.id and context.execution is step.execution
        assert context.cancellation is step.environment.cancellation
        assert context.resources is opened.resources and context.frame_iter == (0, 0)
        with pytest.raises(AttributeError, match="such_thing"):
            context.such_thing  # type: ignore[attr-defined]
        seen.append(step)

    async with aexec.Session(g.graph(), config=_LONG_SLICES) as opened:
        call = await hot(opened)
        _look_at.append(look)
        np.testing.assert_array_equal(await call(X), -X - 1)
        assert [step.done for step in seen] == [True] and not opened.steps


async def test_variables_of_immediate_runs_count_as_kept() -> None:
    with aexec.Graph() as graph:
        ops = aexec.ops
        handle = ops.var_handle_op("float32", [None], shared_name="v")
        x = aexec.placeholder("float32", [None], name="x")
        ops.assign_variable_op(handle, x + 1.0, name="set")
    config = aexec.SessionConfig(session_bytes=1 << 30, slice_seconds=60.0)
    async with aexec.Session(graph, config=config) as opened:
        call = opened.make_callable([], ["x:0"], targets=["set"])
        for size in (10, 10, 10_000):
            await call(np.zeros(size, np.float32))
        assert call.line is not None
        assert 40_000 <= opened.statistics().bytes_in_use < 60_000


async def test_kernel_sees_the_step_in_the_session() -> None:
    seen: list[aexec.Step] = []
    async with aexec.Session(looking()) as opened:
        call = await hot(opened)

        def look() -> None:
            assert opened.statistics().in_flight == 1
            (found,) = opened.steps
            assert opened.steps == (found,)
            assert found.state.value == "running" and not found.done
            assert found.statistics().nodes == 2
            assert repr(found).startswith(f"<Step {found.id} running")
            seen.append(found)

        _look.append(look)
        runs = opened.statistics().runs
        for _ in range(2):
            np.testing.assert_array_equal(await call(X), -X - 1)
        np.testing.assert_array_equal(await opened.run("y:0", FEEDS), -X - 1)
        first, second, third = seen
        assert first.id < second.id < third.id
        assert {found.state.value for found in seen} == {"succeeded"}
        assert first.done and not first.cancel()
        with pytest.raises(errors.FailedPreconditionError, match="has begun already"):
            await first
        statistics = opened.statistics()
        assert (statistics.in_flight, statistics.runs) == (0, runs + 3)


async def test_step_begun_meanwhile_is_younger() -> None:
    async with aexec.Session(looking()) as opened:
        call = await hot(opened)
        order: list[tuple[aexec.Step, ...]] = []

        def look() -> None:
            _look.clear()
            opened.start("y:0", FEEDS)
            order.append(opened.steps)

        _look.append(look)
        await call(X)
        ((first, second),) = order
        assert first.id < second.id
        assert first.state.value == "succeeded"
        assert opened.steps == (second,)
        np.testing.assert_array_equal(await second, -X - 1)


async def test_other_threads_see_no_step_of_an_immediate_run() -> None:
    async with aexec.Session(looking()) as opened:
        call = await hot(opened)
        seen: list[object] = []

        def look() -> None:
            thread = threading.Thread(target=lambda: seen.append(opened.steps))
            thread.start()
            thread.join()

        _look.append(look)
        await call(X)
        assert seen == [()]


@pytest.mark.parametrize("compile_plans", [True, False])
async def test_step_cancelled_by_its_own_kernel_runs_to_its_end(compile_plans: bool) -> None:
    """The cancellation is not checked between the nodes of a slice, with a step or without."""
    config = aexec.SessionConfig(compile_plans=compile_plans, slice_seconds=60)
    async with aexec.Session(looking(), config=config) as opened:
        await opened.run("y:0", FEEDS)
        _look.append(lambda: opened.steps[0].cancel("enough"))
        np.testing.assert_array_equal(await opened.run("y:0", FEEDS), -X - 1)
        assert opened.steps == ()


class TestTakeOver:
    async def test_step_goes_on_after_a_wait(self) -> None:
        gate = gates.ThreadGate()
        async with aexec.Session(gated(gate)) as opened:
            running = await stopped_at(gate, opened)
            (found,) = opened.steps
            assert found.statistics().running == 1
            gate.open.set()
            np.testing.assert_array_equal(await running, -X - 1)
            assert found.state.value == "succeeded"
            assert opened.steps == ()

    async def test_waiting_step_is_cancelled(self) -> None:
        gate = gates.ThreadGate()
        async with aexec.Session(gated(gate)) as opened:
            running = await stopped_at(gate, opened)
            assert opened.steps[0].cancel("enough")
            with pytest.raises(errors.CancelledError, match="enough"):
                await running
            assert opened.steps == ()
            gate.open.set()

    async def test_closing_the_session_ends_the_step(self) -> None:
        gate = gates.ThreadGate()
        opened = await aexec.Session(gated(gate))
        running = await stopped_at(gate, opened)
        closing = asyncio.create_task(opened.close())
        with pytest.raises(errors.CancelledError, match=r"Session has been closed\."):
            await running
        gate.open.set()
        await closing

    async def test_kernel_that_closes_the_session_ends_first(self) -> None:
        opened = await aexec.Session(looking())
        call = await hot(opened)
        closing: list[asyncio.Task[None]] = []
        _look.append(lambda: closing.append(asyncio.ensure_future(opened.close())))
        np.testing.assert_array_equal(await call(X), -X - 1)
        await closing[0]
        with pytest.raises(errors.CancelledError, match=r"Session has been closed\."):
            await call(X)

    @pytest.mark.parametrize("looked_at", [False, True])
    def test_session_timeout_holds(self, looked_at: bool) -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            async with aexec.Session(looking(), config=aexec.SessionConfig(operation_timeout=5.0)) as opened:
                call = await hot(opened)
                if looked_at:
                    _look.append(lambda: opened.steps)
                _look.append(postpone_for(10.0))
                began = loop.time()
                with pytest.raises(errors.DeadlineExceededError):
                    await call(X)
                assert opened.steps == ()
                assert loop.time() - began == pytest.approx(10)  # what was postponed is waited for

        run_virtual(main())

    async def test_error_names_its_node_and_leaves_no_step(self) -> None:
        async with aexec.Session(looking()) as opened:
            call = await hot(opened)
            seen: list[aexec.Step] = []

            def fail() -> None:
                seen.extend(opened.steps)
                raise ValueError("on purpose")

            _look.append(fail)
            for run in (lambda: call(X), lambda: opened.run("y:0", FEEDS)):
                with pytest.raises(errors.UnknownError, match="ValueError: on purpose") as caught:
                    await run()
                assert (caught.value.node, caught.value.op) == ("look", "TestLook")
                assert isinstance(caught.value.__cause__, ValueError)
            assert opened.steps == ()
            assert [found.state.value for found in seen] == ["failed"] * 2
            _look.clear()
            np.testing.assert_array_equal(await call(X), -X - 1)


def postpone_for(seconds: float) -> Callable[[], None]:
    """Make a kernel wait until this many seconds have passed."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds

    def postpone() -> None:
        if loop.time() < end:
            raise PostponedError(lambda ready: loop.call_at(end, ready))

    return postpone


class TestWhatGoesTheLongWay:
    async def test_feeds_that_are_no_arrays_of_the_type(self) -> None:
        async with aexec.Session(looking()) as opened:
            call = await hot(opened)
            np.testing.assert_array_equal(await call([0, 1, 2]), -X - 1)
            np.testing.assert_array_equal(await call(X.astype(np.float64)), -X - 1)
            runs = opened.statistics().runs
            with pytest.raises(errors.InvalidArgumentError, match="to be float but string is provided"):
                await call(np.array(["a"]))
            with pytest.raises(errors.InvalidArgumentError, match="shape"):
                await call(np.ones((2, 2), np.float32))
            assert opened.statistics().runs == runs + 2
            assert opened.steps == ()

    async def test_large_feeds(self) -> None:
        async with aexec.Session(looking()) as opened:
            call = await hot(opened)
            large = np.zeros(1 << 20, np.float32)
            np.testing.assert_array_equal(await call(large), large - 1)

    async def test_traced_runs(self) -> None:
        metadata = aexec.RunMetadata()
        async with aexec.Session(looking()) as opened:
            call = await hot(opened)
            await call(X, options=aexec.RunOptions(trace=True), metadata=metadata)
        assert metadata.step_stats is not None

    async def test_runs_whose_memory_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        async with aexec.Session(looking()) as opened:
            call = await hot(opened)
            with caplog.at_level(logging.DEBUG, "aexec.memory"):
                await call(X)
        assert any("look" in record.getMessage() for record in caplog.records)

    async def test_sessions_that_are_closed_or_of_another_loop(self) -> None:
        opened = await aexec.Session(looking())
        call = await hot(opened)

        def elsewhere() -> None:
            with pytest.raises(errors.FailedPreconditionError, match="belongs to the event loop"):
                asyncio.run(call(X))

        await asyncio.to_thread(elsewhere)
        await opened.close()
        with pytest.raises(errors.CancelledError, match=r"Session has been closed\."):
            await call(X)
        with pytest.raises(errors.CancelledError, match=r"Session has been closed\."):
            await opened.run("y:0", FEEDS)


async def test_fetched_feed_is_the_fed_value() -> None:
    async with aexec.Session(looking()) as opened:
        for _ in range(3):
            y, x = await opened.run(["y:0", "x:0"], FEEDS)
            np.testing.assert_array_equal(y, -X - 1)
            np.testing.assert_array_equal(x, X)


async def test_floating_point_errors_are_not_reported() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        aexec.ops.real_div(1.0, x, name="y")
    before = np.geterr()
    async with aexec.Session(graph) as opened:
        call = await hot(opened)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert (await call(np.zeros(2, np.float32))).tolist() == [np.inf, np.inf]
        assert np.geterr() == before


async def test_run_after_the_end_of_a_slice_lets_others_go_first() -> None:
    async with aexec.Session(looking()) as opened:
        call = await hot(opened)
        with turns_counted() as turns:
            for _ in range(100_000):
                await call(X)
                if turns() >= 3:
                    break
            assert turns() >= 3


async def test_begin_returns_the_result_without_a_step() -> None:
    async with aexec.Session(looking(), config=aexec.SessionConfig(slice_seconds=60.0)) as opened:
        call = await hot(opened)
        for options in (None, aexec.RunOptions(timeout=60.0)):
            result, begun, rest = call.begin(X, options=options)
            assert begun is None and rest is None
            np.testing.assert_array_equal(result, -(X + 1))
        assert not opened.steps


@pytest.mark.parametrize(
    "options",
    [
        aexec.RunOptions(timeout=60.0, trace=True),
        aexec.RunOptions(output_partition_graphs=True),
        aexec.RunOptions(report_tensor_allocations_upon_oom=True),
    ],
)
async def test_watched_run_has_a_step(options: aexec.RunOptions) -> None:
    async with aexec.Session(looking()) as opened:
        call = await hot(opened)
        result, begun, rest = call.begin(X, options=options)
        assert result is None and begun is not None and rest is not None
        np.testing.assert_array_equal(await rest, -(X + 1))
        assert begun.metadata is not None


async def test_passed_deadline_is_kept_to() -> None:
    async with aexec.Session(looking()) as opened:
        call = await hot(opened)
        _, begun, rest = call.begin(X, options=aexec.RunOptions(timeout=0.0))
        assert begun is not None and rest is not None
        assert opened.steps == (begun,)
        begun.cancel("its timer may come too late")
        with pytest.raises(errors.CancelledError, match="its timer"):
            await rest


@pytest.mark.parametrize("cancelled", [False, True])
def test_run_that_must_wait_becomes_a_step_with_its_deadline(cancelled: bool) -> None:
    async def main() -> None:
        async with aexec.Session(looking()) as opened:
            call = await hot(opened)
            _look.append(postpone_for(10.0))
            _, begun, rest = call.begin(X, options=aexec.RunOptions(timeout=5.0))
            assert begun is not None and rest is not None
            assert opened.steps == (begun,)
            if cancelled:
                begun.cancel("by a server")
            with pytest.raises(errors.CancelledError if cancelled else errors.DeadlineExceededError):
                await rest
            assert opened.steps == ()

    run_virtual(main())


async def test_results_do_not_count_as_kept() -> None:
    g = GraphBuilder()
    g.placeholder("x", shape=[None])
    g("y", "TestKept", "x")
    config = aexec.SessionConfig(session_bytes=1 << 30, slice_seconds=60.0)
    async with aexec.Session(g.graph(), config=config) as opened:
        kept = opened.resources.kept
        assert kept is not None
        call = await hot(opened)
        _keeps.append(kept)
        try:
            result, begun, _ = call.begin(X)
        finally:
            _keeps.clear()
        assert begun is None
        np.testing.assert_array_equal(result, X + 1)
        assert kept.num_bytes == 0
