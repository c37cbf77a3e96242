"""Requests that are joined: what waits for its batch holds no slot, a bad one fails alone, and not too many wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from aexec_server.settings.model_source import Batching, ModelSource

import aexec
from aexec.framework import dtypes
from tests.server.conftest import Api, Start
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until


def checked() -> aexec.Graph:
    """`y` is `x`, which must be finite."""
    with aexec.Graph() as graph:
        aexec.ops.check_numerics(aexec.placeholder("float32", [None], name="x"), message="bad", name="y")
    return graph


def gated(gate: gates.Gate) -> Callable[[], aexec.Graph]:
    def graph() -> aexec.Graph:
        g = GraphBuilder()
        g.placeholder("x", dtypes.float32, [None])
        g("y", "TestGate", "x", key=gate.key, T=dtypes.float32)
        return g.graph()

    return graph


async def served(start: Start, graph: Callable[[], aexec.Graph], batching: Batching, **config: Any) -> Api:
    api = await start(models={"m": ModelSource(graph, batching=batching)}, **config)
    await until(lambda: api.server.ready)
    return api


async def infer(api: Api, value: float) -> int:
    x = {"name": "x", "shape": [1], "datatype": "FP32", "data": [value]}
    return (await api.call("POST", "/v2/models/m/infer", {"inputs": [x]}))[0]


async def test_full_batch_of_requests_is_run_with_one_slot(start: Start) -> None:
    """Also where it is known how long runs take, and there are fewer slots than requests."""
    api = await served(start, checked, Batching(8, 60.0), run_slots=1, queue_seconds=0.001)
    for _ in range(4):
        assert await asyncio.gather(*[infer(api, n) for n in range(8)]) == [200] * 8
    (statistics,) = (await api.call("GET", "/v2/models/m/stats"))[1]["model_stats"]
    assert (statistics["inference_count"], statistics["execution_count"]) == (32, 4)


async def test_requests_that_wait_for_their_batch_leave_the_slots_to_others(start: Start) -> None:
    api = await served(start, checked, Batching(64, 60.0), run_slots=1, queue_seconds=0.001)
    waiting = [asyncio.create_task(infer(api, n)) for n in range(16)]
    await until(lambda: len(api.hosted("m").runs.live) == 16)
    status, answer = await api.run("m", feeds={"x:0": [1]}, fetches=["y:0"])
    assert (status, answer["outputs"]) == (200, {"y:0": [1]})
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)


async def test_requests_that_wait_for_their_batch_are_bounded(start: Start) -> None:
    api = await served(start, checked, Batching(64, 60.0), max_client_runs=8)
    waiting = [asyncio.create_task(infer(api, n)) for n in range(12)]
    await until(lambda: sum(task.done() for task in waiting) == 4)
    assert [task.result() for task in waiting if task.done()] == [429] * 4
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)


async def test_bad_value_of_a_batch_fails_by_itself(start: Start) -> None:
    api = await served(start, checked, Batching(32, 60.0))
    statuses = await asyncio.gather(*[infer(api, float("nan") if n == 5 else n) for n in range(32)])
    assert Counter(statuses) == {200: 31, 400: 1}
    metrics = api.server.metrics.snapshot()
    assert metrics["aexec_batch_halvings"] == {("m",): 5}
    assert metrics["aexec_runs"] == {("m", "OK"): 31, ("m", "INVALID_ARGUMENT"): 1}
    _, text = await api.call("GET", "/metrics")
    assert 'aexec_batch_halvings_total{model="m"} 5.0' in text


async def test_batch_that_changes_state_is_not_tried_again(start: Start) -> None:
    def counted() -> aexec.Graph:
        with aexec.Graph() as graph:
            variable = aexec.ops.var_handle_op(dtype="float32", shape=[], name="v")
            aexec.ops.assign_variable_op(variable, 0.0, name="begin")
            added = aexec.ops.assign_add_variable_op(variable, 1.0)
            x = aexec.placeholder("float32", [None], name="x")
            with aexec.control_dependencies([added]):
                aexec.ops.check_numerics(x, message="bad", name="y")
            aexec.ops.read_variable_op(variable, dtype="float32", name="count")
        return graph

    source = ModelSource(counted, {"x": "x:0"}, {"y": "y:0"}, batching=Batching(4, 60.0))
    api = await start(models={"m": source}, allow_model_changes=True)
    await until(lambda: api.server.ready)
    assert (await api.run("m", targets=["begin"]))[0] == 200
    assert await asyncio.gather(*[infer(api, float("nan") if n == 2 else n) for n in range(4)]) == [400] * 4
    assert (await api.run("m", fetches=["count:0"]))[1]["outputs"] == {"count:0": 1}


async def test_request_is_refused_when_batches_before_it_take_too_long(start: Start) -> None:
    gate = gates.Gate()
    api = await served(start, gated(gate), Batching(1, 60.0))
    gate.open.set()
    assert await infer(api, 0) == 200
    batched = api.hosted("m").served_signature(None, frozenset({"x"}), None).batched
    assert batched is not None
    for _ in range(40):
        batched.count(1, 1_000_000_000)  # so long a batch takes, as far as is known
    gate.open.clear()
    gate.entered.clear()
    waiting = [asyncio.create_task(infer(api, n)) for n in range(2)]
    await until(lambda: batched.backlog_seconds > 0)
    refused = await infer(api, 3)
    gate.open.set()
    assert refused == 429 and [await task for task in waiting] == [200, 200]
    metrics = api.server.metrics.snapshot()
    assert metrics["aexec_runs"]["m", "RESOURCE_EXHAUSTED"] == 1
    assert metrics["aexec_cancellations"]["overload",] == 1
