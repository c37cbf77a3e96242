"""The metrics of the server: `Metrics` counts, `Family` describes one metric.

Counting a run takes a few additions in the event loop's thread; the Prometheus form (`handlers/metrics_page.py`) is
made only on request. A `Snapshot` is plain data that a session host sends to the front, which adds the hosts' snapshots
up. No label is the id of a session or a run, and every label has a bounded number of values.
Next to read: `core/run_journal.py`, which counts the runs.

A session host reports by how much its counters grew (`increase`), so that the front keeps one sum of all hosts
(`Totals`), whose size does not depend on how many there are or were.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aexec_server.clients.client_shares import ClientShares

__all__ = [
    "FAMILIES",
    "CancelCause",
    "Counter",
    "Family",
    "Histogram",
    "LabelledHistogram",
    "Metrics",
    "Sample",
    "Snapshot",
    "Totals",
    "increase",
    "is_gauge",
    "merged",
    "snapshot_from_json",
    "snapshot_to_json",
]

# Family → labels → number; for a histogram, the number of values in each bucket (not cumulative), then their sum.
Sample = float | list[float]
Snapshot = Mapping[str, Mapping[tuple[str, ...], Sample]]
Gauge = Callable[[], Mapping[tuple[str, ...], float]]

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_KERNEL_SECONDS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_MAX_LABELS = 500
_OTHER = "other"


class CancelCause:
    """Values of label `reason` of `aexec_cancellations_total`: why a run ended early."""

    API = "api"
    DISCONNECT = "disconnect"
    DEADLINE = "deadline"
    SHUTDOWN = "shutdown"
    OVERLOAD = "overload"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric.

    Attributes:
        name: as printed, without the `_total` of counters.
        kind: `counter`, `gauge` or `histogram`.
        help: what it measures, as a sentence.
        labels: names of its labels.
        buckets: upper bounds of the buckets of a histogram.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


FAMILIES = {
    family.name: family
    for family in (
        Family(
            "aexec_runs",
            "counter",
            "Runs that ended, by model (empty for sessions of clients) and canonical code.",
            ("model", "code"),
        ),
        Family(
            "aexec_run_duration_seconds",
            "histogram",
            "Seconds from the request of a run until its answer was made.",
            (),
            _SECONDS,
        ),
        Family("aexec_run_queue_seconds", "histogram", "Seconds that runs waited in line.", (), _SECONDS),
        Family("aexec_runs_in_flight", "gauge", "Runs whose body is received and whose answer is not yet made."),
        Family("aexec_runs_waiting", "gauge", "Runs that wait in line."),
        Family("aexec_cancellations", "counter", "Runs that were cancelled, by reason.", ("reason",)),
        Family(
            "aexec_batch_halvings",
            "counter",
            "Batches, and parts of batches, that failed and were run again in halves, by model.",
            ("model",),
        ),
        Family("aexec_batch_rows", "histogram", "Rows of the batches that were run.", (), _ROWS),
        Family(
            "aexec_cancel_latency_seconds",
            "histogram",
            "Seconds from a cancellation or a deadline until the run was over; not counted if the client left.",
            (),
            _SECONDS,
        ),
        Family(
            "aexec_kernel_duration_seconds",
            "histogram",
            "Seconds that kernels of traced runs computed; see the setting kernel_samples.",
            ("op", "device"),
            _KERNEL_SECONDS,
        ),
        Family(
            "aexec_event_loop_lag_seconds",
            "histogram",
            "Seconds by which timers of the event loop were late, four times a second (once in session hosts).",
            (),
            _SECONDS,
        ),
        Family("aexec_grpc_calls", "counter", "gRPC calls that ended, by method and code.", ("method", "code")),
        Family("aexec_queue_size", "gauge", "Elements in queues: of models by name, of clients in sum.", ("queue",)),
        Family("aexec_tensor_store_bytes", "gauge", "Bytes of tensors that sessions keep under handles."),
        Family("aexec_memory_bytes", "gauge", "Bytes of tensors of sessions: in use, and the limit.", ("kind",)),
        Family("aexec_gpu_pool_bytes", "gauge", "Bytes of GPU memory: in use, peak, and limit.", ("device", "kind")),
        Family("aexec_shared_in_use", "gauge", "Amount of each shared resource that all clients use.", ("kind",)),
        Family("aexec_shared_limit", "gauge", "Limit of each shared resource.", ("kind",)),
        Family(
            "aexec_shared_largest", "gauge", "Amount of each shared resource that the client with most uses.", ("kind",)
        ),
        Family(
            "aexec_shared_refusals",
            "counter",
            "Requests refused because of their client's share of a resource.",
            ("kind",),
        ),
        Family("aexec_sessions", "gauge", "Open sessions."),
        Family("aexec_connections", "gauge", "Open connections of clients."),
        Family("aexec_hosts", "gauge", "Session hosts that are ready."),
        Family("aexec_host_restarts", "counter", "Session hosts that ended unexpectedly."),
    )
}


class Counter:
    """Counts by labels; after a few hundred combinations, further ones are counted together."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], float] = {}

    def add(self, labels: tuple[str, ...]) -> None:
        counts = self._counts
        if labels not in counts:
            labels = _bounded(labels, len(counts))
            counts.setdefault(labels, 0)
        counts[labels] += 1

    @property
    def total(self) -> int:
        """Sum over all labels."""
        return int(sum(self._counts.values()))

    def samples(self) -> Mapping[tuple[str, ...], Sample]:
        return dict(self._counts)


class Histogram:
    """Counts values in buckets."""

    __slots__ = ("_bounds", "_values")

    def __init__(self, family: Family) -> None:
        self._bounds = family.buckets
        self._values = [0.0] * (len(self._bounds) + 2)

    def observe(self, value: float) -> None:
        values = self._values
        values[bisect_left(self._bounds, value)] += 1
        values[-1] += value

    @property
    def values(self) -> list[float]:
        """Number of values in each bucket, number of values beyond the last bound, and the sum of the values."""
        return list(self._values)

    def samples(self) -> Mapping[tuple[str, ...], Sample]:
        return {(): self.values}


class LabelledHistogram:
    """A histogram per combination of labels; after a few hundred, further ones share a histogram."""

    __slots__ = ("_family", "_histograms")

    def __init__(self, family: Family) -> None:
        self._family = family
        self._histograms: dict[tuple[str, ...], Histogram] = {}

    def observe(self, value: float, labels: tuple[str, ...]) -> None:
        found = self._histograms.get(labels)
        if found is None:
            found = self._histograms.setdefault(_bounded(labels, len(self._histograms)), Histogram(self._family))
        found.observe(value)

    def samples(self) -> Mapping[tuple[str, ...], Sample]:
        return {labels: histogram.values for labels, histogram in self._histograms.items()}


def _bounded(labels: tuple[str, ...], known: int) -> tuple[str, ...]:
    return labels if known < _MAX_LABELS else (_OTHER,) * len(labels)


class Metrics:
    """The metrics of one server, or of one of its processes.

    Attributes:
        runs: ended runs by model and code.
        cancellations: runs that ended early, by cause.
        batch_halvings: batches that were retried in halves, by model.
        batch_rows: rows of the batches that were run.
        calls: gRPC calls by method and code.
        run_seconds, queue_seconds, cancel_seconds, lag_seconds: the histograms whose families they name.
        kernel_seconds: kernel times by op and device.
    """

    def __init__(self) -> None:
        self._gauges: dict[str, Gauge] = {}
        self._shares: list[ClientShares] = []
        self.runs = Counter()
        self.cancellations = Counter()
        self.batch_halvings = Counter()
        self.batch_rows = Histogram(FAMILIES["aexec_batch_rows"])
        self.calls = Counter()
        self.run_seconds = Histogram(FAMILIES["aexec_run_duration_seconds"])
        self.queue_seconds = Histogram(FAMILIES["aexec_run_queue_seconds"])
        self.cancel_seconds = Histogram(FAMILIES["aexec_cancel_latency_seconds"])
        self.lag_seconds = Histogram(FAMILIES["aexec_event_loop_lag_seconds"])
        self.kernel_seconds = LabelledHistogram(FAMILIES["aexec_kernel_duration_seconds"])

    def gauge(self, name: str, read: Gauge) -> None:
        """Register `read`, which returns a gauge's values by labels whenever a snapshot is taken."""
        assert FAMILIES[name].kind == "gauge"
        self._gauges[name] = read

    def add_shares(self, shares: ClientShares) -> None:
        """Report what clients hold of a shared resource."""
        self._shares.append(shares)

    def _of_shares(self) -> dict[str, Mapping[tuple[str, ...], Sample]]:
        return {
            "aexec_shared_in_use": {(shares.kind,): shares.in_use for shares in self._shares},
            "aexec_shared_limit": {(shares.kind,): shares.most for shares in self._shares},
            "aexec_shared_largest": {(shares.kind,): shares.largest for shares in self._shares},
            "aexec_shared_refusals": {(shares.kind,): shares.refused for shares in self._shares},
        }

    def snapshot(self) -> Snapshot:
        """Return the current values of all metrics."""
        counted: dict[str, Mapping[tuple[str, ...], Sample]] = {
            "aexec_runs": self.runs.samples(),
            "aexec_cancellations": self.cancellations.samples(),
            "aexec_batch_halvings": self.batch_halvings.samples(),
            "aexec_batch_rows": self.batch_rows.samples(),
            "aexec_grpc_calls": self.calls.samples(),
            "aexec_run_duration_seconds": self.run_seconds.samples(),
            "aexec_run_queue_seconds": self.queue_seconds.samples(),
            "aexec_cancel_latency_seconds": self.cancel_seconds.samples(),
            "aexec_event_loop_lag_seconds": self.lag_seconds.samples(),
            "aexec_kernel_duration_seconds": self.kernel_seconds.samples(),
        }
        return counted | self._of_shares() | {name: dict(read()) for name, read in self._gauges.items()}


def snapshot_to_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot as JSON data, with labels as lists since JSON's keys are strings."""
    return {name: [[list(labels), sample] for labels, sample in of.items()] for name, of in snapshot.items()}


def snapshot_from_json(fields: Mapping[str, Any]) -> Snapshot:
    return {name: {tuple(labels): sample for labels, sample in of} for name, of in fields.items()}


def is_gauge(name: str) -> bool:
    """True if the family of this name is a gauge, not a count since the start."""
    return FAMILIES[name].kind == "gauge"


def increase(now: Snapshot, before: Snapshot) -> Snapshot:
    """Return the growth of a process's counters and histograms, and the gauges that have changed."""
    grown: dict[str, Mapping[tuple[str, ...], Sample]] = {}
    for name, samples in now.items():
        known = before.get(name, {})
        if samples == known:
            continue
        if is_gauge(name):
            grown[name] = samples
        else:
            changed = {labels: sample for labels, sample in samples.items() if sample != known.get(labels)}
            grown[name] = {
                labels: _difference(sample, known[labels]) if labels in known else sample
                for labels, sample in changed.items()
            }
    return grown


def merged(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Return the sums over several processes."""
    totals = Totals()
    for snapshot in snapshots:
        totals.add(snapshot)
    return totals.sums


class Totals:
    """Sums of the snapshots of several processes.

    Attributes:
        sums: family → labels → sum.
    """

    def __init__(self) -> None:
        self.sums: dict[str, dict[tuple[str, ...], Sample]] = {}

    def add(self, snapshot: Snapshot) -> None:
        for name, samples in snapshot.items():
            of_name = self.sums.setdefault(name, {})
            for labels, sample in samples.items():
                known = of_name.get(labels)
                of_name[labels] = sample if known is None else _sum(known, sample)


def _sum(a: Sample, b: Sample) -> Sample:
    if isinstance(a, list):
        assert isinstance(b, list)
        return [x + y for x, y in zip(a, b, strict=True)]
    assert not isinstance(b, list)
    return a + b


def _difference(a: Sample, b: Sample) -> Sample:
    if isinstance(a, list):
        assert isinstance(b, list)
        return [x - y for x, y in zip(a, b, strict=True)]
    assert not isinstance(b, list)
    return a - b
