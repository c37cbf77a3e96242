"""Health over gRPC: of the server, of its services and models, and as a stream of changes."""

from __future__ import annotations

from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from tests.server.rpc.conftest import RpcClient

CHECK = "/grpc.health.v1.Health/Check"


async def status(rpc: RpcClient, service: str = "") -> int:
    answer = await rpc.call(CHECK, HealthCheckRequest(service=service), HealthCheckResponse)
    return int(answer.status)


async def test_health_of_the_server(rpc: RpcClient) -> None:
    assert await status(rpc) == HealthCheckResponse.SERVING
    rpc.server.leaving = True
    assert await status(rpc) == HealthCheckResponse.NOT_SERVING


async def test_health_of_what_is_unknown_is_not_found(rpc: RpcClient) -> None:
    code, words = await rpc.refused(CHECK, HealthCheckRequest(service="nope"), HealthCheckResponse)
    assert code == "NOT_FOUND" and "'nope'" in words
