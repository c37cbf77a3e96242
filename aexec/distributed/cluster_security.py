"""`ClusterSecurity`: the certificates with which a process connects to a cluster, and whether TLS is required."""

from __future__ import annotations

from aexec.framework.late_dataclass import dataclass

__all__ = ["ClusterSecurity"]


@dataclass(frozen=True, slots=True)
class ClusterSecurity:
    """How a process connects to a cluster.

    Attributes:
        ca: PEM file of the authority that has signed the cluster's certificates; None to use Dask's settings.
        cert: PEM file of this process's own certificate.
        key: PEM file of its key; None if `cert` has it, too.
        required: connect only by TLS, or to a cluster with only loopback addresses.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    required: bool = False
