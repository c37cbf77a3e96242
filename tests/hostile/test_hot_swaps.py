"""Twenty versions of a model, one after another, put into its folder while clients of three protocols ask for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.hostile.conftest import HostileServer
from tests.server.models.test_models import add_version

X = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}
ASKED: list[tuple[str, Any]] = [
    ("/v1/sessions/m:run", {"inputs": {"x": [1]}}),
    ("/v2/models/m/infer", {"inputs": [X]}),
    ("/v1/models/m:predict", {"instances": [1]}),
]


@pytest.mark.soak
@pytest.mark.parametrize("hosts", [0, 1])
async def test_no_request_fails_while_versions_are_swapped(
    hostile_server: HostileServer, tmp_path: Path, hosts: int
) -> None:
    folder, swaps = tmp_path / "m", 20
    add_version(folder, 1)
    server = hostile_server(hosts=hosts, model=f"m={folder}", repository_poll="50ms")
    server.until(lambda: server.call("GET", "/readyz").status == 200)
    answers: Counter[int] = Counter()
    done = False
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as client:

        async def ask(path: str, body: Any) -> None:
            while not done:
                async with client.post(path, json=body) as response:
                    await response.read()
                    answers[response.status] += 1

        asking = [asyncio.create_task(ask(*one)) for one in ASKED * 4]
        for number in range(2, 2 + swaps):
            await asyncio.to_thread(add_version, folder, number)
            async with asyncio.timeout(20):
                while True:
                    async with client.get("/v2/models/m") as response:
                        if (await response.json())["versions"] == [str(number)]:
                            break
        done = True
        await asyncio.gather(*asking)
    print(f"{swaps} swaps, {hosts} hosts: {dict(answers)}")
    assert set(answers) == {200} and answers[200] > swaps
