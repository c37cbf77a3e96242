"""What durable sessions cost: a run against the disk's own flush, clients that share flushes, a restart.

    scripts/durable-times                  # prints a table of figures and ratios, which take two minutes
    scripts/durable-times --state DIR      # on the disk of DIR

The disk's flush is that of a file to which two pages are appended, as SQLite does for a small transaction.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from http_load import Load, measured

import aexec

_SECONDS = 4.0
_FLUSHES = 300
_ROUNDS = 5
_CLIENTS = 64
_SESSIONS = 100
_SESSION_BYTES = 10_000_000


class Server:
    """A server in a process of its own.

    Attributes:
        port: where it listens.
        seconds: from its start until it listened.
    """

    def __init__(self, state: Path) -> None:
        began = time.perf_counter()
        command = [sys.executable, "-m", "aexec", "serve", "--port", "0", "--state", str(state)]
        command += ["--max-memory-mb", "8000", "--max-session-mb", "8000", "--queue-timeout", "10s"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        found = re.search(r"127\.0\.0\.1:(\d+)", self._process.stdout.readline())
        assert found is not None
        self.port = int(found[1])
        self.seconds = time.perf_counter() - began

    def post(self, path: str, body: Any) -> Any:
        """The answer to a request; raises RuntimeError if it is an error."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        if response.status >= 400:
            raise RuntimeError(answer["error"])
        return answer

    def create(self, size: int, *, durable: bool) -> str:
        """A session with a variable of this many bytes, set to zeros; returns its handle."""
        count = size // 4
        with aexec.Graph() as graph:
            ops = aexec.ops
            variable = ops.var_handle_op("float32", [count], shared_name="v", name="v")
            ops.assign_variable_op(variable, ops.fill(aexec.constant([count]), aexec.constant(0.0)), name="set")
            ops.assign_add_variable_op(variable, ops.fill(aexec.constant([count]), aexec.constant(1.0)), name="add")
            ops.square(aexec.constant(3.0), name="square")
        body = {"graph_def": base64.b64encode(graph.to_bytes()).decode(), "durable": durable}
        handle = str(self.post("/v1/sessions", body)["session_handle"])
        self.run(handle, targets=["set"])
        return handle

    def run(self, handle: str, **fields: Any) -> Any:
        return self.post(f"/v1/sessions/{handle}:run", fields)

    def load(self, handle: str, body: Path, clients: int) -> Load:
        return asyncio.run(measured(self.port, f"/v1/sessions/{handle}:run", body, "closed", clients, _SECONDS))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def serving(state: Path) -> Iterator[Server]:
    """Context manager: a server, which is killed at the end."""
    server = Server(state)
    try:
        yield server
    finally:
        server.kill()


def flush_seconds(folder: Path) -> float:
    """The median time of appending two pages to a file and flushing it."""
    taken = []
    with (folder / "flushed").open("wb", buffering=0) as file:
        for _ in range(_FLUSHES):
            file.write(bytes(8192))
            began = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def measure_runs(folder: Path) -> None:
    """Print what durable runs take."""
    body, reading = folder / "add.json", folder / "square.json"
    body.write_text(json.dumps({"targets": ["add"]}))
    reading.write_text(json.dumps({"fetches": ["square"]}))
    with serving(folder / "runs") as server:
        plain, durable = (server.create(1024, durable=kept) for kept in (False, True))
        flushes, plains, durables, reads, plain_reads, many = [], [], [], [], [], []
        for _ in range(_ROUNDS):
            flushes.append(flush_seconds(folder))
            plains.append(server.load(plain, body, 1).accepted[0])
            durables.append(server.load(durable, body, 1))
            many.append(server.load(durable, body, _CLIENTS))
            plain_reads.append(server.load(plain, reading, 1).accepted[0])
            reads.append(server.load(durable, reading, 1).accepted[0])
        all_plain = server.load(plain, body, _CLIENTS)
    flush, run = statistics.median(flushes), statistics.median(plains)
    kept = statistics.median(load.accepted[0] for load in durables)
    ratios = [load.accepted[0] / (f + p) for load, f, p in zip(durables, flushes, plains, strict=True)]
    print(f"flush of the disk                       {flush * 1e6:9.0f} us")
    print(f"run that changes 1 kB, not durable      {run * 1e6:9.0f} us")
    print(
        f"the same, durable                       {kept * 1e6:9.0f} us  {statistics.median(ratios):.2f} x flush + run"
    )
    alike = statistics.median(r / p for r, p in zip(reads, plain_reads, strict=True))
    print(
        f"run that changes nothing, durable       {statistics.median(reads) * 1e6:9.0f} us  {alike:.3f} x not durable"
    )
    one, more = (statistics.median(load.rate for load in loads) for loads in (durables, many))
    print(f"runs per second of one client           {one:9.0f}")
    print(f"runs per second of {_CLIENTS} clients           {more:9.0f}     {more / one:.1f} x one client's")
    print(f"the same, not durable                   {all_plain.rate:9.0f}")


def measure_restart(folder: Path) -> None:
    """Print how soon a server answers that was killed with many large sessions."""
    with serving(folder / "restart") as server:
        empty = server.seconds
        handles = [server.create(_SESSION_BYTES, durable=True) for _ in range(_SESSIONS)]
    with serving(folder / "restart") as server:
        listening = server.seconds
        began = time.perf_counter()
        server.run(handles[0], fetches=["square"])
        first = time.perf_counter() - began
        for handle in handles[1:]:
            server.run(handle, fetches=["square"])
        all_of_them = time.perf_counter() - began
    print(f"start without sessions, until it listens {empty:7.2f} s")
    print(f"restart with {_SESSIONS} sessions of 10 MB      {listening:7.2f} s")
    print(f"  and the first run of one of them      {first:8.2f} s")
    print(f"  and a run of each                     {all_of_them:8.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what durable sessions cost.")
    parser.add_argument("--state", type=Path, help="a folder on the disk to measure (default: one for temporary files)")
    folder = Path(tempfile.mkdtemp(dir=parser.parse_args().state))
    try:
        measure_runs(folder)
        measure_restart(folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
