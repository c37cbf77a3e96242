"""`LostError`: the thing that a handle stands for is gone, though its client did not end it."""

from __future__ import annotations

from aexec import errors
from aexec_server.handles import Handles
from aexec_server.http.error_responses import HasHeaders

__all__ = ["HOST_ENDED", "LostError", "lost_by_restart"]

HOST_ENDED = "host_ended"
_SERVER_RESTARTED = "server_restarted"


class LostError(HasHeaders, errors.NotFoundError):
    """The session, operation or partial run of a handle is gone, and its client did not end it.

    Args:
        reason: a word for programs, `server_restarted` or `host_ended`.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def lost_by_restart(handles: Handles, what: str, handle: str) -> LostError | None:
    """The error for a handle from an earlier start of the server; None for a handle of this start, or for none.

    Args:
        handles: makes the handles of this start.
        what: the kind of thing, such as `Session`.
    """
    if not handles.is_of_another_run(handle):
        return None
    message = (
        f"{what} '{handle[:80]}' is not found: the server was restarted after it was made, and keeps nothing of it"
    )
    return LostError(message, _SERVER_RESTARTED)
