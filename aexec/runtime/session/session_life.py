"""`SessionLife`: which event loop a session belongs to, and whether it may still be used.

The session, its callables and its steps refer to this object; it is deleted when none of them is left, and then warns
if the session was not closed.
"""

from __future__ import annotations

import asyncio
import os
import warnings

from aexec.framework import errors

__all__ = ["SessionLife"]

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class SessionLife:
    """The life of a session, from its making to its closing.

    Attributes:
        session_id: the session's number, for errors.
        loop: the event loop of the session's first use; None before.
        closed: True once closing the session has begun.
    """

    __slots__ = ("_forks", "closed", "loop", "session_id")

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self._forks = _forks
        self.loop: asyncio.AbstractEventLoop | None = None
        self.closed = False

    def __del__(self) -> None:
        loop = getattr(self, "loop", None)  # absent if __init__ failed
        if loop is not None and not self.closed and self._forks == _forks:
            warnings.warn(
                f"Unclosed session {self.session_id}: leave its `async with` block, or await its close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def check_open(self) -> None:
        """Raise FailedPreconditionError in a forked process, CancelledError if the session is closed."""
        if self._forks != _forks:
            raise errors.FailedPreconditionError(
                "This session was made before the process forked and cannot be used in the child: its threads do not "
                "exist here. Start worker processes with the 'spawn' start method and make a session in each."
            )
        if self.closed:
            raise errors.CancelledError("Session has been closed.")

    def check_usable(self) -> asyncio.AbstractEventLoop:
        """The running loop; the first call ties the session to it.

        Raises:
            FailedPreconditionError: the session belongs to another loop, or to the process that this one was forked
                from.
            CancelledError: the session is closed.
        """
        if self._forks != _forks or self.closed:
            self.check_open()
        loop = asyncio.get_running_loop()
        if self.loop is not loop:
            if self.loop is not None:
                raise errors.FailedPreconditionError(
                    f"Session {self.session_id} belongs to the event loop {self.loop!r} and was used from {loop!r}"
                )
            self.loop = loop
        return loop
