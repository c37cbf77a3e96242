"""Benchmarks of sessions across machines, for `benchmarks.py`: over Dask distributed, with two workers on this machine.

* hop: a run that feeds an op of another task and fetches from it, against Dask's own RPC of the same bytes both ways;
* step: a run over two tasks, against the same graph in process.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import distributed
import numpy as np
from distributed.protocol import to_serialize

import aexec

SIZES = {"1 KB": 1 << 10, "1 MB": 1 << 20, "8 MB": 8 << 20}
HOP, STEP_MS = 1.3, 2.0


class Figure(NamedTuple):
    """A line of the table: see `benchmarks.Row`."""

    name: str
    value: float
    unit: str
    baseline: float
    target: str
    reached: bool


class EchoPlugin(distributed.WorkerPlugin):
    """Has a worker give back what it gets."""

    name = "echo"

    def setup(self, worker: Any) -> None:
        """As Dask calls it."""
        worker.handlers["echo"] = _echo


async def _echo(data: Any) -> dict[str, Any]:
    return {"data": to_serialize(data)}


async def measure(repeats: int) -> list[Figure]:
    """All figures; medians, of ours and the baseline by turns."""
    config = aexec.SessionConfig(graph_passes=())
    async with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, asynchronous=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster, asynchronous=True) as client,
        aexec.Session(
            _there_and_back("/job:worker/task:1", "/job:worker/task:0"),
            cluster.scheduler_address.replace("tcp", "dask"),
            config,
        ) as session,
        aexec.Session(_there_and_back("", ""), config=config) as in_process,
    ):
        await client.register_plugin(EchoPlugin())
        there_at = client.rpc(sorted(cluster.scheduler.workers)[1])
        figures = []
        for name, size in SIZES.items():
            data = np.random.default_rng(0).integers(0, 255, size, np.uint8)

            async def ours(data: Any = data) -> None:
                await session.run("there:0", {"x:0": data})

            async def raw(data: Any = data) -> None:
                await there_at.echo(data=to_serialize(data))

            hop, rpc = await _by_turns(repeats, ours, raw)
            figures.append(Figure(f"hop of {name}", hop, "ms", rpc, f"≤ {HOP} × RPC", hop <= HOP * rpc))
        small = np.zeros(256, np.uint8)

        async def over_two() -> None:
            await session.run("back:0", {"x:0": small})

        async def in_one() -> None:
            await in_process.run("back:0", {"x:0": small})

        step, one = await _by_turns(repeats, over_two, in_one)
        reached = step <= one + STEP_MS
        figures.append(Figure("step over two tasks", step, "ms", one, f"≤ in process + {STEP_MS:g} ms", reached))
        await there_at.close_rpc()
    return figures


def _there_and_back(one: str, other: str) -> aexec.Graph:
    """`x`, passed on as `there` on a device, and as `back` on another."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("uint8", [None], name="x")
        with aexec.device(one):
            there = aexec.ops.identity(x, name="there")
        with aexec.device(other):
            aexec.ops.identity(there, name="back")
    return graph


async def _by_turns(repeats: int, *calls: Callable[[], Awaitable[None]]) -> list[float]:
    """Median milliseconds of each of several calls."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(10 * repeats + 5):
        for call, taken in zip(calls, times, strict=True):
            began = time.perf_counter()
            await call()
            if turn >= 5:
                taken.append((time.perf_counter() - began) * 1e3)
    return [statistics.median(taken) for taken in times]
