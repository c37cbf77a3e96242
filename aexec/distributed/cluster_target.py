"""Parses a cluster's target: `memory://NAME`, `dask://HOST:PORT`, or `dask://` for a cluster of its own."""

from __future__ import annotations

import importlib.util

from aexec.distributed.cluster_security import ClusterSecurity
from aexec.framework import errors

__all__ = ["check_cluster", "target_parts"]


def target_parts(target: str) -> tuple[str, str]:
    """The scheme of a target, and the rest.

    Raises:
        NotFoundError: no such scheme.
        FailedPreconditionError: it is Dask's, which is not installed.
    """
    scheme, _, where = target.partition("://")
    if scheme not in ("memory", "dask"):
        raise errors.NotFoundError(f"No cluster is known for target '{target}'; there are memory:// and dask://")
    if scheme == "dask" and importlib.util.find_spec("distributed") is None:
        raise errors.FailedPreconditionError("target dask:// needs Dask distributed: pip install aexec[dask]")
    return scheme, where


def check_cluster(target: str, security: ClusterSecurity) -> bool:
    """Check how a cluster would be connected to, without connecting.

    Returns:
        True if it would be by TLS.

    Raises:
        NotFoundError: the target names no cluster.
        FailedPreconditionError: the cluster is on the network and needs TLS, which is not set up; a certificate cannot
            be used; or Dask distributed is not installed.
    """
    scheme, where = target_parts(target)
    if scheme == "memory":
        return False
    from aexec.distributed.dask.dask_security import check_dask

    return check_dask(where, security)
