"""`BodyBudget`: how many bytes of bodies all requests together may keep in memory, and those of each client.

Each body is bounded by itself (`bodies.py`), but there may be a thousand at a time: unfinished, or
inflated from little.
What a request has taken is given back when it has been answered, or its client has left
(`aexec_server/app.py`).
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from aexec.hosting import return_freed_memory
from aexec_server.clients.callers import caller_of
from aexec_server.clients.client_shares import ClientShares
from aexec_server.settings.server_config import ServerConfig

__all__ = ["BodyBudget"]

# So many of the largest bodies may be kept at a time, unless the configuration says otherwise.
_BODIES = 8
# After so many bytes of bodies, freed memory goes back to the system, as soon as their requests have let go of them.
_RETURN_EVERY = 32 * 2**20
_RETURN_AFTER = 0.5

_TAKEN = web.RequestKey("bytes of its body", int)


class BodyBudget:
    """A number of bytes that requests share.

    Args:
        config: of the server.

    Attributes:
        shares: of the clients.
    """

    def __init__(self, config: ServerConfig) -> None:
        largest = config.max_body_bytes
        most = config.max_buffered_bytes or _BODIES * largest
        of_one = config.max_client_buffered_bytes
        # However much others send, there is room for a body of whoever has none on the way.
        self.shares = ClientShares("body_bytes", "bytes of bodies", most, of_one, unit=largest)
        self._given_back = 0

    @property
    def in_use(self) -> int:
        """How many are taken."""
        return self.shares.in_use

    def take(self, request: web.Request, size: int) -> None:
        """Count what a request keeps.

        Raises:
            ResourceExhaustedError: it would be too much together, or of its client.
        """
        self.shares.take(caller_of(request), size)
        request[_TAKEN] = request.get(_TAKEN, 0) + size

    def give_back(self, request: web.Request) -> None:
        """What a request has taken is free: it has ended."""
        size = request.get(_TAKEN)
        if size is None:
            return
        self.shares.give_back(caller_of(request).client, size)
        self._given_back += size
        if self._given_back >= _RETURN_EVERY:
            self._given_back = 0
            loop = asyncio.get_running_loop()
            loop.call_later(_RETURN_AFTER, loop.run_in_executor, None, return_freed_memory)
