"""`LostConnections`: ends the requests of connections that were lost, a few in each turn of the event loop.

Ending a request cancels its task and its step, which takes some 0.1 ms.  When a thousand clients vanish at once, the
loop has other work between them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["LostConnections"]

# How many are ended in one turn: some milliseconds of work, with that of their tasks.
_IN_A_TURN = 50


class LostConnections:
    """Calls the functions that end the requests of lost connections, in their order, so many in a turn of the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._line: deque[Callable[[], object]] = deque()
        self._left = _IN_A_TURN
        self._scheduled = False

    def __len__(self) -> int:
        """The number of those that wait for their turn."""
        return len(self._line)

    def end(self, end: Callable[[], object]) -> None:
        """Call `end` now, or in one of the next turns."""
        if self._left:
            self._left -= 1
            self._schedule()
            end()
        else:
            self._line.append(end)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        count = min(len(self._line), _IN_A_TURN)
        self._left = _IN_A_TURN - count
        for _ in range(count):
            self._loop.call_soon(self._line.popleft())
        if count:
            self._schedule()
