"""`ClientShares`: how much each client holds of something that all clients share, and how much it may hold.

Runs, partial runs, sessions, bodies, kept results: of each kind there is so much, counted in things or in bytes.  One
client may hold seven eighths.  Of the last eighth, one half is for clients that hold little, up to a 64th of all; the
other half is for clients that hold nothing, one unit each: however much a client has taken, another one is served.
A client is whoever has a token, else whoever comes from an address (`client_address.py`).
"""

from __future__ import annotations

from aexec import errors
from aexec_server.clients.callers import Caller

__all__ = ["ClientShares", "ShareError"]

_SHARES = 8
# Who holds no more than one of so many parts holds little.
_SMALL_PARTS = 64
# What is less than so many units is not divided: all of it is for whoever comes.
_LEAST_UNITS = 4


class ShareError(errors.ResourceExhaustedError):
    """There is no more of something, or no more for this client."""


class ClientShares:
    """How much of one shared thing each client holds, and whether it may hold more.

    Args:
        kind: its name in the metrics.
        what: of what there is so much, for messages: `runs in flight`.
        most: how much there is.
        of_one: how much one client may hold; None for all but the last share.
        unit: how much each client may hold of what is kept for those who hold nothing.
        hint: what a client can do for whom there is no more.

    Attributes:
        kind: as given.
        most: as given.
        most_of_one: what one client may hold, if no other holds anything.
        in_use: what all hold together.
        held: what each holds, by `Caller.client`; who holds nothing is not there.
        refused: how often there was no more.
    """

    def __init__(
        self,
        kind: str,
        what: str,
        most: int,
        of_one: int | None = None,
        *,
        unit: int = 1,
        hint: str = "try again later",
    ) -> None:
        self.kind = kind
        self.most = most
        self.in_use = 0
        self.held: dict[str, int] = {}
        self.refused = 0
        self._what = what
        self._of_one = of_one
        self._unit = unit
        self._little = max(unit, most // _SMALL_PARTS)
        self._last = max(unit, most // _SHARES) if most >= _LEAST_UNITS * unit else 0
        self._hint = hint
        self.most_of_one = max(unit, most - self._last) if of_one is None else min(most, of_one)
        self._for_all = min(most - self._last, self.most_of_one)

    @property
    def roomy(self) -> bool:
        """May whoever comes, without a quota, take one unit more?"""
        return self.in_use + self._unit <= self._for_all

    @property
    def largest(self) -> int:
        """What the client holds that holds most."""
        return max(self.held.values(), default=0)

    @property
    def largest_holder(self) -> str | None:
        """The client that holds most; None if nobody holds anything."""
        return max(self.held, key=self.held.__getitem__, default=None)

    def holds_little(self, client: str) -> bool:
        """Would a client hold little, if it held one unit more?"""
        return self.held.get(client, 0) + self._unit <= self._little

    def refusal(self, caller: Caller, amount: int = 1, quota: int | None = None) -> ShareError | None:
        """Why a caller may not take so much more; None if it may.

        Args:
            quota: how much it may hold, as its token says.
        """
        held = self.held.get(caller.client, 0)
        most_of_it = self._of_one if quota is None else quota if self._of_one is None else min(quota, self._of_one)
        after = self.in_use + amount
        if most_of_it is not None and held + amount > most_of_it:
            why = f"{_named(caller)} has as many {self._what} as it may have, {held} of {most_of_it}"
        elif after > self.most:
            why = f"This server has {self.in_use} {self._what}, and takes {self.most} at most"
        elif after > self.most - (kept := self._kept_from(held + amount)):
            why = (
                f"{_named(caller)} has {held} of the {self.most} {self._what} that this server takes, of which "
                f"{self.in_use} are taken, and the last {kept} are kept for clients that have fewer, or none"
            )
        else:
            return None
        return ShareError(f"{why}: {self._hint}")

    def _kept_from(self, held: int) -> int:
        """What is not for a client that would hold so much."""
        if held <= self._unit:
            return 0
        return self._last if held > self._little else (self._last + 1) // 2

    def check(self, caller: Caller, amount: int = 1, quota: int | None = None) -> None:
        """Raises ShareError as `refusal` says."""
        error = self.refusal(caller, amount, quota)
        if error is not None:
            self.refused += 1
            raise error

    def take(self, caller: Caller, amount: int = 1, quota: int | None = None) -> None:
        """The caller holds so much more, until `give_back`.  Raises ShareError as `refusal` says."""
        self.check(caller, amount, quota)
        self.hold(caller, amount)

    def hold(self, caller: Caller, amount: int = 1) -> None:
        """The caller holds so much more, whatever there is."""
        self.in_use += amount
        self.held[caller.client] = self.held.get(caller.client, 0) + amount

    def give_back(self, client: str, amount: int = 1) -> None:
        """The client holds so much less."""
        self.in_use -= amount
        left = self.held[client] - amount
        if left:
            self.held[client] = left
        else:
            del self.held[client]

    def __repr__(self) -> str:
        return f"<ClientShares of {self.kind}: {self.in_use} of {self.most}, with {len(self.held)} clients>"


def _named(caller: Caller) -> str:
    """Who it is, as it knows itself."""
    if caller.name:
        return f"The token of '{caller.name}'"
    return f"Whoever asks from {caller.address}" if caller.address else "This client"
