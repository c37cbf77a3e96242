"""Certificates of connections to a Dask cluster, and when a process refuses to connect without.

Dask unpickles what it reads, so a peer can run any code in a process that connects to it.  Dask's TLS is mutual:
each end requires a certificate of the other that the cluster's authority has signed.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import distributed

from aexec.distributed.cluster_security import ClusterSecurity
from aexec.framework import errors
from aexec.framework.loopback import is_loopback

__all__ = ["check_addresses", "check_dask", "security_of", "with_protocol"]

_TLS = "tls://"
_ROLES = ("client", "scheduler", "worker")


def security_of(given: ClusterSecurity) -> Any:
    """Dask's `Security`: with the given certificate, in each role, or by Dask's settings.

    Raises:
        FailedPreconditionError: a file cannot be read, or does not hold a fitting certificate or key.
    """
    if given.ca is None:
        made = distributed.Security()
    else:
        pair = {"cert": given.cert, "key": given.key}
        files = {f"tls_{role}_{part}": file for role in _ROLES for part, file in pair.items()}
        made = distributed.Security(require_encryption=True, tls_ca_file=given.ca, **files)
    try:
        made.get_connection_args("client")
    except (OSError, ssl.SSLError) as error:
        listed = ", ".join(str(file) for file in (made.tls_ca_file, made.tls_client_cert, made.tls_client_key) if file)
        raise errors.FailedPreconditionError(
            f"The certificates for the cluster cannot be used: {error}; they are {listed}"
        ) from None
    return made


def with_protocol(address: str, security: Any) -> str:
    """The address with `tls://` if Dask's `Security` requires encryption, else with `tcp://`."""
    if "://" in address:
        return address
    return f"{_TLS if security.require_encryption else 'tcp://'}{address}"


def check_dask(address: str, given: ClusterSecurity) -> bool:
    """Check how the scheduler at an address would be reached, without connecting.

    Args:
        address: as of `connect_to_dask`; "" is a cluster on loopback addresses.

    Returns:
        True if it is reached by TLS.

    Raises:
        FailedPreconditionError: it must not be reached, as it is on the network and TLS is not set up; or a certificate
            cannot be used.
    """
    security = security_of(given)
    reached = with_protocol(address or "127.0.0.1", security)
    by_tls = reached.startswith(_TLS)
    if by_tls and not (security.tls_ca_file and security.tls_client_cert):
        raise _refused(f"{reached} is reached by TLS, for which there are no certificates", security)
    if given.required:
        check_addresses([reached], security)
    return by_tls


def check_addresses(addresses: Iterable[str], security: Any) -> None:
    """Refuse a cluster if one of its addresses is on the network and has no TLS.

    Raises:
        FailedPreconditionError: one has; the message names the settings.
    """
    for address in addresses:
        if not address.startswith(_TLS) and not is_loopback(_host(address)):
            raise _refused(
                f"{address} of the cluster is not an address of this machine alone, and whoever answers there could "
                "run code in this process: it has to be reached by TLS",
                security,
            )


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:  # Dask could not connect to it
        return ""


def _refused(why: str, security: Any) -> errors.OpError:
    wanted = {
        "require-encryption": security.require_encryption,
        "tls.ca-file": security.tls_ca_file,
        "tls.client.cert": security.tls_client_cert,
        "tls.client.key": security.tls_client_key,
    }
    missing = [f"distributed.comm.{key} ({_variable(key)})" for key, value in wanted.items() if not value]
    return errors.FailedPreconditionError(
        f"{why}. Give --cluster-ca, --cluster-cert and --cluster-key; or set, in Dask's settings, {', '.join(missing)}"
    )


def _variable(key: str) -> str:
    """The environment variable for a setting of Dask's."""
    return "DASK_DISTRIBUTED__COMM__" + key.replace(".", "__").replace("-", "_").upper()
