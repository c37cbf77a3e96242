"""`client_at`: the name by which a client without a token is told from others: where its connection comes from."""

from __future__ import annotations

import asyncio
import ipaddress

__all__ = ["client_at", "peer_host"]

# Whoever has an address of IPv6 has all of such a network, as a rule.
_IPV6_PREFIX = 64


def peer_host(transport: asyncio.BaseTransport | None) -> str:
    """The address of a connection's other end; empty if it has none, as that of a Unix socket."""
    peer = None if transport is None else transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""


def client_at(host: str) -> str:
    """`192.0.2.7`, or of IPv6 the network, `2001:db8:1:2::/64`; empty for what is no address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
