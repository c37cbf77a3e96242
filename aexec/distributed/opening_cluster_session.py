"""`OpeningClusterSession`: the result of `Session(graph, target="dask://…")`, which connects when it is entered or
awaited.

Only then are the devices known on which the graph is placed.  A model's variables are restored then.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any

from aexec.distributed.cluster_connection import ClusterConnection
from aexec.distributed.cluster_security import ClusterSecurity
from aexec.distributed.cluster_session import ClusterSession, open_tasks
from aexec.distributed.cluster_target import target_parts
from aexec.distributed.replicated_session import ReplicatedSession, open_replicas
from aexec.graph.graph import Graph, current_graph
from aexec.graph.meta_graph import MetaGraph
from aexec.runtime.config import SessionConfig
from aexec.runtime.threads.worker_pool import OnCancel, run_in_thread
from aexec.saved_model import MetaGraphModel, SavedModel
from aexec.saved_model.model_session import initialize_model
from aexec.sources import OpeningSession

__all__ = ["OpeningClusterSession", "connect_to_cluster"]


class OpeningClusterSession(OpeningSession):
    """A cluster session before it is connected; entering or awaiting it connects, and turns it into the connected
    session.

    Args:
        source: as `aexec.Session` takes it.
        target: names the cluster.
        config: settings of the session.
        security: how the cluster is connected to; None to use the cluster's own settings.
    """

    def __init__(
        self, source: Any, target: str = "", config: Any = None, security: ClusterSecurity | None = None
    ) -> None:
        super().__init__(source, target, SessionConfig.of(config))
        self._security = security
        if source is None:
            self._source = current_graph() or Graph()
        self._target = target

    def __new__(cls, *args: Any, **kwargs: Any) -> OpeningClusterSession:
        return object.__new__(cls)

    async def _open(self) -> None:
        """Read the source, connect to the cluster, and become the session there."""
        source, ready = self._source, None
        if not isinstance(source, Graph | MetaGraph | SavedModel | MetaGraphModel):
            source = await run_in_thread(self._load, on_cancel=OnCancel.WAIT)
        if isinstance(source, SavedModel | MetaGraphModel):
            ready = partial(initialize_model, model=source)
            source = source.meta_graph
        replicated = self._settings.replicated
        connection = await connect_to_cluster(self._target, self._security)
        try:
            handle = secrets.token_hex(8)
            tasks = await (open_replicas if replicated else open_tasks)(connection, handle, self._settings)
            self._check_open()
            kind = ReplicatedSession if replicated else ClusterSession
            self._become(kind, source, connection, self._settings, handle, tasks, ready)
        except BaseException:
            await connection.close()
            raise

    def __repr__(self) -> str:
        return f"<OpeningClusterSession of {self._described()} on {self._target}{', closed' if self.closed else ''}>"


async def connect_to_cluster(target: str, security: ClusterSecurity | None = None) -> ClusterConnection:
    """The connection to a target, `memory://NAME`, `dask://HOST:PORT`, or `dask://` for a cluster of its own.

    Raises:
        NotFoundError: there is no such cluster in this process, or the scheme is unknown.
        UnavailableError: the cluster does not answer.
        FailedPreconditionError: Dask distributed is not installed, or `check_cluster` raises it.
    """
    scheme, where = target_parts(target)
    if scheme == "memory":
        from aexec.distributed.memory_engine import MemoryCluster

        cluster = MemoryCluster.of(where)
        connection = ClusterConnection(cluster.network.lease)
        connection.engine = cluster.client(connection.handle)
        return connection
    from aexec.distributed.dask.dask_engine import connect_to_dask

    return await connect_to_dask(where, security)
