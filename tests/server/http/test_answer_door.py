"""Large answers: sent in pieces, within places and memory, and only to who reads them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from aexec_server import ServerConfig
from aexec_server.app import route_table
from aexec_server.clients.callers import Caller
from aexec_server.core.server_state import Server
from aexec_server.http import answer_door, answer_parts
from aexec_server.http.answer_parts import PIECE, taking
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.wire import tensor_codec
from tests.server.conftest import Api, Start, small_graph
from tests.server.requests.test_run_events import NDJSON, SSE, posted
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

# Bytes of which the text is more than sockets take.
LARGE = 4_000_000


def large_graph(size: int = LARGE) -> GraphBuilder:
    g = GraphBuilder()
    values = np.random.default_rng(0).integers(0, 255, size).astype(np.uint8)
    g.const("c", values)
    g.const("four", np.array([4 * size], np.int32))
    g.const("value", np.float32(7))
    g("filled", "Fill", "four", "value", T=dtypes.float32)
    return g


@contextlib.asynccontextmanager
async def not_reading(api: Api, method: str, path: str, body: str = "", **headers: str) -> AsyncIterator[None]:
    """A client that sends a request and reads nothing of the answer."""
    said = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{said}Content-Length: {len(body)}\r\n\r\n"
    async with api.connection() as (reader, writer):
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(f"{head}{body}".encode())
        yield


async def kept(api: Api, handle: str, value: Any) -> str:
    info = await api.hosted(handle).session.tensors.put(value, "w")
    return f"/v1/sessions/{handle}/tensors/{info.name}"


# What is sent


@pytest.mark.parametrize("accept", ["application/octet-stream", "application/json", "text/plain"])
async def test_large_graph(api: Api, accept: str) -> None:
    handle = await api.create(large_graph(100_000))
    response, body = await api.raw("GET", f"/v1/sessions/{handle}/graph", Accept=accept)
    assert response.status == 200 and response.content_type == accept
    assert response.headers["Transfer-Encoding"] == "chunked" and len(body) > PIECE
    read = {
        "application/octet-stream": lambda: aexec.Graph.from_bytes(body),
        "application/json": lambda: aexec.Graph.from_json(body.decode()),
        "text/plain": lambda: aexec.Graph.from_text(body.decode()),
    }[accept]()
    assert read.to_graph_def() == large_graph(100_000).graph_def


async def test_small_answer_is_whole(api: Api, small: str) -> None:
    for path in ("graph", "nodes", "tensors", "runs", "queues", ""):
        response, body = await api.raw("GET", f"/v1/sessions/{small}/{path}".rstrip("/"))
        assert response.status == 200 and int(response.headers["Content-Length"]) == len(body)


@pytest.mark.parametrize("value", [np.arange(100_000.0).reshape(10, -1), np.array([b"ab", b"\xff"] * 20_000, object)])
async def test_large_kept_tensor(api: Api, small: str, value: Any) -> None:
    path = await kept(api, small, value)
    _, body = await api.raw("GET", path)
    whole = json.loads(body)
    assert whole["shape"] == list(value.shape) and len(whole["data"]) == value.size
    response, body = await api.raw("GET", path, Accept="application/x-protobuf")
    assert np.array_equal(tensor_codec.from_proto(proto.TensorProto.FromString(body)), value)
    response, body = await api.raw("GET", path, Accept="application/octet-stream")
    length = int(response.headers["Inference-Header-Content-Length"])
    head = json.loads(body[:length])
    assert len(body) == int(response.headers["Content-Length"])
    assert len(body) - length == head["parameters"]["binary_data_size"]
    if value.dtype != object:
        assert np.array_equal(np.frombuffer(body[length:], value.dtype).reshape(value.shape), value)


async def test_old_client_reads_the_answer_to_the_end_of_the_connection(api: Api) -> None:
    handle = await api.create(large_graph(100_000))
    async with api.connection() as (reader, writer):
        writer.write(f"GET /v1/sessions/{handle}/graph HTTP/1.0\r\nAccept: application/octet-stream\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert b"chunked" not in head and aexec.Graph.from_bytes(body).to_graph_def() == large_graph(100_000).graph_def


async def test_answer_is_made_no_faster_than_it_is_read(api: Api) -> None:
    handle = await api.create(large_graph())
    before = api.server.sessions.memory.in_use
    path = f"/v1/sessions/{handle}/graph"
    async with not_reading(api, "GET", path), not_reading(api, "GET", path):
        await until(lambda: api.server.door.shares.in_use == 2)
        assert api.server.sessions.memory.in_use - before == 2 * answer_door._WINDOW
    await until(lambda: api.server.door.shares.in_use == 0)
    assert api.server.sessions.memory.in_use == before
    assert api.hosted(handle).requests == 0


async def test_answer_that_was_read_is_not_counted_while_its_connection_waits(api: Api) -> None:
    handle = await api.create(large_graph())
    before = api.server.sessions.memory.in_use
    body = json.dumps({"fetches": [{"name": "filled", "parameters": {"binary_data": True}}]}).encode()
    head = f"POST /v1/sessions/{handle}:run HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    async with api.connection() as (reader, writer):
        writer.write(head.encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(answer.partition("\r\ncontent-length: ")[2].partition("\r\n")[0])
        assert length > 16 * LARGE
        assert len(await reader.readexactly(length)) == length
        await until(lambda: api.server.sessions.memory.in_use <= before)
        writer.write(head.encode() + body)  # it is open
        assert await reader.readuntil(b"\r\n\r\n")


# Who gets none


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said of each answer that was cut off."""
    said: list[str] = []

    @contextlib.asynccontextmanager
    async def noting(*args: Any) -> AsyncIterator[None]:
        try:
            async with taking(*args):
                yield
        except ConnectionResetError as error:
            said.append(str(error))
            raise

    monkeypatch.setattr(answer_door, "taking", noting)
    monkeypatch.setattr(answer_parts, "taking", noting)
    return said


async def test_client_that_does_not_read_is_cut_off(start: Start, cut_off: list[str]) -> None:
    api = await start(slow_seconds=0.05)
    handle = await api.create(large_graph())
    path = await kept(api, handle, np.arange(LARGE, dtype=np.int32))
    before = api.server.sessions.memory.in_use
    binary = {"fetches": [{"name": "filled", "parameters": {"binary_data": True}}]}
    for method, where, body, headers in (
        ("GET", f"/v1/sessions/{handle}/graph", "", {}),
        ("GET", path, "", {"Accept": "application/octet-stream"}),
        ("GET", path, "", {"Accept": "application/x-protobuf"}),
        ("POST", f"/v1/sessions/{handle}:run", json.dumps(binary), {}),
        ("POST", f"/v1/sessions/{handle}:run", json.dumps({"fetches": ["c"]}), {"Accept": SSE}),
    ):
        async with not_reading(api, method, where, body, **headers):
            await until(lambda: cut_off)
            await until(lambda: api.server.sessions.memory.in_use <= before)
            assert not api.hosted(handle).requests and not api.server.door.shares.in_use
        assert cut_off == ["The client did not take its answer"]
        cut_off.clear()


async def test_places_are_bounded_and_the_last_are_for_others(start: Start) -> None:
    api = await start(max_answers=8)
    handle = await api.create(large_graph())
    path = f"/v1/sessions/{handle}/graph"
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(7):
            await stack.enter_async_context(not_reading(api, "GET", path))
        await until(lambda: api.server.door.shares.in_use == 7)
        response, body = await api.raw("GET", path)
        assert response.status == 429 and response.headers["Retry-After"] == "1"
        assert "large answers that are being sent" in json.loads(body)["error"]
        small = await api.create(small_graph())
        assert (await api.call("GET", f"/v1/sessions/{small}/graph"))[0] == 200  # which needs no place
        api.server.door.shares.check(Caller("another", frozenset()))
    await until(lambda: api.server.door.shares.in_use == 0)
    assert (await api.raw("GET", path))[0].status == 200


async def test_large_answer_is_refused_without_memory(start: Start) -> None:
    api = await start(max_memory_bytes=1_000_000, max_session_bytes=1_000_000)
    handle = await api.create(large_graph())
    with api.server.door.holding(900_000):
        response, body = await api.raw("GET", f"/v1/sessions/{handle}/graph")
        assert response.status == 429 and response.headers["Retry-After"] == "1"
        assert json.loads(body)["code"] == "RESOURCE_EXHAUSTED"
    assert (await api.raw("GET", f"/v1/sessions/{handle}/graph"))[0].status == 200


def test_change_is_answered_even_without_memory() -> None:
    """What could be large of it was counted before it was done."""
    server = Server(ServerConfig(max_memory_bytes=1_000_000))
    with server.door.holding(950_000):
        response = web.Response(body=bytes(100_000))
        assert server.door.check_out(make_mocked_request("POST", "/"), response) is response
        with pytest.raises(errors.ResourceExhaustedError):
            server.door.check_out(make_mocked_request("GET", "/"), response)
    before = server.sessions.memory.in_use
    server.door.check_out(make_mocked_request("GET", "/"), response)
    assert server.sessions.memory.in_use == before + 100_000
    del response
    assert server.sessions.memory.in_use == before


async def test_answer_that_cannot_be_made_is_cut_off(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handle = await api.create(large_graph())

    def failing(*_: Any) -> Iterator[bytes]:
        yield bytes(PIECE)
        raise ValueError("no more")

    monkeypatch.setattr("aexec_server.handlers.session_calls.graph_pieces", failing)
    with pytest.raises(Exception, match=r"payload|disconnected|reset"):
        await api.raw("GET", f"/v1/sessions/{handle}/graph")
    assert "was cut off" in caplog.text and handle not in caplog.text and not api.server.door.shares.in_use


# Events


@pytest.mark.parametrize("accept", [SSE, NDJSON])
async def test_readers_of_events_that_do_not_read(api: Api, accept: str) -> None:
    """What is kept for each is a piece of the text, and not all of it."""
    handle = await api.create(large_graph())
    asked = {"feeds": {}, "fetches": ["c"], "run_id": "r"}
    before = api.server.sessions.memory.in_use
    async with contextlib.AsyncExitStack() as stack:
        for number in range(5):
            body = json.dumps(asked | {"run_id": f"r{number}"})
            await stack.enter_async_context(not_reading(api, "POST", f"/v1/sessions/{handle}:run", body, Accept=accept))
        await until(lambda: api.server.sessions.memory.in_use - before >= 5 * answer_door._WINDOW)
        await asyncio.sleep(0)
        assert api.server.sessions.memory.in_use - before <= 5 * answer_door._WINDOW + LARGE
    await until(lambda: api.server.sessions.memory.in_use <= before)


async def test_large_output_in_an_event(api: Api) -> None:
    handle = await api.create(large_graph(100_000))
    async with posted(api, handle, NDJSON, fetches=["c"]) as response:
        lines = [json.loads(line) async for line in response.content]
    (output,) = (line for line in lines if line["event"] == "output")
    assert output["shape"] == [100_000] and len(output["value"]) == 100_000 and output["dtype"] == "uint8"


# Answers that are made whole


async def test_answers_of_queues_are_counted(api: Api) -> None:
    g = GraphBuilder()
    g("q", "FIFOQueueV2", component_types=[dtypes.float32], shapes=[])
    handle = await api.create(g)
    queue = api.hosted(handle).session.queue("q")
    await queue.put(np.arange(LARGE, dtype=np.float32))
    before = api.server.sessions.memory.in_use
    body = json.dumps({"parameters": {"binary_data_output": True}})
    async with not_reading(api, "POST", f"/v1/sessions/{handle}/queues/q:dequeue", body):
        await until(lambda: api.server.sessions.memory.in_use - before >= 4 * LARGE)
    await until(lambda: len(queue) == 1)  # nobody had it
    await until(lambda: api.server.sessions.memory.in_use <= before)


# The table of calls

# Answers whose size nobody but the server's operator decides on, or that are one document.
BOUNDED = frozenset(
    "Cancelled Closed CreatedSession Devices Done ExtendedSession Live Metrics ModelNames "
    "LogSettings ModelReady OpenApi Page PageFile PartialRunHandle Queue Ready Regions RepositoryIndex Reset Run "
    "ServerMetadata ServingStatus SessionTensor Stats Status TraceSettings".split()
)
# Answers of runs and their like, which are counted before they are made.
MADE_WHOLE = frozenset(
    "ClassifyResponse Elements InferResponse Operation PredictResponse RegressResponse RunResponse".split()
)
SENT_IN_PIECES = frozenset(
    "ChromeTrace Events GraphDef History ModelConfig ModelMetadata Nodes Queues Runs ServerEvents ServingMetadata "
    "Session SessionEvents SessionTensorValue SessionTensors Sessions".split()
)


def test_each_call_says_what_bounds_its_answer() -> None:
    """A new one is put into one of these; what clients can make large is given to `AnswerDoor.send`."""
    answers = {route.response for route in route_table(Server(ServerConfig())) if route.response is not None}
    assert answers == BOUNDED | MADE_WHOLE | SENT_IN_PIECES


async def test_heads_make_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    api = await start(graphs={"m": large_graph(10).graph()})
    small = await api.create(small_graph())
    await kept(api, small, np.arange(10.0))
    traced = {"feeds": {"x": [1]}, "fetches": ["y"], "run_id": "t", "options": {"trace_level": "FULL_TRACE"}}
    assert (await api.run(small, **traced))[0] == 200
    hosted = api.hosted(small)
    run = hosted.runs.add()
    monkeypatch.delattr("aexec_server.http.answer_door._Pieces")
    names = {
        "model": "m",
        "version": "1",
        "session": small,
        "run": run.id,
        "tensor": hosted.session.tensors.list()[0].handle,
    }
    for route in route_table(api.server):
        if route.response in SENT_IN_PIECES and route.method == "GET" and "{label}" not in route.path:
            path = route.path.format(**(names | {"run": "t"} if route.response == "ChromeTrace" else names))
            response, body = await api.raw("HEAD", path)
            assert response.status == 200 and not body, path
    hosted.runs.remove(run)
