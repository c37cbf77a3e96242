"""`open_sockets`, `bytes_taken`, `cut_off`: TCP connections of clients that a library has accepted and does not show.

grpcio neither tells how much of an answer its client has taken nor closes one connection.  The system does both: the
process's own descriptors have the socket, which knows the address of its client.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
import struct
from collections.abc import Collection, Iterator

__all__ = ["bytes_taken", "cut_off", "open_sockets"]

# The process's descriptors, on Linux and macOS.
_DESCRIPTORS = "/dev/fd"
# Linux's struct tcp_info up to tcpi_bytes_acked: 8 octets, 24 words, and two rates of 8 octets each.
_TCP_INFO_SIZE = 128
_BYTES_ACKED = 8 + 24 * 4 + 2 * 8

Address = tuple[str, int]


@contextlib.contextmanager
def open_sockets(clients: Collection[Address]) -> Iterator[dict[Address, socket.socket]]:
    """Context manager: the sockets that are connected with these clients, by address and port.

    A client without a connection is not in the result, nor is any where descriptors cannot be listed.  Looks at all
    descriptors of the process, so it is for a thread.
    """
    with contextlib.ExitStack() as stack:
        found: dict[Address, socket.socket] = {}
        for descriptor in _sockets():
            with contextlib.suppress(OSError):  # closed in the meantime, or not connected
                one = stack.enter_context(socket.socket(fileno=os.dup(descriptor)))
                if one.family not in (socket.AF_INET, socket.AF_INET6):
                    one.close()
                    continue
                host, port, *_ = one.getpeername()
                client = _plain(host), port
                if client in clients:
                    found[client] = one
                else:
                    one.close()
        yield found


def _sockets() -> Iterator[int]:
    try:
        names = os.listdir(_DESCRIPTORS)
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                yield int(name)


def _plain(host: str) -> str:
    """The address as clients have it: `127.0.0.1` for `::ffff:127.0.0.1`."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or host)


def bytes_taken(connected: socket.socket) -> int | None:
    """Return the number of bytes that the other end's system has acknowledged; None if this system does not tell."""
    option = getattr(socket, "TCP_INFO", None)
    if option is None:
        return None
    with contextlib.suppress(OSError):
        told = connected.getsockopt(socket.IPPROTO_TCP, option, _TCP_INFO_SIZE)
        if len(told) >= _BYTES_ACKED + 8:
            (taken,) = struct.unpack_from("=Q", told, _BYTES_ACKED)
            return int(taken)
    return None


def cut_off(connected: socket.socket) -> None:
    """End the connection in both directions, also for other descriptors of its socket."""
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
