"""`Server`: what all handlers share.  Each app has one, under the key `SERVER`."""

from __future__ import annotations

from aiohttp import web

from aexec import errors
from aexec_server.server_config import ServerConfig
from aexec_server.store import SessionStore

__all__ = ["SERVER", "Server"]


class Server:
    """The state of a server.

    Attributes:
        config: its settings.
        sessions: what it holds.
        opened: the configured sessions are open.
        draining: it was told to stop: nothing new begins.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.sessions = SessionStore(config)
        self.opened = False
        self.draining = False

    @property
    def ready(self) -> bool:
        """Should clients send requests here?"""
        return self.opened and not self.draining

    def check_accepting(self) -> None:
        """Raise UnavailableError if nothing new may begin."""
        if self.draining:
            raise errors.UnavailableError("The server is shutting down")


SERVER: web.AppKey[Server] = web.AppKey("server", Server)
