"""`make_app`: the application, from its configuration alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from aexec_server import health, runs, sessions
from aexec_server.error_responses import errors_as_responses
from aexec_server.server_config import ServerConfig
from aexec_server.server_state import SERVER, Server

__all__ = ["make_app"]


def make_app(config: ServerConfig | None = None) -> web.Application:
    """The HTTP application; its `Server` is under the key `SERVER`.

    Run it with `run_server`, or with aiohttp's own runners: what it needs of them, above all that
    a client who leaves cancels its handler, it sets itself.
    """
    server = Server(config or ServerConfig())
    app = web.Application(
        middlewares=[errors_as_responses],
        client_max_size=server.config.max_body_bytes + 1,
        # Bodies are decompressed by us, within bounds.
        handler_args={"handler_cancellation": True, "auto_decompress": False},
    )
    app[SERVER] = server
    # Routes under one prefix are tried in order: what is called most comes first.
    app.add_routes([*runs.routes(server), *sessions.routes(server), *health.routes(server)])
    app.cleanup_ctx.append(_open_sessions)
    app.on_shutdown.append(_cancel_runs)
    return app


async def _open_sessions(app: web.Application) -> AsyncIterator[None]:
    server = app[SERVER]
    await server.sessions.open_configured()
    server.opened = True
    sweeper = asyncio.create_task(_sweep(server), name="close expired sessions")
    yield
    server.draining = True
    sweeper.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sweeper
    await server.sessions.close()


async def _cancel_runs(app: web.Application) -> None:
    """Connections end after this: nobody could read a result any more."""
    server = app[SERVER]
    server.draining = True
    server.sessions.cancel_all("shutdown")


async def _sweep(server: Server) -> None:
    while True:
        await asyncio.sleep(server.config.sweep_seconds)
        server.sessions.close_expired()
