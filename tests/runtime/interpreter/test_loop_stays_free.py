"""Work on much data does not hold the event loop, nor the interpreter's lock, which it needs.

The tests tell by the turns that the loop gets meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aexec
from aexec.framework import dtypes
from tests.support.programs.functions import function_def
from tests.support.programs.graphs import GraphBuilder, negations
from tests.support.turns import polite_threads, turns_during

MANY = 1_000_000


@pytest.fixture(autouse=True)
def threads_are_polite() -> Iterator[None]:
    with polite_threads():
        yield


def graph() -> aexec.Graph:
    with aexec.Graph() as graph:
        for dtype in ("float32", "int64", "string"):
            aexec.ops.size(aexec.placeholder(dtype, name=dtype), name=f"{dtype}_size")
        aexec.ops.fifo_queue_v2(component_types=["float64"], name="q")
    return graph


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", [0.5] * MANY),
        ("int64", [list(range(1000))] * (MANY // 1000)),
        ("int64", [list(range(MANY // 2))] * 2),
        ("string", ["text"] * MANY),
        ("string", np.array(["text"] * MANY, object)),
    ],
    ids=["floats", "rows", "long rows", "strings", "array of strings"],
)
async def test_loop_is_free_while_lists_are_fed(dtype: str, value: Any) -> None:
    async with aexec.Session(graph()) as session:
        turns, size = await turns_during(session.run(f"{dtype}_size:0", {f"{dtype}:0": value}))
    assert size == MANY
    assert turns > 4


async def test_loop_is_free_while_lists_are_fed_to_a_partial_run() -> None:
    async with aexec.Session(graph()) as session:
        setup = await session.partial_run_setup("float32_size:0", ["float32:0"])
        turns, size = await turns_during(session.partial_run(setup, "float32_size:0", {"float32:0": [0.5] * MANY}))
    assert size == MANY
    assert turns > 4


async def test_loop_is_free_while_a_large_array_is_kept_under_a_handle() -> None:
    array = np.ones(20 << 20, np.uint8)
    async with aexec.Session(graph()) as session:
        turns, handle = await turns_during(session.tensors.put(array))
        array[:] = 0
        assert session.tensors.get(handle).all()
        assert session.statistics().pool.submitted == 1
    assert turns > 1


async def test_loop_is_free_while_a_long_list_is_kept_under_a_handle() -> None:
    async with aexec.Session(graph()) as session:
        turns, handle = await turns_during(session.tensors.put([1.5] * MANY))
        assert session.tensors.get(handle).shape == (MANY,)
    assert turns > 4


@pytest.mark.parametrize("value", [np.ones(510_000, np.float16), [1.0] * MANY], ids=["cast", "list"])
async def test_loop_is_free_while_a_queue_is_filled(value: Any) -> None:
    async with aexec.Session(graph()) as session:
        queue = session.queue("q")
        turns, _ = await turns_during(queue.put(value))
        assert (await queue.get()).sum() == len(value)
        assert session.statistics().pool.submitted >= 1
    assert turns > 1


async def test_loop_is_free_while_a_barrier_is_filled_and_emptied() -> None:
    ops, many = aexec.ops, 40_000
    with aexec.Graph() as graph:
        barrier = ops.barrier(component_types=["float32"], shapes=[[]], name="b")
        keys, values = aexec.placeholder("string", [None], name="keys"), aexec.placeholder("float32", name="values")
        ops.barrier_insert_many(barrier, keys, values, component_index=0, name="put")
        ops.barrier_take_many(barrier, many, component_types=["float32"], name="take")
    feeds = {"keys:0": np.array([b"%d" % i for i in range(many)], object), "values:0": np.zeros(many)}
    async with aexec.Session(graph) as session:
        turns, _ = await turns_during(session.run([], feeds, targets=["put"]))
        assert turns > 4
        turns, taken = await turns_during(session.run("take:1"))
        assert len(taken) == many
        assert turns > 3


async def test_loop_is_free_while_a_large_graph_is_placed_and_planned() -> None:
    graph = negations(3000)
    session = aexec.Session(graph)
    # Entering places it, the run plans it.
    turns, _ = await turns_during(session.__aenter__())
    assert turns > 1
    turns, y = await turns_during(session.run("y:0", {"x:0": 2.0}))
    assert (turns > 1, y) == (True, 2.0)
    await session.close()


@pytest.mark.parametrize("called", [False, True])
async def test_loop_is_free_while_a_node_of_very_many_outputs_is_planned(called: bool) -> None:
    """The test covers a function, too, which has few nodes."""
    attrs = {"num_split": 20_000, "T": dtypes.float32}
    g = GraphBuilder()
    g.placeholder("x")
    g.const("axis", 0, dtypes.int32)
    if called:
        body = [("y", "Split", ["axis", "x"], {"num_split": "$N", "T": dtypes.float32})]
        ret = {"last": "y:output:19999"}
        signature = "Last(axis: int32, x: float) -> last: float"
        g.graph_def.library.function.append(function_def(signature, "N: int", body=body, ret=ret))
        g("y", "Last", "axis", "x", N=20_000)
    else:
        g("y", "Split", "axis", "x", **attrs)
    async with aexec.Session(g.graph()) as session:
        x = np.arange(20_000, dtype=np.float32)
        turns, last = await turns_during(session.run("y:0" if called else "y:19999", {"x:0": x}))
    assert last.tolist() == [19_999]
    assert turns > 3


async def test_loop_is_free_while_a_graph_is_placed_by_costs() -> None:
    """Placement by costs takes several times as long, so even small graphs are placed in a thread."""
    for costs, beside in ((None, False), (aexec.CostModel(), True)):
        session = aexec.Session(negations(500), config=aexec.SessionConfig(cost_model=costs))
        turns, _ = await turns_during(session.__aenter__())
        assert (turns > 1) == beside
        await session.close()


async def test_entering_a_session_reports_nodes_that_cannot_be_placed() -> None:
    small, large = negations(10), negations(3000)
    for graph in (small, large):
        with graph, aexec.device("GPU:7"):
            aexec.ops.neg(1.0, name="nowhere")
    with pytest.raises(aexec.errors.InvalidArgumentError, match="GPU:7"):
        aexec.Session(small)
    session = aexec.Session(large)
    with pytest.raises(aexec.errors.InvalidArgumentError, match="GPU:7"):
        await session.__aenter__()
    assert session.closed
    session = aexec.Session(large)
    with pytest.raises(aexec.errors.InvalidArgumentError, match="GPU:7"):
        await session.run("y:0", {"x:0": 2.0})
    await session.close()


async def test_small_work_costs_no_thread() -> None:
    async with aexec.Session(graph()) as session:
        await session.run("float32_size:0", {"float32:0": [1.0, 2.0]})
        await session.tensors.put(np.ones(100_000))
        await session.queue("q").put(np.ones(100_000))
        assert session.statistics().pool.submitted == 0


async def test_longer_slice_allows_larger_inline_feeds() -> None:
    config = aexec.SessionConfig(slice_seconds=1.0)
    async with aexec.Session(graph(), config=config) as session:
        await session.run("float32_size:0", {"float32:0": [0.5] * MANY})
        assert session.statistics().pool.submitted == 0
