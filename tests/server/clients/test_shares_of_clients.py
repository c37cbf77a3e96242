"""Whatever one client takes or leaves behind, another one is served."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
from typing import Any

import pytest
from aexec_server.requests import partial_step

from tests.server.conftest import RELAYED, Api, Start, gate_graph, small_graph
from tests.server.handlers.test_partial_runs import part, set_up, two_step_graph
from tests.support import gates
from tests.support.waiting import until

# By a relay of these tests all connections come from one address.
pytestmark = pytest.mark.skipif(RELAYED, reason="clients are told apart by their addresses")

RUN = {"feeds": {"x": [2]}, "fetches": ["y"]}
PARTS = {"feeds": ["a", "b"], "fetches": ["r1"]}


async def created(api: Api) -> int:
    """The status of making a session."""
    return (await api.call("POST", "/v1/sessions", {"graph_def": {}}))[0]


async def test_partial_runs_that_are_left_refuse_nobody_else(start: Start) -> None:
    api = await start(max_partial_runs=16, max_runs=4)
    session = await api.create(two_step_graph())
    for _ in range(14):
        await set_up(api, session, **PARTS)
    status, answer = await api.call("POST", f"/v1/sessions/{session}:partialRunSetup", PARTS)
    assert (status, answer["code"]) == (429, "RESOURCE_EXHAUSTED")
    assert "has 14 of the 16 partial runs" in answer["error"] and "cancel them" in answer["error"]
    # They are no runs in flight, neither for who has left them nor for others.
    assert (await api.run(session, feeds={"a": 1, "b": 2}, fetches=["r1"]))[0] == 200
    async with api.elsewhere() as other:
        theirs = await other.create(two_step_graph())
        handle = await set_up(other, theirs, **PARTS)
        assert (await part(other, theirs, handle, feeds={"a": 1, "b": 2}, fetches=["r1"]))[0] == 200
        await until(lambda: api.server.admission.shares.in_use == 0)


async def test_part_that_is_waited_for_is_a_run_in_flight(start: Start) -> None:
    api = await start(max_runs=1)
    gate = gates.Gate()
    session = await api.create(two_step_graph(gate))
    handle = await set_up(api, session, feeds=["a", "b"], fetches=["waits", "r1"])
    assert api.server.admission.shares.in_use == 0
    waiting = asyncio.create_task(part(api, session, handle, feeds={"a": 1}, fetches=["waits"]))
    await gate.entered.wait()
    assert (await api.run(session, feeds={"a": 1, "b": 2}, fetches=["r1"]))[0] == 429
    assert (await part(api, session, handle, feeds={"b": 1}, fetches=["r1"]))[0] == 429
    gate.open.set()
    assert (await waiting)[0] == 200
    assert (await part(api, session, handle, feeds={"b": 1}, fetches=["r1"]))[0] == 200
    await until(lambda: not api.hosted(session).runs.live)


async def test_partial_run_ends_sooner_when_its_connection_is_closed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_step, "LEFT_SECONDS", 0.02)
    api = await start()
    session = await api.create(two_step_graph())
    kept = await set_up(api, session, **PARTS)
    async with api.elsewhere() as other:
        left = await set_up(other, session, **PARTS)
    live = api.hosted(session).runs.live
    await until(lambda: left not in live)
    assert kept in live
    status, answer = await part(api, session, left, feeds={"a": 1, "b": 1}, fetches=["r1"])
    assert (status, answer["code"]) == (499, "CANCELLED") and "its client has left" in answer["error"]
    assert (await part(api, session, kept, feeds={"a": 1, "b": 1}, fetches=["r1"]))[0] == 200


async def test_partial_run_goes_on_while_somebody_waits_for_a_part(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_step, "LEFT_SECONDS", 0.01)
    api = await start()
    gate = gates.Gate()
    session = await api.create(two_step_graph(gate))
    handle = await set_up(api, session, feeds=["a", "b"], fetches=["waits", "r1"])
    waiting = asyncio.create_task(part(api, session, handle, feeds={"a": 1}, fetches=["waits"]))
    await gate.entered.wait()
    steps = api.hosted(session).partial_steps
    async with api.elsewhere() as other:  # a part that feeds, on a connection that is closed then
        assert (await part(other, session, handle, feeds={"b": 1}))[0] == 200
    for _ in range(3):  # it is looked whether its client has left
        looked = steps[handle]._timer
        await until(lambda looked=looked: steps[handle]._timer is not looked)
    gate.open.set()
    assert (await waiting)[0] == 200


async def test_partial_run_behind_a_front_outlasts_the_fronts_connection(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_step, "LEFT_SECONDS", 0.01)
    api = await start(caller_key="k")
    session = await api.create(two_step_graph())
    async with api.elsewhere() as other:
        handle = await set_up(other, session, **PARTS)
    for _ in range(3):  # it is looked whether its client has left
        looked = api.hosted(session).partial_steps[handle]._timer
        await until(lambda looked=looked: api.hosted(session).partial_steps[handle]._timer is not looked)
    assert (await part(api, session, handle, feeds={"a": 1, "b": 1}, fetches=["r1"]))[0] == 200


async def test_runs_of_one_client_leave_the_last_share(start: Start) -> None:
    api = await start(max_runs=8)
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    running = [asyncio.create_task(api.run(handle, fetches=["y"])) for _ in range(7)]
    await until(lambda: gate.count == 7)
    response, body = await api.raw("POST", f"/v1/sessions/{handle}:run", b'{"fetches": ["y"]}')
    assert response.status == 429 and response.headers["Retry-After"]
    assert b"Whoever asks from 127.0.0.1 has 7 of the 8 runs in flight" in body
    async with api.elsewhere() as other:
        mine = await other.create(small_graph())
        assert (await other.run(mine, **RUN))[0] == 200
    gate.open.set()
    assert {status for status, _ in await asyncio.gather(*running)} == {200}


async def test_sessions_of_one_client_leave_the_last_share(start: Start) -> None:
    api = await start(max_sessions=16)
    assert [await created(api) for _ in range(15)] == [201] * 14 + [429]
    async with api.elsewhere() as other, api.elsewhere("127.0.0.3") as third:
        assert [await created(other) for _ in range(2)] == [201, 429]
        assert [await created(third) for _ in range(2)] == [201, 429]
    for hosted in api.server.sessions:
        await api.server.sessions.delete(hosted)
    assert api.server.sessions.shares.in_use == 0 and not api.server.sessions.shares.held


async def test_session_that_cannot_be_made_holds_nothing(api: Api) -> None:
    for body in ({"graph_def": {"node": [{"name": "n", "op": "None"}]}}, {"graph_def": {}, "ttl_s": -1}):
        assert (await api.call("POST", "/v1/sessions", body))[0] >= 400
    assert api.server.sessions.shares.in_use == 0


async def test_bodies_that_stop_short_leave_room_for_others(start: Start) -> None:
    api = await start(max_body_bytes=50_000)
    handle = await api.create(small_graph())
    head = f"POST /v1/sessions/{handle}:run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50000\r\n\r\n".encode()
    shares = api.server.body_budget.shares
    async with contextlib.AsyncExitStack() as stack:
        stalled = [await stack.enter_async_context(api.connection()) for _ in range(8)]
        for _, writer in stalled[:7]:
            writer.write(head + b" " * 49_990)
        await until(lambda: shares.in_use == 7 * 49_990)
        reader, writer = stalled[7]
        writer.write(head + b" " * 49_990)
        answer = await reader.readuntil(b"}")
        assert answer.startswith(b"HTTP/1.1 429 ") and b"bytes of bodies" in answer
        other = await stack.enter_async_context(api.elsewhere())
        body = json.dumps(RUN).encode() + b" " * 49_900
        assert (await other.raw("POST", f"/v1/sessions/{handle}:run", body))[0].status == 200
    await until(lambda: shares.in_use == 0)


async def test_body_that_stops_short_is_given_up_however_fast_it_came(start: Start) -> None:
    api = await start(slow_seconds=0.05, body_seconds=60.0)
    handle = await api.create(small_graph())
    async with api.connection() as (reader, writer):
        head = f"POST /v1/sessions/{handle}:run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
        writer.write(head.encode() + b" " * 999_990)
        answer = await reader.readuntil(b"}")
        assert answer.startswith(b"HTTP/1.1 408 ") and b"10000 bytes have to come in a second" in answer


async def test_results_of_one_client_leave_room_for_others(start: Start) -> None:
    api = await start(max_stored_bytes=80_000)
    handle = await api.create(small_graph())

    async def result(of: Api, elements: int) -> Any:
        body = json.dumps({"feeds": {"x": [1.5] * elements}, "fetches": ["y"]}).encode()
        response, _ = await of.raw("POST", f"/v1/sessions/{handle}:run", body, Prefer="respond-async")
        assert response.status == 202
        return (await of.call("GET", f"{response.headers['Location']}?wait_s=60"))[1]

    for _ in range(2):
        assert "response" in await result(api, 6000)
    assert "is not kept" in (await result(api, 6000))["error"]["message"]
    async with api.elsewhere() as other:
        assert "response" in await result(other, 1000)


async def test_shared_resources_are_in_the_metrics(start: Start) -> None:
    api = await start(max_sessions=2)
    assert [await created(api) for _ in range(3)] == [201, 201, 429]
    _, text = await api.call("GET", "/metrics")
    for line in (
        'aexec_shared_in_use{kind="sessions"} 2.0',
        'aexec_shared_limit{kind="sessions"} 2.0',
        'aexec_shared_largest{kind="sessions"} 2.0',
        'aexec_shared_refusals_total{kind="sessions"} 1.0',
        'aexec_shared_limit{kind="partial_runs"} 1000.0',
    ):
        assert line in text
    for kind in ("runs", "body_bytes", "operations", "result_bytes", "keys", "stored_bytes"):
        assert f'aexec_shared_in_use{{kind="{kind}"}}' in text


async def test_limits_of_one_client_are_settings(start: Start) -> None:
    api = await start(max_client_sessions=1, max_client_partial_runs=1, max_client_runs=1)
    gate = gates.Gate()
    session = await api.create(two_step_graph(gate))
    assert await created(api) == 429
    await set_up(api, session, **PARTS)
    assert (await api.call("POST", f"/v1/sessions/{session}:partialRunSetup", PARTS))[0] == 429
    running = asyncio.create_task(api.run(session, feeds={"a": 1}, fetches=["waits"]))
    await gate.entered.wait()
    assert (await api.run(session, feeds={"a": 1, "b": 1}, fetches=["r1"]))[0] == 429
    gate.open.set()
    assert (await running)[0] == 200


class Crowd:
    """Clients that do anything, at random, and leave whenever they like."""

    def __init__(self, rng: random.Random, clients: list[Api], gate: gates.Gate) -> None:
        self.rng = rng
        self.clients = clients
        self.gate = gate
        self.sessions: list[str] = []
        self.partials: list[tuple[str, str]] = []
        self.operations: list[str] = []
        self.waiting: list[asyncio.Task[Any]] = []

    @property
    def session(self) -> str:
        return self.rng.choice(self.sessions)

    async def create(self, api: Api) -> None:
        body = {"graph_def": encoded(self.gate)} if self.rng.random() < 0.8 else {"graph_def": {"node": [{"op": "No"}]}}
        key = {"Idempotency-Key": f"k{self.rng.randrange(5)}"} if self.rng.random() < 0.3 else {}
        status, answer = await api.call("POST", "/v1/sessions", body, headers=key)
        if status == 201 and answer["session_handle"] not in self.sessions:
            self.sessions.append(answer["session_handle"])

    async def delete(self, api: Api) -> None:
        if len(self.sessions) > 1:
            session = self.session
            self.sessions.remove(session)
            await api.call("DELETE", f"/v1/sessions/{session}")

    async def set_up(self, api: Api) -> None:
        path, session = ":partialRunSetup", self.session
        asked = PARTS if self.rng.random() < 0.8 else {"feeds": ["none"], "fetches": ["r1"]}
        status, answer = await api.call("POST", f"/v1/sessions/{session}{path}", asked)
        if status == 200:
            self.partials.append((session, answer["partial_run_handle"]))

    async def part(self, api: Api) -> None:
        if self.partials:
            one = self.rng.choice(self.partials)
            fields = self.rng.choice([{"feeds": {"a": 1}}, {"feeds": {"b": 1}, "fetches": ["r1"]}, {"feeds": {"x": 1}}])
            await part(api, *one, **fields)

    async def cancel(self, api: Api) -> None:
        session, run = self.rng.choice([*self.partials, (self.session, f"r{self.rng.randrange(4)}")])
        await api.call("POST", f"/v1/sessions/{session}/runs/{run}:cancel")

    async def run(self, api: Api) -> None:
        fields = self.rng.choice(
            [
                {"feeds": {"a": 1, "b": 2}, "fetches": ["r1"]},
                {"fetches": ["none"]},
                {"run_id": f"r{self.rng.randrange(4)}"},
            ]
        )
        await api.run(self.session, **fields)

    async def run_later(self, api: Api) -> None:
        body = json.dumps({"feeds": {"a": 1, "b": 2}, "fetches": ["r1"]}).encode()
        response, _ = await api.raw("POST", f"/v1/sessions/{self.session}:run", body, Prefer="respond-async")
        if response.status == 202:
            self.operations.append(response.headers["Location"])

    async def wait(self, api: Api) -> None:
        run = api.run(self.session, feeds={"a": 1}, fetches=["waits"])
        self.waiting.append(asyncio.create_task(run))
        await asyncio.sleep(0)

    async def leave(self, api: Api) -> None:
        if self.waiting:
            task = self.waiting.pop(self.rng.randrange(len(self.waiting)))
            task.cancel()
            await asyncio.wait([task])

    async def stop_short(self, api: Api) -> None:
        path = self.rng.choice([":run", ":partialRunSetup", ":extend"])
        head = f"POST /v1/sessions/{self.session}{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n"
        async with api.connection() as (_, writer):
            writer.write(head.encode() + b" " * self.rng.randrange(900))
            await writer.drain()

    async def act(self) -> None:
        acts = [self.create, self.delete, self.set_up, self.part, self.cancel, self.run, self.run_later, self.wait]
        await self.rng.choice([*acts, self.leave, self.stop_short])(self.rng.choice(self.clients))

    async def end(self) -> None:
        self.gate.open.set()
        for task in self.waiting:
            task.cancel()
        if self.waiting:
            await asyncio.wait(self.waiting)
        for path in self.operations:
            await self.clients[0].call("GET", f"{path}?wait_s=60")
            await self.clients[0].call("DELETE", path)
        for session in self.sessions:
            await self.clients[0].call("DELETE", f"/v1/sessions/{session}")


def encoded(gate: gates.Gate) -> str:
    return base64.b64encode(two_step_graph(gate).graph_def.SerializeToString()).decode()


@pytest.mark.parametrize("seed", [*range(3), *[pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 60)]])
async def test_shares_are_given_back_whatever_clients_do(start: Start, seed: int) -> None:
    limits = {"max_runs": 8, "max_partial_runs": 10, "max_sessions": 12, "max_body_bytes": 2000}
    api = await start(max_stored_bytes=9000, queue_seconds=60.0, **limits)
    async with api.elsewhere() as second, api.elsewhere("127.0.0.3") as third:
        crowd = Crowd(random.Random(seed), [api, second], gates.Gate())
        await crowd.create(api)
        while not crowd.sessions:
            await crowd.create(api)
        for _ in range(80):
            await crowd.act()
        # However much two have taken: who has nothing gets something.
        if api.server.sessions.shares.in_use < 12:
            assert await created(third) == 201
            crowd.sessions += [hosted.handle for hosted in api.server.sessions if hosted.client == "127.0.0.3"]
        await crowd.end()
    lasting = ("keys", "stored_bytes")
    shares = [one for one in api.server.metrics._shares if one.kind not in lasting]
    await until(lambda: not any(one.in_use or one.held for one in shares))
