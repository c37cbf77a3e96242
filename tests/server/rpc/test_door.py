"""What holds for every call: who may call, how it is recorded, and what is refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import numpy as np
import pytest
from aexec_server import ServerConfig
from aexec_server.clients.callers import Scope
from aexec_server.clients.tokens import new_token
from aexec_server.core.server_state import Server
from aexec_server.rpc.method import Call, Method
from aexec_server.rpc.rpc_server import RpcServer
from aiohttp.test_utils import TestServer
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from aexec import proto
from aexec.framework import dtypes
from tests.server.conftest import small_graph
from tests.server.requests.test_protobuf import feed
from tests.server.rpc.conftest import RpcClient
from tests.server.rpc.slow_reader import unread_call
from tests.server.rpc.test_health_service import status
from tests.server.rpc.test_master_service import MASTER, create, run_step
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

Serve = Callable[..., Awaitable[RpcClient]]
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class TestTokens:
    """Alice may make sessions, bob may run."""

    async def start(self, serve: Serve) -> RpcClient:
        self.tokens, lines = {}, ""
        for name, scopes in (("alice", ["run", "manage"]), ("bob", ["run"])):
            self.tokens[name], digest = new_token()
            lines += f'{name} = {{sha256 = "{digest}", scopes = {scopes}}}\n'
        return await serve(tokens=lines)

    def of(self, name: str) -> dict[str, Any]:
        return {"metadata": (("authorization", f"Bearer {self.tokens[name]}"),)}

    async def test_token_is_wanted_but_not_for_health(self, serve: Serve) -> None:
        rpc = await self.start(serve)
        request = proto.CreateSessionRequest(graph_def=small_graph().graph_def)
        create = f"{MASTER}CreateSession", request, proto.CreateSessionResponse
        assert (await rpc.refused(*create))[0] == "UNAUTHENTICATED"
        wrong = (("authorization", "Bearer no-such-token"),)
        assert (await rpc.refused(*create, metadata=wrong))[0] == "UNAUTHENTICATED"
        code, words = await rpc.refused(*create, **self.of("bob"))
        assert code == "PERMISSION_DENIED" and "'manage'" in words
        assert await status(rpc) == 1

    async def test_jwt_is_a_token_too(self, serve: Serve) -> None:
        pytest.importorskip("jwt")
        from tests.server.clients.identity_provider import ISSUER, IdentityProvider

        provider = IdentityProvider()
        async with TestServer(provider.app()) as keys:
            rpc = await serve(jwt_keys=str(keys.make_url("/keys")), jwt_issuer=ISSUER, jwt_audiences=["aexec"])
        request = proto.CreateSessionRequest(graph_def=small_graph().graph_def)
        create = f"{MASTER}CreateSession", request, proto.CreateSessionResponse

        def of(**claims: Any) -> dict[str, Any]:
            return {"metadata": (("authorization", f"Bearer {provider.token(**claims)}"),)}

        assert (await rpc.call(*create, **of(scope="aexec:manage"))).session_handle
        code, words = await rpc.refused(*create, **of(scope="aexec:run"))
        assert code == "PERMISSION_DENIED" and "'manage'" in words
        assert (await rpc.refused(*create, **of(exp=1))) == ("UNAUTHENTICATED", "The token has expired")

    async def test_session_is_its_owners(self, serve: Serve) -> None:
        rpc = await self.start(serve)
        request = proto.CreateSessionRequest(graph_def=small_graph().graph_def)
        made = await rpc.call(f"{MASTER}CreateSession", request, proto.CreateSessionResponse, **self.of("alice"))
        run = proto.RunStepRequest(session_handle=made.session_handle, target=["nothing"])
        await rpc.call(f"{MASTER}RunStep", run, proto.RunStepResponse, **self.of("alice"))
        assert (await rpc.refused(f"{MASTER}RunStep", run, proto.RunStepResponse, **self.of("bob")))[0] == "ABORTED"


async def test_clients_of_a_trusted_proxy_have_shares_of_their_own(serve: Serve) -> None:
    rpc = await serve(max_client_sessions=1, trusted_proxies=["127.0.0.0/8", "::1"])
    request = proto.CreateSessionRequest(graph_def=small_graph().graph_def)
    create = f"{MASTER}CreateSession", request, proto.CreateSessionResponse
    first = (("x-forwarded-for", "1.2.3.4"), ("x-forwarded-for", "203.0.113.9, 127.0.0.2"))
    await rpc.call(*create, metadata=first)
    await rpc.call(*create, metadata=(("x-forwarded-for", "203.0.113.8"),))
    code, words = await rpc.refused(*create, metadata=(("x-forwarded-for", "203.0.113.9"),))
    assert code == "RESOURCE_EXHAUSTED" and "from 203.0.113.9" in words


async def test_call_is_counted_by_method_and_code(rpc: RpcClient) -> None:
    handle = await create(rpc, small_graph())
    await run_step(rpc, handle, target=["nothing"])
    await rpc.refused(f"{MASTER}RunStep", proto.RunStepRequest(session_handle="nope"), proto.RunStepResponse)
    snapshot = rpc.server.metrics.snapshot()
    assert snapshot["aexec_grpc_calls"] == {
        (f"{MASTER}CreateSession", "OK"): 1,
        (f"{MASTER}RunStep", "OK"): 1,
        (f"{MASTER}RunStep", "ABORTED"): 1,
    }
    assert snapshot["aexec_runs"] == {("", "OK"): 1}
    assert rpc.server.activity.recent_errors()[-1]["route"] == f"{MASTER}RunStep"


async def test_access_log_has_run_and_trace(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    rpc = await serve(access_log=True)
    handle = await create(rpc, small_graph())
    call = rpc.call(
        f"{MASTER}RunStep",
        proto.RunStepRequest(session_handle=handle, target=["nothing"]),
        proto.RunStepResponse,
        metadata=(("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01"),),
    )
    with caplog.at_level(logging.INFO, "aexec_server.access"):
        await call
    (line,) = [record.getMessage() for record in caplog.records if record.name == "aexec_server.access"]
    assert line.startswith(f"gRPC {MASTER}RunStep 0 ") and line.endswith(f" s run=run-1 trace={TRACE}")
    assert dict(await call.trailing_metadata())["traceresponse"].startswith(f"00-{TRACE}-")


async def test_fault_of_the_server_stays_in_the_log(
    rpc: RpcClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rpc.server.sessions, "get", lambda handle, caller: 1 // 0)
    with caplog.at_level(logging.ERROR):
        code, words = await rpc.refused(f"{MASTER}RunStep", proto.RunStepRequest(), proto.RunStepResponse)
    assert code == "INTERNAL" and "internal error" in words and "division" not in words
    assert "ZeroDivisionError" in caplog.text


async def test_draining_server_begins_no_call(rpc: RpcClient) -> None:
    rpc.server.draining = True
    code, words = await rpc.refused(f"{MASTER}RunStep", proto.RunStepRequest(), proto.RunStepResponse)
    assert (code, words) == ("UNAVAILABLE", "The server is shutting down")


async def test_unknown_method_is_unimplemented(rpc: RpcClient) -> None:
    assert (await rpc.refused("/no.Such/Method", proto.RunStepRequest(), proto.RunStepResponse))[0] == "UNIMPLEMENTED"


class TestLimits:
    async def test_large_message_is_refused(self, serve: Serve) -> None:
        rpc = await serve(max_body_bytes=2**16)
        request = proto.RunStepRequest(session_handle="x", feed=[feed("x:0", np.arange(2**15, dtype=np.float32))])
        assert (await rpc.refused(f"{MASTER}RunStep", request, proto.RunStepResponse))[0] == "RESOURCE_EXHAUSTED"

    async def test_message_beyond_the_budget_is_refused(self, rpc: RpcClient) -> None:
        budget = rpc.server.body_budget
        for client in ("a", "b", "c", "d", "e", "f", "g", "h"):
            budget.shares.hold(type("C", (), {"client": client})(), budget.shares.most // 8)
        request = proto.RunStepRequest(session_handle="x", target=["y" * 5000])
        assert (await rpc.refused(f"{MASTER}RunStep", request, proto.RunStepResponse))[0] == "RESOURCE_EXHAUSTED"

    async def test_large_metadata_is_refused(self, rpc: RpcClient) -> None:
        metadata = tuple((f"key-{i}", "v" * 1000) for i in range(64))
        request = proto.RunStepRequest()
        code, _ = await rpc.refused(f"{MASTER}RunStep", request, proto.RunStepResponse, metadata=metadata)
        assert code == "RESOURCE_EXHAUSTED"

    async def test_answer_beyond_the_limit_is_refused(self, serve: Serve) -> None:
        rpc = await serve(max_answer_bytes=2**10)
        handle = await create(rpc, small_graph())
        run = proto.RunStepRequest(session_handle=handle, fetch=["y"], feed=[feed("x:0", np.zeros(2**9, np.float32))])
        assert (await rpc.refused(f"{MASTER}RunStep", run, proto.RunStepResponse))[0] == "RESOURCE_EXHAUSTED"


async def test_answer_that_is_not_taken_is_counted_until_its_client_leaves(rpc: RpcClient) -> None:
    """The client's share of what may be on its way is bounded, and so is the memory of all."""
    graph = GraphBuilder()
    graph.const("n", [2**18], dtypes.int32)
    graph.const("v", 1.5, dtypes.float32)
    graph("ones", "Fill", "n", "v", T=dtypes.float32, index_type=dtypes.int32)
    run = proto.RunStepRequest(session_handle=await create(rpc, graph), fetch=["ones:0"])
    memory, calls = rpc.server.sessions.memory, rpc.server.metrics.calls
    await rpc.call(f"{MASTER}RunStep", run, proto.RunStepResponse)
    await until(lambda: memory.in_use < 2**21)
    kept = memory.in_use  # with the constant that the plan has folded
    async with unread_call(rpc.address, f"{MASTER}RunStep", run.SerializeToString()):
        await until(lambda: calls.total == 3)
        assert memory.in_use >= kept + 2**20
        assert rpc.server.metrics.snapshot()["aexec_shared_in_use"]["rpc_answer_bytes",] >= 2**20
    await until(lambda: memory.in_use == kept)
    assert rpc.server.metrics.snapshot()["aexec_shared_in_use"]["rpc_answer_bytes",] == 0


async def test_stream_ends_with_its_call() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def answer(call: Call, request: HealthCheckRequest) -> AsyncIterator[HealthCheckResponse]:
        try:
            yield HealthCheckResponse()
            began.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    path = "/test.Streams/Watch"
    method = Method(path, HealthCheckRequest, HealthCheckResponse, answer, Scope.RUN, response_streams=True)
    server = Server(ServerConfig(grpc_port=0))
    rpc = RpcServer(server, [method])
    await rpc.start()
    try:
        async with grpc.aio.insecure_channel(rpc.address.partition("://")[2]) as channel:
            call = channel.unary_stream(path, HealthCheckRequest.SerializeToString)(HealthCheckRequest())
            await began.wait()
            call.cancel()
            await ended.wait()
            await until(lambda: server.metrics.snapshot()["aexec_grpc_calls"] == {(path, "CANCELLED"): 1})
    finally:
        await rpc.close()
