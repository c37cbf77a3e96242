"""Traces that requests belong to, and the lines that runs leave in the log."""

from __future__ import annotations

import json
import logging

import pytest
from aexec_server.watching import server_log
from aexec_server.watching.trace_context import parse_traceparent

from tests.server.conftest import Api, Start, small_graph

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


class TestTraceparent:
    def test_parts_of_a_traceparent(self) -> None:
        found = parse_traceparent(PARENT)
        assert found is not None
        assert (found.trace_id, found.parent_id, found.flags) == (TRACE, SPAN, "01")
        assert str(found) == f"00-{TRACE}-{found.span_id}-01" and found.span_id != SPAN

    def test_later_version_is_read(self) -> None:
        for text in (PARENT.replace("00-", "cc-", 1), PARENT.replace("00-", "cc-", 1) + "-what-ever"):
            found = parse_traceparent(text)
            assert found is not None and found.trace_id == TRACE

    @pytest.mark.parametrize(
        "text",
        [
            "",
            TRACE,
            PARENT + "-more",
            PARENT.upper(),
            PARENT.replace("00-", "ff-", 1),
            PARENT.replace(TRACE, "0" * 32),
            PARENT.replace(SPAN, "0" * 16),
            PARENT.replace("00-", "cc-", 1) + "-" + "x" * 1000,
            PARENT + " ",
            PARENT.replace("4", "٤"),
        ],
    )
    def test_malformed_header_is_ignored(self, text: str) -> None:
        assert parse_traceparent(text) is None


async def test_trace_is_continued(api: Api, small: str) -> None:
    response, body = await api.raw("GET", "/v1/sessions/nobody", traceparent=PARENT, tracestate="congo=t61rcWkgMzE")
    assert response.status == 404 and json.loads(body)["trace_id"] == TRACE
    _, trace, span, flags = response.headers["traceresponse"].split("-")
    assert (trace, flags) == (TRACE, "01") and span != SPAN
    run = json.dumps({"feeds": {"x": [1.0]}, "fetches": ["fails"]}).encode()
    response, body = await api.raw("POST", f"/v1/sessions/{small}:run", run, traceparent=PARENT)
    assert json.loads(body)["trace_id"] == TRACE
    assert response.headers["traceresponse"].split("-")[1] == TRACE


async def test_trace_is_begun_without_a_valid_parent(api: Api) -> None:
    traces = set()
    for sent in ({}, {"traceparent": "garbage"}):
        response, body = await api.raw("GET", "/v1/sessions/nobody", **sent)
        traces.add(json.loads(body)["trace_id"])
        assert response.headers["traceresponse"].split("-")[1] in traces
    assert len(traces) == 2 and all(len(trace) == 32 for trace in traces)
    response, _ = await api.raw("GET", "/livez")
    assert "traceresponse" not in response.headers  # nobody asked


async def test_fault_is_logged_with_its_trace(api: Api, small: str, caplog: pytest.LogCaptureFixture) -> None:
    api.server.sessions.get = None  # type: ignore[assignment, method-assign]
    response, _ = await api.raw("GET", f"/v1/sessions/{small}", traceparent=PARENT)
    assert response.status == 500 and f"(trace {TRACE}) failed: internal error" in caplog.text


async def test_line_for_each_run(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aexec_server.steps")
    api = await start(step_log=True)
    handle = await api.create(small_graph())
    for fetch in ("y", "fails"):
        run = json.dumps({"feeds": {"x": [1234.5]}, "fetches": [fetch], "run_id": f"r-{fetch}"}).encode()
        await api.raw("POST", f"/v1/sessions/{handle}:run", run, traceparent=PARENT)
    lines = [record for record in caplog.records if record.name == "aexec_server.steps"]
    ok, failed = [line.getMessage() for line in lines]
    assert ok.startswith(f"run r-y of session {handle[:6]}…: OK after 0.") and ok.endswith(f" trace={TRACE}")
    assert failed.startswith(f"run r-fails of session {handle[:6]}…: INVALID_ARGUMENT after 0.")
    said = json.loads(server_log._JsonFormatter().format(lines[0]))
    assert said["run_id"] == "r-y" and said["outcome"] == "OK" and said["trace_id"] == TRACE
    assert said["session"] == f"{handle[:6]}…" and 0 < said["seconds"] < 60 and said["step_id"] > 0
    assert handle not in caplog.text and "1234.5" not in caplog.text


async def test_none_unless_asked_for(api: Api, small: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert (await api.run(small, feeds={"x": [1.0]}, fetches=["y"]))[0] == 200
    assert [record for record in caplog.records if record.name == "aexec_server.steps"] == []
