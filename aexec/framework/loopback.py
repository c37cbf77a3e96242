"""`is_loopback`: whether an address can be reached from this machine only."""

from __future__ import annotations

import ipaddress

__all__ = ["is_loopback"]


def is_loopback(host: str) -> bool:
    """True for an address of the loopback network, and for `localhost`.  Other names may change their meaning."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
