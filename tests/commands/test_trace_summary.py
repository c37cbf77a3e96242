"""`aexec trace-summary`: what a trace that was written to a file tells of ops and nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import aexec
from aexec import cli, errors
from aexec.runtime.profiling.trace_summary import profile_trace, trace_facts


def event(name: str, op: str, start: float, duration: float, **args: Any) -> dict[str, Any]:
    args = {"name": name, "op": op, **args}
    return {"ph": "X", "cat": "Op", "name": op, "pid": 1, "tid": 0, "ts": start, "dur": duration, "args": args}


SOURCE = event("_SOURCE", "NoOp", 0, 0)
OURS = [
    SOURCE,
    event("a", "MatMul", 10, 300, self_us=300, bytes=1000, where="thread"),
    event("b", "Relu", 400, 100, self_us=60, bytes=4000, where="awaited"),
    event("c", "Relu", 500, 20, self_us=20, bytes=0, where="inline"),
    {"ph": "s", "cat": "DataFlow", "name": "a", "pid": 1, "tid": 0, "ts": 10, "id": 0},
]


def test_ops_are_added_up() -> None:
    profile = profile_trace({"traceEvents": OURS})
    product, relu = profile.entries
    assert (product.name, product.calls, product.self_seconds) == ("MatMul", 1, pytest.approx(300e-6))
    assert (relu.nodes, relu.calls, relu.requested_bytes) == (2, 2, 4000)
    assert (relu.total_seconds, relu.self_seconds) == (pytest.approx(120e-6), pytest.approx(80e-6))
    assert relu.where == {"awaited": 1, "inline": 1}
    assert [e.name for e in profile_trace(OURS, by="node", order_by="bytes").entries] == ["b", "a", "c"]
    assert trace_facts(OURS) == "3 node runs on 1 device, 0.510 ms"


def test_foreign_trace_has_times_only() -> None:
    (entry,) = profile_trace([SOURCE, event("a", "MatMul", 10, 300)]).entries
    assert (entry.total_seconds, entry.self_seconds) == (pytest.approx(300e-6), pytest.approx(300e-6))
    assert (entry.requested_bytes, entry.where) == (0, {"unknown": 1})


def test_empty_trace() -> None:
    assert profile_trace({"traceEvents": []}).entries == ()
    assert trace_facts([]) == "0 node runs on 0 devices"


@pytest.mark.parametrize("trace", [3, {"events": []}, {"traceEvents": "x"}, [1]])
def test_invalid_trace_is_refused(trace: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="expected a Chrome trace"):
        profile_trace(trace)


def test_event_without_times_is_named() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="event 'Neg' of the trace has no number 'dur'"):
        profile_trace([event("a", "Neg", 1, 2) | {"dur": None}])


@pytest.fixture
def trace(tmp_path: Path) -> str:
    with aexec.Graph() as graph:
        aexec.ops.square(aexec.ops.neg(aexec.placeholder("float32", [None], name="x")), name="y")
    model, path = tmp_path / "model.pb", str(tmp_path / "out.json")
    model.write_bytes(graph.to_bytes())
    assert cli.main(["run", str(model), "--feed", "x:0=[1, 2]", "--fetch", "y:0", "--trace", path]) == 0
    return path


def test_run_that_was_traced(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["trace-summary", trace, "--sort", "name"]) == 0
    first, heading, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{trace}: 2 node runs on 1 device, ")
    assert heading.split()[:3] == ["op", "nodes", "calls"]
    assert [line.split()[:3] for line in lines] == [["Neg", "1", "1"], ["Square", "1", "1"], ["all", "2", "2"]]
    assert lines[0].split()[-2:] == ["8B", "inline"]


def test_summary_has_tables_by_time_and_by_bytes(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["trace-summary", trace, "--by", "node", "--top", "1"]) == 0
    text = capsys.readouterr().out
    assert text.count("\nby self:\nnode ") == text.count("\nby bytes:\nnode ") == 1
    assert text.count("\n1 more") == 2


def test_data(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["trace-summary", trace, "--json", "--sort", "name"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in report["entries"]] == ["Neg", "Square"]
    assert report["entries"][0]["requested_bytes"] == 8


def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trace-summary", str(tmp_path / "none.json")]) == 15
    (tmp_path / "text.json").write_text("hello")
    assert cli.main(["trace-summary", str(tmp_path / "text.json")]) == 13
    assert "as JSON" in capsys.readouterr().err
