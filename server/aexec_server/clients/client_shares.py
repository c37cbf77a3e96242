"""`ClientShares`: how much each client holds of something that all clients share, and how much it may hold.

There is one for each kind of thing: runs, partial runs, sessions, bodies, kept results, counted in things or in bytes.
One client may hold seven eighths.  Half of the last eighth is for clients that hold little, up to a 64th of all; the
other half is for clients that hold nothing, one unit each.  So however much a client has taken, another one is served.
A client is the owner of a token, or else an address (`client_address.py`).
"""

from __future__ import annotations

from aexec import errors
from aexec_server.clients.callers import Caller

__all__ = ["ClientShares", "ShareError"]

_SHARES = 8
# A client holds little if it has at most one in this many parts.
_SMALL_PARTS = 64
# Fewer units than this are not divided: any client may have all of them.
_LEAST_UNITS = 4


class ShareError(errors.ResourceExhaustedError):
    """Nothing is left of a shared thing, or nothing for this client."""


class ClientShares:
    """Counts how much of a shared resource each client holds, and refuses more than its share.

    Args:
        kind: its name in the metrics.
        what: its name in messages, such as `runs in flight`.
        most: the amount that all clients together may hold.
        of_one: the most for one client; None for all but the last share.
        unit: the amount reserved for each client that holds nothing.
        hint: advice to a refused client, for messages.

    Attributes:
        kind: as given.
        most: as given.
        most_of_one: the most for one client if no other holds anything.
        in_use: the amount that all clients hold together.
        held: the amount by `Caller.client`, without clients that hold nothing.
        refused: the number of refusals.
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
        """True if any client without a quota may take one unit more."""
        return self.in_use + self._unit <= self._for_all

    @property
    def largest(self) -> int:
        """The amount of the client that holds most."""
        return max(self.held.values(), default=0)

    @property
    def largest_holder(self) -> str | None:
        """The client that holds most; None if none holds anything."""
        return max(self.held, key=self.held.__getitem__, default=None)

    def holds_little(self, client: str) -> bool:
        """True if a client would hold little with one unit more."""
        return self.held.get(client, 0) + self._unit <= self._little

    def refusal(self, caller: Caller, amount: int = 1, quota: int | None = None) -> ShareError | None:
        """Why a caller may not take `amount` more; None if it may.

        Args:
            quota: the most that its token allows it, or None.
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
        """The amount that is kept from a client that would hold `held`."""
        if held <= self._unit:
            return 0
        return self._last if held > self._little else (self._last + 1) // 2

    def check(self, caller: Caller, amount: int = 1, quota: int | None = None) -> None:
        """Raise the ShareError of `refusal`, if there is one."""
        error = self.refusal(caller, amount, quota)
        if error is not None:
            self.refused += 1
            raise error

    def take(self, caller: Caller, amount: int = 1, quota: int | None = None) -> None:
        """Let the caller hold `amount` more, until `give_back`.  Raises the ShareError of `refusal`."""
        self.check(caller, amount, quota)
        self.hold(caller, amount)

    def hold(self, caller: Caller, amount: int = 1) -> None:
        """Let the caller hold `amount` more, beyond all limits."""
        self.in_use += amount
        self.held[caller.client] = self.held.get(caller.client, 0) + amount

    def give_back(self, client: str, amount: int = 1) -> None:
        """Let the client hold `amount` less."""
        self.in_use -= amount
        left = self.held[client] - amount
        if left:
            self.held[client] = left
        else:
            del self.held[client]

    def __repr__(self) -> str:
        return f"<ClientShares of {self.kind}: {self.in_use} of {self.most}, with {len(self.held)} clients>"


def _named(caller: Caller) -> str:
    """The caller's own name, for messages."""
    if caller.name:
        return f"The token of '{caller.name}'"
    return f"Whoever asks from {caller.address}" if caller.address else "This client"
