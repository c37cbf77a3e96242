"""Where gRPC listens, by which certificates, and how it stops."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from aexec_server import ServerConfig, make_app, run_server
from aexec_server.rpc.opening import rpc_server_of
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from aexec import errors, proto
from tests.server.connections.test_tls import Authority
from tests.server.rpc.conftest import RpcClient, serving_rpcs
from tests.server.rpc.test_health_service import CHECK
from tests.server.rpc.test_master_service import MASTER, create, gate_graph, run_step
from tests.support.waiting import until


def check_health(channel: grpc.aio.Channel) -> grpc.aio.UnaryUnaryCall:
    method = channel.unary_unary(CHECK, HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString)
    return method(HealthCheckRequest())


async def test_server_tells_where_it_listens_for_each_protocol() -> None:
    told: list[str] = []
    server = asyncio.create_task(run_server(ServerConfig(port=0, grpc_port=0), on_ready=told.append))
    await until(lambda: len(told) == 2)
    http, rpc = told
    assert http.startswith("http://127.0.0.1:") and rpc.startswith("grpc://127.0.0.1:")
    async with grpc.aio.insecure_channel(rpc.partition("://")[2]) as channel:
        assert (await check_health(channel)).status == HealthCheckResponse.SERVING
    server.cancel()
    await asyncio.wait([server])


async def test_port_that_is_taken_is_named(rpc: RpcClient) -> None:
    port = int(rpc.address.rpartition(":")[2])
    other = rpc_server_of(make_app(ServerConfig(grpc_port=port)))
    assert other is not None
    with pytest.raises(OSError, match=str(port)):
        await other.start()
    await other.close()


async def test_runs_end_while_new_calls_are_refused(rpc: RpcClient) -> None:
    gate, graph = gate_graph()
    handle = await create(rpc, graph)
    running = run_step(rpc, handle, "waits:0")
    await gate.entered.wait()
    rpc.server.draining = True
    request = proto.RunStepRequest(session_handle=handle, target=["nothing"])
    code, _ = await rpc.refused(f"{MASTER}RunStep", request, proto.RunStepResponse)
    assert code in ("UNAVAILABLE", "CANCELLED")  # the second by grpcio, of a call that it had and gave to nobody
    gate.open.set()
    assert (await running).tensor[0].name == "waits:0"


async def test_client_without_a_certificate_is_not_served(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    config = ServerConfig(grpc_port=0, tls_cert=authority.cert, tls_key=authority.key, tls_client_ca=authority.ca)
    ca = Path(authority.ca).read_bytes()
    mine = authority.authority.issue_cert("client")
    chain, key = mine.cert_chain_pems[0].bytes(), mine.private_key_pem.bytes()
    async with serving_rpcs(config) as rpc:
        with_one = grpc.ssl_channel_credentials(ca, key, chain)
        for credentials, served in ((with_one, True), (grpc.ssl_channel_credentials(ca), False)):
            async with grpc.aio.secure_channel(rpc.address, credentials) as channel:
                if served:
                    assert (await check_health(channel)).status == HealthCheckResponse.SERVING
                else:
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await check_health(channel)
                    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    server = rpc_server_of(make_app(ServerConfig(grpc_port=0, tls_cert=missing, tls_key=missing)))
    assert server is not None
    with pytest.raises(errors.InvalidArgumentError, match=r"none\.pem"):
        await server.start()
    await server.close()
