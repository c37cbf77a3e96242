"""Errors of requests that a server has not begun: they may be sent again, to it or to the next one."""

from __future__ import annotations

from aexec import errors
from aexec_server.http.error_responses import HasHeaders

__all__ = ["HandedOverError", "ShuttingDownError"]


class ShuttingDownError(HasHeaders, errors.UnavailableError):
    """The server begins nothing new, because it ends."""

    reason = "shutting_down"

    def __init__(self) -> None:
        super().__init__("The server is shutting down")


class HandedOverError(HasHeaders, errors.UnavailableError):
    """The server does not have its store of durable sessions: it has given it up, or waits until it may open it."""

    reason = "handed_over"

    def __init__(self) -> None:
        super().__init__("Another process is taking the durable sessions over: nothing was done, ask again in a moment")
