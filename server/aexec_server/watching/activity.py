"""`Activity`: number of error answers of a process since its start, and the latest of them.

`OtherProcesses` holds the same, and more, for the processes behind a front.
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
    """Counts the requests that a process has answered with an error, and keeps the latest of them.

    Attributes:
        errors: number of error answers, except those with status 404.
    """

    def __init__(self) -> None:
        self.errors = 0
        self._recent: deque[dict[str, Any]] = deque(maxlen=_KEPT)

    def note_request_error(self, error: errors.OpError, status: int, request: web.Request) -> None:
        """Call `note_error` for an HTTP request."""
        resource = request.match_info.route.resource
        route = "" if resource is None else resource.canonical
        self.note_error(error, status, request.method, request.path, route)

    def note_error(self, error: errors.OpError, status: int, method: str, path: str, route: str) -> None:
        """Note a request that was answered with an error; one with status 404 is not counted.

        The message is not kept, because it may contain what another client sent; handles of sessions are shortened.
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
                "op": error.op_type,
            }
        )

    def recent_errors(self) -> list[dict[str, Any]]:
        """Return the latest errors, oldest first."""
        return list(self._recent)


@dataclass(frozen=True, slots=True)
class OtherProcesses:
    """State of the processes behind a front, for `/v1/status`.

    Attributes:
        hosts: name of a host → its latest answer of `process_status`.
        ended: sums of what hosts counted that have ended.
        recent_errors: the latest errors of all hosts, as `Activity.recent_errors`.
    """

    hosts: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
    recent_errors: Sequence[dict[str, Any]] = ()


ACTIVITY: web.AppKey[Activity] = web.AppKey("activity", Activity)
