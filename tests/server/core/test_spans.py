"""Spans of requests and runs, as OpenTelemetry's own SDK gets them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from aexec_server import ServerConfig, make_app
from aexec_server.app import route_table
from aexec_server.core.server_state import Server
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aexec import errors
from tests.hostile.test_hosts import square
from tests.server.conftest import Start, small_graph
from tests.support.server_process import ServerProcess
from tests.support.waiting import until

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)
    return exporter


async def test_request_and_its_run(start: Start, exported: InMemorySpanExporter) -> None:
    api = await start(otel=True)
    handle = await api.create(small_graph())
    exported.clear()
    body = b'{"feeds": {"x": [1.0]}, "fetches": ["y"], "run_id": "r1"}'
    parent = f"00-{TRACE}-{SPAN}-01"
    response, _ = await api.raw("POST", f"/v1/sessions/{handle}:run", body, traceparent=parent, tracestate="a=b")
    assert response.status == 200
    run, request = exported.get_finished_spans()
    assert run.name == "run" and request.name == "POST /v1/sessions/{session}:run"
    assert run.parent is not None and request.parent is not None and request.context is not None
    assert run.parent.span_id == request.context.span_id
    assert f"{request.context.trace_id:032x}" == TRACE and f"{request.parent.span_id:016x}" == SPAN
    assert request.context.trace_state.get("a") == "b"
    assert run.attributes == {"aexec.model": "", "aexec.run_id": "r1", "aexec.outcome": "OK"}
    assert request.attributes is not None and request.attributes["http.response.status_code"] == 200
    assert handle not in str(request.attributes)
    assert run.start_time is not None and request.start_time is not None and run.end_time is not None
    assert request.start_time <= run.end_time
    assert response.headers["traceresponse"] == f"00-{TRACE}-{request.context.span_id:016x}-01"


async def test_spans_are_named_by_the_template_of_each_route(start: Start, exported: InMemorySpanExporter) -> None:
    """In whichever case the path is written; and those that ask how the server is have none."""
    api = await start(otel=True)
    for route in route_table(api.server):
        path = re.sub(r"\{(\w+)\}", "1", route.path)
        for written in (path, path.upper()) if route.ignore_case else (path,):
            exported.clear()
            async with api.client.request(route.method, written) as response:
                if response.content_type != "text/event-stream":  # which ends when its client leaves
                    await response.read()
            if route.traced:
                await until(lambda: any(span.name != "run" for span in exported.get_finished_spans()))
            spans = [span for span in exported.get_finished_spans() if span.name != "run"]
            assert [span.name for span in spans] == [f"{route.method} {route.path}"] * route.traced, written
            for span in spans:
                assert span.attributes is not None and span.attributes["http.route"] == route.path


def test_calls_that_ask_how_the_server_is_have_no_spans() -> None:
    untraced = {route.path for route in route_table(Server(ServerConfig())) if not route.traced}
    health = {"/livez", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"}
    assert untraced == health | {"/metrics", "/monitoring/prometheus/metrics"}


async def test_span_of_no_route_is_named_by_its_method(start: Start, exported: InMemorySpanExporter) -> None:
    api = await start(otel=True)
    for method, name in (("GET", "GET"), ("PROPFIND", "HTTP")):
        exported.clear()
        async with api.client.request(method, "/nothing") as response:
            assert response.status == 404
        (span,) = exported.get_finished_spans()
        assert span.name == name
    assert span.attributes is not None and span.attributes["http.request.method"] == "_OTHER"


async def test_span_of_a_mounted_application_has_its_prefix(exported: InMemorySpanExporter) -> None:
    app = web.Application()
    app.add_subapp("/model", make_app(ServerConfig(otel=True)))
    async with TestClient(TestServer(app)) as client:
        for path in ("/v1/MODELS/m/metadata", "/v2/models/m"):
            async with client.get(f"/model{path}") as response:
                assert response.status == 404
    names = [span.name for span in exported.get_finished_spans()]
    assert names == ["GET /model/v1/models/{model}/metadata", "GET /model/v2/models/{model}"]


async def test_none_unless_asked_for(start: Start, exported: InMemorySpanExporter) -> None:
    await (await start()).create(small_graph())
    assert exported.get_finished_spans() == ()


# What `opentelemetry-instrument` does: Python runs this at the beginning of each process.
_SET_UP = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

exporter = ConsoleSpanExporter(out=open({!r}, "a"), formatter=lambda span: span.to_json(indent=None) + chr(10))
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(exporter))
trace.set_tracer_provider(provider)
"""


def test_session_hosts_make_spans_too(tmp_path: Path) -> None:
    file = tmp_path / "spans"
    (tmp_path / "sitecustomize.py").write_text(_SET_UP.format(str(file)))
    server = ServerProcess(tmp_path, watch=False, first=tmp_path, hosts=1, otel=True)
    try:
        handle = server.create(square())
        asked = {"feeds": {"x": [1.0]}, "fetches": ["y"], "run_id": "r1"}
        headers = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
        assert server.call("POST", f"/v1/sessions/{handle}:run", asked, headers).status == 200
        assert server.call("GET", "/v1/sessions").status == 200
        assert server.call("GET", "/metrics").status == 200
    finally:
        server.stop()
    spans = {span["name"]: span for span in map(json.loads, file.read_text().splitlines())}
    run, request = spans["run"], spans["POST /v1/sessions/{session}:run"]
    assert request["context"]["trace_id"] == f"0x{TRACE}" and request["parent_id"] == f"0x{SPAN}"
    assert run["parent_id"] == request["context"]["span_id"]
    assert run["attributes"] == {"aexec.model": "", "aexec.run_id": "r1", "aexec.outcome": "OK"}
    # None of what the front asks its host.
    names = [json.loads(line)["name"] for line in file.read_text().splitlines()]
    assert sorted(names) == ["GET /v1/sessions", "POST /v1/sessions", "POST /v1/sessions/{session}:run", "run"]


def test_missing_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(errors.FailedPreconditionError, match=r"aexec\[otel\]"):
        make_app(ServerConfig(otel=True))
