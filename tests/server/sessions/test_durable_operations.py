"""Operations and events of durable sessions: what they tell of survives the end of the server."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from aexec.framework import dtypes
from tests.server.conftest import Api, Start
from tests.server.durable.graphs import counter_graph
from tests.support import gates
from tests.support.waiting import until

Again = Callable[[], Awaitable[Api]]
LATER = {"Prefer": "respond-async"}


@pytest.fixture
async def api(start: Start, tmp_path: Path) -> Api:
    return await start(state_path=tmp_path / "state")


@pytest.fixture
def again(start: Start, tmp_path: Path) -> Again:
    """A server on what the disk has now, as if the other one had been killed."""
    number = 0

    async def make() -> Api:
        nonlocal number
        number += 1
        copy = tmp_path / f"copy{number}"
        shutil.copytree(tmp_path / "state", copy)
        return await start(state_path=copy)

    return make


async def held(api: Api, gate: gates.Gate, **fields: Any) -> str:
    """A durable session: `held` waits at the gate, `after` is the sum then."""
    g = counter_graph()
    g("held", "TestGate", "x", key=gate.key, T=dtypes.float32)
    g("more", "AssignAddVariableOp", "v", "held", dtype=dtypes.float32)
    g("sum", "ReadVariableOp", "v", "^more", dtype=dtypes.float32)
    handle = await api.create(g, durable=True, **fields)
    assert (await api.run(handle, feeds={"x": [1]}, targets=["set"]))[0] == 200
    return handle


async def begin(api: Api, handle: str, fetch: str = "sum", **headers: str) -> tuple[Any, Any]:
    body = json.dumps({"feeds": {"x": [2]}, "fetches": [fetch]}).encode()
    response, text = await api.raw("POST", f"/v1/sessions/{handle}:run", body, **headers)
    return response, json.loads(text)


def rows(api: Api) -> Awaitable[int]:
    """The number of operations and requests with keys in the store."""
    assert api.server.durable is not None
    store = api.server.durable.store
    return store._call(lambda: int(store.ask("SELECT count(*) FROM answers").fetchone()[0]))


@pytest.mark.parametrize("durability", ["strict", "relaxed"])
async def test_finished_operation_survives(api: Api, again: Again, durability: str) -> None:
    gate = gates.Gate()
    handle = await held(api, gate, durability=durability)
    response, told = await begin(api, handle, **LATER)
    assert (response.status, told["done"]) == (202, False)
    gate.open.set()
    where = response.headers["Location"]
    _, told = await api.call("GET", f"{where}?wait_s=60")
    assert (told["done"], told["response"]["outputs"]["sum"]) == (True, [3])
    if durability == "relaxed":
        assert api.server.durable is not None
        await api.server.durable.flush()
    other = await again()
    assert (await other.call("GET", where))[1] == told
    assert await other.call("GET", f"{where}/response") == (200, told["response"])
    assert (await other.run(handle, fetches=["read"]))[1]["outputs"]["read"] == [3]


async def test_operation_in_flight_was_interrupted(api: Api, again: Again) -> None:
    gate = gates.Gate()
    response, _ = await begin(api, await held(api, gate), **LATER)
    assert response.status == 202
    where = response.headers["Location"]
    other = await again()  # it is on the disk already
    _, told = await other.call("GET", where)
    (details,) = told["error"]["details"]
    assert (told["done"], details["code"], details["reason"]) == (True, "ABORTED", "interrupted")
    gate.open.set()
    assert (await api.call("GET", f"{where}?wait_s=60"))[1]["response"]["outputs"]["sum"] == [3]


async def test_key_of_an_operation_is_answered_with_it(api: Api, again: Again) -> None:
    gate = gates.Gate()
    gate.open.set()
    handle = await held(api, gate)
    key = {"Idempotency-Key": '"k"'}
    response, _ = await begin(api, handle, **LATER, **key)
    where = response.headers["Location"]
    assert (await api.call("GET", f"{where}?wait_s=60"))[1]["done"]
    other = await again()
    response, _ = await begin(other, handle, **LATER, **key)
    assert (response.status, response.headers["Location"]) == (202, where)
    assert (await other.call("GET", where))[1]["response"]["outputs"]["sum"] == [3]


async def test_operation_that_ends_in_time_leaves_nothing(api: Api) -> None:
    gate = gates.Gate()
    gate.open.set()
    response, told = await begin(api, await held(api, gate), Prefer="respond-async, wait=60")
    assert (response.status, told["outputs"]["sum"]) == (200, [3])
    assert api.server.durable is not None
    await api.server.durable.flush()
    assert await rows(api) == 0


@pytest.mark.parametrize("restarted", [False, True])
async def test_deleted_operation_is_gone_from_the_store(api: Api, again: Again, *, restarted: bool) -> None:
    gate = gates.Gate()
    gate.open.set()
    response, _ = await begin(api, await held(api, gate), **LATER)
    where = response.headers["Location"]
    assert (await api.call("GET", f"{where}?wait_s=60"))[1]["done"]
    one = await again() if restarted else api
    assert await rows(one) == 1
    assert (await one.call("DELETE", where))[0] == 204
    assert await rows(one) == 0
    assert (await one.call("GET", where))[0] == 404


async def test_operation_that_cannot_be_written_is_an_error(api: Api) -> None:
    gate = gates.Gate()
    handle = await held(api, gate)
    assert api.server.durable is not None
    store = api.server.durable.store
    await store._call(store.ask, "PRAGMA query_only = ON")
    response, told = await begin(api, handle, **LATER)
    assert (response.status, told["reason"]) == (507, "not_durable")
    await until(lambda: not api.hosted(handle).runs.live)
    assert len(api.server.operations) == 0
    await store._call(store.ask, "PRAGMA query_only = OFF")


async def test_events_tell_of_nothing_that_is_not_on_the_disk(api: Api, again: Again) -> None:
    gate = gates.Gate()
    handle = await held(api, gate)
    body = json.dumps({"feeds": {"x": [2]}, "fetches": ["after", "sum"]}).encode()
    headers = {"Accept": "application/x-ndjson", "Content-Type": "application/json"}
    async with api.client.post(f"/v1/sessions/{handle}:run", data=body, headers=headers) as response:
        assert response.status == 200
        while (event := json.loads(await response.content.readline()))["event"] != "output":
            pass
        assert (event["name"], event["value"]) == ("after", [3])
        other = await again()
        assert (await other.run(handle, fetches=["read"]))[1]["outputs"]["read"] == [3]
        gate.open.set()
        events = [json.loads(line) async for line in response.content]
    assert [event["value"] for event in events if event["event"] == "output"] == [[5]]
    assert events[-1]["event"] == "done"
    assert (await (await again()).run(handle, fetches=["read"]))[1]["outputs"]["read"] == [5]


async def test_events_that_cannot_be_written_end_with_an_error(api: Api) -> None:
    gate = gates.Gate()
    handle = await held(api, gate)
    body = json.dumps({"feeds": {"x": [2]}, "fetches": ["sum"]}).encode()
    headers = {"Accept": "application/x-ndjson", "Content-Type": "application/json"}
    assert api.server.durable is not None
    store = api.server.durable.store
    posting = asyncio.create_task(api.client.post(f"/v1/sessions/{handle}:run", data=body, headers=headers))
    await gate.entered.wait()
    await store._call(store.ask, "PRAGMA query_only = ON")
    gate.open.set()
    async with await posting as response:
        events = [json.loads(line) async for line in response.content]
    assert (events[-1]["event"], events[-1]["reason"]) == ("error", "not_durable")
    assert not [event for event in events if event["event"] == "output"]
    await store._call(store.ask, "PRAGMA query_only = OFF")
