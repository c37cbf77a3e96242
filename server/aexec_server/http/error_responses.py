"""Error answers: the HTTP status of `Code.http_status`, and one body for all clients.

In the body, `error` is for clients of the inference protocols; `type`, `title`, `status`, `detail` and `instance` are
RFC 9457's; `code`, `node` and `op` are the fields of an `OpError`.
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
_REQUEST_ID = re.compile(r"[!-~]{1,200}")  # printable, without blanks
_X_REQUEST_ID = istr("X-Request-Id")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Middleware(Protocol):
    """A layer around handlers, as `web.middleware` makes it."""

    def __call__(self, request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]: ...


class HasHeaders:
    """A base class of errors whose answers have more than a message.

    Attributes:
        headers: headers of the answer.
        status: the HTTP status, if it differs from the code's.
        reason: a word for programs that says more than the code; "" for none.
    """

    headers: Mapping[str, str] = MappingProxyType({})
    status: int | None = None
    reason: str = ""


class RequestError(HasHeaders, errors.InvalidArgumentError):
    """A refused request with a status of HTTP's own: 405, 408, 413, 415 or 422."""

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
    """The body of an error answer, without file names of this machine and without a traceback."""
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
    if error.op_type is not None:
        body["op"] = error.op_type
    return body


def public_error(error: errors.OpError, where: str) -> errors.OpError:
    """The error that a client may see; logs faults of the server.

    The text of an unforeseen exception stays in the log, under a number that the client gets, too.

    Args:
        error: the error, which is being handled.
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
        f"internal error {number}; the server's log says more", node=error.node, op=error.op_type, origin=error.origin
    )


def error_response(request: web.Request, error: errors.OpError, instance: str | None = None) -> web.Response:
    """The answer to a request that failed; logs faults of the server.

    Args:
        request: the request.
        error: the error, which is being handled.
        instance: the subject of the error, if it is not the request's path.
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
    request.app[ACTIVITY].note_request_error(error, status, request)
    return response


def error_headers(error: errors.OpError, status: int) -> dict[str, str]:
    """The headers that the error adds to an answer with this status."""
    retry = {"Retry-After": "1"} if status in _RETRY_STATUSES else {}
    return {**retry, **(error.headers if isinstance(error, HasHeaders) else {})}


def errors_as_responses(
    let_out: Callable[[web.Request, web.StreamResponse], web.StreamResponse],
    ended: Callable[[web.Request], object],
    leaving: Callable[[], bool],
) -> Middleware:
    """Return the outermost middleware: it turns errors of handlers into answers, and echoes request ids.

    Args:
        let_out: returns the answer to send for a handler's answer.
        ended: called with each request when its handler has returned or raised.
        leaving: returns True if clients should go elsewhere: answers then end their connections.
    """

    @web.middleware
    async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
        response: web.StreamResponse
        try:
            response = let_out(request, await handler(request))
        except asyncio.CancelledError:
            raise  # the client has left
        except ConnectionError:  # the client has left or was cut off, which is no fault
            if request.transport is not None:
                request.transport.abort()
            response = web.Response(status=_CLIENT_CLOSED_REQUEST, reason=_CLOSED_BY_CLIENT)
        except Exception as error:
            response = error_response(request, _public(request, error))
        finally:
            ended(request)
        if not response.prepared:
            say_ids(request, response)
            if leaving():
                response.force_close()
        return response

    return answered


def _public(request: web.Request, error: Exception) -> errors.OpError:
    """The public error for a handler's exception."""
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
    """Add the client's id of the request, if it is printable, and the trace's id, if the client may want it."""
    request_id = request.headers.get(_X_REQUEST_ID)
    if request_id is not None and _REQUEST_ID.fullmatch(request_id):
        response.headers[_X_REQUEST_ID] = request_id
    trace = known_trace(request)
    if trace is not None:
        response.headers[TRACERESPONSE] = str(trace)


def _from_http(request: web.Request, error: web.HTTPException) -> errors.OpError:
    """The error for a refusal of aiohttp's own, mostly by its router."""
    if isinstance(error, web.HTTPNotFound):
        return errors.NotFoundError(f"There is nothing at {request.path}")
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return RequestError(
            405, f"{request.method} is not allowed for {request.path}, but {allowed}", {"Allow": allowed}
        )
    return RequestError(error.status, error.text or error.reason or str(error.status))
