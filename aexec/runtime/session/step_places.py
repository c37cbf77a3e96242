"""How many steps of a session run at a time: those beyond wait in line for a place.

`SessionConfig.max_steps` and `max_waiting_steps` are the numbers.  A step takes its place when its plan is there and
before it is fed, and gives it back when it has ended (`step.py`).  A server has limits of its own, for all of its
sessions together, in `server/aexec_server/core/admission.py`.
"""

from __future__ import annotations

import asyncio

from aexec.framework import errors
from aexec.framework.waiting.cancellation import CancellationManager, wait

__all__ = ["StepPlaces"]


class StepPlaces:
    """The places of a session.  All methods belong to its event loop.

    Args:
        most: so many steps have one at a time.
        most_waiting: so many may wait for one; None for any number.
    """

    def __init__(self, most: int, most_waiting: int | None) -> None:
        self.most = most
        self._most_waiting = most_waiting
        self._free = most
        # In the order in which they came; one that was cancelled takes itself out.
        self._line: dict[asyncio.Future[None], None] = {}

    @property
    def waiting(self) -> int:
        """Steps in line."""
        return len(self._line)

    async def take(self, cancellation: CancellationManager) -> None:
        """Take a place, as soon as those who came before have had theirs.

        Args:
            cancellation: of the step.

        Raises:
            ResourceExhaustedError: too many wait already.
            CancelledError: the step was cancelled before its turn.
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
        """Give a place back, to the first in line."""
        while self._line:
            turn = next(iter(self._line))
            del self._line[turn]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
