"""`Method`: describes one call of a gRPC service; `Call`: one call that is under way.

A service is a list of `Method`s, in a module of its own; `services.py` has all of them in one table.  A row's coroutine
gets a `Call` and the request, and returns the response:

    async def check(call: Call, request: HealthCheckRequest) -> HealthCheckResponse: ...

    Method("/grpc.health.v1.Health/Check", HealthCheckRequest, HealthCheckResponse, check, scope=Scope.OPEN)

`door.py` ensures for every row:

* The request came whole, within the size limits; its message was scanned like a body of HTTP.  With `encoded` the
  coroutine gets the bytes, and decodes them itself.  It may return the bytes of an encoded message.
* The caller was admitted: its token, its rate, and the row's scope.  `call.caller` owns what is made.
* An `OpError` becomes the status with its code and text, and names its node; any other exception becomes INTERNAL, and
  its text stays in the log.
* If the client cancels the call, goes away, or its deadline passes, the coroutine is cancelled.  `call.deadline` says
  when that is; a run is given `call.timeout`, so that it ends by itself.
* The call is counted, has a span, and a line in the access log.  `call.run_id` adds a run's id to that line.

Where requests stream, the coroutine's second argument is an async iterator of them.  Where responses stream, it is an
async generator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from aexec_server.clients.callers import Caller, Scope
from aexec_server.watching.trace_context import TraceContext, new_trace, parse_traceparent

__all__ = ["Call", "Method"]

_TRACEPARENT = "traceparent"


@dataclass(slots=True)
class Call:
    """One call, from its arrival to its end.

    Attributes:
        method: its row of the table.
        caller: the client.
        peer: gRPC's name for the other end of its connection, `ipv4:127.0.0.1:4711`.
        host: the client's address; "" for a Unix socket.
        metadata: the call's metadata, by name in lower case; the last one of several values.
        arrival: time of arrival, by `time.monotonic`.
        deadline: time at which the client gives up, by `time.monotonic`; None for never.
        when_ended: calls a function when the response was sent or given up.
        run_id: id of its run, for the access log; "" without one.
    """

    method: Method
    caller: Caller
    peer: str
    host: str
    metadata: Mapping[str, str | bytes]
    arrival: float
    deadline: float | None
    when_ended: Callable[[Callable[[], object]], object]
    run_id: str = ""
    _trace: TraceContext | None = None

    @property
    def has_trace(self) -> bool:
        """True if the call has a trace: the caller named one, or the server has started one for it."""
        return self._trace is not None or _TRACEPARENT in self.metadata

    @property
    def trace(self) -> TraceContext:
        """The trace that it belongs to: the caller's by W3C's `traceparent`, or a new one."""
        if self._trace is None:
            sent = self.metadata.get(_TRACEPARENT)
            self._trace = (parse_traceparent(sent) if isinstance(sent, str) else None) or new_trace()
        return self._trace

    @trace.setter
    def trace(self, trace: TraceContext) -> None:
        self._trace = trace

    def trace_id(self) -> str:
        """The id of its trace."""
        return self.trace.trace_id

    def keep_until_sent(self, counted: object) -> None:
        """Keep an object that counts memory, from `AnswerDoor.reserve`, until the response was sent or given up."""
        if counted is not None:
            kept = [counted]
            self.when_ended(kept.clear)

    @property
    def timeout(self) -> float | None:
        """Seconds from `arrival` to the deadline; None without one."""
        return None if self.deadline is None else self.deadline - self.arrival

    @property
    def seconds(self) -> float:
        """Seconds since its arrival."""
        return time.monotonic() - self.arrival


@dataclass(frozen=True, slots=True)
class Method:
    """A call of a service.

    Attributes:
        path: its full name, `/tensorflow.MasterService/RunStep`.
        request: the class of its request's message.
        response: the class of its response's message.
        answer: the coroutine function that answers it, or with `response_streams` the async generator function.
        scope: the scope that a token needs.
        request_streams: True if the client sends any number of requests.
        response_streams: True if the server sends any number of responses.
        encoded: True if `answer` takes the request's bytes.
        traced: True if its calls have spans; False for health checks and the like.
        details: True if trailing metadata tells more of an error, as aexec's own clients read it.
    """

    path: str
    request: type[Message]
    response: type[Message]
    answer: Callable[[Call, Any], Any]
    scope: Scope
    request_streams: bool = False
    response_streams: bool = False
    encoded: bool = False
    traced: bool = True
    details: bool = False

    @property
    def service(self) -> str:
        """`tensorflow.MasterService`"""
        return self.path[1:].partition("/")[0]

    @property
    def name(self) -> str:
        """`RunStep`"""
        return self.path.rpartition("/")[2]
