"""Graphs over the tasks of a cluster, and what has to be true of its workers when all steps are over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aexec
from aexec.distributed.memory_engine import LEASE, MemoryCluster, NetworkFaults
from aexec.framework import dtypes
from tests.support.programs.graphs import GraphBuilder

__all__ = ["chain", "check_idle", "cluster_session", "on"]


def on(task: int, job: str = "worker") -> str:
    """The device of a task."""
    return f"/job:{job}/task:{task}"


def chain(tasks: int = 3) -> GraphBuilder:
    """`x` negated on each task after the other: `n0`, `n1` …"""
    g = GraphBuilder()
    g.placeholder("x")
    source = "x"
    for number in range(tasks):
        g(f"n{number}", "Neg", source, device=on(number), T=dtypes.float32)
        source = f"n{number}"
    return g


@asynccontextmanager
async def cluster_session(
    graph: aexec.Graph, workers: int = 3, faults: NetworkFaults | None = None, **settings: object
) -> AsyncIterator[tuple[aexec.Session, MemoryCluster]]:
    """A session on a cluster in memory of its own.

    Where the network has no faults nobody is lost, however long a busy machine stands still.
    """
    async with MemoryCluster("test", workers, faults, lease=60.0 if faults is None else LEASE) as cluster:
        config = aexec.SessionConfig(graph_passes=(), **settings)  # type: ignore[arg-type]
        async with aexec.Session(graph, "memory://test", config) as session:
            yield session, cluster


async def check_idle(cluster: MemoryCluster) -> None:
    """Living workers come to keep nothing of any step, once what is under way has come."""
    async with asyncio.timeout(60):
        while any(_busy(worker.sessions) for worker in cluster.workers.values()):
            await asyncio.sleep(0.1)


def _busy(sessions: dict[str, object]) -> bool:
    described = [session.describe() for session in sessions.values()]  # type: ignore[attr-defined]
    return any(each["steps"] or each["rendezvous"] or each["awaited"] for each in described)
