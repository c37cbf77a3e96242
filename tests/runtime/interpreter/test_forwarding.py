"""Outputs written over inputs: results of random graphs do not change, and shared arrays are not overwritten."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aexec
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from aexec.runtime.debug_level import DEBUG
from aexec.runtime.interpreter import forwarding, node_runner
from aexec.runtime.plans.plan import PlanNode
from tests.support.programs.elementwise_programs import Node, build, node, numbers

SHAPE = (128, 160)  # large: see LoopBudget.small_elements
ops = aexec.ops


def forwarded(node: PlanNode, inputs: Any) -> Callable[..., Any]:
    """`forwarding`, counted."""
    compute = forwarding.forwarding(node, inputs)
    TALLY.append(compute is not node.compute)
    return compute


TALLY: list[bool] = []


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    TALLY.clear()
    monkeypatch.setattr(node_runner, "forwarding", forwarded)
    yield
    TALLY.clear()


def session(graph: aexec.Graph) -> aexec.Session:
    return aexec.Session(graph, config=aexec.SessionConfig(graph_passes=()))


async def run(graph: aexec.Graph, fetches: Any, feeds: dict[str, Any]) -> Any:
    async with session(graph) as s:
        return await s.run(fetches, feeds)


async def results(nodes: list[Node], chosen: list[int], *, heavy: int) -> list[list[bytes]]:
    """The results of two runs; every `heavy`-th call is made in a thread."""
    graph, names = build(nodes, SHAPE)
    calls = 0

    def heavy_ns(*_: Any) -> float:
        nonlocal calls
        calls += 1
        return bool(heavy) and calls % heavy == 0

    fed = {"x0:0": numbers(1, SHAPE), "x1:0": numbers(2, SHAPE)}
    before = {name: value.tobytes() for name, value in fed.items()}
    fetches = [names[i % len(names)] for i in chosen]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_runner, "heavy_ns", heavy_ns)
        async with session(graph) as s:
            await s.run([], targets=["init"])
            kept = [await s.run(fetches, {**fed, "p:0": flag}) for flag in (True, False, True)]
    assert {name: value.tobytes() for name, value in fed.items()} == before
    return [[value.tobytes() for value in values] for values in kept]


@settings(max_examples=60, deadline=None)
@given(st.lists(node, min_size=1, max_size=14), st.lists(st.integers(0, 15), min_size=1, max_size=4), st.integers(0, 3))
def test_random_graphs_give_the_results_without_forwarding(nodes: list[Node], chosen: list[int], heavy: int) -> None:
    got = asyncio.run(results(nodes, chosen, heavy=heavy))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_runner, "forwarding", lambda node, _: node.compute)
        wanted = asyncio.run(results(nodes, chosen, heavy=0))
    assert got == wanted
    assert got[0] == got[2]  # neither constants nor the variable have changed


def chain(length: int) -> aexec.Graph:
    with aexec.Graph() as graph:
        y = aexec.placeholder("float32", SHAPE, name="x") + 1.0
        for _ in range(length):
            y = ops.relu(y) * 2.0 + y
        ops.identity(y, name="y")
    return graph


async def test_last_consumer_writes_over_its_input() -> None:
    """Of Relu, Mul and AddV2 all but Relu, whose input is still to be added, write over an input."""
    x = numbers(0, SHAPE)
    y = await run(chain(3), "y:0", {"x:0": x})
    assert [False, *[False, True, True] * 3] == TALLY
    want = x + 1
    for _ in range(3):
        want = np.maximum(want, 0) * 2 + want
    np.testing.assert_array_equal(y, want)


async def test_call_in_a_thread_releases_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_runner, "heavy_ns", lambda *_: 1.0)
    await run(chain(3), "y:0", {"x:0": numbers(0, SHAPE)})
    assert [False, *[False, True, True] * 3] == TALLY


async def test_traced_steps_forward_too() -> None:
    async with session(chain(3)) as s:
        await s.run("y:0", {"x:0": numbers(0, SHAPE)}, options=aexec.RunOptions(trace=True))
    assert any(TALLY)


async def test_small_values_are_not_asked_about() -> None:
    with aexec.Graph() as graph:
        ops.relu(ops.relu(aexec.placeholder("float32", [10], name="x")), name="y")
    await run(graph, "y:0", {"x:0": numbers(0, (10,))})
    assert TALLY == []


# A kernel that writes over its input in a thread, when it is let.
register_op("TestOverwrite(x: float32) -> y: float32")


class Overwriting:
    """`TestOverwrite`: its last input array, and the event by which it goes on."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.left = threading.Event()
        self.given: Any = None

    def __call__(self, x: Any, out: Any = None) -> Any:
        assert out is x or DEBUG
        self.given = weakref.ref(x)
        self.entered.set()
        self.go_on.wait()
        result = np.multiply(x, -1, out)
        self.left.set()
        return result


CALLS: list[Overwriting] = []


@kernel("TestOverwrite", cost=1e9)
def _overwrite(c: Any) -> Any:
    c.forward_inputs(0)
    CALLS.append(Overwriting())
    return CALLS[-1]


async def test_memory_of_an_abandoned_call_is_its_own_until_it_returns() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", SHAPE, name="x")
        ops.test_overwrite(x + 1.0, name="y")
        ops.identity(x + 1.0, name="z")
    async with session(graph) as s:
        step = s.start("y:0", {"x:0": numbers(0, SHAPE)})
        while not (CALLS and CALLS[-1].entered.is_set()):
            await asyncio.sleep(0)
        call = CALLS.pop()
        try:
            step.cancel()
            with pytest.raises((aexec.errors.CancelledError, asyncio.CancelledError)):
                await step
            assert call.given() is not None
            others = [await s.run("z:0", {"x:0": numbers(i, SHAPE)}) for i in range(3)]
            assert not any(np.may_share_memory(call.given(), other) for other in others)
            kept = [other.copy() for other in others]
        finally:
            call.go_on.set()
    assert call.left.is_set()
    assert call.given() is None
    for other, copy in zip(others, kept, strict=True):
        np.testing.assert_array_equal(other, copy)
