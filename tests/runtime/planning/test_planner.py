"""Planning: small graphs on the loop, within a time limit; its memory counts in the session."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors, proto
from aexec.framework.dtypes import bool_, float32, string
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.op_contract import op_registry
from aexec.framework.waiting.long_work import expect, go_on
from aexec.framework.wire.attr_value import NameAttrList
from aexec.runtime.functions import functions
from aexec.runtime.session.session_steps import SessionSteps
from tests.support.collector import no_collector
from tests.support.programs.functions import function_def
from tests.support.programs.graphs import GraphBuilder
from tests.support.programs.planning_bombs import BOMBS, constant

MB = 2**20

op_registry.register_op("PlannerTestMade() -> y: float", "kind: string", stateful=True)
# In which threads kernels were made, and in which turns of the loop.
made_in: list[str] = []
made_at: list[int] = []
turn = 0


@kernel("PlannerTestMade", cost=0)
def made(c: OpKernelConstruction) -> Compute:
    made_in.append(threading.current_thread().name)
    made_at.append(turn)
    kind = c.text("kind")
    if kind == "long":
        expect(1e12)
    while kind == "endless" and threading.current_thread() is threading.main_thread():
        go_on()
    return lambda: np.float32(1)


def made_so(kind: str) -> GraphBuilder:
    made_in.clear()
    g = GraphBuilder()
    g("y", "PlannerTestMade", kind=kind)
    return g


async def test_small_graph_is_planned_on_the_loop() -> None:
    async with aexec.Session(made_so("quick").graph()) as session:
        assert await session.run("y:0") == 1
    assert made_in == [threading.main_thread().name]


@pytest.mark.parametrize("kind", ["long", "endless"])
async def test_small_graph_that_takes_long_is_planned_in_a_thread_after_all(kind: str) -> None:
    async with aexec.Session(made_so(kind).graph()) as session:
        assert await session.run("y:0") == 1
    on_the_loop, in_thread = made_in
    assert on_the_loop == threading.main_thread().name and in_thread.startswith("planner")


@pytest.mark.parametrize(("count", "limit", "on_loop"), [(1, 100 * MB, True), (2, None, True), (2, 100 * MB, False)])
async def test_constants_that_take_long_to_count_are_planned_in_a_thread(
    count: int, limit: int | None, on_loop: bool
) -> None:
    """Each has 20 000 strings, which take 0.6 ms to decode and 2 ms to count; 4 ms in all are for a thread."""
    g = made_so("quick")
    for i in range(count):
        strings = proto.TensorProto(dtype=7, string_val=[b"%d" % n for n in range(20_000)])
        strings.tensor_shape.dim.add(size=20_000)
        g(f"c{i}", "Const", dtype=string, value=strings)
    async with aexec.Session(g.graph(), config=aexec.SessionConfig(session_bytes=limit)) as session:
        await session.run([f"c{i}:0" for i in range(count)] + ["y:0"])
    assert (made_in[-1] == threading.main_thread().name) is on_loop


async def test_body_that_takes_long_is_planned_in_a_thread_after_all() -> None:
    g = GraphBuilder()
    body = [("n", "PlannerTestMade", [], {"kind": "long"})]
    function = function_def("F() -> y: float", body=body, ret={"y": "n:y:0"}, stateful=True)
    function.attr["_noinline"].b = True
    g.graph_def.library.function.append(function)
    g("y", "F")
    made_in.clear()
    async with aexec.Session(g.graph()) as session:
        for _ in range(4):
            assert await session.run("y:0") == 1
    on_the_loop, in_thread = made_in
    assert on_the_loop == threading.main_thread().name and in_thread.startswith("planner")


async def test_body_that_takes_long_and_is_not_called_is_tried_on_the_loop_once() -> None:
    g = GraphBuilder()
    for name, kind in (("Slow", "long"), ("Quick", "quick")):
        body = [("n", "PlannerTestMade", [], {"kind": kind})]
        g.graph_def.library.function.append(
            function_def(f"{name}() -> y: float", body=body, ret={"y": "n:y:0"}, stateful=True)
        )
    g("p", "Placeholder", dtype=bool_)
    branches = {"then_branch": NameAttrList("Slow"), "else_branch": NameAttrList("Quick")}
    g("y", "If", "p", Tcond=bool_, Tin=[], Tout=[float32], **branches)
    made_in.clear()
    async with aexec.Session(g.graph()) as session:
        for _ in range(40):
            assert await session.run("y:0", {"p:0": False}) == 1
        assert len(made_in) <= 2
        call = session.make_callable("y:0", ["p:0"])
        with pytest.raises(errors.UnimplementedError, match="function 'Slow' is large"):
            await session.plan_source(call)
        assert await call(True) == 1  # in a thread
        assert "def" in await session.plan_source(call)


async def test_bodies_of_calls_that_begin_together_are_made_one_after_another() -> None:
    g = GraphBuilder()
    body = [("n", "PlannerTestMade", [], {"kind": "quick"})]
    function = function_def("F() -> y: float", "k: int", body=body, ret={"y": "n:y:0"}, stateful=True)
    function.attr["_noinline"].b = True
    g.graph_def.library.function.append(function)
    for number in range(20):
        g(f"y{number}", "F", k=number)

    async def count_turns() -> None:
        global turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    counting = asyncio.create_task(count_turns())
    on_loop: list[int] = []
    # On a busy machine some may take long, and are made in a thread after all: beside the turns of the loop.
    while len(on_loop) < 2:
        async with aexec.Session(g.graph(), config=aexec.SessionConfig(slice_seconds=1e-5)) as session:
            made_at.clear()
            made_in.clear()
            await session.run([f"y{number}:0" for number in range(20)])
        on_loop = [at for at, thread in zip(made_at, made_in, strict=True) if thread == threading.main_thread().name]
    counting.cancel()
    assert len(set(on_loop)) == len(on_loop) and len(made_at) >= 20


async def test_extension_of_few_nodes_and_many_functions_is_made_in_a_thread() -> None:
    large, _ = BOMBS["large library"](3000)
    async with aexec.Session(made_so("quick").graph()) as session:
        for node in large.node:
            node.name = f"more_{node.name}"
            node.input[:] = [f"more_{name}" for name in node.input]
        extending = large.SerializeToString()
        message = proto.GraphDef.FromString(extending)
        with no_collector():  # which would run in the loop's thread for as long
            began, began_in_all = time.thread_time(), time.process_time()
            await session.extend(message)
            took, in_all = time.thread_time() - began, time.process_time() - began_in_all
        assert await session.run("more_y:0") == -1
    assert took < in_all / 4


async def test_constant_counts_for_the_session_as_long_as_its_graph_lives() -> None:
    graph_def = constant(float32, [10 * MB], float_val=[1, 2])
    async with aexec.Session(
        aexec.Graph.from_graph_def(graph_def), config=aexec.SessionConfig(session_bytes=500 * MB)
    ) as session:
        assert await session.run("y:0") == 1
        assert 40 * MB <= session.statistics().bytes_in_use < 50 * MB


@pytest.mark.parametrize("limit", [30 * MB, 300 * MB])
async def test_constant_without_room_is_refused_before_it_is_made(limit: int) -> None:
    graph_def = constant(float32, [limit // 4 + 1000], float_val=[1, 2])
    config = aexec.SessionConfig(session_bytes=limit)
    async with aexec.Session(aexec.Graph.from_graph_def(graph_def), config=config) as session:
        with pytest.raises(errors.ResourceExhaustedError, match="session_bytes") as caught:
            await session.run("y:0")
        assert caught.value.node == "c" and session.statistics().bytes_in_use == 0


async def test_passes_copy_no_constants_that_repeat_a_value_without_bound() -> None:
    graph_def, request = BOMBS["products with repeated values"](12)
    config = aexec.SessionConfig(session_bytes=1000 * MB)
    async with aexec.Session(aexec.Graph.from_graph_def(graph_def), config=config) as session:
        (y,) = await session.run([f"{name}:0" for name in request["fetches"]], {"x:0": request["feeds"]["x"]})
        assert np.isfinite(y[0, 0])
        assert session.statistics().bytes_in_use < 80 * MB


async def test_instances_of_functions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "_BODY_NODES", 500)
    graph_def, request = BOMBS["functions of ever new attrs"](16)
    async with aexec.Session(aexec.Graph.from_graph_def(graph_def)) as session:
        with pytest.raises(errors.ResourceExhaustedError, match="the bodies of functions, one for all attrs that each"):
            await session.run([f"{name}:0" for name in request["fetches"]])


async def test_functions_may_call_one_another_in_a_long_row() -> None:
    graph_def, _ = BOMBS["functions in a row"](500)
    async with aexec.Session(aexec.Graph.from_graph_def(graph_def)) as session:
        assert await session.run("y:0") == 1


async def test_fake_parameter_of_any_size_takes_no_memory() -> None:
    async def value(shape: list[int]) -> Any:
        g = GraphBuilder()
        g("y", "FakeParam", dtype=float32, shape=shape)
        async with aexec.Session(g.graph()) as session:
            return await session.run("y:0")

    assert (await value([10**12])).strides == (0,)
    assert (await value([2, 0])).shape == (2, 0) and await value([]) == 0


async def test_attr_that_cannot_be_decoded_is_passed_over() -> None:
    """A claim of a shape of more dimensions than there may be, of nodes that are compared."""
    graph_def, _ = BOMBS["known shapes"](300)
    graph_def.node.add().CopyFrom(graph_def.node[1])
    graph_def.node[-1].name = "same"
    async with aexec.Session(aexec.Graph.from_graph_def(graph_def)) as session:
        assert await session.run(["n0:0", "same:0"], {"x:0": 1.0}) == [-1, -1]


@pytest.mark.parametrize(("length", "in_thread"), [(20, False), (400, True)])
async def test_graph_that_was_executed_is_told_in_a_thread_if_it_is_large(
    length: int, in_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_def, request = BOMBS["long chain"](length)
    threads = []
    async with aexec.Session(aexec.Graph.from_graph_def(graph_def)) as session:
        graphs_of = SessionSteps.executed_graphs

        def noting(steps: SessionSteps, cached: Any) -> Any:
            threads.append(threading.current_thread() is not threading.main_thread())
            return graphs_of(steps, cached)

        monkeypatch.setattr(SessionSteps, "executed_graphs", noting)
        options, metadata = aexec.RunOptions(output_partition_graphs=True, trace=True), aexec.RunMetadata()
        await session.run(f"{request['fetches'][0]}:0", {"x:0": 1.0}, options=options, metadata=metadata)
    assert threads == [in_thread]
    assert len(metadata.partition_graphs[0].node) >= length and metadata.step_stats is not None
