"""Is the process alive, and should it get requests?  Neither question touches a session."""

from __future__ import annotations

from aiohttp import web

from aexec_server.bodies import json_response
from aexec_server.server_state import Server

__all__ = ["routes"]


def routes(server: Server) -> list[web.RouteDef]:
    """The health endpoints: the inference protocol's, and the names that orchestrators use."""

    async def live(request: web.Request) -> web.Response:
        return json_response({"live": True})

    async def ready(request: web.Request) -> web.Response:
        if server.ready:
            return json_response({"ready": True})
        return json_response({"ready": False}, 503, {"Retry-After": "1"})

    return [
        *(web.get(path, live) for path in ("/livez", "/healthz", "/v2/health/live")),
        *(web.get(path, ready) for path in ("/readyz", "/v2/health/ready")),
    ]
