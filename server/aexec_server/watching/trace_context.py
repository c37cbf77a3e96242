"""Which trace a request belongs to: W3C Trace Context, continued from the header `traceparent` or begun here.

The id of the trace is in error bodies and in the log; to who sent one, and of runs that are traced, the answer's header
`traceresponse` says it too.  It is made when somebody asks for it first: most requests need none.
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

# w3.org/TR/trace-context: of a later version, what this one has, and anything after it.
_TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?",
    re.ASCII,
)
_MAX_LENGTH = 512
_NOT_SAMPLED = "00"


@dataclass(frozen=True, slots=True)
class TraceContext:
    """What is known of a trace at a request.

    Attributes:
        trace_id: 32 hexadecimal digits.
        parent_id: the caller's span, 16 of them; empty if the trace begins here.
        span_id: the request's own.
        flags: two digits, as they came.
    """

    trace_id: str
    parent_id: str
    span_id: str
    flags: str

    def __str__(self) -> str:
        """As a `traceresponse` has it."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


_KEY = web.RequestKey("aexec_server.trace", TraceContext)


def parse_traceparent(text: str) -> TraceContext | None:
    """What a caller says; None for what is no `traceparent`, which is as good as none."""
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
    """The trace of a request, begun now if it has none."""
    known = request.get(_KEY)
    if known is None:
        sent = request.headers.get(_TRACEPARENT_HEADER)
        known = parse_traceparent(sent) if sent is not None else None
        known = known or new_trace()
        request[_KEY] = known
    return known


def set_trace(request: web.BaseRequest, trace: TraceContext) -> None:
    """Say which trace a request belongs to."""
    request[_KEY] = trace


def known_trace(request: web.BaseRequest) -> TraceContext | None:
    """The trace of a request, if its caller named one or somebody asked for it."""
    return trace_of(request) if _TRACEPARENT_HEADER in request.headers or _KEY in request else None
