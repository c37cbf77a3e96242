"""Partial runs over HTTP: one handle is one step and one cancel token."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from aexec_server.handlers import partial_runs
from aexec_server.requests import partial_step

from aexec import proto
from aexec.framework import dtypes
from aexec.framework.wire.tensor_codec import from_proto, to_proto
from tests.server.conftest import Api, Start
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

PROTOBUF = "application/x-protobuf"


def two_step_graph(gate: gates.Gate | None = None) -> GraphBuilder:
    """`r1` is `a + b`, `r2` is `r1 * c`; `waits` stands at the gate."""
    g = GraphBuilder()
    for name in "abc":
        g.placeholder(name, dtypes.float32)
    g("r1", "Add", "a", "b", T=dtypes.float32)
    g("r2", "Mul", "r1", "c", T=dtypes.float32)
    g("fails", "TestFail", "r1", T=dtypes.float32)
    if gate is not None:
        g("waits", "TestGate", "a", key=gate.key, T=dtypes.float32)
    return g


async def set_up(api: Api, session: str, **fields: Any) -> str:
    status, answer = await api.call("POST", f"/v1/sessions/{session}:partialRunSetup", fields)
    assert status == 200, answer
    return str(answer["partial_run_handle"])


async def part(api: Api, session: str, handle: str, **fields: Any) -> tuple[int, Any]:
    return await api.call("POST", f"/v1/sessions/{session}/partialRuns/{handle}:run", fields)


@pytest.fixture
async def session(api: Api) -> str:
    return await api.create(two_step_graph())


async def test_parts(api: Api, session: str) -> None:
    handle = await set_up(api, session, feeds=["a", "b", "c"], fetches=["r1", "r2"])
    assert len(handle) == 32  # nobody guesses it
    status, answer = await part(api, session, handle, feeds={"a": 1, "b": 2}, fetches=["r1:0"])
    assert (status, answer) == (
        200,
        {"run_id": handle, "outputs": {"r1:0": 3}, "dtypes": {"r1:0": "float32"}, "shapes": {"r1:0": []}},
    )
    _, answer = await api.call("GET", f"/v1/sessions/{session}/runs")
    assert [(run["run_id"], run["state"]) for run in answer["runs"]] == [(handle, "running")]
    status, answer = await part(
        api, session, handle, feeds=[{"name": "c", "datatype": "FP32", "shape": [], "data": [7]}], fetches=["r2"]
    )
    assert (status, answer["outputs"][0]["data"]) == (200, [21])
    await until(lambda: not api.hosted(session).runs.live)
    status, answer = await part(api, session, handle, fetches=["r2"])
    assert (status, answer["code"]) == (404, "NOT_FOUND")


async def test_messages(api: Api, session: str) -> None:
    setup = proto.PartialRunSetupRequest(feed=["a:0", "b:0"], fetch=["r1:0"])
    response, body = await api.raw(
        "POST", f"/v1/sessions/{session}:partialRunSetup", setup.SerializeToString(), Content_Type=PROTOBUF
    )
    assert response.status == 200, body
    handle = proto.PartialRunSetupResponse.FromString(body).partial_run_handle
    paths = [f"/v1/sessions/{session}/partialRuns/{handle}:run", f"/v1/sessions/{session}:run"]
    requests = [proto.RunStepRequest(partial_run_handle=handle), proto.RunStepRequest(partial_run_handle=handle)]
    for name, value, request in zip("ab", (2, 3), requests, strict=True):
        request.feed.add(name=f"{name}:0").tensor.CopyFrom(to_proto(np.float32(value), dtypes.float32))
    requests[1].fetch.append("r1:0")
    for path, request in zip(paths, requests, strict=True):
        response, body = await api.raw("POST", path, request.SerializeToString(), Content_Type=PROTOBUF)
        assert response.status == 200, body
    assert from_proto(proto.RunStepResponse.FromString(body).tensor[0].tensor) == 5
    response, body = await api.raw("POST", paths[1], requests[1].SerializeToString(), Content_Type=PROTOBUF)
    assert response.status == 400 and b"Must run 'setup'" in body


async def test_handle_of_a_partial_run_cancels_it(api: Api) -> None:
    gate = gates.Gate()
    session = await api.create(two_step_graph(gate))
    handle = await set_up(api, session, feeds=["a", "b"], fetches=["r1", "waits"], run_id="mine")
    assert handle == "mine"
    waiting = asyncio.create_task(part(api, session, handle, feeds={"a": 1}, fetches=["waits"]))
    await gate.entered.wait()
    assert (await api.call("POST", f"/v1/sessions/{session}/runs/{handle}:cancel"))[1] == {"cancelled": True}
    assert (await waiting)[0] == 499
    assert gate.cancelled == 1
    await until(lambda: not api.hosted(session).runs.live)
    assert not api.hosted(session).partial_steps


async def test_client_that_leaves_while_waiting_ends_the_step(api: Api) -> None:
    gate = gates.Gate()
    session = await api.create(two_step_graph(gate))
    handle = await set_up(api, session, feeds=["a"], fetches=["waits"])
    waiting = asyncio.create_task(part(api, session, handle, feeds={"a": 1}, fetches=["waits"]))
    await gate.entered.wait()
    waiting.cancel()
    await until(lambda: gate.cancelled == 1)


async def test_error_is_reported_to_the_next_caller(api: Api, session: str) -> None:
    handle = await set_up(api, session, feeds=["a", "b"], fetches=["r1", "fails"])
    status, answer = await part(api, session, handle, feeds={"a": 1, "b": 2})
    await until(lambda: not api.hosted(session).runs.live)
    status, answer = await part(api, session, handle, fetches=["fails"])
    assert (status, answer["node"]) == (400, "fails")
    assert (await part(api, session, handle, fetches=["fails"]))[0] == 404


async def test_cancellation_ahead(api: Api, session: str) -> None:
    await api.call("POST", f"/v1/sessions/{session}/runs/early:cancel")
    status, answer = await api.call(
        "POST", f"/v1/sessions/{session}:partialRunSetup", {"fetches": ["r1"], "feeds": ["a", "b"], "run_id": "early"}
    )
    assert (status, answer["code"]) == (499, "CANCELLED")
    assert not api.hosted(session).runs.live


async def test_name_of_a_partial_run_that_failed_may_be_used_again(api: Api, session: str) -> None:
    asked: dict[str, Any] = {"feeds": ["a", "b"], "fetches": ["r1", "fails"], "run_id": "again"}
    for _ in range(2):
        handle = await set_up(api, session, **asked)
        await part(api, session, handle, feeds={"a": 1, "b": 2})
        await until(lambda: not api.hosted(session).runs.live)
    await api.call("POST", f"/v1/sessions/{session}/runs/again:cancel")
    status, _ = await api.call("POST", f"/v1/sessions/{session}:partialRunSetup", asked)
    assert status == 499
    assert (await part(api, session, "again", fetches=["fails"]))[0] == 404  # nothing is told of the earlier ones


async def test_events_of_a_partial_run_end_with_its_error(api: Api, session: str) -> None:
    handle = await set_up(api, session, feeds=["a", "b"], fetches=["r1", "fails"])
    path = f"/v1/sessions/{session}/runs/{handle}/events"
    async with api.client.get(path, headers={"Accept": "application/x-ndjson"}) as response:
        await response.content.readline()
        await part(api, session, handle, feeds={"a": 1, "b": 2})
        events = [json.loads(line) async for line in response.content]
    assert events[-1]["event"] == "error" and events[-1]["node"] == "fails"


async def test_deadlines_and_idleness(api: Api, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = await set_up(api, session, feeds=["a", "b"], fetches=["r1"], options={"timeout_in_ms": 1})
    await until(lambda: not api.hosted(session).runs.live)
    status, answer = await part(api, session, handle, feeds={"a": 1, "b": 1}, fetches=["r1"])
    assert status in (400, 504), answer
    monkeypatch.setattr(partial_runs, "_MAX_ENDED", 2)
    monkeypatch.setattr(partial_step, "IDLE_SECONDS", 0.001)
    for _ in range(4):
        await set_up(api, session, feeds=["a", "b"], fetches=["r1"])
    await until(lambda: not api.hosted(session).runs.live)
    assert len(api.hosted(session).partial_steps) == 2


async def test_partial_runs_have_a_limit_of_their_own(start: Start) -> None:
    api = await start(max_session_runs=1, max_partial_runs=2)
    session = await api.create(two_step_graph())
    asked = {"feeds": ["a", "b"], "fetches": ["r1"]}
    first = await set_up(api, session, **asked)
    await set_up(api, session, **asked)
    status, answer = await api.call("POST", f"/v1/sessions/{session}:partialRunSetup", asked)
    assert (status, answer["code"]) == (429, "RESOURCE_EXHAUSTED") and "2 partial runs" in answer["error"]
    assert (await api.run(session, feeds={"a": 1, "b": 2}, fetches=["r1"]))[0] == 200
    assert (await part(api, session, first, feeds={"a": 1, "b": 2}, fetches=["r1"]))[0] == 200
    await until(lambda: len(api.hosted(session).runs.live) == 1)
    await set_up(api, session, **asked)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"feeds": {"c": 1}}, "feed c was not specified"),
        ({"fetches": ["r2"]}, "fetch r2 was not specified"),
        ({"fetches": ["r1"]}, "can't be computed"),
        ({"targets": ["r1"]}, "has no targets"),
        ({"run_id": "x"}, "has no run_id"),
        ({"options": {"timeout_in_ms": 5}}, "has no timeout"),
        ({"inputs": {}}, "no inputs of a signature"),
        ({"feeds": {"a": "x"}}, "must be a number"),
        ({"feeds": {"a": 1, "a:0": 2, "b": 3}, "fetches": ["r1"]}, "fed more than once"),
        ({"feeds": {"bb": 1}}, "feed bb was not specified in partial_run_setup: there are a:0, b:0"),
    ],
)
async def test_refusals(api: Api, session: str, fields: Any, message: str) -> None:
    handle = await set_up(api, session, feeds=["a", "b"], fetches=["r1"])
    path = f"/v1/sessions/{session}/partialRuns/{handle}:run"
    response, body = await api.raw("POST", path, json.dumps(fields).encode())
    assert response.status == 400 and message in body.decode(), body
    status, answer = await part(api, session, handle, feeds={"a": 1, "b": 2}, fetches=["r1"])
    assert status == 200, answer


async def test_refused_setups(api: Api, session: str) -> None:
    for fields, message in (
        ({"fetches": ["none"]}, "none"),
        ({}, "at least one target"),
        ({"fetches": "r1"}, "list of names"),
        ({"fetches": ["r1"], "options": {"priority": 1}}, "Unknown field 'priority'"),
    ):
        body = json.dumps(fields).encode()
        response, text = await api.raw("POST", f"/v1/sessions/{session}:partialRunSetup", body)
        assert response.status in (400, 404) and message in text.decode(), text
    assert not api.hosted(session).runs.live
