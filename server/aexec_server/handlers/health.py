"""Liveness and readiness.  Neither touches a session."""

from __future__ import annotations

from aiohttp import web

from aexec_server.clients.callers import Scope
from aexec_server.core.routes import Route
from aexec_server.core.server_state import Server
from aexec_server.http.bodies import json_response

__all__ = ["routes"]


def routes(server: Server) -> list[Route]:
    """Return the health endpoints: the inference protocol's, and the names that orchestrators use."""

    async def live(request: web.Request) -> web.Response:
        return json_response({"live": True})

    async def ready(request: web.Request) -> web.Response:
        if server.ready:
            return json_response({"ready": True})
        return json_response({"ready": False}, 503, {"Retry-After": "1"})

    return [
        *(
            Route("GET", path, live, "Whether the process is alive", None, "Live", traced=False, scope=Scope.OPEN)
            for path in ("/livez", "/healthz", "/v2/health/live")
        ),
        *(
            Route(
                "GET",
                path,
                ready,
                "Whether the server should get requests",
                None,
                "Ready",
                traced=False,
                scope=Scope.OPEN,
            )
            for path in ("/readyz", "/v2/health/ready")
        ),
    ]
