"""Benchmarks of requests on several devices, for `benchmarks.py`: each against a baseline of the same run.

* transfer: what a small value costs that goes from one CPU to another, beside what else the sender has to send; and
  where the receiver waits for it and there is nothing else to do; against the same graph on one device, compiled as
  what is run often is, and interpreted;
* loop: an iteration in which a value goes round four CPUs, against the same loop on one;
* one device: a request on one device in a session of four, against a session of one;
* split: cutting a graph of 100 000 nodes, each on a device of four at random, into partitions.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable

import numpy as np
from benchmark_figure import Figure

import aexec
from aexec import ops
from aexec.devices.device_registry import make_devices
from aexec.graph.partitioning.splitting import split
from aexec.graph.passes import WorkingGraph
from aexec.runtime.placement.placer import Placer

WARM_UP = 30
WIDTH = 200
ITERATIONS = 100
NODES = 100_000
X = np.ones(4, np.float32)


async def measure(repeats: int) -> list[Figure]:
    """Return all figures: the best of several repeats, because other load on the machine only makes times longer."""
    return [
        await transfer("transfer among others", wide, repeats, target=5.0),
        await transfer("transfer that is waited for", there_and_back, repeats, target=5.0),
        await transfer("interpreted transfer among others", wide, repeats, target=5.0, compile_plans=False),
        await transfer("interpreted transfer, waited for", there_and_back, repeats, target=5.0, compile_plans=False),
        await loop("loop over four devices", repeats),
        await loop("interpreted loop over four devices", repeats, compile_plans=False),
        await one_device(repeats),
        split_large_graph(),
    ]


def wide(devices: int) -> aexec.Graph:
    """Return a graph of many values that are made on the first device and used on the last."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [4], name="x")
        made = [ops.neg(x) for _ in range(WIDTH)]
        with aexec.device(f"/cpu:{devices - 1}"):
            used = [ops.neg(value) for value in made]
            with aexec.control_dependencies(used):
                ops.identity(used[0], name="last")
    return graph


def there_and_back(devices: int) -> aexec.Graph:
    """Return a graph of one value that changes the device at every node."""
    with aexec.Graph() as graph:
        value = aexec.placeholder("float32", [4], name="x")
        for number in range(WIDTH):
            with aexec.device(f"/cpu:{number % devices}"):
                value = ops.neg(value)
        ops.identity(value, name="last")
    return graph


def round_and_round(devices: int) -> aexec.Graph:
    """Return a loop in which a value goes from device to device; its condition is on the first."""
    frame = {"frame_name": "loop", "parallel_iterations": 10}
    with aexec.Graph() as graph:
        value = aexec.placeholder("float32", [4], name="x")
        start = ops.enter(aexec.constant(0), **frame)
        limit = ops.enter(aexec.constant(ITERATIONS), is_constant=True, **frame)
        one = ops.enter(aexec.constant(1), is_constant=True, **frame)
        value = ops.enter(value, **frame)
        count, _ = ops.merge([start, start], name="count")
        value, _ = ops.merge([value, value], name="value")
        goes_on = ops.loop_cond(ops.less(count, limit))
        _, inside = ops.switch(count, goes_on)
        ops.next_iteration(ops.add_v2(inside, one), name="next_count")
        done, value = ops.switch(value, goes_on)
        for number in range(4):
            with aexec.device(f"/cpu:{number % devices}"):
                value = ops.neg(value)
        ops.next_iteration(value, name="next_value")
        ops.identity(ops.exit(done), name="last")
    message = graph.to_graph_def()
    for node in message.node:
        if node.name in ("count", "value"):
            node.input[1] = f"next_{node.name}"
    return aexec.Graph.from_graph_def(message)


async def best(sessions: dict[str, aexec.Session], repeats: int) -> dict[str, float]:
    """Return the seconds of a run in each session; the sessions take turns."""
    calls = {name: session.make_callable("last:0", ["x:0"]) for name, session in sessions.items()}
    for call in calls.values():
        for _ in range(WARM_UP):
            await call(X)
            await asyncio.sleep(0.002)  # large plans are compiled in a thread
    seconds = dict.fromkeys(calls, float("inf"))
    for _ in range(10 * repeats):
        for name, call in calls.items():
            began = time.perf_counter()
            await call(X)
            seconds[name] = min(seconds[name], time.perf_counter() - began)
    return seconds


async def transfer(
    name: str, graph: Callable[[int], aexec.Graph], repeats: int, target: float, *, compile_plans: bool = True
) -> Figure:
    config = config_of(2, compile_plans=compile_plans)
    async with aexec.Session(graph(1), config=config) as one, aexec.Session(graph(2), config=config) as two:
        seconds = await best({"one": one, "two": two}, repeats)
    micros = (seconds["two"] - seconds["one"]) / WIDTH * 1e6
    return Figure(name, micros, "us", seconds["one"] / WIDTH * 1e6, f"<= {target:g} us", micros <= target)


async def loop(name: str, repeats: int, *, compile_plans: bool = True) -> Figure:
    config = config_of(4, compile_plans=compile_plans)
    graphs = round_and_round(1), round_and_round(4)
    async with aexec.Session(graphs[0], config=config) as one, aexec.Session(graphs[1], config=config) as four:
        seconds = await best({"one": one, "four": four}, repeats)
    micros = {devices: taken / ITERATIONS * 1e6 for devices, taken in seconds.items()}
    return Figure(name, micros["four"], "us/iteration", micros["one"], "", None)


def config_of(cpus: int, *, compile_plans: bool = True) -> aexec.SessionConfig:
    return aexec.SessionConfig(device_count={"CPU": cpus}, graph_passes=(), compile_plans=compile_plans, delegates=())


async def one_device(repeats: int) -> Figure:
    configs = {f"{n} CPUs": config_of(n) for n in (1, 4)}
    sessions = {name: aexec.Session(there_and_back(1), config=config) for name, config in configs.items()}
    seconds = await best(sessions, repeats)
    for session in sessions.values():
        await session.close()
    one, four = seconds["1 CPUs"] * 1e6, seconds["4 CPUs"] * 1e6
    return Figure("a run on one device of four", four, "us", one, "<= 1.05 x", four <= 1.05 * one)


def split_large_graph() -> Figure:
    drawn = random.Random(0)
    with aexec.Graph() as graph:
        values = [aexec.placeholder("float32", [], name="x")]
        for _ in range(NODES):
            with aexec.device(f"/cpu:{drawn.randrange(4)}"):
                values.append(ops.neg(drawn.choice(values[-100:])))
    devices = make_devices({"CPU": 4})
    began = time.process_time()
    placer = Placer(devices)
    placer.place(graph.nodes, graph.nodes.__getitem__, graph.library)
    targets = [value.op.id for value in values[1:]]
    working = WorkingGraph(graph, [values[0].endpoint], [], targets)
    split(working, [values[0].endpoint], [], targets, placer.device_of, devices[0], itertools.count(1))
    seconds = time.process_time() - began
    return Figure("place and split 100 000 nodes", seconds, "s", None, "<= 5 s", seconds <= 5)
