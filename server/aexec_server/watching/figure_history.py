"""`FigureHistory`: the server's figures of the last hour, a point every five seconds, for the console's charts.

A point says what happened since the point before it: runs by code, percentiles of durations, batches; and what there
was at its time: memory, queues, runs in flight.  All of it is computed from snapshots of the metrics, so counting a run
costs nothing more.  Next to read: `metrics.py`, which counts.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, cast

from aexec.errors import Code
from aexec_server.watching.metrics import FAMILIES, Family, Sample, Snapshot, increase

__all__ = ["EVERY_SECONDS", "FigureHistory", "percentiles"]

EVERY_SECONDS = 5.0
# An hour.
_MOST_POINTS = 720
# Reading the metrics takes at most one part in this many of the time: with very many hosts points are further apart.
_REST = 200
# Kinds of memory, and queues, that a point has at most: the largest ones.
_MOST_NAMES = 20
_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
# Shared resources that are counted in bytes.
_BYTES = "_bytes"
# Overload, 429, is no mistake of a client.
_CLIENT_CODES = sorted(code.name for code in Code if 400 <= code.http_status < 500 and code.http_status != 429)
_NOTHING: Mapping[tuple[str, ...], Sample] = {}

Point = dict[str, Any]


class FigureHistory:
    """The figures of the last hour.

    Args:
        snapshot: returns the metrics of all processes of the server.

    Attributes:
        points: oldest first.
        limits: the limit of each kind of memory that has one, as of the latest point.
    """

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self.points: deque[Point] = deque(maxlen=_MOST_POINTS)
        self.limits: Mapping[str, float] = {}
        self._snapshot = snapshot
        self._before: Snapshot = {}
        self._when = time.monotonic()

    async def watch(self) -> None:
        """Add a point every five seconds."""
        self._before, self._when = self._snapshot(), time.monotonic()
        cost = 0.0
        while True:
            await asyncio.sleep(max(EVERY_SECONDS, _REST * cost))
            began = time.perf_counter()
            self.add_point()
            cost = time.perf_counter() - began

    def add_point(self) -> None:
        """Add a point with what happened since the last one."""
        now, when = self._snapshot(), time.monotonic()
        grown = increase(now, self._before)
        memory, self.limits = _memory(now)
        self.points.append(
            {
                "time": round(time.time(), 3),
                "seconds": round(when - self._when, 3),
                "codes": _by_code(grown),
                "latency": _of_histogram(grown, "aexec_run_duration_seconds"),
                "in_line": _of_histogram(grown, "aexec_run_queue_seconds"),
                "lag": _of_histogram(grown, "aexec_event_loop_lag_seconds"),
                "batches": _batches(grown),
                "runs_in_flight": _gauge(now, "aexec_runs_in_flight"),
                "runs_waiting": _gauge(now, "aexec_runs_waiting"),
                "memory": memory,
                "queues": _largest({name or "of clients": size for (name,), size in _numbers(now, "aexec_queue_size")}),
            }
        )
        self._before, self._when = now, when

    def describe(self) -> dict[str, Any]:
        """Return all points, and what does not change from point to point."""
        return {
            "interval_s": EVERY_SECONDS,
            "client_codes": _CLIENT_CODES,
            "limits": dict(self.limits),
            "points": list(self.points),
        }


def percentiles(family: Family, values: Sequence[float]) -> dict[str, float] | None:
    """Return the percentiles of a histogram, in seconds; None if it has no values.

    They are interpolated between the bounds of their bucket; one beyond the last bound is that bound.

    Args:
        values: as `Histogram.values`.
    """
    counts = values[: len(family.buckets) + 1]
    total = sum(counts)
    if total <= 0:
        return None
    bounds, below = (0.0, *family.buckets), (0.0, *accumulate(counts))

    def at(share: float) -> float:
        wanted = share * total
        bucket = bisect_left(below, wanted, 1) - 1
        if bucket + 1 >= len(bounds):
            return bounds[-1]
        return bounds[bucket] + (bounds[bucket + 1] - bounds[bucket]) * (wanted - below[bucket]) / counts[bucket]

    return {name: round(at(share), 6) for name, share in _PERCENTILES.items()}


def _of_histogram(grown: Snapshot, name: str) -> dict[str, float] | None:
    values = grown.get(name, _NOTHING).get(())
    return None if values is None else percentiles(FAMILIES[name], cast("list[float]", values))


def _batches(grown: Snapshot) -> dict[str, float] | None:
    """Number of batches and mean number of their rows; None if there were none."""
    values = grown.get("aexec_batch_rows", _NOTHING).get(())
    count = sum(cast("list[float]", values)[:-1]) if values is not None else 0
    return None if not count else {"count": count, "rows": round(cast("list[float]", values)[-1] / count, 3)}


def _by_code(grown: Snapshot) -> dict[str, float]:
    codes: dict[str, float] = {}
    for (_, code), count in _numbers(grown, "aexec_runs"):
        codes[code] = codes.get(code, 0) + count
    return codes


def _memory(now: Snapshot) -> tuple[dict[str, float], dict[str, float]]:
    """Return bytes in use, and limits, by kind."""
    in_use: dict[str, float] = {"kept tensors": _gauge(now, "aexec_tensor_store_bytes")}
    limits: dict[str, float] = {}
    for (kind,), count in _numbers(now, "aexec_memory_bytes"):
        (in_use if kind == "in_use" else limits)["tensors"] = count
    for (device, kind), count in _numbers(now, "aexec_gpu_pool_bytes"):
        if kind != "peak":
            (in_use if kind == "in_use" else limits)[device] = count
    for into, name in ((in_use, "aexec_shared_in_use"), (limits, "aexec_shared_limit")):
        into |= {kind.removesuffix(_BYTES): n for (kind,), n in _numbers(now, name) if kind.endswith(_BYTES)}
    return _largest(in_use), limits


def _largest(amounts: dict[str, float]) -> dict[str, float]:
    if len(amounts) <= _MOST_NAMES:
        return amounts
    return {name: amounts[name] for name in heapq.nlargest(_MOST_NAMES, amounts, key=amounts.__getitem__)}


def _gauge(now: Snapshot, name: str) -> float:
    return sum(count for _, count in _numbers(now, name))


def _numbers(snapshot: Snapshot, name: str) -> list[tuple[tuple[str, ...], float]]:
    """Return labels and values of a counter or gauge."""
    return [(labels, cast("float", value)) for labels, value in snapshot.get(name, _NOTHING).items()]
