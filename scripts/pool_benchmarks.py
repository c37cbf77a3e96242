"""Benchmarks of what runs beside what, for `benchmarks.py`: each against the same work one thing after another.

* inter-op: nodes that do not depend on each other, each a kernel of a thread, by as many threads as there are cores;
* intra-op: one node, its kernel divided among as many threads;
* streams: copies to a simulated device, kernels there and copies back, each of a set time, by its three streams; the
  ideal is the longest of the three, and one piece's share of the others.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time

import numpy as np
from benchmark_figure import Figure

import aexec
from aexec import ops
from aexec.devices.simulated_device import simulated_devices
from aexec.devices.simulated_faults import SimulatedTiming

# A plan with heavy calls is first tried in two ways, by turns.
WARM_UP = 60
NODES = 16
PIECES = 16
SIDE = 800
# Seconds of each kernel and each copy on the simulated device.
DEVICE_SECONDS = 0.004


async def measure(repeats: int) -> list[Figure]:
    """Return all figures: medians of several repeats by turns."""
    cores = os.cpu_count() or 1
    return [
        await speed_up(f"inter-op: {NODES} kernels by {cores} threads", fan(NODES), (1, 1), (cores, 1), repeats),
        await speed_up(f"intra-op: one kernel by {cores} threads", fan(1), (1, 1), (1, cores), repeats),
        await speed_up(f"both: {NODES} kernels by {cores} threads", fan(NODES), (1, 1), (cores, cores), repeats),
        await streams(repeats),
    ]


def fan(width: int) -> aexec.Graph:
    """Return a graph of `width` matrix products that take some milliseconds each."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [SIDE, SIDE], name="x")
        done = [ops.mat_mul(x, x, name=f"y{number}") for number in range(width)]
        with aexec.control_dependencies(done):
            ops.no_op(name="last")
    return graph


async def speed_up(
    name: str, graph: aexec.Graph, alone: tuple[int, int], together: tuple[int, int], repeats: int
) -> Figure:
    """Measure how much faster a graph runs with more threads.

    Args:
        alone, together: numbers of threads between nodes and within a node.
    """
    value = np.ones((SIDE, SIDE), np.float32)
    sessions = [
        aexec.Session(
            graph,
            config=aexec.SessionConfig(inter_op_threads=inter, intra_op_threads=intra, graph_passes=(), delegates=()),
        )
        for inter, intra in (alone, together)
    ]
    times: list[list[float]] = [[], []]
    for turn in range(WARM_UP + repeats):
        for session, taken in zip(sessions, times, strict=True):
            began = time.perf_counter()
            await session.run([], {"x:0": value}, "last")
            if turn >= WARM_UP:
                taken.append(time.perf_counter() - began)
    for session in sessions:
        await session.close()
    one, many = map(statistics.median, times)
    return Figure(name, one / many, "x one thread", 1.0, "", None)


async def streams(repeats: int) -> Figure:
    """Measure how close overlapping copies and kernels come to the time of the slowest of them."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [4], name="x")
        for number in range(PIECES):
            piece = ops.add_v2(x, np.float32(number))
            with aexec.device("/device:SIM:0"):
                squared = ops.square(piece)
            with aexec.device("/device:CPU:0"):
                ops.neg(squared, name=f"y{number}")
    config = aexec.SessionConfig(device_count={"SIM": 1}, graph_passes=())
    fetches = [f"y{number}:0" for number in range(PIECES)]
    timing = SimulatedTiming(kernel_seconds=DEVICE_SECONDS, copy_seconds=DEVICE_SECONDS)
    taken = []
    with simulated_devices(timing=timing):
        async with aexec.Session(graph, config=config) as session:
            for turn in range(2 + repeats):
                began = time.perf_counter()
                await session.run(fetches, {"x:0": np.ones(4, np.float32)})
                if turn >= 2:
                    taken.append(time.perf_counter() - began)
                await asyncio.sleep(0)
    seconds = statistics.median(taken)
    ideal = (PIECES + 2) * DEVICE_SECONDS
    name = f"streams: {PIECES} pieces copied, computed, copied back"
    alone, target = 3 * PIECES * DEVICE_SECONDS, f">= 0.9 of the ideal: {ideal / seconds:.2f}"
    return Figure(name, alone / seconds, "x one after another", 1.0, target, ideal / seconds >= 0.9)
