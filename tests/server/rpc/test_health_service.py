"""Health over gRPC: of the server, of its services and models, and as a stream of changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from aexec_server.rpc import health_service
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from tests.server.conftest import small_graph
from tests.server.rpc.conftest import RpcClient

Serve = Callable[..., Awaitable[RpcClient]]
HEALTH = "/grpc.health.v1.Health/"
CHECK = f"{HEALTH}Check"


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


async def test_health_of_a_service_is_that_of_the_server(rpc: RpcClient) -> None:
    assert await status(rpc, "tensorflow.MasterService") == HealthCheckResponse.SERVING


async def test_health_of_a_model(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    rpc = await serve(graphs={"tiny": small_graph().graph_def})
    assert await status(rpc, "tiny") == HealthCheckResponse.SERVING
    await rpc.server.models.unload("tiny")
    assert await status(rpc, "tiny") == HealthCheckResponse.NOT_SERVING


async def test_watched_health_tells_of_changes_and_ends_with_the_server(
    rpc: RpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_service, "_POLL_SECONDS", 0.0)
    watching = rpc.stream(f"{HEALTH}Watch", HealthCheckRequest(), HealthCheckResponse)
    assert (await watching.read()).status == HealthCheckResponse.SERVING
    rpc.server.leaving = True
    assert (await watching.read()).status == HealthCheckResponse.NOT_SERVING
    rpc.server.draining = True
    assert not isinstance(await watching.read(), HealthCheckResponse)


async def test_watched_model_that_is_not_there_is_unknown(rpc: RpcClient) -> None:
    watching = rpc.stream(f"{HEALTH}Watch", HealthCheckRequest(service="later"), HealthCheckResponse)
    assert (await watching.read()).status == HealthCheckResponse.SERVICE_UNKNOWN
    watching.cancel()
