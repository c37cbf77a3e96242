"""A program's durable session goes on when its server has ended and begins again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aexec_server import SERVER, ServerConfig, make_app
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

import aexec
from aexec import errors
from aexec.remote.service import InterruptedRequestError, NotBegunError, ServerRestartedError
from tests.server.durable.graphs import counter_graph, state_graph
from tests.support.server_process import ServerProcess

Restart = Callable[[], Awaitable[str]]


def counter() -> aexec.Graph:
    return counter_graph().graph()


@pytest.fixture
async def durable(tmp_path: Path) -> AsyncIterator[str]:
    """The address of a server with a store, in this process."""
    server = TestServer(make_app(ServerConfig(state_path=tmp_path / "state")))
    await server.start_server()
    yield str(server.make_url(""))
    await server.close()


@pytest.fixture
async def restart(tmp_path: Path) -> AsyncIterator[Restart]:
    """Kills the server, if there is one, and begins the next at the same address, which is returned."""
    servers: list[ServerProcess] = []

    async def make() -> str:
        options: dict[str, Any] = {"watch": False, "state": tmp_path / "state"}
        if servers:
            await kill(servers[-1])
            options["port"] = servers.pop().port
        servers.append(await asyncio.to_thread(ServerProcess, tmp_path, **options))
        return f"http://127.0.0.1:{servers[-1].port}"

    yield make
    await asyncio.to_thread(servers[-1].stop)


async def kill(server: ServerProcess) -> None:
    server.process.kill()
    server.expect_killed()
    await asyncio.to_thread(server.stop)


@pytest.mark.parametrize(("durability", "told"), [(None, "strict"), ("strict", "strict"), ("relaxed", "relaxed")])
async def test_session_is_durable(durable: str, durability: str | None, told: str) -> None:
    async with aexec.connect(durable, counter(), durable=True, durability=durability) as session:
        description = await session.describe()
        assert (description["durable"], description["durability"]) == (True, told)
        await session.run([], {"x:0": [1]}, ["set"])
        assert (await session.run("read:0")).tolist() == [1]


async def test_kept_session_is_joined_by_the_next_program(durable: str) -> None:
    async with aexec.connect(durable, counter(), durable=True, name="mine", keep=True) as session:
        await session.run([], {"x:0": [5]}, ["set"])
    async with aexec.connect(durable, session="mine") as session:
        assert (await session.run("read:0")).tolist() == [5]


async def test_server_without_a_store_refuses() -> None:
    server = TestServer(make_app(ServerConfig()))
    await server.start_server()
    try:
        with pytest.raises(errors.FailedPreconditionError, match="--state DIR"):
            await aexec.connect(str(server.make_url("")), counter(), durable=True)
        assert not len(server.app[SERVER].sessions)
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"durability": "relaxed"}, errors.InvalidArgumentError, "durability is for a session with durable=True"),
        ({"durable": True, "durability": "lax"}, errors.InvalidArgumentError, 'must be "strict" or "relaxed"'),
        ({"reconnect": -1}, errors.InvalidArgumentError, "reconnect must be a number of seconds"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        aexec.connect("http://localhost:1", counter(), **arguments)


@pytest.mark.parametrize("argument", ["durable", "keep"])
def test_arguments_of_new_sessions_are_refused_for_others(argument: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=f"{argument} is for a new session"):
        aexec.connect("http://localhost:1", session="s", **{argument: True})


def test_grpc_refuses_durable_sessions() -> None:
    with pytest.raises(errors.UnimplementedError, match="durable needs an address of HTTP"):
        aexec.connect("grpc://localhost:1", counter(), durable=True)


async def test_session_goes_on_after_a_restart(restart: Restart) -> None:
    url = await restart()
    graph = counter()
    async with aexec.connect(url, graph, durable=True) as session, aexec.connect(url, counter()) as other:
        await session.run([], {"x:0": [1]}, ["set"])
        with graph:
            more = graph.tensor("read:0") * 10.0
        assert (await session.run(more)).tolist() == [10]
        await restart()
        assert (await session.run("after:0", {"x:0": [1]})).tolist() == [2]
        assert (await session.run(more)).tolist() == [20]
        with pytest.raises(ServerRestartedError, match=r"the server was restarted.* Connect again"):
            await other.run("read:0")


async def test_run_waits_for_the_next_server(restart: Restart) -> None:
    url = await restart()
    async with aexec.connect(url, counter(), durable=True, retry_runs=True) as session:
        await session.run([], {"x:0": [1]}, ["set"])
        runs = [asyncio.create_task(session.run([], {"x:0": [1]}, ["add"])) for _ in range(20)]
        await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
        await restart()
        ended = await asyncio.gather(*runs, return_exceptions=True)
        unsure = sum(isinstance(one, InterruptedRequestError) for one in ended)
        assert [one for one in ended if not isinstance(one, InterruptedRequestError)] == [[]] * (20 - unsure)
        (value,) = await session.run("read:0")
        assert 21 - unsure <= value <= 21


@pytest.mark.parametrize("retry_runs", [True, False])
async def test_run_in_flight_when_its_server_is_killed(restart: Restart, *, retry_runs: bool) -> None:
    url = await restart()
    async with aexec.connect(url, state_graph().graph(), durable=True, retry_runs=retry_runs) as session:
        taking = asyncio.create_task(session.run("fifo_get:0"))
        while not await session.runs():
            await asyncio.sleep(0.01)
        await restart()
        await session.run([], {"i:0": 7}, ["fifo_put"])
        if retry_runs:  # nothing of it was on the disk
            assert await taking == 7
        else:
            with pytest.raises(errors.UnavailableError, match="whether it was done is not known"):
                await taking
            assert (await session.queue("fifo").get()) == 7


async def _answering(answers: list[tuple[int, dict[str, Any]]]) -> tuple[TestServer, list[str]]:
    """A server of a durable session that answers runs so, and the paths that it was asked for."""
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        if request.method == "GET":
            return web.json_response({"graph_version": 0, "signatures": {}, "durable": True})
        status, fields = answers.pop(0)
        return web.json_response({"error": "so it is", **fields}, status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    server = TestServer(app)
    await server.start_server()
    return server, asked


INTERRUPTED = (409, {"code": "ABORTED", "reason": "interrupted"})
HANDED_OVER = (503, {"code": "UNAVAILABLE", "reason": "handed_over"})
SHUTTING_DOWN = (503, {"code": "UNAVAILABLE", "reason": "shutting_down"})


@pytest.mark.parametrize("retry_runs", [True, False])
async def test_request_that_was_not_begun_is_sent_again(*, retry_runs: bool) -> None:
    server, asked = await _answering([HANDED_OVER, SHUTTING_DOWN, INTERRUPTED])
    url = str(server.make_url("/v1/sessions/s"))
    async with aexec.connect(url, retry_runs=retry_runs) as session:
        with pytest.raises(InterruptedRequestError, match="so it is"):
            await session.run("y:0")
    assert len(asked) == 4
    await server.close()


async def test_request_with_a_key_that_ended_as_aborted_is_not_sent_again() -> None:
    server, asked = await _answering([(409, {"code": "ABORTED", "reason": "in_progress"}), (409, {"code": "ABORTED"})])
    async with aexec.connect(str(server.make_url("/v1/sessions/s")), retry_runs=True) as session:
        with pytest.raises(errors.AbortedError, match="so it is"):
            await session.run("y:0")
    assert len(asked) == 3
    await server.close()


async def test_patience_is_limited() -> None:
    server, asked = await _answering([HANDED_OVER])
    async with aexec.connect(str(server.make_url("/v1/sessions/s")), reconnect=0) as session:
        with pytest.raises(NotBegunError):
            await session.run("y:0")
    await server.close()
    assert len(asked) == 2
    with pytest.raises(errors.UnavailableError, match="127"):
        await aexec.connect(f"http://127.0.0.1:{unused_port()}", counter(), durable=True, reconnect=0.1)
