"""`EarlyCancels`: cancellations by run id that came when no run of that id was in flight, kept for the next one.

A client cancels a run from another connection, and that request may overtake the run's own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from aexec_server.clients.callers import ANYONE, Caller
from aexec_server.clients.client_shares import ClientShares

__all__ = ["REMEMBER_SECONDS", "EarlyCancels"]

# A run that begins within this time after its cancellation is cancelled.
REMEMBER_SECONDS = 60.0
_MOST = 1024


class EarlyCancels:
    """The cancellations that wait for their runs.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # key → when it came, why, and of which client; oldest first
        self._waiting: OrderedDict[str, tuple[float, str, str]] = OrderedDict()
        self._shares = ClientShares("cancellations", "cancellations that wait for runs of this session", _MOST)

    def __len__(self) -> int:
        return len(self._waiting)

    def remember(self, key: str, reason: str, caller: Caller = ANYONE) -> None:
        """Keep a cancellation for `REMEMBER_SECONDS` from now on; one of the same key is replaced.

        Raises:
            ResourceExhaustedError: too many wait already.  None of these is dropped: their senders rely on them.
        """
        self._drop_old()
        if key not in self._waiting:
            self._shares.take(caller)
            client = caller.client
        else:
            _, _, client = self._waiting.pop(key)
        self._waiting[key] = self._clock(), reason, client

    def take(self, key: str) -> str | None:
        """The reason of the cancellation that waits for a run of this key, which is then spent; None without one."""
        if key not in self._waiting:
            return None
        came, reason, client = self._waiting.pop(key)
        self._shares.give_back(client)
        return None if self._is_old(came) else reason

    def _drop_old(self) -> None:
        while self._waiting and self._is_old(next(iter(self._waiting.values()))[0]):
            _, (_, _, client) = self._waiting.popitem(last=False)
            self._shares.give_back(client)

    def _is_old(self, came: float) -> bool:
        return self._clock() - came > REMEMBER_SECONDS
