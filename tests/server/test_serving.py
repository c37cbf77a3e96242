"""A server from its start to its end: signals, draining, exit."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import weakref
from typing import Any

import aiohttp
import pytest
from aexec_server import SERVER, ServerConfig, make_app, run_server
from aexec_server.connections.listening import drain
from aexec_server.core.server_state import Server

import aexec
from aexec import errors
from aexec.runtime.session.session import Session
from tests.server.conftest import gate_graph, ops_of_tests, small_graph
from tests.support import gates
from tests.support.waiting import until


class Running:
    """A server in a task, and a client."""

    def __init__(self, **settings: Any) -> None:
        self.app = make_app(ServerConfig(port=0, allow_ops=ops_of_tests(), **settings))
        self.server: Server = self.app[SERVER]
        self._address: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Running:
        self.task = asyncio.create_task(run_server(app=self.app, on_ready=self._address.set_result))
        self.address = await self._address
        self.client = aiohttp.ClientSession(self.address)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.client.close()
        if not self.task.done():
            self.task.cancel()
            await asyncio.wait([self.task])

    async def get(self, path: str) -> int:
        async with self.client.get(path) as response:
            return response.status

    async def run(self, handle: str, **fields: Any) -> tuple[int, Any]:
        async with self.client.post(f"/v1/sessions/{handle}:run", json=fields) as response:
            return response.status, await response.json()


async def test_application_that_has_ended_is_not_kept() -> None:
    """Nor is what it had loaded."""

    async def ended() -> weakref.ref[Server]:
        async with Running(graphs={"m": small_graph().graph()}) as running:
            for path in ("/v1/sessions", "/v1/models/m"):
                async with running.client.get(path) as response:
                    assert response.status == 200
        return weakref.ref(running.server)

    server = await ended()

    def gone() -> bool:
        gc.collect()
        return server() is None

    await until(gone)


def tell(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_stops_the_server(number: int) -> None:
    async with Running(graphs={"small": small_graph().graph()}) as running:
        assert running.address.startswith("http://127.0.0.1:")
        assert await running.get("/readyz") == 200
        status, answer = await running.run("small", feeds={"x": [3]}, fetches=["y"])
        assert status == 200 and answer["outputs"] == {"y": [9.0]}
        tell(number)
        await asyncio.wait_for(running.task, 10)
        assert all(session.closed for session in Session.live() if session.statistics().runs)
        with pytest.raises(aiohttp.ClientConnectorError):
            async with aiohttp.ClientSession() as fresh, fresh.get(f"{running.address}/livez"):
                pass


async def test_runs_may_end_while_draining() -> None:
    gate = gates.Gate()
    async with Running(graphs={"s": gate_graph(gate).graph()}, drain_seconds=30) as running:
        run = asyncio.create_task(running.run("s", fetches=["y"]))
        await gate.entered.wait()
        # Two more connections, each for one request: whoever is answered now is sent elsewhere.
        await asyncio.gather(running.get("/livez"), running.get("/livez"))
        tell()
        await until(lambda: running.server.draining)
        assert await running.get("/readyz") == 503
        assert (await running.run("s", fetches=["y"]))[0] == 503
        assert not running.task.done()
        gate.open.set()
        status, answer = await run
        assert status == 200 and answer["outputs"] == {"y": 1.5}
        await asyncio.wait_for(running.task, 10)


async def test_drain_waits_for_requests_whose_runs_are_not_listed() -> None:
    """Those that are being read, and those whose changes are being written."""
    async with Running(graphs={"s": small_graph().graph()}, drain_seconds=30) as running:
        (hosted,) = running.server.sessions
        hosted.acquire()
        draining = asyncio.create_task(drain(running.server, asyncio.Queue()))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not draining.done() and not running.server.sessions.live_runs
        hosted.release()
        await draining


async def test_balancers_are_given_time() -> None:
    """Readiness is false, and all is taken: whoever did not look yet is served."""
    async with Running(graphs={"small": small_graph().graph()}, unready_seconds=3600) as running:
        tell()
        await until(lambda: running.server.leaving)
        async with aiohttp.ClientSession() as fresh, fresh.get(f"{running.address}/readyz") as response:
            assert response.status == 503
        assert await running.get("/livez") == 200
        assert (await running.run("small", feeds={"x": [3]}, fetches=["y"]))[0] == 200
        tell()  # a second signal: at once
        await asyncio.wait_for(running.task, 10)


async def test_accepted_runs_are_answered() -> None:
    """Those that work, and those that stand in line."""
    gate = gates.Gate()
    settings = {"run_slots": 1, "queue_seconds": 30, "drain_seconds": 0.01}
    graph = gate_graph(gate)
    async with Running(graphs={"s": graph.graph()}, **settings) as running:
        statistics = running.server.metrics.snapshot
        runs = [asyncio.create_task(running.run("s", fetches=["y"])) for _ in range(12)]
        await until(lambda: statistics()["aexec_runs_in_flight"][()] == 12)
        tell()
        answers = [await run for run in runs]
        assert {(status, answer["code"]) for status, answer in answers} == {(499, "CANCELLED")}
        assert all("shutdown" in answer["error"] for _, answer in answers)
        await asyncio.wait_for(running.task, 10)


@pytest.mark.parametrize("again", [False, True])
async def test_runs_that_take_too_long_are_cancelled(again: bool) -> None:
    gate = gates.Gate()
    drain = 3600 if again else 0.01
    async with Running(graphs={"s": gate_graph(gate).graph()}, drain_seconds=drain) as running:
        run = asyncio.create_task(running.run("s", fetches=["y"]))
        await gate.entered.wait()
        tell()
        await until(lambda: running.server.draining)
        if again:
            tell()  # a second signal: at once
        status, answer = await run
        assert (status, answer["code"]) == (499, "CANCELLED")
        assert "shutdown" in answer["error"]
        await asyncio.wait_for(running.task, 10)
        assert gate.cancelled == 1


async def test_cancelling_the_task_stops_the_server_too() -> None:
    async with Running() as running:
        running.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running.task


async def test_graph_that_cannot_be_loaded() -> None:
    with pytest.raises(errors.NotFoundError, match="No such file"):
        await run_server(ServerConfig(port=0, graphs={"missing": "/nonexistent/model.pb"}))
    with pytest.raises(errors.InvalidArgumentError, match="A model's name"):
        await run_server(ServerConfig(port=0, graphs={"a/b": aexec.Graph()}))


async def test_address_in_use() -> None:
    async with Running() as running:
        port = int(running.address.rpartition(":")[2])
        with pytest.raises(OSError):
            await run_server(ServerConfig(port=port))


@pytest.mark.parametrize(
    "setting",
    [
        "max_body_bytes",
        "max_sessions",
        "max_runs",
        "max_threads",
        "max_image_pixels",
        "max_timeout",
        "session_ttl_s",
        "max_connections",
        "header_seconds",
        "min_rate",
    ],
)
def test_settings_are_checked(setting: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=setting):
        ServerConfig(**{setting: 0})  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="drain_seconds"):
        ServerConfig(drain_seconds=-1)
