"""`HostNames`: in which session host a session is that a client gave a name to."""

from __future__ import annotations

import time
from typing import NamedTuple

from aexec_server.hosts.session_host import SessionHost

__all__ = ["HostNames"]

# A host tells of a request for a name as soon as it has it; after so many seconds it never got it.
_KNOWN_AFTER_SECONDS = 2.0


class _Reserved(NamedTuple):
    host: SessionHost
    at: float


class HostNames:
    """The session host of each session that a client gave a name to.

    A name is reserved for a host when a request for it is sent there, and free again when the host, which tells of its
    names whenever they change, does not name it any more.
    """

    def __init__(self) -> None:
        self._reserved: dict[str, _Reserved] = {}
        self._of: dict[SessionHost, set[str]] = {}
        self._told: dict[SessionHost, frozenset[str]] = {}

    def find(self, name: str) -> SessionHost | None:
        """The host that has a session of this name, or is asked to make it."""
        found = self._reserved.get(name)
        return None if found is None else found.host

    def reserve(self, name: str, host: SessionHost) -> None:
        """A request for this name, which no other host has, is sent to this host."""
        self._reserved[name] = _Reserved(host, time.monotonic())
        self._of.setdefault(host, set()).add(name)

    def settle(self, host: SessionHost) -> None:
        """It has told something."""
        told = self._told.get(host, frozenset())
        self._told[host] = host.names
        until = host.asked_at - _KNOWN_AFTER_SECONDS
        of_host = self._of.get(host, set())
        for name in of_host - host.names:
            if name in told or self._reserved[name].at < until:
                of_host.remove(name)
                del self._reserved[name]
        for name in host.names - told:
            if name not in self._reserved:
                self.reserve(name, host)

    def remove(self, host: SessionHost) -> None:
        """It has ended."""
        self._told.pop(host, None)
        for name in self._of.pop(host, ()):
            del self._reserved[name]
