"""`ClientTurns`: a lock that clients get in turn, however many requests each of them has that wait for it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["ClientTurns"]


class ClientTurns:
    """A lock.  Clients get it in turn; the requests of one client get it in the order in which they came."""

    def __init__(self) -> None:
        self._is_held = False
        # Client → its requests that wait, oldest first; the client whose turn is next comes first.
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def __len__(self) -> int:
        """The number of requests that wait."""
        return sum(map(len, self._lines.values()))

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Context manager: hold the lock for a request of this client."""
        if self._is_held:
            await self._wait(client)
        self._is_held = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, client: str) -> None:
        given = asyncio.get_running_loop().create_future()
        self._lines.setdefault(client, deque()).append(given)
        try:
            await given
        except asyncio.CancelledError:
            if not given.cancelled():  # it had been given the lock
                self._pass_on()
            elif (line := self._lines.get(client)) is not None and given in line:
                line.remove(given)
                if not line:
                    del self._lines[client]
            raise

    def _pass_on(self) -> None:
        """Give the lock to the next client's oldest request; it stays held meanwhile."""
        while self._lines:
            client, line = self._lines.popitem(last=False)
            given = line.popleft()
            if line:
                self._lines[client] = line
            if not given.done():
                given.set_result(None)
                return
        self._is_held = False
