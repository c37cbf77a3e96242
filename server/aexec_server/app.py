"""`make_app`: makes the server's application from its configuration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

from aiohttp import web

from aexec.hosting import collect_if_due
from aexec_server import aiohttp_seam
from aexec_server.clients.callers import CALLER
from aexec_server.core import operations
from aexec_server.core.routes import AnsweredBy, Handler, Route, add_routes
from aexec_server.core.server_state import SERVER, Server
from aexec_server.handlers import (
    graph_nodes,
    health,
    live_events,
    metrics_page,
    partial_runs,
    queue_calls,
    runs,
    runs_in_flight,
    session_calls,
    status,
    tensor_calls,
)
from aexec_server.handlers.direct_runs import DIRECT_RUNS, DirectRuns
from aexec_server.http.error_responses import errors_as_responses
from aexec_server.pages import console, documentation
from aexec_server.protocols import inference_protocol, tensorflow_serving
from aexec_server.settings.model_source import ModelSource
from aexec_server.settings.server_config import ServerConfig
from aexec_server.watching.activity import ACTIVITY
from aexec_server.watching.event_loop_lag import watch_lag
from aexec_server.watching.server_log import http_logger

__all__ = ["make_app", "route_table"]


def make_app(config: ServerConfig | None = None) -> web.Application:
    """Return the HTTP application; its `Server` is under the key `SERVER`.

    Run it with `run_server`, or with aiohttp's own runners.  It changes the settings of a runner that it depends on,
    above all that a handler is cancelled when its client leaves.
    """
    server = Server(config or ServerConfig())
    run_handlers = runs.RunHandlers(server)
    routes = _routes(server, run_handlers)
    direct = DirectRuns(server, run_handlers, routes)

    def ended(request: web.Request) -> None:
        server.request_ended(request)
        direct.ended(request.transport)

    spans = [] if server.spans is None else [server.spans.middleware()]
    app = web.Application(
        middlewares=[*spans, errors_as_responses(server.door.check_out, ended, lambda: server.leaving)],
        client_max_size=server.config.max_body_bytes + 1,
        # Bodies are decompressed by our own code, within limits.
        handler_args={"handler_cancellation": True, "auto_decompress": False, "logger": http_logger},
    )
    app[SERVER] = server
    app[ACTIVITY] = server.activity
    app[DIRECT_RUNS] = direct
    app[runs.RUN_HANDLERS] = run_handlers
    server.access.site.install(app)
    add_routes(app, routes, partial(_guarded, server))
    app.cleanup_ctx.append(_open_sessions)
    app.on_shutdown.append(_cancel_runs)
    return app


def route_table(server: Server) -> list[Route]:
    """Return all routes."""
    return _routes(server, runs.RunHandlers(server))


def _routes(server: Server, run_handlers: runs.RunHandlers) -> list[Route]:
    """Return all routes.  Those under one prefix are matched in order, so the most frequent come first."""
    calls = [
        *runs.routes(run_handlers),
        *runs_in_flight.routes(run_handlers.in_flight),
        *operations.routes(server.operations, server.config, server.body_budget),
        *partial_runs.routes(run_handlers.partial_runs),
        *session_calls.routes(server),
        *queue_calls.routes(server),
        *tensor_calls.routes(server),
        *inference_protocol.routes(server, run_handlers),
        *tensorflow_serving.routes(server, run_handlers),
        *graph_nodes.routes(server),
        *health.routes(server),
        *metrics_page.routes(server),
        *status.routes(server),
        *live_events.routes(server, run_handlers.in_flight),
        *console.routes(),
    ]
    return [*calls, *documentation.routes(calls)]


def _guarded(server: Server, route: Route) -> Handler:
    """The handler of a route, which opens the durable session of its path, behind the checks of who may call it."""
    durable = server.durable
    if durable is not None and route.answered_by is AnsweredBy.SESSION:
        handler = route.handler

        async def opening(request: web.Request) -> web.StreamResponse:
            await durable.open_if_stored(request.match_info["session"], request[CALLER])
            return await handler(request)

        route = replace(route, handler=opening)
    return server.access.guard(route)


async def _open_sessions(app: web.Application) -> AsyncIterator[None]:
    server = app[SERVER]
    if server.durable is not None:
        await server.durable.open()
    for name, source in server.config.graphs.items():
        await server.models.load(name, ModelSource(source))
    await server.access.begin()
    server.opened = True
    in_host = bool(server.config.handle_prefix)
    tasks = [
        asyncio.create_task(_sweep(server), name="close expired sessions"),
        asyncio.create_task(server.repository.watch(), name="watch models"),
        asyncio.create_task(server.access.watch(), name="watch the keys of tokens"),
        asyncio.create_task(watch_lag(server.metrics.lag_seconds, in_host=in_host), name="watch the event loop"),
    ]
    if not in_host:
        tasks.append(asyncio.create_task(server.history.watch(), name="keep figures of the last hour"))
    yield
    server.leaving = server.draining = True
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await server.models.close()
    await server.sessions.close()
    await server.background_ended()
    if server.durable is not None:
        await server.durable.close()
    await server.uploads.close()
    aiohttp_seam.forget_handlers()


async def _cancel_runs(app: web.Application) -> None:
    """Connections end after this: nobody could read a result any more."""
    server = app[SERVER]
    server.leaving = server.draining = True
    server.sessions.cancel_all("shutdown")


async def _sweep(server: Server) -> None:
    while True:
        await asyncio.sleep(server.config.sweep_seconds)
        server.sessions.close_expired()
        await server.access.reload_if_changed()
        collect_if_due(idle=server.sessions.idle)
