"""`scripts/cluster-scaling`: how long steps over 1 to 1 000 tasks take, simulated with costs of messages as measured.

The tasks are those of the engine in memory, with aexec's own sessions, plans, executors and messages, on a virtual
clock.  Only time is made up: each message keeps its two ends busy for as long as one of Dask's was measured to do, one
at a time, and takes a while on the way; a kernel takes what it is said to take.  `--measure` measures the costs here.
docs/distributed.md has the table, and what it assumes.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import aexec
from aexec.distributed.memory_engine import MemoryCluster, NetworkCosts

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.support.virtual_clock import run_virtual

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
KERNEL_SECONDS = 0.1
# A value has ELEMENTS float32 and stands for one STANDS_FOR times as large, to save memory for a thousand tasks.
ELEMENTS, STANDS_FOR = 256, 1024
# Replicas that share a parameter server.
REPLICAS_OF_SERVER = 8
LATENCY = 100e-6
# Seconds per message and per byte, by `--measure` on two cores of a cloud machine; STANDS_FOR scales those per byte.
MESSAGE, BYTE = 170e-6, 0.4e-9


class Scaled(NamedTuple):
    """A row of the table: seconds of a step."""

    tasks: int
    fan_out: float
    training: float
    apart: float


@aexec.op("ClusterScalingWork(x: float) -> y: float", stateful=True)
async def cluster_scaling_work(x: Any) -> Any:
    """Return `x` after the time of a kernel."""
    await asyncio.sleep(KERNEL_SECONDS)
    return x


def fan_out(tasks: int) -> aexec.Graph:
    """Return a graph with one kernel per task; the step ends when all have ended."""
    with aexec.Graph() as graph:
        done = []
        for task in range(tasks):
            with aexec.device(f"/job:worker/task:{task}"):
                done.append(cluster_scaling_work(aexec.constant(1.0)))
        aexec.group(*done, name="step")
    return graph


def training(tasks: int, servers: int) -> aexec.Graph:
    """Return a graph in which each replica reads its server's weights of 1 MB, works, and makes the server add a
    gradient of 1 MB.
    """
    with aexec.Graph() as graph:
        weights, updates = [], []
        for server in range(servers):
            with aexec.device(f"/job:ps/task:{server}"):
                weights.append(
                    aexec.get_variable(
                        f"w{server}", [ELEMENTS], use_resource=True, initializer=aexec.initializers.Ones()
                    )
                )
        for task in range(tasks):
            weight = weights[task % servers]
            with aexec.device(f"/job:ps/task:{task % servers}"):
                read = weight.read_value()
            with aexec.device(f"/job:worker/task:{task}"):
                gradient = cluster_scaling_work(read)
            with aexec.device(f"/job:ps/task:{task % servers}"):
                updates.append(weight.assign_sub(gradient, read_value=False))
        aexec.group(*updates, name="step")
        aexec.group(aexec.global_variables_initializer(), name="init")
    return graph


async def step_seconds(graph: aexec.Graph, cluster: dict[str, int], init: bool, costs: NetworkCosts) -> float:
    """Return the seconds of the virtual clock that a step takes once all tasks have their graphs."""
    loop = asyncio.get_running_loop()
    # No task is lost here: pings would only add messages.
    async with MemoryCluster("scaling", sum(cluster.values()), costs=costs, lease=1e6) as workers:
        config = aexec.SessionConfig(cluster=cluster, graph_passes=())
        async with aexec.Session(graph, f"memory://{workers.name}", config) as session:
            if init:
                await session.run([], targets=["init"])
            await session.run([], targets=["step"])
            await asyncio.sleep(10)  # let the tasks hear that the step has ended
            began = loop.time()
            await session.run([], targets=["step"])
            return loop.time() - began


async def steps_apart(tasks: int, servers: int, costs: NetworkCosts) -> float:
    """Return the mean seconds of a step if each replica has a session of its own, all at the same time."""
    loop = asyncio.get_running_loop()
    graph = training(1, 1)
    async with MemoryCluster("scaling", servers + tasks, costs=costs, lease=1e6) as workers:
        addresses = [f"worker-{number}" for number in range(servers + tasks)]

        async def replica(task: int) -> float:
            cluster = {"ps": [addresses[task % servers]], "worker": [addresses[servers + task]]}
            config = aexec.SessionConfig(cluster=cluster, graph_passes=(), share=("localhost",))
            async with aexec.Session(graph, f"memory://{workers.name}", config) as session:
                await session.run([], targets=["init"])
                await ready.wait()
                for _ in range(2):
                    await session.run([], targets=["step"])
                began = loop.time()
                for _ in range(3):
                    await session.run([], targets=["step"])
                return (loop.time() - began) / 3

        ready = asyncio.Barrier(tasks)
        return float(np.mean(await asyncio.gather(*map(replica, range(tasks)))))


def scaled(tasks: int, costs: NetworkCosts) -> Scaled:
    """Measure all kinds of steps over `tasks` tasks."""
    servers = max(1, tasks // REPLICAS_OF_SERVER)
    fanned = run_virtual(step_seconds(fan_out(tasks), {"worker": tasks}, False, costs))
    jobs = {"ps": servers, "worker": tasks}
    trained = run_virtual(step_seconds(training(tasks, servers), jobs, True, costs))
    return Scaled(tasks, fanned, trained, run_virtual(steps_apart(tasks, servers, costs)))


async def measured_costs(calls: int = 500) -> tuple[float, float]:
    """Return the processor seconds that one end of a Dask connection needs per message and per byte, by echo calls."""
    import distributed
    import psutil
    from cluster_benchmarks import EchoPlugin
    from distributed.protocol import to_serialize

    async with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, asynchronous=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster, asynchronous=True) as client,
    ):
        await client.register_plugin(EchoPlugin())
        (address,) = cluster.scheduler.workers
        there = client.rpc(address)
        process = psutil.Process(next(iter(cluster.workers.values())).process.pid)

        async def seconds(size: int, count: int) -> float:
            data = np.zeros(size, np.uint8)
            await there.echo(data=to_serialize(data))
            before = sum(process.cpu_times()[:2])
            for _ in range(count):
                await there.echo(data=to_serialize(data))
            return (sum(process.cpu_times()[:2]) - before) / count / 2

        small, size = await seconds(64, calls), 8 << 20
        large = await seconds(size, calls // 10)
        await there.close_rpc()
    return small, (large - small) / size


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="scripts/cluster-scaling", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--measure", action="store_true", help="measure the costs of messages here, and use them")
    parser.add_argument("--tasks", type=int, nargs="+", default=SIZES, help="how many there are")
    arguments = parser.parse_args()
    message, byte = asyncio.run(measured_costs()) if arguments.measure else (MESSAGE, BYTE)
    ends = f"a message takes each end {message * 1e6:.0f} µs, and {byte * (1 << 20) * 1e6:.0f} µs for each MB"
    print(f"{ends}; {LATENCY * 1e6:.0f} µs on the way\n")
    costs = NetworkCosts(message, byte * STANDS_FOR, LATENCY)
    print("| tasks | fan-out, ms | efficiency | in one graph, ms | efficiency | a session each, ms | efficiency |")
    print("|---|---|---|---|---|---|---|")
    for tasks in arguments.tasks:
        row = scaled(tasks, costs)
        columns = [f"{seconds * 1e3:.0f} | {KERNEL_SECONDS / seconds:.0%}" for seconds in row[1:]]
        print(f"| {tasks} | {' | '.join(columns)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
