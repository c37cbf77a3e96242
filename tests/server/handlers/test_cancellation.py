"""Steps that stop: by request, by a client that leaves, by shutdown."""

from __future__ import annotations

import asyncio
import json
import traceback
from typing import Any

import pytest
from aexec_server.handlers.runs import RunHandlers
from aexec_server.http import bodies
from aexec_server.requests.run_response import people_answer

from aexec.framework import dtypes
from tests.server.conftest import Api, Start, gate_graph
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until


async def begun(api: Api, run_id: str = "r1") -> tuple[str, gates.Gate, asyncio.Task[tuple[int, dict[str, object]]]]:
    """A run that waits at its gate."""
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    run = asyncio.create_task(api.run(handle, fetches=["y"], run_id=run_id))
    await gate.entered.wait()
    return handle, gate, run


async def cancel(api: Api, handle: str, run_id: str, body: object = None) -> tuple[int, dict[str, object]]:
    return await api.call("POST", f"/v1/sessions/{handle}/runs/{run_id}:cancel", body)


async def test_cancel_by_id(api: Api) -> None:
    handle, gate, run = await begun(api)
    assert await cancel(api, handle, "r1", {"reason": "changed my mind"}) == (200, {"cancelled": True})
    status, answer = await run
    assert (status, answer["code"]) == (499, "CANCELLED")
    assert "changed my mind" in str(answer["error"])
    assert gate.cancelled == 1


async def test_cancel_is_idempotent(api: Api) -> None:
    handle, _, run = await begun(api)
    for _ in range(3):
        assert await cancel(api, handle, "r1") == (200, {"cancelled": True})
    await run
    assert await cancel(api, handle, "r1") == (200, {"cancelled": True})


async def test_cancel_of_a_run_that_has_ended(api: Api) -> None:
    handle, gate, run = await begun(api)
    gate.open.set()
    assert (await run)[0] == 200
    assert await cancel(api, handle, "r1") == (200, {"cancelled": False})
    assert await cancel(api, handle, "r1") == (200, {"cancelled": False})


@pytest.mark.parametrize("first", ["cancelled", "cancelled before it began", "successful", "failed"])
@pytest.mark.parametrize("by_header", [False, True])
async def test_cancellation_of_a_used_id_is_for_the_next_run_of_that_id(api: Api, first: str, by_header: bool) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))

    async def run(fetch: str = "y") -> int:
        body: dict[str, object] = {"fetches": [fetch]} if by_header else {"fetches": [fetch], "run_id": "r1"}
        headers = {"Aexec-Run-Id": "r1"} if by_header else {}
        return (await api.call("POST", f"/v1/sessions/{handle}:run", body, headers=headers))[0]

    if first == "cancelled before it began":
        await cancel(api, handle, "r1")
        assert await run() == 499
    elif first == "failed":
        assert await run("nothing") == 404
    else:
        running = asyncio.create_task(run())
        await gate.entered.wait()
        if first == "cancelled":
            await cancel(api, handle, "r1")
        gate.open.set()
        assert await running == (499 if first == "cancelled" else 200)
    gate.open.set()
    count = gate.count
    assert await cancel(api, handle, "r1") == (200, {"cancelled": first.startswith("cancelled")})
    assert await run() == 499
    assert gate.count == count
    assert await run() == 200  # the cancellation is spent


async def test_run_of_a_used_id_is_cancelled_in_flight(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    for number in (1, 2):
        running = asyncio.create_task(api.run(handle, fetches=["y"], run_id="r1"))
        await until(lambda number=number: gate.count == number)  # type: ignore[misc]
        assert await cancel(api, handle, "r1") == (200, {"cancelled": True})
        assert (await running)[0] == 499


async def test_run_that_is_over_is_not_said_to_be_cancelled_while_its_answer_is_written(
    api: Api, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, cancelled = asyncio.Event(), asyncio.Event()
    beside = bodies.beside

    async def slow(nanoseconds: float, work: Any, *arguments: Any, deadline: float | None = None) -> Any:
        if work is people_answer:
            writing.set()
            await cancelled.wait()
        return await beside(nanoseconds, work, *arguments, deadline=deadline)

    for _ in range(10):  # compiled by then: such a run has no step once it is over
        assert (await api.run(small, feeds={"x": [1, 2, 3]}, fetches=["y"]))[0] == 200
    monkeypatch.setattr(bodies, "beside", slow)
    running = asyncio.create_task(api.run(small, feeds={"x": [1, 2, 3]}, fetches=["y"], run_id="r1"))
    await writing.wait()
    answer = await cancel(api, small, "r1")
    cancelled.set()
    assert (await running)[0] == 200
    assert answer == (200, {"cancelled": False})


async def test_trace_of_an_earlier_run_is_not_that_of_a_later_one_of_its_id(api: Api, small: str) -> None:
    asked: dict[str, Any] = {"feeds": {"x": [1, 2, 3]}, "fetches": ["y"], "run_id": "r1"}
    await api.run(small, **asked, options={"trace_level": "FULL_TRACE"})
    path = f"/v1/sessions/{small}/runs/r1/trace"
    assert (await api.call("GET", path))[0] == 200
    await api.run(small, **asked)
    assert (await api.call("GET", path))[0] == 404


async def test_ids_that_clients_chose_are_not_given_to_other_runs(api: Api, small: str) -> None:
    asked: dict[str, Any] = {"feeds": {"x": [1, 2, 3]}, "fetches": ["y"]}
    _, answer = await api.run(small, **asked)
    name = f"run-{int(answer['run_id'].removeprefix('run-')) + 2}"
    await api.run(small, **asked, run_id=name)
    _, answer = await api.run(small, **asked)
    assert answer["run_id"] != name


@pytest.mark.parametrize("by_header", [False, True])
async def test_cancellation_may_overtake_its_run(api: Api, by_header: bool) -> None:
    gate = gates.Gate()
    gate.open.set()
    handle = await api.create(gate_graph(gate))
    status, answer = await cancel(api, handle, "early", {"reason": "too late"})
    assert (status, answer["code"]) == (404, "NOT_FOUND")
    body = {"fetches": ["y"]} if by_header else {"fetches": ["y"], "run_id": "early"}
    headers = {"Aexec-Run-Id": "early"} if by_header else {}
    for status in (499, 200):  # it holds once
        got, answer = await api.call("POST", f"/v1/sessions/{handle}:run", body, headers=dict(headers))
        assert got == status, answer
        assert gate.count == (0 if status == 499 else 1)


async def test_cancellations_ahead_are_forgotten(start: Start) -> None:
    now = 0.0
    api = await start(clock=lambda: now)
    gate = gates.Gate()
    gate.open.set()
    handle = await api.create(gate_graph(gate))
    await cancel(api, handle, "late")
    now = 61.0
    assert (await api.run(handle, fetches=["y"], run_id="late"))[0] == 200


@pytest.mark.parametrize("body", [b"[]", b'{"reason": 1}', b'{"why": ""}', b"{"])
async def test_wrong_cancellations(api: Api, small: str, body: bytes) -> None:
    response, _ = await api.raw("POST", f"/v1/sessions/{small}/runs/r1:cancel", body)
    assert response.status == 400


def request(handle: str, body: bytes, length: int | None = None, *headers: str) -> bytes:
    lines = [
        f"POST /v1/sessions/{handle}:run HTTP/1.1",
        "Host: localhost",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def test_client_that_leaves_cancels_its_step(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    async with api.connection() as (_, writer):
        writer.write(request(handle, b'{"fetches": ["y"], "run_id": "gone"}'))
        await gate.entered.wait()
        assert list(api.hosted(handle).runs.live) == ["gone"]
    await until(lambda: not api.hosted(handle).runs.live)
    assert gate.cancelled == 1
    assert api.hosted(handle).session.steps == ()


async def test_frames_of_a_client_that_left_are_freed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a thousand made the garbage collector look through all of them while they left."""
    frames: list[str] = []
    serve = RunHandlers.serve

    async def watched(*args: Any, **kwargs: Any) -> Any:
        try:
            return await serve(*args, **kwargs)
        except asyncio.CancelledError as left:
            frames.extend(frame.f_code.co_name for frame, _ in traceback.walk_tb(left.__traceback__))
            raise

    monkeypatch.setattr(RunHandlers, "serve", watched)
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    async with api.connection() as (_, writer):
        writer.write(request(handle, b'{"fetches": ["y"]}'))
        await gate.entered.wait()
    await until(lambda: not api.hosted(handle).runs.live)
    assert frames == ["watched", "_serve"]


async def test_client_that_leaves_a_thread_kernel_does_not_wait_for_it(api: Api) -> None:
    gate = gates.ThreadGate()
    g = GraphBuilder()
    g.placeholder("x")
    g("y", "TestThreadGate", "x", key=gate.key, T=dtypes.float32)
    handle = await api.create(g)
    async with api.connection() as (_, writer):
        writer.write(request(handle, b'{"feeds": {"x": 1}, "fetches": ["y"]}'))
        await until(gate.entered.is_set)
    await until(lambda: not api.hosted(handle).session.steps)
    assert not gate.left.is_set()
    gate.open.set()
    await until(gate.left.is_set)


async def test_client_that_leaves_while_sending(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    async with api.connection() as (_, writer):
        writer.write(request(handle, b'{"fet', 100, "Aexec-Run-Id: half"))
        await until(lambda: "half" in api.hosted(handle).runs.live)
    await until(lambda: not api.hosted(handle).runs.live)
    assert gate.count == 0


async def test_run_can_be_cancelled_while_its_body_is_on_the_way(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    async with api.connection() as (reader, writer):
        body = b'{"fetches": ["y"]}'
        writer.write(request(handle, body[:5], len(body), "Aexec-Run-Id: slow"))
        await until(lambda: "slow" in api.hosted(handle).runs.live)
        _, described = await api.call("GET", f"/v1/sessions/{handle}/runs/slow")
        assert described["state"] == "pending"
        assert await cancel(api, handle, "slow") == (200, {"cancelled": True})
        writer.write(body[5:])
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 499 ")
        assert gate.count == 0


async def test_session_goes_on_after_a_client_left(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    async with api.connection() as (_, writer):
        writer.write(request(handle, b'{"fetches": ["y"]}'))
        await gate.entered.wait()
    await until(lambda: not api.hosted(handle).session.steps)
    gate.open.set()
    assert (await api.run(handle, fetches=["y"]))[0] == 200


async def test_extension_ends_even_if_its_client_leaves(api: Api, small: str) -> None:
    """Version and graph never part."""
    hosted = api.hosted(small)
    g = GraphBuilder()
    g("z", "Neg", "y", T=dtypes.float32)
    task = asyncio.create_task(hosted.extend(g.graph_def, 0))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: hosted.graph_version == 1)
    assert hosted.session.graph.find("z")


async def test_stopping_the_server_cancels_runs_with_an_answer(start: Start) -> None:
    api = await start()
    _, gate, run = await begun(api)
    await api.client.app.shutdown()  # type: ignore[union-attr]
    status, answer = await run
    assert (status, answer["code"]) == (499, "CANCELLED") and "shutdown" in json.dumps(answer)
    assert gate.cancelled == 1
