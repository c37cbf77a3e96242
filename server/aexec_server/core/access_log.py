"""The access log: a line for each request, which distinguishes sessions without revealing their handles.

The line of a run has its run id; that of a failed request, or of one with a trace of its caller's, has the trace's id.
"""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from aexec_server.handles import shortened
from aexec_server.requests.run_table import RUN_ID
from aexec_server.watching.server_log import log_fields
from aexec_server.watching.trace_context import known_trace

__all__ = ["AccessLogger", "access_logger", "log_access"]

access_logger = logging.getLogger("aexec_server.access")


def log_access(method: str, path: str, status: int, seconds: float, run_id: str = "", trace_id: str = "") -> None:
    """`POST /v1/sessions/3f2a1b…:run 200 0.000412 s run=r1 trace=4bf92f3577b34da6a3ce929d0e0e4736`"""
    path = shortened(path)
    text = f"{method} {path} {status} {seconds:.6f} s"
    if run_id:
        text += f" run={run_id}"
    if trace_id:
        text += f" trace={trace_id}"
    fields = {"method": method, "path": path, "status": status, "seconds": round(seconds, 6)}
    log_fields(access_logger, text, fields | {"run_id": run_id, "trace_id": trace_id})


class AccessLogger(AbstractAccessLogger):
    """Writes the access log for aiohttp."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        trace = known_trace(request)
        run_id = response.headers.get(RUN_ID, "")
        log_access(request.method, request.path, response.status, time, run_id, trace.trace_id if trace else "")
