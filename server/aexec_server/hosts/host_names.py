"""`HostNames`: finds the session host of a session by the name that a client gave it."""

from __future__ import annotations

import time
from typing import NamedTuple

from aexec_server.hosts.session_host import SessionHost

__all__ = ["HostNames"]

# A host reports a request for a name as soon as it gets it; after this many seconds it never got it.
_KNOWN_AFTER_SECONDS = 2.0


class _Reserved(NamedTuple):
    host: SessionHost
    at: float


class HostNames:
    """The session host of each session that a client gave a name to.

    A name is reserved for a host when a request for it is sent there.  It is free again when the host, which reports
    its names whenever they change, no longer has it.
    """

    def __init__(self) -> None:
        self._reserved: dict[str, _Reserved] = {}
        self._of: dict[SessionHost, set[str]] = {}
        self._told: dict[SessionHost, frozenset[str]] = {}

    def find(self, name: str) -> SessionHost | None:
        """The host that has a session with this name, or was asked to make it; None if there is none."""
        found = self._reserved.get(name)
        return None if found is None else found.host

    def reserve(self, name: str, host: SessionHost) -> None:
        """Reserve a name, which no other host has, for the host that a request for it is sent to."""
        self._reserved[name] = _Reserved(host, time.monotonic())
        self._of.setdefault(host, set()).add(name)

    def settle(self, host: SessionHost) -> None:
        """Take in a host's report."""
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
        """Forget an ended host."""
        self._told.pop(host, None)
        for name in self._of.pop(host, ()):
            del self._reserved[name]
