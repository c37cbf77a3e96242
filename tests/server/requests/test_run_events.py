"""Events of runs: outputs as they come, progress, the end; server-sent, and line by line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aexec_server.requests import run_traces
from aexec_server.requests.run_stream import RunStream
from aexec_server.requests.run_table import Run
from aexec_server.settings.model_source import ModelSource

import aexec
from aexec import proto
from aexec.framework import dtypes
from tests.server.conftest import Api, Start, small_graph
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.virtual_clock import run_virtual
from tests.support.waiting import until

SSE, NDJSON = "text/event-stream", "application/x-ndjson"


def slow_graph(gate: gates.Gate) -> GraphBuilder:
    """`early` is there at once, `late` waits at the gate."""
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32)
    g("early", "Square", "x", T=dtypes.float32)
    g("late", "TestGate", "x", key=gate.key, T=dtypes.float32)
    g("fails", "TestFail", "late", T=dtypes.float32)
    return g


async def read(content: Any) -> AsyncIterator[tuple[str, Any]]:
    """Server-sent events but pings."""
    kind = ""
    async for line in content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


def posted(api: Api, handle: str, accept: str = SSE, **fields: Any) -> Any:
    body = json.dumps(fields).encode()
    return api.client.post(f"/v1/sessions/{handle}:run", data=body, headers={"Accept": accept})


async def test_outputs_come_as_they_are_made(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(slow_graph(gate))
    async with posted(api, handle, feeds={"x": 3}, fetches=["early", "late"], run_id="r") as response:
        assert (response.status, response.content_type) == (200, SSE)
        assert response.headers["Aexec-Run-Id"] == "r"
        events = read(response.content)
        seen = []
        async for kind, what in events:
            seen.append((kind, what))
            if kind == "output":
                break
        assert seen[-1] == ("output", {"name": "early", "dtype": "float32", "shape": [], "value": 9.0})
        gate.open.set()
        rest = [event async for event in events if event[0] != "progress"]
    assert rest == [
        ("output", {"name": "late", "dtype": "float32", "shape": [], "value": 3.0}),
        ("done", {"run_id": "r"}),
    ]


async def test_lines(api: Api) -> None:
    handle = await api.create(small_graph())
    feeds = [{"name": "x", "datatype": "FP32", "shape": [1], "data": [2]}]
    async with posted(api, handle, NDJSON, feeds=feeds, fetches=["y", "y:0"], run_id="r") as response:
        lines = [json.loads(line) for line in (await response.text()).splitlines()]
    assert response.content_type == NDJSON
    output = {"event": "output", "datatype": "FP32", "shape": [1], "data": [4.0]}
    assert [line for line in lines if line["event"] != "progress"] == [
        {**output, "name": "y"},
        {**output, "name": "y:0"},
        {"event": "done", "run_id": "r"},
    ]


async def test_error_is_the_last_event(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(slow_graph(gate))
    async with posted(api, handle, feeds={"x": 3}, fetches=["early", "fails"]) as response:
        gate.open.set()
        events = [event async for event in read(response.content) if event[0] != "progress"]
    assert [kind for kind, _ in events] == ["output", "error"]
    assert (events[1][1]["code"], events[1][1]["node"]) == ("INVALID_ARGUMENT", "fails")


async def test_run_that_cannot_begin_has_a_status(api: Api) -> None:
    handle = await api.create(small_graph())
    for fields, status in (
        ({"fetches": ["none"]}, 404),
        ({"fetches": 3}, 400),
        ({"feeds": {"x": [1]}, "fetches": [{"name": "y", "parameters": {"binary_data": True}}]}, 400),
    ):
        async with posted(api, handle, **fields) as response:
            assert (response.status, response.content_type) == (status, "application/json")
    assert not api.hosted(handle).runs.live


async def test_client_that_leaves_ends_the_run(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(slow_graph(gate))
    async with posted(api, handle, feeds={"x": 3}, fetches=["late"]) as response:
        await gate.entered.wait()
        response.close()
    await until(lambda: gate.cancelled == 1)
    await until(lambda: not api.hosted(handle).runs.live)


async def test_events_can_be_followed_by_others(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(slow_graph(gate))
    run = asyncio.create_task(api.run(handle, feeds={"x": 3}, fetches=["late"], run_id="r"))
    await gate.entered.wait()
    path = f"/v1/sessions/{handle}/runs/r/events"
    async with (
        api.client.get(path, headers={"Last-Event-ID": "7"}) as first,
        api.client.get(path, headers={"Accept": NDJSON}) as second,
    ):
        assert (await first.content.readline()) == b"id: 8\n"
        assert json.loads(await second.content.readline())["event"] == "progress"
        await api.call("POST", f"/v1/sessions/{handle}/runs/r:cancel", {"reason": "enough"})
        events = [event async for event in read(first.content)]
        lines = [json.loads(line) for line in (await second.text()).splitlines()]
    assert (events[-1][0], events[-1][1]["code"], lines[-1]["event"]) == ("error", "CANCELLED", "error")
    assert (await run)[0] == 499
    assert (await api.call("GET", path))[0] == 404


async def test_outputs_are_bounded(start: Start) -> None:
    api = await start(max_answer_bytes=10)
    handle = await api.create(small_graph())
    async with posted(api, handle, feeds={"x": [1, 2, 3]}, fetches=["y"]) as response:
        events = [event async for event in read(response.content) if event[0] != "progress"]
    assert events[-1][1]["code"] == "RESOURCE_EXHAUSTED"


async def test_infer_stream(api: Api) -> None:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    g("y", "Square", "x", T=dtypes.float32)
    await api.server.models.load("m", ModelSource(g.graph()))
    body = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [3]}]}
    async with api.client.post("/v2/models/m/infer_stream", data=json.dumps(body)) as response:
        events = [event async for event in read(response.content) if event[0] != "progress"]
    output = {"name": "y", "datatype": "FP32", "shape": [1], "data": [9.0]}
    assert events[0] == ("output", {"model_name": "m", "model_version": "1", "outputs": [output]})
    assert [kind for kind, _ in events] == ["output", "done"]
    async with api.client.post("/v2/models/m/infer_stream", data=b"{}") as response:
        assert response.status == 400


async def test_traces(api: Api) -> None:
    handle = await api.create(small_graph())
    options = {"trace_level": "FULL_TRACE"}
    for run_id in ("a", "b"):
        await api.run(handle, feeds={"x": [1]}, fetches=["y"], options=options, run_id=run_id)
    await api.run(handle, feeds={"x": [1]}, fetches=["fails"], options=options, run_id="fails")
    await api.run(handle, feeds={"x": [1]}, fetches=["y"], run_id="plain")
    for run_id in ("a", "b", "fails"):
        status, trace = await api.call("GET", f"/v1/sessions/{handle}/runs/{run_id}/trace")
        assert status == 200 and trace["traceEvents"], run_id
        assert trace["phases"]["running"] > 0 and trace["phases"].keys() == {
            "receiving",
            "in_line",
            "preparing",
            "running",
            "encoding",
        }
    status, answer = await api.call("GET", f"/v1/sessions/{handle}/runs/plain/trace")
    assert (status, answer["code"]) == (404, "NOT_FOUND")


async def nothing() -> None:
    """All that an event may tell of is on the disk."""


def test_pings_and_progress_by_the_clock() -> None:
    doing = {"ready": 0}

    async def watch() -> list[tuple[str, float]]:
        stream = RunStream(lambda run: dict(doing), 100, nothing)
        stream.attach(Run("r", 0.0))
        loop = asyncio.get_running_loop()
        began, seen = loop.time(), []
        async for event in stream.events():
            seen.append((event.kind, loop.time() - began))
            if len(seen) == 3:
                doing["ready"] = 1
            if len(seen) == 5:
                stream.end(None)
        return seen

    assert run_virtual(watch()) == [
        ("progress", 0),
        ("ping", 15),
        ("ping", 30),
        ("progress", 31),
        ("ping", 46),
        ("done", 46),
    ]


async def test_slow_reader_keeps_no_events_in_memory() -> None:
    calls = 0

    def progress(run: Run) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        return {"calls": calls}

    stream = RunStream(progress, 100, nothing)
    stream.attach(Run("r", 0.0))
    events = stream.events(progress_seconds=0.0)
    assert (await anext(events)).what == {"calls": 1}
    for _ in range(100):
        await asyncio.sleep(0)  # nobody reads
    assert calls == 1
    stream.end(None)
    assert [event.kind async for event in events] == ["done"]


def test_traces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_traces, "_MAX_TRACES", 1)
    table = run_traces.TraceTable()
    for name in ("a", "b"):
        table.add(name, aexec.RunMetadata(step_stats=proto.StepStats()), run_traces.Phases())
    assert table.find("a") is None and table.find("b") is not None
