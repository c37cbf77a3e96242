"""Keys of requests belong to the client that sent them."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from aexec_server import ServerConfig
from aexec_server.clients.callers import Caller
from aexec_server.http import idempotency

from tests.server.conftest import RELAYED, Api, Start, small_graph
from tests.server.core.test_access import team
from tests.server.core.test_operations import counting_graph, with_key

# By a relay of these tests all connections come from one address.
by_address = pytest.mark.skipif(RELAYED, reason="clients are told apart by their addresses")

ADD = {"targets": ["add"], "fetches": []}


async def counter(api: Api) -> tuple[str, str]:
    """A session that counts its runs, and the path of these."""
    handle = await api.create(counting_graph())
    await api.run(handle, targets=["init"])
    return handle, f"/v1/sessions/{handle}:run"


async def count(api: Api, handle: str) -> float:
    outputs = (await api.run(handle, fetches=["read"]))[1]["outputs"]
    return float(outputs["read"]) - 1


@by_address
async def test_answers_of_a_stranger_push_nobody_elses_out(start: Start) -> None:
    api = await start(max_stored_bytes=20_000)
    handle, path = await counter(api)
    first = await with_key(api, path, "k", ADD)
    async with api.elsewhere() as stranger:
        theirs = await stranger.create(small_graph())
        for number in range(12):
            body = {"feeds": {"x": [0.5] * 1000}, "fetches": ["y"]}
            status, _, _ = await with_key(stranger, f"/v1/sessions/{theirs}:run", f"k{number}", body)
            assert status == 200
        assert "Idempotent-Replayed" in (await with_key(stranger, f"/v1/sessions/{theirs}:run", "k11", body))[1]
    again = await with_key(api, path, "k", ADD)
    assert again[2] == first[2] and again[1]["Idempotent-Replayed"] == "true"
    assert await count(api, handle) == 1


@by_address
async def test_key_of_another_address_is_another_key(api: Api) -> None:
    graph = {"graph_def": {}}
    _, headers, made = await with_key(api, "/v1/sessions", "k", graph)
    async with api.elsewhere() as stranger:
        status, theirs, other = await with_key(stranger, "/v1/sessions", "k", graph)
        assert status == 201 and other["session_handle"] != made["session_handle"]
        assert "Idempotent-Replayed" not in theirs
        # With the secret that the first answer told it is the same client, which has another address now.
        secret = headers["Idempotency-Secret"]
        _, again, same = await with_key(stranger, "/v1/sessions", "k", graph, **{"Idempotency-Secret": secret})
        assert again["Idempotent-Replayed"] == "true" and same == made
        # It is the secret of that key, and nothing is carried out in the name of whose it is.
        for key, told in (("other", secret), ("k", "none"), ("k", theirs["Idempotency-Secret"][:-1])):
            answer = await with_key(stranger, "/v1/sessions", key, graph, **{"Idempotency-Secret": told})
            assert (answer[0], answer[2]["reason"]) == (410, "answer_forgotten")
    assert len(api.server.sessions) == 2
    assert (await with_key(api, "/v1/sessions", "k", graph))[2] == made  # who lost the answer has no secret


async def test_key_of_a_token_is_its_own(start: Start) -> None:
    t = await team(start)
    made: list[Any] = []
    for name in ("alice", "bob", "alice"):
        headers = {"Idempotency-Key": "k", "Authorization": f"Bearer {t.tokens[name]}"}
        async with t.api.client.post("/v1/sessions", json={"graph_def": {}}, headers=headers) as response:
            assert "Idempotency-Secret" not in response.headers
            made.append((await response.json())["session_handle"])
    assert made[0] == made[2] != made[1]


async def test_request_that_was_carried_out_is_never_repeated(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "_SURE_KEYS", 40)
    api = await start(max_stored_bytes=6000)
    handle, path = await counter(api)
    rng = random.Random(7)
    done: list[str] = []
    statuses = set()
    for number in range(40):
        if done and rng.random() < 0.5:
            status, headers, answer = await with_key(api, path, rng.choice(done), ADD)
            assert status == 410 or headers["Idempotent-Replayed"] == "true", answer
            statuses.add(status)
        else:
            done.append(f"k{number}")
            assert (await with_key(api, path, done[-1], ADD))[0] == 200
    assert statuses == {200, 410}
    assert await count(api, handle) == len(done)


@by_address
async def test_keys_of_others_are_remembered_for_ten_minutes(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "_MAX_KEYS", 6)
    monkeypatch.setattr(idempotency, "_SURE_KEYS", 3)
    now = 0.0
    api = await start(clock=lambda: now, session_ttl_s=None)
    handle, path = await counter(api)
    for number in range(8):  # of its own keys the oldest go
        assert (await with_key(api, path, f"k{number}", ADD))[0] == 200
    async with api.elsewhere() as other:
        _, theirs = await counter(other)
        for number in range(3):
            assert (await with_key(other, theirs, f"k{number}", ADD))[0] == 200
        assert api.server.answered_once.keys.held == {"127.0.0.1": 3, "127.0.0.2": 3}
        assert "Idempotent-Replayed" in (await with_key(api, path, "k5", ADD))[1]
        status, _, answer = await with_key(other, theirs, "k4", ADD)
        assert (status, answer["code"]) == (429, "RESOURCE_EXHAUSTED")
        now = 601.0
        assert (await with_key(other, theirs, "k4", ADD))[0] == 200
    assert await count(api, handle) == 8


@by_address
async def test_client_with_fewest_answers_keeps_them(start: Start) -> None:
    """Whatever is stored by whom, in whatever order: who holds less than an equal part loses nothing."""
    rng = random.Random(3)
    api = await start(max_stored_bytes=24_000)
    handle = await api.create(small_graph())
    path = f"/v1/sessions/{handle}:run"
    small = {"feeds": {"x": [2]}, "fetches": ["y"]}
    async with api.elsewhere() as second, api.elsewhere("127.0.0.3") as third:
        assert (await with_key(api, path, "mine", small))[0] == 200
        for number in range(30):
            body = {"feeds": {"x": [0.25] * rng.randint(1, 1500)}, "fetches": ["y"]}
            assert (await with_key(rng.choice([second, third]), path, f"k{number}", body))[0] == 200
            assert api.server.answered_once.shares.in_use <= 24_000
        assert "Idempotent-Replayed" in (await with_key(api, path, "mine", small))[1]


def test_answers_are_not_dropped_for_one_that_does_not_fit() -> None:
    """Of 100 A has 40, B and D have 30 each: nobody has as much as another's 35 once A has given 6."""
    kept = idempotency.AnsweredOnce(ServerConfig(max_stored_bytes=100, max_client_stored_bytes=100), begin=Any)
    clients = [(Caller(name, frozenset()), name) for name in "abdo"]

    def keep(client: int, size: int, count: int = 1) -> None:
        caller, name = clients[client]
        answer: Any = SimpleNamespace(size=size)
        for number in range(count):
            key = f"{name} {size} {number}".encode()
            kept._keep(caller, key, kept._remember(caller, key, b""), answer)

    for client, count in enumerate((40, 30, 30)):
        keep(client, 1, count)
    before = dict(kept.shares.held)
    assert sum(before.values()) == 100
    keep(3, 35)
    assert kept.shares.held == before
    keep(3, 20)
    assert sum(kept.shares.held.values()) == 100 and min(kept.shares.held.values()) == 20
    keep(3, 35, 2)
    assert max(kept.shares.held.values()) <= 35
