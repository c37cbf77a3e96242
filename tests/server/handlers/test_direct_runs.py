"""Runs that are over at once, answered where they are read: as the ordinary way answers them, and when they are not."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from aexec_server.app import make_app
from aexec_server.clients.tokens import new_token
from aexec_server.handlers import direct_runs
from aexec_server.handlers.direct_runs import DirectRuns, Fate
from aexec_server.handlers.runs import RunHandlers
from aexec_server.http import json_text
from aexec_server.models.models import ModelVersion
from aexec_server.sessions.hosted_session import HostedSession
from aexec_server.settings.server_config import ServerConfig
from aiohttp import web

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from aexec.hosting import SliceClock, tensor_from_proto, tensor_to_proto
from tests.server.conftest import RELAYED, Api, Start, gate_graph
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

ANSWERED, ORDINARY = Fate.ANSWERED, Fate.ORDINARY

# Fails for negative numbers, in a plan that is compiled like any other.
register_op("TestNotNegative(x: float) -> y: float")


@kernel("TestNotNegative", cost=0)
def _not_negative(c: Any) -> Any:
    def compute(x: Any) -> Any:
        if np.min(x) < 0:
            raise errors.OutOfRangeError("negative")
        return x

    return compute


def graph() -> GraphBuilder:
    """`y` is the square of `x`; `checked` fails for some `x`; `many` is a thousand numbers, `more` a million."""
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    g("y", "Square", "x", T=dtypes.float32)
    g("checked", "TestNotNegative", "x")
    for name, count in (("many", 1000), ("more", 1_000_000)):
        g.const(f"{name}_count", [count], dtypes.int32)
        g(name, "Tile", "x", f"{name}_count", T=dtypes.float32, Tmultiples=dtypes.int32)
    return g


def request(path: str, body: bytes, *, media: str = "application/json", **headers: str) -> bytes:
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media}\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def run_request(path: str = "/v1/sessions/m:run", fetch: str = "y:0", x: Any = (1.0, -2.0), **headers: str) -> bytes:
    return request(path, json.dumps({"feeds": {"x:0": list(x)}, "fetches": [fetch]}).encode(), **headers)


class Client:
    """A connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next one: status, headers with names in lower case, body."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])}
        return int(head[0][9:12]), headers, await self.reader.readexactly(int(headers["content-length"]))

    async def ask(self, data: bytes) -> tuple[int, dict[str, str], bytes]:
        self.writer.write(data)
        return await self.answer()

    async def warm_up(self, data: bytes) -> None:
        """Ask until the plan is compiled, and the head known."""
        for _ in range(4):
            await self.ask(data)


@asynccontextmanager
async def connected(api: Api) -> AsyncIterator[Client]:
    async with api.connection() as (reader, writer):
        yield Client(reader, writer)


@pytest.fixture
def fates(monkeypatch: pytest.MonkeyPatch) -> list[Fate]:
    """What became of each request, in their order, once its turn had come: a busy machine puts some off."""
    seen: list[Fate] = []
    answer = DirectRuns.answer

    def noted(*args: Any, **kwargs: Any) -> Fate:
        fate = answer(*args, **kwargs)
        if fate is not Fate.LATER:
            seen.append(fate)
        return fate

    monkeypatch.setattr(DirectRuns, "answer", noted)
    return seen


@pytest.fixture
async def api(start: Start) -> Api:
    """A server with the model `m`."""
    return await served(start)


async def served(start: Start, **settings: Any) -> Api:
    return await start(graphs={"m": aexec.Graph.from_graph_def(graph().graph_def)}, **settings)


pytestmark = pytest.mark.skipif(RELAYED, reason="looks at bytes that a relay changes")


def inference() -> bytes:
    tensor = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1.0, -2.0]}
    return request("/v2/models/m/infer", json.dumps({"inputs": [tensor], "outputs": [{"name": "y"}]}).encode())


def binary_inference() -> bytes:
    values = np.array([1, -2], np.float32).tobytes()
    tensor = {"name": "x", "shape": [2], "datatype": "FP32", "parameters": {"binary_data_size": len(values)}}
    wanted = {"name": "y", "parameters": {"binary_data": True}}
    head = json.dumps({"inputs": [tensor], "outputs": [wanted], "id": "7"}).encode()
    return request("/v2/models/m/versions/1/infer", head + values, Inference_Header_Content_Length=str(len(head)))


def prediction() -> bytes:
    return request("/v1/models/m:predict", json.dumps({"inputs": [1.0, -2.0]}).encode())


def message() -> bytes:
    asked = proto.RunStepRequest(fetch=["y:0"])
    asked.feed.add(name="x:0").tensor.CopyFrom(tensor_to_proto(np.array([1, -2], np.float32), dtypes.float32))
    return request("/v1/sessions/m:run", asked.SerializeToString(), media="application/x-protobuf")


@pytest.mark.parametrize("make", [run_request, inference, binary_inference, message])
async def test_direct_answer_equals_the_ordinary_one(api: Api, fates: list[Fate], make: Callable[[], bytes]) -> None:
    async with connected(api) as client:
        data = make()
        first = await client.ask(data)
        await client.warm_up(data)
        fates.clear()
        again = await client.ask(data)
        assert fates == [ANSWERED]
    assert first[0] == again[0] == 200

    def told(answer: tuple[int, dict[str, str], bytes]) -> tuple[dict[str, str], bytes]:
        _, headers, body = answer
        run_id = headers.pop("aexec-run-id").encode()
        headers.pop("date")
        headers["content-length"] = str(int(headers["content-length"]) - len(run_id) * body.count(run_id))
        return headers, body.replace(run_id, b"")

    assert told(first) == told(again)


async def test_runs_that_use_variables_are_direct(api: Api, fates: list[Fate]) -> None:
    with aexec.Graph() as variables:
        ops = aexec.ops
        handle = ops.var_handle_op("float32", [2], shared_name="v")
        x = aexec.placeholder("float32", [2], name="x")
        ops.assign_variable_op(handle, x, name="set")
        ops.assign_add_variable_op(handle, x, name="count")
        ops.read_variable_op(handle, "float32", name="v")
    encoded = base64.b64encode(variables.to_bytes()).decode()
    _, session = await api.call("POST", "/v1/sessions", {"graph_def": encoded})

    def run(**asked: Any) -> bytes:
        return request(f"/v1/sessions/{session['session_handle']}:run", json.dumps(asked).encode())

    fed = {"x:0": [1.0, 2.0]}
    async with connected(api) as client:
        await client.ask(run(feeds=fed, targets=["set"]))
        await client.warm_up(run(feeds=fed, targets=["count"]))
        await client.warm_up(run(fetches=["v:0"]))
        fates.clear()
        await client.ask(run(feeds=fed, targets=["count"]))
        status, _, answer = await client.ask(run(fetches=["v:0"]))
        assert fates == [ANSWERED, ANSWERED]
    assert status == 200 and json.loads(answer)["outputs"]["v:0"] == [6.0, 12.0]


async def test_predictions(start: Start, fates: list[Fate]) -> None:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    g("y", "Square", "x", T=dtypes.float32)
    api = await start(graphs={"m": aexec.Graph.from_graph_def(g.graph_def)})
    async with connected(api) as client:
        await client.warm_up(prediction())
        fates.clear()
        status, _, body = await client.ask(prediction())
    assert (status, json.loads(body), fates) == (200, {"outputs": [1.0, 4.0]}, [ANSWERED])


async def test_messages_have_their_values(api: Api, fates: list[Fate]) -> None:
    async with connected(api) as client:
        await client.warm_up(message())
        _, headers, body = await client.ask(message())
    answer = proto.RunStepResponse.FromString(body)
    assert fates[-1] is ANSWERED and headers["content-type"] == "application/x-protobuf"
    assert tensor_from_proto(answer.tensor[0].tensor).tolist() == [1.0, 4.0]


async def test_json_that_comes_again_is_not_read_again(
    api: Api, fates: list[Fate], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []
    loads = json_text.loads
    monkeypatch.setattr(json_text, "loads", lambda body: read.append(body) or loads(body))
    data = binary_inference()
    start, end = data.index(b'{"inputs"'), data.index(b"}", data.rindex(b'"id"')) + 1
    async with connected(api) as client:
        await client.warm_up(data)
        unread = 0
        for x in range(10):  # a busy machine may leave some to the ordinary way
            values, before = np.array([x, -x], np.float32), len(read)
            status, _, body = await client.ask(data[:end] + values.tobytes())
            assert status == 200 and b'"id":"7"' in body
            assert np.frombuffer(body[-8:], np.float32).tolist() == (values**2).tolist()
            if fates[-1] is ANSWERED:
                assert len(read) == before
                unread += 1
        assert unread
        # Of the same length, about something else.
        other = data[start:end].replace(b'"name": "y"', b'"name": "z"')
        status, _, body = await client.ask(data[:start] + other + data[end:])
        assert status == 400 and b"no output 'z'" in body
        other = data[start:end].replace(b'"id": "7"', b'"id": "8"')
        for _ in range(2):
            status, _, body = await client.ask(data[:start] + other + data[end:])
            assert status == 200 and b'"id":"8"' in body
        status, _, body = await client.ask(data)
        assert status == 200 and b'"id":"7"' in body


async def test_direct_runs_are_counted(api: Api, fates: list[Fate]) -> None:
    async with connected(api) as client:
        await client.warm_up(inference())
        _, headers, _ = await client.ask(inference())
        assert fates[-1] is ANSWERED
    metrics = api.server.metrics.snapshot()
    assert metrics["aexec_runs"] == {("m", "OK"): 5}
    assert sum(metrics["aexec_run_duration_seconds"][()][:-1]) == 5  # type: ignore[index]
    _, stats = await api.call("GET", "/v2/models/m/stats")
    assert stats["model_stats"][0]["inference_stats"]["success"]["count"] == 5
    # It is known to have ended, and so cannot be cancelled.
    path = f"/v1/sessions/m/runs/{headers['aexec-run-id']}:cancel"
    assert await api.call("POST", path) == (200, {"cancelled": False})


async def test_errors_are_reported_by_the_ordinary_handler(api: Api, fates: list[Fate]) -> None:
    async with connected(api) as client:
        good = run_request(fetch="checked:0", x=(1.0, 2.0))
        await client.warm_up(good)
        fates.clear()
        bad = good.replace(b'"feeds"', b'"foods"')
        status, _, body = await client.ask(bad)
        assert (status, fates) == (400, [ORDINARY]) and b"did you mean" not in body and b"foods" in body
        fates.clear()
        # It fails when it has begun: it is gone on with, and not begun twice.
        status, headers, body = await client.ask(good.replace(b"1.0, 2.0", b"-1.0,2.0"))
        assert (status, json.loads(body)["code"], json.loads(body)["node"]) == (400, "OUT_OF_RANGE", "checked")
        assert fates == [ORDINARY] and headers["aexec-run-id"] in json.loads(body)["instance"]
        assert (await client.ask(good))[0] == 200
    metrics = api.server.metrics.snapshot()["aexec_runs"]
    assert metrics == {("m", "OK"): 5, ("m", "INVALID_ARGUMENT"): 1, ("m", "OUT_OF_RANGE"): 1}


async def test_large_answers_are_written_by_the_ordinary_handler(api: Api, fates: list[Fate]) -> None:
    async with connected(api) as client:
        for fetch, fate in (("many:0", ANSWERED), ("more:0", ORDINARY)):
            data = run_request(fetch=fetch, x=(1.0,))
            await client.warm_up(data)
            fates.clear()
            status, _, body = await client.ask(data)
            assert (status, fates) == (200, [fate])
            assert set(json.loads(body)["outputs"][fetch]) == {1.0}
    assert api.server.metrics.snapshot()["aexec_runs"] == {("m", "OK"): 10}


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Aexec-Run-Id", "r"),
        ("Aexec-Timeout-Ms", "1000"),
        ("Content-Encoding", "identity"),
        ("Expect", "100-continue"),
        ("Idempotency-Key", "k"),
        ("Prefer", "respond-async"),
        ("Priority", "u=1"),
        ("Traceparent", f"00-{'1' * 32}-{'2' * 16}-01"),
        ("X-Request-Id", "r"),
        ("Connection", "close"),
        ("Anything", "else"),
    ],
)
async def test_head_with_other_headers_is_left_to_aiohttp(api: Api, fates: list[Fate], header: str, value: str) -> None:
    async with connected(api) as client:
        data = run_request()
        await client.warm_up(data)
        fates.clear()
        head, _, body = data.partition(b"\r\n\r\n")
        client.writer.write(head + f"\r\n{header}: {value}\r\n\r\n".encode() + body)
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 ")
        assert fates == [ORDINARY]


async def test_pages_of_other_sites_are_refused(api: Api, fates: list[Fate]) -> None:
    async with connected(api) as client:
        await client.warm_up(run_request())
        for more in ({"Origin": "http://other.example"}, {"Sec_Fetch_Site": "cross-site"}):
            for _ in range(2):
                status, _, _ = await client.ask(run_request(**more))
                assert (status, fates[-1]) == (403, ORDINARY)
        await client.warm_up(run_request(Origin="http://localhost"))
        assert fates[-1] is ANSWERED


async def test_answers_are_compressed_for_who_asks(api: Api, fates: list[Fate]) -> None:
    tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}
    body = json.dumps({"inputs": [tensor], "outputs": [{"name": "many"}]}).encode()
    async with connected(api) as client:
        data = request("/v2/models/m/infer", body, Accept_Encoding="gzip")
        await client.warm_up(data)
        status, headers, answer = await client.ask(data)
    assert (status, fates[-1], headers["content-encoding"], headers["vary"]) == (
        200,
        ANSWERED,
        "gzip",
        "Accept-Encoding",
    )
    assert json.loads(gzip.decompress(answer))["outputs"][0]["data"] == [1.0] * 1000


async def test_numbers_are_as_accept_has_them(api: Api, fates: list[Fate]) -> None:
    async with connected(api) as client:
        data = run_request(x=[1e30], Accept="application/json; nan=null")
        await client.warm_up(data)
        _, _, answer = await client.ask(data)
    assert fates[-1] is ANSWERED and json.loads(answer)["outputs"]["y:0"] == [None]


# Turns


async def test_direct_runs_are_taken_in_turns(api: Api, fates: list[Fate], monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(api) as client, connected(api) as other:
        data = run_request()
        await client.warm_up(data)
        fates.clear()
        monkeypatch.setattr(direct_runs, "perf_counter", lambda: 1e12)  # every slice is over
        client.writer.write(data)
        await until(lambda: len(api.server.backlog) == 1)
        assert not fates
        # Whoever leaves meanwhile is not run, and who sends more is answered the ordinary way.
        other.writer.write(data)
        await until(lambda: len(api.server.backlog) == 2)
        other.writer.close()
        await until(lambda: len(api.server.backlog) == 1)
        client.writer.write(data)
        assert (await client.answer())[0] == (await client.answer())[0] == 200
    async with connected(api) as client:
        client.writer.write(data)
        await until(lambda: len(api.server.backlog) == 1)
        monkeypatch.undo()
        assert (await client.answer())[0] == 200
        assert len(api.server.backlog) == 0
    assert api.server.metrics.snapshot()["aexec_runs"] == {("m", "OK"): 7}


async def test_waiting_runs_come_before_direct_ones(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else some clients of many have all the turns, and the others wait for some milliseconds each time."""
    async with connected(api) as one, connected(api) as two, connected(api) as late:
        data = run_request()
        await one.warm_up(data)
        ends: list[float] = []
        enter = SliceClock.enter

        def noted(turns: SliceClock, loop: asyncio.AbstractEventLoop) -> float:
            ends.append(enter(turns, loop))
            return ends[-1]

        monkeypatch.setattr(SliceClock, "enter", noted)
        monkeypatch.setattr(direct_runs, "perf_counter", lambda: 1e12)  # every slice is over
        for client in (one, two):
            client.writer.write(data)
        await until(lambda: len(api.server.backlog) == 2)
        ends.clear()
        late.writer.write(data)
        await until(lambda: len(api.server.backlog) == 3)
        assert ends == [0.0]
        monkeypatch.undo()
        for client in (one, two, late):
            assert (await client.answer())[0] == 200


async def test_run_that_was_begun_is_stopped_if_nobody_waits_for_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where its session is deleted before aiohttp has a request of it."""
    async with connected(api) as client:
        data = run_request(fetch="checked:0", x=(1.0, 2.0))
        await client.warm_up(data)
        begin_early = RunHandlers.begin_early
        hosted = api.hosted("m")

        def begin(handlers: RunHandlers, *args: Any) -> None:
            begin_early(handlers, *args)
            (run,) = hosted.runs.live.values()
            assert run.begun is not None and handlers.admission.statistics().in_flight == 1
            api.server.leaving = api.server.draining = True

        monkeypatch.setattr(RunHandlers, "begin_early", begin)
        status, _, body = await client.ask(data.replace(b"1.0, 2.0", b"-1.0,2.0"))
        assert (status, json.loads(body)["code"]) == (503, "UNAVAILABLE")
        await until(lambda: not hosted.runs.live)
    assert not hosted.requests
    # The step had failed by then.
    assert api.server.metrics.snapshot()["aexec_runs"] == {("m", "OK"): 4, ("m", "OUT_OF_RANGE"): 1}


async def test_request_begun_before_a_new_version_runs_the_new_version(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(api) as client:
        tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": [-1.0]}
        data = request(
            "/v2/models/m/infer", json.dumps({"inputs": [tensor], "outputs": [{"name": "checked"}]}).encode()
        )
        await client.warm_up(data.replace(b"-1.0", b" 1.0"))
        model = api.server.models.find("m")
        begin_early = RunHandlers.begin_early

        def begin(handlers: RunHandlers, *args: Any) -> None:
            begin_early(handlers, *args)
            monkeypatch.undo()
            old = model.version()
            model.versions[2] = new = ModelVersion("m", 2, old.source)
            g = GraphBuilder()
            g.placeholder("x", dtypes.float32, [None])
            g("checked", "Square", "x", T=dtypes.float32)
            session = aexec.Session(aexec.Graph.from_graph_def(g.graph_def))
            new.open(HostedSession("m", session, None, api.server.config.clock, runs=model.runs))

        monkeypatch.setattr(RunHandlers, "begin_early", begin)
        status, _, body = await client.ask(data)
        assert (status, json.loads(body)["model_version"], json.loads(body)["outputs"][0]["data"]) == (200, "2", [1.0])
        await until(lambda: not model.runs.live)
        await model.version(2).hosted.session.close()


# Who may


async def test_tokens(start: Start, fates: list[Fate]) -> None:
    tokens, lines = {}, ""
    for name, more in (("alice", ""), ("busy", ", rate = 1000"), ("few", ", max_runs = 9")):
        tokens[name], digest = new_token()
        lines += f'{name} = {{sha256 = "{digest}", scopes = ["run"]{more}}}\n'
    api = await served(start, tokens=lines)
    async with connected(api) as client:
        for name, fate in (("alice", ANSWERED), ("busy", ORDINARY), ("few", ORDINARY)):
            data = run_request(Authorization=f"Bearer {tokens[name]}")
            await client.warm_up(data)
            assert (await client.ask(data))[0] == 200 and fates[-1] is fate
        unknown = run_request(Authorization=f"Bearer {tokens['alice']}x")
        for _ in range(2):
            assert (await client.ask(unknown))[0] == 401 and fates[-1] is ORDINARY
        # A token that is no more is none at once, though its head is known.
        assert api.server.access.source is not None
        api.server.access.source.table.replace([])
        assert (await client.ask(run_request(Authorization=f"Bearer {tokens['alice']}")))[0] == 401


async def test_draining_server_begins_no_direct_run(api: Api, fates: list[Fate]) -> None:
    async with connected(api) as client:
        await client.warm_up(run_request())
        api.server.leaving = api.server.draining = True
        assert (await client.ask(run_request()))[0] == 503 and fates[-1] is ORDINARY


async def test_limit_of_runs_holds_for_direct_runs(start: Start, fates: list[Fate]) -> None:
    api = await served(start, max_runs=1)
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    async with connected(api) as client:
        await client.warm_up(run_request())
        running = asyncio.create_task(api.run(handle, fetches=["y:0"]))
        await gate.entered.wait()
        assert (await client.ask(run_request()))[0] == 429 and fates[-1] is ORDINARY
        gate.open.set()
        assert (await running)[0] == 200
        assert (await client.ask(run_request()))[0] == 200 and fates[-1] is ANSWERED


async def test_samples_are_traced_the_ordinary_way(start: Start, fates: list[Fate]) -> None:
    api = await served(start, kernel_samples=3)
    async with connected(api) as client:
        for _ in range(10):
            await client.ask(run_request())
    kernels = api.server.metrics.snapshot()["aexec_kernel_duration_seconds"]
    assert [sum(values[:-1]) for (op, _), values in kernels.items() if op == "Square"] == [4]  # type: ignore[index]
    assert ANSWERED in fates


async def test_middleware_that_sees_all_requests_turns_direct_runs_off(start: Start) -> None:
    api = await served(start, cors_origins=["https://example.org"])
    assert DirectRuns.of(api.client.server.app) is None  # type: ignore[attr-defined]
    app = make_app(ServerConfig())
    assert DirectRuns.of(app) is not None

    @web.middleware
    async def own(request: web.Request, handler: Any) -> web.StreamResponse:
        return await handler(request)  # type: ignore[no-any-return]

    app.middlewares.append(own)
    assert DirectRuns.of(app) is None


async def test_steps_and_requests_are_logged(start: Start, fates: list[Fate], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    api = await served(start, step_log=True, access_log=True)
    async with connected(api) as client:
        await client.warm_up(run_request())
        caplog.clear()
        _, headers, _ = await client.ask(run_request())
    run_id = headers["aexec-run-id"]
    assert fates[-1] is ANSWERED
    access, step = sorted(record.getMessage() for record in caplog.records if record.name.startswith("aexec_server"))
    assert access.startswith("POST /v1/sessions/m:run 200 ") and access.endswith(f" run={run_id}")
    assert step.startswith(f"run {run_id} of session m: OK after ")


async def test_few_heads_are_remembered(api: Api, fates: list[Fate], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_runs, "_MAX_KNOWN", 2)
    async with connected(api) as client:
        requests = [run_request(User_Agent=f"agent {number}") for number in range(5)]
        for data in requests:
            await client.warm_up(data)
        fates.clear()
        for data in (requests[4], requests[3], requests[0]):
            await client.ask(data)
        assert fates == [ANSWERED, ANSWERED, ORDINARY]
        long = run_request(User_Agent="x" * 3000)
        await client.warm_up(long)
        assert fates[-1] is ORDINARY


async def test_request_that_comes_before_aiohttp_waits_for_it_is_plain(
    api: Api, fates: list[Fate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or else a connection on which the next request comes fast would stay with the ordinary way."""
    async with connected(api) as client:
        data = run_request()
        await client.warm_up(data)
        (connection,) = api.client.server.table._open  # type: ignore[attr-defined]
        handle = web.RequestHandler._handle_request

        async def handle_request(self: web.RequestHandler, *args: Any) -> Any:
            answered = await handle(self, *args)
            connection.data_received(data)
            return answered

        for more, fate in (({"X_Request_Id": "1"}, ANSWERED), ({"Connection": "close"}, None)):
            fates.clear()
            with monkeypatch.context() as patch:
                patch.setattr(web.RequestHandler, "_handle_request", handle_request)
                assert (await client.ask(run_request(**more)))[0] == 200
            if fate is None:
                assert fates == [ORDINARY] and await client.reader.read() == b""
            else:
                assert (await client.answer())[0] == 200 and fates == [ORDINARY, fate]
