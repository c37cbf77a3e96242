"""`check_exposure`: refuses to start a server that strangers could reach, unless the operator asked for it."""

from __future__ import annotations

from aexec import errors
from aexec.hosting import check_cluster, is_loopback
from aexec_server.settings.server_config import ServerConfig

__all__ = ["check_exposure"]


def check_exposure(config: ServerConfig) -> None:
    """Refuse an address that other machines can reach unless the server knows who connects.

    The listening address needs tokens, client certificates or `insecure_no_auth`; a cluster that is not on loopback
    addresses needs TLS. The two are checked independently.

    Raises:
        FailedPreconditionError: one of them is exposed without this protection.
    """
    known = config.wants_tokens or config.tls_client_ca is not None or config.insecure_no_auth
    if not known and not is_loopback(config.host):
        raise errors.FailedPreconditionError(
            f"'{config.host}' is not an address of this machine alone, and whoever reaches it could run graphs here: "
            "give tokens (--token-file; `aexec token NAME` makes one), certificates of clients (--tls-client-ca), or "
            "--insecure-no-auth if that is meant"
        )
    if config.cluster is not None:
        check_cluster(config.cluster, config.cluster_security)
