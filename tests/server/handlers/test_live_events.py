"""What follows a server, and a session: events when something has changed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aexec_server.clients.tokens import new_token
from aexec_server.handlers import live_events

from aexec.framework import dtypes
from tests.server.conftest import Api, Start, gate_graph, small_graph
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder


class Events:
    """The events of a stream, as lines."""

    def __init__(self, content: Any) -> None:
        self._content = content

    async def next(self, kind: str) -> dict[str, Any]:
        """The next event of this kind; those of other kinds before it are left out."""
        async for line in self._content:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == kind:
                return event
        raise AssertionError(f"no event {kind}")

    async def rest(self) -> list[str]:
        return [json.loads(line)["event"] async for line in self._content]


@contextlib.asynccontextmanager
async def following(api: Api, path: str, **headers: str) -> AsyncIterator[Events]:
    async with api.client.get(path, headers={"Accept": "application/x-ndjson", **headers}) as response:
        assert response.status == 200 and response.content_type == "application/x-ndjson"
        yield Events(response.content)


def queue_graph() -> GraphBuilder:
    g = GraphBuilder()
    g("queue", "FIFOQueueV2", component_types=[dtypes.float32], shapes=[[]], capacity=3)
    g.placeholder("x", dtypes.float32, [])
    g("put", "QueueEnqueueV2", "queue", "x", Tcomponents=[dtypes.float32])
    return g


async def test_server_is_followed(start: Start) -> None:
    api = await start(graphs={"small": small_graph().graph()})
    async with following(api, "/v1/events") as events:
        seen = await events.next("sessions")
        assert [session["session_handle"] for session in seen["sessions"]] == ["small"]
        assert (seen["sees_status"], seen["may_change_models"]) == (True, False)
        assert (await events.next("status"))["runs"] == 0
        await api.run("small", feeds={"x": [1]}, fetches=["y"])
        assert (await events.next("sessions"))["sessions"][0]["runs"] == 1
        assert (await events.next("status"))["runs"] == 1
        api.server.history.add_point()
        assert (await events.next("point"))["point"]["codes"] == {"OK": 1}


async def test_session_is_followed_until_it_is_closed(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    async with following(api, f"/v1/sessions/{handle}/events") as events:
        assert (await events.next("runs"))["runs"] == []
        run = asyncio.create_task(api.run(handle, fetches=["y"], run_id="r"))
        await gate.entered.wait()
        (seen,) = (await events.next("runs"))["runs"]
        assert seen["run_id"] == "r" and seen["waits_for"][0].startswith("running y (TestGate)")
        gate.open.set()
        assert (await run)[0] == 200
        assert (await events.next("runs"))["runs"] == []
        await api.call("DELETE", f"/v1/sessions/{handle}")
        await events.next("closed")
        assert await events.rest() == []


async def test_queues_are_followed(api: Api) -> None:
    handle = await api.create(queue_graph())
    async with following(api, f"/v1/sessions/{handle}/events") as events:
        assert (await events.next("queues"))["queues"] == []
        await api.run(handle, feeds={"x": 1}, targets=["put"])
        (queue,) = (await events.next("queues"))["queues"]
        assert (queue["name"], queue["size"], queue["capacity"]) == ("queue", 1, 3)


async def test_events_are_server_sent(api: Api) -> None:
    async with api.client.get("/v1/events") as response:
        assert response.content_type == "text/event-stream" and response.headers["Cache-Control"] == "no-store"
        lines = [await response.content.readline() for _ in range(3)]
    assert lines[:2] == [b"id: 1\n", b"event: sessions\n"] and json.loads(lines[2].removeprefix(b"data: "))


async def test_unknown_session_is_not_followed(api: Api) -> None:
    status, _ = await api.call("GET", "/v1/sessions/nobody/events")
    assert status == 404


async def test_figures_are_for_who_may_see_them(start: Start) -> None:
    (reader, first), (admin, second) = new_token(), new_token()
    tokens = f'reader = {{sha256 = "{first}", scopes = ["run"]}}\nroot = {{sha256 = "{second}", scopes = ["admin"]}}\n'
    api = await start(tokens=tokens)
    status, _ = await api.call("GET", "/v1/events")
    assert status == 401
    for token, sees in ((reader, False), (admin, True)):
        bearer = {"Authorization": f"Bearer {token}"}
        status, _ = await api.call("GET", "/v1/status/history", headers=dict(bearer))
        assert status == (200 if sees else 403)
        api.server.history.add_point()
        async with following(api, "/v1/events", **bearer) as events:
            assert (await events.next("sessions"))["sees_status"] is sees
            if sees:
                await events.next("point")


async def test_streams_are_bounded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_events, "_LONGEST_SECONDS", 0.0)
    async with following(api, "/v1/events") as events:
        assert await events.rest() == []


async def test_streams_are_shared_by_clients(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_events, "_MOST_FOLLOWERS", 2)
    api = await start()
    async with following(api, "/v1/events") as one, following(api, "/v1/events") as other:
        await one.next("sessions")
        await other.next("sessions")
        status, refused = await api.call("GET", "/v1/events")
        assert status == 429 and "streams of events" in refused["error"]


async def test_history_has_the_points(api: Api, small: str) -> None:
    await api.run(small, feeds={"x:0": [1]}, fetches=["y:0"])
    api.server.history.add_point()
    status, history = await api.call("GET", "/v1/status/history")
    assert status == 200 and history["interval_s"] == 5 and history["points"][-1]["codes"] == {"OK": 1}
    assert history["points"][-1]["latency"]["p50"] > 0
