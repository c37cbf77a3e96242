"""`SpentKeys`: remembers the keys of requests for sessions that were answered by session hosts which have ended."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

__all__ = ["SpentKeys"]

_MOST_KEYS = 10_000


class SpentKeys:
    """Idempotency keys whose stored answers went with an ended session host.

    If there are too many, those of the client with most keys are forgotten first.
    """

    def __init__(self) -> None:
        self._of: dict[str, OrderedDict[bytes, None]] = {}
        self._count = 0

    def add(self, client: str, keys: Iterable[bytes]) -> None:
        """Add a client's keys, whose host has ended."""
        for key in keys:
            of_client = self._of.setdefault(client, OrderedDict())
            if key not in of_client:
                of_client[key] = None
                self._count += 1
        while self._count > _MOST_KEYS:
            self._forget_one(max(self._of, key=lambda client: len(self._of[client])))

    def _forget_one(self, client: str) -> None:
        of_client = self._of[client]
        of_client.popitem(last=False)
        self._count -= 1
        if not of_client:
            del self._of[client]

    def __contains__(self, known: tuple[str, bytes]) -> bool:
        client, key = known
        return key in self._of.get(client, ())
