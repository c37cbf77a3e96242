"""`EarlyCancels`: cancellations by run id that arrive before their run, kept for the next run of that id.

A client cancels a run over another connection, so the cancellation may overtake the run's own request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from aexec_server.clients.callers import ANYONE, Caller
from aexec_server.clients.client_shares import ClientShares

__all__ = ["REMEMBER_SECONDS", "EarlyCancels"]

# A run that begins within this time after its cancellation is cancelled.  Seconds.
REMEMBER_SECONDS = 60.0
_MOST = 1024


class EarlyCancels:
    """Cancellations that wait for their runs.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # key → (time of arrival, reason, client); oldest first
        self._waiting: OrderedDict[str, tuple[float, str, str]] = OrderedDict()
        self._shares = ClientShares("cancellations", "cancellations that wait for runs of this session", _MOST)

    def __len__(self) -> int:
        return len(self._waiting)

    def remember(self, key: str, reason: str, caller: Caller = ANYONE) -> None:
        """Keep a cancellation for `REMEMBER_SECONDS`; it replaces one with the same key.

        Raises:
            ResourceExhaustedError: too many wait already. Waiting ones are not dropped, because their senders rely on
                them.
        """
        self._drop_old()
        if key not in self._waiting:
            self._shares.take(caller)
            client = caller.client
        else:
            _, _, client = self._waiting.pop(key)
        self._waiting[key] = self._clock(), reason, client

    def waits(self, key: str) -> bool:
        """True if a cancellation waits for a run of this key."""
        return key in self._waiting

    def take(self, key: str) -> str | None:
        """Remove the cancellation that waits for a run of this key, and return its reason; None if there is none."""
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
