"""`Activity`: with how many errors a process has answered since it began, and which were the latest.

`OtherProcesses` has that, and more, of the processes behind a front.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from aexec import errors
from aexec_server.handles import shortened

__all__ = ["ACTIVITY", "Activity", "OtherProcesses"]

_KEPT = 50


class Activity:
    """The number of errors that a process has answered with, and the latest of them.

    Attributes:
        errors: requests that were answered with one, as far as they are noted.
    """

    def __init__(self) -> None:
        self.errors = 0
        self._recent: deque[dict[str, Any]] = deque(maxlen=_KEPT)

    def note_request_error(self, error: errors.OpError, status: int, request: web.Request) -> None:
        """`note_error` of a request of HTTP."""
        resource = request.match_info.route.resource
        route = "" if resource is None else resource.canonical
        self.note_error(error, status, request.method, request.path, route)

    def note_error(self, error: errors.OpError, status: int, method: str, path: str, route: str) -> None:
        """A request was answered with an error, and not for asking for what is not there: that is nobody's fault.

        What it said is not kept, for it may hold what another client sent; nor are handles of sessions.
        """
        if status == 404:
            return
        self.errors += 1
        self._recent.append(
            {
                "time": round(time.time(), 3),
                "method": method,
                "path": shortened(path)[:200],
                "route": route,
                "status": status,
                "code": error.code.name,
                "node": error.node,
                "op": error.op,
            }
        )

    def recent_errors(self) -> list[dict[str, Any]]:
        """The latest, oldest first."""
        return list(self._recent)


@dataclass(frozen=True, slots=True)
class OtherProcesses:
    """How the processes behind a front are, for `/v1/status`.

    Attributes:
        hosts: what `process_status` said of each when it was asked last, by name.
        ended: sums of what those counted that are no more.
        recent_errors: the latest of all, as `Activity.recent_errors`.
    """

    hosts: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
    recent_errors: Sequence[dict[str, Any]] = ()


ACTIVITY: web.AppKey[Activity] = web.AppKey("activity", Activity)
