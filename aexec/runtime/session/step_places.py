"""Limits how many steps of a session run at a time; further steps wait for a place.

`SessionConfig.max_steps` and `max_waiting_steps` are the limits.  A step takes its place after its plan is made and
before it is fed, and gives it back when it has ended (`step.py`).  A server has limits over all of its sessions, in
`server/aexec_server/core/admission.py`.
"""

from __future__ import annotations

import asyncio

from aexec.framework import errors
from aexec.framework.waiting.cancellation import CancellationManager, wait

__all__ = ["StepPlaces"]


class StepPlaces:
    """The places of a session.  All methods belong to its event loop.

    Args:
        most: the number of places.
        most_waiting: the number of steps that may wait for one; None for any number.
    """

    def __init__(self, most: int, most_waiting: int | None) -> None:
        self.most = most
        self._most_waiting = most_waiting
        self._free = most
        # Waiting steps, oldest first; a cancelled one removes itself.
        self._line: dict[asyncio.Future[None], None] = {}

    @property
    def waiting(self) -> int:
        """The number of waiting steps."""
        return len(self._line)

    async def take(self, cancellation: CancellationManager) -> None:
        """Take a place, in order of arrival.

        Args:
            cancellation: the step's.

        Raises:
            ResourceExhaustedError: too many steps wait already.
            CancelledError: the step was cancelled while it waited.
        """
        if self._free:
            self._free -= 1
            return
        if self._most_waiting is not None and len(self._line) >= self._most_waiting:
            raise errors.ResourceExhaustedError(
                f"{self.most} steps of the session are in flight and {len(self._line)} wait for their turn, which is "
                "all that SessionConfig.max_steps and max_waiting_steps allow"
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line[turn] = None
        try:
            await wait(cancellation, turn, "Run call was cancelled", give_back=lambda _: self.leave())
        finally:
            self._line.pop(turn, None)

    def leave(self) -> None:
        """Give a place back; the first waiting step takes it."""
        while self._line:
            turn = next(iter(self._line))
            del self._line[turn]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
