"""What only sessions of a server do: joining one, other people's runs, servers that cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import numpy as np
import pytest
from aexec_server import ServerConfig, make_app
from aexec_server.handles import Handles
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.wire.tensor_codec import to_proto
from aexec.remote.http_client import HttpClient
from aexec.remote.service import ServerRestartedError
from tests.remote.conftest import Served
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

Serve = Callable[[Callable[[web.Request], Awaitable[web.StreamResponse]]], Awaitable[str]]


def doubled() -> aexec.Graph:
    with aexec.Graph() as graph:
        aexec.ops.add(aexec.placeholder(aexec.float32, [None], name="x"), graph.tensor("x:0"), name="y")
    return graph


def waiting(gate: gates.Gate) -> aexec.Graph:
    g = GraphBuilder()
    g.const("c", 1.5, dtypes.float32)
    g("y", "TestGate", "c", key=gate.key, T=dtypes.float32)
    return g.graph()


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Servers that answer everything in one way."""
    servers = []

    async def make(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        servers.append(TestServer(app))
        await servers[-1].start_server()
        return str(servers[-1].make_url(""))

    yield make
    for server in servers:
        await server.close()


async def test_session_is_deleted_when_it_is_closed(served: Served) -> None:
    async with aexec.connect(served.url, doubled()) as session:
        assert len(served.server.sessions) == 1
        assert session.handle in [hosted.handle for hosted in served.server.sessions]
    assert not len(served.server.sessions)


async def test_restart_of_the_server_is_said(served: Served) -> None:
    async with aexec.connect(served.url, doubled()) as session:
        mine = session._handle
        session._handle = Handles().new()  # as an earlier start of the server has made it
        with pytest.raises(ServerRestartedError, match=r"the server was restarted.* Connect again") as caught:
            await session.run("y:0", {"x:0": [1]})
        assert isinstance(caught.value, errors.NotFoundError)
        session._handle = mine
        assert (await session.run("y:0", {"x:0": [1]})).tolist() == [2]


async def test_joining_one_that_is_there(served: Served) -> None:
    async with aexec.connect(served.url, doubled()) as mine:
        for joined in (
            aexec.connect(f"{served.url}/v1/sessions/{mine.handle}"),
            aexec.connect(served.url, session=mine.handle),
        ):
            async with joined as session:
                assert (await session.run("y:0", {"x:0": [1, 2]})).tolist() == [2, 4]
                assert (await session.call(x=[1.5]))["y"].tolist() == [3]
                with pytest.raises(errors.FailedPreconditionError, match="await fetch_graph"):
                    session.graph
                assert (await session.fetch_graph()).node("y").op == "Add"
                assert [device.device_type for device in await session.devices()] == ["CPU"]
                assert (await session.describe())["nodes"] == 2
        assert (await mine.run("y:0", {"x:0": [1]})).tolist() == [2]  # it was left there


async def test_run_of_another_client_is_cancelled_by_its_name(served: Served) -> None:
    gate = gates.Gate()
    async with aexec.connect(served.url, waiting(gate)) as mine:
        step = mine.start("y:0", run_id="long")
        await gate.entered.wait()
        async with aexec.connect(served.url, session=mine.handle) as other:
            assert [run["run_id"] for run in await other.runs()] == ["long"]
            assert await other.cancel("long", "too long")
        with pytest.raises(errors.CancelledError, match="too long"):
            await step
        assert await mine.cancel("next", "ahead of it")
        with pytest.raises(errors.CancelledError, match="ahead of it"):
            await mine.run("y:0", run_id="next")


async def test_run_id_in_flight_is_refused(served: Served) -> None:
    gate = gates.Gate()
    async with aexec.connect(served.url, waiting(gate)) as session:
        session.start("y:0", run_id="same")
        with pytest.raises(errors.AlreadyExistsError, match="Run 'same' is in flight"):
            session.start("y:0", run_id="same")


async def test_client_that_leaves_without_a_word(served: Served) -> None:
    gate = gates.Gate()
    session = await aexec.connect(served.url, waiting(gate))
    session.start("y:0")
    await gate.entered.wait()
    await session._service.close()
    await until(lambda: gate.cancelled == 1)


async def test_missing_server_is_unavailable() -> None:
    with pytest.raises(errors.UnavailableError, match="/v1/sessions") as failed:
        await aexec.connect(f"http://127.0.0.1:{unused_port()}", doubled())
    assert "not known" not in str(failed.value)


async def test_run_whose_connection_breaks_is_not_repeated(serve: Serve, served: Served) -> None:
    asked = []

    async def breaks(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        if request.path.endswith(":run"):
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"graph_version": 0})

    async with aexec.connect(await serve(breaks), session="s") as session:
        with pytest.raises(errors.UnavailableError, match="whether it was done is not known"):
            await session.run("y:0")
    assert asked == ["/v1/sessions/s", "/v1/sessions/s:run"]


async def test_reading_request_is_repeated(serve: Serve) -> None:
    asked = []

    async def breaks_once(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        if len(asked) < 3:
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"graph_version": 0})

    async with aexec.connect(await serve(breaks_once), session="s"):
        assert len(asked) >= 3


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (502, b"<html>bad gateway</html>", errors.UnavailableError, "with 502: <html>"),
        (401, b"", errors.UnauthenticatedError, "with 401"),
        (418, b"{}", errors.UnknownError, "with 418"),
        (404, b'{"error": "no such", "code": "NOT_FOUND"}', errors.NotFoundError, "^no such$"),
        (200, b"<html>", errors.UnavailableError, "is no server of sessions"),
    ],
)
async def test_answers_of_others(serve: Serve, status: int, body: bytes, error: type[Exception], message: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body)

    with pytest.raises(error, match=message):
        await aexec.connect(await serve(answer), session="s")


async def test_server_that_does_not_answer_in_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aexec.remote.remote_step.GRACE", 0.0)
    hangs = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith(":run"):
            await hangs.wait()
        return web.json_response({"graph_version": 0})

    async with aexec.connect(await serve(answer), session="s") as session:
        with pytest.raises(errors.DeadlineExceededError, match="its server does not answer"):
            await session.run("y:0", options=aexec.RunOptions(timeout=0.01))
        step = session.start("y:0")
        step.cancel("enough")
        with pytest.raises(errors.CancelledError, match="enough"):
            await step
    hangs.set()


async def test_headers_go_with_each_request(serve: Serve) -> None:
    seen = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        return web.json_response({"graph_version": 0, "runs": []})

    async with aexec.connect(await serve(answer), session="s", headers={"Authorization": "Bearer t"}) as session:
        await session.runs()
    assert seen == ["Bearer t"] * 2


@pytest.mark.parametrize(
    ("url", "graph", "session", "message"),
    [
        ("localhost:8500", doubled(), None, "is no address of a server"),
        ("ftp://localhost", doubled(), None, "is no address of a server"),
        ("http://localhost", None, None, "give a graph for a new session, or the name"),
        ("http://localhost", doubled(), "s", "not both"),
        ("http://localhost/v1/sessions/s", None, "t", "names a session already"),
    ],
)
def test_wrong_addresses(url: str, graph: aexec.Graph | None, session: str | None, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        aexec.connect(url, graph, session=session)


async def test_behind_a_proxys_path(served: Served) -> None:
    outer = web.Application()
    outer.add_subapp("/graphs", make_app(ServerConfig()))
    server = TestServer(outer)
    await server.start_server()
    async with aexec.connect(str(server.make_url("/graphs")), doubled()) as session:
        assert (await session.run("y:0", {"x:0": [1]})).tolist() == [2]
    await server.close()


async def test_options_without_a_form_are_refused(served: Served) -> None:
    async with aexec.connect(served.url, doubled()) as session:
        with pytest.raises(errors.UnimplementedError, match="cost_graph"):
            await session.run("y:0", {"x:0": [1]}, options=aexec.RunOptions(cost_graph=True))


async def test_request_with_a_key_is_repeated_and_done_once(served: Served, serve: Serve) -> None:
    """The first connection of each request breaks when the server has done what it asks for."""
    seen: dict[str, int] = {}

    async def breaks(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        key = request.headers.get("Idempotency-Key", "")
        async with (
            aiohttp.ClientSession() as client,
            client.request(request.method, served.url + request.path_qs, data=body, headers=request.headers) as answer,
        ):
            data = await answer.read()
        seen[key] = seen.get(key, 0) + 1
        if key and seen[key] == 1:
            assert request.transport is not None
            request.transport.close()
        return web.Response(status=answer.status, body=data)

    graph = doubled()
    async with aexec.connect(await serve(breaks), graph, retry_runs=True) as session:
        assert len(served.server.sessions) == 1
        with graph:
            z = -graph.tensor("y:0")
        assert (await session.run(z, {"x:0": [2]})).tolist() == [-4]
        (hosted,) = served.server.sessions
        assert hosted.session.statistics().runs == 1 and hosted.graph_version == 1
    assert sorted(count for key, count in seen.items() if key) == [2, 2, 2]


async def test_answer_that_is_under_way(served: Served) -> None:
    gate = gates.Gate()
    async with aexec.connect(served.url, waiting(gate)) as session:
        path = f"/v1/sessions/{session.handle}:run"
        body = proto.RunStepRequest(fetch=["y:0"]).SerializeToString()
        client = HttpClient(served.url)
        client.open()
        first, again = (
            asyncio.create_task(client.post_message(path, body, {"Idempotency-Key": "k"})) for _ in range(2)
        )
        await gate.entered.wait()
        gate.open.set()
        assert await first == await again
        assert gate.count == 1
        await client.close()


async def test_tensors_of_an_answer_go_by_their_names(serve: Serve) -> None:
    answer = proto.RunStepResponse()
    for name in ("b:0", "a:0"):
        answer.tensor.add(name=name).tensor.CopyFrom(to_proto(np.array(ord(name[0])), dtypes.int64, compact=False))

    async def handler(request: web.Request) -> web.Response:
        if request.method == "GET":
            return web.json_response({"graph_version": 0, "signatures": {}})
        return web.Response(body=answer.SerializeToString(), content_type="application/x-protobuf")

    async with aexec.connect(await serve(handler), session="m") as session:
        assert await session.run(["a:0", "b:0"]) == [97, 98]
        with pytest.raises(errors.UnavailableError, match="lacks the fetch c:0: it has b:0, a:0"):
            await session.run(["a:0", "c:0"])


async def test_names(served: Served) -> None:
    async with aexec.connect(served.url, doubled(), name="mine", ttl=60) as session:
        assert session.handle == "mine"
        with pytest.raises(errors.AlreadyExistsError, match="There is a session 'mine'"):
            await aexec.connect(served.url, doubled(), name="mine")
    with pytest.raises(errors.InvalidArgumentError, match="leave out name, or session"):
        aexec.connect(served.url, session="a", name="b")
