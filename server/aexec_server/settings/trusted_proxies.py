"""`TrustedProxies`: finds the address of a client whose requests come through reverse proxies.

A proxy appends the address that a request came from to the header `X-Forwarded-For`.  Anybody can write the header, so
only what a trusted proxy appended counts: the entries are read from the right, as far as they are trusted proxies.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

from aexec import errors

__all__ = ["FORWARDED_FOR", "TrustedProxies"]

FORWARDED_FOR = "X-Forwarded-For"
# Longest chain of proxies; further entries are not read.
_MAX_PROXIES = 32
# Longest text of an address, with brackets and a port.
_MAX_ENTRY = 64
# An address with a port: `192.0.2.7:443`, `[2001:db8::7]:443` or `[2001:db8::7]`.
_WITH_PORT = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*)\]|(?P<v4>[0-9.]+))(?::[0-9]{1,5})?")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class TrustedProxies:
    """Finds the address of a client behind trusted proxies.

    Args:
        networks: addresses and networks of the proxies, such as `10.0.0.0/8`; empty to read no header.

    Raises:
        InvalidArgumentError: one of them is no address or network, or holds all addresses.
    """

    def __init__(self, networks: Collection[str] = ()) -> None:
        self._networks = tuple([_network(text) for text in networks])
        self._trusts = lru_cache(1024)(self._contains)

    def trusts(self, host: str) -> bool:
        """True if this is the address of a trusted proxy."""
        return bool(self._networks) and self._trusts(host)

    def client_host(self, peer: str, forwarded: Sequence[str]) -> str:
        """Return the address of the client that sent a request.

        Args:
            peer: the address of the other end of the connection; "" if it has none.
            forwarded: the values of `X-Forwarded-For`, in the order of the headers.

        Returns:
            `peer`, unless it is a trusted proxy; else the last entry that is no trusted proxy.  If there is none, the
            first address in the chain.  Entries to the left of one that is no address are not read.
        """
        if not forwarded or not self.trusts(peer):
            return peer
        host = peer
        for entry in _from_the_right(forwarded):
            address = _address(entry)
            if address is None:
                break
            host = str(address)
            if not self._trusts(host):
                break
        return host

    def _contains(self, host: str) -> bool:
        address = _address(host.partition("%")[0])
        return address is not None and any(address in network for network in self._networks)


def _network(text: str) -> _Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise errors.InvalidArgumentError(
            f"trusted_proxies has {text!r}: expected an address or a network, such as 10.0.0.0/8: {error}"
        ) from None
    if not network.prefixlen:
        raise errors.InvalidArgumentError(
            f"trusted_proxies has {text!r}, which is every address: then any client could name another's address"
        )
    return network


def _from_the_right(values: Sequence[str]) -> Iterator[str]:
    left = _MAX_PROXIES
    for value in reversed(values):
        rest: str | None = value
        while rest is not None and left:
            before, comma, entry = rest.rpartition(",")
            yield entry.strip(" \t")
            rest = before if comma else None
            left -= 1


def _address(text: str) -> _Address | None:
    """Return the address of an entry without its port, IPv4 if it is mapped to IPv6; None if it is not an address."""
    if len(text) > _MAX_ENTRY or "%" in text:  # a zone has a meaning only on the proxy
        return None
    match = _WITH_PORT.fullmatch(text)
    if match is not None:
        text = match["v6"] or match["v4"]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
