"""Drawings of traces and profiles."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

import aexec
from aexec import errors
from aexec.runtime.profiling.trace_drawing import timeline_svg
from aexec.runtime.profiling.trace_summary import profile_trace


def event(name: str, ts: float, dur: float, tid: int = 0, op: str = "Add") -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "Op",
        "name": op,
        "pid": 1,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": {"name": name, "op": op},
    }


def trace(*events: dict[str, Any]) -> dict[str, Any]:
    return {"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "CPU:0"}}, *events]}


def bars(svg: str) -> list[tuple[float, float, float]]:
    """(x, y, width) of each bar."""
    boxes = [{key: float(box.get(key, "")) for key in ("x", "y", "width")} for box in _all(svg, "rect")]
    return [(box["x"], box["y"], box["width"]) for box in boxes]


def _all(svg: str, kind: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{kind}"))


def test_bars_are_where_and_as_long_as_runs() -> None:
    svg = timeline_svg(trace(event("a", 100, 500), event("b", 600, 500), event("c", 100, 1000, tid=1)))
    (x_a, y_a, a), (x_c, y_c, c), (x_b, y_b, b) = bars(svg)
    assert a == b == c / 2 and x_a == x_c and x_b == pytest.approx(x_a + a)
    assert y_a == y_b < y_c
    texts = [element.text for element in _all(svg, "text")]
    assert "CPU:0" in texts and "0 ms" in texts and "1 ms" in texts and "a" not in texts[:2]
    assert next(title.text for title in _all(svg, "title")) == "a\nAdd, 0.500 ms"


def test_names_are_never_markup() -> None:
    svg = timeline_svg(trace(event("<script>x</script>", 0, 10, op="<b>")))
    assert "<script" not in svg and "<b>" not in svg
    html = profile_trace(trace(event("<script>", 0, 10, op="<i>")), by="op")._repr_html_()
    assert "<i>" not in html


def test_the_longest_runs_are_drawn() -> None:
    svg = timeline_svg(trace(*(event(f"n{i}", i, 1 + i % 2) for i in range(3000))))
    assert len(bars(svg)) == 2000 and "1000 node runs are left out" in svg
    svg = timeline_svg(trace(*(event("n", i, 1, tid=i) for i in range(50))))
    assert len(bars(svg)) == 40 and "10 node runs are left out" in svg


def test_empty_trace_is_drawn() -> None:
    assert bars(timeline_svg(trace())) == []
    with pytest.raises(errors.InvalidArgumentError, match="expected a Chrome trace"):
        timeline_svg({"traceEvents": 1})


def test_profile_has_a_bar_for_each_share() -> None:
    html = profile_trace(trace(event("a", 0, 300), event("b", 300, 100, op="Mul")))._repr_html_()
    assert re.findall(r"width: (\d+)px", html) == ["150", "50"]
    many = profile_trace(trace(*(event("n", i, 1, op=f"Op{i}") for i in range(20))))._repr_html_()
    assert "8 more" in many and many.count("<tr>") == 14


async def test_metadata_of_a_traced_run_is_drawn() -> None:
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        y = aexec.ops.square(x, name="squared")
    metadata = aexec.RunMetadata()
    async with aexec.Session(graph) as session:
        await session.run(y, {x: [1.0]}, options=aexec.RunOptions(trace=True), metadata=metadata)
    assert "squared" in metadata.timeline() and metadata.timeline() in metadata._repr_html_()
    assert "squared" not in aexec.RunMetadata()._repr_html_()
    with pytest.raises(errors.FailedPreconditionError, match="was not traced"):
        aexec.RunMetadata().timeline()
