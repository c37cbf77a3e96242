"""`client_at`: the name of a client without a token, from the address of its connection."""

from __future__ import annotations

import asyncio
import ipaddress

__all__ = ["client_at", "peer_host"]

# The owner of an IPv6 address usually has a whole network with this prefix.
_IPV6_PREFIX = 64


def peer_host(transport: asyncio.BaseTransport | None) -> str:
    """The address of a connection's other end; "" if it has none, as with a Unix socket."""
    peer = None if transport is None else transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""


def client_at(host: str) -> str:
    """`192.0.2.7`, or for IPv6 the network, `2001:db8:1:2::/64`; "" for no address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
