"""OpenTelemetry spans: one for each request, with one for its run inside, if the server is asked for them.

The exporter is set up outside, as by `opentelemetry-instrument aexec serve --otel`, which does so in each Python
process, and thus in the one from which session hosts are forked.  The extra `opentelemetry` is imported when the first
`Spans` is made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

from aexec import errors
from aexec_server.core.routes import route_of
from aexec_server.handles import shortened
from aexec_server.http.error_responses import Handler, Middleware
from aexec_server.watching.trace_context import TraceContext, set_trace

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = ["Spans"]

_FLUSH_MS = 1000
# The methods that appear in names of spans, as OpenTelemetry's conventions ask: a client may send any word.
_METHODS = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"))


class Spans:
    """Makes OpenTelemetry spans of requests and runs.

    Raises:
        FailedPreconditionError: `opentelemetry-api` is not installed.
    """

    def __init__(self) -> None:
        try:
            from opentelemetry import propagate, trace
        except ImportError:
            raise errors.FailedPreconditionError(
                "otel needs the package opentelemetry-api: pip install 'aexec[otel]'"
            ) from None
        self._provider = trace.get_tracer_provider()
        self._tracer = trace.get_tracer("aexec_server")
        self._extract = propagate.extract
        self._server = trace.SpanKind.SERVER

    def middleware(self) -> Middleware:
        """The outermost middleware: makes a span for each request, except health checks and the like."""

        @web.middleware
        async def around(request: web.Request, handler: Handler) -> web.StreamResponse:
            route, template = route_of(request)
            if route is not None and not route.traced:
                return await handler(request)
            method = request.method if request.method in _METHODS else ""
            attributes = {
                "http.request.method": method or "_OTHER",
                "http.route": template,
                "url.path": shortened(request.path),
            }
            parent = self._extract(request.headers)
            name = f"{method or 'HTTP'} {template}".rstrip()
            with self._tracer.start_as_current_span(name, parent, self._server, attributes) as span:
                set_trace(request, _context_of(span))
                response = await handler(request)
                span.set_attribute("http.response.status_code", response.status)
                return response

        return around

    @contextmanager
    def call(self, metadata: Mapping[str, Any], path: str) -> Iterator[TraceContext]:
        """Context manager: a span of a gRPC call, whose trace is given.

        Args:
            metadata: what came with the call, by name.
            path: its method's full name.
        """
        service, _, name = path[1:].partition("/")
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
        carrier = {key: value for key, value in metadata.items() if isinstance(value, str)}
        parent = self._extract(carrier)
        with self._tracer.start_as_current_span(path[1:], parent, self._server, attributes) as span:
            try:
                yield _context_of(span)
            except errors.OpError as error:
                span.set_attribute("rpc.grpc.status_code", int(error.code))
                raise
            span.set_attribute("rpc.grpc.status_code", 0)

    def run_ended(self, model: str, run_id: str, outcome: str, seconds: float) -> None:
        """Make the span of a run that ends now, inside its request's."""
        end = time.time_ns()
        attributes = {"aexec.model": model, "aexec.run_id": run_id, "aexec.outcome": outcome}
        self._tracer.start_span("run", attributes=attributes, start_time=end - int(seconds * 1e9)).end(end)

    def flush(self) -> None:
        """Wait, for a second at most, until all spans are sent.

        Forked processes need it: they end without the SDK's exit handler.
        """
        flush = getattr(self._provider, "force_flush", None)  # the SDK's; the API's own makes no spans
        if flush is not None:
            flush(_FLUSH_MS)


def _context_of(span: Span) -> TraceContext:
    context = span.get_span_context()
    return TraceContext(f"{context.trace_id:032x}", "", f"{context.span_id:016x}", f"{context.trace_flags:02x}")
