"""What only sessions of a server do, by gRPC: joining one, other people's runs, servers that cannot be reached."""

from __future__ import annotations

import asyncio
import random
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from aexec_server import ServerConfig
from aexec_server.clients.tokens import new_token_line
from aexec_server.handles import Handles
from aiohttp.test_utils import unused_port

import aexec
from aexec import errors
from aexec.framework import dtypes
from aexec.proto import rpc
from aexec.remote.service import ServerRestartedError
from tests.remote.conftest import Served
from tests.remote.test_remote_session import doubled, waiting
from tests.server.connections.test_tls import Authority
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.serving import serving_both
from tests.support.waiting import until

NO_GRPC = """
import sys
import aexec
sys.modules["grpc"] = None
try:
    aexec.connect("grpc://localhost:1", session="s")
except aexec.errors.FailedPreconditionError as error:
    print(error)
"""


class Cut:
    """Passes bytes between clients and a server until `cut` breaks all connections."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, there[1]]
        await asyncio.gather(self._pass(reader, there[1]), self._pass(there[0], writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(2**16):
                writer.write(data)
        except ConnectionError:
            pass
        writer.close()

    def cut(self) -> None:
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.transport.abort()


@asynccontextmanager
async def through_a_relay(served: Served) -> AsyncIterator[tuple[str, Cut]]:
    relay = Cut(int(served.grpc_url.rpartition(":")[2]))
    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield f"grpc://127.0.0.1:{server.sockets[0].getsockname()[1]}", relay
    finally:
        relay.cut()
        server.close()


async def test_session_is_deleted_when_it_is_closed(served: Served) -> None:
    async with aexec.connect(served.grpc_url, doubled(), name="mine", ttl=60) as session:
        (hosted,) = served.server.sessions
        assert (hosted.handle, hosted.ttl, session.handle) == ("mine", 60, "mine")
        assert served.grpc_url in repr(session)
        with pytest.raises(errors.AlreadyExistsError, match="There is a session 'mine'"):
            await aexec.connect(served.grpc_url, doubled(), name="mine")
        with pytest.raises(errors.InvalidArgumentError, match='"name" must be'):
            await aexec.connect(served.grpc_url, doubled(), name="not mine")
    assert not len(served.server.sessions)


async def test_session_that_is_there_is_joined(served: Served) -> None:
    async with aexec.connect(served.url, doubled()) as mine:
        for joined in (
            aexec.connect(f"{served.grpc_url}/v1/sessions/{mine.handle}"),
            aexec.connect(served.grpc_url, session=mine.handle),
        ):
            async with joined as session:
                assert (await session.run("y:0", {"x:0": [1, 2]})).tolist() == [2, 4]
                assert (await session.call(x=[1.5]))["y"].tolist() == [3]
                assert (await session.fetch_graph()).node("y").op == "Add"
                assert [device.device_type for device in await session.devices()] == ["CPU"]
                (hosted,) = served.server.sessions
                hosted._used -= 100
                theirs, ours = await mine.describe(), await session.describe()
                assert theirs.pop("idle_s") >= 100 > ours.pop("idle_s") and ours == theirs
        assert (await mine.run("y:0", {"x:0": [1]})).tolist() == [2]  # it was left there


async def test_run_of_another_client_is_cancelled_by_its_name(served: Served) -> None:
    gate = gates.Gate()
    async with aexec.connect(served.grpc_url, waiting(gate)) as mine:
        step = mine.start("y:0", run_id="long")
        await gate.entered.wait()
        async with aexec.connect(served.url, session=mine.handle) as other:
            assert [run["run_id"] for run in await mine.runs()] == ["long"]
            with pytest.raises(errors.AlreadyExistsError, match="Run 'long' is in flight"):
                await other.run("y:0", run_id="long")
            assert await other.cancel("long", "too long")
        with pytest.raises(errors.CancelledError, match="too long"):
            await step
        assert await mine.cancel("next", "ahead of it")
        with pytest.raises(errors.CancelledError, match="ahead of it"):
            await mine.run("y:0", run_id="next")


async def test_run_that_ends_at_once_keeps_its_name(served: Served) -> None:
    async with aexec.connect(served.grpc_url, doubled()) as session:
        await session.cancel("early", "ahead of it")
        with pytest.raises(errors.CancelledError, match="ahead of it"):
            await session.run("y:0", {"x:0": [1]}, run_id="early")
        await session.run("y:0", {"x:0": [1]}, run_id="early")
        (hosted,) = served.server.sessions
        assert not hosted.runs.cancel("early", "too late")  # it is known, and has ended


async def test_client_that_leaves_without_a_word_cancels_its_runs(served: Served) -> None:
    gate = gates.Gate()
    session = await aexec.connect(served.grpc_url, waiting(gate))
    step = session.start("y:0")
    await gate.entered.wait()
    await session._service.close()
    await until(lambda: gate.cancelled == 1)
    with pytest.raises(errors.UnavailableError, match=r"RunStep of grpc://.*: the connection was closed"):
        await step


async def test_cancelled_call_at_a_queue_has_taken_nothing(served: Served) -> None:
    g = GraphBuilder()
    g("q", "FIFOQueueV2", component_types=[dtypes.float32], shapes=[[]])
    async with aexec.connect(served.grpc_url, g.graph()) as session:
        queue = session.queue("q")
        for n in range(20):
            taking = asyncio.create_task(queue.get())
            while not (await session.queues() and (await queue.statistics()).waiting_dequeues):
                await asyncio.sleep(0)
            taking.cancel()
            await queue.put(n)
            assert await queue.get() == n
            with pytest.raises(asyncio.CancelledError):
                await taking


async def test_restart_of_the_server_is_said(served: Served) -> None:
    async with aexec.connect(served.grpc_url, doubled()) as session:
        mine = session._handle
        session._handle = Handles().new()  # as an earlier start of the server has made it
        with pytest.raises(ServerRestartedError, match=r"the server was restarted.* Connect again"):
            await session.run("y:0", {"x:0": [1]})
        session._handle = mine


async def test_long_words_of_an_error_are_cut(served: Served) -> None:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32)
    g("fails", "CheckNumerics", "x", T=dtypes.float32, message="ü" * 5000)
    async with aexec.connect(served.grpc_url, g.graph()) as session:
        with pytest.raises(errors.InvalidArgumentError, match=r"^üü.* … \(cut off\)") as failed:
            await session.run("fails:0", {"x:0": float("nan")})
    assert (failed.value.node, failed.value.op) == ("fails", "CheckNumerics")


async def test_address_where_nobody_listens_is_named() -> None:
    with pytest.raises(errors.UnavailableError, match=r"CreateSession of grpc://.*[Cc]onnect") as failed:
        await aexec.connect(f"grpc://127.0.0.1:{unused_port()}", doubled())
    assert "not known" not in str(failed.value)


async def test_run_whose_connection_breaks_is_not_repeated(served: Served) -> None:
    gate = gates.Gate()
    async with through_a_relay(served) as (url, relay), aexec.connect(url, waiting(gate)) as session:
        step = session.start("y:0")
        await gate.entered.wait()
        relay.cut()
        with pytest.raises(errors.UnavailableError, match="whether it was done is not known"):
            await step
        await until(lambda: gate.cancelled == 1)
        assert (await session.describe())["runs"] == 1 and gate.count == 1  # by another connection
        assert relay.connections > 1


async def test_server_without_the_service_is_told() -> None:
    grpc.aio.init_grpc_aio()
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        with pytest.raises(errors.UnimplementedError, match=r"has no aexec\.SessionService"):
            await aexec.connect(f"grpc://127.0.0.1:{port}", session="s")
    finally:
        await server.stop(None)


async def test_server_that_does_not_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("remote_step", "remote_runs"):
        monkeypatch.setattr(f"aexec.remote.{module}.GRACE", 0.0)
    hangs, deadlines = asyncio.Event(), []

    async def answer(data: bytes, context: Any) -> bytes:
        deadlines.append(context.time_remaining())
        await hangs.wait()
        return b""

    async def describe(data: bytes, context: Any) -> bytes:
        return rpc.JsonAnswer(json='{"graph_version": 0}').SerializeToString()

    grpc.aio.init_grpc_aio()
    server = grpc.aio.server()
    calls = {
        "RunStep": grpc.unary_unary_rpc_method_handler(answer),
        "DescribeSession": grpc.unary_unary_rpc_method_handler(describe),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("aexec.SessionService", calls)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with aexec.connect(f"grpc://127.0.0.1:{port}", session="s") as session:
            with pytest.raises(errors.DeadlineExceededError):
                await session.run("y:0", options=aexec.RunOptions(timeout=0.2))
            assert 0 < deadlines[0] < 1  # gRPC rounds it
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("url", "settings", "message"),
    [
        ("grpc://localhost", {}, "expected grpc://host:port"),
        ("grpc://localhost:1/there", {}, "expected grpc://host:port"),
        ("grpc://me@localhost:1", {}, "expected grpc://host:port"),
        ("grpc://localhost:many", {}, "expected grpc://host:port"),
        ("grpc://localhost:1", {"headers": {"grpc-timeout": "1S"}}, "no name of gRPC's metadata"),
        ("grpc://localhost:1", {"headers": {"x": "ü"}}, "must be printable ASCII"),
        ("grpc://localhost:1", {"token": "SECRET\r\nX: y"}, "a token has letters"),
        ("grpcs://localhost:1", {"ca": "none.pem"}, r"none\.pem"),
        ("grpcs://localhost:1", {"ca": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)}, "takes no ssl.SSLContext"),
    ],
)
def test_wrong_settings_are_refused(url: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        aexec.connect(url, doubled(), **settings)


def test_repeated_runs_are_refused() -> None:
    with pytest.raises(errors.UnimplementedError, match="retry_runs needs an address of HTTP"):
        aexec.connect("grpc://localhost:1", doubled(), retry_runs=True)


def test_missing_package_is_named() -> None:
    ran = subprocess.run([sys.executable, "-c", NO_GRPC], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == (
        "A session by gRPC needs the package grpc, which is not installed: pip install 'aexec[grpc]'"
    )


async def test_session_by_tls_with_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    token, line = new_token_line("alice", ["run", "manage"], {})
    runner, runs_only = new_token_line("bob", ["run"], {})
    config = ServerConfig(tls_cert=authority.cert, tls_key=authority.key, tokens=f"{line}\n{runs_only}", grpc_port=0)
    async with serving_both(config) as (_, _, url):
        assert url.startswith("grpcs://127.0.0.1:")
        with pytest.raises(errors.UnavailableError, match=r"(?i)certificate|handshake"):
            await aexec.connect(url, doubled(), token=token)
        with pytest.raises(errors.UnauthenticatedError, match="wants a token"):
            await aexec.connect(url, doubled(), ca=authority.ca)
        with pytest.raises(errors.UnauthenticatedError, match="none that this server knows"):
            await aexec.connect(url, doubled(), ca=authority.ca, token="aexec_other")
        with pytest.raises(errors.PermissionDeniedError, match="scope 'manage'"):
            await aexec.connect(url, doubled(), ca=authority.ca, token=runner)
        monkeypatch.setenv("AEXEC_TOKEN", token)
        async with aexec.connect(url, doubled(), ca=authority.ca) as session:
            assert (await session.run("y:0", {"x:0": [1]})).tolist() == [2] and token not in repr(session)
            with pytest.raises(errors.NotFoundError, match="is not found"):
                await aexec.connect(url, session=session.handle, ca=authority.ca, token=runner)


async def test_client_shows_its_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    config = ServerConfig(tls_cert=authority.cert, tls_key=authority.key, tls_client_ca=authority.ca, grpc_port=0)
    mine = authority.authority.issue_cert("client@x.example")
    chain, key = mine.cert_chain_pems[0].bytes(), mine.private_key_pem.bytes()
    credentials = grpc.ssl_channel_credentials(authority.authority.cert_pem.bytes(), key, chain)
    async with serving_both(config) as (_, _, url):
        with pytest.raises(errors.UnavailableError):
            await aexec.connect(url, doubled(), ca=authority.ca)
        async with aexec.connect(url, doubled(), ca=credentials) as session:
            assert (await session.run("y:0", {"x:0": [1]})).tolist() == [2]


# The same by HTTP and by gRPC

TYPES = (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.bool_, dtypes.complex64, dtypes.string)


def echo() -> aexec.Graph:
    """For each type `T` an identity `y_T` of the placeholder `x_T`; `root` fails for numbers below zero."""
    g = GraphBuilder()
    for dtype in TYPES:
        g.placeholder(f"x_{dtype.name}", dtype)
        g(f"y_{dtype.name}", "Identity", f"x_{dtype.name}", T=dtype)
    g("checked", "CheckNumerics", "x_float32", T=dtypes.float32, message="not finite")
    return g.graph()


def random_value(rng: random.Random, dtype: dtypes.DType) -> Any:
    shape = [rng.choice((0, 1, 2, 3, 300)) for _ in range(rng.randint(0, 3))]
    count = int(np.prod(shape))
    if dtype is dtypes.string:
        strings = np.empty(count, object)
        strings[:] = [rng.randbytes(rng.randint(0, 9)) for _ in range(count)]
        return strings.reshape(shape)
    bits = np.frombuffer(rng.randbytes(max(1, count) * dtype.size), np.uint8)
    raw = bits % 2 if dtype is dtypes.bool_ else bits
    return raw.view(dtype.np)[:count].reshape(shape)


async def outcome(run: Callable[..., Awaitable[Any]], *asked: Any) -> Any:
    try:
        values = await run(*asked)
    except errors.OpError as error:
        return type(error), error.message, error.node, error.op
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> tuple[Any, ...]:
    array = np.asarray(value, object if isinstance(value, bytes) else None)
    return type(value), array.dtype, array.shape, array.tolist() if array.dtype == object else array.tobytes()


async def test_random_runs_end_alike_by_http_and_grpc(served: Served) -> None:
    rng = random.Random(27)
    names = [dtype.name for dtype in TYPES]
    async with (
        aexec.connect(served.url, echo()) as by_http,
        aexec.connect(served.grpc_url, session=by_http.handle) as by_grpc,
    ):
        ended = []
        for _ in range(60):
            chosen = rng.sample(names, rng.randint(1, 3))
            feeds = {f"x_{name}:0": random_value(rng, dtypes.as_dtype(name)) for name in chosen}
            fetches = {name: f"y_{name}:0" for name in chosen}
            if rng.random() < 0.4:
                fetches["odd"] = rng.choice(["checked:0", "none:0", "y_int64:0", "y_int64:7", "x_string:0"])
            if rng.random() < 0.2:
                feeds["x_int32:0"] = rng.choice([1.5, "text", [2**40], [1, 2]])
            alike = [await outcome(session.run, fetches, feeds) for session in (by_http, by_grpc)]
            assert alike[0] == alike[1], (fetches, feeds)
            ended.append(type(alike[0]))
    assert ended.count(dict) > 15 < ended.count(tuple)
