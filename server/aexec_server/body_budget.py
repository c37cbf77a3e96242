"""`BodyBudget`: how many bytes of bodies all requests together may keep in memory.

Each body is bounded by itself (`bodies.py`), but there may be a thousand at a time: unfinished, or
inflated from little.
What a request has taken is given back when it has been answered, or its client has left (`app.py`).
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from aexec import errors
from aexec.hosting import return_freed_memory

__all__ = ["BodyBudget"]

# After so many bytes of bodies, freed memory goes back to the system, as soon as their requests have let go of them.
_RETURN_EVERY = 32 * 2**20
_RETURN_AFTER = 0.5

_TAKEN = web.RequestKey("bytes of its body", int)


class BodyBudget:
    """A number of bytes that requests share.

    Args:
        most: how many.

    Attributes:
        in_use: how many are taken.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.in_use = 0
        self._given_back = 0

    def take(self, request: web.Request, size: int) -> None:
        """Count what a request keeps.

        Raises:
            ResourceExhaustedError: it would be too much together.
        """
        if self.in_use + size > self._most:
            raise errors.ResourceExhaustedError(
                f"{size} bytes more of this request's body would make {self.in_use + size} bytes of all bodies that "
                f"this server keeps at the moment; they may be {self._most}: try again later"
            )
        self.in_use += size
        request[_TAKEN] = request.get(_TAKEN, 0) + size

    def give_back(self, request: web.Request) -> None:
        """What a request has taken is free: it has ended."""
        size = request.get(_TAKEN)
        if size is None:
            return
        self.in_use -= size
        self._given_back += size
        if self._given_back >= _RETURN_EVERY:
            self._given_back = 0
            loop = asyncio.get_running_loop()
            loop.call_later(_RETURN_AFTER, loop.run_in_executor, None, return_freed_memory)
