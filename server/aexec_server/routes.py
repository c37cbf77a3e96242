"""`Route`: one call of the HTTP API, with all that is to be said about it.

Every module of handlers gives a list of these.  The application serves from them (`add_routes`), and whatever
describes the API is made from them too, so that the two cannot differ.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from aiohttp import web

from aexec_server.callers import Scope
from aexec_server.plain_call import MakePlainCall

__all__ = ["Handler", "Route", "add_routes"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_PARAMETER = re.compile(r"\{(\w+)\}")
# What a parameter of a path may be, if it is not as most are.
_PATTERNS = {"version": "[0-9]+", "tensor": ".+"}
_SEGMENT = "[^/:]+"


@dataclass(frozen=True, slots=True)
class Route:
    """A verb and a path.

    Attributes:
        method: `GET`, `POST`, …
        path: such as `/v1/sessions/{session}:run`; a parameter is one segment, without a colon, but a tensor's handle
            is all that follows.
        handler: answers it.
        scope: what a token has to be for.
        summary: what it is for, in a line.
        request: the name of its body in the description of the API (`openapi.py`); None for no body.
        response: the same of what a success is answered with.
        status: of a success.
        later: what 202 is answered with, for who wishes to have the answer later; None where nobody can.
        parameters: header fields, and what follows the `?`, that it looks at.
        ignore_case: its fixed parts may be in capitals too.
        plain: of a call for runs, makes what answers those that are over at once (`plain_runs.py`).
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
    plain: MakePlainCall | None = field(default=None, kw_only=True)
    scope: Scope = field(kw_only=True)

    @property
    def pattern(self) -> str:
        """The path as aiohttp's router takes it."""
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
    """Fixed parts become parameters of their own, whose patterns have a flag."""
    numbers = iter(range(path.count("/") + path.count(":")))
    fixed = re.compile(r"(?<=[/:])([A-Za-z]\w*)(?=[/:]|$)")
    return fixed.sub(lambda match: f"{{_{next(numbers)}:(?i:{match[1]})}}", path)


def add_routes(app: web.Application, routes: Iterable[Route], guard: Callable[[Route], Handler]) -> None:
    """Serve them; of those under one prefix, the first that fits is taken.

    Args:
        guard: gives the handler of a route, with whatever has to be checked before.
    """
    for route in routes:
        if route.method == "GET":
            app.router.add_get(route.pattern, guard(route))
        else:
            app.router.add_route(route.method, route.pattern, guard(route))
