"""Errors on their way out: the status of HTTP that `Code.http_status` says, and one body that all clients read.

`error` serves clients of the inference protocols, `type`, `title`, `status`, `detail`
and `instance` are RFC 9457's, `code`, `node` and `op` say what an `OpError` says.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from aiohttp import web
from multidict import istr

from aexec import errors
from aexec.errors import Code
from aexec_server import aiohttp_seam
from aexec_server.handles import shortened
from aexec_server.watching.activity import ACTIVITY
from aexec_server.watching.trace_context import TRACERESPONSE, known_trace, trace_of

__all__ = [
    "Handler",
    "HasHeaders",
    "Middleware",
    "RequestError",
    "error_body",
    "error_headers",
    "error_response",
    "errors_as_responses",
    "public_error",
    "say_ids",
    "status_of",
    "title_of",
]

logger = logging.getLogger(__name__)

_CLIENT_CLOSED_REQUEST = 499  # nginx's; the standard library has no phrase for it
_CLOSED_BY_CLIENT = "Client Closed Request"
_MAX_NAME = 200
_RETRY_STATUSES = (429, 503)
_REQUEST_ID = re.compile(r"[!-~]{1,200}")  # what can be printed, and has no blanks
_X_REQUEST_ID = istr("X-Request-Id")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Middleware(Protocol):
    """What `web.middleware` makes: a layer around handlers."""

    def __call__(self, request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]: ...


class HasHeaders:
    """Of an error: what its answer says besides its message.

    Attributes:
        headers: of the answer.
        status: of HTTP, if it is not that of the code.
        reason: for programs, what the code does not tell; empty for nothing.
    """

    headers: Mapping[str, str] = MappingProxyType({})
    status: int | None = None
    reason: str = ""


class RequestError(HasHeaders, errors.InvalidArgumentError):
    """A request that HTTP itself has a status for: 405, 408, 413 and 415."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}


def title_of(code: Code) -> str:
    """`Invalid argument` for INVALID_ARGUMENT."""
    return code.name.replace("_", " ").capitalize()


def status_of(error: errors.OpError) -> int:
    """The HTTP status of an error."""
    own = error.status if isinstance(error, HasHeaders) else None
    return own or error.code.http_status


def error_body(error: errors.OpError, instance: str, trace_id: str = "") -> dict[str, Any]:
    """What a client is told: never a file name of this machine, never a traceback."""
    message = error.message
    body: dict[str, Any] = {
        "error": message,
        "code": error.code.name,
        "status": status_of(error),
        "type": "about:blank",
        "title": title_of(error.code),
        "detail": message,
        "instance": instance,
    }
    if isinstance(error, HasHeaders) and error.reason:
        body["reason"] = error.reason
    if trace_id:
        body["trace_id"] = trace_id
    if error.node is not None:
        body["node"] = error.node[:_MAX_NAME]
    if error.op is not None:
        body["op"] = error.op
    return body


def public_error(error: errors.OpError, where: str) -> errors.OpError:
    """The error that a client may see; faults of the server are logged.

    What Python or a library says of a fault that nobody foresaw stays in the log, under a number that the client is
    told too.

    Args:
        error: being handled.
        where: the request, for the log.
    """
    if status_of(error) != 500:
        return error
    if not isinstance(error.__cause__, Exception) or isinstance(error.__cause__, errors.OpError):
        logger.error("%s failed", where, exc_info=error)
        return error
    number = secrets.token_hex(4)
    logger.error("%s failed: internal error %s", where, number, exc_info=error)
    return errors.InternalError(
        f"internal error {number}; the server's log says more", node=error.node, op=error.op, origin=error.origin
    )


def error_response(request: web.Request, error: errors.OpError, instance: str | None = None) -> web.Response:
    """The answer to a request that failed; faults of the server are logged.

    Args:
        request: to which this is the answer.
        error: being handled.
        instance: what it is about, if not the request's path.
    """
    trace = trace_of(request)
    status = status_of(error)
    if status == 500:
        error = public_error(error, f"{request.method} {shortened(request.path)} (trace {trace.trace_id})")
    problem = "application/problem+json" in request.headers.get("Accept", "")
    response = web.Response(
        body=json.dumps(error_body(error, instance or request.path, trace.trace_id)).encode(),
        status=status,
        reason=_CLOSED_BY_CLIENT if status == _CLIENT_CLOSED_REQUEST else None,
        content_type="application/problem+json" if problem else "application/json",
    )
    response.headers.update(error_headers(error, status))
    request.app[ACTIVITY].note_error(error, status, request)
    return response


def error_headers(error: errors.OpError, status: int) -> dict[str, str]:
    """The headers that an answer with this status has because of the error."""
    retry = {"Retry-After": "1"} if status in _RETRY_STATUSES else {}
    return {**retry, **(error.headers if isinstance(error, HasHeaders) else {})}


def errors_as_responses(
    let_out: Callable[[web.Request, web.StreamResponse], web.StreamResponse], ended: Callable[[web.Request], object]
) -> Middleware:
    """The outermost layer: whatever a handler raises becomes an answer, and a request id is echoed.

    Args:
        let_out: makes what is sent of a handler's answer.
        ended: told of each request when its handler has ended, however it did.
    """

    @web.middleware
    async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
        response: web.StreamResponse
        try:
            response = let_out(request, await handler(request))
        except asyncio.CancelledError:
            raise  # the client has gone
        except ConnectionError:  # it has gone, or was sent away, and nobody reads an answer: that is no fault
            if request.transport is not None:
                request.transport.abort()
            response = web.Response(status=_CLIENT_CLOSED_REQUEST, reason=_CLOSED_BY_CLIENT)
        except Exception as error:
            response = error_response(request, _public(request, error))
        finally:
            ended(request)
        if not response.prepared:
            say_ids(request, response)
        return response

    return answered


def _public(request: web.Request, error: Exception) -> errors.OpError:
    """What a handler raised, in our words."""
    if isinstance(error, errors.OpError):
        return error
    if isinstance(error, web.HTTPException):
        return _from_http(request, error)
    if isinstance(error, web.RequestPayloadError | aiohttp_seam.HttpProcessingError):
        return errors.InvalidArgumentError(f"The request's body cannot be read: {error}")
    internal = errors.InternalError()
    internal.__cause__ = error
    return internal


def say_ids(request: web.Request, response: web.StreamResponse) -> None:
    """What the client called the request, if that is a name, and which trace it is of, if it may want to know."""
    request_id = request.headers.get(_X_REQUEST_ID)
    if request_id is not None and _REQUEST_ID.fullmatch(request_id):
        response.headers[_X_REQUEST_ID] = request_id
    trace = known_trace(request)
    if trace is not None:
        response.headers[TRACERESPONSE] = str(trace)


def _from_http(request: web.Request, error: web.HTTPException) -> errors.OpError:
    """aiohttp's own refusals (of the router, mostly) in our words."""
    if isinstance(error, web.HTTPNotFound):
        return errors.NotFoundError(f"There is nothing at {request.path}")
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return RequestError(
            405, f"{request.method} is not allowed for {request.path}, but {allowed}", {"Allow": allowed}
        )
    return RequestError(error.status, error.text or error.reason or str(error.status))
