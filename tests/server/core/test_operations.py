"""Runs that are answered later, and requests that may be sent again."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aexec_server.http.request_preferences import NDJSON

from aexec import proto
from aexec.framework import dtypes
from aexec.framework.wire.tensor_codec import from_proto
from tests.server.conftest import Api, Start, gate_graph, small_graph
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

LATER = {"Prefer": "respond-async"}


async def start_later(api: Api, handle: str, prefer: str = "respond-async", **fields: Any) -> tuple[int, Any, Any]:
    async with api.client.post(
        f"/v1/sessions/{handle}:run", data=json.dumps(fields).encode(), headers={"Prefer": prefer}
    ) as response:
        return response.status, response.headers, await response.json()


async def at_gate(api: Api) -> tuple[str, gates.Gate, str]:
    """A session, the gate at which an operation waits, and its path."""
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    status, headers, answer = await start_later(api, handle, fetches=["y"], run_id="slow")
    assert (status, headers["Preference-Applied"], answer["done"]) == (202, "respond-async", False)
    assert headers["Location"] == f"/v1/{answer['name']}"
    await gate.entered.wait()
    return handle, gate, headers["Location"]


async def test_run_is_answered_later(api: Api) -> None:
    _, gate, path = await at_gate(api)
    status, answer = await api.call("GET", f"{path}?wait_s=0.001")
    assert (status, answer["metadata"], answer["done"]) == (200, {"run_id": "slow"}, False)
    waiting = asyncio.create_task(api.call("GET", f"{path}?wait_s=60"))
    gate.open.set()
    status, answer = await waiting
    assert (answer["done"], answer["response"]["outputs"]) == (True, {"y": 1.5})
    assert (await api.call("GET", f"{path}/response"))[1] == answer["response"]
    assert (await api.call("DELETE", path))[0] == 204
    assert (await api.call("GET", path))[0] == 404
    assert api.server.operations.results.in_use == api.server.operations.shares.in_use == 0


async def test_run_that_ends_soon_is_answered_at_once(api: Api) -> None:
    handle = await api.create(small_graph())
    status, headers, answer = await start_later(api, handle, "respond-async, wait=30", feeds={"x": [2]}, fetches=["y"])
    assert (status, answer["outputs"]) == (200, {"y": [4]})
    assert "Preference-Applied" not in headers and len(api.server.operations) == 0
    for prefer in ("return=minimal", "return=minimal, Respond-Async; x=1, wait=5"):
        assert (await start_later(api, handle, prefer, feeds={"x": [2]}, fetches=["y"]))[0] == 200


async def test_operation_is_cancelled(api: Api) -> None:
    handle, gate, path = await at_gate(api)
    status, answer = await api.call("POST", f"{path}:cancel", {"reason": "enough"})
    assert status == 200
    _, answer = await api.call("GET", f"{path}?wait_s=60")
    assert (answer["done"], answer["error"]["code"]) == (True, 1)
    assert "enough" in answer["error"]["message"] and answer["error"]["details"][0]["code"] == "CANCELLED"
    assert gate.cancelled == 1
    assert (await api.call("GET", f"{path}/response"))[0] == 499
    assert (await api.call("POST", f"/v1/sessions/{handle}/runs/slow:cancel"))[1] == {"cancelled": True}


async def test_client_that_waits_for_an_operation_may_leave(api: Api) -> None:
    _, gate, path = await at_gate(api)
    waiting = asyncio.create_task(api.call("GET", f"{path}?wait_s=60"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert gate.cancelled == 0
    gate.open.set()
    assert (await api.call("GET", f"{path}?wait_s=60"))[1]["done"]


async def test_results_in_other_forms(api: Api) -> None:
    handle = await api.create(small_graph())
    message = proto.RunStepRequest(fetch=["y:0"])
    message.feed.add(name="x:0").tensor.MergeFrom(proto.TensorProto(dtype=1, float_val=[3]))
    message.feed[0].tensor.tensor_shape.dim.add(size=1)
    response, body = await api.raw(
        "POST",
        f"/v1/sessions/{handle}:run",
        message.SerializeToString(),
        Content_Type="application/x-protobuf",
        **LATER,
    )
    assert response.status == 202
    path = f"/v1/{json.loads(body)['name']}"
    _, answer = await api.call("GET", f"{path}?wait_s=60")
    assert answer["response"] == {"content_type": "application/x-protobuf", "location": f"{path}/response"}
    response, body = await api.raw("GET", f"{path}/response")
    assert from_proto(proto.RunStepResponse.FromString(body).tensor[0].tensor).tolist() == [9]


async def test_results_are_kept_for_ten_minutes_within_bounds(start: Start) -> None:
    now = 0.0
    api = await start(clock=lambda: now, max_stored_bytes=5000, session_ttl_s=None)
    handle = await api.create(small_graph())
    paths = []
    for _ in range(2):
        _, headers, _ = await start_later(api, handle, feeds={"x": [2]}, fetches=["y"])
        paths.append(headers["Location"])
        assert (await api.call("GET", f"{paths[-1]}?wait_s=60"))[1]["done"]
    _, headers, _ = await start_later(api, handle, feeds={"x": [0.123456] * 500}, fetches=["y"])
    _, answer = await api.call("GET", f"{headers['Location']}?wait_s=60")
    assert answer["error"]["code"] == 8 and "is not kept" in answer["error"]["message"]
    now = 599
    assert (await api.call("GET", paths[0]))[1]["done"]
    now = 601
    assert (await start_later(api, handle, feeds={"x": [2]}, fetches=["y"]))[0] == 202
    assert (await api.call("GET", paths[0]))[0] == 404


async def test_operations_are_bounded(start: Start) -> None:
    api = await start(max_stored_bytes=500)
    handle = await api.create(small_graph())
    _, headers, _ = await start_later(api, handle, feeds={"x": [2]}, fetches=["y"])
    await api.call("GET", f"{headers['Location']}?wait_s=60")
    status, _, answer = await start_later(api, handle, feeds={"x": [2]}, fetches=["y"])
    assert (status, answer["code"]) == (429, "RESOURCE_EXHAUSTED")


async def test_closing_a_session_ends_its_operations(api: Api) -> None:
    handle, _, path = await at_gate(api)
    await api.call("DELETE", f"/v1/sessions/{handle}")
    _, answer = await api.call("GET", f"{path}?wait_s=60")
    assert answer["error"]["code"] == 1


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/sessions", LATER, 501),
        ("/v1/sessions/{s}:extend", LATER, 501),
        ("/v1/sessions/{s}:reset", {"Idempotency-Key": "k"}, 501),
        ("/v1/sessions/{s}/queues/q:enqueue", {"Idempotency-Key": "k"}, 501),
        ("/v1/sessions/{s}/queues/q:enqueue", {"Accept": "text/event-stream"}, 501),
        ("/v1/sessions/{s}:run", {"Prefer": "wait=5"}, 400),
        ("/v1/sessions/{s}:run", {"Prefer": "respond-async, wait=x"}, 400),
        ("/v1/sessions/{s}:run", {"Accept": NDJSON, **LATER}, 400),
        ("/v1/sessions/{s}:run", {"Accept": NDJSON, "Idempotency-Key": "k"}, 400),
        ("/v1/sessions/{s}:run", {"Idempotency-Key": "a b"}, 400),
        ("/v1/sessions/{s}:run", {"Aexec-Timeout-Ms": "-1"}, 400),
    ],
)
async def test_preferences_that_cannot_be_honoured_are_refused(
    api: Api, path: str, headers: dict[str, str], status: int
) -> None:
    handle = await api.create(small_graph())
    async with api.client.post(path.format(s=handle), data=b"{}", headers=headers) as response:
        assert response.status == status, await response.text()


async def test_deadline_in_a_header(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    for options in ({}, {"timeout_in_ms": 100_000}):
        body = json.dumps({"fetches": ["y"], "options": options}).encode()
        response, answer = await api.raw("POST", f"/v1/sessions/{handle}:run", body, Aexec_Timeout_Ms="1")
        assert response.status == 504, answer


# Requests that may be sent again


def counting_graph() -> GraphBuilder:
    g = GraphBuilder()
    g("v", "VarHandleOp", dtype=dtypes.float32, shape=[], shared_name="v")
    g.const("one", 1, dtypes.float32)
    g("init", "AssignVariableOp", "v", "one", dtype=dtypes.float32)
    g("add", "AssignAddVariableOp", "v", "one", dtype=dtypes.float32)
    g("read", "ReadVariableOp", "v", dtype=dtypes.float32)
    return g


async def with_key(api: Api, path: str, key: str, body: Any, **headers: str) -> tuple[int, Any, Any]:
    async with api.client.post(
        path,
        data=json.dumps(body).encode(),
        headers={"Idempotency-Key": key, "Content-Type": "application/json"} | headers,
    ) as response:
        return response.status, response.headers, await response.json()


async def test_run_is_carried_out_once(api: Api) -> None:
    handle = await api.create(counting_graph())
    await api.run(handle, targets=["init"])
    path, body = f"/v1/sessions/{handle}:run", {"targets": ["add"], "fetches": []}
    answers = [await with_key(api, path, '"k1"', body) for _ in range(3)]
    assert [status for status, _, _ in answers] == [200] * 3
    assert [headers.get("Idempotent-Replayed") for _, headers, _ in answers] == [None, "true", "true"]
    assert answers[0][2] == answers[2][2]
    assert (await api.run(handle, fetches=["read"]))[1]["outputs"] == {"read": 2}
    status, _, answer = await with_key(api, path, '"k1"', {"targets": ["init"]})
    assert (status, answer["status"]) == (422, 422)


async def test_client_that_leaves_finds_the_answer_later(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    path, body = f"/v1/sessions/{handle}:run", {"fetches": ["y"]}
    first = asyncio.create_task(with_key(api, path, "k", body))
    await gate.entered.wait()
    first.cancel()
    await asyncio.wait([first])
    status, _, answer = await with_key(api, path, "k", body)
    assert (status, answer["code"]) == (409, "ABORTED")
    gate.open.set()
    await until(lambda: not api.hosted(handle).runs.live)
    status, headers, answer = await with_key(api, path, "k", body)
    assert (status, answer["outputs"], headers["Idempotent-Replayed"]) == (200, {"y": 1.5}, "true")
    assert gate.count == 1


async def test_sessions_are_made_and_extended_once(api: Api) -> None:
    graph = {"graph_def": {}}
    made = [await with_key(api, "/v1/sessions", "k", graph) for _ in range(2)]
    assert made[0][2] == made[1][2] and made[1][1]["Location"] == made[0][1]["Location"]
    assert len(api.server.sessions) == 1
    path = f"{made[0][1]['Location']}:extend"
    node = {"name": "n", "op": "NoOp"}
    body = {"graph_def": {"node": [node]}, "current_graph_version": 0}
    for _ in range(2):
        assert (await with_key(api, path, "k", body))[2] == {"new_graph_version": 1}


async def test_errors_are_answers_but_refusals_are_none(start: Start) -> None:
    api = await start(max_session_runs=1)
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    path = f"/v1/sessions/{handle}:run"
    for _ in range(2):
        status, headers, _ = await with_key(api, path, "wrong", {"fetches": ["none"]})
        assert status == 404
    assert headers["Idempotent-Replayed"] == "true"
    waiting = asyncio.create_task(api.run(handle, fetches=["y"]))
    await gate.entered.wait()
    assert (await with_key(api, path, "k", {"fetches": ["y"]}))[0] == 429
    gate.open.set()
    await waiting
    assert (await with_key(api, path, "k", {"fetches": ["y"]}))[0] == 200


async def test_answers_are_kept_within_bounds(start: Start) -> None:
    now = 0.0
    api = await start(max_stored_bytes=5000, clock=lambda: now, session_ttl_s=None)
    handle = await api.create(small_graph())
    path, body = f"/v1/sessions/{handle}:run", {"feeds": {"x": [2]}, "fetches": ["y"]}
    for number in range(10):
        await with_key(api, path, f"k{number}", body)
    store = api.server.answered_once
    assert store.shares.in_use <= 5000 < store.shares.in_use + 1500 and store.keys.in_use == 10
    assert "Idempotent-Replayed" in (await with_key(api, path, "k9", body))[1]
    status, _, answer = await with_key(api, path, "k0", body)
    assert (status, answer["status"], answer["reason"]) == (410, 410, "answer_forgotten")
    large = {"feeds": {"x": [0.123456] * 500}, "fetches": ["y"]}
    assert (await with_key(api, path, "large", large))[0] == 200
    status, _, answer = await with_key(api, path, "large", large)
    assert status == 410 and "was carried out" in answer["error"]
    assert "Idempotent-Replayed" in (await with_key(api, path, "k9", body))[1]
    now = 25 * 3600
    status, headers, _ = await with_key(api, path, "k0", body)
    assert status == 200 and "Idempotent-Replayed" not in headers


async def test_key_and_an_operation(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    path, body = f"/v1/sessions/{handle}:run", {"fetches": ["y"]}
    made = [await with_key(api, path, "k", body, **LATER) for _ in range(2)]
    assert [status for status, _, _ in made] == [202, 202]
    assert made[0][1]["Location"] == made[1][1]["Location"] and len(api.server.operations) == 1
    gate.open.set()
    assert (await api.call("GET", f"{made[0][1]['Location']}?wait_s=60"))[1]["done"]
