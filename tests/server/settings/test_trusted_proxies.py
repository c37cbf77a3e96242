"""Whose requests those are that come through reverse proxies, whatever their clients write into headers."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from aexec_server import ServerConfig
from aexec_server.requests import partial_step
from aexec_server.settings.trusted_proxies import TrustedProxies

from aexec import errors
from tests.server.conftest import RELAYED, Api, Start, gate_graph
from tests.server.core.test_operations import with_key
from tests.server.handlers.test_partial_runs import part, set_up, two_step_graph
from tests.support import gates
from tests.support.waiting import until

PROXIES = TrustedProxies(["10.0.0.0/8", "192.0.2.1", "2001:db8:1::/48"])
HOSTILE = [
    "",
    " ",
    ",",
    ",,,",
    "unknown",
    "_hidden",
    "localhost",
    "198.51.100.7.",
    "198.51.100.07",
    "198.51.100.256",
    "0x7f000001",
    "127.1",
    "2130706433",
    "198.51.100.7/32",
    "198.51.100.7:",
    "198.51.100.7:123456",
    "198.51.100.7 198.51.100.8",
    "[198.51.100.7",
    "[198.51.100.7]",
    "[]",
    "[2001:db8::7]x",
    "fe80::1%eth0",
    "fe80::1%" + "x" * 10_000,
    "for=198.51.100.7",
    "١٩٨.51.100.7",
    "198.51.100.7\x00",
    "9" * 100_000,
]


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        # Whoever is no trusted proxy is the client, whatever it writes.
        ("198.51.100.7", [], "198.51.100.7"),
        ("198.51.100.7", ["203.0.113.9"], "198.51.100.7"),
        ("192.0.2.2", ["203.0.113.9"], "192.0.2.2"),
        ("", ["203.0.113.9"], ""),
        # A proxy without the header has sent a request of its own.
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("192.0.2.1", ["203.0.113.9"], "203.0.113.9"),
        ("::ffff:10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("2001:db8:1:2::3", ["2001:db8:9::7"], "2001:db8:9::7"),
        # What stands on the left of the first untrusted address is its own invention.
        ("10.0.0.1", ["1.2.3.4, 203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["1.2.3.4", "203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["10.9.9.9, 203.0.113.9"], "203.0.113.9"),
        # Proxies behind proxies.
        ("10.0.0.1", ["1.2.3.4, 203.0.113.9, 10.0.0.2, 192.0.2.1"], "203.0.113.9"),
        ("10.0.0.1", ["1.2.3.4, 203.0.113.9", "10.0.0.2"], "203.0.113.9"),
        # A client in a trusted network, and more proxies than there are.
        ("10.0.0.1", ["10.0.0.5, 10.0.0.2"], "10.0.0.5"),
        ("10.0.0.1", [", ".join(f"10.1.0.{n}" for n in range(40, -1, -1))], "10.1.0.31"),
        # Ports, brackets and spaces.
        ("10.0.0.1", ["203.0.113.9:4711"], "203.0.113.9"),
        ("10.0.0.1", ["[2001:db8:9::7]:4711"], "2001:db8:9::7"),
        ("10.0.0.1", ["[2001:db8:9::7]"], "2001:db8:9::7"),
        ("10.0.0.1", ["::ffff:203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", [" 203.0.113.9\t,10.0.0.2 "], "203.0.113.9"),
    ],
)
def test_client_is_last_address_that_is_no_trusted_proxy(peer: str, forwarded: list[str], client: str) -> None:
    assert PROXIES.client_host(peer, forwarded) == client


@pytest.mark.parametrize("text", HOSTILE)
def test_entry_that_is_no_address_leaves_the_proxy_that_wrote_it(text: str) -> None:
    assert PROXIES.client_host("10.0.0.1", [text]) == "10.0.0.1"
    assert PROXIES.client_host("10.0.0.1", [f"203.0.113.9, {text}"]) == "10.0.0.1"
    assert PROXIES.client_host("10.0.0.1", [f"{text}, 10.0.0.2"]) == "10.0.0.2"
    assert PROXIES.client_host("10.0.0.1", [f"{text}, 203.0.113.9"]) == "203.0.113.9"


def test_long_header_takes_no_longer() -> None:
    """Processor time of many trusted entries: no more of them are read than a chain has."""
    long = [", ".join(["10.0.0.2"] * 3000)] * 10
    began = time.process_time()
    for _ in range(100):
        assert PROXIES.client_host("10.0.0.1", long) == "10.0.0.2"
    assert time.process_time() - began < 1.0


def test_no_proxy_is_trusted_by_default() -> None:
    assert ServerConfig().trusted_proxies == ()
    assert TrustedProxies().client_host("127.0.0.1", ["203.0.113.9"]) == "127.0.0.1"


@pytest.mark.parametrize(
    "text", ["*", "proxy.example", "10.0.0.1/8", "10.0.0.0/33", "0.0.0.0/0", "::/0", "10.0.0.1:80"]
)
def test_invalid_network_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="trusted_proxies has"):
        ServerConfig(trusted_proxies=[text])


async def created(api: Api, forwarded: str) -> tuple[int, Any]:
    headers = {"X-Forwarded-For": forwarded}
    return await api.call("POST", "/v1/sessions", {"graph_def": {}}, headers=headers)


async def test_clients_of_a_proxy_have_shares_of_their_own(start: Start) -> None:
    api = await start(max_client_sessions=1, trusted_proxies=["127.0.0.1"])
    assert (await created(api, "203.0.113.9"))[0] == 201
    assert (await created(api, "203.0.113.8"))[0] == 201
    status, answer = await created(api, "203.0.113.9")
    assert status == 429 and "Whoever asks from 203.0.113.9" in answer["error"]
    # The client's own words do not make it another client.
    assert (await created(api, "1.2.3.4, 203.0.113.9"))[0] == 429
    assert (await created(api, "10.0.0.1:1, 203.0.113.9:2"))[0] == 429


@pytest.mark.parametrize("proxies", [[], ["127.0.0.2", "10.0.0.0/8"]])
async def test_header_of_a_stranger_makes_no_other_client(start: Start, proxies: list[str]) -> None:
    api = await start(max_client_sessions=1, trusted_proxies=proxies)
    assert (await created(api, "203.0.113.9"))[0] == 201
    status, answer = await created(api, "203.0.113.8")
    assert status == 429 and "Whoever asks from 127.0.0.1" in answer["error"]


async def test_keys_of_clients_of_a_proxy_are_their_own(start: Start) -> None:
    api = await start(trusted_proxies=["127.0.0.1"])
    graph = {"graph_def": {}}
    made = {}
    for client in ("203.0.113.9", "203.0.113.8"):
        forwarded = {"X-Forwarded-For": client}
        status, headers, made[client] = await with_key(api, "/v1/sessions", "k", graph, **forwarded)
        assert status == 201 and "Idempotent-Replayed" not in headers
    assert len({answer["session_handle"] for answer in made.values()}) == 2


@pytest.mark.skipif(RELAYED, reason="the relay of these tests adds no caller")
async def test_runs_of_clients_of_a_proxy_count_for_each(start: Start) -> None:
    """Runs that begin where their bytes are read belong to the client that the header names, too."""
    api = await start(trusted_proxies=["127.0.0.1"])
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    for number, client in enumerate(("203.0.113.9", "203.0.113.9", "203.0.113.8")):  # a new head, and one seen before
        gate.entered.clear()
        gate.open.clear()
        headers = {"X-Forwarded-For": client}
        body = {"fetches": ["y"]}
        running = asyncio.create_task(api.call("POST", f"/v1/sessions/{handle}:run", body, headers=headers))
        await gate.entered.wait()
        await until(lambda number=number: gate.count == number + 1 and api.server.admission.shares.in_use == 1)
        assert api.server.admission.shares.held == {client: 1}
        gate.open.set()
        assert (await running)[0] == 200


@pytest.mark.skipif(RELAYED, reason="a front's connections tell nothing of clients")
async def test_partial_run_outlasts_the_proxys_connection(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_step, "LEFT_SECONDS", 0.01)
    api = await start(trusted_proxies=["127.0.0.2"])
    session = await api.create(two_step_graph())
    async with api.elsewhere() as proxy:
        handle = await set_up(proxy, session, feeds=["a", "b"], fetches=["r1"])
    for _ in range(3):  # it is looked whether its client has left
        looked = api.hosted(session).partial_steps[handle]._timer
        await until(lambda looked=looked: api.hosted(session).partial_steps[handle]._timer is not looked)
    assert (await part(api, session, handle, feeds={"a": 1, "b": 1}, fetches=["r1"]))[0] == 200
