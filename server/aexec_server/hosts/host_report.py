"""`HostReport`: makes the reports of a session host to its front, each with what has changed."""

from __future__ import annotations

from typing import Any

from aexec_server.core.server_state import Server
from aexec_server.handlers.status import process_status
from aexec_server.watching.metrics import Snapshot, increase, snapshot_to_json

__all__ = ["HostReport"]


class HostReport:
    """A session host's reports to its front, each with the changes since the last one."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._told: dict[str, Any] = {}
        self._counted: Snapshot = {}
        self._errors = 0

    def changes(self, *, counted: bool) -> dict[str, Any]:
        """The fields of `_fields` that have changed since the last report.

        Args:
            counted: True to add new `metrics` and `errors`.  That reads all metrics of the process, which is too much
                for each session that is made or closed.
        """
        fields = self._fields()
        changed = {name: value for name, value in fields.items() if self._told.get(name) != value}
        self._told = fields
        return changed | self._counts() if counted else changed

    def _counts(self) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        now = self._server.snapshot()
        grown = increase(now, self._counted)
        self._counted = now
        if grown:
            changed["metrics"] = snapshot_to_json(grown)
        activity = self._server.activity
        if activity.errors > self._errors:
            changed["errors"] = activity.recent_errors()[self._errors - activity.errors :]
            self._errors = activity.errors
        return changed

    def _fields(self) -> dict[str, Any]:
        """The state of this host, for the front.

        ready: True once its models are loaded.
        models: the names of the server's own sessions.
        names: the names that clients gave to sessions, or ask for.
        durable: the owners of the durable sessions that are open, by handle.
        callers: (sessions, runs) of each caller with a token.
        sessions: as `SessionStore.held`.
        operations: the number of runs answered later that are not forgotten.
        status: as `process_status`.
        """
        server = self._server
        return {
            "ready": server.ready,
            "models": [hosted.handle for hosted in server.sessions if hosted.listed],
            "names": server.sessions.names,
            "durable": {} if server.durable is None else server.durable.owners,
            "callers": server.of_callers(),
            "sessions": server.sessions.held,
            "operations": len(server.operations),
            "status": process_status(server),
        }
