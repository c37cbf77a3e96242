"""`FigureHistory`: the points of the last hour, and the percentiles of histograms."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from aexec_server.watching.figure_history import EVERY_SECONDS, FigureHistory, percentiles
from aexec_server.watching.metrics import FAMILIES, Histogram, Metrics

from tests.support.virtual_clock import run_virtual

SECONDS = FAMILIES["aexec_run_duration_seconds"]


def seen(*values: float) -> list[float]:
    histogram = Histogram(SECONDS)
    for value in values:
        histogram.observe(value)
    return histogram.values


def test_percentiles_lie_inside_the_bucket_of_their_value() -> None:
    values = seen(*[0.0007] * 90, *[0.02] * 8, *[3.0] * 2)
    found = percentiles(SECONDS, values)
    assert found is not None
    assert 0.0005 < found["p50"] < 0.001 and 0.01 < found["p95"] <= 0.025 and 2.5 < found["p99"] <= 5.0


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([], None),
        ([100.0], {"p50": 60.0, "p95": 60.0, "p99": 60.0}),
        ([0.0], {"p50": 0.00025, "p95": 0.000475, "p99": 0.000495}),
    ],
)
def test_percentiles_of_few_values(values: list[float], wanted: dict[str, float] | None) -> None:
    assert percentiles(SECONDS, seen(*values)) == wanted


def test_point_says_what_happened_since_the_last_one() -> None:
    metrics = Metrics()
    metrics.gauge("aexec_runs_in_flight", lambda: {(): 3})
    metrics.gauge("aexec_memory_bytes", lambda: {("in_use",): 10, ("limit",): 100})
    metrics.gauge("aexec_queue_size", lambda: {("m/q",): 5, ("",): 2})
    history = FigureHistory(metrics.snapshot)
    for code in ("OK", "OK", "NOT_FOUND"):
        metrics.runs.add(("m", code))
        metrics.run_seconds.observe(0.002)
    metrics.batch_rows.observe(3)
    metrics.batch_rows.observe(5)
    history.add_point()
    metrics.runs.add(("", "INTERNAL"))
    history.add_point()
    first, second = history.points
    assert first["codes"] == {"OK": 2, "NOT_FOUND": 1} and second["codes"] == {"INTERNAL": 1}
    assert first["latency"]["p50"] > 0.001 and second["latency"] is None
    assert first["batches"] == {"count": 2, "rows": 4} and second["batches"] is None
    assert first["runs_in_flight"] == second["runs_in_flight"] == 3
    assert first["memory"]["tensors"] == 10 and history.limits["tensors"] == 100
    assert first["queues"] == {"m/q": 5, "of clients": 2}
    described = history.describe()
    assert "NOT_FOUND" in described["client_codes"]
    assert not {"INTERNAL", "RESOURCE_EXHAUSTED", "OK"} & set(described["client_codes"])


def test_point_names_the_largest_queues() -> None:
    metrics = Metrics()
    metrics.gauge("aexec_queue_size", lambda: {(f"m/q{i}",): float(i) for i in range(90)})
    history = FigureHistory(metrics.snapshot)
    history.add_point()
    assert sorted(history.points[0]["queues"].values()) == list(range(70, 90))


def watched(history: FigureHistory, seconds: float) -> None:
    async def watch() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await history.watch()

    run_virtual(watch())


def test_hour_is_kept() -> None:
    history = FigureHistory(Metrics().snapshot)
    watched(history, 3 * EVERY_SECONDS + 1)
    assert len(history.points) == 3
    for _ in range(1000):
        history.add_point()
    assert len(history.points) * EVERY_SECONDS == 3600
