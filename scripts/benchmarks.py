"""Benchmarks of the executor and the server, printed as a table and written as JSON.

Every figure is the median of several repeats and stands beside a baseline measured in
the same process and minute, because machines differ and drift:

* step: a graph of N nodes against the same NumPy calls in a plain Python loop;
* run: the fixed cost of an empty cached run, and of one of one node, against what awaits nothing; a hundred steps
  at once against one after another;
* http: a one-op graph and large tensors against an aiohttp handler that echoes, and one client beside mlserver, see
  `http_benchmarks.py`;
* overload: many clients, twice the capacity, endless loops, clients that vanish; hosts: what session hosts cost, and
  what clients notice when one is killed; see `server_benchmarks.py`;
* remote: sessions in a server by gRPC against HTTP, see `remote_benchmarks.py`;
* cancel: from `cancel()` to the step's end;
* hold: the longest stretch for which the event loop was held during a heavy step, and how late a task is
  beside each heavy kernel in a thread, the latest first, see `hold_benchmarks.py`, and beside what programs and
  clients do with much data, see `loop_benchmarks.py`;
* import: `import aexec`, and a graph of 100 000 nodes;
* queues: operations in a step, prefetching and batching, see `queue_benchmarks.py`;
* input: training fed by datasets against feeding by hand, and elements of asynchronous iterators, see
  `input_benchmarks.py`;
* devices: values that go from one device to another, and cutting large graphs, see `device_benchmarks.py`;
* pools: threads between nodes and within one, and streams of a device, against one thing after another, see
  `pool_benchmarks.py`;
* cluster: a fetch from another process, and a step over two, against Dask's RPC, see `cluster_benchmarks.py`;
* kernels: each kernel against the plain NumPy expression, at 1 k and 1 M elements;
* native: each kernel that has a loop in C, with it and without it, see `native_benchmarks.py`;
* ways: what each way of running a node gains, against the same run without it, see `way_benchmarks.py`.

`models`, `training`, `programs`, `memory`, `building` and `data` are commands of their own: whole models, steps that
train some, steps of the programs in `examples/`, the memory of these, how long it takes to build graphs, and pipelines
of datasets, against other runtimes, see `scripts/bench models --help`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmark_figure import Figure

import aexec

ROOT = Path(__file__).resolve().parent.parent
REPEATS = 7
# Runs before the first that is measured: a plan is compiled at its third run, a large one in a thread.
WARM_UP = 20


class Row(NamedTuple):
    """A line of the table."""

    group: str
    figure: Figure


def median_seconds(call: Callable[[], object], number: int, repeats: int = REPEATS) -> float:
    call()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(number):
            call()
        times.append((time.perf_counter() - began) / number)
    return statistics.median(times)


async def median_seconds_async(call: Callable[[], Awaitable[object]], number: int, repeats: int = REPEATS) -> float:
    for _ in range(WARM_UP):
        await call()
        await asyncio.sleep(0)
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(number):
            await call()
        times.append((time.perf_counter() - began) / number)
    return statistics.median(times)


# Steps

X = np.ones((4, 4), np.float32)
SIZES = (1, 10, 100, 1000, 10_000)


def chain_graph(length: int) -> aexec.Graph:
    with aexec.Graph() as graph:
        y = aexec.placeholder("float32", [4, 4], name="x")
        c = aexec.constant(X, name="c")
        for _ in range(length - 1):
            y = aexec.ops.add_v2(y, c)
        aexec.ops.add_v2(y, c, name="last")
    return graph


def fan_graph(width: int) -> aexec.Graph:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [4, 4], name="x")
        with aexec.control_dependencies([aexec.ops.square(x) for _ in range(width)]):
            aexec.ops.no_op(name="last")
    return graph


def loop_graph() -> aexec.Graph:
    ops = aexec.ops
    with aexec.Graph() as graph:
        n = aexec.placeholder("int32", [], name="n")
        frame = {"frame_name": "loop", "parallel_iterations": 10}
        start = ops.enter(aexec.constant(0), **frame)
        limit = ops.enter(n, is_constant=True, **frame)
        one = ops.enter(aexec.constant(1), is_constant=True, **frame)
        merged, _ = ops.merge([start, start], name="merge")
        proceed = ops.loop_cond(ops.less(merged, limit))
        done, body = ops.switch(merged, proceed)
        ops.next_iteration(ops.add_v2(body, one), name="next")
        ops.exit(done, name="last")
    # The back edge is added afterwards: Merge is built before its second input.
    graph_def = graph.to_graph_def()
    for node in graph_def.node:
        if node.name == "merge":
            node.input[1] = "next"
    return aexec.Graph.from_graph_def(graph_def)


def bare_chain(length: int) -> Callable[[], object]:
    add, c = np.add, X

    def run() -> object:
        y = X
        for _ in range(length):
            y = add(y, c)
        return y

    return run


def bare_fan(width: int) -> Callable[[], object]:
    square = np.square

    def run() -> None:
        for _ in range(width):
            square(X)

    return run


def bare_loop(count: int) -> Callable[[], object]:
    less, add, limit, one = np.less, np.add, np.int32(count), np.int32(1)

    def run() -> object:
        i = np.int32(0)
        while less(i, limit):
            i = add(i, one)
        return i

    return run


async def bench_steps(rows: list[Row], sizes: tuple[int, ...]) -> None:
    for name, make, bare in (("chain", chain_graph, bare_chain), ("fan", fan_graph, bare_fan)):
        for size in sizes:
            number = max(3, 3000 // size)
            async with aexec.Session(make(size)) as session:
                fetch = "last:0" if name == "chain" else "last"
                step = await median_seconds_async(lambda: session.run(fetch, {"x:0": X}), number)  # noqa: B023
            base = median_seconds(bare(size), number)
            over = (step - base) / size * 1e6
            target = "<= 0.9" if size >= 100 else ""
            rows.append(
                Row(
                    "step",
                    Figure(
                        f"{name} of {size}: over NumPy",
                        over,
                        "us/node",
                        base / size * 1e6,
                        target,
                        over <= 0.9 if target else None,
                    ),
                )
            )
    async with aexec.Session(loop_graph()) as session:
        for size in sizes:
            number = max(1, 1000 // size)
            step = await median_seconds_async(lambda: session.run("last:0", {"n:0": size}), number)  # noqa: B023
            base = median_seconds(bare_loop(size), number)
            each = step / size * 1e6
            target = "<= 10" if size == 1000 else ""
            rows.append(
                Row(
                    "step",
                    Figure(
                        f"while loop of {size}",
                        each,
                        "us/iteration",
                        base / size * 1e6,
                        target,
                        each <= 10 if target else None,
                    ),
                )
            )


async def bench_run(rows: list[Row]) -> None:
    with aexec.Graph() as graph:
        aexec.ops.no_op(name="nothing")

    async def nothing() -> None:
        return None

    async with aexec.Session(graph) as session:
        run = await median_seconds_async(lambda: session.run("nothing"), 3000) * 1e6
    base = await median_seconds_async(nothing, 3000) * 1e6
    rows.append(Row("run", Figure("empty cached run", run, "us", base, "<= 10", run <= 10)))
    async with aexec.Session(chain_graph(1)) as session:
        run = await median_seconds_async(lambda: session.run("last:0", {"x:0": X}), 3000) * 1e6
        call = session.make_callable("last:0", ["x:0"])
        called = await median_seconds_async(lambda: call(X), 3000) * 1e6
    rows.append(Row("run", Figure("one node", run, "us", base, "<= 10", run <= 10)))
    rows.append(Row("run", Figure("one node, by a callable", called, "us", run, "< run", called < run)))


async def bench_steps_at_once(rows: list[Row], repeats: int, at_once: int = 100) -> None:
    """Runs steps of one session at once: throughput relative to one after another, and the latency of the last ones."""
    async with aexec.Session(chain_graph(1000)) as session:
        call = session.make_callable("last:0", ["x:0"])
        throughput: list[float] = []
        tail: list[float] = []
        one = 0.0
        for warm_up in (*[True] * WARM_UP, *[False] * repeats):
            took: list[float] = []

            async def timed(took: list[float] = took) -> None:
                began = time.perf_counter()
                await call(X)
                took.append(time.perf_counter() - began)

            began = time.process_time()
            for _ in range(1 if warm_up else at_once):
                await call(X)
            one = time.process_time() - began
            await asyncio.sleep(0)
            if warm_up:
                continue
            began = time.process_time()
            await asyncio.gather(*(timed() for _ in range(at_once)))
            throughput.append(one / (time.process_time() - began))
            took.sort()
            tail.append(took[int(0.99 * at_once) - 1] / took[at_once // 2])
    ratio, fair = statistics.median(throughput), statistics.median(tail)
    name = f"{at_once} steps of 1000 nodes at once"
    rows.append(Row("run", Figure(f"{name}: throughput", ratio, "x one by one", 1.0, ">= 1", ratio >= 1)))
    rows.append(Row("run", Figure(f"{name}: p99", fair, "x p50", None, "<= 2", fair <= 2)))


# Cancelling


async def bench_cancel(rows: list[Row], repeats: int) -> None:
    size = 8000 if (os.cpu_count() or 1) <= 4 else 12_000
    with aexec.Graph() as graph:
        a = aexec.placeholder("float32", None, name="a")
        aexec.ops.mat_mul(a, a, name="product")
    matrix = np.ones((size, size), np.float32)
    times, closing = [], []
    for _ in range(repeats):
        session = aexec.Session(graph)
        step = session.start("product:0", {"a:0": matrix})
        while session.statistics().pool.outstanding == 0:
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
        times.append(await _cancelled(step))
        # The abandoned product is still running; the next repeat must not wait for its thread.
        closing.append(asyncio.create_task(session.close()))
    await asyncio.gather(*closing)
    _add_cancel(rows, f"matmul of {size} running offloaded", times, 5.0)
    waiting = aexec.Graph()
    with waiting:
        x = aexec.placeholder("float32", [], name="x")
        with aexec.control_dependencies([bench_wait(x) for _ in range(1000)]):
            aexec.ops.no_op(name="all")
    async with aexec.Session(waiting) as session:
        times = []
        for _ in range(max(5, repeats)):
            step = session.start("all", {"x:0": 1.0})
            while step.statistics().running < 1000:
                await asyncio.sleep(0)
            times.append(await _cancelled(step))
    _add_cancel(rows, "1000 waiting coroutines", times, None)


@aexec.op("BenchWait(x: float) -> y: float", stateful=True)
async def bench_wait(x: Any) -> Any:
    await asyncio.get_running_loop().create_future()
    return x


async def _cancelled(step: aexec.Step) -> float:
    began = time.perf_counter()
    step.cancel()
    try:
        await step
    except aexec.errors.CancelledError:
        return (time.perf_counter() - began) * 1e3
    raise AssertionError("the step ended before it was cancelled")


def _add_cancel(rows: list[Row], name: str, times: list[float], limit: float | None) -> None:
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    rows.append(Row("cancel", Figure(f"{name}: median of {len(times)}", statistics.median(times), "ms")))
    reached = None if limit is None else p99 <= limit
    rows.append(
        Row(
            "cancel",
            Figure(f"{name}: 99th percentile", p99, "ms", None, "" if limit is None else f"<= {limit:g}", reached),
        )
    )


# Holding the loop


async def bench_hold(rows: list[Row]) -> None:
    """A step of matmuls, large elementwise ops and a long loop, with a ticker that notices every stall."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", None, name="x")
        y = x
        for _ in range(5):
            y = aexec.ops.tanh(aexec.ops.mat_mul(y, x) * 1e-3)
            y = aexec.ops.sum(aexec.ops.exp(aexec.ops.expand_dims(y, 0)), [0])
        aexec.ops.identity(y, name="y")

    def plain(x: np.ndarray) -> np.ndarray:
        y = x
        for _ in range(5):
            y = np.tanh((y @ x) * np.float32(1e-3))
            y = np.exp(y)
        return y

    matrix = np.random.default_rng(0).random((1500, 1500), np.float32)
    ours, theirs = [], []
    async with aexec.Session(graph) as session, aexec.Session(loop_graph()) as loops:
        await session.run("y:0", {"x:0": np.ones((8, 8), np.float32)})
        for _ in range(5):
            ours.append(
                await _longest_stall(
                    asyncio.gather(session.run("y:0", {"x:0": matrix}), loops.run("last:0", {"n:0": 20_000}))
                )
            )
            theirs.append(await _longest_stall(asyncio.gather(*(asyncio.to_thread(plain, matrix) for _ in range(2)))))
        held = session.statistics().longest_hold * 1e3
    rows.append(Row("hold", Figure("longest slice of inline work", held, "ms", None, "<= 10", held <= 10)))
    worst, plainly = statistics.median(ours) * 1e3, statistics.median(theirs) * 1e3
    rows.append(
        Row("hold", Figure("longest stall another task saw, median of 5", worst, "ms", plainly, "<= 10", worst <= 10))
    )


async def bench_kernel_holds(rows: list[Row], quick: bool) -> None:
    from hold_benchmarks import ELEMENTS, LIMIT_MS, measure

    for held in await measure(elements=ELEMENTS // 10 if quick else ELEMENTS, repeats=2 if quick else 5):
        # Being as late as beside NumPy is the best possible.
        reached = held.late <= max(LIMIT_MS, held.numpy or 0.0)
        rows.append(Row("hold", Figure(held.name, held.late, "ms", held.numpy, f"<= {LIMIT_MS:g}", reached)))


async def bench_loop(rows: list[Row], quick: bool) -> None:
    from loop_benchmarks import measure

    held = await measure(quick=quick)
    rows += [Row("hold", Figure(h.name, h.late, "ms", h.plain, "<= 10", h.late <= 10)) for h in held]


async def _longest_stall(work: asyncio.Future[Any]) -> float:
    """Return the longest time in seconds for which a task that only yields was kept waiting while `work` went on.

    Other load on the machine delays it too: hence the baseline, the same NumPy calls in threads.
    """
    longest, last = 0.0, time.perf_counter()
    while not work.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest = max(longest, now - last)
        last = now
    await work
    return longest


# HTTP


def bench_http(rows: list[Row], repeats: int, mlserver: Path | None) -> None:
    from http_benchmarks import measure

    rows.extend(Row("http", figure) for figure in measure(repeats, mlserver))


async def bench_remote(rows: list[Row], repeats: int) -> None:
    from remote_benchmarks import measure_remote

    rows.extend(Row("remote", figure) for figure in await measure_remote(repeats))


def bench_servers(rows: list[Row], groups: list[str], *, quick: bool) -> None:
    from server_benchmarks import measure_hosts, measure_overload

    for group in groups:
        measure = measure_overload if group == "overload" else measure_hosts
        rows.extend(Row(group, figure) for figure in measure(1 if quick else 5, 1.0 if quick else 3.0))


# Importing


def bench_import(rows: list[Row]) -> None:
    def seconds(code: str) -> float:
        times = []
        for _ in range(REPEATS):
            script = f"import time; t = time.perf_counter(); {code}; print(time.perf_counter() - t)"
            out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
            times.append(float(out.stdout))
        return statistics.median(times)

    whole, base = seconds("import aexec"), seconds("import numpy")
    rows.append(Row("import", Figure("import aexec", whole, "s", base, "<= 0.3", whole <= 0.3)))


def bench_graph(rows: list[Row]) -> None:
    times = {}
    for size in (10_000, 100_000):
        data = chain_bytes(size)
        times[size] = median_seconds(lambda: aexec.Graph.from_bytes(data), 1, 3)  # noqa: B023
    seconds = times[100_000]
    rows.append(Row("import", Figure("graph of 100 000 nodes", seconds, "s", None, "<= 10", seconds <= 10)))
    growth = seconds / times[10_000]
    rows.append(Row("import", Figure("100 000 nodes against 10 000", growth, "times", 10.0, "about 10", growth <= 15)))


def chain_bytes(length: int) -> bytes:
    """A GraphDef of `length` nodes, made as bytes so that only the import is measured."""
    from aexec import proto

    graph_def = chain_graph(2).to_graph_def()
    template = next(n for n in graph_def.node if n.name == "last")
    previous = "last"
    nodes = []
    for index in range(length - len(graph_def.node)):
        node = proto.NodeDef()
        node.CopyFrom(template)
        node.name, node.input[0] = f"n{index}", previous
        previous = node.name
        nodes.append(node)
    graph_def.node.extend(nodes)
    return graph_def.SerializeToString()


# Kernels


async def bench_queues(rows: list[Row], repeats: int) -> None:
    from queue_benchmarks import measure

    rows.extend(Row("queues", figure) for figure in await measure(repeats))


async def bench_input(rows: list[Row], repeats: int) -> None:
    from input_benchmarks import measure

    rows.extend(Row("input", figure) for figure in await measure(repeats))


async def bench_devices(rows: list[Row], repeats: int) -> None:
    from device_benchmarks import measure

    rows.extend(Row("devices", figure) for figure in await measure(repeats))


async def bench_pools(rows: list[Row], repeats: int) -> None:
    from pool_benchmarks import measure

    rows.extend(Row("pools", figure) for figure in await measure(repeats))


def bench_cluster(rows: list[Row], repeats: int) -> None:
    from cluster_benchmarks import measure

    rows.extend(Row("cluster", figure) for figure in asyncio.run(measure(repeats)))


def bench_native(rows: list[Row], repeats: int) -> None:
    from native_benchmarks import figures

    rows.extend(Row("native", figure) for figure in figures(repeats))


def bench_ways(rows: list[Row], quick: bool) -> None:
    from way_benchmarks import figures

    rows.extend(Row("ways", figure) for figure in asyncio.run(figures(3 if quick else 21, small=quick)))


def bench_kernels(rows: list[Row], repeats: int) -> None:
    from kernel_benchmarks import LIMIT, kernel_comparisons

    for c in kernel_comparisons(repeats=repeats):
        target = f"<= {LIMIT:g}: {c.ratio:.2f}"
        rows.append(Row("kernels", Figure(c.name, c.kernel * 1e6, "us", c.numpy * 1e6, target, c.ratio <= LIMIT)))


# The table


def print_table(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="aexec benchmarks (medians)")
    for column, justify in (
        ("what", "left"),
        ("value", "right"),
        ("unit", "left"),
        ("baseline", "right"),
        ("target", "left"),
    ):
        table.add_column(column, justify=justify)
    group = ""
    for of_group, figure in rows:
        if of_group != group:
            table.add_section()
            group = of_group
        mark = "" if figure.reached is None else "  reached" if figure.reached else "  MISSED"
        base = "" if figure.baseline is None else f"{figure.baseline:.3g}"
        table.add_row(f"{of_group}: {figure.name}", f"{figure.value:.3g}", figure.unit, base, figure.target + mark)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def main() -> int:
    if sys.argv[1:2] in (["models"], ["training"], ["programs"]):
        from model_benchmarks import main as bench_models

        return bench_models(sys.argv[2:], sys.argv[1])
    if sys.argv[1:2] == ["memory"]:
        from memory_benchmarks import main as bench_memory

        return bench_memory(sys.argv[2:])
    if sys.argv[1:2] == ["building"]:
        from building_benchmarks import main as bench_building

        return bench_building(sys.argv[2:])
    if sys.argv[1:2] == ["data"]:
        from data_benchmarks import main as bench_data

        return bench_data(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    groups = (
        "step",
        "run",
        "http",
        "remote",
        "cancel",
        "hold",
        "import",
        "kernels",
        "queues",
        "input",
        "devices",
        "pools",
        "cluster",
        "overload",
        "hosts",
        "native",
        "ways",
    )
    parser.add_argument("groups", nargs="*", help=f"any of {', '.join(groups)}; default all")
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer repeats, to see that it runs")
    parser.add_argument(
        "--loop", choices=("uvloop", "asyncio"), default="uvloop", help="event loop (default %(default)s)"
    )
    parser.add_argument("--mlserver", metavar="DIR", type=Path, help="virtual environment with mlserver, for http")
    arguments = parser.parse_args()
    unknown = set(arguments.groups) - set(groups)
    if unknown:
        parser.error(f"unknown group {', '.join(sorted(unknown))}; there are {', '.join(groups)}")
    wanted = arguments.groups or groups
    rows: list[Row] = []

    async def run_all() -> None:
        if "step" in wanted:
            await bench_steps(rows, (1, 10, 100) if arguments.quick else SIZES)
        if "run" in wanted:
            await bench_run(rows)
            await bench_steps_at_once(rows, 3 if arguments.quick else 15)
        if "remote" in wanted:
            await bench_remote(rows, 20 if arguments.quick else 1000)
        if "cancel" in wanted:
            await bench_cancel(rows, 3 if arguments.quick else 20)
        if "hold" in wanted:
            await bench_hold(rows)
            await bench_loop(rows, arguments.quick)
            await bench_kernel_holds(rows, arguments.quick)
        if "queues" in wanted:
            await bench_queues(rows, 3 if arguments.quick else 15)
        if "input" in wanted:
            await bench_input(rows, 3 if arguments.quick else 15)
        if "devices" in wanted:
            await bench_devices(rows, 3 if arguments.quick else 15)
        if "pools" in wanted:
            await bench_pools(rows, 3 if arguments.quick else 15)
        pending = asyncio.all_tasks() - {asyncio.current_task()}
        if pending:
            await asyncio.wait(pending)

    if arguments.loop == "uvloop":
        import uvloop

        uvloop.run(run_all())
    else:
        asyncio.run(run_all())
    if "http" in wanted:
        bench_http(rows, 2 if arguments.quick else 5, arguments.mlserver)
    bench_servers(rows, [group for group in ("overload", "hosts") if group in wanted], quick=arguments.quick)
    if "cluster" in wanted:
        bench_cluster(rows, 3 if arguments.quick else 15)
    if "import" in wanted:
        bench_import(rows)
        bench_graph(rows)
    if "kernels" in wanted:
        bench_kernels(rows, 3 if arguments.quick else 9)
    if "native" in wanted:
        bench_native(rows, 5 if arguments.quick else 31)
    if "ways" in wanted:
        bench_ways(rows, arguments.quick)
    print_table(rows)
    if arguments.json:
        report = {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "cores": os.cpu_count(),
            "loop": arguments.loop,
            "rows": [{"group": row.group, **row.figure._asdict()} for row in rows],
        }
        Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
