"""What a server counts, as Prometheus reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from aexec_server.models.model_statistics import ModelStatistics
from aexec_server.watching.metrics import (
    FAMILIES,
    Counter,
    Histogram,
    LabelledHistogram,
    Metrics,
    Snapshot,
    Totals,
    increase,
    merged,
    snapshot_from_json,
    snapshot_to_json,
)
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

import aexec
from tests.server.conftest import Api, Start, gate_graph, small_graph
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder
from tests.support.waiting import until

# HTTP.md has these names.
PROMISED = {
    "aexec_runs_total": ("model", "code"),
    "aexec_run_duration_seconds": (),
    "aexec_run_queue_seconds": (),
    "aexec_runs_in_flight": (),
    "aexec_cancellations_total": ("reason",),
    "aexec_cancel_latency_seconds": (),
    "aexec_kernel_duration_seconds": ("op", "device"),
    "aexec_event_loop_lag_seconds": (),
    "aexec_tensor_store_bytes": (),
    "aexec_gpu_pool_bytes": ("device", "kind"),
    "aexec_sessions": (),
}
X = {"x": [1.0, 2.0]}


class Scrape:
    """The numbers of a scrape."""

    def __init__(self, text: str) -> None:
        self.kinds: dict[str, str] = {}
        self._samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text):
            self.kinds[family.name] = family.type
            for sample in family.samples:
                self._samples[sample.name, frozenset(sample.labels.items())] = sample.value

    def __call__(self, name: str, **labels: str) -> float:
        return self._samples.get((name, frozenset(labels.items())), 0.0)

    def all(self, name: str) -> list[Mapping[str, str]]:
        return [dict(labels) for sample, labels in self._samples if sample == name]


async def scrape(api: Api) -> Scrape:
    response, body = await api.raw("GET", "/metrics")
    assert response.status == 200
    return Scrape(body.decode())


def model() -> aexec.Graph:
    with aexec.Graph() as graph:
        aexec.ops.square(aexec.placeholder("float32", [None], name="x"), name="y")
    return graph


async def test_names_and_kinds(api: Api) -> None:
    for path in ("/metrics", "/monitoring/prometheus/metrics"):
        response, body = await api.raw("GET", path)
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        kinds = Scrape(body.decode()).kinds
        for name in PROMISED:
            assert name.removesuffix("_total") in kinds, name
    for name, labels in PROMISED.items():
        assert FAMILIES[name.removesuffix("_total")].labels == labels
    assert kinds["aexec_runs"] == "counter" and kinds["aexec_run_duration_seconds"] == "histogram"


async def test_runs_are_counted_by_model_and_outcome(start: Start) -> None:
    api = await start(graphs={"square": model()})
    handle = await api.create(small_graph())
    assert (await api.run("square", feeds=X, fetches=["y"]))[0] == 200
    tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": [3.0]}
    assert (await api.call("POST", "/v2/models/square/infer", {"inputs": [tensor]}))[0] == 200
    assert (await api.run(handle, feeds=X, fetches=["y"]))[0] == 200
    assert (await api.run(handle, feeds=X, fetches=["fails"]))[0] != 200
    assert (await api.run(handle, feeds=X, fetches=["nope"]))[0] == 404
    found = await scrape(api)
    assert found("aexec_runs_total", model="square", code="OK") == 2
    assert found("aexec_runs_total", model="", code="OK") == 1
    assert found("aexec_runs_total", model="", code="NOT_FOUND") == 1
    assert found("aexec_run_duration_seconds_count") == found("aexec_run_queue_seconds_count") == 5
    assert found("aexec_run_duration_seconds_bucket", le="+Inf") == 5
    assert 0 < found("aexec_run_duration_seconds_sum") < 60
    assert found("aexec_sessions") == 2 and found("aexec_runs_in_flight") == 0


async def test_labels_name_no_session_and_no_run(api: Api) -> None:
    handle = await api.create(small_graph())
    assert (await api.run(handle, feeds=X, fetches=["y"], run_id="very-special"))[0] == 200
    _, body = await api.raw("GET", "/metrics")
    assert handle.encode() not in body and b"very-special" not in body


class TestCancellations:
    async def waiting(self, api: Api) -> tuple[str, asyncio.Task[tuple[int, Any]]]:
        gate = gates.Gate()
        handle = await api.create(gate_graph(gate))
        run = asyncio.create_task(api.run(handle, fetches=["y"], run_id="r"))
        await gate.entered.wait()
        return handle, run

    async def counted(self, api: Api, reason: str, *, timed: bool = True) -> None:
        found = await scrape(api)
        reasons = {labels["reason"] for labels in found.all("aexec_cancellations_total")}
        assert reasons == {reason} and found("aexec_cancellations_total", reason=reason) == 1
        assert found("aexec_cancel_latency_seconds_count") == timed

    async def test_cancellation_by_request(self, api: Api) -> None:
        handle, run = await self.waiting(api)
        assert (await scrape(api))("aexec_runs_in_flight") == 1
        await api.call("POST", f"/v1/sessions/{handle}/runs/r:cancel")
        assert (await run)[0] == 499
        await self.counted(api, "api")

    async def test_deadline(self, api: Api) -> None:
        handle = await api.create(gate_graph(gates.Gate()))
        # The run does not wait for long before its gate, but on a busy machine for longer than some milliseconds.
        assert (await api.run(handle, fetches=["y"], options={"timeout_in_ms": 500}))[0] == 504
        await self.counted(api, "deadline")

    async def test_client_that_leaves(self, api: Api) -> None:
        handle, run = await self.waiting(api)
        run.cancel()
        await until(lambda: not api.hosted(handle).runs.live)
        await self.counted(api, "disconnect", timed=False)

    async def test_cancellation_by_deleting_the_session(self, api: Api) -> None:
        handle, run = await self.waiting(api)
        assert (await api.call("DELETE", f"/v1/sessions/{handle}"))[0] == 204
        assert (await run)[0] == 499
        await self.counted(api, "api", timed=False)

    async def test_shutdown(self, api: Api) -> None:
        _, run = await self.waiting(api)
        api.server.sessions.cancel_all("shutdown")
        assert (await run)[0] == 499
        await self.counted(api, "shutdown")

    async def test_overload_counts_as_a_cancellation(self, start: Start) -> None:
        api = await start(max_runs=1)
        handle, run = await self.waiting(api)
        assert (await api.run(handle, fetches=["y"]))[0] == 429
        found = await scrape(api)
        assert found("aexec_cancellations_total", reason="overload") == 1
        assert found("aexec_runs_total", model="", code="RESOURCE_EXHAUSTED") == 1
        await api.call("POST", f"/v1/sessions/{handle}/runs/r:cancel")
        await run

    async def test_waiting_in_line_is_timed(self, start: Start) -> None:
        api = await start(run_slots=1, queue_seconds=0.02)
        api.server.config.clock()
        gate = gates.ThreadGate()
        graph = gate_graph(gates.Gate())
        graph("blocked", "TestThreadGate", "c", key=gate.key, T=aexec.float32)
        handle = await api.create(graph)
        runs = [asyncio.create_task(api.run(handle, fetches=["blocked"])) for _ in range(5)]
        await until(lambda: sum(run.done() for run in runs) == 1)  # of four places on an idle server all are taken
        gate.open.set()
        statuses = sorted([(await run)[0] for run in runs])
        assert statuses == [200, 200, 200, 200, 429]
        found = await scrape(api)
        assert found("aexec_run_queue_seconds_sum") >= 0.01
        assert found("aexec_cancellations_total", reason="overload") == 1


class TestKernels:
    async def test_traced_run_is_counted(self, api: Api, small: str) -> None:
        await api.run(small, feeds=X, fetches=["y"])
        assert (await scrape(api)).all("aexec_kernel_duration_seconds_count") == []
        status, answer = await api.run(small, feeds=X, fetches=["y"], options={"trace_level": "FULL_TRACE"})
        assert status == 200 and "metadata" in answer
        ops = {labels["op"] for labels in (await scrape(api)).all("aexec_kernel_duration_seconds_count")}
        assert "Square" in ops

    async def test_sampled_runs_are_counted(self, start: Start) -> None:
        api = await start(kernel_samples=2)
        handle = await api.create(small_graph())
        for _ in range(4):
            status, answer = await api.run(handle, feeds=X, fetches=["y"])
            assert status == 200 and "metadata" not in answer
        found = await scrape(api)
        (labels,) = [one for one in found.all("aexec_kernel_duration_seconds_count") if one["op"] == "Square"]
        assert found("aexec_kernel_duration_seconds_count", **labels) == 2


async def test_kept_tensors_are_counted(api: Api, small: str) -> None:
    handle = await api.hosted(small).session.tensors.put(np.ones(100, np.float32))
    found = await scrape(api)
    assert found("aexec_tensor_store_bytes") == found("aexec_memory_bytes", kind="in_use") == 400
    assert found("aexec_memory_bytes", kind="limit") == api.server.sessions.memory.limit
    api.hosted(small).session.tensors.delete(handle)
    assert (await scrape(api))("aexec_memory_bytes", kind="in_use") == 0


async def test_queues(start: Start) -> None:
    g = GraphBuilder()
    g("q", "FIFOQueueV2", component_types=[aexec.float32])
    g.const("one", 1.0, aexec.float32)
    g("put", "QueueEnqueueV2", "q", "one", Tcomponents=[aexec.float32])
    api = await start(graphs={"filled": g.graph()}, allow_model_changes=True)
    for handle in ("filled", await api.create(g), await api.create(g)):
        for _ in range(2):
            assert (await api.run(handle, fetches=[], targets=["put"]))[0] == 200
    found = await scrape(api)
    assert found("aexec_queue_size", queue="filled/q") == 2 and found("aexec_queue_size", queue="") == 4


async def test_loop_is_watched(api: Api) -> None:
    async def looked_at() -> bool:
        return (await scrape(api))("aexec_event_loop_lag_seconds_count") > 0

    async with asyncio.timeout(100):
        while not await looked_at():
            await asyncio.sleep(0)


class TestParts:
    def test_labels_are_bounded(self) -> None:
        counter, histogram = Counter(), LabelledHistogram(FAMILIES["aexec_kernel_duration_seconds"])
        for i in range(2000):
            counter.add((f"m{i}", "OK"))
            histogram.observe(1e-5, (f"op{i}", "cpu"))
        assert len(counter.samples()) <= 501 and len(histogram.samples()) <= 501
        assert counter.samples()["other", "other"] == 1500
        values = histogram.samples()["other", "other"]
        assert isinstance(values, list) and sum(values[:-1]) == 1500

    @pytest.mark.parametrize(("value", "bucket"), [(0.0, 0), (0.0005, 0), (0.0006, 1), (60, 15), (61, 16)])
    def test_bucket_has_its_upper_bound(self, value: float, bucket: int) -> None:
        histogram = Histogram(FAMILIES["aexec_run_duration_seconds"])
        histogram.observe(value)
        assert histogram.values.index(1) == bucket and histogram.values[-1] == value

    def test_processes_are_added_up(self) -> None:
        one, other = Metrics(), Metrics()
        for metrics in (one, other):
            metrics.gauge("aexec_sessions", lambda: {(): 2})
            metrics.runs.add(("m", "OK"))
            metrics.run_seconds.observe(0.25)
        other.runs.add(("m", "ABORTED"))
        sent = snapshot_from_json(snapshot_to_json(other.snapshot()))
        assert sent == other.snapshot()
        both = merged([one.snapshot(), sent])
        assert both["aexec_runs"] == {("m", "OK"): 2, ("m", "ABORTED"): 1}
        assert both["aexec_sessions"] == {(): 4}
        seconds = both["aexec_run_duration_seconds"][()]
        assert isinstance(seconds, list) and seconds[-1] == 0.5 and sum(seconds[:-1]) == 2

    def test_increases_add_up_to_what_is_counted(self) -> None:
        metrics, totals = Metrics(), Totals()
        sessions = 2
        metrics.gauge("aexec_sessions", lambda: {(): sessions})
        told: Snapshot = {}
        for code in ("OK", "OK", "ABORTED"):
            metrics.runs.add(("m", code))
            metrics.run_seconds.observe(0.25)
            now = metrics.snapshot()
            totals.add(increase(now, told))
            told = now
        assert totals.sums["aexec_runs"] == metrics.runs.samples()
        assert totals.sums["aexec_run_duration_seconds"][()] == metrics.run_seconds.values
        assert increase(metrics.snapshot(), told) == {}
        sessions = 5
        assert increase(metrics.snapshot(), told) == {"aexec_sessions": {(): 5}}
        metrics.runs.add(("m", "OK"))
        assert increase(metrics.snapshot(), told)["aexec_runs"] == {("m", "OK"): 1}


def test_time_in_line_is_a_part_of_a_models_statistics() -> None:
    statistics = ModelStatistics()
    statistics.count_success(began=0, read=100, ran=1000, rows=1, queued=300)
    parts = statistics.describe()["inference_stats"]
    assert parts["queue"] == {"count": 1, "ns": 300} and parts["compute_input"]["ns"] == 100
    assert parts["compute_infer"]["ns"] == 600


async def test_openmetrics_where_it_is_asked_for(api: Api, small: str) -> None:
    """The same numbers as in Prometheus' own format, in the words of the other."""
    await api.run(small, feeds=X, fetches=["y"])
    plain = Scrape((await api.raw("GET", "/metrics"))[1].decode())
    accept = (
        "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
        "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,/;q=0.1"
    )
    response, body = await api.raw("GET", "/metrics", Accept=accept)
    assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    text = body.decode()
    assert text.endswith("# EOF\n") and text.count("# EOF") == 1
    families = {family.name: family for family in openmetrics_families(text)}
    (sample,) = families["aexec_runs"].samples
    assert (sample.name, sample.labels, sample.value) == ("aexec_runs_total", {"model": "", "code": "OK"}, 1)
    assert plain("aexec_runs_total", model="", code="OK") == 1
    assert families["process_cpu_seconds"].type == "counter" and plain.kinds["process_cpu_seconds"] == "counter"


@pytest.mark.parametrize(
    "accept",
    ["", "*/*", "text/plain", "text/html", "text/plain, application/openmetrics-text;q=0.1", "text/plain; version=x"],
)
async def test_text_of_prometheus_for_all_others(api: Api, accept: str) -> None:
    response, body = await api.raw("GET", "/metrics", Accept=accept)
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8" and b"# EOF" not in body


@pytest.mark.parametrize("version", ["", "version=abc", "version=9.9.9", 'version="1.0.0', "escaping=nothing"])
async def test_odd_parameters_of_openmetrics_do_no_harm(api: Api, version: str) -> None:
    response, _ = await api.raw("GET", "/metrics", Accept=f"application/openmetrics-text; {version}")
    assert response.status == 200 and response.content_type == "application/openmetrics-text"


async def test_partial_run_that_fails_counts_though_nobody_asks(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    api = await start(step_log=True)
    handle = await api.create(small_graph())
    asked = {"feeds": ["x"], "fetches": ["y", "fails"], "run_id": "parts"}
    part = f"/v1/sessions/{handle}/partialRuns/parts:run"
    with caplog.at_level("INFO", "aexec_server.steps"):
        assert (await api.call("POST", f"/v1/sessions/{handle}:partialRunSetup", asked))[0] == 200
        await api.call("POST", part, {"feeds": {"x": [1]}})
        await until(lambda: not api.hosted(handle).runs.live)
    metrics = api.server.metrics.snapshot()
    assert metrics["aexec_runs"] == {("", "INVALID_ARGUMENT"): 1}
    assert "run parts" in caplog.text and "INVALID_ARGUMENT after" in caplog.text
    assert (await api.call("POST", part, {"fetches": ["fails"]}))[1]["node"] == "fails"  # and is told to who asks


async def test_partial_run_counts_once_as_a_run(api: Api, small: str) -> None:
    asked = {"feeds": ["x"], "fetches": ["y"], "run_id": "parts"}
    await api.call("POST", f"/v1/sessions/{small}:partialRunSetup", asked)
    answer = await api.call(
        "POST", f"/v1/sessions/{small}/partialRuns/parts:run", {"feeds": {"x": [2]}, "fetches": ["y"]}
    )
    assert answer[0] == 200
    await until(lambda: not api.hosted(small).runs.live)
    assert api.server.metrics.snapshot()["aexec_runs"] == {("", "OK"): 1}
