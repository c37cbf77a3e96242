"""Durable sessions over HTTP: what was acknowledged is there after the server's end, with any kind of state."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aexec_server.durable import group_commit

from aexec import proto
from aexec.framework import dtypes
from tests.server.conftest import Api, Start, gate_graph
from tests.server.durable.graphs import counter_graph, state_graph
from tests.server.durable.stores import HeldDisk
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

Again = Callable[[Api], Awaitable[Api]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
async def api(start: Start, folder: Path) -> Api:
    return await start(state_path=folder)


@pytest.fixture
def again(start: Start, folder: Path) -> Again:
    """A server on what the disk has now, as if the other one had been killed."""
    number = 0

    async def make(api: Api, **settings: Any) -> Api:
        nonlocal number
        number += 1
        copy = folder.with_name(f"copy{number}")
        shutil.copytree(api.server.config.state_path or "", copy)
        return await start(state_path=copy, **settings)

    return make


async def run(api: Api, handle: str, **fields: Any) -> dict[str, Any]:
    status, answer = await api.run(handle, **fields)
    assert status == 200, answer
    outputs: dict[str, Any] = answer["outputs"]
    return outputs


async def add(api: Api, handle: str, x: float = 1.0, **headers: str) -> Any:
    body = json.dumps({"feeds": {"x": [x]}, "targets": ["add"]}).encode()
    response, text = await api.raw("POST", f"/v1/sessions/{handle}:run", body, **headers)
    return response, json.loads(text)


async def counter(api: Api, **fields: Any) -> str:
    handle = await api.create(counter_graph(), durable=True, **fields)
    await run(api, handle, feeds={"x": [0]}, targets=["set"])
    return handle


def commits(api: Api) -> int:
    assert api.server.durable is not None
    return api.server.durable.commits.commits


async def test_each_kind_of_state_survives(api: Api, again: Again) -> None:
    handle = await api.create(state_graph(), durable=True)
    await run(api, handle, feeds={"x": [5]}, targets=["set"])
    await run(api, handle, feeds={"i": 7}, targets=["r_set"])
    await run(api, handle, feeds={"k": ["a", "b"], "x": [1, 2]}, targets=["t_set"])
    queues = ("fifo", "padding", "shuffle", "priority")
    for number in (3, 1, 2):
        await run(api, handle, feeds={"i": number}, targets=[f"{queue}_put" for queue in queues])
    await run(api, handle, targets=["fifo_close"])
    kept = (await run(api, handle, feeds={"x": [9, 8]}, fetches=["keep"]))["keep"]

    other = await again(api)
    assert await run(other, handle, fetches=["read", "r_read"]) == {"read": [5], "r_read": 7}
    assert (await run(other, handle, feeds={"k": ["b", "c"]}, fetches=["t_get"]))["t_get"] == [2, -1]
    assert (await run(other, handle, feeds={"handle": kept}, fetches=["kept"]))["kept"] == [9, 8]
    for queue, order in (("fifo", [3, 1, 2]), ("padding", [3, 1, 2]), ("priority", [1, 2, 3])):
        taken = [await run(other, handle, fetches=[f"{queue}_get"]) for _ in order]
        assert [answer[f"{queue}_get"] for answer in taken] == order
    shuffled = [
        [(await run(one, handle, fetches=["shuffle_get"]))["shuffle_get"] for _ in range(3)] for one in (api, other)
    ]
    assert shuffled[0] == shuffled[1]
    status, answer = await other.run(handle, feeds={"i": 1}, targets=["fifo_put"])
    assert status != 200 and "closed" in answer["error"]
    assert (await run(other, handle, feeds={"x": [0]}, fetches=["keep"]))["keep"] != kept


async def test_restored_session_is_described_as_before(api: Api, again: Again) -> None:
    handle = await api.create(counter_graph(), durable=True, ttl_s=77, limits={"max_runs": 3}, name="mine")
    assert handle == "mine"
    status, before = await api.call("GET", "/v1/sessions/mine")
    assert (status, before["durable"], before["durability"]) == (200, True, "strict")
    other = await again(api)
    _, after = await other.call("GET", "/v1/sessions/mine")
    assert after | {"idle_s": 0} == before | {"idle_s": 0}
    assert other.hosted("mine").max_runs == 3
    encoded = base64.b64encode(b"").decode()
    assert (await other.call("POST", "/v1/sessions", {"graph_def": encoded, "name": "mine"}))[0] == 409


async def test_name_of_an_unopened_session_is_taken(api: Api, again: Again) -> None:
    await api.create(counter_graph(), durable=True, name="mine")
    other = await again(api)
    status, answer = await other.call("POST", "/v1/sessions", {"graph_def": "", "name": "mine"})
    assert (status, answer["code"]) == (409, "ALREADY_EXISTS")


async def test_extension_survives(api: Api, again: Again) -> None:
    handle = await counter(api)
    more = GraphBuilder()
    more("more", "AssignSubVariableOp", "v", "x", dtype=dtypes.float32)
    encoded = base64.b64encode(more.graph_def.SerializeToString()).decode()
    body = {"graph_def": encoded, "current_graph_version": 0}
    assert (await api.call("POST", f"/v1/sessions/{handle}:extend", body))[0] == 200
    await run(api, handle, feeds={"x": [2]}, targets=["more"])
    other = await again(api)
    await run(other, handle, feeds={"x": [3]}, targets=["more"])
    assert (await run(other, handle, fetches=["read"]))["read"] == [-5]
    assert (await other.call("GET", f"/v1/sessions/{handle}"))[1]["graph_version"] == 1


async def test_calls_besides_runs_are_written(api: Api, again: Again) -> None:
    """Elements put and taken, queues closed, tensors kept and deleted, containers reset."""
    handle = await api.create(state_graph(), durable=True)
    at = f"/v1/sessions/{handle}"
    for number in (4, 5):
        assert (await api.call("POST", f"{at}/queues/padding:enqueue", {"components": [number]}))[0] == 200
    assert (await api.call("POST", f"{at}/queues/padding:dequeue", {}))[1]["components"] == [4]
    tensor = {"name": "a", "datatype": "FP32", "shape": [1], "data": [1]}
    kept = [(await api.call("POST", f"{at}/tensors", tensor))[1]["handle"] for _ in range(2)]
    assert (await api.call("DELETE", f"{at}/tensors/{kept[0]}"))[0] == 204
    assert (await api.call("POST", f"{at}/queues/padding:close", {}))[0] == 200
    other = await again(api)
    tensors = (await other.call("GET", f"{at}/tensors"))[1]["tensors"]
    assert [one["handle"] for one in tensors] == [kept[1]]
    (queue,) = (await other.call("GET", f"{at}/queues"))[1]["queues"]
    assert (queue["size"], queue["closed"]) == (1, True)
    assert (await other.call("POST", f"{at}:reset", {}))[0] == 200
    third = await again(other)
    assert (await third.call("GET", f"{at}/queues"))[1]["queues"] == []


async def test_run_that_changes_nothing_is_not_written(api: Api) -> None:
    handle = await counter(api)
    before = commits(api)
    for _ in range(3):
        assert await run(api, handle, feeds={"x": [1]}, fetches=["twice", "read"]) == {"twice": [2], "read": [0]}
    assert commits(api) == before


async def test_runs_that_wait_share_a_commit(api: Api) -> None:
    """While one transaction is written, 20 runs end; one more transaction has them all."""
    handle = await counter(api)
    assert api.server.durable is not None
    disk = HeldDisk(api.server.durable.store)
    before = commits(api)
    first = asyncio.create_task(add(api, handle))
    await disk.writing.wait()
    others = [asyncio.create_task(add(api, handle)) for _ in range(20)]
    durable, waiting = api.hosted(handle).durable, api.server.durable.commits._waiting
    assert durable is not None
    await until(lambda: len(waiting.get(durable, ())) == 20)
    assert not any(task.done() for task in (first, *others))
    disk.open.set()
    assert {response.status for response, _ in await asyncio.gather(first, *others)} == {200}
    assert commits(api) == before + 2


async def test_read_of_a_change_waits_until_it_is_written(api: Api) -> None:
    handle = await counter(api)
    assert api.server.durable is not None
    disk = HeldDisk(api.server.durable.store)
    changing = asyncio.create_task(add(api, handle))
    await disk.writing.wait()
    reading = asyncio.create_task(run(api, handle, fetches=["read"]))
    await until(lambda: api.hosted(handle).session.statistics().runs >= 3)
    assert not reading.done()
    disk.open.set()
    assert (await reading)["read"] == [1]
    await changing


async def test_change_of_a_client_that_left_is_written(api: Api, again: Again, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "_LATER_SECONDS", 0.0)
    gate = gates.Gate()
    g = counter_graph()
    g("held", "TestGate", "x", key=gate.key, T=dtypes.float32)
    g("added", "AssignAddVariableOp", "v", "x", dtype=dtypes.float32)
    g("both", "NoOp", "^held", "^added")
    handle = await api.create(g, durable=True)
    await run(api, handle, feeds={"x": [0]}, targets=["set"])
    before = commits(api)
    leaving = asyncio.create_task(api.run(handle, feeds={"x": [4]}, targets=["both"]))
    await gate.entered.wait()
    leaving.cancel()
    await until(lambda: commits(api) > before)
    assert (await run(await again(api), handle, fetches=["read"]))["read"] == [4]


async def test_relaxed_session_answers_before_and_is_written_soon(
    api: Api, again: Again, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await counter(api, durability="relaxed")
    monkeypatch.setattr(group_commit, "_LATER_SECONDS", 0.0)
    assert (await api.call("GET", f"/v1/sessions/{handle}"))[1]["durability"] == "relaxed"
    await until(lambda: api.hosted(handle).durable.settled)  # type: ignore[union-attr]
    assert api.server.durable is not None
    disk = HeldDisk(api.server.durable.store)
    assert (await add(api, handle))[0].status == 200  # although nothing is written yet
    await disk.writing.wait()
    disk.open.set()
    await until(lambda: api.hosted(handle).durable.settled)  # type: ignore[union-attr]
    assert (await run(await again(api), handle, fetches=["read"]))["read"] == [1]


async def test_relaxed_changes_are_written_when_the_server_stops(api: Api, start: Start, folder: Path) -> None:
    handle = await counter(api, durability="relaxed")
    await add(api, handle)
    await api.client.close()
    other = await start(state_path=folder)
    assert (await run(other, handle, fetches=["read"]))["read"] == [1]


# The end of a session


async def test_deleted_session_is_gone_from_the_store(api: Api, again: Again) -> None:
    handle = await counter(api)
    assert (await api.call("DELETE", f"/v1/sessions/{handle}"))[0] == 204
    assert (await (await again(api)).run(handle, fetches=["read"]))[0] == 404


async def test_expired_sessions_are_gone_from_the_store(start: Start, folder: Path) -> None:
    now = 0.0
    api = await start(state_path=folder, clock=lambda: now, sweep_seconds=3600.0)
    used, unused, lasting = [await counter(api, ttl_s=ttl) for ttl in (10, 10, 100)]
    await api.client.close()
    api = await start(state_path=folder, clock=lambda: now, sweep_seconds=3600.0)
    await run(api, used, fetches=["read"])  # opens it
    now = 50.0
    api.server.sessions.close_expired()
    for handle in (used, unused):
        assert (await api.run(handle, fetches=["read"]))[0] == 404
    assert (await run(api, lasting, fetches=["read"]))["read"] == [0]
    await api.client.close()
    api = await start(state_path=folder)
    assert api.server.durable is not None and list(api.server.durable.store.facts) == [lasting]


async def test_session_of_another_owner_is_not_opened(start: Start, folder: Path) -> None:
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in "ab"}
    lines = [f'{name} = {{sha256 = "{digest}", scopes = ["run", "manage"]}}' for name, digest in digests.items()]
    settings = {"state_path": folder, "tokens": "\n".join(lines)}
    api = await start(**settings)
    body = {"graph_def": base64.b64encode(counter_graph().graph_def.SerializeToString()).decode(), "durable": True}
    status, made = await api.call("POST", "/v1/sessions", body, headers={"Authorization": "Bearer a"})
    assert status == 201, made
    await api.client.close()
    api = await start(**settings)
    path = f"/v1/sessions/{made['session_handle']}"
    assert (await api.call("GET", path, headers={"Authorization": "Bearer b"}))[0] == 404
    assert not len(api.server.sessions)
    assert (await api.call("GET", path, headers={"Authorization": "Bearer a"}))[0] == 200


async def test_requests_at_once_open_a_session_once(api: Api, again: Again) -> None:
    handle = await counter(api)
    other = await again(api)
    answers = await asyncio.gather(*(run(other, handle, fetches=["read"]) for _ in range(10)))
    assert all(answer["read"] == [0] for answer in answers)
    assert len(other.server.sessions) == 1


# Keys


async def test_repeated_request_is_answered_from_the_store(api: Api, again: Again) -> None:
    handle = await counter(api)
    response, answer = await add(api, handle, Idempotency_Key='"k"')
    other = await again(api)
    repeated, same = await add(other, handle, Idempotency_Key='"k"')
    assert repeated.headers["Idempotent-Replayed"] == "true" and (repeated.status, same) == (200, answer)
    assert response.headers["Idempotency-Secret"]
    assert (await run(other, handle, fetches=["read"]))["read"] == [1]
    different, _ = await add(other, handle, 2.0, Idempotency_Key='"k"')
    assert different.status == 422


async def test_repeated_creation_is_answered_from_the_store(api: Api, again: Again) -> None:
    body = {"graph_def": base64.b64encode(counter_graph().graph_def.SerializeToString()).decode(), "durable": True}
    path, key = "/v1/sessions", {"Idempotency_Key": '"make"'}
    _, made = await api.raw("POST", path, json.dumps(body).encode(), **key)
    other = await again(api)
    repeated, same = await other.raw("POST", path, json.dumps(body).encode(), **key)
    assert repeated.headers["Idempotent-Replayed"] == "true" and same == made


async def test_interrupted_request_is_not_repeated(api: Api, again: Again) -> None:
    """Its effects may be a part of what was written with another run; which the store knows."""
    gate = gates.Gate()
    g = counter_graph()
    g("held", "TestGate", "x", key=gate.key, T=dtypes.float32)
    handle = await api.create(g, durable=True)
    await run(api, handle, feeds={"x": [0]}, targets=["set"])
    body = json.dumps({"feeds": {"x": [4]}, "fetches": ["held"], "targets": ["add"]}).encode()
    path, key = f"/v1/sessions/{handle}:run", {"Idempotency_Key": '"k"'}
    running = asyncio.create_task(api.raw("POST", path, body, **key))
    await gate.entered.wait()
    assert (await add(api, handle))[0].status == 200
    other = await again(api)
    response, text = await other.raw("POST", path, body, **key)
    assert (response.status, json.loads(text)["reason"]) == (409, "interrupted")
    gate.open.set()
    assert (await running)[0].status == 200
    response, _ = await (await again(api)).raw("POST", path, body, **key)
    assert response.status == 200


async def test_request_that_left_no_trace_is_carried_out_again(api: Api, again: Again) -> None:
    gate = gates.Gate()
    g = gate_graph(gate)
    handle = await api.create(g, durable=True)
    body = json.dumps({"fetches": ["y"]}).encode()
    path, key = f"/v1/sessions/{handle}:run", {"Idempotency_Key": '"k"'}
    running = asyncio.create_task(api.raw("POST", path, body, **key))
    await gate.entered.wait()
    other = await again(api)
    gate.open.set()
    assert (await other.raw("POST", path, body, **key))[0].status == 200
    assert (await running)[0].status == 200


# What cannot be written


async def test_full_disk_is_an_error_and_nothing_more_is_done(api: Api) -> None:
    handle = await counter(api)
    assert api.server.durable is not None
    store = api.server.durable.store
    await store._call(store.ask, "PRAGMA query_only = ON")
    response, answer = await add(api, handle)
    assert (response.status, answer["code"], answer["reason"]) == (507, "DATA_LOSS", "not_durable")
    for _ in range(2):  # refused before it begins
        assert (await add(api, handle))[0].status == 507
    assert (await api.run(handle, fetches=["read"]))[0] == 507  # would tell of what is not durable
    assert (await api.call("GET", "/livez"))[0] == 200
    assert await run(api, await api.create(counter_graph()), feeds={"x": [1]}, fetches=["twice"]) == {"twice": [2]}
    encoded = base64.b64encode(counter_graph().graph_def.SerializeToString()).decode()
    assert (await api.call("POST", "/v1/sessions", {"graph_def": encoded, "durable": True}))[0] == 507
    assert (await api.call("DELETE", f"/v1/sessions/{handle}"))[0] == 507
    await store._call(store.ask, "PRAGMA query_only = OFF")
    assert (await run(api, handle, fetches=["read"]))["read"] == [1]
    assert (await add(api, handle))[0].status == 200


async def test_state_limit_is_an_error_of_the_run(start: Start, folder: Path) -> None:
    api = await start(state_path=folder, max_session_state_bytes=20_000)
    g = counter_graph(size=4000)
    handle = await api.create(g, durable=True)
    await run(api, handle, feeds={"x": [1] * 4000}, targets=["set"])
    tensor = {"name": "a", "datatype": "FP32", "shape": [4000], "data": [1] * 4000}
    path = f"/v1/sessions/{handle}/tensors"
    status, answer = await api.call("POST", path, tensor)
    assert (status, answer["code"], answer["reason"]) == (507, "RESOURCE_EXHAUSTED", "state_limit")
    kept = api.hosted(handle).session.tensors.list()
    assert (await add(api, handle))[0].status == 507
    assert (await api.call("GET", path))[0] == 507
    await api.hosted(handle).session.reset()
    api.hosted(handle).session.tensors.delete(kept[0].handle)
    assert (await api.call("GET", path))[0] == 200


# What is refused


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"durable": 1}, '"durable" must be true or false'),
        ({"durability": "strict"}, 'is for sessions with "durable": true'),
        ({"durable": True, "durability": "half"}, '"durability" must be'),
    ],
)
async def test_wrong_field_is_refused(api: Api, fields: Any, message: str) -> None:
    body = json.dumps({"graph_def": "", **fields}).encode()
    response, text = await api.raw("POST", "/v1/sessions", body)
    assert response.status == 400 and message in json.loads(text)["error"]


async def test_server_without_a_store_refuses(start: Start) -> None:
    api = await start()
    status, answer = await api.call("POST", "/v1/sessions", {"graph_def": "", "durable": True})
    assert status == 400 and "--state DIR" in answer["error"]


@pytest.mark.parametrize("op", ["Barrier", "StageClear", "MutexV2", "IteratorV2"])
async def test_graph_with_other_state_is_refused(api: Api, op: str) -> None:
    g = GraphBuilder()
    attrs: dict[str, Any] = {"MutexV2": {}, "StageClear": {"dtypes": [dtypes.float32]}}.get(op, {})
    if op == "Barrier":
        attrs = {"component_types": [dtypes.float32]}
    if op == "IteratorV2":
        attrs = {"output_types": [dtypes.float32], "output_shapes": [[]], "shared_name": "", "container": ""}
    g("it", op, **attrs)
    encoded = base64.b64encode(g.graph_def.SerializeToString()).decode()
    status, answer = await api.call("POST", "/v1/sessions", {"graph_def": encoded, "durable": True})
    assert (status, answer["node"], answer["op"]) == (501, "it", op)
    handle = await counter(api)
    body = {"graph_def": encoded, "current_graph_version": 0}
    assert (await api.call("POST", f"/v1/sessions/{handle}:extend", body))[0] == 501


async def test_partial_runs_are_refused(api: Api) -> None:
    handle = await counter(api)
    status, answer = await api.call("POST", f"/v1/sessions/{handle}:partialRunSetup", {"fetches": ["read"]})
    assert status == 501 and "Partial runs" in answer["error"]


@pytest.mark.parametrize("media", ["application/octet-stream", "application/x-protobuf"])
async def test_address_asks_for_durability(api: Api, again: Again, media: str) -> None:
    graph = counter_graph().graph_def
    message = graph if media == "application/octet-stream" else proto.CreateSessionRequest(graph_def=graph)
    path, key = "/v1/sessions?name=mine&durable=true&durability=relaxed", {"Idempotency-Key": '"k"'}
    for one in (api, await again(api)):
        response, _ = await one.raw("POST", path, message.SerializeToString(), **key, **{"Content-Type": media})
        assert response.status == 201
        _, told = await one.call("GET", "/v1/sessions/mine")
        assert (told["durable"], told["durability"]) == (True, "relaxed")


@pytest.mark.parametrize(
    ("query", "fields", "message"),
    [
        ("durable=yes", {}, '"durable" must be true or false'),
        ("durability=strict", {}, 'is for sessions with "durable": true'),
        ("durable=true&durability=half", {}, '"durability" must be'),
        ("durable=true", {"durable": False}, '"durable" is not that of the address'),
    ],
)
async def test_wrong_word_of_the_address_is_refused(api: Api, query: str, fields: Any, message: str) -> None:
    body = json.dumps({"graph_def": "", **fields}).encode()
    response, text = await api.raw("POST", f"/v1/sessions?{query}", body)
    assert response.status == 400 and message in json.loads(text)["error"]
