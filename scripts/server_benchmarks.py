"""Benchmarks of a server under overload, and of session hosts, for `benchmarks.py`.

Servers and the load have processes of their own.  `overload`:

* the slowest hundredth of the answers to 200 clients of a one-op graph, against the median, and their rate;
* at twice the capacity: the slowest hundredth of the accepted requests, against the same at capacity, and how soon the
  others are refused;
* 500 endless loops with a deadline of 2 s: the time until the last of them is answered;
* 1000 clients that vanish: the time until all their work has ended.

`hosts`: private memory of a host, the extra cost of a run compared with one process, the rate of two hosts against one
process with runs of some milliseconds, on the loop and in threads, and what clients of other sessions notice when a
host is killed under load; and, for 64 sessions in hosts of their own, memory, the time to make one, and the rate of
runs, against two hosts that share them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import selectors
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmark_figure import Figure
from http_benchmarks import processor_seconds
from http_load import Load, measured

import aexec
from aexec import ops

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.support.server_process import ServerProcess
from tests.support.watcher import process_tree

__all__ = ["measure_hosts", "measure_overload"]

_BODY = json.dumps({"feeds": {"x:0": [0.5]}, "fetches": ["y:0"]}).encode()
_DEADLINE = 2.0
# Length of the chain, which takes some milliseconds on the loop.
_LENGTH = 3000
_SLOTS = 16
# Seconds of load before measuring.
_WARM_UP = 5.0


@contextlib.contextmanager
def _server(**options: object) -> Iterator[ServerProcess]:
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder), **options)
        try:
            yield server
        finally:
            server.stop()


def _graph(build: Callable[[object], object]) -> bytes:
    """Return a graph in which `y` is what `build` makes of a vector `x`."""
    with aexec.Graph() as graph:
        ops.identity(build(aexec.placeholder("float32", [None], name="x")), name="y")
    return graph.to_bytes()


def _chain(x: object) -> object:
    for _ in range(_LENGTH):
        x = ops.tanh(x)
    return x


def _endless(x: object) -> object:
    return aexec.while_loop(lambda i: i > -1.0, lambda i: i + 1.0, [0.0])[0]


def _waiting(x: object) -> object:
    queue = ops.fifo_queue_v2(component_types=["float32"])
    return ops.queue_dequeue_v2(queue, component_types=["float32"])[0]


def _load(server: ServerProcess, handle: str, kind: str, amount: float, seconds: float) -> Load:
    return _load_of(server, f"/v1/sessions/{handle}:run", kind, amount, seconds)


def _load_of(server: ServerProcess, paths: str, kind: str, amount: float, seconds: float) -> Load:
    with tempfile.NamedTemporaryFile() as file:
        file.write(_BODY)
        file.flush()
        return asyncio.run(measured(server.port, paths, Path(file.name), kind, amount, seconds))


# Overload


def measure_overload(repeats: int, seconds: float) -> list[Figure]:
    """Return all figures of `overload`: medians of `repeats` measurements of `seconds` of load."""
    with _server(watch=False) as server:
        figures = [*_many_clients(server, repeats, seconds), *_twice_the_capacity(server, repeats, seconds)]
    return [*figures, *_endless_loops(repeats), _vanished_clients(repeats)]


def _many_clients(server: ServerProcess, repeats: int, seconds: float) -> Iterator[Figure]:
    handle = server.create(_graph(ops.square))
    _load(server, handle, "closed", 8, 0.5)
    loads = [[_load(server, handle, "closed", clients, seconds) for clients in (32, 200)] for _ in range(repeats)]
    p50, p99 = (1e3 * statistics.median(many.accepted[i] for _, many in loads) for i in (0, 1))
    ratio = statistics.median(many.accepted[1] / many.accepted[0] for _, many in loads)
    yield Figure("99th percentile of 200 clients", p99, "ms", p50, f"<= 5: {ratio:.2f}", ratio <= 5)
    few, many = (statistics.median(pair[i].rate for pair in loads) for i in (0, 1))
    ratio = statistics.median(many.rate / few.rate for few, many in loads)
    yield Figure("rate of 200 clients, beside 32", many, "runs/s", few, f">= 0.9: {ratio:.2f}", ratio >= 0.9)


def _twice_the_capacity(server: ServerProcess, repeats: int, seconds: float) -> Iterator[Figure]:
    handle = server.create(_graph(_chain))
    _load(server, handle, "closed", _SLOTS, 1.0)
    pairs = []
    for _ in range(repeats):
        rate = _load(server, handle, "closed", _SLOTS, seconds).rate
        full, twice = (_load(server, handle, "offered", times * rate, seconds) for times in (1, 2))
        pairs.append((full, twice))
    p99, base = (1e3 * statistics.median(pair[i].accepted[1] for pair in pairs) for i in (1, 0))
    ratio = statistics.median(twice.accepted[1] / full.accepted[1] for full, twice in pairs)
    yield Figure("99th percentile at twice the capacity", p99, "ms", base, f"<= 2: {ratio:.2f}", ratio <= 2)
    rate, base = (statistics.median(pair[i].rate for pair in pairs) for i in (1, 0))
    ratio = statistics.median(twice.rate / full.rate for full, twice in pairs)
    yield Figure("rate at twice the capacity", rate, "runs/s", base, f">= 0.9: {ratio:.2f}", ratio >= 0.9)
    refused = [twice.refused for _, twice in pairs if twice.refused]
    if refused:
        late = 1e3 * statistics.median(one[1] for one in refused)
        base = 1e3 * statistics.median(one[0] for one in refused)
        yield Figure("the others are refused, 99th percentile", late, "ms", base, "<= 50", late <= 50)


def _endless_loops(repeats: int, loops: int = 500, sessions: int = 100) -> Iterator[Figure]:
    last, health = [], []
    with _server(run_slots=loops) as server:
        handles = [server.create(_graph(_endless)) for _ in range(sessions)]
        options = {"timeout_in_ms": round(1000 * _DEADLINE)}
        for _ in range(repeats):
            with server.watched() as watch:
                sent = _ask(server, [handles[i % sessions] for i in range(loops)], options=options)
                last.append(_last_answer(sent) - _DEADLINE)
            health.append(watch.worst_raw)
        for handle in handles:
            server.delete(handle)
    late, worst = 1e3 * statistics.median(last), 1e3 * statistics.median(health)
    yield Figure(f"{loops} endless loops, the last after its deadline", late, "ms", None, "<= 100", late <= 100)
    yield Figure("health beside them, at most", worst, "ms", None, "<= 100", worst <= 100)


def _ask(server: ServerProcess, handles: list[str], **fields: object) -> dict[socket.socket, float]:
    """Send a run to each session over a connection of its own; return connection → time of sending."""
    sent = {}
    for handle in handles:
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        sent[connection] = time.monotonic()
        server.send_run(connection, handle, fetches=["y"], **fields)
    return sent


def _last_answer(sent: dict[socket.socket, float]) -> float:
    """Return the longest time in seconds from a request to its answer."""
    longest = 0.0
    with selectors.DefaultSelector() as selector:
        for connection in sent:
            selector.register(connection, selectors.EVENT_READ)
        for _ in sent:
            while not (ready := selector.select()):
                pass
            connection = ready[0][0].fileobj
            assert isinstance(connection, socket.socket)
            longest = max(longest, time.monotonic() - sent[connection])
            selector.unregister(connection)
            connection.close()
    return longest


def _vanished_clients(repeats: int, clients: int = 1000) -> Figure:
    took = []
    with _server(watch=False, run_slots=clients, max_runs=2 * clients) as server:
        handle = server.create(_graph(_waiting))
        for _ in range(repeats):
            sent = _ask(server, [handle] * clients)
            server.until(lambda: sum(run.get("running", 0) for run in server.runs(handle)) == clients, 60)
            began = time.monotonic()
            for connection in sent:
                connection.close()
            # Not by listing the runs: with a thousand of them, that alone takes the server 20 ms and more.
            server.until(lambda: not _runs_in_flight(server, handle))
            took.append(1e3 * (time.monotonic() - began))
        server.delete(handle)
    late = statistics.median(took)
    return Figure(f"{clients} clients vanish, until nothing of theirs runs", late, "ms", None, "<= 50", late <= 50)


def _runs_in_flight(server: ServerProcess, handle: str) -> int:
    return int(server.call("GET", f"/v1/sessions/{handle}").body["runs_in_flight"])


# Hosts


def measure_hosts(repeats: int, seconds: float) -> list[Figure]:
    """Return all figures of `hosts`."""
    with _server(watch=False) as one, _server(watch=False, hosts=2) as two:
        own = statistics.median(_megabytes(pid, "Private_") for pid in two.hosts)
        figures = [Figure("memory of a host's own", own, "MB", None, "<= 40", own <= 40)]
        figures += [_cost_of_a_run(one, two, repeats, seconds)]
        figures += _rate(one, two, repeats, seconds, "on the loop", _graph(_chain))
        figures += _rate(one, two, repeats, seconds, "in threads", _graph(_products))
        figures += _own_hosts(two, repeats, seconds)
    return [*figures, *_killed(seconds)]


def _megabytes(pid: int, kind: str) -> float:
    """Return part of a process's memory: `Private_` is not shared; `Pss:` divides shared pages among processes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(kind)) / 1024


def _cost_of_a_run(one: ServerProcess, two: ServerProcess, repeats: int, seconds: float) -> Figure:
    handles = [(server, server.create(_graph(ops.square))) for server in (one, two)]
    pairs = [[1e6 * _load(*handle, "closed", 1, seconds).accepted[0] for handle in handles] for _ in range(repeats)]
    more = statistics.median(hosted - alone for alone, hosted in pairs)
    base = statistics.median(alone for alone, _ in pairs)
    return Figure("a run takes longer than in one process, by", more, "us", base, "<= 150", more <= 150)


def _own_hosts(two: ServerProcess, repeats: int, seconds: float, count: int = 64) -> Iterator[Figure]:
    """Compare a server whose sessions have hosts of their own with one whose sessions share two hosts."""
    graph = _graph(ops.square)
    with _server(watch=False, hosts="auto") as own:
        servers = (two, own)
        made = {server: [_timed(server, graph) for _ in range(count)] for server in servers}
        paths = {s: ",".join([f"/v1/sessions/{handle}:run" for _, handle in made[s]]) for s in servers}
        together = sum(_megabytes(pid, "Pss:") for pid in own.hosts)
        yield Figure(
            f"memory of {count} sessions in hosts of their own", together, "MB", None, "<= 1024", together <= 1024
        )
        base, took = (1e3 * statistics.median(seconds for seconds, _ in made[server]) for server in servers)
        ratio = took / base
        yield Figure("making a session in a host of its own", took, "ms", base, f"<= 1.2: {ratio:.2f}", ratio <= 1.2)
        # The first round compiles the plans.
        _, *rates = [
            [_load_of(s, paths[s], "closed", count, seconds).rate for s in servers] for _ in range(repeats + 1)
        ]
        base, rate = (statistics.median(pair[i] for pair in rates) for i in (0, 1))
        ratio = statistics.median(alone / shared for shared, alone in rates)
        name = f"rate of runs over {count} hosts, beside two"
        yield Figure(name, rate, "runs/s", base, f">= 1: {ratio:.2f}", ratio >= 1)
    for _, handle in made[two]:
        two.delete(handle)


def _timed(server: ServerProcess, graph: bytes) -> tuple[float, str]:
    """Return the seconds to make a session, and its handle; a pause comes before, as between other clients."""
    time.sleep(0.1)
    began = time.perf_counter()
    handle = server.create(graph)
    return time.perf_counter() - began, handle


def _products(x: object) -> object:
    """Some milliseconds of kernels in worker threads, so that a process uses more than one core by itself."""
    m = ops.reshape(ops.tile(x, [90_000]), [300, 300])
    for _ in range(3):
        m = ops.tanh(ops.mat_mul(m, m))
    return ops.sum(m, [0, 1])


def _rate(
    one: ServerProcess, two: ServerProcess, repeats: int, seconds: float, where: str, graph: bytes
) -> Iterator[Figure]:
    """Measure runs of some milliseconds in two sessions, of which each of two hosts has one.

    The load has two processes of its own, which need a hundredth of a core, taken from the server if there are only two
    cores.
    """
    handles = {server: [server.create(graph) for _ in range(2)] for server in (one, two)}

    def rate(server: ServerProcess, seconds: float) -> tuple[float, float]:
        """Return runs per second, and processor seconds per run of all processes of the server."""
        before = _processor_seconds(server)
        with ThreadPoolExecutor(2) as threads:
            loads = list(threads.map(lambda h: _load(server, h, "closed", 4, seconds), handles[server]))
        count = sum(load.rate * load.seconds for load in loads)
        return sum(load.rate for load in loads), (_processor_seconds(server) - before) / count

    for server in handles:
        rate(server, _WARM_UP)  # until each process has compiled its plan
    pairs = [(rate(one, seconds), rate(two, seconds)) for _ in range(repeats)]
    ratio = statistics.median(hosted[0] / alone[0] for alone, hosted in pairs)
    base, hosted = (statistics.median(pair[i][0] for pair in pairs) for i in (0, 1))
    name = f"rate of two hosts {where}, beside one process"
    aim = f">= 1.5: {ratio:.2f}" if where == "on the loop" else f"{ratio:.2f}"
    yield Figure(name, hosted, "runs/s", base, aim, ratio >= 1.5 or where != "on the loop")
    base, hosted = (1e3 * statistics.median(pair[i][1] for pair in pairs) for i in (0, 1))
    yield Figure(f"processor's time of a run {where} with hosts, beside one process", hosted, "ms", base)
    for server, sessions in handles.items():
        for handle in sessions:
            server.delete(handle)


def _processor_seconds(server: ServerProcess) -> float:
    """Return the processor seconds that all processes of a server have used."""
    return sum(map(processor_seconds, process_tree(server.pid)))


def _killed(seconds: float) -> Iterator[Figure]:
    """Measure the effect of killing a host while clients of both hosts send load."""
    with _server(watch=False, hosts=2) as server:
        handles = [server.create(_graph(_chain)) for _ in range(2)]
        with ThreadPoolExecutor(2) as threads:
            loads = [threads.submit(_load, server, handle, "closed", 4, seconds) for handle in handles]
            time.sleep(0.5 * seconds)
            before = server.hosts
            os.kill(before[-1], signal.SIGKILL)
            replaced = server.until(lambda: len(set(server.hosts) - set(before)) == 1)
            statuses = [load.result().statuses for load in loads]
        server.may_log_tracebacks = True
    errors = [sum(count for status, count in one.items() if status not in ("200", "429")) for one in statuses]
    yield Figure("kill -9 of a host: errors of the other session", min(errors), "", max(errors), "0", min(errors) == 0)
    yield Figure("until another host is there", 1e3 * replaced, "ms", None)
