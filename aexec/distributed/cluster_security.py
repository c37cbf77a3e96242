"""`ClusterSecurity`: the certificates by which a process connects to a cluster, and whether it may go without."""

from __future__ import annotations

from aexec.framework.late_dataclass import dataclass

__all__ = ["ClusterSecurity"]


@dataclass(frozen=True, slots=True)
class ClusterSecurity:
    """How a process connects to a cluster.

    Attributes:
        ca: PEM file of the authority that has signed the certificates of the cluster; None: what Dask's settings say
            of certificates counts.
        cert: PEM file of this process's own certificate.
        key: PEM file of its key; None if that is in `cert`, too.
        required: connect by TLS, or to a cluster all of whose addresses are loopback ones.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    required: bool = False
