"""Benchmarks of sessions across machines, for `benchmarks.py`: over Dask distributed, with workers on this machine.

* hop: a run that feeds an op of another task and fetches from it, against Dask's own RPC of the same bytes both ways;
* step: a run over two tasks, against the same graph in process;
* fan-out: a run of 64 kernels that sleep 10 ms, over four workers with a thread each, against the sixteenth part of the
  sleep that each thread has; kernels that sleep need no processor, so that two suffice to measure who waits for whom.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import distributed
import numpy as np
from benchmark_figure import Figure
from distributed.protocol import to_serialize

import aexec

SIZES = {"1 KB": 1 << 10, "1 MB": 1 << 20, "8 MB": 8 << 20}
HOP, STEP_MS = 1.3, 2.0
KERNELS, WORKERS, SLEEP_MS, FAN_OUT = 64, 4, 10.0, 1.2


class EchoPlugin(distributed.WorkerPlugin):
    """Makes a worker answer calls with their argument."""

    name = "echo"

    def setup(self, worker: Any) -> None:
        """Called by Dask."""
        worker.handlers["echo"] = _echo


async def _echo(data: Any) -> dict[str, Any]:
    return {"data": to_serialize(data)}


@aexec.op("ClusterBenchmarkSleep(x: float) -> y: float", stateful=True, cost=1e9)
def cluster_benchmark_sleep(x: Any) -> Any:
    """Return `x` after a sleep, in a thread."""
    time.sleep(SLEEP_MS / 1e3)
    return x


class SleepPlugin(distributed.WorkerPlugin):
    """Registers the op on a worker by importing this module."""

    name = "sleep"


async def measure_fan_out(repeats: int) -> Figure:
    """Measure a step of 64 kernels that sleep, and the sum of their outputs."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [], name="x")
        given = []
        for number in range(KERNELS):
            with aexec.device(f"/job:worker/task:{number % WORKERS}"):
                given.append(cluster_benchmark_sleep(x))
        with aexec.device("/job:worker/task:0"):
            aexec.ops.add_n(given, name="sum")
    config = aexec.SessionConfig(inter_op_threads=1, graph_passes=())
    async with (
        distributed.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, asynchronous=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster, asynchronous=True) as client,
    ):
        await client.register_plugin(SleepPlugin())
        target = cluster.scheduler_address.replace("tcp", "dask")
        async with aexec.Session(graph, target, config) as session:

            async def fan_out() -> None:
                assert await session.run("sum:0", {"x:0": 1.0}) == KERNELS

            (taken,) = await _by_turns(repeats, fan_out)
    ideal = KERNELS / WORKERS * SLEEP_MS
    name = f"{KERNELS} sleeps of {SLEEP_MS:g} ms on {WORKERS} workers"
    return Figure(name, taken, "ms", ideal, f"≤ {FAN_OUT} × ideal", taken <= FAN_OUT * ideal)


async def measure(repeats: int) -> list[Figure]:
    """Return all figures: medians, ours and the baseline by turns."""
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
    figures.append(await measure_fan_out(max(1, repeats // 5)))
    return figures


def _there_and_back(one: str, other: str) -> aexec.Graph:
    """Return a graph that passes `x` on as `there` on one device, and as `back` on another."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("uint8", [None], name="x")
        with aexec.device(one):
            there = aexec.ops.identity(x, name="there")
        with aexec.device(other):
            aexec.ops.identity(there, name="back")
    return graph


async def _by_turns(repeats: int, *calls: Callable[[], Awaitable[None]]) -> list[float]:
    """Return the median milliseconds of each call; the calls take turns."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(10 * repeats + 5):
        for call, taken in zip(calls, times, strict=True):
            began = time.perf_counter()
            await call()
            if turn >= 5:
                taken.append((time.perf_counter() - began) * 1e3)
    return [statistics.median(taken) for taken in times]
