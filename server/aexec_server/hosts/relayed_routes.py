"""`RelayedRoutes`: finds the process that answers a request, by its first line and the server's routes.

Next to read: `AnsweredBy` in `core/routes.py`, which says where each route is answered.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from aexec_server.core.routes import AnsweredBy, Route

__all__ = ["RelayedRoutes"]

# The parameter of a path that names the session or the operation.
_NAMED_BY = {AnsweredBy.SESSION: "session", AnsweredBy.OPERATION: "operation"}
# In the order in which they are matched.
_RELAYED = (AnsweredBy.SESSION, AnsweredBy.NEW_SESSION, AnsweredBy.OPERATION, AnsweredBy.MODELS)
_IN_FRONT = AnsweredBy.FRONT, ""


class RelayedRoutes:
    """Finds the process for a request by the beginning of its target.

    A target that begins like a route, but is none, goes to the process of that route, which refuses it.

    Args:
        routes: all routes of the server.
    """

    def __init__(self, routes: Collection[Route]) -> None:
        by_process = {process: [r for r in routes if r.answered_by is process] for process in _RELAYED}
        there = {process: these for process, these in by_process.items() if these}
        # A group for each process, which matches the name of the session or operation, if there is one.
        self._pattern = re.compile("|".join(_beginnings(*each) for each in there.items()).encode() or rb"(?!)")
        self._processes = (AnsweredBy.FRONT, *there)
        self._makes = frozenset(route.method.encode() for route in by_process[AnsweredBy.NEW_SESSION])

    def find(self, method: bytes, target: bytes) -> tuple[AnsweredBy, str]:
        """The process that answers a request, and its session or operation as the target spells it."""
        match = self._pattern.match(target)
        if match is None:
            return _IN_FRONT
        index = match.lastindex
        assert index is not None
        process = self._processes[index]
        if process is AnsweredBy.NEW_SESSION and method not in self._makes:
            return _IN_FRONT
        return process, match[index].decode("ascii")


def _beginnings(process: AnsweredBy, routes: Iterable[Route]) -> str:
    """A regular expression with one group for the beginning of the targets of these routes."""
    if process in _NAMED_BY:
        before = {re.escape(route.path.partition(f"{{{_NAMED_BY[process]}}}")[0]): None for route in routes}
        return f"(?:{'|'.join(before)})([^/:?#]+)"
    end = r"(?=\?|\Z)" if process is AnsweredBy.NEW_SESSION else r"(?=[/:?#]|\Z)"
    return f"(?:{'|'.join(dict.fromkeys(_fixed_part(route) for route in routes))}){end}()"


def _fixed_part(route: Route) -> str:
    """The path before its parameters."""
    text = re.escape(route.path.partition("/{")[0])
    return f"(?i:{text})" if route.ignore_case else text
