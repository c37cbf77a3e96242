"""`check_exposure`: a server that runs graphs for whoever reaches it is started knowingly, or not at all."""

from __future__ import annotations

import ipaddress

from aexec import errors
from aexec_server.server_config import ServerConfig

__all__ = ["check_exposure"]


def check_exposure(config: ServerConfig) -> None:
    """Refuse an address that others than this machine reach, where neither tokens nor certificates are wanted.

    Raises:
        FailedPreconditionError: so it is, and `insecure_no_auth` does not say that it is meant so.
    """
    known = config.wants_tokens or config.tls_client_ca is not None or config.insecure_no_auth
    if not known and not _is_loopback(config.host):
        raise errors.FailedPreconditionError(
            f"'{config.host}' is not an address of this machine alone, and whoever reaches it could run graphs here: "
            "give tokens (--token-file; `aexec token NAME` makes one), certificates of clients (--tls-client-ca), or "
            "--insecure-no-auth if that is meant"
        )


def _is_loopback(host: str) -> bool:
    """Of a name but `localhost` nobody can tell for long."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
