"""What a cluster tells of its workers: sessions, steps, memory, and who does not answer."""

from __future__ import annotations

import os

import aexec
from aexec.distributed.cluster_session import ClusterSession
from aexec.distributed.cluster_status import cluster_status
from aexec.framework import dtypes
from tests.distributed.clusters import chain, cluster_session, on
from tests.support import gates


async def test_sessions_and_steps_of_each_worker() -> None:
    gate = gates.Gate()
    g = chain(1)
    g("gated", "TestGate", "n0", device=on(1), key=gate.key, T=dtypes.float32)
    async with cluster_session(g.graph()) as (session, cluster):
        assert isinstance(session, ClusterSession)
        cluster.add_worker()
        step = session.start("gated:0", {"x:0": 1.0})
        await gate.entered.wait()
        workers = (await cluster_status(session.engine))["workers"]
        assert [worker["address"] for worker in workers] == [f"worker-{number}" for number in range(4)]
        assert all(worker["pid"] == os.getpid() and worker["bytes"] for worker in workers)
        (of_gate,) = workers[1]["sessions"]
        assert of_gate["session"] == session.handle and of_gate["client"] == "client-0"
        assert of_gate["task"] == "/job:worker/replica:0/task:1" and of_gate["graphs"] == 1
        assert [running["seconds"] >= 0 for running in of_gate["steps"]] == [True]
        assert workers[3]["sessions"] == [], "no task of the session"
        gate.open.set()
        await step


async def test_worker_that_dies_meanwhile_is_told_as_that() -> None:
    async with cluster_session(aexec.Graph(), 2) as (session, cluster):
        assert isinstance(session, ClusterSession)
        known = await session.engine.workers()
        cluster.kill("worker-1")

        async def workers() -> object:
            return known

        session.engine.workers = workers  # type: ignore[method-assign,assignment]
        alive, dead = (await cluster_status(session.engine))["workers"]
        assert "error" not in alive and "worker-1 is lost" in dead["error"]
