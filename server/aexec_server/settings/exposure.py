"""`check_exposure`: a server that others can reach, or have run code, is started knowingly, or not at all."""

from __future__ import annotations

from aexec import errors
from aexec.hosting import check_cluster, is_loopback
from aexec_server.settings.server_config import ServerConfig

__all__ = ["check_exposure"]


def check_exposure(config: ServerConfig) -> None:
    """Refuse addresses that others than this machine reach, where who is there is not known.

    That is the address to listen on, without tokens, certificates of clients or `insecure_no_auth`; and a cluster that
    is not on loopback addresses, without TLS.  Neither makes up for the other.

    Raises:
        FailedPreconditionError: so it is.
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
