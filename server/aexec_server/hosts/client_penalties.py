"""`ClientPenalties`: makes clients that have broken session hosts wait for their next host, longer each time."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from aexec import errors
from aexec_server.http.error_responses import HasHeaders

__all__ = ["ClientPenalties", "PenaltyError"]

# The wait in seconds after the first broken host; it doubles with each further one, up to the maximum.
_FIRST_SECONDS = 1.0
_MOST_SECONDS = 60.0
# Broken hosts are forgotten after this many seconds without another one.
_FORGET_SECONDS = 600.0
_MOST_CLIENTS = 10_000


class PenaltyError(HasHeaders, errors.ResourceExhaustedError):
    """The client has to wait for its next host."""

    def __init__(self, broken: int, seconds: float) -> None:
        left = math.ceil(seconds)
        super().__init__(
            f"Sessions of this client ended {broken} session host{'s' * (broken > 1)} lately, by silence or by memory: "
            f"it may make another in {left} s"
        )
        self.headers = {"Retry-After": str(left)}


class _Penalty(NamedTuple):
    """The number of hosts that a client broke, when it broke the last, and until when it waits."""

    broken: int
    at: float
    until: float


class ClientPenalties:
    """Clients that have broken session hosts, and how long each waits for its next host.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._penalties: OrderedDict[str, _Penalty] = OrderedDict()  # by when they last broke one, oldest first

    def note(self, client: str) -> None:
        """Record that a client has broken a host."""
        now = self._clock()
        last = self._penalties.pop(client, None)
        broken = 1 if last is None or now - last.at > _FORGET_SECONDS else last.broken + 1
        seconds = _MOST_SECONDS if broken > 10 else min(_MOST_SECONDS, _FIRST_SECONDS * 2 ** (broken - 1))
        self._penalties[client] = _Penalty(broken, now, now + seconds)
        if len(self._penalties) > _MOST_CLIENTS:
            self._penalties.popitem(last=False)

    def check(self, client: str) -> None:
        """Raise PenaltyError while the client has to wait."""
        penalty = self._penalties.get(client)
        if penalty is not None:
            left = penalty.until - self._clock()
            if left > 0:
                raise PenaltyError(penalty.broken, left)
