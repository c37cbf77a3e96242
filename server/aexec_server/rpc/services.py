"""`all_methods`: the table of all gRPC calls."""

from __future__ import annotations

from aexec_server.core.server_state import Server
from aexec_server.handlers.runs import RunHandlers
from aexec_server.rpc.health_service import health_methods
from aexec_server.rpc.inference_service import inference_methods
from aexec_server.rpc.master_service import master_methods
from aexec_server.rpc.method import Method
from aexec_server.rpc.model_service import model_methods
from aexec_server.rpc.prediction_service import prediction_methods
from aexec_server.rpc.reflection_service import reflection_methods
from aexec_server.rpc.session_service import session_methods

__all__ = ["all_methods"]


def all_methods(server: Server, runs: RunHandlers) -> list[Method]:
    """Return the rows of all services.

    Args:
        runs: `runs.served` executes runs, from the request to the answer.
    """
    calls = [
        *master_methods(server, runs),
        *session_methods(server, runs),
        *prediction_methods(server, runs),
        *model_methods(server),
        *inference_methods(server, runs),
    ]
    calls += health_methods(server, {one.service for one in calls})
    return [*calls, *reflection_methods(calls)]
