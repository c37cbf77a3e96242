"""Steps that stop: by request, by a client that leaves, by shutdown."""

from __future__ import annotations

import asyncio
import json
import traceback
from typing import Any

import pytest
from aexec_server.runs import RunHandlers

from aexec.framework import dtypes
from tests.server.conftest import Api, Start, gate_graph
from tests.support import gates
from tests.support.graphs import GraphBuilder
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
    assert (await api.run(handle, fetches=["y"], run_id="r1"))[0] == 200  # that cancellation is spent


@pytest.mark.parametrize("by_header", [False, True])
async def test_a_cancellation_may_overtake_its_run(api: Api, by_header: bool) -> None:
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
    # And there are not more of them than 256.
    table = api.hosted(handle).runs
    for number in range(300):
        with pytest.raises(Exception, match="not known"):
            table.cancel(f"n{number}", "")
    assert (await api.run(handle, fetches=["y"], run_id="n0"))[0] == 200
    assert (await api.run(handle, fetches=["y"], run_id="n299"))[0] == 499


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


async def test_a_client_that_leaves_cancels_its_step(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    async with api.connection() as (_, writer):
        writer.write(request(handle, b'{"fetches": ["y"], "run_id": "gone"}'))
        await gate.entered.wait()
        assert list(api.hosted(handle).runs.live) == ["gone"]
    await until(lambda: not api.hosted(handle).runs.live)
    assert gate.cancelled == 1
    assert api.hosted(handle).session.steps == ()


async def test_of_a_client_that_leaves_no_frame_is_kept(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert frames == ["watched", "serve"]


async def test_a_client_that_leaves_a_thread_kernel_does_not_wait_for_it(api: Api) -> None:
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


async def test_a_client_that_leaves_while_sending(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    async with api.connection() as (_, writer):
        writer.write(request(handle, b'{"fet', 100, "Aexec-Run-Id: half"))
        await until(lambda: "half" in api.hosted(handle).runs.live)
    await until(lambda: not api.hosted(handle).runs.live)
    assert gate.count == 0


async def test_a_run_can_be_cancelled_while_its_body_is_on_the_way(api: Api) -> None:
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


async def test_the_session_goes_on_after_a_client_left(api: Api) -> None:
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    async with api.connection() as (_, writer):
        writer.write(request(handle, b'{"fetches": ["y"]}'))
        await gate.entered.wait()
    await until(lambda: not api.hosted(handle).session.steps)
    gate.open.set()
    assert (await api.run(handle, fetches=["y"]))[0] == 200


async def test_an_extension_ends_even_if_its_client_leaves(api: Api, small: str) -> None:
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
