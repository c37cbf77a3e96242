"""`GET /metrics`: the server's metrics in the Prometheus formats.

With session hosts the front answers, for all processes together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics

from aexec.hosting import OnCancel, run_in_thread
from aexec_server.clients.callers import Scope
from aexec_server.core.routes import Route
from aexec_server.core.server_state import Server
from aexec_server.http.bodies import accepts
from aexec_server.watching.metrics import FAMILIES, Family, Sample, Snapshot

__all__ = ["routes"]

_PATHS = ("/metrics", "/monitoring/prometheus/metrics")


def routes(server: Server) -> list[Route]:
    """Return the routes of the metrics, under the usual name and that of TensorFlow Serving."""
    process = CollectorRegistry()
    ProcessCollector(registry=process)

    async def metrics(request: web.Request) -> web.Response:
        await server.queue_sizes.wait()
        now = _Collected(server.all_metrics(server.snapshot()), process)
        write, media = _format(request)
        # In a thread: process metrics read files, and much text is written.
        text = await run_in_thread(lambda: write(now), on_cancel=OnCancel.ABANDON)
        return web.Response(body=text, headers={"Content-Type": media, "Vary": "Accept"})

    scope = Scope.OPEN if server.config.open_metrics else Scope.RUN
    about = "Metrics for Prometheus"
    return [Route("GET", path, metrics, about, None, "Metrics", traced=False, scope=scope) for path in _PATHS]


def _format(request: web.Request) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """Return the writer of metrics, and its media type: OpenMetrics if that is accepted first, else Prometheus' own."""
    for media in accepts(request):
        if media == "application/openmetrics-text":
            return openmetrics.generate_latest, openmetrics.CONTENT_TYPE_LATEST
        if media in ("text/plain", "text/*", "*/*"):
            break
    return generate_latest, CONTENT_TYPE_PLAIN_0_0_4


class _Collected(CollectorRegistry):
    """A snapshot as a registry, and what another one has."""

    def __init__(self, snapshot: Snapshot, other: CollectorRegistry) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._other = other

    def collect(self) -> Iterator[Metric]:
        for name, family in FAMILIES.items():
            samples = self._snapshot.get(name)
            if samples is not None:
                yield _metric(family, samples)
        yield from self._other.collect()


def _metric(family: Family, samples: Mapping[tuple[str, ...], Sample]) -> Metric:
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, values in samples.items():
            assert isinstance(values, list)
            histogram.add_metric(labels, list(_cumulative(family.buckets, values)), values[-1])
        return histogram
    made = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = made(family.name, family.help, labels=family.labels)
    if not family.labels and not samples:
        samples = {(): 0}
    for labels, value in samples.items():
        assert not isinstance(value, list)
        metric.add_metric(labels, value)
    return metric


def _cumulative(bounds: tuple[float, ...], counts: list[float]) -> Iterator[tuple[str, float]]:
    below = 0.0
    for bound, count in zip((*bounds, float("inf")), counts, strict=False):  # what is left is their sum
        below += count
        yield "+Inf" if bound == float("inf") else str(bound), below
