"""Benchmarks of sessions in a server, by gRPC against HTTP, for `benchmarks.py`.

The server is a process of its own.  Runs by both protocols take turns, on two sessions of the same graph: a run of one
op, one after another and 32 at a time, and one with a tensor of 8 MB both ways; and the processor time that a run of
one op takes in client and server together.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmark_figure import Figure
from http_benchmarks import processor_seconds

import aexec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.support.server_process import ServerProcess

__all__ = ["measure_remote"]

_AT_ONCE = 32
_LARGE_BYTES = 8_000_000


@contextlib.contextmanager
def _addresses() -> Iterator[tuple[str, str, int]]:
    """Context manager: a server's addresses for HTTP and gRPC, and its process."""
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder), watch=False, grpc_port=0)
        try:
            server.until(lambda: "serves gRPC on" in server.log)
            told = re.search(r"serves gRPC on (\S+)", server.log)
            assert told is not None
            yield f"http://127.0.0.1:{server.port}", told[1], server.pid
        finally:
            server.stop()


async def _in_turns(works: list[Callable[[], Awaitable[Any]]], repeats: int) -> list[float]:
    """The median time of each work in seconds, of which one is done after the other."""
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, taken in zip(works, seconds, strict=True):
            began = time.perf_counter()
            await work()
            taken.append(time.perf_counter() - began)
    return [statistics.median(taken) for taken in seconds]


async def measure_remote(repeats: int) -> list[Figure]:
    """The figures; `repeats` is the number of runs of one op by each protocol."""
    with aexec.Graph() as graph:
        aexec.ops.square(aexec.placeholder("float32", [None], name="x"), name="y")
    small, large = np.float32([0.5]), np.ones(_LARGE_BYTES // 4, np.float32)
    with _addresses() as (http, grpc, pid):

        async def processor_time(call: Callable[[Any], Awaitable[Any]]) -> float:
            began = time.process_time() + processor_seconds(pid)
            for _ in range(repeats):
                await call(small)
            return (time.process_time() + processor_seconds(pid) - began) / repeats

        async with aexec.connect(http, graph) as by_http, aexec.connect(grpc, graph) as by_grpc:
            calls = [session.make_callable("y:0", ["x:0"]) for session in (by_grpc, by_http)]

            def one(value: Any) -> list[Callable[[], Awaitable[Any]]]:
                return [lambda call=call: call(value) for call in calls]  # type: ignore[misc]

            def many(call: Callable[[Any], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
                return lambda: asyncio.gather(*(call(small) for _ in range(_AT_ONCE)))

            await _in_turns(one(small), 50)
            one_op = await _in_turns(one(small), repeats)
            processor = [await processor_time(call) for call in calls]
            at_once = await _in_turns(list(map(many, calls)), max(1, repeats // 10))
            await _in_turns(one(large), 3)
            both_ways = await _in_turns(one(large), max(1, repeats // 20))
    return [
        _figure("a run of one op by gRPC, against HTTP", one_op, 1),
        _figure("the same, processor time", processor, 1),
        _figure(f"{_AT_ONCE} runs of one op at once, each", at_once, _AT_ONCE),
        _figure("a run with 8 MB both ways", both_ways, 1),
    ]


def _figure(name: str, seconds: list[float], runs: int) -> Figure:
    by_grpc, by_http = (each / runs * 1e6 for each in seconds)
    return Figure(name, by_grpc, "us", by_http)
