"""Ends on Dask's connections in one process: servers of Dask's that are workers, and a client, without a scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import dask
import distributed

import aexec
from aexec.distributed.cluster_connection import ClusterConnection
from aexec.distributed.cluster_session import ClusterSession, open_tasks
from aexec.distributed.dask.dask_engine import DaskEngine, DaskWorkerEngine
from aexec.distributed.worker import Worker

__all__ = ["dask_client", "dask_session", "dask_worker"]


@asynccontextmanager
async def dask_worker() -> AsyncIterator[Any]:
    """A server of Dask's, whose `aexec` is a worker, as the plugin makes one."""
    # A thread that samples what runs; it ends some time after the loop.
    with dask.config.set({"distributed.worker.profile.enabled": False}):
        server: Any = distributed.core.Server({}, needs_workdir=False)
    await server.listen("tcp://127.0.0.1:0")
    server.aexec = Worker()
    server.aexec.connect(DaskWorkerEngine(server, server.aexec.handle))
    try:
        yield server
    finally:
        await server.aexec.close()
        await server.close()


@asynccontextmanager
async def dask_client(workers: list[Any]) -> AsyncIterator[ClusterConnection]:
    """A client's connection to these."""

    async def identity(n_workers: int) -> Mapping[str, Any]:
        return {"address": "tcp://127.0.0.1:8786", "workers": {worker.address: {} for worker in workers}}

    scheduler = SimpleNamespace(scheduler=SimpleNamespace(identity=identity))
    connection = ClusterConnection(60.0)
    connection.engine = DaskEngine("client-test", connection.handle, {}, scheduler)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def dask_session(graph: aexec.Graph, count: int) -> AsyncIterator[tuple[ClusterSession, list[Any]]]:
    """A session over so many workers."""
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(dask_worker()) for _ in range(count)]
        connection = await stack.enter_async_context(dask_client(workers))
        config = aexec.SessionConfig(graph_passes=())
        tasks = await open_tasks(connection, "handle", config)
        async with ClusterSession(graph, connection, config, "handle", tasks) as session:
            assert isinstance(session, ClusterSession)
            yield session, workers
        await asyncio.sleep(0)
