"""`StoredSessions`: where the durable sessions of a server with session hosts are.

Each is open in at most one host, which writes it.  When that host ends, the next request for the session goes to
another host, which opens it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from aexec import errors
from aexec_server.durable.state_store import StateStore
from aexec_server.durable.store_opening import StoreOpening
from aexec_server.handles import shortened

__all__ = ["StoredSessions"]

logger = logging.getLogger(__name__)


class Host(Protocol):
    """What is needed of a host.

    Attributes:
        durable: the owners of the durable sessions that are open in it, by handle.
        ended: why it ended; None while it lives.
        told: True if it was told to end.
    """

    durable: Mapping[str, str]
    ended: str | None
    told: bool


class _Stored(NamedTuple):
    owner: str
    ttl: float | None  # None: the server's, or of a session of this start
    host: Host | None


class StoredSessions:
    """The durable sessions of all hosts.

    Args:
        store: the store, which this process owns.
        ttl: seconds without use after which a session is deleted, unless its creator asked for another time.
        clock: returns seconds.
        waits: True to wait for the store while another server uses it.

    Attributes:
        store: as given.
        opening: opens it.
        given_up: True once the sessions go to another server.
    """

    def __init__(self, store: StateStore, ttl: float | None, clock: Callable[[], float], *, waits: bool) -> None:
        self.store = store
        self.opening = StoreOpening(store, self._learn, waits=waits)
        self.given_up = False
        self._ttl = ttl
        self._clock = clock
        self._opened_at = 0.0
        self._sessions: dict[str, _Stored] = {}
        self._told: dict[Host, Mapping[str, str]] = {}

    async def open(self) -> None:
        """Open the store, or begin to wait for it.  Raises StateStoreError."""
        await self.opening.begin()

    async def _learn(self) -> None:
        self._opened_at = self._clock()
        self._sessions = {handle: _Stored(facts.owner, facts.ttl, None) for handle, facts in self.store.facts.items()}

    async def close(self) -> None:
        await self.opening.close()
        await self.store.close()

    def owner_of(self, handle: str) -> str | None:
        """The owner of a durable session; None if there is none of this handle."""
        found = self._sessions.get(handle)
        return None if found is None else found.owner

    def host_of(self, handle: str) -> Host | None:
        """The live host that has a durable session, or None."""
        host = self._sessions[handle].host
        return host if host is not None and host.ended is None and not host.told else None

    def place(self, handle: str, host: Host) -> None:
        """Note that a host is to open a durable session."""
        self._sessions[handle] = self._sessions[handle]._replace(host=host)

    def settle(self, host: Host) -> None:
        """Take in a host's report."""
        told = self._told.get(host, {})
        if self.given_up or told == host.durable:
            return
        self._told[host] = host.durable
        for handle in told.keys() - host.durable.keys():
            self._sessions.pop(handle, None)
        for handle, owner in host.durable.items():
            known = self._sessions.get(handle)
            self._sessions[handle] = _Stored(owner, None if known is None else known.ttl, host)

    def remove(self, host: Host) -> None:
        """Note that a host has ended: its sessions are open nowhere."""
        self._told.pop(host, None)
        for handle, known in self._sessions.items():
            if known.host is host:
                self._sessions[handle] = known._replace(host=None)

    async def drop_expired(self) -> None:
        """Delete the sessions that no host has opened since the start, for as long as they live unused."""
        if self.given_up or not self.opening.done:
            return
        unused = self._clock() - self._opened_at
        expired = []
        for handle, facts in self.store.facts.items():
            ttl = self._ttl if facts.ttl is None else facts.ttl
            known = self._sessions.get(handle)
            if ttl is not None and unused >= ttl and known is not None and known.host is None:
                expired.append(handle)
        if not expired:
            return
        for handle in expired:
            logger.info("durable session %s was not used and is deleted", shortened(handle))
            del self._sessions[handle]
        try:
            await self.store.drop(expired)
        except errors.OpError as error:
            logger.error("durable sessions are not deleted from the store: %s", error.message)
