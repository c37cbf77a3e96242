"""SIGTERM while clients ask for runs: what was accepted is answered, or cancelled with the reason; nothing else is."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter

import aiohttp
import pytest

from aexec.framework import dtypes
from tests.hostile.conftest import HostileServer
from tests.support.programs.graphs import GraphBuilder
from tests.support.server_process import ServerProcess

QUICK = {"feeds": {"x": [3.0]}, "fetches": ["y"]}
SOME, ENDLESS = {"fetches": ["waited"]}, {"fetches": ["element"]}
NOT_SENT = (aiohttp.ClientConnectionError, ConnectionError)


def graph() -> GraphBuilder:
    """`y` is there at once, `waited` after some thousand iterations of a loop, `element` never."""
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    g("y", "Square", "x", T=dtypes.float32)
    g("queue", "FIFOQueueV2", component_types=[dtypes.float32], capacity=1)
    g("element", "QueueDequeueV2", "queue", component_types=[dtypes.float32])
    last = g("random", "RandomUniform", g.const("shape", [1], dtypes.int32), T=dtypes.int32, dtype=dtypes.float32)
    for number in range(3000):
        last = g(f"n{number}", "Tanh", last, T=dtypes.float32)
    g("waited", "Identity", last, T=dtypes.float32)
    return g


async def answers_of(server: ServerProcess, handle: str, clients: int, seconds: float) -> Counter[tuple[int, str]]:
    """What clients were answered who went on asking while the server was told to stop: status and reason."""
    answers: Counter[tuple[int, str]] = Counter()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def ask(number: int) -> None:
            numbers = random.Random(number)
            while True:
                asked = ENDLESS if numbers.random() < 0.05 else SOME if numbers.random() < 0.1 else QUICK
                try:
                    async with client.post(f"http://127.0.0.1:{server.port}/v1/sessions/{handle}:run", json=asked) as r:
                        status, body = r.status, await r.json()
                except NOT_SENT:  # nothing listens any more, or the connection was closed while nothing was on the way
                    return
                answers[status, "" if status == 200 else body["error"]] += 1
                if status not in (200, 429):
                    return

        asking = [asyncio.create_task(ask(number)) for number in range(clients)]
        await asyncio.sleep(seconds)
        server.signal()
        async with asyncio.timeout(20):
            await asyncio.gather(*asking)
    return answers


@pytest.mark.parametrize("hosts", [0, 2])
@pytest.mark.parametrize(
    ("clients", "seconds"), [(16, 0.3), pytest.param(64, 5.0, marks=pytest.mark.soak)], ids=["16", "64"]
)
async def test_accepted_requests_are_answered(
    hostile_server: HostileServer, hosts: int, clients: int, seconds: float
) -> None:
    server = hostile_server(hosts=hosts, drain="0.5s", step_log=True, log_format="json")
    handle = server.create(graph())
    assert server.run(handle, **QUICK).status == 200
    answers = await answers_of(server, handle, clients, seconds)
    assert await asyncio.to_thread(server.wait, 20) == 0
    statuses = Counter(status for status, _ in answers.elements())
    assert statuses[200] > clients and statuses[499] and set(statuses) <= {200, 429, 499, 503}
    for status, reason in answers:
        if status == 499:
            assert "shutdown" in reason
        if status == 503:
            assert "shutting down" in reason
    lines = [json.loads(line) for line in server.log.splitlines() if line.startswith("{")]
    outcomes = Counter(line["outcome"] for line in lines if line["logger"] == "aexec_server.steps")
    # All that began were answered.
    assert outcomes["OK"] == statuses[200] + 1 and outcomes["CANCELLED"] == statuses[499]
    print(f"{clients} clients, {hosts} hosts: {dict(statuses)}")
