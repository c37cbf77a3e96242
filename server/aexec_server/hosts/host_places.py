"""Which host a new session of a client goes to, and how many hosts there are: two ways.

`SharedPlaces`: a fixed number of hosts, which all clients share.

`OwnPlaces`: a host belongs to one client from its first request to its end, so that what a client does to it harms no
other.  Each session has a host of its own while there are places.  A client may have as many hosts as there are free
places, so that one client's sessions, however many, leave places for others; beyond that its sessions share its own
hosts.  A client that has no host is refused when no place is left.

Nothing here waits, or knows of processes: `hosts.py` gives what starts and ends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Generic, Protocol, TypeVar

from aexec import errors
from aexec_server.hosts.client_penalties import ClientPenalties
from aexec_server.http.error_responses import HasHeaders

__all__ = ["NoPlaceError", "OwnPlaces", "Places", "SharedPlaces"]

# How long a host without sessions is kept for the next one of its client, and with how much memory at most.
_SPARE_SECONDS = 10.0
_SPARE_BYTES = 128 << 20
_RETRY_SECONDS = 5


class Place(Protocol):
    """What is to be known of a host.

    Attributes:
        client: whose it is; None for nobody's, or everybody's.
    """

    client: str | None

    @property
    def ready(self) -> bool:
        """Does it listen?"""
        ...

    @property
    def load(self) -> int:
        """Sessions, operations and runs that it may have."""
        ...

    @property
    def is_empty(self) -> bool:
        """Does it hold nothing, as far as is known?  Only what is true in two turns of the event loop is certain."""
        ...

    @property
    def own_bytes(self) -> int:
        """Of memory that it does not share."""
        ...


P = TypeVar("P", bound=Place)


class Places(Protocol[P]):
    """The hosts of clients' sessions."""

    def take(self, client: str) -> P:
        """One for a new session of a client.  Raises OpError if it may not have one now."""
        ...

    def fill(self) -> None:
        """Start those that are missing."""
        ...

    def tidy(self) -> None:
        """End those that nobody needs."""
        ...

    def remove(self, place: P, *, broken: bool) -> None:
        """It has ended.

        Args:
            broken: it was killed, or ended by itself.
        """
        ...

    def of_client(self, client: str) -> Iterable[P]:
        """Those that may have sessions of a client."""
        ...

    def __iter__(self) -> Iterator[P]: ...


class NoPlaceError(HasHeaders, errors.UnavailableError):
    """As many clients have sessions as there are hosts."""

    def __init__(self, most: int) -> None:
        super().__init__(
            f"Each of the {most} session hosts of this server has sessions of another client, and no two clients share "
            "one: try again later"
        )
        self.headers = {"Retry-After": str(_RETRY_SECONDS)}


class SharedPlaces(Generic[P]):
    """A fixed number of hosts, which all clients share: a new session goes to the least loaded one.

    Args:
        most: how many there are.
        new: starts one.
    """

    def __init__(self, most: int, new: Callable[[], P]) -> None:
        self._most = most
        self._new = new
        self._places: list[P] = []  # of equals, the one that was chosen longest ago comes first

    def take(self, client: str) -> P:
        """That with the least to do."""
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

    Invariants: a place in `_warm` has no client, and never had a request; a place in `_of[client]` has that client, and
    keeps it until it ends.  Both together are `most` at most.

    Args:
        most: how many there may be.
        warm: how many are started ahead of need.
        new, end: start one, and end one that holds nothing.
        clock: seconds.
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
        self._taken = 0  # how many there are in `_of`
        self._spare_since: dict[P, float] = {}  # that were empty when `tidy` looked last, and since when
        self._surely_spare: list[P] = []  # that were so the last two times; those first that are so for longest

    def take(self, client: str) -> P:
        """An empty one of the client, a new one, or its own with the least to do.

        Raises:
            NoPlaceError: it has none, and no place is free.
            PenaltyError: it has broken hosts.
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
        """A client keeps one empty host at most, for some seconds, unless it has much memory."""
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
