"""`is_loopback`: is an address one that this machine alone can reach?"""

from __future__ import annotations

import ipaddress

__all__ = ["is_loopback"]


def is_loopback(host: str) -> bool:
    """Is it an address of the loopback network, or `localhost`?  Of any other name nobody can tell for long."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
