"""`Acceptor`: accepts connections, as many in a turn of the event loop as a slice has time for.

uvloop itself accepts one in each turn.  While runs compute, each turn has a slice of theirs, so the last of hundreds of
clients that come at once would wait for seconds.  `listening.py` has the sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from time import perf_counter

from aexec.hosting import loop_budget

__all__ = ["Acceptor", "tcp_sockets", "unix_socket"]

logger = logging.getLogger(__name__)

# The most connections that wait to be accepted, for each socket.
_BACKLOG = 1024
# The pause after the system had no file left for a connection.
_RETRY_SECONDS = 1.0
# How long a client may take from its first packet until it is connected, when another process takes the port over.
_CONNECTING_SECONDS = 0.2
# A program for the kernel's packet filter that drops each packet which asks for a connection: SYN (2) without ACK (16),
# of the flags in byte 13 of TCP's header. Each instruction: code, jump if true, jump if false, number.
_NO_NEW_CONNECTION = (
    (0x30, 0, 0, 13),  # load the byte
    (0x54, 0, 0, 0x12),  # and
    (0x15, 0, 1, 0x02),  # if equal, the next, else the one after
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0x40000),  # take
)
_SO_ATTACH_FILTER = 26


async def tcp_sockets(host: str, port: int, *, reuse_port: bool = False) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host.

    Args:
        port: the port; 0 for any free one.
        reuse_port: let other processes of this user, which ask for it too, listen on the port.

    Raises:
        OSError: there is no such host, or one of the addresses cannot be listened on.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            sockets.append(socket.create_server(address[:2], family=family, backlog=_BACKLOG, reuse_port=reuse_port))
    except BaseException:
        for one in sockets:
            one.close()
        raise
    return sockets


def unix_socket(path: str) -> socket.socket:
    """Return a Unix socket that listens on a path, which must not exist."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(path)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


class Acceptor:
    """Accepts connections of listening sockets, as many in a turn of the event loop as a slice has time for.

    It accepts until `close`.

    Args:
        sockets: the listening sockets, which it owns from now on.
        new_connection: makes the protocol of each connection.
        tls: the TLS context of all connections, or None.
        handshake_seconds: how long a TLS handshake may take.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        new_connection: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None = None,
        handshake_seconds: float | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sockets = list(sockets)
        self._new_connection = new_connection
        self._tls = tls
        self._handshake_seconds = None if tls is None else handshake_seconds
        # The tasks that begin connections; each ends when its connection's `connection_made` has been called.
        self._beginning: dict[asyncio.Task[None], socket.socket] = {}
        self._retries: set[asyncio.TimerHandle] = set()
        for listening in self._sockets:
            listening.setblocking(False)
            self._listen(listening)

    def _listen(self, listening: socket.socket) -> None:
        self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Accept connections until none waits or the slice is over; the next turn continues."""
        end = perf_counter() + loop_budget.DEFAULT.slice_seconds
        while self._accept_one(listening) and perf_counter() < end:
            pass

    def _accept_one(self, listening: socket.socket) -> bool:
        """Accept a connection; False if none waits, or none can be taken now."""
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionError:  # the client has given it up
            return True
        except OSError as error:
            logger.warning("a connection cannot be taken: %s", error)
            self._loop.remove_reader(listening)
            self._retries.add(self._loop.call_later(_RETRY_SECONDS, self._listen, listening))
            return False
        task = self._loop.create_task(self._begin(connection))
        self._beginning[task] = connection
        task.add_done_callback(self._beginning.pop)
        return True

    async def _begin(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(
                self._new_connection, connection, ssl=self._tls, ssl_handshake_timeout=self._handshake_seconds
            )
        except (OSError, TimeoutError) as error:  # for example a client that speaks no TLS
            logger.debug("a connection did not begin: %s", error)
            connection.close()

    @property
    def is_beginning(self) -> bool:
        """True if it has accepted connections whose protocols do not know it yet."""
        return bool(self._beginning)

    async def hand_over(self, *, queue_is_shared: bool) -> None:
        """Leave new connections to another process on the same port, so that none is refused, and close.

        Args:
            queue_is_shared: the other process has the same sockets, and takes the connections that wait. Otherwise it
                has sockets of its own, so those that wait at these are taken here, and later ones go there: a client
                whose first packet comes in this time sends it again a second later.
        """
        if not queue_is_shared and self._sockets:
            for listening in self._sockets:
                _drop_new_connections(listening)
            await asyncio.sleep(_CONNECTING_SECONDS)
            for listening in self._sockets:
                while self._accept_one(listening):
                    pass
        self._stop_listening()

    def close(self) -> None:
        """Stop accepting.  Open connections go on, except those in a TLS handshake."""
        self._stop_listening()
        if self._tls is None:
            return
        # Cancelling the task would be wrong: if the protocol's `connection_made` has been called already, uvloop closes
        # the connection without calling `connection_lost`.
        for connection in self._beginning.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _stop_listening(self) -> None:
        for retry in self._retries:
            retry.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()


def _drop_new_connections(listening: socket.socket) -> None:
    """Let no further connection begin at this socket; those that have begun go on."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in _NO_NEW_CONNECTION))
    program = struct.pack("HP", len(_NO_NEW_CONNECTION), ctypes.addressof(code))
    try:
        listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
    except OSError as error:  # this system has no such filter
        logger.warning("connections that begin in this moment may be lost: %s", error)
