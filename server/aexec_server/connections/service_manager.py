"""`ServiceManager`: what systemd, or another service manager with its protocol, and the server tell each other.

The manager passes listening sockets (`LISTEN_FDS`); the server reports when it is ready, reads its files again, or
stops (`NOTIFY_SOCKET`), and that its event loop runs (`WATCHDOG_USEC`). systemd's sd_listen_fds(3) and sd_notify(3)
describe this.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import replace

from aexec import errors
from aexec.hosting import is_loopback
from aexec_server.settings.server_config import ServerConfig

__all__ = ["ServiceManager"]

logger = logging.getLogger(__name__)

# The first file descriptor that a manager passes.
_FIRST = 3
_POLL_SECONDS = 0.05
_VARIABLES = (
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PIDFDID",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
)


class ServiceManager:
    """The service manager that started this process, if there is one.

    Args:
        environment: what it says, as `os.environ`; without it there is no manager.

    Attributes:
        sockets: the listening sockets that it has passed.

    Raises:
        FailedPreconditionError: it passed something else than listening sockets of TCP.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        told = environment or {}
        self.sockets = _passed_sockets(told)
        self._address = _notify_address(told.get("NOTIFY_SOCKET", ""))
        of_this_process = told.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = told.get("WATCHDOG_USEC", "")
        watched = self._address and of_this_process and microseconds.isdecimal() and int(microseconds) > 0
        self._ping_seconds = int(microseconds) / 2e6 if watched else None
        self._said_ready = False

    @staticmethod
    def of_process(environment: MutableMapping[str, str]) -> ServiceManager:
        """Return the manager of this process, and hide it from processes that this one starts."""
        manager = ServiceManager(dict(environment))
        for name in _VARIABLES:
            environment.pop(name, None)
        return manager

    def at_its_address(self, config: ServerConfig) -> ServerConfig:
        """Return the settings with the address of the sockets that were passed, if any were.

        The first that other machines can reach counts, so that the server does not start there without tokens.

        Raises:
            FailedPreconditionError: the settings name another address.
        """
        if not self.sockets:
            return config
        if config.reuse_port:
            raise errors.FailedPreconditionError(
                "reuse_port is for sockets of the server's own, and the service manager has passed some: leave it out"
            )
        names = [one.getsockname()[:2] for one in self.sockets]
        own = ServerConfig()
        if config.port not in (own.port, names[0][1]) or config.host not in (own.host, *(host for host, _ in names)):
            raise errors.FailedPreconditionError(
                f"The service manager has passed sockets, the first at {names[0][0]}:{names[0][1]}, but host and port "
                f"say {config.host}:{config.port}: leave them out"
            )
        host = next((host for host, _ in names if not is_loopback(host)), names[0][0])
        return replace(config, host=host, port=names[0][1])

    # What it is told

    async def report(self, is_ready: Callable[[], bool]) -> None:
        """Tell the manager when the server is ready, and ping its watchdog, until cancelled."""
        while self._address and (not self._said_ready or self._ping_seconds):
            if not self._said_ready and is_ready():
                self._said_ready = True
                self._say("READY=1", "STATUS=ready")
            if self._ping_seconds is not None:
                self._say("WATCHDOG=1")
            ping = self._ping_seconds if self._said_ready else _POLL_SECONDS
            await asyncio.sleep(ping or _POLL_SECONDS)

    def say_reloading(self) -> None:
        """Tell it that files are read again."""
        if self._said_ready:
            self._say("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def say_reloaded(self) -> None:
        """Tell it that they were read."""
        if self._said_ready:
            self._say("READY=1")

    def say_stopping(self) -> None:
        """Tell it that the server ends."""
        self._say("STOPPING=1", "STATUS=waiting for runs to end")

    def _say(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.setblocking(False)
                channel.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            logger.warning("the service manager was not told %s: %s", lines[0], error)


def _notify_address(name: str) -> str:
    """Return the address of a Unix socket, which may be an abstract one."""
    return "\0" + name[1:] if name.startswith("@") else name


def _passed_sockets(told: Mapping[str, str]) -> list[socket.socket]:
    if told.get("LISTEN_PID") != str(os.getpid()):
        return []
    count = told.get("LISTEN_FDS", "0")
    if not count.isdecimal():
        raise errors.FailedPreconditionError("LISTEN_FDS is no number")
    return [_listening(number) for number in range(_FIRST, _FIRST + int(count))]


def _listening(number: int) -> socket.socket:
    """Return the listening socket with this file descriptor, which processes of this one do not get."""
    try:
        os.set_inheritable(number, False)
        found = socket.socket(fileno=number)
        listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise errors.FailedPreconditionError(
            f"The service manager has passed file {number}, which is no socket: {error.strerror}"
        ) from None
    if listens and found.type == socket.SOCK_STREAM and found.family in (socket.AF_INET, socket.AF_INET6):
        return found
    found.close()
    raise errors.FailedPreconditionError(
        f"The service manager has passed socket {number}, which is not a listening socket of TCP"
    )
