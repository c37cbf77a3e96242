"""`BodyBudget`: bounds the bytes of bodies in memory, of all requests together and of each client.

Each body has its own bound (`bodies.py`), but there may be a thousand at a time, unfinished or inflated from little.
The bytes of a request are given back when it was answered or its client has left (`aexec_server/app.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from aiohttp import web

from aexec.hosting import return_freed_memory
from aexec_server.clients.callers import CALLER, Caller
from aexec_server.clients.client_shares import ClientShares
from aexec_server.settings.server_config import ServerConfig

__all__ = ["BodyBudget"]

# The default budget is this many of the largest bodies.
_BODIES = 8
# Freed memory is returned to the system after each this many bytes of bodies.
_RETURN_EVERY = 32 * 2**20
_RETURN_AFTER = 0.5

_TAKEN = web.RequestKey("bytes of its body", int)


class BodyBudget:
    """A number of bytes that requests share.

    Args:
        config: the server's settings.

    Attributes:
        shares: the clients' shares.
    """

    def __init__(self, config: ServerConfig) -> None:
        largest = config.max_body_bytes
        most = config.max_buffered_bytes or _BODIES * largest
        of_one = config.max_client_buffered_bytes
        # However much others send, there is room for a body of a client without one.
        self.shares = ClientShares("body_bytes", "bytes of bodies", most, of_one, unit=largest)
        self._given_back = 0

    @property
    def in_use(self) -> int:
        """The bytes in use."""
        return self.shares.in_use

    def take(self, request: web.Request, size: int) -> None:
        """Count bytes that a request keeps.

        Raises:
            ResourceExhaustedError: they would be too much, in sum or for the client.
        """
        self.shares.take(request[CALLER], size)
        request[_TAKEN] = request.get(_TAKEN, 0) + size

    def give_back(self, request: web.Request) -> None:
        """Give back the bytes of a request that has ended."""
        size = request.get(_TAKEN)
        if size is None:
            return
        self._give_back(request[CALLER], size)

    def holding(self, caller: Caller, size: int) -> AbstractContextManager[None]:
        """Context manager: count the bytes of a message inside.  Raises as `take`."""
        return _Held(self.shares, self._give_back, caller, size)

    def _give_back(self, caller: Caller, size: int) -> None:
        self.shares.give_back(caller.client, size)
        self._given_back += size
        if self._given_back >= _RETURN_EVERY:
            self._given_back = 0
            loop = asyncio.get_running_loop()
            loop.call_later(_RETURN_AFTER, _return_memory, loop)


def _return_memory(loop: asyncio.AbstractEventLoop) -> None:
    with suppress(RuntimeError):  # the loop ends, and its threads have ended
        loop.run_in_executor(None, return_freed_memory)


class _Held:
    """See `BodyBudget.holding`."""

    __slots__ = ("_caller", "_give_back", "_shares", "_size")

    def __init__(
        self, shares: ClientShares, give_back: Callable[[Caller, int], object], caller: Caller, size: int
    ) -> None:
        self._shares = shares
        self._give_back = give_back
        self._caller = caller
        self._size = size

    def __enter__(self) -> None:
        self._shares.take(self._caller, self._size)

    def __exit__(self, *error: object) -> None:
        self._give_back(self._caller, self._size)
