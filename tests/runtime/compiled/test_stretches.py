"""Lines that go on in a thread at heavy calls: they behave as the interpreter does, with fewer hops to threads."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import aexec
from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import of_shapes
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.waiting.inline_call import on_event_loop
from aexec.runtime.compiled import compiled_execution, line_writer
from aexec.runtime.compiled.compiled_plan import CompiledPlan
from aexec.runtime.interpreter import node_runner
from aexec.runtime.plans import compilation_policy
from aexec.runtime.plans.trial import _MOST_RUNS, _TRIALS, Trial
from tests.runtime.compiled.test_compiled_faults import EXCEPTIONS
from tests.support import gates
from tests.support.collector import no_collector
from tests.support.compilation_policies import write_anew
from tests.support.node_estimates import set_scale
from tests.support.programs import line_programs
from tests.support.programs.graphs import GraphBuilder
from tests.support.programs.line_programs import LineProgram
from tests.support.programs.line_runs import STARTS, Interruptions, Outcome, batches, outcome, outcomes
from tests.support.time_limit import LIMIT

register_op("TestStretchHeavy(x: float) -> y: float")
register_op("TestStretchWeighed(x: float) -> y: float")
register_op("TestStretchLight(x: float) -> y: float")
register_op("TestStretchState(x: float) -> y: float", stateful=True)
register_op("TestStretchChange(x: float) -> y: float", stateful=True)

X = np.arange(3, dtype=np.float32)
# (node, is it called on the loop?), in order.
CALLS: list[tuple[str, bool]] = []
# The shapes for which a cost was asked.
WEIGHED: list[tuple[int, ...]] = []
# What a node does in place of adding one.
_behaviour: dict[str, Callable[[Any], Any]] = {}
_cost = [1e12]
GRAPHS = 25


def _called(name: str, x: Any) -> Any:
    CALLS.append((name, on_event_loop()))
    return _behaviour.get(name, lambda x: x + 1)(x)


@kernel("TestStretchHeavy", cost=lambda x: _cost[0])
def _heavy(c: Any) -> Any:
    return lambda x: _called(c.name, x)


@of_shapes
def _weigh(x: Any) -> float:
    WEIGHED.append(x.shape)
    return 1e9 * (x.size > 1000)


@kernel("TestStretchWeighed", cost=_weigh)
def _weighed(c: Any) -> Any:
    return lambda x: _called(c.name, x)


@kernel("TestStretchLight", cost=1.0)
def _light(c: Any) -> Any:
    return lambda x: _called(c.name, x)


@kernel("TestStretchState", cost=0)
def _state(c: Any) -> Any:
    return lambda x: _called(c.name, x)


@kernel("TestStretchChange", cost=1.0)
def _change(c: Any) -> Any:
    c.in_any_thread = True
    return lambda x: _called(c.name, x)


@pytest.fixture(autouse=True)
def compiled_at_once(monkeypatch: pytest.MonkeyPatch, plans_compile: None) -> Iterator[None]:
    monkeypatch.setattr(compilation_policy, "COMPILE_AT", 1)
    monkeypatch.setattr(compilation_policy, "OVERRUN", 1e9)
    monkeypatch.setattr(node_runner, "correct_estimate", lambda *_: None)
    # How fast these runs are depends on what else the machine does.
    monkeypatch.setattr(compilation_policy, "Trial", lambda: None)
    yield
    for kept in (CALLS, WEIGHED, _behaviour, line_programs.IS_HEAVY, line_programs.TALLY):
        kept.clear()
    _cost[0] = 1e12


KINDS = {
    "h": "TestStretchHeavy",
    "l": "TestStretchLight",
    "s": "TestStretchState",
    "c": "TestStretchChange",
    "w": "TestStretchWeighed",
}


def chain(kinds: str) -> aexec.Graph:
    """A chain of nodes `n0`, `n1`, …, with one letter of `KINDS` for each."""
    g = GraphBuilder()
    g.placeholder("x", shape=None)
    for index, kind in enumerate(kinds):
        g(f"n{index}", KINDS[kind], f"n{index - 1}" if index else "x")
    return g.graph()


def places() -> str:
    """Where the calls were made since the last time: l for the loop, t for a thread."""
    found = "".join("l" if on_loop else "t" for _, on_loop in CALLS)
    CALLS.clear()
    return found


async def going_on(session: aexec.Session, kinds: str) -> aexec.SessionCallable:
    """A callable of a chain whose line goes on in a thread."""
    call = session.make_callable(f"n{len(kinds) - 1}:0", ["x:0"])
    for _ in range(compilation_policy.GIVE_UP_AT + 1):
        assert (await call(X)).tolist() == (X + len(kinds)).tolist()
    assert compiled(call).goes_on
    CALLS.clear()
    return call


def compiled(call: aexec.SessionCallable) -> CompiledPlan:
    assert call.plan is not None
    found = call.plan.compilation.compiled
    assert found is not None, call.plan.compilation.refused
    return found


@pytest.mark.parametrize(
    ("kinds", "wanted"),
    [
        ("h", "t"),
        ("lhll", "lttt"),
        ("lhlhs", "ltttl"),
        ("lhlslhl", "lttlltt"),
        ("hshs", "tltl"),
        ("sls", "lll"),
        ("chclc", "ltttt"),
        ("hcsc", "ttll"),
    ],
)
async def test_heavy_calls_and_what_follows_are_made_in_a_thread(kinds: str, wanted: str) -> None:
    """The stretch ends at a stateful kernel that does not allow calls in any thread."""
    async with aexec.Session(chain(kinds)) as session:
        call = session.make_callable(f"n{len(kinds) - 1}:0", ["x:0"])
        for _ in range(compilation_policy.GIVE_UP_AT + 1):
            await call(X)
        CALLS.clear()
        submitted = session._pools.first.statistics().submitted
        assert (await call(X)).tolist() == (X + len(kinds)).tolist()
        assert places() == wanted
        assert session._pools.first.statistics().submitted - submitted == len(wanted.replace("l", " ").split())


@pytest.mark.parametrize("before", [0, 300])
async def test_long_run_of_light_calls_returns_to_the_loop(before: int) -> None:
    kinds = "l" * before + "hlh" + "l" * 500
    async with aexec.Session(chain(kinds)) as session:
        call = session.make_callable(f"n{len(kinds) - 1}:0", ["x:0"])
        await call(X)
        assert call.plan is not None
        while call.plan.compilation.busy:
            await asyncio.sleep(0)
        for _ in range(compilation_policy.GIVE_UP_AT):
            await call(X)
        while call.plan.compilation.compiled is None or not compiled(call).goes_on:
            await call(X)
            await asyncio.sleep(0)
        CALLS.clear()
        assert (await call(X)).tolist() == (X + len(kinds)).tolist()
        found = places()
        assert found[: before + 3] == "l" * before + "ttt"
        assert 0 < found[before:].index("l") < 3 * compilation_policy.CHUNK
        assert "t" not in found[found.index("t") :].lstrip("t")


def loop_of(kinds: str) -> aexec.Graph:
    """`y` is `x` after `turns` times the calls of a chain."""
    g = GraphBuilder()
    g.placeholder("x", shape=None)
    g.placeholder("turns", dtypes.int32, [])
    g.const("zero", 0, dtypes.int32)
    g.const("one", 1, dtypes.int32)
    frame = {"frame_name": "loop", "parallel_iterations": 1}
    for name, source, dtype in (("i", "zero", dtypes.int32), ("x", "x", dtypes.float32)):
        g(f"{name}/enter", "Enter", source, T=dtype, **frame)
        g(f"{name}/merge", "Merge", f"{name}/enter", f"{name}/next", T=dtype, N=2)
        g(f"{name}/switch", "Switch", f"{name}/merge", "cond", T=dtype)
    g("limit", "Enter", "turns", T=dtypes.int32, is_constant=True, **frame)
    g("by", "Enter", "one", T=dtypes.int32, is_constant=True, **frame)
    g("less", "Less", "i/merge", "limit", T=dtypes.int32)
    g("cond", "LoopCond", "less")
    g("add", "AddV2", "i/switch:1", "by", T=dtypes.int32)
    for index, kind in enumerate(kinds):
        g(f"n{index}", KINDS[kind], f"n{index - 1}" if index else "x/switch:1")
    g("i/next", "NextIteration", "add", T=dtypes.int32)
    g("x/next", "NextIteration", f"n{len(kinds) - 1}", T=dtypes.float32)
    g("y", "Exit", "x/switch", T=dtypes.float32)
    return g.graph()


@pytest.mark.parametrize(
    ("kinds", "wanted"), [("h", "ttt"), ("lh", "lttttt"), ("hlcl", "t" * 12), ("hs", "tltltl"), ("shl", "lttlttltt")]
)
async def test_heavy_calls_of_a_loop_are_made_in_a_thread(kinds: str, wanted: str) -> None:
    async with aexec.Session(loop_of(kinds)) as session:
        call = session.make_callable("y:0", ["x:0", "turns:0"])
        for _ in range(compilation_policy.GIVE_UP_AT + 1):
            assert (await call(X, 3)).tolist() == (X + 3 * len(kinds)).tolist()
        assert compiled(call).goes_on
        CALLS.clear()
        assert (await call(X, 3)).tolist() == (X + 3 * len(kinds)).tolist()
        assert places() == wanted
        assert (await call(X, 0)).tolist() == X.tolist()


async def test_cost_of_shapes_is_asked_once_for_light_ones() -> None:
    large = np.zeros(2000, np.float32)
    async with aexec.Session(chain("wh")) as session:
        call = await going_on(session, "wh")
        await call(X)
        WEIGHED.clear()
        CALLS.clear()
        for value, wanted in ((X, "lt"), (X, "lt"), (large, "tt"), (X, "lt"), (large, "tt")):
            assert (await call(value)).tolist() == (value + 2).tolist()
            assert places() == wanted
        assert large.shape in WEIGHED
        assert X.shape not in WEIGHED


async def test_error_in_a_loop_in_a_thread_is_that_of_its_node() -> None:
    async with aexec.Session(loop_of("hl")) as session:
        call = session.make_callable("y:0", ["x:0", "turns:0"])
        for _ in range(compilation_policy.GIVE_UP_AT + 1):
            await call(X, 3)
        assert compiled(call).goes_on
        _behaviour["n1"] = lambda x: 1 / 0
        with pytest.raises(errors.OpError, match="n1"):
            await call(X, 3)
        assert not CALLS[-1][1]


async def test_kernel_that_finds_its_call_heavy_is_called_in_a_thread() -> None:
    """The handle of a tensor array does not tell how much its elements take."""
    with aexec.Graph() as graph:
        x: Any = aexec.placeholder("float32", [None, None], name="x")
        array = aexec.TensorArray("float32", size=aexec.ops.shape(x)[0])
        aexec.ops.neg(array.unstack(x).stack(), name="y")
    large = np.ones((4, 1 << 20), np.float32)
    async with aexec.Session(graph) as session:
        call = session.make_callable("y:0", ["x:0"])
        for _ in range(compilation_policy.GIVE_UP_AT + 2):
            np.testing.assert_array_equal(await call(large), -large)
        assert compiled(call).goes_on
        assert "except needs_thread:" in compiled(call).source
        np.testing.assert_array_equal(await call(large[:, :2]), -large[:, :2])


async def test_line_is_recompiled_after_interruptions_by_heavy_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    async with aexec.Session(chain("lhl")) as session:
        call = session.make_callable("n2:0", ["x:0"])
        assert "yield" not in await session.plan_source(call)
        for number in range(compilation_policy.GIVE_UP_AT):
            await call(X)
            assert number == compilation_policy.GIVE_UP_AT - 1 or compiled(call).is_line
        assert "if (ns := heavy_ns(n1, v0)): yield n1, ns" in await session.plan_source(call)


async def test_count_of_interruptions_starts_again_after_a_light_run() -> None:
    async with aexec.Session(chain("lhl")) as session:
        call = session.make_callable("n2:0", ["x:0"])
        for _ in range(3):
            for _ in range(compilation_policy.GIVE_UP_AT - 1):
                await call(X)
            _cost[0] = 1.0
            await call(X)
            _cost[0] = 1e12
        assert not compiled(call).goes_on


# Random graphs


def program_of(number: int) -> LineProgram:
    return LineProgram(number, failing=number % 3 == 0, slow=True)


async def runs(program: LineProgram, count: int) -> list[Outcome]:
    """The outcomes of runs of a plan that goes on in threads."""
    async with aexec.Session(program.g.graph(), config=aexec.SessionConfig(graph_passes=())) as session:
        call = session.make_callable(program.fetches, list(STARTS[0]), program.targets)
        with contextlib.suppress(errors.OpError):
            await call(*STARTS[0].values())
        assert call.plan is not None
        compilation = call.plan.compilation
        while compilation.busy:
            await asyncio.sleep(0)
        if compilation.compiled is not None:
            write_anew(compilation, goes_on=True)
        return [await outcome(call, start) for _ in range(count) for start in STARTS]


@pytest.mark.parametrize("first", batches(8, GRAPHS, ordinary=3))
async def test_random_graphs_give_the_same_results(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chances = random.Random(first)
    interruptions, heavy = Interruptions(chances), 0.0
    monkeypatch.setattr(compilation_policy, "GIVE_UP_AT", 1 << 30)
    hops = 0
    begin = compiled_execution.Stretch.__call__

    def counted(stretch: Any) -> None:
        nonlocal hops
        hops += 1
        begin(stretch)

    monkeypatch.setattr(compiled_execution.Stretch, "__call__", counted)
    line_programs.IS_HEAVY.append(lambda: chances.random() < heavy)
    for number in range(first, first + GRAPHS):
        monkeypatch.setattr(line_writer, "INTERRUPT", None)
        monkeypatch.setattr(line_programs, "BEFORE_CALL", [])
        heavy = 0.0
        wanted, _ = await outcomes(program_of(number), 1, compile_plans=False)
        heavy = chances.choice([0.1, 0.5, 1.0])
        interruptions.share = 0.0
        assert await runs(program_of(number), 2) == wanted * 2, number
        monkeypatch.setattr(line_writer, "INTERRUPT", interruptions.at_a_call)
        monkeypatch.setattr(line_programs, "BEFORE_CALL", [interruptions.in_a_kernel])
        interruptions.share = chances.choice([0.01, 0.05])
        assert await runs(program_of(number), 3) == wanted * 3, number
    assert hops > GRAPHS


# Errors


async def end_of(kinds: str, node: str, make: Callable[[], BaseException], *, compile_plans: bool) -> Any:
    async with aexec.Session(chain(kinds), config=aexec.SessionConfig(compile_plans=compile_plans)) as session:
        call = session.make_callable(f"n{len(kinds) - 1}:0", ["x:0"])
        for _ in range(compilation_policy.GIVE_UP_AT + 1):
            await call(X)
        assert not compile_plans or compiled(call).goes_on

        def fail(x: Any) -> Any:
            raise make()

        _behaviour[node] = fail
        try:
            return ("value", (await call(X)).tolist())
        except errors.OpError as error:
            return (type(error), str(error), error.node, error.op, repr(error.__cause__))
        except BaseException as error:
            return (type(error), str(error))
        finally:
            _behaviour.clear()


@pytest.mark.parametrize("node", ["n1", "n2", "n4"], ids=["heavy", "light", "on the loop"])
@pytest.mark.parametrize("before", [0, 100], ids=["", "in a later part"])
@pytest.mark.parametrize("name", EXCEPTIONS)
async def test_kernel_exceptions_are_those_of_the_interpreter(name: str, before: int, node: str) -> None:
    kinds = "l" * before + "lhlhsl"
    node = f"n{int(node[1:]) + before}"
    wanted = await end_of(kinds, node, EXCEPTIONS[name], compile_plans=False)
    assert wanted[0] != "value"
    assert await end_of(kinds, node, EXCEPTIONS[name], compile_plans=True) == wanted


@pytest.mark.parametrize("out", [None, 1.5, [X], (X, X), ()], ids=repr)
@pytest.mark.parametrize("node", ["n1", "n2"])
async def test_changed_outputs_are_treated_as_by_the_interpreter(node: str, out: Any) -> None:
    found = []
    for compile_plans in (False, True):
        async with aexec.Session(chain("lhll"), config=aexec.SessionConfig(compile_plans=compile_plans)) as session:
            call = session.make_callable("n3:0", ["x:0"])
            for _ in range(compilation_policy.GIVE_UP_AT + 1):
                await call(X)
            _behaviour[node] = lambda x: out
            try:
                found.append((await call(X)).tolist())
            except errors.OpError as error:
                found.append((type(error), str(error), error.node, error.op))
            _behaviour.clear()
    assert found[0] == found[1]


@pytest.mark.parametrize("node", ["n1", "n2"])
async def test_error_holds_no_value_of_the_run(node: str) -> None:
    class Held(np.ndarray):
        pass

    held: list[weakref.ref[Any]] = []

    def make(x: Any) -> Any:
        value = np.ones(3, np.float32).view(Held)
        held.append(weakref.ref(value))
        return value

    def fail(x: Any) -> Any:
        raise ValueError("no")

    async with aexec.Session(chain("lhl")) as session:
        call = await going_on(session, "lhl")
        _behaviour.update({"n0": make, node: fail})
        gc.collect()
        with no_collector():
            with contextlib.suppress(errors.UnknownError):
                await call(X)
            while held[0]() is not None:  # the worker's thread lets go of it in its own time
                await asyncio.sleep(0)


# Cancellation


class Gate:
    """Holds a node's call until it is opened."""

    def __init__(self, node: str) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self.left = threading.Event()
        _behaviour[node] = self

    def __call__(self, x: Any) -> Any:
        self.entered.set()
        assert self.open.wait(LIMIT), "nobody opened the gate"
        self.left.set()
        return x + 1

    async def until_entered(self) -> None:
        while not self.entered.is_set():
            await asyncio.sleep(0)


async def cancelled_by_step(step: aexec.Step) -> None:
    step.cancel("enough")
    with pytest.raises(errors.CancelledError, match="enough"):
        await step


async def cancelled_by_its_task(step: aexec.Step) -> None:
    task = asyncio.ensure_future(step)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("cancel", [cancelled_by_step, cancelled_by_its_task])
async def test_cancelled_step_waits_for_a_stateful_call(cancel: Callable[[aexec.Step], Any]) -> None:
    """The step ends when none of its calls can change state any more."""
    async with aexec.Session(chain("lhclh")) as session:
        call = await going_on(session, "lhclh")
        gate = Gate("n2")
        step = call.start(X)
        await gate.until_entered()
        cancelled = asyncio.ensure_future(cancel(step))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not cancelled.done()
        gate.open.set()
        await cancelled
        assert gate.left.is_set()
    assert "n4" not in dict(CALLS)


@pytest.mark.parametrize("cancel", [cancelled_by_step, cancelled_by_its_task])
@pytest.mark.parametrize("node", ["n1", "n2"], ids=["heavy", "light"])
async def test_cancelled_step_does_not_wait_for_the_thread(node: str, cancel: Callable[[aexec.Step], Any]) -> None:
    """No heavy call begins after the cancellation."""
    async with aexec.Session(chain("lhlhl")) as session:
        call = await going_on(session, "lhlhl")
        gate = Gate(node)
        step = call.start(X)
        await gate.until_entered()
        await cancel(step)
        assert step.done and not gate.left.is_set()
        gate.open.set()
    assert "n3" not in dict(CALLS)


async def test_step_whose_deadline_passes_does_not_wait_for_the_thread() -> None:
    async with aexec.Session(chain("lhlhl")) as session:
        call = await going_on(session, "lhlhl")
        gate = Gate("n1")
        with pytest.raises(errors.DeadlineExceededError, match=r"n1.*in a thread"):
            await call(X, options=aexec.RunOptions(timeout=0.05))
        gate.open.set()


async def test_abandoned_values_are_freed_when_the_thread_returns() -> None:
    held: list[weakref.ref[Any]] = []

    def make(x: Any) -> Any:
        value = np.ones(3, np.float32)
        held.append(weakref.ref(value))
        return value

    async with aexec.Session(chain("lhlh")) as session:
        call = await going_on(session, "lhlh")
        gate = Gate("n1")
        _behaviour["n0"] = make
        step = call.start(X)
        await gate.until_entered()
        step.cancel("enough")
        with pytest.raises(errors.CancelledError) as caught:
            await step
        assert held[0]() is not None
        gate.open.set()
        await session.close()
        assert caught.value is not None and held[0]() is None


async def test_cancelled_step_gives_up_its_wait_for_a_thread() -> None:
    config = aexec.SessionConfig(inter_op_threads=1)
    async with aexec.Session(chain("lhlh"), config=config) as session:
        call = await going_on(session, "lhlh")
        gate = Gate("n1")
        first = call.start(X)
        await gate.until_entered()
        second = call.start(X)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await cancelled_by_step(second)
        gate.open.set()
        assert (await first).tolist() == (X + 4).tolist()
    assert [name for name, _ in CALLS].count("n1") == 1


async def test_dump_shows_a_stretch_in_a_thread() -> None:
    async with aexec.Session(chain("lhl")) as session:
        call = await going_on(session, "lhl")
        gate = Gate("n1")
        step = call.start(X)
        await gate.until_entered()
        counts = step.statistics()
        assert (counts.ready, counts.running) == (0, 1)
        assert "n1" in step.dump() and "in a thread" in step.dump()
        gate.open.set()
        await step


async def test_event_loop_is_free_during_a_stretch() -> None:
    async with aexec.Session(chain("lhl")) as session:
        call = await going_on(session, "lhl")
        gate = Gate("n1")
        steps = [call.start(X) for _ in range(3)]
        await gate.until_entered()
        assert (await session.run("n0:0", {"x:0": X})).tolist() == (X + 1).tolist()
        gate.open.set()
        for step in steps:
            assert (await step).tolist() == (X + 3).tolist()


# Estimates


async def test_raised_estimate_comes_down_again() -> None:
    """One slow call, on a busy machine for example, sends later calls to threads, but not for ever."""
    _cost[0] = 10_000.0
    async with aexec.Session(chain("lhl")) as session:
        call = session.make_callable("n2:0", ["x:0"])
        await call(X)
        assert call.plan is not None
        write_anew(call.plan.compilation, goes_on=True)
        (node,) = (node for node in call.plan.nodes if node.name == "n1")
        set_scale(node, 1000.0)
        CALLS.clear()
        await call(X)
        assert places() == "ltt"
        for _ in range(20):
            await call(X)
        CALLS.clear()
        await call(X)
        assert places() == "lll" and node.estimate.scale < 50


async def test_failed_call_is_not_a_measurement() -> None:
    async with aexec.Session(chain("lhl")) as session:
        call = await going_on(session, "lhl")
        assert call.plan is not None
        (node,) = (node for node in call.plan.nodes if node.name == "n1")
        set_scale(node, 1000.0)

        def fail(x: Any) -> Any:
            raise ValueError("no")

        _behaviour["n1"] = fail
        with pytest.raises(errors.UnknownError):
            await call(X)
        assert node.estimate.scale == 1000.0


# Which is faster


def tried(runs: list[tuple[int, float, bool]]) -> Trial:
    """A trial with these runs: size of the feed, seconds, and True for the interpreter."""
    trial = Trial()
    for run in runs:
        assert not trial.is_over
        trial.took(*run)
    return trial


def test_trial_compares_typical_times() -> None:
    def of(line: float, interpreted: float) -> Trial:
        """One run in five, of either kind, is delayed."""
        runs = [(5, line, False), (5, interpreted, True)] * _TRIALS
        return tried([(size, 50.0 if i % 5 == 2 else took, kind) for i, (size, took, kind) in enumerate(runs)])

    assert of(2.0, 1.0).is_lost
    assert not of(1.0, 2.0).is_lost
    assert not of(1.05, 1.0).is_lost
    assert of(1.0, 1.0).is_over and not tried([(5, 1.0, False), (5, 1.0, True)] * (_TRIALS - 1)).is_over


def test_trial_compares_runs_of_one_size() -> None:
    runs = [(5, 1.0, True), (7, 9.0, False), (5, 1.0, False), (7, 0.1, True)] * _TRIALS
    trial = tried(runs[:-1])
    assert trial.is_over and not trial.is_lost
    unlike = [(size, 1.0 + (not size % 2), not size % 2) for size in range(_MOST_RUNS)]
    assert not tried(unlike[:-1]).is_over
    assert tried(unlike).is_over and not tried(unlike).is_lost


@pytest.mark.parametrize("is_lost", [False, True])
async def test_trial_alternates_interpreter_and_line(is_lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Known(Trial):
        def took(self, size: int, seconds: float, interpreted: bool) -> None:
            super().took(size, 1.0 if interpreted else 2.0 if is_lost else 1.0, interpreted)

    monkeypatch.setattr(compilation_policy, "Trial", Known)
    async with aexec.Session(chain("lhl")) as session:
        call = session.make_callable("n2:0", ["x:0"])
        for _ in range(compilation_policy.GIVE_UP_AT):
            await call(X)
        CALLS.clear()
        for _ in range(2 * _TRIALS):
            assert (await call(X)).tolist() == (X + 3).tolist()
        assert places() == "ltlltt" * _TRIALS
        assert (await call(X)).tolist() == (X + 3).tolist()
        assert call.plan is not None
        assert ("several heavy calls at once" in call.plan.compilation.refused) is is_lost
        assert places() == ("ltl" if is_lost else "ltt")


async def test_failed_runs_do_not_count_in_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation_policy, "Trial", Trial)
    async with aexec.Session(chain("lhl")) as session:
        call = session.make_callable("n2:0", ["x:0"])
        for _ in range(compilation_policy.GIVE_UP_AT):
            await call(X)

        def fail(x: Any) -> Any:
            raise ValueError("no")

        _behaviour["n1"] = fail
        for _ in range(2 * _TRIALS):
            with pytest.raises(errors.UnknownError) as caught:
                await call(X)
            assert caught.value.node == "n1"
        assert call.plan is not None and not call.plan.compilation.trial.is_over


async def test_only_the_interpreter_runs_two_heavy_branches_at_once() -> None:
    """This is the reason for trials: two calls that wait for each other end only if both have begun."""
    g = GraphBuilder()
    g.placeholder("x", shape=None)
    one, two = gates.ThreadGate(), gates.ThreadGate()
    g("a", "TestThreadGate", "x", key=one.key, T=aexec.float32)
    g("b", "TestThreadGate", "x", key=two.key, T=aexec.float32)
    g("y", "AddV2", "a", "b", T=aexec.float32)
    async with aexec.Session(g.graph()) as session:
        step = session.start("y:0", {"x:0": X})
        while not (one.entered.is_set() and two.entered.is_set()):
            await asyncio.sleep(0)
        one.open.set()
        two.open.set()
        assert (await step).tolist() == (2 * X).tolist()
