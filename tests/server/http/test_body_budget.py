"""Bodies of all requests together."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest
from aexec_server import ServerConfig
from aexec_server.clients.callers import ANYONE
from aexec_server.http import body_budget
from aexec_server.http.body_budget import BodyBudget

from aexec import errors
from tests.server.conftest import Api, Start, gate_graph, small_graph
from tests.support import gates
from tests.support.waiting import until

RUN = json.dumps({"feeds": {"x": [2]}, "fetches": ["y"]}).encode()


def head(handle: str, size: int) -> bytes:
    return f"POST /v1/sessions/{handle}:run HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode()


async def test_unfinished_bodies_are_bounded_in_sum(start: Start) -> None:
    api = await start(max_body_bytes=50_000, max_buffered_bytes=100_000)
    handle = await api.create(small_graph())
    budget = api.server.body_budget
    async with api.connection() as (_, one), api.connection() as (_, two), api.connection() as (reader, three):
        for writer in (one, two):
            writer.write(head(handle, 50_000) + b" " * 45_000)
        await until(lambda: budget.in_use == 90_000)
        assert (await api.run(handle, feeds={"x": [2]}, fetches=["y"]))[0] == 200
        three.write(head(handle, 50_000) + b" " * 20_000)
        answer = await reader.readuntil(b"}")
        assert answer.startswith(b"HTTP/1.1 429 ") and b"100000" in answer and b"Retry-After" in answer
    await until(lambda: budget.in_use == 0)


async def test_inflated_size_counts(start: Start) -> None:
    api = await start(max_body_bytes=8_000_000, max_buffered_bytes=8_000_000)
    handle = await api.create(small_graph())
    bomb = gzip.compress(RUN + b" " * 7_900_000)
    path = f"/v1/sessions/{handle}:run"
    assert (await api.raw("POST", path, bomb, Content_Encoding="gzip"))[0].status == 200
    assert api.server.body_budget.in_use == 0
    async with api.connection() as (_, writer):
        writer.write(head(handle, 500_000) + b" " * 400_000)
        await until(lambda: api.server.body_budget.in_use == 400_000)
        response, _ = await api.raw("POST", path, bomb, Content_Encoding="gzip")
        assert response.status == 429
        assert api.server.body_budget.in_use == 400_000


async def test_runs_take_their_slots_when_their_bodies_are_there(start: Start) -> None:
    api = await start(max_runs=1)
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    async with api.connection() as (waiting, unfinished), api.connection() as (_, running):
        unfinished.write(head(handle, 20) + b"{")
        await until(lambda: api.server.sessions.live_runs == 1)
        body = b'{"fetches":["y"]}'
        running.write(head(handle, len(body)) + body)
        await gate.entered.wait()
        assert (await api.run(handle, fetches=["y"]))[0] == 429
        unfinished.write(b'"fetches": [] }    ')
        assert (await waiting.readuntil(b"\r\n")).startswith(b"HTTP/1.1 429 ")
        gate.open.set()


async def test_bodies_of_other_requests_count_too(api: Api) -> None:
    async with api.connection() as (_, writer):
        writer.write(b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        await until(lambda: api.server.body_budget.in_use == 1)


def test_budget_is_enough_for_one_body() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="max_buffered_bytes"):
        ServerConfig(max_body_bytes=100, max_buffered_bytes=99)


def test_memory_is_not_returned_when_the_loop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_budget, "_RETURN_AFTER", 0.0)
    failed: list[dict[str, Any]] = []

    async def end() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failed.append(context))
        await loop.shutdown_default_executor()
        with BodyBudget(ServerConfig()).holding(ANYONE, body_budget._RETURN_EVERY):
            pass
        after = asyncio.Event()
        loop.call_later(0.0, after.set)
        await after.wait()

    asyncio.run(end())
    assert not failed
