"""`Acceptor`: accepts connections, as many in a turn of the event loop as a slice has time for.

uvloop itself accepts one in each turn.  While runs compute, each turn has a slice of theirs, so the last of hundreds of
clients that come at once would wait for seconds.  `listening.py` has the sockets.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from time import perf_counter

from aexec.hosting import loop_budget

__all__ = ["Acceptor", "tcp_sockets", "unix_socket"]

logger = logging.getLogger(__name__)

# The most connections that wait to be accepted, for each socket.
_BACKLOG = 1024
# The pause after the system had no file left for a connection.
_RETRY_SECONDS = 1.0


async def tcp_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host.

    Args:
        port: the port; 0 for any free one.

    Raises:
        OSError: there is no such host, or one of the addresses cannot be listened on.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            sockets.append(socket.create_server(address[:2], family=family, backlog=_BACKLOG))
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
        self._beginning: set[asyncio.Task[None]] = set()
        self._retries: set[asyncio.TimerHandle] = set()
        for listening in self._sockets:
            listening.setblocking(False)
            self._listen(listening)

    def _listen(self, listening: socket.socket) -> None:
        self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Accept connections until none waits or the slice is over; the next turn continues."""
        end = perf_counter() + loop_budget.DEFAULT.slice_seconds
        while True:
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # the client has given it up
                continue
            except OSError as error:
                logger.warning("a connection cannot be taken: %s", error)
                self._loop.remove_reader(listening)
                self._retries.add(self._loop.call_later(_RETRY_SECONDS, self._listen, listening))
                return
            task = self._loop.create_task(self._begin(connection))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)
            if perf_counter() >= end:
                return

    async def _begin(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(
                self._new_connection, connection, ssl=self._tls, ssl_handshake_timeout=self._handshake_seconds
            )
        except (OSError, TimeoutError) as error:  # for example a client that speaks no TLS
            logger.debug("a connection did not begin: %s", error)
            connection.close()

    def close(self) -> None:
        """Stop accepting.  Open connections go on, except those in a TLS handshake."""
        for retry in self._retries:
            retry.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        for task in self._beginning:
            task.cancel()
