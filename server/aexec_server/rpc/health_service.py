"""`grpc.health.v1.Health`: whether the server, or one of its models, should get calls.  It needs no token.

The service's name in a request is empty for the whole server, the full name of a gRPC service, or the name of a model.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

from grpc_health.v1 import health_pb2

from aexec import errors
from aexec_server.clients.callers import Scope
from aexec_server.core.server_state import Server
from aexec_server.rpc.method import Call, Method

__all__ = ["health_methods"]

_SERVICE = "/grpc.health.v1.Health"
_POLL_SECONDS = 0.5
_MAX_NAME = 80
_SERVING: int = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: int = health_pb2.HealthCheckResponse.NOT_SERVING
_SERVICE_UNKNOWN: int = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def health_methods(server: Server, services: Collection[str]) -> list[Method]:
    """The rows of the service.

    Args:
        services: full names of the other services.
    """
    health = _Health(server, services)
    request, response = health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
    return [
        Method(f"{_SERVICE}/Check", request, response, health.check, Scope.OPEN, traced=False),
        Method(f"{_SERVICE}/Watch", request, response, health.watch, Scope.OPEN, response_streams=True, traced=False),
    ]


class _Health:
    def __init__(self, server: Server, services: Collection[str]) -> None:
        self._server = server
        self._services = frozenset(services)

    async def check(self, call: Call, request: health_pb2.HealthCheckRequest) -> health_pb2.HealthCheckResponse:
        status = self._status(request.service)
        if status == _SERVICE_UNKNOWN:
            raise errors.NotFoundError(f"There is neither a service nor a model '{request.service[:_MAX_NAME]}'")
        return health_pb2.HealthCheckResponse(status=status)

    async def watch(
        self, call: Call, request: health_pb2.HealthCheckRequest
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Yield the status now and after every change; ends with the server."""
        told = None
        while True:
            status = self._status(request.service)
            if status != told:
                told = status
                yield health_pb2.HealthCheckResponse(status=status)
            if self._server.draining:
                return
            await asyncio.sleep(_POLL_SECONDS)

    def _status(self, name: str) -> int:
        server = self._server
        if name and name not in self._services:
            model = server.models.get(name)
            if model is None:
                return _SERVICE_UNKNOWN
            return _SERVING if model.ready and not server.draining else _NOT_SERVING
        return _SERVING if server.ready else _NOT_SERVING
