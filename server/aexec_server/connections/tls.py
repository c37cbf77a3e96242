"""TLS of the server: its certificate, which is read again when its files change, and the clients that it serves."""

from __future__ import annotations

import asyncio
import logging
import ssl

from aexec import errors
from aexec.hosting import OnCancel, run_in_thread
from aexec_server.settings.file_watch import FileWatch
from aexec_server.settings.server_config import ServerConfig

__all__ = ["ServerTls"]

logger = logging.getLogger(__name__)

_POLL_SECONDS = 1.0


class ServerTls:
    """The server's TLS context: reads certificates again when their files change.

    It allows TLS 1.2 and above, with the standard library's default ciphers.

    Attributes:
        context: the context for listening sockets.

    Raises:
        InvalidArgumentError: a file does not exist, or is not what it should be.
    """

    def __init__(self, config: ServerConfig) -> None:
        assert config.tls_cert is not None and config.tls_key is not None
        self._files = (str(config.tls_cert), str(config.tls_key))
        self._watch = FileWatch(self._files)
        self.context = self._new_context()
        self._load(self.context)
        if config.tls_client_ca is not None:
            try:
                self.context.load_verify_locations(cafile=str(config.tls_client_ca))
            except OSError as error:
                raise errors.InvalidArgumentError(f"tls_client_ca {config.tls_client_ca}: {error}") from None
            self.context.verify_mode = ssl.CERT_REQUIRED

    @staticmethod
    def _new_context() -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(*self._files, password=_no_password)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise errors.InvalidArgumentError(f"TLS with {' and '.join(self._files)}: {error}") from None

    async def watch(self) -> None:
        """Reload certificate and key whenever their files change, until cancelled."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            if await run_in_thread(self._watch.changed, on_cancel=OnCancel.ABANDON):
                await self.reload()

    async def reload(self) -> None:
        """Load certificate and key for new connections; if that fails, log it and keep the old ones."""
        try:
            # A context with a certificate and without its key is useless, so a new one tries them first.
            await run_in_thread(lambda: self._load(self._new_context()), on_cancel=OnCancel.ABANDON)
            self._load(self.context)
        except errors.OpError as error:
            logger.error("the certificate stays as it was: %s", error.message)
            return
        logger.info("the certificate was read again")


def _no_password() -> str:
    raise ValueError("the key has a password: give one without")
