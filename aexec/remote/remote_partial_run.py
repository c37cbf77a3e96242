"""`RemotePartialRun`: a step in a server that is fed and fetched in several calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from aexec.framework import errors

__all__ = ["RemotePartialRun"]


class RemotePartialRun:
    """A partial run in a server; the result of `RemoteSession.partial_run_setup`.

    Attributes:
        handle: its name in the server, by which others see and cancel it.
    """

    def __init__(self, handle: str, cancel: Callable[[str], Awaitable[object]]) -> None:
        self.handle = handle
        self._tell = cancel
        self._loop = asyncio.get_running_loop()
        self._telling: asyncio.Task[None] | None = None

    def cancel(self, reason: str = "") -> bool:
        """Ask the step to stop; True if this call is the first to ask.  May be called from any thread."""
        if self._telling is not None:
            return False
        self._loop.call_soon_threadsafe(self._begin, reason)
        return True

    def _begin(self, reason: str) -> None:
        self._telling = self._loop.create_task(self._stop(reason), name=f"cancel {self.handle}")

    async def _stop(self, reason: str) -> None:
        with contextlib.suppress(errors.OpError):  # it has ended, or its server has
            await self._tell(reason)

    async def settle(self) -> None:
        """Wait until the server has been told."""
        if self._telling is not None:
            await asyncio.wait([self._telling])

    def __repr__(self) -> str:
        return f"<RemotePartialRun {self.handle}>"
