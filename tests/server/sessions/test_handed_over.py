"""A store of durable sessions goes from one server to another while both serve."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from aexec_server.durable import store_opening

from tests.server.conftest import Api, Start, gate_graph
from tests.server.durable.graphs import counter_graph
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder


async def add(api: Api, handle: str, **headers: str) -> tuple[int, str, bool]:
    """(status, reason, whether the answer says when to ask again) of a run that adds 1."""
    response, text = await api.raw(
        "POST", f"/v1/sessions/{handle}:run", b'{"feeds": {"x": [1]}, "targets": ["add"]}', **headers
    )
    return response.status, "handed_over" if b'"handed_over"' in text else "", "Retry-After" in response.headers


REFUSED = (503, "handed_over", True)


async def create(api: Api, g: GraphBuilder, **fields: Any) -> int:
    encoded = base64.b64encode(g.graph_def.SerializeToString()).decode()
    return (await api.call("POST", "/v1/sessions", {"graph_def": encoded, **fields}))[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


async def counter(api: Api) -> str:
    handle = await api.create(counter_graph(), durable=True)
    assert (await api.run(handle, feeds={"x": [0]}, targets=["set"]))[0] == 200
    return handle


async def test_requests_wait_for_the_store_and_no_longer(
    start: Start, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_opening, "_MOST_SECONDS", 0.05)
    old = await start(state_path=folder)
    handle = await counter(old)
    new = await start(state_path=folder, reuse_port=True)
    assert await add(new, handle) == REFUSED
    assert await create(new, counter_graph(), durable=True) == 503
    assert (await new.call("GET", "/v1/sessions/unknown"))[0] == 404
    mine = await new.create(counter_graph())
    assert (await new.run(mine, feeds={"x": [1]}, targets=["set"]))[0] == 200
    assert await add(old, handle) == (200, "", False)


async def test_waiting_request_goes_on_when_the_store_is_given_up(start: Start, folder: Path) -> None:
    old = await start(state_path=folder)
    handle, plain = await counter(old), await old.create(counter_graph())
    key = {"Idempotency-Key": '"k"'}
    assert await add(old, handle, **key) == (200, "", False)
    new = await start(state_path=folder, reuse_port=True)
    waiting = [asyncio.create_task(add(new, handle, **headers)) for headers in ({}, key, {})]
    assert old.server.durable is not None
    await old.server.durable.give_up()
    assert await asyncio.gather(*waiting) == [(200, "", False)] * 3
    status, answer = await new.run(handle, fetches=["read"])
    assert (status, answer["outputs"]["read"]) == (200, [3])  # the one with the key was repeated
    assert await add(old, handle) == REFUSED
    assert await create(old, counter_graph(), durable=True) == 503
    assert (await old.call("GET", "/v1/sessions/unknown"))[0] == 404
    assert (await old.run(plain, feeds={"x": [1]}, targets=["set"]))[0] == 200


async def test_run_in_flight_ends_before_the_store_is_given_up(start: Start, folder: Path) -> None:
    old = await start(state_path=folder)
    gate = gates.Gate()
    handle = await old.create(gate_graph(gate), durable=True)
    running = asyncio.create_task(old.run(handle, fetches=["y"]))
    await gate.entered.wait()
    assert old.server.durable is not None
    giving_up = asyncio.create_task(old.server.durable.give_up())
    while (await old.run(handle, fetches=["y"]))[0] != 503:
        pass
    assert not giving_up.done()
    gate.open.set()
    assert (await running)[0] == 200
    await giving_up


async def test_store_that_is_asked_for_twice_is_given_up_once(start: Start, folder: Path) -> None:
    """A session host is told by its front, and finds the process that waits when it stops itself."""
    old = await start(state_path=folder)
    handle = await counter(old)
    hosted, durable = old.hosted(handle), old.server.durable
    assert durable is not None
    with hosted.in_use():  # by a request that is being read, say
        giving_up = [asyncio.create_task(durable.give_up()) for _ in range(2)]
        for _ in range(20):  # time in which the second one would close the store
            assert await add(old, handle) == REFUSED
        assert not any(task.done() for task in giving_up)
    await asyncio.gather(*giving_up)


async def test_run_that_does_not_end_is_cancelled(start: Start, folder: Path) -> None:
    old = await start(state_path=folder, drain_seconds=0.05)
    gate = gates.Gate()
    handle = await old.create(gate_graph(gate), durable=True)
    running = asyncio.create_task(old.run(handle, fetches=["y"]))
    await gate.entered.wait()
    assert old.server.durable is not None
    await old.server.durable.give_up()
    status, answer = await running
    assert status == 499 and "shutdown" in answer["error"]
