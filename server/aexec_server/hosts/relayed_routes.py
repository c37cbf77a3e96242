"""`RelayedRoutes`: which process answers a request, by its first line alone and the routes that the server has.

Next to read: `Place` in `core/routes.py`, which says where each route is answered.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from aexec_server.core.routes import Place, Route

__all__ = ["RelayedRoutes"]

# The parameter of a path that says which of its kind.
_NAMED_BY = {Place.SESSION: "session", Place.OPERATION: "operation"}
# In the order in which they are tried.
_RELAYED = (Place.SESSION, Place.NEW_SESSION, Place.OPERATION, Place.MODELS)
_IN_FRONT = Place.FRONT, ""


class RelayedRoutes:
    """Finds the place of a request by what its target begins with.

    What begins as a route does and is none goes where that route is answered: it is refused there.

    Args:
        routes: all that the server has.
    """

    def __init__(self, routes: Collection[Route]) -> None:
        by_place = {place: [r for r in routes if r.answered_in is place] for place in _RELAYED}
        there = {place: these for place, these in by_place.items() if these}
        # A group for each place, of what names the session or the operation, if anything.
        self._pattern = re.compile("|".join(_beginnings(*each) for each in there.items()).encode() or rb"(?!)")
        self._places = (Place.FRONT, *there)
        self._makes = frozenset(route.method.encode() for route in by_place[Place.NEW_SESSION])

    def find(self, method: bytes, target: bytes) -> tuple[Place, str]:
        """Where a request is answered, and of which session or operation it is, as the target spells it."""
        match = self._pattern.match(target)
        if match is None:
            return _IN_FRONT
        index = match.lastindex
        assert index is not None
        place = self._places[index]
        if place is Place.NEW_SESSION and method not in self._makes:
            return _IN_FRONT
        return place, match[index].decode("ascii")


def _beginnings(place: Place, routes: Iterable[Route]) -> str:
    """What the targets of these begin with, as a regular expression with one group."""
    if place in _NAMED_BY:
        before = {re.escape(route.path.partition(f"{{{_NAMED_BY[place]}}}")[0]): None for route in routes}
        return f"(?:{'|'.join(before)})([^/:?#]+)"
    end = r"(?=\?|\Z)" if place is Place.NEW_SESSION else r"(?=[/:?#]|\Z)"
    return f"(?:{'|'.join(dict.fromkeys(_fixed_part(route) for route in routes))}){end}()"


def _fixed_part(route: Route) -> str:
    """The path before its parameters."""
    text = re.escape(route.path.partition("/{")[0])
    return f"(?i:{text})" if route.ignore_case else text
