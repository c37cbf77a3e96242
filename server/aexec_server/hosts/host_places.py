"""Chooses the host of a client's new session, and the number of hosts, in one of two ways.

`SharedPlaces`: a fixed number of hosts, which all clients share.

`OwnPlaces`: a host belongs to one client from its first request to its end, so that a client can harm no other.  Each
session has a host of its own while there are places.  A client may have as many hosts as there are free places, so that
one client's sessions leave places for others; beyond that its sessions share its own hosts.  A client without a host is
refused when no place is left.

Nothing here waits or knows of processes: `hosts.py` passes in functions that start and end them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Generic, Protocol, TypeVar

from aexec import errors
from aexec_server.hosts.client_penalties import ClientPenalties
from aexec_server.http.error_responses import HasHeaders

__all__ = ["NoPlaceError", "OwnPlaces", "Places", "SharedPlaces"]

# Seconds for which an empty host is kept for its client's next session; and most bytes of such a host.
_SPARE_SECONDS = 10.0
_SPARE_BYTES = 128 << 20
_RETRY_SECONDS = 5


class Place(Protocol):
    """What the places need of a host.

    Attributes:
        client: the client that it belongs to; None for a shared or unused host.
    """

    client: str | None

    @property
    def ready(self) -> bool:
        """True if it listens."""
        ...

    @property
    def load(self) -> int:
        """The number of sessions, operations and runs that it may have."""
        ...

    @property
    def is_empty(self) -> bool:
        """True if it seems to hold nothing; it is certain only if this is true in two turns of the event loop."""
        ...

    @property
    def own_bytes(self) -> int:
        """The bytes of memory that it does not share."""
        ...


P = TypeVar("P", bound=Place)


class Places(Protocol[P]):
    """The hosts of clients' sessions."""

    def take(self, client: str) -> P:
        """The host for a client's new session.  Raises OpError if the client may not have one now."""
        ...

    def fill(self) -> None:
        """Start the missing hosts."""
        ...

    def tidy(self) -> None:
        """End the hosts that nobody needs."""
        ...

    def remove(self, place: P, *, broken: bool) -> None:
        """Remove an ended host.

        Args:
            broken: True if it was killed, or ended by itself.
        """
        ...

    def of_client(self, client: str) -> Iterable[P]:
        """The hosts that may have sessions of a client."""
        ...

    def __iter__(self) -> Iterator[P]: ...


class NoPlaceError(HasHeaders, errors.UnavailableError):
    """All hosts belong to other clients."""

    def __init__(self, most: int) -> None:
        super().__init__(
            f"Each of the {most} session hosts of this server has sessions of another client, and no two clients share "
            "one: try again later"
        )
        self.headers = {"Retry-After": str(_RETRY_SECONDS)}


class SharedPlaces(Generic[P]):
    """A fixed number of hosts, which all clients share: a new session goes to the least loaded one.

    Args:
        most: the number of hosts.
        new: starts a host.
    """

    def __init__(self, most: int, new: Callable[[], P]) -> None:
        self._most = most
        self._new = new
        self._places: list[P] = []  # among equals, the one chosen longest ago comes first

    def take(self, client: str) -> P:
        """The host with the least load."""
        if not self._places:
            raise errors.UnavailableError("No session host is there, another is being started: try again")
        place = min(self._places, key=lambda place: (not place.ready, place.load))
        self._places.remove(place)
        self._places.append(place)
        return place

    def fill(self) -> None:
        while len(self._places) < self._most:
            self._places.append(self._new())

    def tidy(self) -> None:
        pass

    def remove(self, place: P, *, broken: bool) -> None:
        if place in self._places:
            self._places.remove(place)

    def of_client(self, client: str) -> Iterable[P]:
        return self._places

    def __iter__(self) -> Iterator[P]:
        return iter(self._places)


class OwnPlaces(Generic[P]):
    """Hosts that belong to one client each: a new session gets its own while there are places.

    Invariants: a place in `_warm` has no client and never had a request; a place in `_of[client]` belongs to that
    client until it ends.  Both together are at most `most`.

    Args:
        most: the most hosts.
        warm: the number of hosts started ahead of need.
        new, end: start a host, and end an empty one.
        clock: returns seconds.
    """

    def __init__(
        self, most: int, warm: int, new: Callable[[], P], end: Callable[[P], object], clock: Callable[[], float]
    ) -> None:
        self._most = most
        self._wanted_warm = warm
        self._new = new
        self._end = end
        self._clock = clock
        self._penalties = ClientPenalties(clock)
        self._warm: list[P] = []
        self._of: dict[str, list[P]] = {}
        self._taken = 0  # the number of hosts in `_of`
        self._spare_since: dict[P, float] = {}  # empty at the last `tidy`, and since when
        self._surely_spare: list[P] = []  # empty at the last two, longest first

    def take(self, client: str) -> P:
        """The client's empty host, a new one, or its least loaded one.

        Raises:
            NoPlaceError: the client has no host, and no place is free.
            PenaltyError: the client has broken hosts.
        """
        self._penalties.check(client)
        own = self._of.get(client, [])
        spare = next((place for place in own if place.is_empty), None)
        if spare is not None:
            self._forget_spare(spare)
            return spare
        spares = [place for place in self._surely_spare if place.is_empty]
        if len(own) < self._most - self._taken + len(spares):
            return self._give(client, spares)
        if not own:
            raise NoPlaceError(self._most)
        return min(own, key=lambda place: place.load)

    def _owned(self) -> Iterator[P]:
        return chain.from_iterable(self._of.values())

    def _give(self, client: str, spares: list[P]) -> P:
        if self._warm:
            place = next((place for place in self._warm if place.ready), self._warm[0])
            self._warm.remove(place)
        else:
            if self._taken == self._most:
                self._let_go(spares[0])
            place = self._new()
        place.client = client
        self._of.setdefault(client, []).append(place)
        self._taken += 1
        return place

    def _let_go(self, place: P) -> None:
        self.remove(place, broken=False)
        self._end(place)

    def fill(self) -> None:
        while len(self._warm) < min(self._wanted_warm, self._most - self._taken):
            self._warm.append(self._new())

    def tidy(self) -> None:
        """End empty hosts, except one for each client, for some seconds, if that has little memory."""
        now = self._clock()
        before = self._spare_since
        self._spare_since = {place: before.get(place, now) for place in self._owned() if place.is_empty}
        # Two looks are needed: see `Place.is_empty`.
        self._surely_spare = sorted(before.keys() & self._spare_since.keys(), key=lambda place: before[place])
        kept: set[str | None] = set()
        for place in reversed(self._surely_spare):
            too_old = now - before[place] > _SPARE_SECONDS
            if too_old or place.client in kept or place.own_bytes > _SPARE_BYTES:
                self._let_go(place)
            else:
                kept.add(place.client)

    def remove(self, place: P, *, broken: bool) -> None:
        self._forget_spare(place)
        if place in self._warm:
            self._warm.remove(place)
            return
        client = place.client
        if client is None or place not in self._of.get(client, ()):
            return
        self._of[client].remove(place)
        self._taken -= 1
        if not self._of[client]:
            del self._of[client]
        if broken:
            self._penalties.note(client)

    def _forget_spare(self, place: P) -> None:
        self._spare_since.pop(place, None)
        self._surely_spare = [spare for spare in self._surely_spare if spare is not place]

    def of_client(self, client: str) -> Iterable[P]:
        return self._of.get(client, ())

    def __iter__(self) -> Iterator[P]:
        return chain(self._warm, self._owned())
