"""`Route`: one call of the HTTP API, with everything that is known about it.

Every module of handlers has a list of routes.  The application serves them (`add_routes`), and the descriptions of the
API are made from the same list, so that the two cannot differ.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from aiohttp import web

from aexec_server.clients.callers import Scope
from aexec_server.core.direct_call import MakeDirectCall

__all__ = ["AnsweredBy", "Handler", "Route", "add_routes", "route_of", "served_routes"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_PARAMETER = re.compile(r"\{(\w+)\}")
# The patterns of parameters of paths that are not one segment without a colon.
_PATTERNS = {"version": "[0-9]+", "tensor": ".+"}
_SEGMENT = "[^/:]+"
# A fixed part of a path, and the parameter that stands for it where case is ignored.
_FIXED = re.compile(r"(?<=[/:])([A-Za-z]\w*)(?=[/:]|$)")
_NUMBERED = re.compile(r"\{_(\d+)\}")
_ROUTES: web.AppKey[dict[web.AbstractResource | None, Route]] = web.AppKey("routes", dict)
_SERVED: web.AppKey[list[Route]] = web.AppKey("served routes", list)


class AnsweredBy(Enum):
    """The process that answers a call of a server with session hosts (`hosts/front.py`)."""

    FRONT = "the one that clients connect to"
    NEW_SESSION = "the one that is chosen for a new session"
    SESSION = "the one that has the session of the path"
    OPERATION = "the one that has the operation of the path"
    MODELS = "the one that has the server's own models"


@dataclass(frozen=True, slots=True)
class Route:
    """A verb and a path.

    Attributes:
        method: `GET`, `POST`, …
        path: such as `/v1/sessions/{session}:run`.  A parameter is one segment without a colon; a tensor's handle is
            the rest of the path.
        handler: answers the requests.
        scope: the scope that a token needs.
        summary: what it is for, in a line.
        request: the schema of its body in the description of the API (`schemas/openapi.py`); None for no body.
        response: the schema of a successful answer.
        status: the status of a successful answer.
        later: the schema of the 202 for a client that asks to be answered later; None if that is impossible.
        parameters: the header fields and query parameters that it uses.
        ignore_case: True if its fixed parts may be in capitals, too.
        direct: makes the `DirectCall` of a call for runs (`handlers/direct_runs.py`); else None.
        traced: True if its requests have spans; False for health checks and the like.
        process: the process that answers; by default that of the path's `{session}` or `{operation}`, else the front.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    request: str | None = None
    response: str | None = None
    status: int = 200
    later: str | None = field(default=None, kw_only=True)
    parameters: tuple[str, ...] = ()
    ignore_case: bool = False
    direct: MakeDirectCall | None = field(default=None, kw_only=True)
    traced: bool = field(default=True, kw_only=True)
    process: AnsweredBy | None = field(default=None, kw_only=True)
    scope: Scope = field(kw_only=True)

    @property
    def answered_by(self) -> AnsweredBy:
        """The process that answers requests for it."""
        if self.process is not None:
            return self.process
        parameters = _PARAMETER.findall(self.path)
        if "session" in parameters:
            return AnsweredBy.SESSION
        return AnsweredBy.OPERATION if "operation" in parameters else AnsweredBy.FRONT

    def template(self, canonical: str) -> str:
        """The path with its parameters in braces, under the prefix at which the application is mounted.

        Args:
            canonical: aiohttp's form of `pattern`, in which fixed parts may be parameters.
        """
        words = _FIXED.findall(self.path)
        return _NUMBERED.sub(lambda match: words[int(match[1])], canonical)

    @property
    def pattern(self) -> str:
        """The path for aiohttp's router."""
        path = self.path
        if self.ignore_case:
            path = _ignoring_case(path)
        return _PARAMETER.sub(lambda match: f"{{{match[1]}:{_PATTERNS.get(match[1], _SEGMENT)}}}", path)

    @property
    def expression(self) -> re.Pattern[str]:
        """The path as a regular expression, with a group for each parameter."""
        text = "".join(
            f"(?P<{part}>{_PATTERNS.get(part, _SEGMENT)})" if is_name else re.escape(part)
            for is_name, part in zip(itertools.cycle((False, True)), _PARAMETER.split(self.path), strict=False)
        )
        return re.compile(text, re.IGNORECASE if self.ignore_case else 0)


def _ignoring_case(path: str) -> str:
    """The path with fixed parts as parameters whose patterns ignore case."""
    numbers = itertools.count()
    return _FIXED.sub(lambda match: f"{{_{next(numbers)}:(?i:{match[1]})}}", path)


def add_routes(app: web.Application, routes: Iterable[Route], guard: Callable[[Route], Handler]) -> None:
    """Add routes to an application; under one prefix the first that matches is used.

    Args:
        guard: returns the handler of a route, with the checks before it.
    """
    known, served = app.setdefault(_ROUTES, {}), app.setdefault(_SERVED, [])
    for route in routes:
        served.append(route)
        if route.method == "GET":
            added = app.router.add_get(route.pattern, guard(route))
        else:
            added = app.router.add_route(route.method, route.pattern, guard(route))
        known[added.resource] = route


def served_routes(app: web.Application) -> Sequence[Route]:
    """All routes of an application, in the order in which they were added."""
    return app.get(_SERVED, ())


def route_of(request: web.Request) -> tuple[Route | None, str]:
    """The route that a request takes, and its template; None for one that is not of our table, "" if there is none.

    Routes of one path are told apart by their methods, but share what is said here.
    """
    resource = request.match_info.route.resource
    if resource is None:
        return None, ""
    route = request.app[_ROUTES].get(resource)
    return route, resource.canonical if route is None else route.template(resource.canonical)
