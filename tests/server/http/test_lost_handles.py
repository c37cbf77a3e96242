"""Handles say which start of the server has made them."""

from __future__ import annotations

import re

import pytest
from aexec_server.handles import Handles, is_made, new_server_run

from tests.server.conftest import Api, Start, small_graph
from tests.server.handlers.test_partial_runs import set_up, two_step_graph

LATER = {"Prefer": "respond-async"}


def test_handles_end_with_the_start_of_their_server() -> None:
    run = new_server_run()
    here, there = Handles("3-", run), Handles("4-", run)
    handle = here.new()
    assert re.fullmatch(r"3-[0-9a-f]{32}", handle) and handle[-8:-3] == run and handle != here.new()
    assert is_made(handle) and not there.is_of_another_run(handle)
    later = Handles("3-")
    assert later.is_of_another_run(handle) and here.is_of_another_run(later.new())
    for name in ("model", "run-1", "", handle[:-1], f"x{run}", "0" * 32, f"3-{'0' * 32}"):
        assert not here.is_of_another_run(name) and not later.is_of_another_run(name)


async def made_by(api: Api) -> dict[str, str]:
    """A path of each kind of handle."""
    session = await api.create(small_graph())
    async with api.client.post(
        f"/v1/sessions/{session}:run", json={"feeds": {"x": [2]}, "fetches": ["y"]}, headers=LATER
    ) as response:
        operation = response.headers["Location"]
    partial = await set_up(api, await api.create(two_step_graph(), name="named"), feeds=["a", "b"], fetches=["r1"])
    return {
        "Session": f"/v1/sessions/{session}",
        "Operation": operation,
        "Partial run": f"/v1/sessions/named/partialRuns/{partial}:run",
    }


async def test_handles_of_an_earlier_start_are_told_from_those_that_never_were(start: Start) -> None:
    before = await made_by(await start())
    api = await start()
    now = await made_by(api)
    for what, path in before.items():
        method = "POST" if path.endswith(":run") else "GET"
        status, answer = await api.call(method, path, {} if method == "POST" else None)
        assert (status, answer["code"], answer["reason"]) == (404, "NOT_FOUND", "server_restarted")
        assert answer["error"].startswith(f"{what} '") and "the server was restarted" in answer["error"]
        # One of this start that is not there never was, or is gone.
        other = re.sub("[0-9a-f]{32}", api.server.sessions.handles.new(), now[what])
        status, answer = await api.call(method, other, {} if method == "POST" else None)
        assert (status, answer.get("reason")) == (404, None)


@pytest.mark.parametrize(
    "call", ["GET ", "DELETE ", "POST :run", "GET /graph", "GET /tensors/w;0;d", "GET /runs/run-1"]
)
async def test_every_call_to_a_session_of_an_earlier_start_says_so(start: Start, call: str) -> None:
    handle = await (await start()).create(small_graph())
    method, _, rest = call.partition(" ")
    status, answer = await (await start()).call(method, f"/v1/sessions/{handle}{rest}")
    assert (status, answer["reason"]) == (404, "server_restarted")
