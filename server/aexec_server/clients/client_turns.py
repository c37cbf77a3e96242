"""`ClientTurns`: a lock, or a few places, that clients have for equal times, however many requests of each wait."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import perf_counter

__all__ = ["ClientTurns"]

# Clients whose times are kept before those are dropped that do not matter any more.
_MOST_TIMES = 64


class ClientTurns:
    """Places that clients get in turn; the requests of one client get them in the order in which they came.

    The next place is for the client that has had places for the shortest time.  A client that comes anew starts with
    the time of the client that got a place last, so that it neither waits for long nor has to be made up to for a time
    in which it wanted nothing.  (This is start-time fair queueing.)

    Args:
        places: their number.
        of_one: the most places that one client may have at a time.
        clock: returns the time in seconds.
    """

    def __init__(self, places: int = 1, of_one: int = 1, clock: Callable[[], float] = perf_counter) -> None:
        self._places = places
        self._of_one = of_one
        self._clock = clock
        self._taken: Counter[str] = Counter()  # by client
        self._in_use = 0
        # Client → the seconds for which it has had places; who is missing has had them for `_now`.
        self._times: dict[str, float] = {}
        self._now = 0.0
        # Client → its requests that wait, oldest first.
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        """The number of requests that wait."""
        return sum(map(len, self._lines.values()))

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Context manager: have a place for a request of this client."""
        # A free place is not taken from those who wait: they have as many as they may have.
        if self._in_use < self._places and self._taken[client] < self._of_one:
            self._take(client)
        else:
            await self._wait(client)
        began = self._clock()
        try:
            yield
        finally:
            self._give_back(client, self._clock() - began)

    def _time_of(self, client: str) -> float:
        return max(self._now, self._times.get(client, 0.0))

    def _take(self, client: str) -> None:
        self._in_use += 1
        self._taken[client] += 1
        self._now = self._time_of(client)

    def _give_back(self, client: str, seconds: float) -> None:
        self._in_use -= 1
        self._taken[client] -= 1
        if not self._taken[client]:
            del self._taken[client]
        if not (self._in_use or self._lines):  # nobody has to be compared with anybody
            self._times.clear()
            return
        self._times[client] = self._time_of(client) + seconds
        if len(self._times) > _MOST_TIMES:
            self._times = {client: time for client, time in self._times.items() if time > self._now}
        self._pass_on()

    async def _wait(self, client: str) -> None:
        given = asyncio.get_running_loop().create_future()
        self._lines.setdefault(client, deque()).append(given)
        try:
            await given
        except asyncio.CancelledError:
            if not given.cancelled():  # it had been given a place
                self._give_back(client, 0.0)
            elif (line := self._lines.get(client)) is not None and given in line:
                line.remove(given)
                if not line:
                    del self._lines[client]
            raise

    def _pass_on(self) -> None:
        """Give free places to those whose turn it is."""
        while self._in_use < self._places:
            waiting = [client for client in self._lines if self._taken[client] < self._of_one]
            if not waiting:
                return
            client = min(waiting, key=self._time_of)
            line = self._lines[client]
            given = line.popleft()
            if not line:
                del self._lines[client]
            if not given.done():
                self._take(client)
                given.set_result(None)
