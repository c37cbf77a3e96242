"""`host_of`, `address_of`: the address of a call's other end, from gRPC's name for it."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import unquote

__all__ = ["address_of", "host_of"]


@lru_cache(maxsize=1024)  # all calls of a connection have the same
def host_of(peer: str) -> str:
    """Return `127.0.0.1` for `ipv4:127.0.0.1:4711`, `::1` for `ipv6:%5B::1%5D:4711`; "" for any other form."""
    return address_of(peer)[0]


def address_of(peer: str) -> tuple[str, int]:
    """Return `("127.0.0.1", 4711)` for `ipv4:127.0.0.1:4711`; `("", 0)` for a form without address and port."""
    kind, _, rest = peer.partition(":")
    host, _, port = unquote(rest).rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return "", 0
    return host.strip("[]"), int(port)
