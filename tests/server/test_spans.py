"""Spans of requests and runs, as OpenTelemetry's own SDK gets them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from aexec_server import ServerConfig, make_app
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aexec import errors
from tests.hostile.test_hosts import square
from tests.server.conftest import Start, small_graph
from tests.support.server_process import ServerProcess

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)
    return exporter


async def test_a_request_and_its_run(start: Start, exported: InMemorySpanExporter) -> None:
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
    finally:
        server.stop()
    spans = {span["name"]: span for span in map(json.loads, file.read_text().splitlines())}
    run, request = spans["run"], spans["POST /v1/sessions/{session}:run"]
    assert request["context"]["trace_id"] == f"0x{TRACE}" and request["parent_id"] == f"0x{SPAN}"
    assert run["parent_id"] == request["context"]["span_id"]
    assert run["attributes"] == {"aexec.model": "", "aexec.run_id": "r1", "aexec.outcome": "OK"}
    assert "POST /v1/sessions" in spans


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(errors.FailedPreconditionError, match=r"aexec\[otel\]"):
        make_app(ServerConfig(otel=True))
