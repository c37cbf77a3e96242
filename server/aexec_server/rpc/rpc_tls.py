"""`server_credentials`: TLS of gRPC, with the files of HTTP; new connections use a changed certificate."""

from __future__ import annotations

import logging
from pathlib import Path

import grpc

from aexec import errors
from aexec_server.settings.file_watch import FileWatch
from aexec_server.settings.server_config import ServerConfig

__all__ = ["server_credentials"]

logger = logging.getLogger(__name__)


def server_credentials(config: ServerConfig) -> grpc.ServerCredentials:
    """Return the credentials of a listening port; with `tls_client_ca`, clients need a certificate.

    Raises:
        InvalidArgumentError: a file cannot be read.
    """
    assert config.tls_cert is not None and config.tls_key is not None
    files = [Path(path) for path in (config.tls_key, config.tls_cert, config.tls_client_ca) if path is not None]
    watch = FileWatch(files[:2])

    def changed() -> grpc.ServerCertificateConfiguration | None:
        """Called by grpcio at each handshake, in a thread of its own; returns None if nothing has changed."""
        if not watch.changed():
            return None
        try:
            return _read(files)
        except errors.OpError as error:
            logger.error("the certificate stays as it was: %s", error.message)
            return None

    return grpc.dynamic_ssl_server_credentials(
        _read(files), changed, require_client_authentication=config.tls_client_ca is not None
    )


def _read(files: list[Path]) -> grpc.ServerCertificateConfiguration:
    try:
        key, cert, *authority = [file.read_bytes() for file in files]
    except OSError as error:
        raise errors.InvalidArgumentError(f"TLS with {error.filename}: {error.strerror}") from None
    return grpc.ssl_server_certificate_configuration([(key, cert)], authority[0] if authority else None)
