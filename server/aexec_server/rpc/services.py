"""`all_methods`: the table of all gRPC calls."""

from __future__ import annotations

from aexec_server.core.server_state import Server
from aexec_server.handlers.runs import RunHandlers
from aexec_server.rpc import health_service
from aexec_server.rpc.method import Method

__all__ = ["all_methods"]


def all_methods(server: Server, runs: RunHandlers) -> list[Method]:
    """The rows of all services.

    Args:
        runs: `runs.served` takes runs from their request to their end.
    """
    calls: list[Method] = []
    return [*calls, *health_service.methods(server, {one.service for one in calls})]
