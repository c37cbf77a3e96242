"""W3C Trace Context: the trace that a request belongs to, continued from the header `traceparent` or begun here.

The trace id is in error bodies and in the log; the answer's header `traceresponse` has it if the request sent one or
the run is traced. A new trace is made only when something asks for it: most requests need none.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from aiohttp import web
from multidict import istr

__all__ = [
    "TRACERESPONSE",
    "TraceContext",
    "known_trace",
    "new_trace",
    "new_trace_id",
    "parse_traceparent",
    "set_trace",
    "trace_of",
]

_TRACEPARENT_HEADER = istr("traceparent")
TRACERESPONSE = istr("traceresponse")

# w3.org/TR/trace-context: a later version has the fields of this one, and may have more after them.
_TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?",
    re.ASCII,
)
_MAX_LENGTH = 512
_NOT_SAMPLED = "00"


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace context of one request.

    Attributes:
        trace_id: 32 hexadecimal digits.
        parent_id: the caller's span, 16 hexadecimal digits; empty if the trace begins here.
        span_id: the request's own span.
        flags: two digits, as received.
    """

    trace_id: str
    parent_id: str
    span_id: str
    flags: str

    def __str__(self) -> str:
        """Value of the header `traceresponse`."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


_KEY = web.RequestKey("aexec_server.trace", TraceContext)


def parse_traceparent(text: str) -> TraceContext | None:
    """Parse a `traceparent`; None if it is not valid, which counts as absent."""
    match = _TRACEPARENT.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None or match["version"] == "ff" or (match["version"] == "00" and match["more"]):
        return None
    if not match["trace"].strip("0") or not match["parent"].strip("0"):
        return None
    return TraceContext(match["trace"], match["parent"], _new_span(), match["flags"])


def new_trace_id() -> str:
    return secrets.token_hex(16)


def new_trace() -> TraceContext:
    """A trace that begins here."""
    return TraceContext(new_trace_id(), "", _new_span(), _NOT_SAMPLED)


def _new_span() -> str:
    return secrets.token_hex(8)


def trace_of(request: web.BaseRequest) -> TraceContext:
    """Return the trace of a request; begin one if it has none."""
    known = request.get(_KEY)
    if known is None:
        sent = request.headers.get(_TRACEPARENT_HEADER)
        known = parse_traceparent(sent) if sent is not None else None
        known = known or new_trace()
        request[_KEY] = known
    return known


def set_trace(request: web.BaseRequest, trace: TraceContext) -> None:
    """Set the trace of a request."""
    request[_KEY] = trace


def known_trace(request: web.BaseRequest) -> TraceContext | None:
    """Return the trace of a request if its caller sent one or `trace_of` has begun one, else None."""
    return trace_of(request) if _TRACEPARENT_HEADER in request.headers or _KEY in request else None
