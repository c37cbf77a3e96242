"""The default session: the session of the innermost `with` block in the current task or thread.

Next to read: `session.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from aexec.framework import errors

__all__ = ["default_session", "entered", "get_default_session"]

_entered: ContextVar[tuple[Any, ...]] = ContextVar("aexec_compat_sessions", default=())


@contextmanager
def entered(session: Any) -> Iterator[None]:
    """Context manager: make a session the default inside the block."""
    before = _entered.get()
    _entered.set((*before, session))
    try:
        yield
    finally:
        _entered.set(before)


def get_default_session() -> Any:
    """The session of the innermost block in this context, or None."""
    sessions = _entered.get()
    return sessions[-1] if sessions else None


def default_session() -> Any:
    """The session of the innermost block.  Raises NoSessionError if there is none."""
    session = get_default_session()
    if session is None:
        raise errors.NoSessionError(
            "No default session: use `with sess:` or `with sess.as_default():`, or give the session explicitly"
        )
    return session
