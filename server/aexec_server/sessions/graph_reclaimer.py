"""`GraphReclaimer`: frees the graphs of closed sessions, and collects garbage once the server is idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aexec
from aexec.hosting import collect_garbage, dispose, drop_large, leave_undisposed

__all__ = ["GraphReclaimer"]

# Delay in seconds between closing a large session and collecting garbage, if the server is idle then.
_COLLECT_AFTER = 2.0


class GraphReclaimer:
    """Frees the graphs that were made for sessions.

    Args:
        is_idle: returns True while no run is in flight and no session is being made.
    """

    def __init__(self, is_idle: Callable[[], bool]) -> None:
        self._is_idle = is_idle
        self._collection: asyncio.TimerHandle | None = None
        self._closed = False

    def free(self, session: aexec.Session, *, large: bool) -> None:
        """Free the graph that was made for a session, which is closed or was never used."""
        dispose(session.graph, nodes=len(session.graph))
        if large:
            drop_large()
            self._collect_later()

    def _collect_later(self) -> None:
        if self._collection is None and not self._closed:
            self._collection = asyncio.get_running_loop().call_later(_COLLECT_AFTER, self._collect)

    def _collect(self) -> None:
        """Collect the garbage that was frozen with large graphs, once the server is idle."""
        self._collection = None
        if self._is_idle():
            collect_garbage()
        else:
            self._collect_later()

    def close(self) -> None:
        """Collect no more: the server ends."""
        self._closed = True
        leave_undisposed()
        if self._collection is not None:
            self._collection.cancel()
