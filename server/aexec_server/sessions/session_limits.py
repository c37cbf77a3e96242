"""`SessionLimits`: limits that the creator of a session sets for it, within those of the server.

`session_shares` counts sessions against the limits of the server and of each client.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from aexec import errors
from aexec_server.clients.client_shares import ClientShares
from aexec_server.http import bodies
from aexec_server.settings.server_config import ServerConfig

__all__ = ["NO_LIMITS", "SessionLimits", "read_limits", "session_shares"]


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of one session; None where the server's limit holds.

    Attributes:
        max_runs: runs in flight at a time.
        max_memory_bytes: memory of its tensors, with what it keeps.
        max_run_bytes: memory of the tensors of one run.
        max_kept_bytes: bytes of tensors that it may keep under handles.
    """

    max_runs: int | None = None
    max_memory_bytes: int | None = None
    max_run_bytes: int | None = None
    max_kept_bytes: int | None = None

    def within(self, most: SessionLimits) -> SessionLimits:
        """Return these limits, with those of the server where they are None.

        Raises:
            InvalidArgumentError: a limit is above the server's.
        """
        values = {}
        for name in _NAMES:
            own, theirs = getattr(self, name), getattr(most, name)
            if own is not None and theirs is not None and own > theirs:
                raise errors.InvalidArgumentError(f'"{name}" may be at most {theirs} on this server, got {own}')
            values[name] = theirs if own is None else own
        return SessionLimits(**values)


NO_LIMITS = SessionLimits()
_NAMES = tuple([field.name for field in fields(SessionLimits)])


def read_limits(value: Any) -> SessionLimits:
    """Decode the member "limits" of a request.  Raises InvalidArgumentError."""
    if type(value) is not dict:
        raise bodies.expected('"limits" must be an object', value)
    bodies.check_fields(value, frozenset(_NAMES), '"limits"')
    for name, limit in value.items():
        if type(limit) is not int or limit < 1:
            raise errors.InvalidArgumentError(f'"{name}" must be a whole number and positive, got {str(limit)[:40]}')
    return SessionLimits(**value)


def session_shares(config: ServerConfig) -> ClientShares:
    """Return the shares that count each client's sessions."""
    return ClientShares("sessions", "sessions", config.max_sessions, config.max_client_sessions, hint="delete one")
