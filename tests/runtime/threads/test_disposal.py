"""Large plans and graphs are disposed of when unused, and leave nothing to the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.runtime.session import callable_cache
from aexec.runtime.threads import disposal
from aexec.runtime.threads.disposal import dispose, leave_undisposed
from tests.support.programs.functions import calls, function_def
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

NODES = 1500
# A session leaves some objects of its own, however large its graph is.
A_FEW = 300


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # what was there before is not looked through again
    gc.disable()
    yield
    gc.enable()


def garbage() -> Counter[str]:
    """Counts by type the objects that only the garbage collector would free."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return Counter(type(item).__name__ for item in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.collect()


async def disposed() -> None:
    await until(lambda: not disposal._under_way)


def chain(g: GraphBuilder, name: str = "y", nodes: int = NODES, source: str = "x") -> GraphBuilder:
    """`{name}{k}` are alternately the negative and the square root of what is before."""
    for i in range(nodes):
        g(f"{name}{i}", "Neg" if i % 2 else "Sqrt", source if i == 0 else f"{name}{i - 1}", T=dtypes.float32)
    return g


def with_placeholder() -> GraphBuilder:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32)
    return g


def with_loop() -> GraphBuilder:
    """A long body of a loop: nodes in a frame of its own, with back edges."""
    g = with_placeholder()
    frame = {"frame_name": b"loop", "T": dtypes.float32}
    g("enter", "Enter", "x", **frame)
    g("merge", "Merge", "enter", "next", T=dtypes.float32, N=2)
    g.const("limit", 0.0, dtypes.float32)
    g("bound", "Enter", "limit", is_constant=True, **frame)
    g("less", "Less", "merge", "bound", T=dtypes.float32)
    g("cond", "LoopCond", "less")
    g("switch", "Switch", "merge", "cond", T=dtypes.float32)
    chain(g, source="switch:1")
    g("next", "NextIteration", f"y{NODES - 1}", T=dtypes.float32)
    g("out", "Exit", "switch", T=dtypes.float32)
    return g


def with_function() -> GraphBuilder:
    """A call of a large function, which is not inlined."""
    g = with_placeholder()
    nodes = [
        (f"y{i}", "Neg" if i % 2 else "Sqrt", [f"y{i - 1}:y:0" if i else "x"], {"T": dtypes.float32})
        for i in range(NODES)
    ]
    function = function_def("F(x: float) -> z: float", body=nodes, ret={"z": f"y{NODES - 1}:y:0"})
    function.attr["_noinline"].b = True
    g.graph_def.library.function.append(function)
    g("out", "PartitionedCall", "x", Tin=[dtypes.float32], Tout=[dtypes.float32], f=calls("F"))
    return g


async def closed_session(graph: aexec.Graph, fetch: str, config: aexec.SessionConfig | None = None) -> None:
    async with aexec.Session(graph, config=config) as session:
        await session.run(fetch, {"x": 1.0})


async def check_nothing_is_left(g: GraphBuilder, fetch: str, config: aexec.SessionConfig | None = None) -> None:
    graph = g.graph()
    await closed_session(graph, fetch, config)
    dispose(graph, nodes=len(graph))
    await disposed()
    assert not len(graph)
    del graph
    left = garbage()
    assert sum(left.values()) < A_FEW, left.most_common(5)


async def test_session_leaves_nothing_to_the_collector() -> None:
    await check_nothing_is_left(chain(with_placeholder()), f"y{NODES - 1}")


async def test_session_with_a_loop_leaves_nothing_to_the_collector() -> None:
    await check_nothing_is_left(with_loop(), "out")


async def test_session_on_several_devices_leaves_nothing_to_the_collector() -> None:
    g = chain(with_placeholder())
    for i, node in enumerate(g.graph_def.node):
        node.device = f"/cpu:{i // 100 % 2}"
    config = aexec.SessionConfig(device_count={"CPU": 2})
    await check_nothing_is_left(g, f"y{NODES - 1}", config)


async def test_session_with_a_large_function_leaves_nothing_to_the_collector() -> None:
    await check_nothing_is_left(with_function(), "out")


async def test_failed_plan_leaves_nothing_to_the_collector() -> None:
    g = chain(with_placeholder())
    # Building its kernel fails, when all others have been built.
    body = [("y", "Neg", ["x"], {"T": dtypes.float32})]
    g.graph_def.library.function.append(function_def("F(x: float) -> z: float", body=body, ret={"z": "y:y:0"}))
    limits = {"num_batch_threads": 1, "max_batch_size": 0, "batch_timeout_micros": 0}
    types = {"Tin": [dtypes.float32], "Tcaptured": [], "Tout": [dtypes.float32]}
    g("bad", "BatchFunction", "x", f=calls("F"), **limits, **types)
    graph = g.graph()
    async with aexec.Session(graph) as session:
        with pytest.raises(errors.InvalidArgumentError, match="must be positive"):
            await session.run([f"y{NODES - 1}", "bad:0"], {"x": 1.0})
    await disposed()
    left = garbage()
    assert sum(left.values()) < A_FEW, left.most_common(5)
    assert len(graph)


async def test_called_off_plan_leaves_nothing_to_the_collector() -> None:
    graph = chain(with_placeholder(), nodes=5 * NODES).graph()
    async with aexec.Session(graph) as session:
        run = asyncio.create_task(session.run("y4999", {"x": 1.0}))
        await until(lambda: session._planner._builds)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await until(lambda: not session._planner._work.tasks)
    await disposed()
    del run
    left = garbage()
    assert sum(left.values()) < A_FEW, left.most_common(5)


async def test_dropped_plan_is_disposed_of_while_the_session_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callable_cache, "MAX_ENTRIES", 1)
    graph = chain(with_placeholder()).graph()
    async with aexec.Session(graph) as session:
        for last in (NODES - 1, NODES - 2, NODES - 3):
            await session.run(f"y{last}", {"x": 1.0})
        await until(lambda: len(session._planner) == 1)
        await disposed()
        left = garbage()
        assert sum(left.values()) < A_FEW, left.most_common(5)


async def test_graph_of_the_caller_is_not_disposed_of() -> None:
    graph = chain(with_placeholder()).graph()
    await closed_session(graph, f"y{NODES - 1}")
    await disposed()
    assert len(graph) == NODES + 1
    await closed_session(graph, f"y{NODES - 1}")


async def test_callable_that_outlives_its_session_says_that_the_session_is_closed() -> None:
    async with aexec.Session(chain(with_placeholder()).graph()) as session:
        call = session.make_callable(f"y{NODES - 1}", ["x"])
        await call(1.0)
    await disposed()
    with pytest.raises(errors.CancelledError, match="closed"):
        await call(1.0)
    assert call.num_plan_nodes >= NODES


class Gate:
    """An object whose disposal waits until the gate is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def take_apart(self) -> None:
        self.opened.wait()

    def __enter__(self) -> Gate:
        dispose(self, nodes=NODES)
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.set()


async def test_ending_process_does_not_wait_for_disposal() -> None:
    with Gate():
        graphs = [chain(with_placeholder()).graph() for _ in range(3)]
        for graph in graphs:
            dispose(graph, nodes=len(graph))
        leave_undisposed()
    await disposed()
    assert all(len(graph) == NODES + 1 for graph in graphs)


async def test_large_function_is_not_planned_for_runs_that_have_ended() -> None:
    async with aexec.Session(with_function().graph()) as session:
        with Gate():  # which lets nothing else have its turn
            leaving = session.start("out", {"x": 1.0})
            await until(lambda: session._planner._work.tasks)
            assert leaving.cancel()
            with pytest.raises(errors.CancelledError):
                await leaving
            (work,) = session._planner._work.tasks.values()
            assert work.called_off
        await until(lambda: not session._planner._work.tasks)
        assert np.isfinite(await session.run("out:0", {"x": 0.0}))


async def test_large_function_is_planned_for_runs_that_still_wait() -> None:
    async with aexec.Session(with_function().graph()) as session:
        with Gate():
            staying, leaving = (session.start("out:0", {"x": 0.0}) for _ in range(2))
            await until(lambda: session._planner._work.tasks)  # the first of them waits: the other may not yet
            assert leaving.cancel()
            with pytest.raises(errors.CancelledError):
                await leaving
            (work,) = session._planner._work.tasks.values()
            assert not work.called_off
        assert np.isfinite(await staying)


async def test_plan_asked_for_while_it_is_dropped_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread drops the last reference, and the loop goes on before the disposal has ended."""
    async with aexec.Session(chain(with_placeholder()).graph()) as session:

        def make() -> aexec.SessionCallable:
            call = session.make_callable(f"y{NODES - 1}:0", ["x"])
            call.prepared(session._planner)
            return call

        call = make()
        wanted = await call(1.0)
        loop, others = asyncio.get_running_loop(), []
        tell = loop.call_soon_threadsafe

        def while_it_is_told(callback: Callable[..., object], *arguments: Any, **settings: Any) -> asyncio.Handle:
            if isinstance(callback, partial) and callback.func is dispose:
                monkeypatch.undo()
                others.append(make())
            return tell(callback, *arguments, **settings)

        monkeypatch.setattr(loop, "call_soon_threadsafe", while_it_is_told)
        del call
        await until(lambda: others)  # a thread may still have the plan of its last call
        await asyncio.sleep(0)  # whoever was told begins
        await disposed()
        (other,) = others
        np.testing.assert_array_equal(await other(1.0), wanted)
