"""`/v1/status`: sessions, runs, memory and the latest errors of all the server's processes, and their history."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from aiohttp import web

import aexec
from aexec_server.clients.callers import CALLER, Caller, Scope
from aexec_server.core.routes import Route
from aexec_server.core.server_state import Server
from aexec_server.http.bodies import JSON, json_response
from aexec_server.http.json_text import value_pieces

__all__ = ["LASTING", "describe_status", "process_status", "routes"]

_KEPT = 50
# Numbers added up over processes; `LASTING` ones count since the process started.
_SUMS = ("sessions", "runs_in_flight", "runs", "errors", "tensor_bytes")
LASTING = ("runs", "errors")
# Number of hosts listed: those with most to do.
_NAMED = 100


def routes(server: Server) -> list[Route]:
    """Return the routes `/v1/status` and `/v1/status/history`."""

    async def status(request: web.Request) -> web.Response:
        return json_response(describe_status(server, request[CALLER]))

    async def history(request: web.Request) -> web.StreamResponse:
        return await server.door.send(request, value_pieces(server.history.describe()), JSON)

    call = partial(Route, scope=Scope.ADMIN)
    return [
        call("GET", "/v1/status", status, "The state of the server", None, "Status"),
        call("GET", "/v1/status/history", history, "The server's figures of the last hour", None, "History"),
    ]


def process_status(server: Server) -> dict[str, Any]:
    """Return the numbers of this process."""
    return {
        "sessions": len(server.sessions),
        "runs_in_flight": server.sessions.live_runs,
        "runs": server.metrics.runs.total,
        "errors": server.activity.errors,
        "tensor_bytes": server.sessions.memory.in_use,
    }


def describe_status(server: Server, caller: Caller) -> dict[str, Any]:
    """Return the status of all processes; hosts report theirs a few times a second.

    Args:
        caller: who asks.  One without a token is not told paths, nodes and ops of errors, which may contain names that
            clients chose.
    """
    named = bool(caller.name)
    here = process_status(server)
    others = server.others()
    parts = [here, *others.hosts.values(), others.ended]
    recent = sorted([*server.activity.recent_errors(), *others.recent_errors], key=lambda error: error["time"])
    return {
        "version": aexec.__version__,
        "uptime_s": round(server.config.clock() - server.began, 3),
        "ready": server.ready,
        **{name: sum(part.get(name, 0) for part in parts) for name in _SUMS},
        "tensor_bytes_limit": server.tensor_bytes_limit,
        "host_count": len(others.hosts),
        "hosts": [{"name": name} | {key: others.hosts[name][key] for key in _SUMS} for name in _busiest(others.hosts)],
        "recent_errors": [_error(error, named=named) for error in recent[-_KEPT:]],
    }


def _error(error: dict[str, Any], *, named: bool) -> dict[str, Any]:
    told = {name: value for name, value in error.items() if name != "route"}
    return told if named else told | {"path": error["route"], "node": None, "op": None}


def _busiest(hosts: Mapping[str, Mapping[str, int]]) -> Sequence[str]:
    """Return the names of the hosts with most to do, at most `_NAMED`."""
    if len(hosts) <= _NAMED:
        return list(hosts)

    def work(name: str) -> tuple[int, ...]:
        return tuple([hosts[name][key] for key in ("runs_in_flight", "tensor_bytes", "sessions", "runs")])

    return heapq.nlargest(_NAMED, hosts, key=work)
