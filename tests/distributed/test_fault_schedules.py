"""Seeded fault schedules: whatever the network does, steps end, living tasks keep nothing, no element is doubled.

A hundred schedules run each time.  `AEXEC_FAULT_SEEDS=first:count` and `--soak` run others, in parts for `pytest -n`; a
schedule that fails is run again by its seed.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.distributed.cluster_session import ClusterSession
from aexec.distributed.memory_engine import CutOff, MemoryCluster, NetworkFaults
from aexec.framework import dtypes
from aexec.queues.queue_base import QueueBase
from tests.distributed.clusters import chain, check_idle, cluster_session, on
from tests.support.programs.graphs import GraphBuilder, counting_loop
from tests.support.virtual_clock import run_virtual

I = dtypes.int32  # noqa: E741
PARTS = 10
WORKERS = ["worker-0", "worker-1", "worker-2"]


def graph() -> aexec.Graph:
    """A chain and a loop over three tasks, and a queue on task 1 whose elements come and go by the others."""
    g = chain()
    loop = counting_loop()
    for node in loop.graph_def.node:
        node.device = on({"add": 1, "less": 2}.get(node.name, 0))
    g.graph_def.node.extend(loop.graph_def.node)
    queue_with(g)
    return g.graph()


def queue_with(g: GraphBuilder) -> None:
    g("queue", "FIFOQueueV2", device=on(1), component_types=[I], shapes=[()], shared_name=b"queue")
    g.placeholder("element", I, [])
    g("brought", "Identity", "element", device=on(0), T=I)
    g("put", "QueueEnqueueV2", "queue", "brought", device=on(1), Tcomponents=[I])
    g("get", "QueueDequeueV2", "queue", device=on(1), component_types=[I])
    g("taken", "Identity", "get", device=on(2), T=I)


def faults_of(seed: int) -> NetworkFaults:
    """A network that is bad in one way or in several."""
    draw = random.Random(seed)
    kinds = draw.sample(["drop", "double", "delay", "cut", "kill"], draw.choice([1, 1, 2, 3]))
    first = draw.randrange(10, 200)
    return NetworkFaults(
        seed=seed,
        drop=draw.choice([0.02, 0.2]) if "drop" in kinds else 0.0,
        double=0.2 if "double" in kinds else 0.0,
        delay=draw.choice([0.001, 0.1]) if "delay" in kinds else 0.0,
        partitions=(
            [CutOff(first, first + draw.choice([5, 40, 400]), draw.sample([*WORKERS, "client-0"], 1))]
            if "cut" in kinds
            else ()
        ),
        kill={draw.randrange(10, 250): draw.choice(WORKERS)} if "kill" in kinds else {},
        silent=draw.random() < 0.5,
    )


async def outcome(run: Any) -> Any:
    try:
        return await run
    except errors.OpError as error:
        return error


async def schedule(seed: int, faults: NetworkFaults) -> tuple[int, int]:
    """Run the steps under these faults; returns how many succeeded and failed."""
    try:
        return await _schedule(seed, faults)
    except errors.UnavailableError:
        return 0, 1  # the session could not be opened


async def _schedule(seed: int, faults: NetworkFaults) -> tuple[int, int]:
    draw = random.Random(seed)
    async with cluster_session(graph(), faults=faults) as (session, cluster):
        async with asyncio.timeout(120):
            runs: list[tuple[str, Any, Any]] = []
            for number in range(12):
                kind = draw.choice(["chain", "loop", "put", "get"])
                fetch, feeds, targets = {
                    "chain": ("n2:0", {"x:0": float(number)}, ()),
                    "loop": ("result:0", {"n:0": number}, ()),
                    "put": ([], {"element:0": number}, ["put"]),
                    "get": ("taken:0", {}, ()),
                }[kind]
                options = aexec.RunOptions(timeout=draw.choice([0.05, 5.0, 20.0]))
                step = session.start(fetch, feeds, targets, options=options)
                runs.append((kind, number, asyncio.ensure_future(outcome(step))))
                if draw.random() < 0.1:
                    step.cancel("by the schedule")
                if draw.random() < 0.5:
                    await asyncio.sleep(draw.choice([0, 0.001, 0.3]))
            done = [(kind, number, await run) for kind, number, run in runs]
        check(done, cluster)
        await check_idle(cluster)
        await recovered(session, cluster)
    failed = sum(isinstance(value, errors.OpError) for *_, value in done)
    return len(done) - failed, failed


async def recovered(session: aexec.Session, cluster: MemoryCluster) -> None:
    """With a network that is good again, and the dead started anew, everything works again."""
    assert isinstance(session, ClusterSession)
    cluster.network.faults = NetworkFaults()
    for address in set(WORKERS) - set(cluster.workers):
        cluster.add_worker(address)
    async with asyncio.timeout(60):
        while True:
            try:
                assert await session.run(["n2:0", "result:0"], {"x:0": 5.0, "n:0": 3}) == [-5, 3]
                break
            except errors.UnavailableError:
                await session.recover()
    await check_idle(cluster)


def check(done: list[tuple[str, int, Any]], cluster: MemoryCluster) -> None:
    failed = [value for *_, value in done if isinstance(value, errors.OpError)]
    codes = {error.code.name for error in failed}
    assert codes <= {"UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED"}, failed
    for kind, number, value in done:
        if not isinstance(value, errors.OpError):
            if kind == "chain":
                assert value == -number
            elif kind == "loop":
                assert value == number
    put = [number for kind, number, value in done if kind == "put" and not isinstance(value, errors.OpError)]
    tried = [number for kind, number, _ in done if kind == "put"]
    taken = [int(value) for kind, _, value in done if kind == "get" and not isinstance(value, errors.OpError)]
    unanswered = sum(kind == "get" and isinstance(value, errors.OpError) for kind, _, value in done)
    assert len(set(taken)) == len(taken) and set(taken) <= set(tried)
    if "worker-1" in cluster.workers and (sessions := cluster.workers["worker-1"].sessions):
        (kept,) = sessions.values()
        queues = [queue for _, _, queue in kept.resources.of_type(QueueBase)]
        held = [element for queue in queues for element in getattr(queue, "_elements")]  # noqa: B009
        left = [int(np.asarray(element[0])) for element in held]
        assert len(set(left + taken)) == len(left + taken), "an element is there twice"
        lost = set(put) - set(left) - set(taken)
        assert len(lost) <= unanswered, f"{lost} were acknowledged, and are gone"


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_hundred_schedules(first: int) -> None:
    succeeded = failed = 0
    for seed in range(first, first + 20):
        good, bad = run_virtual(schedule(seed, faults_of(seed)))
        succeeded, failed = succeeded + good, failed + bad
    assert succeeded > 20 and failed > 5, (succeeded, failed)


def test_schedule_is_the_same_again() -> None:
    async def messages(seed: int) -> int:
        async with cluster_session(graph(), faults=faults_of(seed)) as (session, cluster):
            await outcome(session.run("n2:0", {"x:0": 1.0}))
            return cluster.network.sent

    assert run_virtual(messages(3)) == run_virtual(messages(3))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_random_schedules(part: int) -> None:
    first, count = map(int, os.environ.get("AEXEC_FAULT_SEEDS", "100:900").split(":"))
    for seed in range(first + part, first + count, PARTS):
        try:
            run_virtual(schedule(seed, faults_of(seed)))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
