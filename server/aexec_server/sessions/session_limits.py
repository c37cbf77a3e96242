"""`SessionLimits`: what the creator of a session lets it have, within what the server allows.

`session_shares` is how many sessions the server allows, and each client.
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
    """Limits of one session; None for the server's own.

    Attributes:
        max_runs: in flight at a time.
        max_memory_bytes: what its tensors may take of memory, with what it keeps.
        max_run_bytes: what those of one run may take.
        max_kept_bytes: what it may keep under handles.
    """

    max_runs: int | None = None
    max_memory_bytes: int | None = None
    max_run_bytes: int | None = None
    max_kept_bytes: int | None = None

    def within(self, most: SessionLimits) -> SessionLimits:
        """These, with the server's where there are none.

        Raises:
            InvalidArgumentError: one is beyond the server's.
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
    """The member "limits" of a request.  Raises InvalidArgumentError for what is none."""
    if type(value) is not dict:
        raise bodies.expected('"limits" must be an object', value)
    bodies.check_fields(value, frozenset(_NAMES), '"limits"')
    for name, limit in value.items():
        if type(limit) is not int or limit < 1:
            raise errors.InvalidArgumentError(f'"{name}" must be a whole number and positive, got {str(limit)[:40]}')
    return SessionLimits(**value)


def session_shares(config: ServerConfig) -> ClientShares:
    """Of the sessions that a server may have, what each client has."""
    return ClientShares("sessions", "sessions", config.max_sessions, config.max_client_sessions, hint="delete one")
